"""An executor that answers from a script: replies and faults per step, without any model.

A script is a mapping of step names (or `*` for every other step) to replies, a list of replies shared by all
steps, or a YAML or JSON file that holds either. Replies are used in turn. All problems of a script are
reported at once, when it is read.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast, get_args

from detent.authoring.document import DATA_VALUES, Document, decoded, path_of, read_document
from detent.authoring.problem import NOWHERE, DocumentError, Problem
from detent.dispatch.config import AGENT_TIMEOUT
from detent.dispatch.executor import (
    AgentStreamChunk,
    Availability,
    EventCallback,
    ExecutorResult,
    Schema,
    StepExecutor,
)
from detent.dispatch.executor_errors import ExecutorError, ExecutorTimeoutError, OutputSchemaValidationError
from detent.dispatch.usage import UsageMetadata
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import copied, decode, encode, to_plain

if TYPE_CHECKING:
    from detent.dispatch.agent_tools import AgentTools
    from detent.dispatch.config import StepConfig

EVERY = "*"
"""Stands for every step the script does not name."""

FaultKind = Literal["timeout", "transient", "rate_limit", "permanent", "schema", "crash", "hang", "cancel"]

Keys: TypeAlias = tuple[str | int, ...]
"""The keys and positions that lead to a value in a script."""


@dataclass(frozen=True, slots=True)
class Fault:
    """How an execution fails."""

    kind: FaultKind
    message: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer or fault of a script."""

    output: Any = None
    fault: Fault | None = None
    usage: UsageMetadata | None = None
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Tools called before answering, with their arguments."""
    stream: tuple[str, ...] = ()
    delay: float = 0.0
    success: bool = True
    model_id: str | None = None
    contains: str | None = None
    """Given only to prompts that contain this text."""
    repeat: bool = False
    """May be given any number of times."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the executor."""

    step_name: str
    agent_name: str
    prompt: Any
    instructions: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    output_schema: Schema | None = None
    config: StepConfig | None = None
    tools: tuple[str, ...] = ()
    """Names of the tools offered."""


