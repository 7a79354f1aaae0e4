"""Executors that replay answers an agent gave before, from a journal or a cassette.

Answers are given in the order they were recorded, step by step, failed attempts included, so the caller sees
what it saw then. The requests are not compared; a `Player` on the engine's tape does that.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.adapters.cassette import read_cassette
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.conversation import ModelAnswer, Opaque, ToolCall
from detent.dispatch.executor import (
    AgentStreamChunk,
    Availability,
    EventCallback,
    ExecutorResult,
    ReplyRequest,
    Schema,
)
from detent.dispatch.executor_errors import ExecutorError, ExecutorTimeoutError, OutputSchemaValidationError
from detent.dispatch.usage import UsageMetadata
from detent.kernel.entries import Entry, Migrated, Moved, Recorded, Reopened, Started
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import copied, decode

if TYPE_CHECKING:
    from detent.dispatch.agent_tools import AgentTools
    from detent.dispatch.config import StepConfig

_KEY = re.compile(r"agent/\d+/.+")
"""The keys under which dispatch records an agent's answers: the attempt and the request."""


_REASONS = tuple(reason.value for reason in FallbackReason)


class RecordedAnswer(NamedTuple):
    """One answer or failure of an agent."""

    step: str
    place: str
    """Where it was recorded, for messages."""
    value: Mapping[str, Any]


class RecordedStepExecutor:
    """Performs steps by giving their recorded answers."""

    def __init__(self, answers: Iterable[RecordedAnswer]) -> None:
        self._answers: dict[str, deque[RecordedAnswer]] = {}
        for answer in answers:
            _check(answer)
            self._answers.setdefault(answer.step, deque()).append(answer)
        self._had = {step: len(queue) for step, queue in self._answers.items()}

    @classmethod
    def from_entries(
        cls,
        entries: Iterable[Entry],
        steps: Mapping[str, str] | None = None,
        blobs: Mapping[str, bytes] | None = None,
    ) -> RecordedStepExecutor:
        """The answers in a journal. `steps` maps states to their steps where the names differ.

        `blobs` are the long and private answers that are kept outside the journal, by hash.
        """
        return cls._of(_from_journal(entries, steps or {}, blobs or {}))

    @classmethod
    def from_cassette(cls, path: str | Path) -> RecordedStepExecutor:
        """The agents' answers in a cassette, those of child runs included."""
        return cls._of(
            RecordedAnswer(
                interaction.step,
                f"{path}, line {interaction.line}",
                _on_tape(interaction.answer) if interaction.error is None else {"error": interaction.error},
            )
            for interaction in read_cassette(path).interactions
            if interaction.kind == "agent"
        )

    @classmethod
    def _of(cls, answers: Iterable[RecordedAnswer]) -> RecordedStepExecutor:
        answers = list(answers)
        if cls is RecordedStepExecutor and answers and all(map(_is_message, answers)):
            return RecordedConversation(answers)
        return cls(answers)

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
        """The step's next recorded answer: its tools are called, its failure is raised."""
        answer = self._next(step_name)
        value = answer.value
        await _call_tools(value.get("acted") or value.get("proposed") or (), step_name, answer.place, toolbox)
        if (failed := value.get("error")) is not None:
            raise _error(failed, step_name, value)
        output = {"calls": value["calls"]} if value.get("calls") else value["output"]
        return ExecutorResult(
            copied(output),
            bool(value.get("success", True)),
            _usage(value),
            model_id=value.get("model_id"),
        )

    def available(self) -> Availability:
        """Always available: no model is asked."""
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        """The cost is always known: none. (An answer reports its cost at the time it was recorded.)"""
        return True

    async def close(self) -> None:
        """Nothing to close."""

    def left(self) -> dict[str, int]:
        """The number of unused answers per step."""
        return {step: len(queue) for step, queue in self._answers.items() if queue}

    def _next(self, step_name: str) -> RecordedAnswer:
        queue = self._answers.get(step_name)
        if queue is None:
            names = ", ".join(self._answers) or "none"
            raise ExecutorError(
                f"No answer is recorded for step '{step_name}'.{nearest(step_name, self._answers)} "
                f"Steps with answers: {names}.",
                step_name=step_name,
            )
        if not queue:
            total = self._had[step_name]
            raise ExecutorError(
                f"No recorded answer is left for step '{step_name}': there "
                f"{'was 1' if total == 1 else f'were {total}'}.",
                step_name=step_name,
            )
        return queue.popleft()


