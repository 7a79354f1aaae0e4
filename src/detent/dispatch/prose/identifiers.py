"""Identifiers and names of devices: whole tokens, in any case and grouping."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_BEHIND = r"(?![^\W_]|_|[./]\d|-(?![^\W\d_][a-zäöüßąćęłńóśźż]{2}))"
"""No further character of the token; a German compound (`K200-Drucker`) may follow."""


def identifier_pattern(identifier: str) -> re.Pattern[str]:
    """An identifier without regard to case, spaces and hyphens; never a piece of a longer one."""
    signs = [char for char in identifier if char.isalnum()]
    if not signs:
        return re.compile("(?!)")
    return re.compile(rf"(?<![\w])(?<![^\W_][-./])(?i:{'[ -]?'.join(map(re.escape, signs))}){_BEHIND}")


def device_patterns(name: str) -> Iterator[re.Pattern[str]]:
    """A device's name, its pieces of several words, and its words of letters and digits."""
    words = name.split()
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            piece = words[start : start + length]
            text = "".join(piece)
            if any(char.isdigit() for char in text) and any(char.isalpha() for char in text):
                joined = "[ -]".join(map(re.escape, piece))
                yield re.compile(rf"(?<![\w.])(?i:{joined}){_BEHIND}")


def foreign_prefixes(text: str, identifiers: Iterable[str]) -> Iterator[int]:
    """Tokens that begin like one of the identifiers and are not masked."""
    prefixes = {
        match.group() for known in identifiers if (match := re.match(r"[A-Za-z]{2,}(?=[-\d])", known))
    }
    for prefix in prefixes:
        pattern = re.compile(rf"(?<!\w){re.escape(prefix)}[-_ ]?(?=[A-Z\d])[^\W_]{{2,}}")
        yield from (match.start() for match in pattern.finditer(text))
