"""A chat completion of OpenAI's protocol as it arrives, whole or in pieces.

Servers differ in how they write one: content as text or as parts, arguments as text or as an object, calls
that are not numbered, or all with the same id. Nothing of it is sent or asked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from detent.adapters.models.call_arguments import as_text, read_arguments

Finish = Literal["stop", "length", "tool", "filter", "other"]
Text: TypeAlias = tuple[str, Literal["output", "thinking"]]

KEPT = ("extra_content", "reasoning_content")
"""Fields of a message that a server may want back with it: Gemini's signatures, DeepSeek's reasoning."""

_FINISHES: dict[str, Finish] = {
    "stop": "stop", "length": "length", "max_tokens": "length", "model_length": "length",
    "tool_calls": "tool", "function_call": "tool", "content_filter": "filter", "refusal": "filter",
}  # fmt: skip
_BROKEN = frozenset({
    "error", "network_error", "server_error", "abort", "aborted", "cancelled", "insufficient_system_resource",
})  # fmt: skip
"""Reasons why servers end what is no whole answer, in small letters."""
_LEGACY = "function_call"


class NoChoice(Exception):
    """A completion without a choice."""


@dataclass
class CompletedCall:
    """A tool call, as much of it as has arrived."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Any = None
    """What the server wants back with it."""
    legacy: bool = False
    """Made in the way that came before `tool_calls`."""

    def read(self) -> dict[str, Any] | str:
        """The arguments; as they were written, where that is no object."""
        return read_arguments("".join(self.arguments))

    def _complete(self) -> bool:
        closed = bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")
        return closed and not isinstance(self.read(), str)

    def goes_on(self, id_: str, name: str, knows: Callable[[str], bool]) -> bool:
        """Whether a piece with this id and name belongs to this call, not to a further one of its number.

        Some servers number every call 0, some repeat the name in every piece, and some split it.
        """
        if name and id_ and self.id and id_ != self.id:
            return False
        if not name or not self.name:
            return not (id_ and self.id and id_ != self.id and self._complete())
        if any(self.arguments):
            return name == self.name and not self._complete()
        if name == self.name or knows(self.name + name):
            return True
        return not knows(self.name) and (name.startswith(self.name) or not knows(name))

    def add(
        self, piece: Mapping[str, Any], function: Mapping[str, Any], knows: Callable[[str], bool]
    ) -> None:
        """Add a piece of the call."""
        self.id = self.id or _text(piece.get("id"))
        self.extra = piece.get("extra_content") or self.extra
        name = _text(function.get("name"))
        if name != self.name:
            whole = name.startswith(self.name) and knows(name)
            self.name = name if whole else self.name + name
        arguments = function.get("arguments")
        if arguments is not None:
            # Some servers send the arguments as an object, not as its JSON text.
            self.arguments.append(arguments if isinstance(arguments, str) else as_text(arguments))


