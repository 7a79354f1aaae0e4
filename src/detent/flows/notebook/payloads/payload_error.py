"""The error of a payload that cannot be used: all its problems, each with code, element path and line."""

from __future__ import annotations

from collections.abc import Iterable

from detent.authoring.problem import NOWHERE, Place, Problem
from detent.kernel.control_characters import shown
from detent.kernel.errors import DetentError

LIMIT = "NB01"
"""Too large, too deep, or too many elements."""
FORBIDDEN = "NB02"
"""A document type, an entity declaration or an external reference."""
SYNTAX = "NB03"
"""Not well-formed, and no rule of repair applies."""
NO_PAYLOAD = "NB04"
"""No payload in the text, another one than expected, or several."""
CUT = "NB05"
"""Cut off where nothing can be closed without losing a part."""
MISSING = "NB06"
VALUE = "NB07"
"""A text that is not one of those allowed here, or not a number."""
NAME = "NB08"
"""An id, a variable name or a path that cannot be one."""
REPEATED = "NB09"
COUNT = "NB10"
CONTRADICTION = "NB11"
"""A decision that differs from the attribute that repeats it."""
CODE = "NB12"
"""Code that is not Python, so possibly not whole."""
UNKNOWN = "NB13"
"""A reference to a stage, step or variable that does not exist."""
CHARACTER = "NB14"
"""A character that XML cannot hold, or bytes that are not UTF-8."""

MOST_TOLD = 20
"""Problems listed in the message; the attribute holds all."""


def problem(code: str, message: str, path: str = "", line: int = 0, near: tuple[str, ...] = ()) -> Problem:
    """A problem of a payload, at an element path and line; line 0 where there are no lines."""
    return Problem(code, message, Place("payload", line) if line else NOWHERE, path, near)


def quoted(text: str) -> str:
    """A short text in quotation marks, as messages may repeat it."""
    return f"'{shown(text if len(text) <= 60 else text[:59] + '…')}'"


class PayloadError(DetentError):
    """A payload cannot be used. `problems` holds every problem that was found, in document order."""

    def __init__(self, subject: str, problems: Iterable[Problem]) -> None:
        self.subject = subject
        """The payload as messages name it, such as `T3 payload`."""
        self.problems = list(problems)
        count = len(self.problems)
        lines = [f"  {one}" for one in self.problems[:MOST_TOLD]]
        if count > MOST_TOLD:
            lines.append(f"  and {count - MOST_TOLD} more")
        heading = f"The {subject} has {count} problem{'' if count == 1 else 's'}:"
        super().__init__("\n".join([heading, *lines]))
