"""Whether a reply says that the task is done: by a line that starts with the marker, and without a tool call.

Belongs here: the law of the marker, and the two functions under which older code knows it. Whether the claim
is true is for the step `respond` to check.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, get_args

from detent.flows.coding.reply import CodingCall
from detent.flows.coding.reply_text import (
    BLANKS,
    Enclosed,
    enclosed_parts,
    own_ranges,
    without_blank_ends,
)
from detent.flows.coding.reply_text import own_text as own_text
from detent.flows.coding.written_calls import BLOCK, TOOL_NAMES, written_call

MARKER = "TUNACODE DONE:"
OLD_MARKER = "TUNACODE_TASK_COMPLETE"
"""The marker of older sessions; counts alone on the first line that is not blank."""

ECHO = "it repeats a line of a tool result"

Source = Literal["reply", "legacy_flag", "setter"]


class Completion(NamedTuple):
    """What completed a request."""

    line_no: int
    """Of the marker in the reply, from 1; 0 where no line did it."""
    marker_line: str
    """The line as it was written."""
    summary: str
    """The rest of the marker's line."""
    source: Source

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """A completion as it was kept.

        Raises:
            ValueError: it is none; the message names the field.
        """
        if not isinstance(plain, Mapping):
            raise ValueError("it must be an object of line_no, marker_line, summary and source.")
        line_no, source = plain.get("line_no"), plain.get("source", "")
        if type(line_no) is not int or line_no < 0:
            raise ValueError(f"line_no is {line_no!r}; it must be a whole number of 0 or more.")
        for name in ("marker_line", "summary"):
            if not isinstance(plain.get(name), str):
                raise ValueError(f"{name} is {plain.get(name)!r}; it must be text.")
        if source not in get_args(Source):
            raise ValueError(f"source is {source!r}; it must be one of {', '.join(get_args(Source))}.")
        return cls(line_no, plain["marker_line"], plain["summary"], source)


class JudgedReply(NamedTuple):
    """What a reply comes to."""

    completion: Completion | None
    """Set when the reply completes the request."""
    shown: str
    """The reply without the words of markers that count, or would if there were no call beside them."""
    refused: str | None
    """Why words that look like the marker do not count; None if there are none, or one counts."""
    premature: bool
    """A line that would count stands beside tool calls, made or written out."""


class _Marker(NamedTuple):
    """A line of the reply's own that is a marker."""

    start: int
    """Of its line."""
    end: int
    """Of its line, without the line end."""
    rest: str
    """What follows the words, stripped."""


_ANY_WORDS = re.compile("tunacode", re.IGNORECASE)
_LINE = re.compile(rf"^{BLANKS}(?P<words>{MARKER})(?P<rest>[^\n]*+)", re.IGNORECASE | re.MULTILINE)
_OLD_LINE = re.compile(rf"{BLANKS}{OLD_MARKER}{BLANKS}$", re.IGNORECASE | re.MULTILINE)
_SHOWN_BEHIND = re.compile(
    r"[^\n:]*?:\d+:|[^\n]*?-\d+-|[^\s:]++:(?=\S)|(?:file|folder|link|other)[ ]+(?:-|\d+)[ ]"
    r"|[ ]*\d+[\t|:]|[-+>|][ ]?"
)
"""What stands before a line that grep, list_dir, a listing with numbers or a diff shows."""
_COLOURS = re.compile(r"\x1b\[[0-9;:]*+[mK]")
_NOT_BLANK = re.compile(r"\S")
_LIKE_MARKER = re.compile(
    rf"(?P<at_start>^{BLANKS})?(?P<words>(?P<exact>{MARKER})|(?P<old>{OLD_MARKER})"
    rf"|tunacode(?:[^\w\n]|_){{0,4}}done(?!\w))",
    re.IGNORECASE | re.MULTILINE,
)


def judge_reply(
    text: str,
    *,
    calls: Sequence[CodingCall] = (),
    tool_lines: Collection[str] = (),
    known_tools: Collection[str] = (),
) -> JudgedReply:
    """Judge the assistant's own reply of a turn.

    `calls` are the tool calls made with it, `tool_lines` the lines of this request's tool results (a whole
    result as one item will do), `known_tools` the names that a call written out as text may have. Any text is
    judged, in time proportional to it.
    """
    if _ANY_WORDS.search(text) is None:
        return JudgedReply(None, text, None, False)
    apart = enclosed_parts(text)
    markers = _own_markers(text, apart)
    echoes = _echoes(text, markers, tool_lines)
    counting = [marker for marker in markers if marker not in echoes]
    if not counting:
        return JudgedReply(None, text, _why_refused(text, apart), False)
    shown = _without_words(text, counting)
    if calls:
        return JudgedReply(None, shown, "it stands beside tool calls", True)
    tool = _written_tool(text, apart, known_tools)
    if tool is not None:
        call = "a <tool_call> block" if tool == BLOCK else f"a call of {tool}"
        return JudgedReply(None, shown, f"the same reply writes out {call} as text, and it was not run", True)
    first = counting[0]
    line = text[first.start : first.end]
    completion = Completion(text.count("\n", 0, first.start) + 1, line, first.rest, "reply")
    return JudgedReply(completion, shown, None, False)


