"""`ModelStepExecutor`: performs a step on any model.

Dispatch talks to it one reply at a time; `execute` runs the whole conversation for a caller that has only a
prompt. Retries and time limits are the caller's business.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from detent.adapters.models import prompted_tools, written_calls
from detent.adapters.models.model import Model, ModelRequest, OnText, with_system_text
from detent.adapters.models.sent_messages import sendable
from detent.adapters.models.streamed_text import StreamedText
from detent.dispatch.agent import ALREADY
from detent.dispatch.agent_tools import FATAL, LONGEST_RESULT, AgentTool, AgentTools, result_text
from detent.dispatch.answer_text import parse_answer
from detent.dispatch.compaction import fitting, room
from detent.dispatch.conversation import Conversation, Message, ModelAnswer, ToolCall
from detent.dispatch.executor import (
    AgentStreamChunk,
    Availability,
    EventCallback,
    ExecutorResult,
    ReplyRequest,
    Schema,
    SchemaHint,
)
from detent.dispatch.executor_errors import ExecutorError, OutputSchemaValidationError
from detent.engine.calls import over
from detent.engine.schemas import misfits, schema_of
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from detent.kernel.plain import canonical, to_plain

if TYPE_CHECKING:
    from detent.dispatch.config import StepConfig
    from detent.dispatch.usage import UsageMetadata


class ModelStepExecutor:
    """Performs steps on a model."""

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

    @property
    def context_tokens(self) -> int | None:
        """Tokens of prompt and answer together, where the model knows them."""
        return getattr(self.model, "context_tokens", None)

    # -- one reply ------------------------------------------------------------------------------------------

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        """The model's next message: tool calls, or its answer."""
        stream = None
        if request.event_callback is not None:
            stream = _Stream(request.agent_name, request.event_callback, self._clock)
            await stream.open()
        async with _named(request.step_name):
            return await self._reply(request, stream)

    async def _reply(self, request: ReplyRequest, stream: _Stream | None) -> ModelAnswer:
        prompted = not self.model.native_tools and (bool(request.tools) or request.takes_calls)
        prose = prompted and request.takes_calls
        wanted = self._wanted(request, prompted)
        listener = None
        if stream is not None:
            text = StreamedText(request.tools) if prose else None
            listener = stream.listen(json=prompted and not prose, prose=text)
        answer = await self.model.complete(wanted, listener)
        if prose:
            answer = await over(answer.text, _with_written_calls, answer, request.tools)
        if stream is not None:
            await stream.end(answer.text, request.tools if answer.calls else None)
        if not request.takes_calls:
            _check_whole(answer, request.step_name)
        if not answer.model_id:
            answer = replace(answer, model_id=wanted.model_id)
        if prompted and not prose:
            return await over(answer.text, _spelled_out, answer, request.schema)
        return answer

    def _wanted(self, request: ReplyRequest, prompted: bool) -> ModelRequest:
        """What the model is sent."""
        schema = None if request.schema is None else schema_of(request.schema)
        messages = sendable(request.messages)
        tools: tuple[AgentTool, ...] = ()
        if prompted:
            messages = prompted_tools.in_words(messages, with_text=request.takes_calls)
        if not prompted:
            # Plain text needs no schema: under one it would come in quotation marks.
            shape = None if _accepts_text(schema) else schema
            # Providers refuse a conversation with calls where no tool is given.
            tools = tuple(request.tools) if request.takes_calls else _offered(request) or tuple(request.tools)
        elif request.takes_calls:
            shape = None
            if request.tools:
                messages = with_system_text(
                    messages, prompted_tools.told(request.tools, prompted_tools.PROSE)
                )
        else:
            messages = with_system_text(messages, prompted_tools.told(request.tools))
            shape = prompted_tools.alternatives(_offered(request), schema)
        settings: dict[str, Any] = {"model_id": self.default_model_id}
        for name in ("model_id", "temperature", "max_tokens"):
            if (value := getattr(request.config, name, None)) is not None:
                settings[name] = value
        return ModelRequest(messages, schema=shape, tools=tools, **settings)

    # -- a whole conversation -------------------------------------------------------------------------------

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
        stream = None if event_callback is None else _Stream(agent_name, event_callback, self._clock)
        text = (
            prompt if isinstance(prompt, str) else json.dumps(to_plain(prompt), indent=2, ensure_ascii=False)
        )
        system = (Message("system", instructions),) if instructions else ()
        conversation = Conversation((*system, Message("user", text)))
        calls = _Calls(toolbox, tools, step_name)
        used = _Used()
        most = None
        if (limit := self.context_tokens) is not None:
            schema = None if output_schema is None else schema_of(output_schema)
            most = room(limit, answer=getattr(config, "max_tokens", None) or 0, fixed=[schema, *tools])
        async with used.told(), _named(step_name):
            if stream is not None:
                await stream.open()
            for _ in range(self.max_turns):
                answer, _ = await fitting(
                    conversation.messages,
                    most,
                    lambda messages: self._reply(
                        ReplyRequest(step_name, agent_name, messages, tools, output_schema, config), stream
                    ),
                )
                used.add(answer.usage)
                if not answer.calls:
                    output = await over(answer.text, _output, answer, output_schema, step_name, config)
                    events = () if stream is None else tuple(stream.chunks)
                    return ExecutorResult(output, usage=used.sum, events=events, model_id=answer.model_id)
                made = conversation.with_ids(answer.calls)
                results = [Message("tool", await calls.result(call), answers=call.id) for call in made]
                conversation.add(Message("assistant", answer.text, made, opaque=answer.opaque), *results)
            raise ExecutorError(
                f"The model gave no answer for '{step_name}' within {self.max_turns} turns.",
                step_name=step_name,
            )

    def available(self) -> Availability:
        """Whether the model could be asked now."""
        return self.model.available()

    @property
    def model_id(self) -> str | None:
        """The model that is asked where a request names none."""
        return self.default_model_id or getattr(self.model, "model_id", None)

    @property
    def needs_model_id(self) -> bool:
        """Whether each request has to name a model, because no setting of the provider does."""
        return self.default_model_id is None and bool(getattr(self.model, "needs_model_id", False))

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost of asking is known beforehand."""
        return self.model.priced(model_id or self.default_model_id)

    async def close(self) -> None:
        """Release the model's connections and memory."""
        await self.model.close()


