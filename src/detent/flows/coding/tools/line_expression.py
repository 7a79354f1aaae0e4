"""A regular expression for single lines, applied to a whole text at once where that comes to the same.

Line by line, the bounded matcher takes a hundred times as long. Most expressions can be written so that no
match crosses a line end; the others are matched line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from detent.engine.patterns import PatternBudget

CHECKED_EVERY = 256
"""Matches after which the clock is looked at."""

_CLASS_ITEM = r"(?:\\[dwS]|\\[^a-zA-Z0-9\s]|[^\]\\\[\x00-\x1f])"
_TOKEN = re.compile(
    rf"""
    (?P<space> \\s)                                 # would match a line end
    | (?P<negated> \[\^) (?P<items> {_CLASS_ITEM}+ \])
    | (?P<plain>
        \\[bdwS] | \\[^a-zA-Z0-9\s]
        | \[ (?!\^) {_CLASS_ITEM}+ \]
        | \( (?![?*]) | \(\?: | [)|.^$]
        | [^\\\[\](){{}}.*+?^$|\x00-\x1f]
    )
    | (?P<times> (?: [*+?] | \{{\d+(?:,\d*)?\}} ) \?? (?![*+?{{]) )
    """,
    re.VERBOSE,
)
_NESTED = re.compile(
    r"""
    (?<!\\) \( (?: \?: | \?P?<\w+> )?
    (?: \\. | \[ \^? \]? (?: [^\]\\] | \\. )* \] | [^\\\[\](){}*+?|] )     # one item
    (?: [*+] | \{\d+,\} ) \??                                            # repeated
    \) (?: [*+] | \{\d+,\} )                                             # and again
    """,
    re.VERBOSE,
)


def repeats_a_repetition(pattern: str) -> bool:
    """Whether a pattern has a part like `(a+)+`, which means `a+` and can take for ever to fail."""
    return _NESTED.search(pattern) is not None


def within_lines(pattern: str) -> str | None:
    """The pattern, written so that in a text of many lines it matches what it matches in each; or None."""
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            return None
        position = token.end()
        if token["space"]:
            parts.append(r"[^\S\n]")
        elif token["negated"]:
            parts.append(rf"[^\n{token['items']}")
        else:
            parts.append(token[0])
    return "".join(parts)


class LineExpression:
    """A regular expression that is matched against each line of a text."""

    def __init__(self, pattern: str, *, case_sensitive: bool) -> None:
        flags = "" if case_sensitive else "(?i)"
        within = within_lines(pattern)
        self.in_one_go = within is not None
        self.text = f"{flags}{pattern}" if within is None else f"(?m){flags}(?:{within})[^\\n]*"
        """The expression as the matcher gets it."""

    def matches(self, text: str, over: Callable[[], bool]) -> Iterator[tuple[int, int]]:
        """The lines that match, from 0, each with the column of the first match, until the time is over.

        Raises:
            PatternTimeout: the expression takes too long over this text.
        """
        return self._whole(text, over) if self.in_one_go else self._each(text, over)

    def _whole(self, text: str, over: Callable[[], bool]) -> Iterator[tuple[int, int]]:
        line = position = 0
        last = -1
        for number, match in enumerate(PatternBudget().find(self.text, text)):
            if number % CHECKED_EVERY == CHECKED_EVERY - 1 and over():
                return
            line += text.count("\n", position, match.start())
            position = match.start()
            if line > last:
                yield line, position - (text.rfind("\n", 0, position) + 1)
                last = line

    def _each(self, text: str, over: Callable[[], bool]) -> Iterator[tuple[int, int]]:
        for number, line in enumerate(text.split("\n")):
            if over():
                return
            match = next(PatternBudget().find(self.text, line), None)
            if match is not None:
                yield number, match.start()
