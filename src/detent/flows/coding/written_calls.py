"""Tool calls that a reply writes out as text instead of making them.

Three forms count: a `<tool_call>` block, a tag `<function=NAME>` or `<invoke name="NAME">` with the name of a
known tool, and a JSON object that names a known tool and gives it arguments. The
object may be spread over lines, stand within another one, or be cut off; an object that is data does not
count. Everything here takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from detent.flows.coding.reply_text import BLANKS, is_mention

TOOL_NAMES = frozenset({
    "read_file", "list_dir", "glob", "grep", "write_file", "update_file", "bash", "task", "ask", "todo",
})  # fmt: skip
"""The flow's own tools, for callers that know no catalogue of tools."""
BLOCK = "<tool_call>"

_BLOCK = re.compile(rf"(?P<line>^{BLANKS})?<tool_call[ \t]*+>", re.IGNORECASE | re.MULTILINE)
_CALL_TAG = re.compile(
    r"<(?:function[ ]?=[ ]?[\"']?(?P<function>[\w.-]++)"
    r"|invoke[ ]name[ ]?=[ ]?[\"']?(?P<invoke>[\w.-]++))[\"']?[ ]?>",
    re.IGNORECASE,
)
_BLOCK_END = re.compile(r"</tool_call[ \t]*+>", re.IGNORECASE)
_ELIDED_BLOCK = re.compile(r"\s*+(?:…|\.\.\.)?+\s*+</tool_call[ \t]*+>", re.IGNORECASE)
_BEGINS_AS_CALL = re.compile(r"\s*+(?:[\[{]|<function)", re.IGNORECASE)


def written_call(text: str, start: int, end: int, known_tools: Collection[str]) -> str | None:
    """The tool that a call within this range of a text names, or `BLOCK`; None if there is no call."""
    if _has_block(text, start, end):
        return BLOCK
    named = (
        tag["function"] or tag["invoke"]
        for tag in _CALL_TAG.finditer(text, start, end)
        if not is_mention(text, tag)
    )
    tool = next((name for name in named if name in known_tools), None)
    return tool or _named_in_json(text, start, end, known_tools)


def _has_block(text: str, start: int, end: int) -> bool:
    """Whether there is a `<tool_call>` block, closed or not. A tag in the middle of prose is none."""
    last_end = -1
    for tag in _BLOCK_END.finditer(text, start, end):
        last_end = tag.start()
    for tag in _BLOCK.finditer(text, start, end):
        if is_mention(text, tag) or _ELIDED_BLOCK.match(text, tag.end(), end) is not None:
            continue
        if tag.end() <= last_end or tag["line"] is not None:
            return True
        if _BEGINS_AS_CALL.match(text, tag.end(), end) is not None:
            return True
    return False


# -- JSON ---------------------------------------------------------------------------------------------------

_TOOL_KEYS = frozenset({"tool", "tool_name"})
"""Keys that say by themselves that their value is a tool."""
_NAME_KEYS = _TOOL_KEYS | {"name", "function", "function_name", "recipient_name", "action"}
_ARGUMENT_KEYS = frozenset({
    "arguments", "args", "parameters", "params", "input", "tool_input", "action_input", "kwargs",
})  # fmt: skip
_RESULT_KEYS = frozenset({
    "tool_call_id", "ok", "result", "results", "output", "stdout", "stderr", "error", "errors", "exit_code",
    "returncode", "duration_ms", "truncated", "success", "count", "calls", "uses",
})  # fmt: skip
"""Keys of a report on calls that were made."""
_SCHEMA_KEYS = frozenset({"type", "properties"})
"""Keys of a JSON Schema: the parameters in a tool's description are one."""
_NOTHING = frozenset({"null", "None"})
_PREFIX = "functions."
_DEEPEST = 64
_LONGEST_NAME = 200

_OBJECT = re.compile(r"""\{(?=\s*+["'])""")
_TOKEN = re.compile(
    r"""\s*+(?:(?P<mark>[{}\[\],:])"""
    r"""|"(?P<double>[^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"|'(?P<single>[^'\\\n]*+(?:\\.[^'\\\n]*+)*+)'"""
    r"""|(?P<scalar>[-+]?\w[-+.\w]*+)|(?P<elided>…|\.\.\.))"""
)