@dataclass
class ChatCompletion:
    """A completion, as much of it as has arrived."""

    knows: Callable[[str], bool] = lambda name: False
    """Whether there is a tool of this name on the wire."""
    model_id: Any = None
    usage: Any = None
    chosen: bool = False
    """There was a choice."""
    reason: str | None = None
    """Why it ended, in the server's word."""
    done: bool = False
    """The stream has come to its end."""
    _text: list[str] = field(default_factory=list)
    _refusal: list[str] = field(default_factory=list)
    _refused: bool = False
    _calls: list[CompletedCall] = field(default_factory=list)
    _numbered: dict[Any, list[CompletedCall]] = field(default_factory=dict)
    """The calls of each number."""
    _fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the message that the server may want back."""

    @classmethod
    def whole(cls, body: Mapping[str, Any], knows: Callable[[str], bool]) -> ChatCompletion:
        """A completion that came at once.

        Raises:
            NoChoice: it holds nothing.
            LookupError, TypeError, AttributeError: it is none.
        """
        completion = cls(knows, body.get("model"), body.get("usage"))
        choices = body["choices"]
        if not choices:
            raise NoChoice
        completion.reason = _reason(choices[0]) or "stop"
        message = choices[0].get("message")
        if message is None and completion.finish != "filter":
            raise KeyError("message")
        message = message or {}
        calls = _each(message.get("tool_calls") or ())
        numbered = [{**call, "index": index} for index, call in enumerate(calls)]
        completion._message({**message, "tool_calls": numbered}, [])
        return completion

    def add(self, body: Mapping[str, Any]) -> list[Text]:
        """Add one event of a stream; gives the new text."""
        self.model_id = body.get("model") or self.model_id
        self.usage = body.get("usage") or self.usage
        texts: list[Text] = []
        for choice in body.get("choices") or ():
            if choice.get("index") in (None, 0, "0"):  # one was asked for
                self._message(choice.get("delta") or {}, texts)
                self.reason = _reason(choice) or self.reason
        return texts

    @property
    def finish(self) -> Finish:
        """Why it ended."""
        if self._refused:
            return "filter"
        return _FINISHES.get((self.reason or "stop").lower(), "other")

    @property
    def broke_off(self) -> bool:
        """Whether the server itself says that it could not finish."""
        return (self.reason or "").lower() in _BROKEN

    @property
    def text(self) -> str:
        """What was said, the words of a refusal included, without thoughts."""
        said, refusal = "".join(self._text), "".join(self._refusal)
        if not said.strip() or refusal.strip() in said:
            return said if refusal.strip() in said else refusal
        return f"{said}\n\n{refusal}"

    @property
    def calls(self) -> list[CompletedCall]:
        """The tools that are called. A call that is made in both ways is made once."""
        return [call for call in self._calls if not call.legacy] or self._calls

    def kept(self) -> dict[str, Any]:
        """What the server wants back; empty where it is nothing."""
        calls = {str(index): call.extra for index, call in enumerate(self.calls) if call.extra}
        return {**self._fields, **({"calls": calls} if calls else {})}

    def _message(self, message: Mapping[str, Any], texts: list[Text]) -> None:
        """Add a message, or a piece of one, and its text to `texts`."""
        self.chosen = True
        for name in KEPT:
            if value := message.get(name):
                before = self._fields.get(name)
                both_text = isinstance(before, str) and isinstance(value, str)
                self._fields[name] = before + value if both_text else value
        thought = message.get("reasoning_content") or message.get("reasoning")
        if thought and isinstance(thought, str):
            texts.append((thought, "thinking"))
        if content := message.get("content"):
            self._content(content, texts)
        if refusal := message.get("refusal"):
            self._refuse(refusal, texts)
        if calls := message.get("tool_calls"):
            numbers = set[Any]()
            for piece in _each(calls):
                self._add_call(piece, numbers)
        if function := message.get(_LEGACY):
            self._add_call({"index": _LEGACY, "function": function}, set())

    def _content(self, content: Any, texts: list[Text]) -> None:
        """Add content: a text, or parts of several types."""
        if isinstance(content, str):
            self._text.append(content)
            texts.append((content, "output"))
            return
        for part in [content] if isinstance(content, Mapping) else content:
            if isinstance(part, str):
                self._content(part, texts)
                continue
            kind = str(part.get("type") or "text")
            if "refusal" in kind:
                self._refuse(part.get("refusal") or part.get("text"), texts)
            elif "thinking" in kind or "reasoning" in kind or "summary" in kind:
                texts += [(thought, "thinking") for thought in _thoughts(part)]
            elif isinstance(text := part.get("text"), str):
                self._content(text, texts)

    def _refuse(self, words: Any, texts: list[Text]) -> None:
        self._refused = True
        if isinstance(words, str) and words:
            self._refusal.append(words)
            texts.append((words, "output"))

    def _add_call(self, piece: Mapping[str, Any], before: set[Any]) -> None:
        """Add a tool call, or a piece of one; `before` are the numbers of those it came together with."""
        function = piece.get("function")
        if not isinstance(function, Mapping):
            function = piece  # some servers leave out a level
        index = piece.get("index")
        index = index if isinstance(index, int | str) else None
        id_, name = _text(piece.get("id")), _text(function.get("name"))
        calls = self._numbered.setdefault(index, [])
        call = next((call for call in reversed(calls) if id_ and call.id == id_), None)
        if call is None and calls and index not in before:
            call = calls[-1]
        before.add(index)
        if call is None or not call.goes_on(id_, name, self.knows):
            call = CompletedCall(legacy=index == _LEGACY)
            calls.append(call)
            self._calls.append(call)
        call.add(piece, function, self.knows)


def _each(calls: Any) -> Iterator[Mapping[str, Any]]:
    """The calls of a message, or pieces of them; what is none stands where its arguments would."""
    for call in [calls] if isinstance(calls, Mapping) else calls:
        if call is not None:
            yield call if isinstance(call, Mapping) else {"function": {"arguments": call}}


def _thoughts(part: Mapping[str, Any]) -> Iterator[str]:
    for name in ("thinking", "reasoning", "text", "summary"):
        value = part.get(name)
        if isinstance(value, str) and value:
            yield value
        elif isinstance(value, list):
            for inner in value:
                if isinstance(inner, Mapping):
                    yield from _thoughts(inner)


def _reason(choice: Mapping[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    return None if reason is None or reason == "" else str(reason)


def _text(value: Any) -> str:
    """An id or a name, which should be text."""
    return value if isinstance(value, str) else "" if value is None else as_text(value)
