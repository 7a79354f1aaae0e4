"""Why the handler performs a step that is configured for an agent, for the journal and the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detent.dispatch.agent import Asked
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason
from detent.dispatch.failure import Failure
from detent.dispatch.gate import Judgement
from detent.dispatch.result import AgentFailure, DispatchResult


@dataclass(frozen=True, slots=True)
class Fallback:
    """The cause of one fallback."""

    reason: FallbackReason
    failure: Failure | None = None
    """How the agent failed, or why it was not asked."""
    asked: Asked | None = None
    judgement: Judgement | None = None
    """The gate's, if it rejected what the agent did or said."""
    earlier: DispatchResult | None = None
    """What was recorded of the agent earlier in this visit, before a crash or the failure of an effect."""

    @classmethod
    def of(cls, failure: Failure, asked: Asked | None = None) -> Fallback:
        """The fallback after a failure."""
        return cls(failure.reason, failure, asked)

    @property
    def attempts(self) -> int:
        """How often the agent was asked."""
        if self.asked is not None:
            return self.asked.attempts
        return 0 if self.earlier is None else self.earlier.attempts

    @property
    def agent_error(self) -> AgentFailure | None:
        """How the agent failed, in short."""
        if self.failure is not None:
            return AgentFailure(self.failure.type, self.failure.message)
        return None if self.earlier is None else self.earlier.agent_error

    @property
    def facts(self) -> dict[str, Any]:
        """What the log tells of it."""
        failure, asked = self.failure, self.asked
        return {
            "reason": self.reason.value,
            "error_type": None if failure is None else failure.type,
            "error": None if failure is None else failure.loggable,
            "attempts": self.attempts,
            "agent_duration_ms": None if asked is None else round(asked.seconds * 1000, 1),
        }

    def result(
        self, level: AutonomyLevel, duration_ms: float, handler_duration_ms: float | None
    ) -> DispatchResult:
        """The record of the step's dispatch."""
        asked, judgement = self.asked, self.judgement
        before = self.earlier if self.earlier is not None and self.earlier.fallback_used else None
        more: dict[str, Any] = {}
        if judgement is not None:
            more = {
                "check": judgement.check,
                "validation_details": judgement.details,
                "more_details": judgement.more,
            }
        elif before is not None:
            more = {
                "check": before.check,
                "validation_details": before.validation_details,
                "more_details": before.more_details,
            }
        if asked is not None:
            more |= {"agent_duration_ms": round(asked.seconds * 1000, 3), "spend": asked.spend}
        elif before is not None:
            more |= {"agent_duration_ms": before.agent_duration_ms, "spend": before.spend}
        return DispatchResult.fallback(
            reason=self.reason, autonomy_level=level, attempts=self.attempts, agent_error=self.agent_error,
            duration_ms=duration_ms, handler_duration_ms=handler_duration_ms, **more,
        )  # fmt: skip
