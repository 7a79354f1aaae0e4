"""A reply while it is being written: which of its lines can be shown already.

Thinking and repeated tool output are left out. A line that may become the marker is held back until its end,
and one that is a marker until the reply has been judged.
"""

from __future__ import annotations

import re
from collections import deque

from detent.flows.coding.reply_text import Enclosed, enclosed_parts
from detent.flows.coding.task_completion import MARKER, OLD_MARKER

_MARKER_LINE = re.compile(rf"[^\S\n]*+(?:{MARKER}.*|{OLD_MARKER}[^\S\n]*+)", re.IGNORECASE | re.DOTALL)
_FENCE_MARK = re.compile(r"\s*+(`{3,10000}|~{3,10000})")
_TAGS = ("<think", "</think", "<tool_output")
LONGEST_SHOWN = 400
"""Characters of an unfinished line that are shown: what is longer than a screen's line is cut anyway."""


class ReplyStream:
    """One reply, as far as it has arrived."""

    def __init__(self) -> None:
        self.held: list[str] = []
        """Lines that are markers."""
        self.begun = False
        """Some text has arrived."""
        self.shown = False
        """A line was given out."""
        self.thought_aloud = False
        """Lines that were given out turned out to be thinking: only its end was marked."""
        self._unfinished: list[str] = []
        """Pieces of the line that has not ended."""
        self._head = self._tail = ""
        """Beginning and end of that line."""
        self._opening = ""
        """What has opened the part that the text is in: a fence's line, or a tag."""
        self._blank = 0
        """Blank lines that are given out if another line follows."""

    def feed(self, text: str) -> list[str]:
        """The lines that a piece of the reply completes, as far as they are to be shown."""
        if not text:
            return []
        self.begun = True
        whole, newline, rest = text.rpartition("\n")
        lines: list[str] = []
        if newline:
            lines = self._completed("".join([*self._unfinished, whole, newline]))
            self._unfinished, self._head, self._tail = [], "", ""
        if rest:
            self._unfinished.append(rest)
            if len(self._head) < LONGEST_SHOWN:
                self._head = (self._head + rest)[:LONGEST_SHOWN]
            self._tail = (self._tail + rest)[-LONGEST_SHOWN:]
        return lines

    def end(self) -> list[str]:
        """The reply is over: the lines that are left."""
        rest, self._unfinished = "".join(self._unfinished), []
        self._head = self._tail = ""
        lines = self._completed(rest) if rest else []
        self._blank = 0
        return lines

    @property
    def unfinished(self) -> str:
        """The line that has not ended; empty as long as it may become a marker, or is not to be shown."""
        if self._opening.startswith("<") or _may_be_marker(self._head):
            return ""
        line = self._tail
        for place in range(len(line)):
            if line[place] == "<" and _may_be_tag(line[place : place + 16].lower()):
                return line[:place]
        return line

    def _completed(self, text: str) -> list[str]:
        """The lines of a text that ends with a line, to be shown."""
        opening, before = self._opening, len(self._opening)
        text = opening + text
        parts = enclosed_parts(text)
        lines: list[str] = []
        position = before
        fenced = deque(part for part in parts if part.kind == "fence")
        for part in parts:
            if part.kind == "fence":
                continue
            self._note_unopened(text, part, before)
            if part.start > position:
                lines += self._lines(text, position, part.start, fenced)
            position = max(position, part.end)
            if text.startswith("\n", position):
                position += 1
        if position < len(text):
            lines += self._lines(text, position, len(text), fenced)
        last = parts[-1] if parts else None
        self._opening = "" if last is None or last.closed else _opening_of(text, last)
        return lines

    def _note_unopened(self, text: str, part: Enclosed, before: int) -> None:
        """A `</think>` that nothing has opened: everything before it was thinking, shown or not."""
        unopened = part.kind == "think" and part.start == 0 and before == 0 and text[:6].lower() != "<think"
        if unopened and self.shown:
            self.thought_aloud = True

    def _lines(self, text: str, start: int, end: int, fenced: deque[Enclosed]) -> list[str]:
        found: list[str] = []
        stretch = text[start:end]
        if stretch.endswith("\n"):
            stretch = stretch[:-1]
        elif not stretch.strip():
            return found  # what is left of a line before a part that is not shown
        place = start
        for line in stretch.split("\n"):
            while fenced and fenced[0].end <= place:
                fenced.popleft()
            in_fence = bool(fenced) and fenced[0].start <= place
            place += len(line) + 1
            line = line.rstrip("\r")
            if not in_fence and self._is_marker(line):
                self.held.append(line)
            elif not line.strip():
                self._blank += self.shown
            else:
                found += [""] * self._blank + [line]
                self._blank, self.shown = 0, True
        return found

    def _is_marker(self, line: str) -> bool:
        if _MARKER_LINE.fullmatch(line) is None:
            return False
        return line.strip().upper() != OLD_MARKER or not (self.shown or self.held)


def _may_be_marker(beginning: str) -> bool:
    start = beginning.lstrip().upper()
    if not start:
        return True
    return any(marker.startswith(start) or start.startswith(marker) for marker in (MARKER, OLD_MARKER))


def _may_be_tag(text: str) -> bool:
    return any(text.startswith(tag) or tag.startswith(text) for tag in _TAGS)


def _opening_of(text: str, part: Enclosed) -> str:
    """What stands for the beginning of a part when the text goes on: it is read as if it had just begun."""
    if part.kind != "fence":
        return f"<{part.kind}>"
    mark = _FENCE_MARK.match(text, part.start)
    return f"{mark[1]}\n" if mark is not None else ""
