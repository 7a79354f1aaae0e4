"""Finds the line of the caller's code, for errors about a value somebody made there."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_OURS = ("detent.kernel", "detent.engine", "dataclasses")
_BELOW = ("asyncio", "concurrent", "contextvars", "threading")
"""What stands below the engine's own tasks and threads: past it there is no code that made the value."""


def calling_line() -> str | None:
    """`file:line` of the innermost code on the stack that is not the engine's; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(_OURS):
            return None if module.startswith(_BELOW) else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def line_of(function: Any) -> str | None:
    """`file:line` at which a function is defined; None for one that was not written in Python."""
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "func", None)) is not None:
        function = inner
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):  # an object that can be called
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
