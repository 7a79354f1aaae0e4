"""Regular expressions written by others, matched against text written by others, under a limit.

Python's own matcher can take longer than anyone lives for some patterns and texts, and it cannot be stopped:
no other run of the process makes progress meanwhile. The matcher used here can be. A caller treats a pattern
that was given up as one that the text does not fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

LIMIT = 0.25
"""Seconds of computing that all patterns together may take over one value."""
EACH_SEARCH = 50e-6
EACH_CHARACTER = 0.5e-6
"""Seconds granted besides for every search and every character: many honest texts are no attack."""
LONGEST_PATTERN = 10_000
LARGEST_PATTERN = 100_000
"""Characters of a pattern with its counted repetitions written out: a matcher may do just that."""
_PIECE = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*+(?:\]|\\?\Z)|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)
_SHOWN = 60


class InvalidPattern(ValueError):
    """The text is no regular expression; says why."""


class PatternTimeout(Exception):
    """Matching a pattern took too long and was given up."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        shown = pattern if len(pattern) <= _SHOWN else f"{pattern[: _SHOWN - 1]}…"
        super().__init__(
            f"the pattern {shown} took too long over this text; "
            f"write one without repetitions inside repetitions"
        )


class PatternBudget:
    """The seconds of computing that patterns may still take over one value."""

    __slots__ = ("_clock", "_left")

    def __init__(self, seconds: float = LIMIT, clock: Callable[[], float] = time.thread_time) -> None:
        self._left = seconds
        self._clock = clock  # the CPU time of this thread: a busy machine does not count

    def fits(self, pattern: str, text: str) -> bool:
        """Whether a pattern fits some part of a text.

        Raises:
            InvalidPattern: the pattern is no regular expression.
            PatternTimeout: the seconds are used up.
        """
        return next(self.find(pattern, text), None) is not None

    def find(self, pattern: str, text: str) -> Iterator[Any]:
        """The matches of a pattern in a text, in order.

        Raises:
            InvalidPattern: the pattern is no regular expression.
            PatternTimeout: the seconds are used up.
        """
        rule, position = compiled(pattern), 0
        if self._left > 0:
            self._left += EACH_CHARACTER * len(text)
        while position <= len(text):
            match = self._next(rule, pattern, text, position)
            if match is None:
                return
            yield match
            position = match.end() if match.end() > match.start() else match.end() + 1

    def _next(self, rule: Any, pattern: str, text: str, position: int) -> Any:
        if self._left <= 0:
            raise PatternTimeout(pattern)
        self._left += EACH_SEARCH
        patience = self._left
        while True:
            begun = self._clock()
            try:
                match = rule.search(text, position, timeout=patience)
            except MemoryError:
                break
            except TimeoutError:
                if self._clock() - begun > self._left / 2:
                    break
                patience *= 2  # the matcher counts what all threads compute: most of it was not this search
            else:
                self._left -= self._clock() - begun
                return match
        self._left = 0
        raise PatternTimeout(pattern)


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """A pattern, ready to match; `InvalidPattern` when it is no regular expression."""
    import regex

    if len(pattern) > LONGEST_PATTERN:
        raise InvalidPattern(f"a pattern has at most {LONGEST_PATTERN} characters")
    if _written_out(pattern) > LARGEST_PATTERN:
        raise InvalidPattern("its counted repetitions multiply to too many")
    try:
        return regex.compile(pattern)
    except regex.error as error:
        where = "" if error.pos is None else f" (at character {error.pos + 1})"
        raise InvalidPattern(f"{error.msg}{where}") from None
    except (OverflowError, RecursionError, MemoryError, ValueError) as error:
        raise InvalidPattern("it is too large or too deeply nested") from error


def _written_out(pattern: str) -> int:
    """The characters of a pattern with its counted repetitions written out, nested ones multiplied."""
    sizes, last = [0], [0]  # of each open group: its size so far, and that of its last item
    for piece in _PIECE.finditer(pattern):
        if piece[0] == "(":
            sizes.append(1)
            last.append(0)
        elif piece[0] == ")" and len(sizes) > 1:
            inner = sizes.pop()
            last.pop()
            sizes[-1] += inner
            last[-1] = inner
        elif piece[1] is not None:
            grown = last[-1] * max(int(piece[1][:9]), int((piece[2] or "0")[:9]), 1)
            sizes[-1] += grown - last[-1]
            last[-1] = grown
        elif piece[0] not in "*+?":
            sizes[-1] += 1
            last[-1] = 1
    return sum(sizes)
