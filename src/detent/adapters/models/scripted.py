"""An executor that answers from a script: replies and faults per step, with no model anywhere near.

A script is a mapping of step names (or `*` for every other step) to replies, a list of replies for all steps
alike, or a YAML or JSON file that holds either. Replies are used in turn. Everything wrong with a script is
told at once, when it is read.
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

Way: TypeAlias = tuple[str | int, ...]
"""The keys and positions that lead to a place in a script."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A way for an execution to go wrong."""

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
    """Used only for prompts that contain this text."""
    repeat: bool = False
    """Never used up."""


@dataclass(frozen=True, slots=True)
class Call:
    """What the executor was asked."""

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
    """Performs steps from a script, and keeps what it was asked in `calls`."""

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
        """Everything asked so far, in order."""

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
        """Give the next reply for the step, or go wrong the way it says."""
        self.calls.append(
            Call(
                step_name, agent_name, prompt, instructions,
                None if allowed_tools is None else tuple(allowed_tools), output_schema, config,
                () if toolbox is None else tuple(tool.name for tool in toolbox.list()),
            )
        )  # fmt: skip
        reply = self._next(step_name, prompt)
        events: list[AgentStreamChunk] = []

        async def tell(text: str, kind: Literal["output", "thinking"] = "output") -> None:
            chunk = AgentStreamChunk(agent_name, text, kind, time.time())
            events.append(chunk)
            if event_callback is not None:
                await event_callback(chunk)

        if reply.stream:
            await tell("", "thinking")
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
            await tell(piece)
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
        """Whether the script says so."""
        return Availability(self._unavailable is None, self._unavailable or "")

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost is known beforehand; a script costs nothing."""
        return self._priced

    async def close(self) -> None:
        """Nothing is held open."""

    def _next(self, step_name: str, prompt: Any) -> Reply:
        queue = self._steps.get(step_name) or self._steps.get(EVERY)
        if queue is None:
            there = ", ".join(self._steps) or "none"
            raise ExecutorError(
                f"The script has 0 replies for step '{step_name}'.{nearest(step_name, self._steps)} "
                f"It has replies for: {there}.",
                step_name=step_name,
            )
        reply = queue.take(prompt)
        if reply is None:
            raise ExecutorError(f"{queue.exhausted(step_name)} Add one.", step_name=step_name)
        return reply


class _Queue:
    """Replies used in turn."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = replies
        self._used = [False] * len(replies)

    def take(self, prompt: Any) -> Reply | None:
        """The first reply not used up that is meant for this prompt."""
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
        """Why there was nothing to take."""
        many, left = len(self._replies), self._used.count(False)
        replies = f"{many} repl{'y' if many == 1 else 'ies'}"
        if left:
            return (
                f"The script has {replies} for step '{step_name}'; "
                f"none of those left ({left}) is for this prompt."
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
    message = fault.message or _SAYS[fault.kind]
    if fault.kind == "crash":
        raise RuntimeError(message)
    if fault.kind == "schema":
        raise OutputSchemaValidationError(step_name, _name_of(schema), [message], usage=usage)
    raise ExecutorError(
        message, step_name=step_name, transient=fault.kind != "permanent",
        retry_after=fault.retry_after, usage=usage,
    )  # fmt: skip


_SAYS: Mapping[FaultKind, str] = {
    "transient": "the connection was lost",
    "rate_limit": "too many requests",
    "permanent": "the request was refused",
    "schema": "/: is not what was asked for",
    "crash": "the executor broke",
}
"""What a fault says when the script does not."""


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
    """A script being read: its value, where its parts stand, and everything wrong with it."""

    name: str
    value: Any
    document: Document | None = None
    """The file it was read from."""
    problems: list[Problem] = field(default_factory=list)
    plain: bool = False
    """Read from a file, where only plain values make sense."""

    def parsed(self) -> tuple[dict[str, tuple[Reply, ...]], str | None]:
        """Replies per step, and why the executor is unavailable; `DocumentError` lists all problems."""
        value, why_not = self.value, None
        steps: dict[str, tuple[Reply, ...]] = {}
        if isinstance(value, Mapping):
            for name, said in value.items():
                if not isinstance(name, str):
                    self.wrong((str(name),), "a step's name is text; put it in quotes")
                elif name == "unavailable" and isinstance(said, str):
                    why_not = said
                else:
                    steps[name] = self.replies(said, (name,))
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            steps[EVERY] = self.replies(value, ())
        else:
            self.wrong((), "a script holds replies per step name, or a list of replies")
        if self.problems:
            raise DocumentError(self.name, self.problems)
        return steps, why_not

    def wrong(self, way: Way, what: str) -> None:
        """Note a problem and where it is."""
        path = path_of(*way)
        place = self.document.mark(path) if self.document is not None else NOWHERE
        self.problems.append(Problem("", f"{what}{'' if what[-1] in '.?' else '.'}", place, path))

    def unknown(self, found: Mapping[Any, Any], known: Iterable[str], way: Way) -> None:
        """Note every key nobody knows."""
        known = tuple(known)
        for key in found:
            if key not in known:
                hint = nearest(str(key), known) or f" Known here: {', '.join(known)}."
                self.wrong((*way, str(key)), f"unknown key.{hint}")

    def replies(self, said: Any, way: Way) -> tuple[Reply, ...]:
        """The replies of one step."""
        if isinstance(said, Mapping):
            one = self.reply(said, way)
            return () if one is None else (one,)
        if not isinstance(said, Sequence) or isinstance(said, str | bytes):
            self.wrong(way, "takes a reply or a list of replies, such as `- output: …`")
            return ()
        found = [self.reply(one, (*way, index)) for index, one in enumerate(said)]
        for index, one in enumerate(found[:-1]):
            if one is not None and one.repeat and one.contains is None:
                self.wrong(
                    (*way, index, "repeat"),
                    "only the last reply, or one with a match, can repeat; those after it are never used",
                )
        if not found:
            self.wrong(way, "has no replies")
        return tuple(one for one in found if one is not None)

    def reply(self, said: Any, way: Way) -> Reply | None:
        """One reply."""
        if not isinstance(said, Mapping):
            self.wrong(way, f"a reply is a mapping with one of {', '.join(_ANSWERS)}")
            return None
        self.unknown(said, _REPLY, way)
        given = [key for key in _ANSWERS if key in said]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "says nothing"
            self.wrong(way, f"{what}: a reply has exactly one of {', '.join(_ANSWERS)}")
        fault = self.fault(said["error"], (*way, "error")) if "error" in said else None
        if "error" in said:
            for key in ("success", "model_id"):
                if key in said:
                    self.wrong((*way, key), "belongs to an answer, not to an error")
            if fault is not None and fault.kind in _CANNOT_CARRY_USAGE and "usage" in said:
                self.wrong((*way, "usage"), f"an error of the type {fault.kind} cannot tell what was used")
        return Reply(
            output=self.text(said, "text", way)
            if "text" in said
            else self.kept(said.get("output"), (*way, "output")),
            fault=fault,
            usage=self.usage(said["usage"], (*way, "usage")) if "usage" in said else None,
            calls=self.tool_calls(said.get("calls", ()), (*way, "calls")),
            stream=self.pieces(said.get("stream", ()), (*way, "stream")),
            delay=self.number(said, "delay", way) or 0.0,
            success=self.flag(said, "success", way, True),
            model_id=self.text(said, "model_id", way),
            contains=self.match(said["match"], (*way, "match")) if "match" in said else None,
            repeat=self.flag(said, "repeat", way, False),
        )

    def kept(self, value: Any, way: Way) -> Any:
        """A value handed on as it is; in a file it must be a plain one."""
        try:
            return to_plain(value, str(way[-1])) if self.plain else value
        except (TypeError, ValueError) as error:
            self.wrong(way, str(error))
            return None

    def fault(self, said: Any, way: Way) -> Fault | None:
        """A fault, or its type alone."""
        said = {"type": said} if isinstance(said, str) else said
        if not isinstance(said, Mapping):
            self.wrong(way, "takes a type, or a mapping with type, message and retry_after")
            return None
        self.unknown(said, ("type", "message", "retry_after"), way)
        kind = said.get("type")
        if kind not in _FAULTS:
            hint = nearest(kind, _FAULTS) if isinstance(kind, str) else ""
            self.wrong((*way, "type"), f"is one of {', '.join(_FAULTS)}.{hint}")
            return None
        after = self.number(said, "retry_after", way)
        if after is not None and kind not in ("transient", "rate_limit"):
            self.wrong((*way, "retry_after"), "belongs to the types transient and rate_limit")
        if kind == "rate_limit" and after is None:
            after = 1.0
        return Fault(cast(FaultKind, kind), self.text(said, "message", way) or "", after)

    def usage(self, said: Any, way: Way) -> UsageMetadata | None:
        """What a reply uses up."""
        if not isinstance(said, Mapping):
            self.wrong(way, f"takes a mapping with {', '.join((*_TOKENS[:2], 'cost_usd'))}")
            return None
        self.unknown(said, (*_TOKENS, "cost_usd"), way)
        tokens: dict[str, int] = {}
        for name in _TOKENS:
            if name in said:
                if type(said[name]) is not int or said[name] < 0:
                    self.wrong((*way, name), "takes a whole number of 0 or more")
                else:
                    tokens[name] = said[name]
        return UsageMetadata(**tokens, total_cost_usd=self.number(said, "cost_usd", way))

    def tool_calls(self, said: Any, way: Way) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """Tools to call, with their arguments."""
        if not isinstance(said, Sequence) or isinstance(said, str | bytes):
            self.wrong(way, "takes a list of {tool, args}")
            return ()
        found: list[tuple[str, Mapping[str, Any]]] = []
        for index, one in enumerate(said):
            here = (*way, index)
            if not isinstance(one, Mapping):
                self.wrong(here, "is a mapping with tool and args")
                continue
            self.unknown(one, ("tool", "args"), here)
            if "tool" not in one:
                self.wrong(here, "says no tool")
            args = one.get("args", {})
            if not isinstance(args, Mapping):
                self.wrong((*here, "args"), "takes a mapping")
            elif (tool := self.text(one, "tool", here)) is not None:
                found.append((tool, self.kept(args, (*here, "args"))))
        return tuple(found)

    def pieces(self, said: Any, way: Way) -> tuple[str, ...]:
        """Texts to stream."""
        if isinstance(said, str | bytes | Mapping) or not isinstance(said, Sequence):
            self.wrong(way, "takes a list of texts")
            return ()
        for index, piece in enumerate(said):
            if not isinstance(piece, str):
                self.wrong((*way, index), "takes text")
        return tuple(piece for piece in said if isinstance(piece, str))

    def match(self, said: Any, way: Way) -> str | None:
        """The text a prompt must contain."""
        if not isinstance(said, Mapping) or "contains" not in said:
            self.wrong(way, "takes a mapping with contains")
        if not isinstance(said, Mapping):
            return None
        self.unknown(said, ("contains",), way)
        return self.text(said, "contains", way)

    def text(self, said: Mapping[str, Any], key: str, way: Way) -> str | None:
        """A text, when it is said."""
        value = said.get(key)
        if key in said and not isinstance(value, str):
            self.wrong((*way, key), "takes text")
            return None
        return value

    def number(self, said: Mapping[str, Any], key: str, way: Way) -> float | None:
        """A number of 0 or more, when it is said."""
        value = said.get(key)
        if key not in said:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            self.wrong((*way, key), "takes a number of 0 or more")
            return None
        return float(value)

    def flag(self, said: Mapping[str, Any], key: str, way: Way, default: bool) -> bool:
        """True or false, when it is said."""
        value = said.get(key, default)
        if not isinstance(value, bool):
            self.wrong((*way, key), "takes true or false")
            return default
        return value


def _read_file(path: Path) -> _Script:
    """A script file, with the place of every key and item."""
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


# -- where executors come from ------------------------------------------------------------------------------


def make(options: Mapping[str, Any], *, folder: Path) -> ScriptedStepExecutor:
    """The executor that settings describe: its script in `file`, relative to `folder`, and its `model_id`."""
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
    """Hands out given executors, for an engine built by hand. Goes into `DispatchSettings(executors=…)`."""

    def __init__(
        self, executors: Mapping[str, StepExecutor] | StepExecutor, default: str | None = None
    ) -> None:
        """Executors by provider; one alone goes by `scripted`. Without `default`, the first is it."""
        self._executors: dict[str, StepExecutor] = (
            dict(executors) if isinstance(executors, Mapping) else {"scripted": executors}
        )
        self._default = default if default is not None else next(iter(self._executors), None)
        self.made = 0
        """How many executors were asked for."""
        self.closed = False

    @property
    def default(self) -> str | None:
        """Provider used by steps that name none."""
        return self._default

    def make(self, provider: str) -> StepExecutor:
        """The executor given for a provider."""
        if provider not in self._executors:
            there = ", ".join(self._executors) or "none"
            raise ConfigurationError(
                f"There is no executor '{provider}'.{nearest(provider, self._executors)} There is: {there}."
            )
        self.made += 1
        return self._executors[provider]

    async def close(self) -> None:
        """Note that nothing more will be asked for."""
        self.closed = True
