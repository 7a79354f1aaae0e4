"""What became of a mail, as values for callers: the run's path, its calls, its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from detent.insight.visits import FunctionCall
from detent.kernel.status import Status

StepTuple = tuple[str, dict[str, Any], dict[str, Any], str]
RoutingMethod = Literal["default", "heuristic", "llm"]


@dataclass(frozen=True, slots=True)
class StepRoutingResult:
    """Where a mail begins, and why."""

    step_name: str
    confidence: float
    routing_method: RoutingMethod
    signals: dict[str, Any] = field(default_factory=dict, compare=False)
    """`spam`, `short`, `warranty_words`, `serial_count`."""
    data: dict[str, Any] = field(default_factory=dict, compare=False)
    """What the step that is skipped would have found."""

    def __iter__(self) -> Any:
        return iter((self.step_name, self.confidence, self.routing_method))


@dataclass(frozen=True, slots=True)
class StepExecutionResult:
    """What one step gave."""

    next_step: str
    response_text: str
    metadata: dict[str, Any]
    step_name: str
    function_calls: tuple[FunctionCall, ...] = ()

    def is_done(self) -> bool:
        """True when the procedure ends here as it should."""
        return self.next_step == "DONE"


@dataclass(frozen=True, slots=True)
class OrchestrationResult:
    """What a run about a mail came to."""

    run_id: str
    status: Status
    end: str
    reason: str | None
    step_history: list[StepTuple]
    final_step: str
    final_output: str
    completed: bool
    """It ended in DONE."""
    total_steps: int
    context: dict[str, Any]
    flags: tuple[str, ...]
    processing_time_ms: float
    calls: tuple[FunctionCall, ...] = ()
    error: str | None = None

    @property
    def path(self) -> list[str]:
        """The steps taken, in order."""
        return [step for step, *_ in self.step_history]


@dataclass(frozen=True, slots=True)
class ProcessingResult:
    """What became of one mail."""

    success: bool
    email_id: str
    """The mail's key."""
    run_id: str
    orchestrator: Literal["step", "legacy"]
    scenario_used: str
    """`steps:<last step>`, `steps:error`, or the scenario."""
    status: Status
    serial_number: str | None = None
    warranty_status: str | None = None
    response_sent: bool = False
    ticket_created: bool = False
    ticket_id: str | None = None
    processing_time_ms: float = 0.0
    error_message: str | None = None
    failed_step: str | None = None
    step_sequence: list[str] = field(default_factory=list)
    function_calls: list[FunctionCall] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    end: str = ""
    reason: str | None = None

    def requires_retry(self) -> bool:
        """True when the mail should be run again later."""
        return self.status is Status.FAILED
