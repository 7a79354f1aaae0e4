"""What the code of handlers, tools, probes, guards and observers may raise, turned into ordinary failures.

Such code may not end the process, stop the event loop or leave its run between two states, whatever it
raises. Cancelling a run, stopping the engine and Ctrl-C are not its doing and pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from detent.kernel.caller import line_of
from detent.kernel.errors import InvalidValue


class ChildrenWaiting(BaseException):
    """Children wait for somebody, so their parent does too. No `except Exception` of a step swallows it."""

    def __init__(self, runs: list[str]) -> None:
        self.runs = runs
        super().__init__(f"waiting for {', '.join(runs)}")


class Acting(BaseException):
    """The step has asked for effects and goes on once they are performed; nothing for a step to catch."""


class PutDown(asyncio.CancelledError):
    """The run is put down as its journal stands: the engine is stopping, or an executor was cancelled."""


def failure(error: BaseException) -> Exception | None:
    """The failure an error stands for; None where it is none and must be raised on."""
    if isinstance(error, Exception):
        return error
    if isinstance(error, Acting | ChildrenWaiting | PutDown):
        return None
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the loop is gone, and what was left in it is being closed
        return None
    if task is None or (isinstance(error, asyncio.CancelledError) and task.cancelling()):
        return None
    if isinstance(error, KeyboardInterrupt) and _by_signal(error):
        return None
    if isinstance(error, SystemExit):
        text = f"it called exit({error.code!r}) instead of returning or raising"
    else:
        text = f"it raised {type(error).__name__}, which is reserved for the program"
    return RuntimeError(text)


def _by_signal(error: BaseException) -> bool:
    """Whether the loop's own handler raised it: a second Ctrl-C, while the program is being stopped."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == "asyncio.runners"


def message_of(error: BaseException | None) -> str:
    """The text of an error, also of one that has none or cannot tell it."""
    try:
        return str(error) or "no message"
    except Exception:
        return "no message"


def located(error: InvalidValue, function: Callable[..., Any]) -> InvalidValue:
    """The error with the place of the function that gave the value back, unless the value's own is known."""
    return error if error.where else InvalidValue(str(error), line_of(function) or "")
