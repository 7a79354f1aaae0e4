"""Estimates the width of texts without a font, and breaks them into lines.

Widths are those of a wide common sans serif, so that a text fits into its box in any ordinary font.
"""

from __future__ import annotations

import unicodedata

_NARROW = frozenset("iIjl.,:;'|!()[]{}`´ ft/\\-\"r")
_WIDE = frozenset("mwMW@%&—…→OQGD")
_BREAK_AFTER = frozenset(" -_./:")


def width(text: str, size: float) -> float:
    """Width of a line in pixels at a font size."""
    return sum(_share(character) for character in text) * size


def _share(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in _NARROW:
        return 0.42
    if character in _WIDE:
        return 0.95
    return 0.74 if character.isupper() else 0.64


def wrap(text: str, size: float, limit: float, most: int) -> tuple[str, ...]:
    """Break a text into at most `most` lines of at most `limit` pixels, between words if possible."""
    rest = clean(text)
    lines: list[str] = []
    while rest:
        if len(lines) == most - 1:
            lines.append(cut(rest, size, limit))
            break
        taken = _fitting(rest, size, limit)
        lines.append(rest[:taken].rstrip() or rest[:taken])
        rest = rest[taken:].lstrip()
    return tuple(lines) or ("",)


def _fitting(text: str, size: float, limit: float) -> int:
    """Number of characters that fit on the first line."""
    used, last = 0.0, 0
    for at, character in enumerate(text):
        used += _share(character) * size
        if used > limit:
            return last or max(1, at)
        if character in _BREAK_AFTER:
            last = at + 1
    return len(text)


def cut(text: str, size: float, limit: float) -> str:
    """Cut a line to `limit` pixels, with an ellipsis."""
    if width(text, size) <= limit:
        return text
    kept = text
    while kept and width(kept + "…", size) > limit:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def clean(text: str) -> str:
    """A text on one line, without characters that XML cannot hold."""
    line = " ".join(text.split())
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line
    )