@asynccontextmanager
async def _named(step_name: str) -> AsyncIterator[None]:
    """Errors as `ExecutorError`s that name the step."""
    try:
        yield
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


def _check_whole(answer: ModelAnswer, step_name: str) -> None:
    """Refuse what can be neither an answer nor a call.

    Raises:
        ExecutorError: the answer was withheld.
        OutputSchemaValidationError: a call was cut off; the model must be more brief.
    """
    if answer.finish == "filter":
        raise ExecutorError(
            f"The provider withheld the answer for '{step_name}' (its content filter).",
            step_name=step_name, usage=answer.usage,
        )  # fmt: skip
    if answer.finish == "length":
        for index, call in enumerate(answer.calls):
            if not isinstance(call.arguments, Mapping):
                problem = f"/{index}/arguments: the answer was cut"
                raise OutputSchemaValidationError(
                    step_name, "a tool's arguments", [problem], usage=answer.usage
                )


def _offered(request: ReplyRequest) -> tuple[AgentTool, ...]:
    """The tools, without those that the model calls again and again although it has the results."""
    if not any(message.content == ALREADY for message in request.messages):
        return tuple(request.tools)
    kinds = {tool.name: tool.kind for tool in request.tools}
    repeated: Counter[str] = Counter()
    names: dict[str | None, str] = {}
    for message in request.messages:
        names |= {call.id: call.name for call in message.calls}
        if any(kinds.get(call.name) == "effect" for call in message.calls):
            repeated.clear()  # there may be something new to see
        if message.role == "tool" and message.content == ALREADY:
            repeated[names.get(message.answers, "")] += 1
    return tuple(tool for tool in request.tools if repeated[tool.name] < 2)


def _accepts_text(schema: Mapping[str, Any] | None) -> bool:
    return schema is None or schema.get("type") == "string"


