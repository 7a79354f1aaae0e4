"""A text of which the explained parts are blanked out, place by place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

BLANK = "\x00"
_SAME = str.maketrans(
    {"\u00a0": " ", "\u202f": " ", "\t": " ", **dict.fromkeys("‘’‚`´", "'"), **dict.fromkeys("“”„«»", '"'),
     **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")}
)  # fmt: skip


def even(text: str) -> str:
    """The text with one kind of space, quote and dash each; every character stays in its place."""
    return text.replace("\r\n", "\n").translate(_SAME)


def masked(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    """The text with every match blanked out; line breaks stay."""
    for pattern in patterns:
        text = pattern.sub(lambda match: blank(match.group()), text)
    return text


def line_of(text: str, offset: int) -> int:
    """The number of the line, counted from 1."""
    return text.count("\n", 0, offset) + 1


def folded(text: str) -> str:
    """A word as it is compared: without case and accents, `ß` as `ss`, `ł` as `l`."""
    apart = unicodedata.normalize("NFKD", text.casefold().replace("ł", "l"))
    return "".join(char for char in apart if not unicodedata.combining(char))


_SENTENCE = re.compile(r"(?:[^.!?\n]|[.!?](?!\s|$)|\n(?!\s*\n))+[.!?]*")


def sentences(text: str) -> list[tuple[int, str]]:
    """The sentences with their offsets; a blank line ends one too."""
    return [(match.start(), match.group()) for match in _SENTENCE.finditer(text) if match.group().strip()]


def blank(text: str) -> str:
    """Blanks in place of a text."""
    return re.sub(r"[^\n]", BLANK, text)
