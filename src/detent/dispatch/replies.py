"""An agent's replies in one visit: each is asked for once, and kept in the journal before it is used.

A resumed run reads a kept reply instead of asking again, so that nothing is paid for twice. A reply is known
by the conversation it answers: if anything before it differs, it is asked for anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from detent.dispatch.agent_side import agent_side
from detent.dispatch.agent_tools import FATAL, AgentTool, AgentTools
from detent.dispatch.answer_text import parse_answer, too_deep
from detent.dispatch.compaction import fitting, room
from detent.dispatch.config import AGENT_TIMEOUT
from detent.dispatch.conversation import Conversation, Message, Opaque, ToolCall
from detent.dispatch.executor import (
    AgentStreamChunk,
    ConversationExecutor,
    ReplyRequest,
    StepExecutor,
    converses,
)
from detent.dispatch.executor_errors import (
    ExecutorError,
    ExecutorTimeoutError,
    OutputSchemaValidationError,
    RequestTooLongError,
)
from detent.dispatch.failure import Failure
from detent.dispatch.layers import Layers
from detent.dispatch.plan import Written
from detent.dispatch.prompt import results_block
from detent.dispatch.unperformed import Unperformed
from detent.dispatch.usage import UsageMetadata
from detent.engine.calls import TimeLimit
from detent.engine.ports import TapeCall
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from detent.engine.user_errors import PutDown
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Recorded
from detent.kernel.errors import BudgetExceededError
from detent.kernel.plain import LONGEST_KEPT, canonical, decode, encode, text_digest, to_plain

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.engine.context import StepContext
    from detent.engine.work import Work

SAID = ("output", "calls", "acted", "opaque")
"""The parts of a reply that are kept outside the journal when they are private or long."""


class Reply:
    """One reply, or the failure to get one."""

    def __init__(self, record: Mapping[str, Any], *, fresh: bool, live: bool = True) -> None:
        self.record = record
        self.fresh = fresh
        """It was given just now; otherwise it is read from the journal."""
        self.live = fresh and live
        """The executor was asked; otherwise its effects meanwhile are still to be walked through."""

    @property
    def failure(self) -> Failure | None:
        """Why there is no reply."""
        error = self.record.get("error")
        return None if error is None else Failure.from_plain(error)

    @property
    def answer(self) -> Any:
        """What the agent said: text, or a value."""
        return self.record.get("output")

    @property
    def text(self) -> str:
        """What the agent said, as text."""
        answer = self.answer
        return answer if isinstance(answer, str) else "" if answer is None else encode(answer)

    @property
    def cut(self) -> bool:
        """The reply was cut off at the limit of tokens."""
        return bool(self.record.get("cut"))

    def calls(self) -> tuple[ToolCall, ...] | None:
        """The tools it calls; None for an answer that calls none."""
        called = self.record.get("calls")
        if called is None:
            called = _written_calls(self.answer)
        return None if called is None else self._named(called)

    @staticmethod
    def _named(called: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
        return tuple(ToolCall("", str(item["tool"]), item["args"]) for item in called)

    @property
    def written(self) -> Written:
        """The whole reply, with its calls as it made them."""
        finish = self.record.get("finish")
        # What reads like calls in the text of a model that calls tools itself is text.
        named = self.record.get("calls", ()) if finish is not None else None
        calls = self.calls() if named is None else self._named(named)
        return Written(
            self.text, calls or (), finish or ("length" if self.cut else "stop"), self.opaque,
            self.record.get("model_id"),
        )  # fmt: skip

    @property
    def opaque(self) -> Opaque | None:
        """What its provider wants back with the next request."""
        opaque = self.record.get("opaque")
        return None if opaque is None else Opaque(**opaque)

    @property
    def usage(self) -> UsageMetadata | None:
        """What it used."""
        return UsageMetadata.from_plain(self.record.get("usage"))


def _written_calls(answer: Any) -> list[dict[str, Any]] | None:
    """The calls in an answer `{"calls": [{"tool", "args"}]}`, of an agent without native calls."""
    if isinstance(answer, str):
        if '"calls"' not in answer:
            return None
        try:
            answer = parse_answer(answer, text_allowed=False)
        except ValueError:
            return None
    if not isinstance(answer, Mapping) or set(answer) != {"calls"} or not isinstance(answer["calls"], list):
        return None
    calls: list[dict[str, Any]] = []
    for item in answer["calls"]:
        if not isinstance(item, Mapping) or not isinstance(item.get("tool"), str):
            return None
        calls.append({"tool": item["tool"], "args": item.get("args", {})})
    return calls or None


class Replies:
    """Gives the replies of one visit, in order."""

    def __init__(
        self,
        driver: Work,
        plan: Plan,
        ctx: StepContext,
        executor: StepExecutor | ConversationExecutor,
        tools: AgentTools,
        settings: Layers,
        *,
        durable: bool,
    ) -> None:
        self.driver = driver
        self.plan = plan
        self.ctx = ctx
        self.executor = executor
        self.tools = tools
        self.settings = settings
        self.durable = durable
        """Keep replies in the journal."""
        self.given = 0
        """Replies so far, failed ones included."""
        self.acted: list[dict[str, Any]] = []
        """Effects that the executor asked for in the middle of the current reply."""
        self._live = False
        """The executor was asked for the current reply, which is not read from a recording."""
        self._told = 0
        """Messages of the conversation that earlier replies were given to."""
        self._offered: Sequence[AgentTool] | None = None
        """Tools that the agent is shown in place of the step's."""
        self._limit: int | None = None
        """Tokens that a request and its answer may have together."""

    def begin(self, conversation: Conversation, offered: Sequence[AgentTool] | None) -> None:
        """Begin with a conversation that earlier visits may have begun, and with the tools to be shown."""
        self._told, self._offered = conversation.earlier, offered
        known = getattr(self.executor, "context_tokens", None)
        self._limit = self.plan.dialect.context_tokens(self.plan, known)

    @property
    def shown(self) -> Sequence[AgentTool]:
        """The tools that the agent is shown."""
        return self.tools.list() if self._offered is None else self._offered

    async def next(self, conversation: Conversation, schema: Any) -> Reply:
        """The reply to a conversation: the kept one, or a new one."""
        self.given += 1
        tools = "" if self._offered is None else f",{canonical(to_plain(self._offered))}"
        name = text_digest(f'["{conversation.head}",{self.plan.frames(schema)}{tools}]', 24)
        key = f"{self.ctx.scope}agent/{self.given}/{name}"
        records = self.driver.run.records
        if (retries := Unperformed(self.ctx).retries) and "error" in records.get(key, ()):
            key = f"{key}/{retries}"
        if self.durable and key in records:
            kept = await self._read(records[key])
            if "error" not in kept:
                self._told = len(conversation.messages)
            self.ctx.looked = [*self.ctx.looked, *kept.get("looked", ())]
            return Reply(kept, fresh=False)
        await self.driver.log.flush()
        self._live = False
        try:
            self.driver.afford(self.ctx.cap)
            if self.durable:
                # A worker that missed a takeover must not pay for what the new worker has paid for.
                await self.driver.confirm()
            record = await self._taped(conversation, schema, name)
        except BudgetExceededError as error:
            return Reply({"error": Failure.of(error).to_plain(), "ms": 0.0}, fresh=True)
        if "error" not in record:
            self._told = len(conversation.messages)
        if self.durable:
            value = self._kept(record)
            self.driver.log.withhold(*self.ctx.take_seen(), Recorded(key, value, _spend(record)))
        return Reply(record, fresh=True, live=self._live)

    def _kept(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A reply as the journal keeps it."""
        said = {part: record[part] for part in SAID if part in record}
        if not said:
            return dict(record)
        text = encode(said)
        if not self._private(said) and len(text) <= LONGEST_KEPT:
            return dict(record)
        rest = {part: value for part, value in record.items() if part not in SAID}
        return {**rest, "kept": self.ctx.keep(text)}

    def _private(self, said: Mapping[str, Any]) -> bool:
        """Whether a reply is kept outside the journal: of a private step, or with calls of a private tool."""
        if agent_side(self.plan.step).private:
            return True
        called = [*(said.get("calls") or ()), *(said.get("acted") or ())]
        called += _written_calls(said.get("output")) or ()
        tools = self.ctx.tools
        return any(item["tool"] in tools and tools[item["tool"]].private for item in called)

    async def _read(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        if "kept" not in kept:
            return dict(kept)
        raw = await self.ctx.kept(kept["kept"])
        purged = ExecutorError("What the agent answered was purged.")
        said = decode(raw) if raw is not None else {"error": Failure.of(purged).to_plain()}
        return {**kept, **said}

    # -- asking ---------------------------------------------------------------------------------------------

    async def _taped(self, conversation: Conversation, schema: Any, name: str) -> dict[str, Any]:
        """Ask, through the recording if there is one."""
        tape, config = self.driver.engine.tape, self.plan.config

        async def live() -> dict[str, Any]:
            return await self._ask(conversation, schema, name)

        if tape is None:
            return await live()
        subject = "/".join(str(part) for part in (config.provider or "", config.model_id or "") if part)
        # Each message is written once: with the first reply given to it.
        new = [message.to_plain() for message in conversation.messages[self._told :]]
        request = {**self.plan.frame(schema), "messages": new}
        call = TapeCall("agent", self.driver.where, self.plan.step.name, subject or "default", request)
        record = dict(await tape.through(call, live))
        for line in () if self._live else record.get("looked", ()):
            await self._look_again(line)
        return record

    async def _look_again(self, line: dict[str, Any]) -> None:
        """Have a query of a played reply answered from the recording too, so that nobody asks it again."""
        if not isinstance(line["args"], Mapping) or {"$hash", "$blob"} & set(line["args"]):
            self.ctx.looked = [*self.ctx.looked, line]
            return
        with contextlib.suppress(ToolError, Transient):
            await self.ctx.look(line["tool"], line["args"])

    async def _ask(self, conversation: Conversation, schema: Any, name: str) -> dict[str, Any]:
        """Call the executor once; an error becomes part of the record."""
        self._live = True
        plan, config, clock = self.plan, self.plan.config, self.driver.clock
        began = clock.elapsed()
        looked_before = len(self.ctx.looked)
        record: dict[str, Any] = {"request": name}
        seconds = config.timeout or AGENT_TIMEOUT
        if (left := plan.dialect.seconds_left(plan, self.ctx)) is not None:
            seconds = min(seconds, max(left, 0.0))
        usage: UsageMetadata | None = None
        limit = TimeLimit(seconds)
        self.ctx.limit = limit  # performing effects is not counted
        try:
            async with limit:
                usage, sent = await fitting(
                    conversation,
                    self._room(schema),
                    lambda messages: self._sent(messages, schema, record),
                )
            if sent.left_out:
                record["left_out"] = sent.left_out
            if too_deep(record.get("output")):
                problems = ["/: is nested too deeply"]
                raise OutputSchemaValidationError(plan.step.name, "its contract", problems, usage=usage)
            record["output"] = to_plain(record.get("output"))
        except FATAL:
            raise
        except asyncio.CancelledError as error:
            if self.tools.stopped is not None:
                raise self.tools.stopped from error
            raise PutDown from error  # also when only the executor was cancelled: resuming asks again
        except Exception as error:
            if self.tools.stopped is not None:
                raise self.tools.stopped from error
            usage = getattr(error, "usage", None) or usage
            if isinstance(error, TimeoutError) and limit.expired:
                error = ExecutorTimeoutError(plan.step.name, seconds, self.given, usage)
            for part in SAID:
                record.pop(part, None)
            record["error"] = Failure.of(error).to_plain()
        finally:
            self.ctx.limit = None
        if self.tools.stopped is not None:
            raise self.tools.stopped
        if looked := list(self.ctx.looked)[looked_before:]:
            record["looked"] = looked
        if self.acted:
            record["acted"] = list(self.acted)
        record["ms"] = round((clock.elapsed() - began) * 1000, 3)
        if usage is not None:
            try:
                _ = usage.spend
                record["usage"] = usage.to_plain()
            except (AttributeError, TypeError, ValueError) as error:  # invalid figures
                record.setdefault("error", Failure.of(error).to_plain())
        return record

    def _room(self, schema: Any) -> int | None:
        """Tokens that the messages may take; None where the model's limit is not known."""
        if self._limit is None:
            return None
        return room(self._limit, answer=self.plan.config.max_tokens or 0, fixed=[schema, *self.shown])

    async def _sent(
        self, messages: Sequence[Message], schema: Any, record: dict[str, Any]
    ) -> UsageMetadata | None:
        if converses(self.executor):
            return await self._reply(self.executor, messages, schema, record)
        try:
            return await self._execute(cast("StepExecutor", self.executor), messages, schema, record)
        except RequestTooLongError as error:
            if not self.acted:
                raise
            # It has acted in its own loop, which cannot be run again from the beginning.
            raise ExecutorError(str(error), usage=error.usage) from error

    async def _reply(
        self,
        executor: ConversationExecutor,
        messages: Sequence[Message],
        schema: Any,
        record: dict[str, Any],
    ) -> UsageMetadata | None:
        """One message of an agent that is talked to."""
        plan = self.plan
        answer = await executor.reply(
            ReplyRequest(
                plan.step.name, plan.agent_name, messages, self.shown, schema, plan.config,
                self._stream, plan.dialect.takes_calls,
            )
        )  # fmt: skip
        record["output"] = answer.text
        if answer.calls:
            record["calls"] = [{"tool": call.name, "args": to_plain(call.arguments)} for call in answer.calls]
            if answer.opaque is not None:
                record["opaque"] = answer.opaque._asdict()
        if answer.finish == "length":
            record["cut"] = True
        if plan.dialect.takes_calls:
            record["finish"] = answer.finish
        if answer.model_id is not None:
            record["model_id"] = answer.model_id
        return answer.usage

    async def _execute(
        self, executor: StepExecutor, messages: Sequence[Message], schema: Any, record: dict[str, Any]
    ) -> UsageMetadata | None:
        """One execution by an agent that knows only a prompt, or runs its own loop."""
        plan = self.plan
        instructions, prompt = prompt_of(messages)
        result = await executor.execute(
            step_name=plan.step.name,
            agent_name=plan.agent_name,
            prompt=prompt,
            instructions=instructions,
            allowed_tools=[tool.name for tool in self.shown],
            cwd=self.settings.cwd,
            output_schema=schema,
            config=plan.config,
            event_callback=self._stream,
            toolbox=self.tools,
        )
        record["output"] = result.output
        if result.model_id is not None:
            record["model_id"] = result.model_id
        if not result.success:
            raise ExecutorError(f"The executor says that '{plan.step.name}' failed.", usage=result.usage)
        return result.usage

    async def _stream(self, chunk: AgentStreamChunk) -> None:
        self.driver.engine.observers.stream(self.driver.run, self.plan.step.name, chunk)


def prompt_of(messages: Sequence[Message]) -> tuple[str | None, str]:
    """Instructions and one prompt that says what a conversation says, for an agent without messages."""
    instructions: str | None = None
    blocks: list[str] = []
    results: list[tuple[str, Any, str]] = []
    open_calls: dict[str | None, ToolCall] = {}

    def close() -> None:
        if results:
            blocks.append(results_block(results))
            results.clear()

    for message in messages:
        if message.role == "system":
            instructions = message.content
        elif message.role == "assistant":
            open_calls |= {call.id: call for call in message.calls}
        elif message.role == "tool":
            call = open_calls[message.answers]
            results.append((call.name, call.arguments, message.content))
        else:
            close()
            blocks.append(message.content)
    close()
    return instructions, "\n\n".join(blocks)


def _spend(record: Mapping[str, Any]) -> Spend:
    usage = UsageMetadata.from_plain(record.get("usage"))
    return NOTHING if usage is None else usage.spend
