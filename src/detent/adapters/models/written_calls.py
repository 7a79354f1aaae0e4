"""Tool calls that a model without native ones writes into its reply, in the forms in which models write them.

A call is a JSON object: `{"tool": …, "arguments": {…}}`, or with `name` and its like in place of `tool`, or
`args`, `parameters` or `input` in place of `arguments`. Several stand one after another, in a list, or under
`calls`. They stand at the beginning of a line, behind a colon, or behind a mark such as `<tool_call>`. JSON
anywhere else, and JSON of another form, is text.

Only the model's own words call tools: what it thinks, what it repeats of a tool's output and what it shows in
fenced code does not. A fence labelled `json`, or not at all, that is the whole reply is a call, for models
write calls like that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from detent.adapters.models.call_arguments import read_arguments
from detent.adapters.models.prompted_tools import RESULT
from detent.dispatch.agent_tools import AgentTool

OURS = ("tool", "tool_name")
"""Keys for the name of a tool which hardly any other object has together with arguments."""
NAMES = (*OURS, "name", "function", "function_name", "action")
ARGUMENTS = ("arguments", "args", "parameters", "params", "input", "tool_input", "action_input", "kwargs")
LISTS = ("calls", "tool_calls")
BESIDE = frozenset({"id", "call_id", "index", "type", "thought", "thoughts", "reasoning", "explanation"})
"""Keys that may stand beside a call."""
KEYS = (*NAMES, *ARGUMENTS, *LISTS, *sorted(BESIDE))
"""What an object with calls may begin with."""
MARKS = (
    "<tool_call>", "<tool_calls>", "<function_call>", "<|tool_call|>", "<|python_tag|>", "[TOOL_CALLS]",
)  # fmt: skip
LABELS = frozenset({"", "json", "tool", "tool_call", "tool_calls", "tool_code", "function_call"})
"""Labels of fences in which calls are written."""
LONGEST_NAME = 200

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)\Z")
_MARK = re.compile("|".join(map(re.escape, MARKS)))
_START = re.compile(f"{_MARK.pattern}|[{{\\[]")
_END_MARK = re.compile(r"</(?:tool_calls?|function_call)>|<\|/tool_call\|>|<\|eom_id\|>|\[/TOOL_CALLS\]")
_BETWEEN = re.compile(r"[\s,;]*")
_ALONE = re.compile(r"[ \t,;]*")
_AROUND = re.compile(r"\A[ \t]*[\r\n]*")
_BEHIND_COLON = re.compile(r"[^`\"{}\[\]]*:[ \t]*(?:\*\*[ \t]*)?")
_OBJECT = re.compile(rf'(?:\[\s*)?\{{\s*"(?:{"|".join(KEYS)})"\s*:')
_VALUE = re.compile(r'\{\s*["}]|\[\s*[{["]')
_BROKEN = re.compile(
    rf'\{{\s*"({"|".join(NAMES)})"\s*:\s*"([^"\\\n]{{1,{LONGEST_NAME}}})"\s*,\s*'
    rf'"(?:{"|".join(ARGUMENTS)})"\s*:\s*'
)
_TAG = re.compile(
    r"(?<!`)<(?P<closing>/?)(?P<name>think(?:ing)?(?=[ \t]*>)|tool_output(?=[ \t>]))[^<>\n]*>", re.IGNORECASE
)
"""A tag around what is not the model's own words; between backticks it is spoken of."""
_CLOSING = {
    name: re.compile(rf"</{end}[ \t]*>", re.IGNORECASE)
    for name, end in (("think", "think(?:ing)?"), ("tool_output", "tool_output"))
}
_JSON = json.JSONDecoder(strict=False)
"""Not strict: models write line breaks into texts."""


class WrittenCall(NamedTuple):
    """A call that is written out."""

    name: str
    arguments: Any
    """An object; or, as it was written, what cannot be read as one."""


class WrittenReply(NamedTuple):
    """A reply, and the calls that were written into it."""

    text: str
    """What stands around the calls."""
    calls: tuple[WrittenCall, ...] = ()


def read(text: str, tools: Sequence[AgentTool]) -> WrittenReply:
    """A reply with its calls. Takes time in proportion to its length."""
    if "{" not in text:
        return WrittenReply(text)
    reader = _Reader(text, {tool.name: tool.arguments.get("properties") or {} for tool in tools})
    reader.run()
    calls = tuple(call for part in reader.parts for call in part.calls)
    return WrittenReply(reader.rest(), calls) if calls else WrittenReply(text)


class _Part(NamedTuple):
    """A part of a reply that is no text."""

    start: int
    end: int
    calls: Sequence[WrittenCall] = ()
    """The calls it stands for."""


def _in_order(*parts: _Part) -> list[_Part]:
    return sorted(parts, key=lambda part: part.start)


