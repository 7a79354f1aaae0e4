"""How a step fails: for now (`Transient`), or because its output says so (`StepFailed`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from detent.kernel import checks
from detent.kernel.errors import DetentError

LONGEST_WAIT = 366 * 86400.0
"""Seconds after which a step is tried again at the latest, whatever a server asks for."""


class Transient(DetentError):
    """Raised by a handler or query: it failed, but trying again may help."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        if retry_after is not None and not (checks.is_number(retry_after) and retry_after >= 0):
            raise checks.refuse("Transient.retry_after", retry_after, "a number of seconds, 0 or more")
        self.retry_after = None if retry_after is None else min(float(retry_after), LONGEST_WAIT)
        """Seconds to wait at least, when whoever failed said so."""
        super().__init__(message)


class StepFailed(DetentError):
    """A step's output says of itself that it failed: `success: false`, whoever gave it."""

    detail: Mapping[str, Any] | None = None
    """What the journal keeps about how it was performed."""


def refused(output: Any) -> str | None:
    """Why an output says of itself that it failed: `success` is false in it; None when it does not."""
    if isinstance(output, Mapping):
        success, why = output.get("success"), output.get("error")
    elif is_dataclass(output) or hasattr(output, "model_dump"):
        success, why = getattr(output, "success", None), getattr(output, "error", None)
    else:
        return None
    return str(why or "its output says so") if success is False else None


TRANSIENT: tuple[type[BaseException], ...] = (Transient, TimeoutError, ConnectionError)


class Diverged(StepFailed):
    """The handler cannot go on where an agent has acted, and was not called."""


class StepChanged(DetentError):
    """A step that goes on after its effects did not come to them again."""

    def __init__(self, step: str, tool: str = "") -> None:
        self.step = step
        self.tool = tool
        what = f"asks for '{tool}' where it has performed other effects" if tool else "ends before them"
        super().__init__(
            f"Step '{step}' did not come again to the effects it has performed: it {what}. A step that calls "
            f"ctx.perform is called again from its top and may depend only on its inputs, queries and "
            f"receipts; put the time, random numbers and the like into ctx.once."
        )
