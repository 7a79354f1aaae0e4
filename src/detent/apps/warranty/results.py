"""Results of mails and of their runs: the path, the calls, the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.apps.warranty.tools.replies import is_notice
from detent.flows.playbook.instruction import DONE
from detent.insight.visits import FunctionCall, StepTuple, StepVisit
from detent.kernel.run import Run
from detent.kernel.status import Status

RoutingMethod = Literal["default", "heuristic", "llm"]


@dataclass(frozen=True, slots=True)
class StepRoutingResult:
    """The first step of a mail, and the reason."""

    step_name: str
    confidence: float
    routing_method: RoutingMethod
    signals: dict[str, Any] = field(default_factory=dict, compare=False)
    """`spam`, `short`, `warranty_words`, `serial_count`."""
    data: dict[str, Any] = field(default_factory=dict, compare=False)
    """The data the skipped step would have set."""
    unused: str | None = field(default=None, compare=False)
    """Why a model's answer was not used: the reason of a fallback; None without a model to ask."""

    def __iter__(self) -> Any:
        return iter((self.step_name, self.confidence, self.routing_method))


@dataclass(frozen=True, slots=True)
class StepExecutionResult:
    """The result of one step."""

    next_step: str
    response_text: str
    metadata: dict[str, Any]
    step_name: str
    function_calls: tuple[FunctionCall, ...] = ()

    def is_done(self) -> bool:
        """True when the run ends successfully after this step."""
        return self.next_step == DONE


@dataclass(frozen=True, slots=True)
class OrchestrationResult:
    """The result of a run about a mail."""

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
    """The result of one mail."""

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

    @property
    def error_code(self) -> str | None:
        """The code of the last effect that failed; None if none did."""
        failed = [call for call in self.function_calls if call.kind == "effect" and not call.success]
        return (failed[-1].error_message or "").partition(":")[0] if failed else None

    def requires_retry(self) -> bool:
        """True when the mail should be run again later."""
        return self.status is Status.FAILED


def orchestration_result(run: Run, done: Sequence[StepVisit], final_output: str = "") -> OrchestrationResult:
    """The result of a run, from its finished steps."""
    return OrchestrationResult(
        run.id,
        run.status,
        run.state,
        run.reason,
        [visit.as_tuple() for visit in done],
        done[-1].step_name if done else "",
        final_output,
        run.state == DONE,
        len(done),
        dict(run.data),
        tuple(run.data.get("flags") or ()),
        round(run.seconds * 1000, 3),
        tuple(call for visit in done for call in visit.calls),
        run.error,
    )


def processing_result(
    done: OrchestrationResult, orchestrator: Literal["step", "legacy"], scenario: str
) -> ProcessingResult:
    """The result of a mail, from the result of its run."""
    data = done.context
    performed = {call.function_name: call.result for call in done.calls if call.success}
    mails = [call for call in done.calls if call.success and call.function_name == "send_email"]
    ticket = data.get("ticket_id") or (performed.get("create_ticket") or {}).get("ticket_id")
    failed = done.status.is_end and done.status is not Status.SUCCEEDED
    return ProcessingResult(
        success=done.completed,
        email_id=(data.get("mail") or {}).get("key", ""),
        run_id=done.run_id,
        orchestrator=orchestrator,
        scenario_used=scenario,
        status=done.status,
        serial_number=data.get("serial_number"),
        warranty_status=(data.get("warranty_data") or {}).get("status"),
        response_sent=any(not _is_notice(call.arguments) for call in mails),
        ticket_created=bool(ticket),
        ticket_id=ticket,
        processing_time_ms=done.processing_time_ms,
        error_message=done.error or (done.reason if failed else None),
        failed_step=(done.final_step or None) if failed else None,
        step_sequence=done.path,
        function_calls=list(done.calls),
        flags=list(done.flags),
        end=done.end,
        reason=done.reason,
    )


def _is_notice(arguments: Any) -> bool:
    """Whether a mail that was sent went to somebody else than the customer."""
    return isinstance(arguments, dict) and is_notice(str(arguments.get("to", "")), arguments.get("customer"))