class _Level:
    """An object or a list that is being read."""

    __slots__ = ("arguments", "describes", "is_object", "key", "names_tool", "reports", "schema", "tool")

    def __init__(self, is_object: bool) -> None:
        self.is_object = is_object
        self.key = ""
        self.tool: str | None = None
        """The known tool it names."""
        self.names_tool = False
        """The key says by itself that it is a tool."""
        self.arguments = False
        """There are arguments."""
        self.describes = False
        """What stands in place of arguments is their schema."""
        self.reports = False
        self.schema: set[str] = set()

    def begin(self, key: str) -> None:
        """Take the next key."""
        self.key = key[:_LONGEST_NAME].strip().lower()
        self.reports |= self.key in _RESULT_KEYS
        if self.key in _SCHEMA_KEYS:
            self.schema.add(self.key)

    def take_text(self, value: str, known: Collection[str]) -> None:
        """Take a text as the value of the key."""
        start = value[:_LONGEST_NAME].strip()
        if self.key in _NAME_KEYS:
            name = start.removeprefix(_PREFIX)
            if name in known:
                self.tool = name
                self.names_tool |= self.key in _TOOL_KEYS
        elif self.key in _ARGUMENT_KEYS:
            self.arguments |= start[:1] in ("", "{")

    def take_scalar(self, value: str) -> None:
        """Take a number or a name as the value of the key."""
        self.arguments |= self.key in _ARGUMENT_KEYS and value in _NOTHING

    def take(self, level: _Level) -> None:
        """Take an object or a list as the value of the key."""
        if self.key in _ARGUMENT_KEYS and level.is_object:
            if level.schema == _SCHEMA_KEYS:
                self.describes = True
            else:
                self.arguments = True

    @property
    def call(self) -> str | None:
        """The tool it calls, read to its end."""
        flat = self.names_tool and not self.reports and not self.describes
        return self.tool if self.arguments or flat else None

    @property
    def begun_call(self) -> str | None:
        """The tool it calls, broken off: at least the arguments have begun."""
        return self.tool if self.arguments or self.key in _ARGUMENT_KEYS else None


class _Reader:
    """Reads an object token by token."""

    def __init__(self, known_tools: Collection[str]) -> None:
        self._known = known_tools
        self._levels = [_Level(True)]
        self._expects: Literal["key", "colon", "value", "comma"] = "key"
        self.call: str | None = None
        """The tool that a finished object calls."""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to read."""
        return self.call is not None or not self._levels

    def begun_call(self) -> str | None:
        """The tool that an object broken off here calls."""
        return next((level.begun_call for level in self._levels if level.begun_call is not None), None)

    def takes(self, token: re.Match[str]) -> bool:
        """Take the next token; False if it does not fit here."""
        match token.lastgroup:
            case "double" | "single":
                return self._takes_text(token[token.lastgroup])
            case "scalar" if self._expects == "value":
                self._levels[-1].take_scalar(token["scalar"])
                self._expects = "comma"
                return True
            case "mark":
                return self._takes_mark(token["mark"])
        return False

    def _takes_text(self, value: str) -> bool:
        level = self._levels[-1]
        if self._expects == "key":
            level.begin(value)
            self._expects = "colon"
        elif self._expects == "value":
            level.take_text(value, self._known)
            self._expects = "comma"
        else:
            return False
        return True

    def _takes_mark(self, mark: str) -> bool:
        level = self._levels[-1]
        end, may_end = ("}", ("key", "comma")) if level.is_object else ("]", ("value", "comma"))
        if mark == ":" and self._expects == "colon":
            self._expects = "value"
        elif mark == "," and self._expects == "comma":
            self._expects = "key" if level.is_object else "value"
        elif mark in "{[" and self._expects == "value" and len(self._levels) < _DEEPEST:
            self._levels.append(_Level(mark == "{"))
            self._expects = "key" if mark == "{" else "value"
        elif mark == end and self._expects in may_end:
            self._close(level)
        else:
            return False
        return True

    def _close(self, level: _Level) -> None:
        self._levels.pop()
        self._expects = "comma"
        self.call = level.call
        if self._levels:
            self._levels[-1].take(level)


def _named_in_json(text: str, start: int, end: int, known_tools: Collection[str]) -> str | None:
    """The known tool that a JSON object with a call names."""
    if not any(text.find(name, start, end) >= 0 for name in known_tools):
        return None
    while (brace := _OBJECT.search(text, start, end)) is not None:
        tool, start = _read_object(text, brace.end(), end, known_tools)
        if tool is not None:
            return tool
    return None


def _read_object(text: str, position: int, end: int, known_tools: Collection[str]) -> tuple[str | None, int]:
    """Read on after an object's brace: the tool called by it or within it, and where to look on.

    Reading stops where the text is no JSON. Where a text came last, it is looked through, too, for its first
    quotation mark may be one of the prose: `the set {"} and {"tool": …`. No text reaches beyond its line, and
    the first quotation mark of a next object ends it, so every character is read a few times at most.
    """
    reader = _Reader(known_tools)
    look_on = position
    while not reader.done:
        token = _TOKEN.match(text, position, end)
        if token is None or not reader.takes(token):
            elided = token is not None and token.lastgroup == "elided"
            return None if elided else reader.begun_call(), look_on
        position = token.end()
        look_on = token.start(token.lastgroup) if token.lastgroup in ("double", "single") else position
    return reader.call, position
