"""Why an agent failed: the fallback reason an error amounts to, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.executor_errors import ExecutorError, OutputSchemaValidationError
from detent.kernel.errors import BudgetExceededError
from detent.kernel.plain import writable

LONGEST_ERROR = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed; the last attempt's failure is that of the whole execution."""

    reason: FallbackReason
    type: str
    message: str
    transient: bool = False
    retry_after: float | None = None
    problems: tuple[str, ...] = ()
    """Violations of the hard contract, sent to the agent with the next attempt."""

    @property
    def loggable(self) -> str:
        """The message where it is known to hold no values; otherwise only the type of the error."""
        return self.type if self.reason is FallbackReason.EXCEPTION else self.message

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The failure an exception amounts to."""
        try:
            message = writable(str(error))[:LONGEST_ERROR]
        except Exception:  # its `__str__` raises
            message = ""
        if isinstance(error, ExecutorError):
            problems = error.validation_errors if isinstance(error, OutputSchemaValidationError) else ()
            return cls(
                error.reason, type(error).__name__, message, error.transient, error.retry_after, problems
            )
        if isinstance(error, BudgetExceededError):
            return cls(FallbackReason.BUDGET, type(error).__name__, message)
        transient = isinstance(error, ConnectionError)
        return cls(FallbackReason.EXCEPTION, type(error).__name__, message, transient)

    def to_plain(self) -> dict[str, Any]:
        """As the journal keeps it."""
        plain: dict[str, Any] = {"type": self.type, "message": self.message, "reason": self.reason.value}
        if self.transient:
            plain["transient"] = True
        if self.retry_after is not None:
            plain["retry_after"] = self.retry_after
        if self.problems:
            plain["problems"] = list(self.problems)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Failure:
        """Read back what `to_plain` wrote."""
        return cls(
            FallbackReason(plain["reason"]), plain["type"], plain["message"], plain.get("transient", False),
            plain.get("retry_after"), tuple(plain.get("problems", ())),
        )  # fmt: skip
