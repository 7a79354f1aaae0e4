"""What a project says about who performs its steps: handed to the engine once, looked up per step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from detent.dispatch.config import StepConfig
from detent.dispatch.evidence import EvidenceRules
from detent.dispatch.executor import ExecutorSource

if TYPE_CHECKING:
    from detent.dispatch.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """The layers below a step's own configuration, and where executors come from."""

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
    """What is doubtful about them was said when they were read."""
    cwd: Path | None = None
    """The project's folder, given to executors."""

    def performer(self) -> Dispatcher:
        """A dispatcher under these settings."""
        from detent.dispatch.dispatcher import Dispatcher

        return Dispatcher(self)