class ScriptedStepExecutor:
    """Performs steps from a script, and records every request in `calls`."""

    def __init__(
        self,
        script: Mapping[str, Any] | Sequence[Any] | str | Path,
        *,
        unavailable: str | None = None,
        model_id: str | None = None,
        priced: bool = True,
    ) -> None:
        """Read a script: a mapping, a list, or the path of a file. Replies may name another `model_id`."""
        read = _read_file(Path(script)) if isinstance(script, str | Path) else _Script("The script", script)
        steps, why_not = read.parsed()
        self._steps = {name: _Queue(replies) for name, replies in steps.items()}
        self._unavailable = why_not if unavailable is None else unavailable
        self._model_id = model_id
        self._priced = priced
        self.calls: list[Call] = []
        """Every request so far, in order."""

    async def execute(
        self,
        *,
        step_name: str,
        agent_name: str,
        prompt: Any,
        instructions: str | None = None,
        allowed_tools: list[str] | None = None,
        cwd: Path | None = None,
        output_schema: Schema | None = None,
        config: StepConfig | None = None,
        event_callback: EventCallback | None = None,
        toolbox: AgentTools | None = None,
    ) -> ExecutorResult:
        """Give the next reply for the step, or raise its fault."""
        self.calls.append(
            Call(
                step_name, agent_name, prompt, instructions,
                None if allowed_tools is None else tuple(allowed_tools), output_schema, config,
                () if toolbox is None else tuple(tool.name for tool in toolbox.list()),
            )
        )  # fmt: skip
        reply = self._next(step_name, prompt)
        events: list[AgentStreamChunk] = []

        async def emit(text: str, kind: Literal["output", "thinking"] = "output") -> None:
            chunk = AgentStreamChunk(agent_name, text, kind, time.time())
            events.append(chunk)
            if event_callback is not None:
                await event_callback(chunk)

        if reply.stream:
            await emit("", "thinking")
        if reply.delay:
            await asyncio.sleep(reply.delay)
        for tool, args in reply.calls:
            if toolbox is None:
                raise ExecutorError(
                    f"The script for '{step_name}' calls '{tool}', but no tools were given.",
                    step_name=step_name,
                )
            await toolbox.call(tool, args)
        for piece in reply.stream:
            await emit(piece)
        if reply.fault is not None:
            limit = (config.timeout if config is not None else None) or AGENT_TIMEOUT
            await _go_wrong(reply.fault, step_name, limit, output_schema, reply.usage)
        return ExecutorResult(
            copied(reply.output), reply.success, reply.usage, tuple(events), reply.model_id or self._model_id
        )

    @property
    def steps(self) -> frozenset[str]:
        """The steps the script names."""
        return frozenset(self._steps)

    def available(self) -> Availability:
        """Available unless the script or the caller says otherwise."""
        return Availability(self._unavailable is None, self._unavailable or "")

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost is known beforehand."""
        return self._priced

    async def close(self) -> None:
        """Nothing to close."""

    def _next(self, step_name: str, prompt: Any) -> Reply:
        queue = self._steps.get(step_name) or self._steps.get(EVERY)
        if queue is None:
            names = ", ".join(self._steps) or "none"
            raise ExecutorError(
                f"The script has 0 replies for step '{step_name}'.{nearest(step_name, self._steps)} "
                f"It has replies for: {names}.",
                step_name=step_name,
            )
        reply = queue.take(prompt)
        if reply is None:
            raise ExecutorError(f"{queue.exhausted(step_name)} Add one.", step_name=step_name)
        return reply


class _Queue:
    """Replies given in turn."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = replies
        self._used = [False] * len(replies)

    def take(self, prompt: Any) -> Reply | None:
        """The first reply still to be given that fits this prompt."""
        text: str | None = None
        for index, reply in enumerate(self._replies):
            if self._used[index] and not reply.repeat:
                continue
            if reply.contains is not None:
                text = _text_of(prompt) if text is None else text
                if reply.contains not in text:
                    continue
            self._used[index] = True
            return reply
        return None

    def exhausted(self, step_name: str) -> str:
        """The message for a step whose replies have run out or fit no prompt."""
        total, unused = len(self._replies), self._used.count(False)
        replies = f"{total} repl{'y' if total == 1 else 'ies'}"
        if unused:
            return (
                f"The script has {replies} for step '{step_name}'; "
                f"none of those left ({unused}) is for this prompt."
            )
        return f"The script had {replies} for step '{step_name}' and was asked once more."


