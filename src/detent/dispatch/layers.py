"""The layers of configuration below a step's own: a project's settings for who performs its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from detent.dispatch.config import StepConfig
from detent.dispatch.evidence import EvidenceRules
from detent.dispatch.executor import ExecutorSource


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers below a step's own configuration, and the source of executors."""

    steps: Mapping[str, StepConfig] = field(default_factory=dict)
    """By qualified name (`flow/step`) or bare step name."""
    agents: Mapping[str, StepConfig] = field(default_factory=dict)
    model: StepConfig = field(default_factory=StepConfig)
    executors: ExecutorSource | None = None
    force_deterministic: bool = False
    """Every run started here uses handlers only."""
    evidence: EvidenceRules = field(default_factory=EvidenceRules)
    secrets: frozenset[str] = frozenset()
    """Values that never appear in a prompt."""
    pointed_out: bool = False
    """Whether warnings about them were already logged when they were read."""
    cwd: Path | None = None
    """The project's folder, given to executors."""
