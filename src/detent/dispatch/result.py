"""The result of one step's dispatch: who performed it, the gate's check, the reason of a fallback.

A result has one of three shapes, checked when it is made, so that readers need not interpret arbitrary
combinations of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode
from detent.dispatch.equivalence import MOST_KEPT, Discrepancy
from detent.kernel.budget import NOTHING, Spend

Shape: TypeAlias = Literal["plain", "accepted", "fallback"]

NEVER_CALLED = frozenset({FallbackReason.OPERATOR, FallbackReason.NO_INTENT, FallbackReason.NO_EXECUTOR})
"""Reasons for which the agent was not called. For `budget` it may have been; for all others it was."""
COMPARING = frozenset({Check.VALIDATOR, Check.COMPARE})
"""Checks that can reject an answer."""


@dataclass(frozen=True, slots=True)
class AgentFailure:
    """Why an agent failed, in short."""

    type: str
    """The name of the error's class."""
    message: str = ""
    """Names places and expectations, never the agent's values, because it reaches logs."""

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {"type": self.type, "message": self.message} if self.message else {"type": self.type}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> AgentFailure:
        """Read back what `to_plain` wrote."""
        return cls(plain["type"], plain.get("message", ""))


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """The result of one execution of a step: whose output counts, and why.

    Made with `plain`, `accepted` or `fallback`; other combinations of fields raise `ValueError`.
    """

    output: Any
    """Journaled with the step, so not part of the plain form."""
    mode_used: StepMode
    """Whose output it is."""
    fallback_used: bool = False
    fallback_reason: FallbackReason | None = None
    autonomy_level: AutonomyLevel = AutonomyLevel.OPERATOR
    """The level in force: as configured, or lower where the step was demoted."""
    agent_called: bool = False
    agent_result_accepted: bool | None = None
    """None if no agent was configured."""
    forced: bool = False
    """Handlers were forced, by a switch that overrides all configuration."""
    check: Check | None = None
    """None if no answer reached the gate."""
    validation_details: tuple[Discrepancy, ...] = ()
    more_details: int = 0
    """Number of further discrepancies, not kept."""
    agent_error: AgentFailure | None = None
    """Failure of the last attempt, or the reason the agent was not called."""
    attempts: int = 0
    """Number of attempts to ask the agent."""
    duration_ms: float = 0.0
    agent_duration_ms: float | None = None
    handler_duration_ms: float | None = None
    spend: Spend = NOTHING
    shadow: bool = False
    """The execution was shadowed, for statistics."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "validation_details", tuple(self.validation_details))
        if broken := list(self._broken()):
            raise ValueError(f"No dispatch result has this shape: {'; '.join(broken)}.")

    # -- the three shapes -----------------------------------------------------------------------------------

    @classmethod
    def plain(
        cls,
        output: Any = None,
        *,
        autonomy_level: AutonomyLevel = AutonomyLevel.OPERATOR,
        forced: bool = False,
        duration_ms: float = 0.0,
        handler_duration_ms: float | None = None,
        spend: Spend = NOTHING,
        shadow: bool = False,
    ) -> DispatchResult:
        """The handler performed the step, as configured or forced."""
        return cls(
            output,
            StepMode.DETERMINISTIC,
            autonomy_level=autonomy_level,
            forced=forced,
            duration_ms=duration_ms,
            handler_duration_ms=handler_duration_ms,
            spend=spend,
            shadow=shadow,
        )

    @classmethod
    def accepted(
        cls,
        output: Any = None,
        *,
        autonomy_level: AutonomyLevel,
        check: Check,
        validation_details: tuple[Discrepancy, ...] = (),
        more_details: int = 0,
        attempts: int = 1,
        duration_ms: float = 0.0,
        agent_duration_ms: float | None = None,
        handler_duration_ms: float | None = None,
        spend: Spend = NOTHING,
        shadow: bool = False,
    ) -> DispatchResult:
        """The agent's answer passed the gate."""
        return cls(
            output,
            StepMode.AGENT,
            autonomy_level=autonomy_level,
            agent_called=True,
            agent_result_accepted=True,
            check=check,
            validation_details=validation_details,
            more_details=more_details,
            attempts=attempts,
            duration_ms=duration_ms,
            agent_duration_ms=agent_duration_ms,
            handler_duration_ms=handler_duration_ms,
            spend=spend,
            shadow=shadow,
        )

    @classmethod
    def fallback(
        cls,
        output: Any = None,
        *,
        reason: FallbackReason,
        autonomy_level: AutonomyLevel,
        attempts: int = 0,
        check: Check | None = None,
        validation_details: tuple[Discrepancy, ...] = (),
        more_details: int = 0,
        agent_error: AgentFailure | None = None,
        duration_ms: float = 0.0,
        agent_duration_ms: float | None = None,
        handler_duration_ms: float | None = None,
        spend: Spend = NOTHING,
        shadow: bool = False,
    ) -> DispatchResult:
        """The step is in agent mode, and the handler performed it. With attempts, the agent was called."""
        return cls(
            output,
            StepMode.DETERMINISTIC,
            True,
            reason,
            autonomy_level,
            agent_called=attempts > 0,
            agent_result_accepted=False,
            check=check,
            validation_details=validation_details,
            more_details=more_details,
            agent_error=agent_error,
            attempts=attempts,
            duration_ms=duration_ms,
            agent_duration_ms=agent_duration_ms,
            handler_duration_ms=handler_duration_ms,
            spend=spend,
            shadow=shadow,
        )

    @property
    def shape(self) -> Shape:
        """Which of the three it is."""
        if self.mode_used is StepMode.AGENT:
            return "accepted"
        return "fallback" if self.fallback_used else "plain"

    def _broken(self) -> Iterator[str]:
        """The rules this combination of fields breaks."""
        if not isinstance(self.mode_used, StepMode):
            yield f"mode_used is a StepMode, not a {type(self.mode_used).__name__}"
            return
        shape, reason = self.shape, self.fallback_reason
        called, accepted, falls_back = _SHAPES[shape]
        if self.fallback_used is not falls_back:
            yield f"{shape}: fallback_used is {falls_back}"
        if (reason is not None) is not falls_back:
            yield f"{shape}: fallback_reason is {'set' if falls_back else 'None'}"
        if self.agent_result_accepted is not accepted:
            yield f"{shape}: agent_result_accepted is {accepted}"
        if called is None and reason is not None and reason is not FallbackReason.BUDGET:
            called = reason not in NEVER_CALLED
        if called is not None and self.agent_called is not called:
            yield f"{shape}{f' for {reason.value}' if reason else ''}: agent_called is {called}"
        if self.forced and shape != "plain":
            yield f"{shape}: forced is False, only a plain result is forced"
        if self.agent_error is not None and not falls_back:
            yield f"{shape}: agent_error is None, only a fallback has one"
        yield from self._broken_by_gate(shape)
        if self.attempts < 0 or (self.attempts > 0) is not self.agent_called:
            yield "attempts is 1 or more exactly when agent_called"

    def _broken_by_gate(self, shape: Shape) -> Iterator[str]:
        rejected = shape == "fallback" and self.fallback_reason is FallbackReason.VALIDATION_FAILURE
        if shape == "accepted" and self.check is None:
            yield "accepted: check says which check the gate used"
        elif rejected and self.check not in COMPARING:
            yield "fallback for validation_failure: check is validator or compare"
        elif self.check is not None and shape != "accepted" and not rejected:
            yield f"{shape}: check is None, no answer reached the gate"
        count = len(self.validation_details)
        if count and self.check in (None, Check.NONE):
            yield "validation_details come with check validator, compare or contract"
        if count > MOST_KEPT:
            yield f"validation_details holds {MOST_KEPT} at most, more_details counts the rest"
        if self.more_details < 0 or (self.more_details and count < MOST_KEPT):
            yield f"more_details counts what is beyond {MOST_KEPT} validation_details"

    # -- as plain values ------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """As plain values, without the output and without default values."""
        plain: dict[str, Any] = {"mode_used": self.mode_used.value}
        for part in _PARTS[2:]:
            value = getattr(self, part.name)
            if value != part.default:
                plain[part.name] = _written(value)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], output: Any = None) -> DispatchResult:
        """Read back what `to_plain` wrote; unknown keys are ignored."""
        values = {
            part.name: _READERS.get(part.name, _same)(plain[part.name])
            for part in _PARTS[1:]
            if plain.get(part.name) is not None
        }
        return cls(output, **values)


_PARTS = fields(DispatchResult)

_SHAPES: Mapping[Shape, tuple[bool | None, bool | None, bool]] = {
    "plain": (False, None, False),
    "accepted": (True, True, False),
    "fallback": (None, False, True),
}
"""By shape: agent_called (None: the reason says), agent_result_accepted, fallback_used and a reason."""


def _same(value: Any) -> Any:
    return value


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [item.to_plain() for item in value]
    if isinstance(value, (Spend, AgentFailure)):
        return value.to_plain()
    return getattr(value, "value", value)


_READERS: Mapping[str, Any] = {
    "mode_used": StepMode,
    "fallback_reason": FallbackReason,
    "autonomy_level": AutonomyLevel,
    "check": Check,
    "validation_details": lambda items: tuple(Discrepancy.from_plain(item) for item in items),
    "agent_error": AgentFailure.from_plain,
    "spend": Spend.from_plain,
}
"""By field: converts a plain value to the field's type. Fields not listed here are plain already."""


def milliseconds(seconds: float) -> float:
    """Seconds as records keep them."""
    return round(seconds * 1000, 3)