def _text_of(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    try:
        return encode(to_plain(prompt))
    except (TypeError, ValueError):
        return str(prompt)


async def _go_wrong(
    fault: Fault, step_name: str, limit: float, schema: Schema | None, usage: UsageMetadata | None
) -> NoReturn:
    if fault.kind == "cancel" and (task := asyncio.current_task()) is not None:
        task.cancel()
    if fault.kind == "timeout":
        raise ExecutorTimeoutError(step_name, limit)
    if fault.kind in ("hang", "cancel"):
        while True:  # until the task is cancelled
            await asyncio.Event().wait()
    message = fault.message or _MESSAGES[fault.kind]
    if fault.kind == "crash":
        raise RuntimeError(message)
    if fault.kind == "schema":
        raise OutputSchemaValidationError(step_name, _name_of(schema), [message], usage=usage)
    raise ExecutorError(
        message, step_name=step_name, transient=fault.kind != "permanent",
        retry_after=fault.retry_after, usage=usage,
    )  # fmt: skip


_MESSAGES: Mapping[FaultKind, str] = {
    "transient": "the connection was lost",
    "rate_limit": "too many requests",
    "permanent": "the request was refused",
    "schema": "/: is not what was asked for",
    "crash": "the executor broke",
}
"""The message of a fault for which the script has none."""


def _name_of(schema: Schema | None) -> str:
    if isinstance(schema, type):
        return schema.__name__
    return str((schema or {}).get("title") or "the contract")


# -- reading scripts ----------------------------------------------------------------------------------------

_FAULTS = get_args(FaultKind)
_ANSWERS = ("output", "text", "error")
_REPLY = (*_ANSWERS, "usage", "calls", "stream", "delay", "success", "model_id", "match", "repeat")
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_CANNOT_CARRY_USAGE = ("timeout", "hang", "cancel", "crash")


@dataclass
class _Script:
    """A script being read: its value, the positions of its parts, and the problems so far."""

    name: str
    value: Any
    document: Document | None = None
    """The file it was read from."""
    problems: list[Problem] = field(default_factory=list)
    plain: bool = False
    """Whether it comes from a file, where only plain values make sense."""

    def parsed(self) -> tuple[dict[str, tuple[Reply, ...]], str | None]:
        """Replies per step, and why the executor is unavailable; `DocumentError` lists all problems."""
        value, why_not = self.value, None
        steps: dict[str, tuple[Reply, ...]] = {}
        if isinstance(value, Mapping):
            for name, replies in value.items():
                if not isinstance(name, str):
                    self.wrong((str(name),), "a step's name is text; put it in quotes")
                elif name == "unavailable" and isinstance(replies, str):
                    why_not = replies
                else:
                    steps[name] = self.replies(replies, (name,))
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            steps[EVERY] = self.replies(value, ())
        else:
            self.wrong((), "a script holds replies per step name, or a list of replies")
        if self.problems:
            raise DocumentError(self.name, self.problems)
        return steps, why_not

    def wrong(self, keys: Keys, message: str) -> None:
        """Record a problem and its position."""
        path = path_of(*keys)
        position = self.document.mark(path) if self.document is not None else NOWHERE
        self.problems.append(Problem("", f"{message}{'' if message[-1] in '.?' else '.'}", position, path))

    def unknown(self, mapping: Mapping[Any, Any], known: Iterable[str], keys: Keys) -> None:
        """Record every key that is not known."""
        known = tuple(known)
        for key in mapping:
            if key not in known:
                hint = nearest(str(key), known) or f" Known here: {', '.join(known)}."
                self.wrong((*keys, str(key)), f"unknown key.{hint}")

    def replies(self, value: Any, keys: Keys) -> tuple[Reply, ...]:
        """The replies of one step."""
        if isinstance(value, Mapping):
            reply = self.reply(value, keys)
            return () if reply is None else (reply,)
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            self.wrong(keys, "takes a reply or a list of replies, such as `- output: …`")
            return ()
        replies = [self.reply(reply, (*keys, index)) for index, reply in enumerate(value)]
        for index, reply in enumerate(replies[:-1]):
            if reply is not None and reply.repeat and reply.contains is None:
                self.wrong(
                    (*keys, index, "repeat"),
                    "only the last reply, or one with a match, can repeat; those after it are never used",
                )
        if not replies:
            self.wrong(keys, "has no replies")
        return tuple(reply for reply in replies if reply is not None)

    def reply(self, value: Any, keys: Keys) -> Reply | None:
        """One reply."""
        if not isinstance(value, Mapping):
            self.wrong(keys, f"a reply is a mapping with one of {', '.join(_ANSWERS)}")
            return None
        self.unknown(value, _REPLY, keys)
        answers = [key for key in _ANSWERS if key in value]
        if len(answers) != 1:
            fault_text = f"has {' and '.join(answers)}" if answers else "says nothing"
            self.wrong(keys, f"{fault_text}: a reply has exactly one of {', '.join(_ANSWERS)}")
        fault = self.fault(value["error"], (*keys, "error")) if "error" in value else None
        if "error" in value:
            for key in ("success", "model_id"):
                if key in value:
                    self.wrong((*keys, key), "belongs to an answer, not to an error")
            if fault is not None and fault.kind in _CANNOT_CARRY_USAGE and "usage" in value:
                self.wrong((*keys, "usage"), f"an error of the type {fault.kind} cannot tell what was used")
        return Reply(
            output=self.text(value, "text", keys)
            if "text" in value
            else self.kept(value.get("output"), (*keys, "output")),
            fault=fault,
            usage=self.usage(value["usage"], (*keys, "usage")) if "usage" in value else None,
            calls=self.tool_calls(value.get("calls", ()), (*keys, "calls")),
            stream=self.pieces(value.get("stream", ()), (*keys, "stream")),
            delay=self.number(value, "delay", keys) or 0.0,
            success=self.flag(value, "success", keys, True),
            model_id=self.text(value, "model_id", keys),
            contains=self.match(value["match"], (*keys, "match")) if "match" in value else None,
            repeat=self.flag(value, "repeat", keys, False),
        )

    def kept(self, value: Any, keys: Keys) -> Any:
        """A value passed on unchanged; in a file it must be a plain one."""
        try:
            return to_plain(value, str(keys[-1])) if self.plain else value
        except (TypeError, ValueError) as error:
            self.wrong(keys, str(error))
            return None

    def fault(self, value: Any, keys: Keys) -> Fault | None:
        """A fault, written as a mapping or as its type alone."""
        value = {"type": value} if isinstance(value, str) else value
        if not isinstance(value, Mapping):
            self.wrong(keys, "takes a type, or a mapping with type, message and retry_after")
            return None
        self.unknown(value, ("type", "message", "retry_after"), keys)
        kind = value.get("type")
        if kind not in _FAULTS:
            hint = nearest(kind, _FAULTS) if isinstance(kind, str) else ""
            self.wrong((*keys, "type"), f"is one of {', '.join(_FAULTS)}.{hint}")
            return None
        retry_after = self.number(value, "retry_after", keys)
        if retry_after is not None and kind not in ("transient", "rate_limit"):
            self.wrong((*keys, "retry_after"), "belongs to the types transient and rate_limit")
        if kind == "rate_limit" and retry_after is None:
            retry_after = 1.0
        return Fault(cast(FaultKind, kind), self.text(value, "message", keys) or "", retry_after)

    def usage(self, value: Any, keys: Keys) -> UsageMetadata | None:
        """The usage of a reply."""
        if not isinstance(value, Mapping):
            self.wrong(keys, f"takes a mapping with {', '.join((*_TOKENS[:2], 'cost_usd'))}")
            return None
        self.unknown(value, (*_TOKENS, "cost_usd"), keys)
        tokens: dict[str, int] = {}
        for name in _TOKENS:
            if name in value:
                if type(value[name]) is not int or value[name] < 0:
                    self.wrong((*keys, name), "takes a whole number of 0 or more")
                else:
                    tokens[name] = value[name]
        return UsageMetadata(**tokens, total_cost_usd=self.number(value, "cost_usd", keys))

    def tool_calls(self, value: Any, keys: Keys) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The tools to call, with their arguments."""
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            self.wrong(keys, "takes a list of {tool, args}")
            return ()
        calls: list[tuple[str, Mapping[str, Any]]] = []
        for index, call in enumerate(value):
            call_keys = (*keys, index)
            if not isinstance(call, Mapping):
                self.wrong(call_keys, "is a mapping with tool and args")
                continue
            self.unknown(call, ("tool", "args"), call_keys)
            if "tool" not in call:
                self.wrong(call_keys, "says no tool")
            args = call.get("args", {})
            if not isinstance(args, Mapping):
                self.wrong((*call_keys, "args"), "takes a mapping")
            elif (tool := self.text(call, "tool", call_keys)) is not None:
                calls.append((tool, self.kept(args, (*call_keys, "args"))))
        return tuple(calls)

    def pieces(self, value: Any, keys: Keys) -> tuple[str, ...]:
        """The texts to stream."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            self.wrong(keys, "takes a list of texts")
            return ()
        for index, piece in enumerate(value):
            if not isinstance(piece, str):
                self.wrong((*keys, index), "takes text")
        return tuple(piece for piece in value if isinstance(piece, str))

    def match(self, value: Any, keys: Keys) -> str | None:
        """The text a prompt must contain."""
        if not isinstance(value, Mapping) or "contains" not in value:
            self.wrong(keys, "takes a mapping with contains")
        if not isinstance(value, Mapping):
            return None
        self.unknown(value, ("contains",), keys)
        return self.text(value, "contains", keys)

    def text(self, mapping: Mapping[str, Any], key: str, keys: Keys) -> str | None:
        """A text, if there is one."""
        text = mapping.get(key)
        if key in mapping and not isinstance(text, str):
            self.wrong((*keys, key), "takes text")
            return None
        return text

    def number(self, mapping: Mapping[str, Any], key: str, keys: Keys) -> float | None:
        """A number of 0 or more, if there is one."""
        number = mapping.get(key)
        if key not in mapping:
            return None
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
            self.wrong((*keys, key), "takes a number of 0 or more")
            return None
        return float(number)

    def flag(self, mapping: Mapping[str, Any], key: str, keys: Keys, default: bool) -> bool:
        """True or false, if there is one."""
        flag = mapping.get(key, default)
        if not isinstance(flag, bool):
            self.wrong((*keys, key), "takes true or false")
            return default
        return flag


def _read_file(path: Path) -> _Script:
    """A script file, with the position of every key and item."""
    is_json = path.suffix.lower() == ".json"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"Script {path} cannot be read: {error.strerror or error}.") from error
    document = read_document(raw, str(path), code="", most_values=DATA_VALUES, was_yaml_1_1=not is_json)
    document.log_warnings()
    script = _Script(f"Script {path}", document.value, document, list(document.errors), plain=True)
    if is_json:
        try:
            script.value = decode(decoded(raw))
        except ValueError as error:
            raise ConfigurationError(f"Script {path}: not valid JSON: {error}.") from error
        if document.value is None:  # JSON that is not YAML, such as one indented with tabs, has no places
            script.document, script.problems = None, []
    elif document.value is None and document.errors:
        raise DocumentError(script.name, document.errors)
    return script


