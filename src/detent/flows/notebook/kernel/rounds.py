"""A round as its effect is told about it: the actions, and what is to be looked at afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RoundSpec:
    """One round of text and code."""

    actions: Sequence[Mapping[str, Any]]
    """Plain actions, in document order."""
    behavior: str
    iteration: int
    round: int
    base: Sequence[str]
    """The accepted attempts that the kernel has to hold, in order."""
    names: Sequence[str] = ()
    """Artifacts to look at: variables, and files where a name contains a slash."""
    criteria: Sequence[str] = ()
    """Expressions to evaluate."""
    probes: Mapping[str, str] = field(default_factory=dict)
    """Expressions of the flow's own, by name."""