class _Used:
    """The usage of a conversation: every reply counts once, also where the conversation fails."""

    def __init__(self) -> None:
        self.sum: UsageMetadata | None = None
        self._last: UsageMetadata | None = None

    def add(self, usage: UsageMetadata) -> None:
        """Count a reply."""
        self.sum = usage if self.sum is None else self.sum + usage
        self._last = usage

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Errors that carry the whole usage."""
        try:
            yield
        except ExecutorError as error:
            if error.usage is not None and error.usage is not self._last:  # a reply that failed
                self.add(error.usage)
            error.usage = self.sum
            raise


class _Calls:
    """The calls of one conversation, and the texts that answer them."""

    def __init__(self, toolbox: AgentTools | None, tools: Sequence[AgentTool], step_name: str) -> None:
        self._toolbox = toolbox
        self._kinds = {tool.name: tool.kind for tool in tools}
        self._step_name = step_name
        self._queried: set[str] = set()
        """Queries whose answers are known; an effect may change them."""

    async def result(self, call: ToolCall) -> str:
        """The text that answers a call. A refused call raises; a failed one is reported to the model."""
        toolbox, kind = self._toolbox, self._kinds.get(call.name)
        if toolbox is None or kind is None:
            names = ", ".join(sorted(self._kinds)) or "none"
            problem = f"a tool was called that is not allowed here. Allowed: {names}"
            raise OutputSchemaValidationError(self._step_name, "the allowed tools", [problem])
        key = canonical([call.name, to_plain(call.arguments)])
        if key in self._queried:
            return ALREADY
        if kind == "effect":
            self._queried.clear()
        try:
            result = await toolbox.call(call.name, call.arguments)
        except (*FATAL, ExecutorError):
            raise
        except (ToolError, Transient) as error:
            return f"ERROR: {error}"[:LONGEST_RESULT]
        except Exception as error:  # its text may hold private data
            return f"ERROR: the tool failed ({type(error).__name__})."
        if kind == "query":
            self._queried.add(key)
        return result_text(result)


def _output(answer: ModelAnswer, schema: Schema | None, step_name: str, config: StepConfig | None) -> Any:
    """The value of an answer, checked by the schema."""
    most = getattr(config, "max_tokens", None) or ModelRequest(()).max_tokens
    cut = f"the answer was cut at {most} tokens (max_tokens)" if answer.finish == "length" else ""

    def misfit(expected: str, problems: list[str]) -> OutputSchemaValidationError:
        return OutputSchemaValidationError(step_name, expected, problems, usage=answer.usage)

    accepts_text = _accepts_text(None if schema is None else schema_of(schema))
    try:
        value = parse_answer(answer.text, text_allowed=accepts_text)
        if not answer.text.strip():
            raise ValueError("the answer is empty")
    except ValueError as error:
        raise misfit("JSON", [f"/: {cut or error}"]) from None
    if cut and value is answer.text:
        raise misfit("a whole text", [f"/: {cut}"])
    if schema is not None and accepts_text and not isinstance(value, str):
        value = answer.text
    judged = schema is not None and not isinstance(schema, SchemaHint)
    if schema is not None and judged and (problems := misfits(value, schema)):
        raise misfit(_schema_name(schema), [*problems, cut] if cut else problems)
    return value


# -- models without native tools ----------------------------------------------------------------------------


def _with_written_calls(answer: ModelAnswer, tools: Sequence[AgentTool]) -> ModelAnswer:
    """An answer with the calls that are written out in its text."""
    text, calls = written_calls.read(answer.text, tools)
    if not calls:
        return answer
    return replace(answer, text=text, calls=tuple(ToolCall("", *call) for call in calls))


def _spelled_out(answer: ModelAnswer, schema: Schema | None) -> ModelAnswer:
    """An answer written in words, as the call or the answer it stands for."""
    try:
        value = parse_answer(answer.text, text_allowed=False)
    except ValueError:
        return answer
    call = prompted_tools.read(value)
    if call is not None and (isinstance(call.arguments, Mapping) or schema is None or misfits(value, schema)):
        return replace(answer, calls=(ToolCall("", call.name, call.arguments),))
    if isinstance(value, Mapping) and value.keys() == {"answer"}:
        inner = value["answer"]
        if schema is None or not misfits(inner, schema) or misfits(value, schema):
            text = inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)
            return replace(answer, text=text)
    return answer


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
        self._prose: StreamedText | None = None
        """Text between written calls."""
        self._kind: Literal["output", "thinking"] = "output"

    async def open(self) -> None:
        await self._emit("", "thinking")

    def listen(self, *, json: bool = False, prose: StreamedText | None = None) -> OnText:
        """The callback for the text of a turn: JSON that may be a call, prose with written calls, or text."""
        self._streamed, self._kind = False, "output"
        self._held, self._prose = "" if json else None, prose

        async def on_text(text: str, kind: Literal["output", "thinking"]) -> None:
            if not text:
                return
            if kind == "thinking":
                await self._emit(text, "thinking")
                return
            self._streamed = True
            if self._prose is not None:
                text = self._prose.add(text)
            elif self._held is not None:
                self._held += text
                if (calls := prompted_tools.calls(self._held)) is None:
                    return
                text, self._held = self._held, None
                self._kind = "thinking" if calls else "output"
            if text:
                await self._emit(text, self._kind)

        return on_text

    async def end(self, text: str, tools: Sequence[AgentTool] | None = None) -> None:
        """End a turn: stream what was held back. `tools`: it was prose, in which these are called."""
        if self._prose is not None and self._streamed:
            text = self._prose.held()
            text = text if tools is None else written_calls.read(text, tools).text
        elif self._held:
            text, self._held = self._held, None
        elif self._streamed:
            return
        if text:
            calls = self._held is not None and prompted_tools.calls(text)
            await self._emit(text, "thinking" if calls else "output")

    async def _emit(self, text: str, kind: Literal["output", "thinking"]) -> None:
        chunk = AgentStreamChunk(self._agent, text, kind, self._clock())
        self.chunks.append(chunk)
        await self._callback(chunk)


def _schema_name(schema: Schema) -> str:
    if isinstance(schema, Mapping):
        title = schema.get("title")
        return title if isinstance(title, str) else "its JSON Schema"
    return getattr(schema, "__name__", str(schema))