class RecordedConversation(RecordedStepExecutor):
    """Gives the recorded messages of an agent that was talked to: text, calls, or both."""

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        """The step's next recorded message; its failure is raised."""
        answer = self._next(request.step_name)
        value = answer.value
        if (failed := value.get("error")) is not None:
            raise _error(failed, request.step_name, value)
        calls = tuple(ToolCall("", call["tool"], copied(call["args"])) for call in value.get("calls") or ())
        opaque = value.get("opaque")
        if request.event_callback is not None and value["output"]:
            await request.event_callback(AgentStreamChunk(request.agent_name, value["output"]))
        return ModelAnswer(
            value["output"], _usage(value) or UsageMetadata(), value.get("model_id"),
            value.get("finish") or ("length" if value.get("cut") else "tool" if calls else "stop"), calls,
            None if opaque is None else Opaque(**opaque),
        )  # fmt: skip


def _is_message(answer: RecordedAnswer) -> bool:
    """Whether an answer is one message, or a failure, of an agent that has carried out nothing itself."""
    value = answer.value
    if not isinstance(value, Mapping) or any(value.get(name) for name in ("acted", "proposed", "looked")):
        return False
    return isinstance(value.get("output", ""), str) and value.get("success", True) is True


def _from_journal(
    entries: Iterable[Entry], steps: Mapping[str, str], blobs: Mapping[str, bytes]
) -> Iterable[RecordedAnswer]:
    """The agents' answers, each with the step whose state the run was in."""
    state = ""
    for entry in entries:
        body = entry.body
        if isinstance(body, Moved):
            state = body.to
        elif isinstance(body, Started | Migrated | Reopened):
            state = body.state
        elif isinstance(body, Recorded) and _KEY.fullmatch(body.key):
            value = body.value
            kept = value.get("kept") if isinstance(value, Mapping) else None
            if kept is not None and (raw := blobs.get(kept["$blob"])) is not None:
                value = {**value, **decode(raw)}
            yield RecordedAnswer(steps.get(state, state), f"entry {entry.seq}", value)


def _on_tape(answer: Any) -> Any:
    """An agent's answer on a tape: by itself, or under `record` with what else it left in the journal."""
    return answer["record"] if isinstance(answer, Mapping) and "record" in answer else answer


def _usage(value: Mapping[str, Any]) -> UsageMetadata | None:
    """The usage of an answer, including the turns that led to it."""
    usage, turns = (UsageMetadata.from_plain(value.get(part)) for part in ("usage", "turns"))
    if usage is None or turns is None:
        return turns if usage is None else usage
    return usage + turns


def _check(answer: RecordedAnswer) -> None:
    """Refuse a value that is no agent's answer before any step runs."""
    value = answer.value
    if not isinstance(value, Mapping) or ("output" in value) == (value.get("error") is not None):
        raise ConfigurationError(
            f"{answer.place}: this is no agent's answer; one is a mapping with either an output or an error."
        )
    error = value.get("error")
    if error is not None and (
        not isinstance(error, Mapping) or (error.get("reason") or "exception") not in _REASONS
    ):
        raise ConfigurationError(
            f"{answer.place}: an agent's error is a mapping with type, message and reason, "
            f"which is one of {', '.join(_REASONS)}."
        )


async def _call_tools(
    calls: Iterable[Mapping[str, Any]], step_name: str, place: str, toolbox: AgentTools | None
) -> None:
    for call in calls:
        if toolbox is None:
            raise ExecutorError(
                f"The answer recorded for '{step_name}' ({place}) calls '{call['tool']}', "
                f"but no tools were given.",
                step_name=step_name,
            )
        await toolbox.call(call["tool"], call.get("args") or {})


def _error(recorded: Mapping[str, Any], step_name: str, value: Mapping[str, Any]) -> ExecutorError:
    """The failure as it was: the same reason, message and `transient`."""
    usage = _usage(value)
    class_name = str(recorded.get("type") or "ExecutorError")
    reason = FallbackReason(recorded.get("reason") or "exception")
    message = str(recorded.get("message") or class_name)
    error: ExecutorError
    if reason is FallbackReason.TIMEOUT:
        error = ExecutorTimeoutError(step_name, float(value.get("ms") or 0.0) / 1000, usage=usage)
    elif reason is FallbackReason.SCHEMA_VIOLATION:
        problems = recorded.get("problems") or [message]
        error = OutputSchemaValidationError(step_name, "the contract", problems, usage=usage)
    else:
        # An exception of a foreign executor keeps its class name; callers look only at the attributes.
        is_ours = class_name == "ExecutorError"
        cls = ExecutorError if is_ours else type(class_name, (ExecutorError,), {"__module__": __name__})
        error = cls(message, step_name=step_name, usage=usage)
        error.transient = bool(recorded.get("transient"))
    error.reason = reason
    error.retry_after = recorded.get("retry_after")
    error.args = (message,)
    return error