class _Reader:
    """Goes through one reply, line by line, and collects its calls."""

    def __init__(self, text: str, tools: Mapping[str, Collection[str]]) -> None:
        self.parts: list[_Part] = []
        """Parts that are no text, in their order."""
        self._text = text
        self._tools = tools
        """The parameters of each tool that is offered."""
        self._at = 0
        """How far it is read."""
        self._fenced: list[_Part] = []
        """Fences with calls, which count if they are all there is."""
        self._apart: list[_Part] = []
        """Parts that are not the model's own words."""
        self._whole = len(text) - len(text.lstrip()), len(text.rstrip())
        """Where the reply begins and ends, without blanks."""
        self._work = 20 * len(text) + 1_000_000
        """Characters that may be read in vain; the rest of a reply made to be slow is text."""
        self._has_end_mark = True
        self._closes = dict.fromkeys(_CLOSING, True)
        """Whether there may be a further tag of this name that closes."""

    def run(self) -> None:
        """Read everything."""
        text = self._text
        while self._at < len(text):
            start, end = self._at, self._line_end(self._at)
            line = text[start:end]
            if (self.parts or self._fenced) and line.startswith(RESULT):  # the model goes on in our place
                self.parts.append(_Part(start, len(text)))
                break
            if (fence := _FENCE.match(line)) is not None:
                self._fence(start, end, fence[1], fence[2])
            else:
                self._line(start, end)
        self._take_fenced()

    def _take_fenced(self) -> None:
        """Take the calls in fences, if the reply holds nothing else that is said."""
        at = 0
        for part in [*_in_order(*self.parts, *self._apart, *self._fenced), _Part(len(self._text), 0)]:
            if self._text[at : part.start].strip(" \t\r\n,;"):
                return
            at = max(at, part.end)
        self.parts = _in_order(*self.parts, *self._fenced)

    def rest(self) -> str:
        """The text without the calls."""
        parts: list[str] = []
        at = 0
        for part in [*self.parts, _Part(len(self._text), 0)]:
            parts.append(_AROUND.sub("", self._text[at : part.start]).rstrip())
            at = part.end
        return "\n\n".join(part for part in parts if part.strip(" \t\r\n,;")).strip()

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end

    # -- where calls stand ----------------------------------------------------------------------------------

    def _line(self, begin: int, end: int) -> None:
        """Read a line, and on to the end of the last call that begins in it."""
        at, may_begin = begin, True
        while True:
            start = (_START if may_begin else _MARK).search(self._text, at, end)
            tag = _TAG.search(self._text, at, end if start is None else start.start())
            if tag is not None and not self._text.startswith("`", tag.end()):
                self._at = self._behind(tag)
                return
            if start is None:
                break
            if len(start[0]) > 1:
                after = None if self._text[start.start() - 1 : start.start()] == "`" else self._marked(start)
            else:
                after, may_begin = self._bare(begin, start.start()), False
            if after is None:
                at = start.end()
            else:
                begin = at = after
                end, may_begin = end if at <= end else self._line_end(at), True
        self._at = end + 1

    def _behind(self, tag: re.Match[str]) -> int:
        """The end of what a tag sets apart from the model's own words."""
        name, end = tag["name"].lower().removesuffix("ing"), tag.end()
        if not tag["closing"]:
            closing = _CLOSING[name].search(self._text, end) if self._closes[name] else None
            self._closes[name] = closing is not None
            end = len(self._text) if closing is None else closing.end()
            self._apart.append(_Part(tag.start(), end))
        elif name == "think":  # all before it was thought
            self.parts, self._fenced, self._apart = [], [], [_Part(0, end)]
        return end

    def _bare(self, begin: int, start: int) -> int | None:
        """Read JSON that stands in a line without a mark; gives its end if it is JSON or calls a tool."""
        before = self._text[begin:start]
        at_start = _ALONE.fullmatch(before) is not None
        if not at_start and _BEHIND_COLON.fullmatch(before) is None:
            return None
        decoded = self._decode(start)
        if decoded is None:
            return self._broken(start)
        value, after = decoded
        if _OBJECT.match(self._text, start) is not None and (at_start or self._ends_line(after)):
            calls = self._calls(value, whole=(start, after) == self._whole)
            if calls is not None:
                self._add(start, after, calls)
        return after

    def _marked(self, mark: re.Match[str]) -> int | None:
        """Read what follows a mark; gives its end if it calls a tool."""
        text = self._text
        begin = at = self._skip(mark.end())
        calls: list[WrittenCall] = []
        if text[at : at + 1] not in ("{", "["):
            return None
        while (decoded := self._decode(at)) is not None:
            found = self._calls(decoded[0], marked=True)
            calls += found or [WrittenCall("", text[at : decoded[1]])]
            after = decoded[1]
            at = self._skip(after)
        if calls:
            closed = _END_MARK.match(text, at)
            after = after if closed is None else closed.end()
            self._add(mark.start(), after, calls)
            return after
        closed = _END_MARK.search(text, begin) if self._has_end_mark else None
        self._has_end_mark = closed is not None
        limit = len(text) if closed is None else closed.start()
        after = limit if closed is None else closed.end()
        if self._broken(begin, limit, marked=True) is not None:
            self.parts[-1] = self.parts[-1]._replace(start=mark.start(), end=after)
            return after
        if closed is None:
            return None
        self._add(mark.start(), after, [WrittenCall("", text[begin:limit])])
        return after

    def _fence(self, begin: int, end: int, mark: str, label: str) -> None:
        """Read a fenced block, to its end or, where it is not closed, to the end of the reply."""
        text = self._text
        closing = re.compile(rf"^[ \t]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*\r?$", re.MULTILINE)
        closed = closing.search(text, end)
        limit = len(text) if closed is None else closed.start()
        after = len(text) if closed is None else closed.end()
        self._at = after
        if label.strip().lower() not in LABELS:
            return
        at, calls = self._skip(end), list[WrittenCall]()
        if (mark_in_fence := _MARK.match(text, at)) is not None and self._marked(mark_in_fence) is not None:
            self._at = after
            self._fenced.append(self.parts.pop()._replace(start=begin, end=after))
            return
        while at < limit:
            decoded = self._decode(at) if _OBJECT.match(text, at) else None
            if decoded is None:
                if not calls and self._broken(at, limit) is not None:
                    self._fenced.append(self.parts.pop()._replace(start=begin, end=after))
                return
            found = self._calls(decoded[0]) if decoded[1] <= limit else None
            if found is None:
                return
            calls += found
            at = self._skip(decoded[1])
        if calls:
            self._fenced.append(_Part(begin, after, calls))

    # -- what a call is -------------------------------------------------------------------------------------

    def _decode(self, at: int) -> tuple[Any, int] | None:
        """The JSON object or list at a place, and its end."""
        if self._work < 0 or _VALUE.match(self._text, at) is None:
            return None
        try:
            return _JSON.raw_decode(self._text, at)
        except (ValueError, RecursionError) as error:
            self._work -= getattr(error, "pos", len(self._text))
        return None

    def _calls(self, value: Any, *, whole: bool = False, marked: bool = False) -> list[WrittenCall] | None:
        """The calls that a value stands for; None if it is anything else."""
        items: Any = None
        if isinstance(value, list):
            items = value
        elif isinstance(value, Mapping):
            key = next((key for key in LISTS if isinstance(value.get(key), list)), None)
            if key is not None and value.keys() - BESIDE == {key}:
                items = value[key]
        if items is None:
            call = self._call(value, whole=whole, marked=marked)
            return None if call is None else [call]
        calls = [self._call(item, whole=whole, marked=marked) for item in items]
        return [call for call in calls if call is not None] if calls and None not in calls else None

    def _call(self, value: Any, *, whole: bool, marked: bool) -> WrittenCall | None:
        """The call that a value stands for."""
        if not isinstance(value, Mapping):
            return None
        if isinstance(inner := value.get("function"), Mapping) and not value.keys() - BESIDE - {"function"}:
            return self._call(inner, whole=whole, marked=marked)
        key = next((key for key in NAMES if isinstance(value.get(key), str)), None)
        if key is None:
            return None
        name = value[key]
        given = next((key for key in ARGUMENTS if key in value), None)
        others = value.keys() - BESIDE - {key, given}
        if given is None:
            # Small models write arguments beside the name.
            flat = key in OURS and name in self._tools and not others - set(self._tools[name])
            if not flat and (others or not marked):
                return None
            return WrittenCall(name, {other: value[other] for other in value if other in others})
        if others:
            return None
        arguments = read_arguments(value[given])
        if name not in self._tools and not marked:
            usual = key in OURS or (whole and (key, given) == ("name", "arguments"))
            if not usual or isinstance(arguments, str):
                return None
        return WrittenCall(name, arguments)

    def _broken(self, start: int, limit: int | None = None, *, marked: bool = False) -> int | None:
        """Read a call that is no JSON: without its last brace, cut off, or with arguments nobody can read."""
        text = self._text
        head = None if self._work < 0 else _BROKEN.match(text, start)
        if head is None or not (marked or head[1] in OURS or head[2] in self._tools):
            return None
        if limit is None:
            following = text.find("\n{", start)
            limit = len(text) if following < 0 else following
        decoded = self._decode(head.end())
        if decoded is not None and decoded[1] <= limit and isinstance(decoded[0], Mapping):
            arguments, after = read_arguments(decoded[0]), decoded[1]
        else:
            arguments, after = text[head.end() : limit].strip() or "{", limit
        self._add(start, after, [WrittenCall(head[2], arguments)])
        return after

    def _skip(self, at: int) -> int:
        """The next place after blanks, commas and semicolons."""
        between = _BETWEEN.match(self._text, at)
        return at if between is None else between.end()

    def _ends_line(self, at: int) -> bool:
        """Whether nothing but a further call follows in the line."""
        return self._text[at : self._line_end(at)].lstrip(" \t\r,;.*")[:1] in ("", "{")

    def _add(self, start: int, end: int, calls: Sequence[WrittenCall]) -> None:
        self.parts.append(_Part(start, end, calls))