# -- sources of executors ----------------------------------------------------------------------------------


def make(options: Mapping[str, Any], *, folder: Path) -> ScriptedStepExecutor:
    """The executor that settings describe: a script in `file`, relative to `folder`, and a `model_id`."""
    known = ("file", "model_id")
    for name in options:
        if name not in known:
            raise ConfigurationError(
                f"The scripted executor has no option '{name}'.{nearest(name, known)} "
                f"It takes: {', '.join(known)}."
            )
    file = options.get("file")
    if not isinstance(file, str | Path) or not str(file):
        raise ConfigurationError("The scripted executor needs the option 'file': the path of a script.")
    return ScriptedStepExecutor(folder / Path(file).expanduser(), model_id=options.get("model_id"))


class ScriptedSource:
    """A source of given executors, for an engine built by hand: `DispatchSettings(executors=…)`."""

    def __init__(
        self, executors: Mapping[str, StepExecutor] | StepExecutor, default: str | None = None
    ) -> None:
        """Executors by provider, or a single one named `scripted`. `default` is the first unless given."""
        self._executors: dict[str, StepExecutor] = (
            dict(executors) if isinstance(executors, Mapping) else {"scripted": executors}
        )
        self._default = default if default is not None else next(iter(self._executors), None)
        self.made = 0
        """How many executors were handed out."""
        self.closed = False

    @property
    def default(self) -> str | None:
        """The provider of steps that name none."""
        return self._default

    def make(self, provider: str) -> StepExecutor:
        """The executor given for a provider."""
        if provider not in self._executors:
            names = ", ".join(self._executors) or "none"
            raise ConfigurationError(
                f"There is no executor '{provider}'.{nearest(provider, self._executors)} There is: {names}."
            )
        self.made += 1
        return self._executors[provider]

    async def close(self) -> None:
        """Record that the source was closed."""
        self.closed = True
