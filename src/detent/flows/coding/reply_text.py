"""Which parts of a reply are not the assistant's own words: fenced code, thinking, repeated tool output.

Lines end at `\\n` or `\\r\\n` and nowhere else. Any text is read in time proportional to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

Kind = Literal["fence", "think", "tool_output"]


class Enclosed(NamedTuple):
    """A part of a reply that is not the assistant's own words."""

    start: int
    end: int
    kind: Kind
    closed: bool
    """False for a part that reaches to the end of the text because nothing closes it."""


BLANKS = r"[^\S\n]*+"
"""White space within a line, as a pattern."""
_TAG = r"<(?P<closing>/?)(?:(?P<think>think(?:ing)?)[ \t]*+|tool_output(?:[ \t][^<>\n]*+)?+)>"
_EDGE = re.compile(
    rf"^{BLANKS}(?:(?P<ticks>`{{3,}}+)[^`\n]*+$|(?P<tildes>~{{3,}}+)[^\n]*+$)|{_TAG}",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE_END = re.compile(rf"^{BLANKS}(`{{3,}}+|~{{3,}}+){BLANKS}$", re.MULTILINE)
_TAG_END: dict[Kind, re.Pattern[str]] = {
    "think": re.compile(r"</think(?:ing)?[ \t]*+>", re.IGNORECASE),
    "tool_output": re.compile(r"</tool_output[ \t]*+>", re.IGNORECASE),
}
_REST_OF_LINE = re.compile(rf"{BLANKS}(?:\n|\Z)")
_BLANK_LINES = re.compile(rf"(?:{BLANKS}\n)++")


def enclosed_parts(text: str) -> list[Enclosed]:
    """The parts that are not the assistant's own words, in order; none overlaps another.

    What opens first holds until it is closed, so a fence within thinking is thinking, and a tag within a
    fence is code. A lone `</think>` makes everything before it thinking. A tag between backticks is a
    mention of the tag.
    """
    parts: list[Enclosed] = []
    position = 0
    while (edge := _EDGE.search(text, position)) is not None:
        position = edge.end()
        fence = edge["ticks"] or edge["tildes"]
        if fence is not None:
            parts.append(_part(text, edge.start(), "fence", _end_of_fence(text, position, fence)))
        elif is_mention(text, edge):
            continue
        elif not edge["closing"]:
            kind: Kind = "think" if edge["think"] else "tool_output"
            parts.append(_part(text, edge.start(), kind, _end_of_tag(text, position, kind)))
        elif edge["think"]:
            parts = [Enclosed(0, position, "think", True)]
            continue
        else:
            continue
        position = parts[-1].end
    return parts


def own_ranges(text: str, apart: Sequence[Enclosed]) -> Iterator[tuple[int, int]]:
    """Start and end of each stretch of a text between the parts given."""
    position = 0
    for part in apart:
        if part.start > position:
            yield position, part.start
        position = part.end
    if position < len(text):
        yield position, len(text)


def own_text(text: str) -> str:
    """A reply as people are shown it: without thinking and repeated tool output.

    A line that held nothing else goes too, and so do blank lines at either end. A reply that has neither
    stays as it is.
    """
    apart = [part for part in enclosed_parts(text) if part.kind != "fence"]
    if not apart:
        return text
    kept: list[str] = []
    at_line_start = True
    position = 0
    for part in apart:
        kept.append(text[position : part.start])
        at_line_start = kept[-1].endswith("\n") if kept[-1] else at_line_start
        position = part.end
        if at_line_start and (rest := _REST_OF_LINE.match(text, position)) is not None:
            position = rest.end()
    kept.append(text[position:])
    return without_blank_ends("".join(kept))


def has_own_words(content: Any) -> bool:
    """Whether a message's content has words of the assistant's own. A long one is a reference, and has."""
    return bool(own_text(content).strip()) if isinstance(content, str) else bool(content)


def without_blank_ends(text: str) -> str:
    """A text without blank lines before and white space after it."""
    first = _BLANK_LINES.match(text)
    return text[first.end() if first is not None else 0 :].rstrip()


def is_mention(text: str, tag: re.Match[str]) -> bool:
    """Whether a tag stands between backticks, as one that is spoken of."""
    return text[tag.start() - 1 : tag.start()] == "`" == text[tag.end() : tag.end() + 1]


def _part(text: str, start: int, kind: Kind, end: int | None) -> Enclosed:
    return Enclosed(start, len(text) if end is None else end, kind, end is not None)


def _end_of_fence(text: str, position: int, fence: str) -> int | None:
    for line in _FENCE_END.finditer(text, position):
        if line[1].startswith(fence):
            return line.end()
    return None


def _end_of_tag(text: str, position: int, kind: Kind) -> int | None:
    for tag in _TAG_END[kind].finditer(text, position):
        if not is_mention(text, tag):
            return tag.end()
    return None
