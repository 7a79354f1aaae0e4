"""The text of a reply that may hold written calls, as it is shown while it is being written: without them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from detent.adapters.models.written_calls import KEYS, LABELS, MARKS, read
from detent.dispatch.agent_tools import AgentTool

_OPENINGS = (*MARKS, *(f'{start}"{key}"' for start in ("{", "[{") for key in KEYS))
"""What calls begin with, without blanks."""
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)")
_LONGEST_LINE = 200
"""Characters of a line that are remembered: those of a fence are few."""


class StreamedText:
    """Lets text through at once, and holds back what may be a call; from the first call on, everything."""

    def __init__(self, tools: Sequence[AgentTool]) -> None:
        self._tools = tools
        self._held: list[str] = []
        self._calls = False
        """What is held back has begun as a call does."""
        self._opening = ""
        """The beginning of what may be a call, without blanks."""
        self._line = ""
        """The line under way."""
        self._fence = ""
        """The fence around the text."""
        self._fence_begins = False
        """Only blanks have followed a fence in which calls may be written."""

    def add(self, text: str) -> str:
        """Add a piece; gives what can be shown now."""
        if self._calls and not self._fence:
            self._held.append(text)
            return ""
        return "".join(map(self._char, text))

    def held(self) -> str:
        """What has been held back."""
        return "".join(self._held)

    def _char(self, char: str) -> str:
        """Add a character; gives what can be shown now."""
        if self._calls:
            return self._called(char)
        if self._opening:
            if char.isspace():
                self._remember(char)
                self._held.append(char)
                return ""
            opening = self._opening + char
            if any(known.startswith(opening) for known in _OPENINGS):
                self._opening = opening
                self._calls = opening in _OPENINGS
                self._remember(char)
                self._held.append(char)
                return ""
            self._opening, self._fence_begins = "", False
            return self._release() + self._char(char)
        if self._fence_begins and not char.isspace() and char not in "{[<":
            self._fence_begins = False
            return self._release() + self._char(char)
        if char in "{[<" and (not self._fence or self._fence_begins):
            self._opening = char
            self._remember(char)
            self._held.append(char)
            return ""
        line = self._remember(char)
        if line is not None:
            self._line_ended(line)
        if self._fence_begins or (not self._fence and self._line.lstrip(" \t")[:1] in ("`", "~")):
            self._held.append(char)
            return ""
        return self._release() + char

    def _called(self, char: str) -> str:
        """Add a character behind the beginning of a call; gives what turns out to be none."""
        self._held.append(char)
        line = self._remember(char)
        if self._fence and line is not None:
            self._line_ended(line)
            if not self._fence and not read(self.held(), self._tools).calls:
                self._calls, self._opening = False, ""
                return self._release()
        return ""

    def _remember(self, char: str) -> str | None:
        """Add a character to the line; gives the line that it ends."""
        if char == "\n":
            line, self._line = self._line, ""
            return line
        if len(self._line) < _LONGEST_LINE:
            self._line += char
        return None

    def _line_ended(self, line: str) -> None:
        fence = _FENCE.fullmatch(line.rstrip("\r"))
        if fence is None:
            return
        if not self._fence:
            self._fence = fence[1]
            self._fence_begins = fence[2].strip().lower() in LABELS
        elif fence[1].startswith(self._fence) and not fence[2].strip():
            self._fence, self._fence_begins = "", False

    def _release(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held