def check_completion(reply_text: str, tool_calls: Sequence[Any] | None = None) -> tuple[bool, str]:
    """Whether a reply completes the task, and the reply without the marker; for older code.

    A reply that does not comes back as it is.
    """
    judged = judge_reply(reply_text or "", known_tools=TOOL_NAMES)
    done = judged.completion is not None and not tool_calls
    return done, judged.shown if done else reply_text


def check_task_completion(content: str) -> tuple[bool, str]:
    """`check_completion` of a reply without tool calls; for older code."""
    return check_completion(content)


# -- lines that count ---------------------------------------------------------------------------------------


def _written_tool(text: str, apart: Sequence[Enclosed], known_tools: Collection[str]) -> str | None:
    """The tool of a call that the reply writes out in its own words."""
    named = [name for name in known_tools if name in text]
    found = (written_call(text, start, end, named) for start, end in own_ranges(text, apart))
    return next(filter(None, found), None)


def _own_markers(text: str, apart: Sequence[Enclosed]) -> list[_Marker]:
    """The lines that are markers and stand in none of the parts set apart, in order."""
    starts = [part.start for part in apart]
    old = _old_marker(text, apart)
    return ([] if old is None else [old]) + [
        _Marker(line.start(), _without_return(text, line.end()), line["rest"].strip())
        for line in _LINE.finditer(text)
        if _part_at(line.start("words"), apart, starts) is None
    ]


def _old_marker(text: str, apart: Sequence[Enclosed]) -> _Marker | None:
    """The marker of older sessions, if it is all of the first line that has words outside thinking."""
    for start, end in own_ranges(text, [part for part in apart if part.kind != "fence"]):
        first = _NOT_BLANK.search(text, start, end)
        if first is None:
            continue
        line_start = text.rfind("\n", 0, first.start()) + 1
        line = _OLD_LINE.match(text, line_start)
        return None if line is None else _Marker(line_start, _without_return(text, line.end()), "")
    return None


def _part_at(position: int, apart: Sequence[Enclosed], starts: Sequence[int]) -> Enclosed | None:
    """The part set apart that a position is in."""
    before = bisect_right(starts, position) - 1
    return apart[before] if before >= 0 and position < apart[before].end else None


def _without_return(text: str, line_end: int) -> int:
    """The end of a line, before `\\r\\n`."""
    return line_end - 1 if text[line_end - 1 : line_end + 1] == "\r\n" else line_end


def _echoes(text: str, markers: Sequence[_Marker], tool_lines: Collection[str]) -> set[_Marker]:
    """The markers that are lines of tool results. A bare one never is."""
    wanted: dict[str, list[_Marker]] = {}
    for marker in markers:
        if marker.rest:
            wanted.setdefault(_folded(text[marker.start : marker.end]), []).append(marker)
    if not wanted:
        return set()
    results = (tool_lines,) if isinstance(tool_lines, str) else tool_lines
    lines = {
        form
        for result in results
        for line in _lines(result)
        if _ANY_WORDS.search(line)
        for form in _forms(line)
    }
    return {marker for line in lines & wanted.keys() for marker in wanted[line]}


def _lines(result: str) -> list[str]:
    """The lines of a result, without colours; those of a text within JSON, too."""
    return _COLOURS.sub("", result).replace("\\n", "\n").split("\n")


def _forms(line: str) -> set[str]:
    """A line of a result, as it is and without what a tool puts before the lines that it shows."""
    shown = _SHOWN_BEHIND.match(line)
    return {_folded(line), _folded(line[shown.end() :] if shown is not None else line)}


def _folded(line: str) -> str:
    return line.strip().casefold()


def _without_words(text: str, markers: Sequence[_Marker]) -> str:
    """The reply without the words of these markers, and without lines that hold nothing else."""
    kept: list[str] = []
    position = 0
    for marker in markers:
        kept += (text[position : marker.start], marker.rest)
        position = marker.end
        if not marker.rest:
            position = text.find("\n", position) + 1 or len(text)
    kept.append(text[position:])
    return without_blank_ends("".join(kept))


# -- lines that do not --------------------------------------------------------------------------------------


def _why_refused(text: str, apart: Sequence[Enclosed]) -> str | None:
    """Why words that look like the marker do not count; of several reasons the one most worth telling."""
    starts = [part.start for part in apart]
    reasons = (
        _reason(words, _part_at(words.start("words"), apart, starts)) for words in _LIKE_MARKER.finditer(text)
    )
    return min(filter(None, reasons), default=(0, None))[1]


def _reason(words: re.Match[str], part: Enclosed | None) -> tuple[int, str] | None:
    """Why these words do not count, after the reason's rank."""
    at_start = words["at_start"] is not None
    if part is not None:
        # What is shown or thought need not be meant as a marker: only what has its very form is told.
        if not (words["exact"] and at_start):
            return None
        where = "fenced code" if part.kind == "fence" else f"<{part.kind}>"
        return 4, f"it stands within {where}{'' if part.closed else ', which is not closed'}"
    if words["old"]:
        return 3, f"{OLD_MARKER} counts only alone on the first line"
    if words["exact"]:
        return (0, ECHO) if at_start else (2, "its line does not start with it")
    return 1 if at_start else 3, f"it is not spelled {MARKER} with one space and a colon"
