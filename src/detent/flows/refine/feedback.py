"""What earlier attempts have taught: text for agents, structure for code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FeedbackType = Literal["validation_failure", "judge_soft_failure", "judge_hard_failure"]


@dataclass(frozen=True, slots=True)
class Feedback:
    """Why one attempt was not good enough."""

    type: FeedbackType
    content: str
    """For agents."""
    iteration: int
    """Number of the attempt it is about, from 1."""
    timestamp: float = 0.0
    priority: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """For code: `issues` as in a validation report, `failing` as `{category, score, weaknesses: [{text,
    section, template}]}`, `automatic_failures` by code, `escalated`."""
