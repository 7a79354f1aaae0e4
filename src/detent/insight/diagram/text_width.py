"""How wide a text will be, and how it is broken into lines, with no font at hand.

Widths are those of a wide common sans serif, so that a box made for a text holds it in any ordinary font.
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
    """A text in at most `most` lines of at most `limit` pixels, broken at word ends where there are any."""
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
    """How many characters go on the first line."""
    used, last = 0.0, 0
    for at, character in enumerate(text):
        used += _share(character) * size
        if used > limit:
            return last or max(1, at)
        if character in _BREAK_AFTER:
            last = at + 1
    return len(text)


def cut(text: str, size: float, limit: float) -> str:
    """One line of at most `limit` pixels, with an ellipsis where something is left out."""
    if width(text, size) <= limit:
        return text
    kept = text
    while kept and width(kept + "…", size) > limit:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def clean(text: str) -> str:
    """A text without line breaks and without what XML cannot hold."""
    line = " ".join(text.split())
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line
    )
