"""`ModelStepExecutor`: performs a step on any model.

A step becomes messages; the model's tool calls are answered until it gives its answer, which is then read and
checked. Retries and time limits are the caller's business.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from detent.adapters.models import prompted_tools
from detent.adapters.models.model import (
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OnText,
    ToolCall,
    with_system_text,
)
from detent.dispatch.agent_tools import FATAL, AgentTool, AgentTools
from detent.dispatch.answer_text import parse_answer
from detent.dispatch.executor import (
    AgentStreamChunk,
    Availability,
    EventCallback,
    ExecutorResult,
    Schema,
    SchemaHint,
)
from detent.dispatch.executor_errors import ExecutorError, OutputSchemaValidationError
from detent.dispatch.usage import UsageMetadata
from detent.engine.calls import over
from detent.engine.schemas import misfits, schema_of
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from detent.kernel.plain import canonical, to_plain

if TYPE_CHECKING:
    from detent.dispatch.config import StepConfig

LONGEST_RESULT = 32 * 1024
"""Characters of a tool's result that are shown to the model."""

ALREADY = "You have asked this already and have the result. Use it, ask something else, or give your answer."


class ModelStepExecutor:
    """Performs steps on a model.

    The toolbox keeps the turns that call tools and records their spend; the usage of a result or an error
    covers only the rest.
    """

    def __init__(
        self,
        model: Model,
        *,
        default_model_id: str | None = None,
        max_turns: int = 12,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.model = model
        self.default_model_id = default_model_id
        self.max_turns = max_turns
        self._clock = clock

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
        """One attempt; the output is a plain value that fits `output_schema`, unless that is only a hint."""
        tools = () if toolbox is None else toolbox.list()
        if allowed_tools is not None:
            tools = tuple(tool for tool in tools if tool.name in allowed_tools)
        conversation = _Conversation(
            model=self.model,
            step=step_name,
            schema=output_schema,
            tools=list(tools),
            toolbox=toolbox,
            stream=None if event_callback is None else _Stream(agent_name, event_callback, self._clock),
        )
        try:
            return await conversation.run(self._request(prompt, instructions, config), self.max_turns)
        except FATAL:
            raise  # the run itself cannot go on, so no executor may turn this into an answer
        except OutputSchemaValidationError as error:
            if error.step_name:
                raise
            raise OutputSchemaValidationError(
                step_name, error.schema_type, error.validation_errors, usage=error.usage
            ) from error
        except ExecutorError as error:
            error.step_name = error.step_name or step_name
            raise
        except Exception as error:
            raise ExecutorError(
                f"Asking the model for '{step_name}' failed: {type(error).__name__}.", step_name=step_name
            ) from error

    def available(self) -> Availability:
        """Whether the model could be asked now."""
        return self.model.available()

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost of asking is known beforehand."""
        return self.model.priced(model_id or self.default_model_id)

    async def close(self) -> None:
        """Release the model's connections and memory."""
        await self.model.close()

    def _request(self, prompt: Any, instructions: str | None, config: StepConfig | None) -> ModelRequest:
        text = prompt if isinstance(prompt, str) else _json_text(prompt)
        system = (Message("system", instructions),) if instructions else ()
        request = ModelRequest((*system, Message("user", text)), self.default_model_id)
        given = {
            name: value
            for name in ("model_id", "temperature", "max_tokens")
            if (value := getattr(config, name, None)) is not None
        }
        return replace(request, **given)


class _Answered(Exception):
    """Carries an answer past the toolbox's memory, which keeps only turns that call tools."""

    def __init__(self, answer: ModelAnswer) -> None:
        self.answer = answer


@dataclass
class _Conversation:
    """One execution: the conversation so far and what it may still do."""

    model: Model
    step: str
    schema: Schema | None
    tools: list[AgentTool]
    toolbox: AgentTools | None
    stream: _Stream | None
    asked: dict[str, int] = field(default_factory=dict)
    """How often each call was made, by name and arguments."""

    def __post_init__(self) -> None:
        self.json_schema: Mapping[str, Any] | None = None if self.schema is None else schema_of(self.schema)
        self.judging = self.schema is not None and not isinstance(self.schema, SchemaHint)
        self.accepts_text = self.json_schema is None or self.json_schema.get("type") == "string"
        self.allowed = {tool.name for tool in self.tools}
        self.in_words = bool(self.tools) and not self.model.native_tools

    async def run(self, request: ModelRequest, max_turns: int) -> ExecutorResult:
        if self.stream is not None:
            await self.stream.open()
        if self.in_words:
            messages = with_system_text(request.messages, prompted_tools.told(self.tools))
            request = replace(request, messages=messages)
        for _ in range(max_turns):
            answer = await self._turn(self._next_request(request))
            calls = self._calls(answer)
            if not calls:
                return await over(answer.text, self._result, answer, request)
            if not self.allowed:
                raise self._misfit("the allowed tools", ["a tool was called; none is allowed here"], answer)
            request = replace(request, messages=(*request.messages, *await self._answers(answer, calls)))
        raise ExecutorError(
            f"The model gave no answer for '{self.step}' within {max_turns} turns.", step_name=self.step
        )

    def _next_request(self, request: ModelRequest) -> ModelRequest:
        """The request of the next turn, with the remaining tools and the schema of its answer."""
        if self.in_words:
            return replace(request, schema=prompted_tools.alternatives(self.tools, self.json_schema))
        # Plain text needs no schema: under one it would come in quotation marks.
        schema = None if self.accepts_text else self.json_schema
        return replace(request, schema=schema, tools=tuple(self.tools))

    async def _turn(self, request: ModelRequest) -> ModelAnswer:
        """The model's answer, from memory when this turn was paid for before."""
        on_text = None if self.stream is None else self.stream.listen(self.in_words)
        if self.toolbox is None or not self.allowed:
            return await self._ask(request, on_text)

        async def work() -> Any:
            answer = await self._ask(request, on_text)
            if not self._calls(answer):
                raise _Answered(answer)
            return _to_plain(answer)

        try:
            return _from_plain(
                await self.toolbox.remember(request, work, lambda kept: _from_plain(kept).usage)
            )
        except _Answered as answered:
            return answered.answer

    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        answer = await self.model.complete(request, on_text)
        if self.stream is not None:
            await self.stream.end(answer.text)
        if answer.finish == "filter":
            raise ExecutorError(
                f"The provider withheld the answer for '{self.step}' (its content filter).",
                step_name=self.step, usage=answer.usage,
            )  # fmt: skip
        return answer

    # -- tools ----------------------------------------------------------------------------------------------

    def _calls(self, answer: ModelAnswer) -> tuple[ToolCall, ...]:
        if not self.in_words:
            return answer.calls
        try:
            call = prompted_tools.read(parse_answer(answer.text, text_allowed=False))
        except ValueError:
            return ()
        return () if call is None else (ToolCall("", call.name, call.arguments),)

    async def _answers(self, answer: ModelAnswer, calls: tuple[ToolCall, ...]) -> list[Message]:
        """The messages to add: the model's turn, and the results of its calls."""
        reply = Message("assistant", answer.text, () if self.in_words else calls)
        messages = [reply]
        for call in calls:
            result = await self._call(call)
            if self.in_words:
                messages.append(Message("user", f"RESULT of {call.name}\n{result}"))
            else:
                messages.append(Message("tool", result, answers=call.id))
        return messages

    async def _call(self, call: ToolCall) -> str:
        """The text that answers a call. A refused call raises; a failed one is reported to the model."""
        if self.toolbox is None or call.name not in self.allowed:
            names = ", ".join(sorted(self.allowed)) or "none"
            raise OutputSchemaValidationError(
                self.step,
                "the allowed tools",
                [f"a tool was called that is not allowed here. Allowed: {names}"],
            )
        key = canonical([call.name, to_plain(call.arguments)])
        if times := self.asked.get(key, 0):
            self.asked[key] = times + 1
            if times > 1:
                self._withdraw(call.name)
            return ALREADY
        try:
            result = await self.toolbox.call(call.name, call.arguments)
        except (*FATAL, ExecutorError):
            raise
        except (ToolError, Transient) as error:
            return f"ERROR: {error}"[:LONGEST_RESULT]
        except Exception as error:  # its text may hold private data
            return f"ERROR: the tool failed ({type(error).__name__})."
        self.asked[key] = 1
        text = result if isinstance(result, str) else _json_text(result)
        cut = len(text) - LONGEST_RESULT
        return text if cut <= 0 else f"{text[:LONGEST_RESULT]}…[cut {cut} characters]"

    def _withdraw(self, name: str) -> None:
        """Take a tool away from a model that keeps making the same call."""
        remaining = [tool for tool in self.tools if tool.name != name]
        # Providers refuse a conversation that contains calls but offers no tools.
        if remaining or self.in_words:
            self.tools = remaining

    # -- the answer -----------------------------------------------------------------------------------------

    def _result(self, answer: ModelAnswer, request: ModelRequest) -> ExecutorResult:
        output = self._read(answer, request.max_tokens)
        return ExecutorResult(
            output,
            usage=answer.usage,
            events=() if self.stream is None else tuple(self.stream.chunks),
            model_id=answer.model_id or request.model_id,
        )

    def _read(self, answer: ModelAnswer, max_tokens: int) -> Any:
        cut = f"the answer was cut at {max_tokens} tokens (max_tokens)" if answer.finish == "length" else ""
        try:
            value = parse_answer(answer.text, text_allowed=self.accepts_text)
            if not answer.text.strip():
                raise ValueError("the answer is empty")
        except ValueError as error:
            raise self._misfit("JSON", [f"/: {cut or error}"], answer) from None
        if cut and value is answer.text:
            raise self._misfit("a whole text", [f"/: {cut}"], answer)
        if self.in_words and isinstance(value, Mapping) and value.keys() == {"answer"}:
            inner = value["answer"]
            if self.schema is None or not misfits(inner, self.schema) or misfits(value, self.schema):
                value = inner
        elif self.schema is not None and self.accepts_text and not isinstance(value, str):
            value = answer.text
        if self.schema is not None and self.judging and (problems := misfits(value, self.schema)):
            raise self._misfit(_schema_name(self.schema), [*problems, cut] if cut else problems, answer)
        return value

    def _misfit(self, expected: str, problems: list[str], answer: ModelAnswer) -> OutputSchemaValidationError:
        return OutputSchemaValidationError(self.step, expected, problems, usage=answer.usage)


class _Stream:
    """Streams what the model writes, each piece once."""

    def __init__(self, agent: str, callback: EventCallback, clock: Callable[[], float]) -> None:
        self.chunks: list[AgentStreamChunk] = []
        self._agent = agent
        self._callback = callback
        self._clock = clock
        self._streamed = False
        self._held: str | None = None
        """Text held back until it is clear whether it is a tool call."""
        self._kind: Literal["output", "thinking"] = "output"

    async def open(self) -> None:
        await self._emit("", "thinking")

    def listen(self, in_words: bool) -> OnText:
        """The callback for the text of a turn."""
        self._streamed, self._kind = False, "output"
        self._held = "" if in_words else None

        async def on_text(text: str, kind: Literal["output", "thinking"]) -> None:
            if not text:
                return
            if kind == "thinking":
                await self._emit(text, "thinking")
                return
            self._streamed = True
            if self._held is not None:
                self._held += text
                if (calls := prompted_tools.calls(self._held)) is None:
                    return
                text, self._held = self._held, None
                self._kind = "thinking" if calls else "output"
            await self._emit(text, self._kind)

        return on_text

    async def end(self, text: str) -> None:
        """End a turn: stream what was held back."""
        if self._held:
            text, self._held = self._held, None
        elif self._streamed or not text:
            return
        await self._emit(
            text, "thinking" if prompted_tools.calls(text) and self._held is not None else "output"
        )

    async def _emit(self, text: str, kind: Literal["output", "thinking"]) -> None:
        chunk = AgentStreamChunk(self._agent, text, kind, self._clock())
        self.chunks.append(chunk)
        await self._callback(chunk)


def _to_plain(answer: ModelAnswer) -> dict[str, Any]:
    """A turn in the form the journal keeps."""
    return {
        "text": answer.text,
        "calls": [
            {"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in answer.calls
        ],
        "usage": answer.usage.to_plain(),
        "model_id": answer.model_id,
        "finish": answer.finish,
    }


def _from_plain(kept: Mapping[str, Any]) -> ModelAnswer:
    return ModelAnswer(
        kept["text"],
        UsageMetadata(**kept["usage"]),
        kept["model_id"],
        kept["finish"],
        tuple(ToolCall(**call) for call in kept["calls"]),
    )


def _schema_name(schema: Schema) -> str:
    if isinstance(schema, Mapping):
        title = schema.get("title")
        return title if isinstance(title, str) else "its JSON Schema"
    return getattr(schema, "__name__", str(schema))


def _json_text(value: Any) -> str:
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False)
