"""Asking an agent: attempts with a time limit each, retried where that may help, kept in the journal.

An attempt's answer or failure is journaled before it is used. A resumed run reads it from the journal, so no
committed attempt is paid for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.dispatch.agent_tools import FATAL, AgentTools, declared_tools
from detent.dispatch.answer_text import too_deep
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.config import AGENT_TIMEOUT
from detent.dispatch.executor import AgentStreamChunk, StepExecutor
from detent.dispatch.executor_errors import ExecutorError, ExecutorTimeoutError, OutputSchemaValidationError
from detent.dispatch.format import answer_schema
from detent.dispatch.layers import Layers
from detent.dispatch.prompt import Prompt
from detent.dispatch.proposal import Proposal
from detent.dispatch.usage import UsageMetadata
from detent.engine import logger
from detent.engine.calls import over
from detent.engine.outcome import Effect
from detent.engine.ports import TapeCall
from detent.engine.step_failures import StepFailed
from detent.engine.user_errors import PutDown
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Recorded
from detent.kernel.errors import BudgetExceededError
from detent.kernel.plain import decode, digest, encode, to_plain, writable

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.engine.context import StepContext
    from detent.engine.work import Work

LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed; the last attempt's failure is that of the whole execution."""

    reason: FallbackReason
    type: str
    message: str
    transient: bool = False
    retry_after: float | None = None
    problems: tuple[str, ...] = ()
    """Violations of the hard contract, sent to the agent with the next attempt."""

    @property
    def loggable(self) -> str:
        """The message where it is known to hold no values; otherwise only the type of the error."""
        ours = self.reason in (FallbackReason.TIMEOUT, FallbackReason.SCHEMA_VIOLATION, FallbackReason.BUDGET)
        return self.message if ours else self.type

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The failure an exception amounts to."""
        try:
            message = writable(str(error))[:LONGEST_ERROR]
        except Exception:  # its `__str__` raises
            message = ""
        if isinstance(error, ExecutorError):
            problems = error.validation_errors if isinstance(error, OutputSchemaValidationError) else ()
            return cls(
                error.reason, type(error).__name__, message, error.transient, error.retry_after, problems
            )
        if isinstance(error, BudgetExceededError):
            return cls(FallbackReason.BUDGET, type(error).__name__, message)
        transient = isinstance(error, ConnectionError)
        return cls(FallbackReason.EXCEPTION, type(error).__name__, message, transient)

    def to_plain(self) -> dict[str, Any]:
        """As the journal keeps it."""
        plain: dict[str, Any] = {"type": self.type, "message": self.message, "reason": self.reason.value}
        if self.transient:
            plain["transient"] = True
        if self.retry_after is not None:
            plain["retry_after"] = self.retry_after
        if self.problems:
            plain["problems"] = list(self.problems)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Failure:
        """Read back what `to_plain` wrote."""
        return cls(
            FallbackReason(plain["reason"]), plain["type"], plain["message"], plain.get("transient", False),
            plain.get("retry_after"), tuple(plain.get("problems", ())),
        )  # fmt: skip


@dataclass(slots=True)
class Asked:
    """The result of asking an agent."""

    proposal: Proposal | None = None
    failure: Failure | None = None
    attempts: int = 0
    seconds: float = 0.0
    usage: UsageMetadata | None = None
    model_id: str | None = None
    cuts: tuple[str, ...] = ()

    @property
    def spend(self) -> Spend:
        """Spend of all attempts."""
        return NOTHING if self.usage is None else self.usage.spend


class Asking:
    """One execution of a step by an agent."""

    def __init__(
        self,
        driver: Work,
        plan: Plan,
        ctx: StepContext,
        inputs: Mapping[str, Any],
        executor: StepExecutor,
        facts: Mapping[str, Any],
        settings: Layers,
        *,
        durable: bool = True,
    ) -> None:
        self.driver = driver
        self.plan = plan
        self.ctx = ctx
        self.inputs = inputs
        self.executor = executor
        self.facts = facts
        self.settings = settings
        self.durable = durable
        """Keep attempts in the visit's journal; otherwise make one attempt, which the caller keeps."""

    async def ask(self, check: Any = None) -> Asked:
        """Make attempts until one keeps the hard contract or no further attempt is allowed.

        `check` is called with each proposal and raises `OutputSchemaValidationError` for one that the run's
        transition table does not allow.
        """
        plan, config = self.plan, self.plan.config
        asked = Asked()
        most = plan.resolved.retry.max_attempts if self.durable else 1
        retry = plan.resolved.retry
        problems: Sequence[str] = ()
        problems_sent = False
        logger.info(
            "executor.step_start",
            **self.facts,
            timestamp=self._now(),
            agent_name=self.plan.agent_name,
            config=_without_prompt(config.to_plain()),
        )
        while True:
            if asked.attempts and (short := self.driver.spending.short_of(config.budget)) is not None:
                limit, spent, of = short
                logger.warning(
                    "dispatch.budget_exhausted", **self.facts, timestamp=self._now(), limit=of, spent=spent,
                    unit=limit,
                )  # fmt: skip
                asked.failure = Failure.of(BudgetExceededError(limit, of, spent))
                return asked
            asked.attempts += 1
            try:
                secrets = self.settings.secrets
                prompt = plan.dialect.build(plan, self.inputs, secrets=secrets, problems=problems)
            except (TypeError, ValueError) as error:  # inputs that cannot be written down
                record, fresh = {"error": Failure.of(error).to_plain()}, True
            else:
                asked.cuts = prompt.cuts
                record, fresh = await self._attempt(asked.attempts, prompt)
            self._count(asked, record)
            failure, asked.proposal = await self._read(record, check)
            if failure is None:
                asked.failure = None
                usage = asked.usage or UsageMetadata()
                logger.info(
                    "executor.step_complete", **self.facts, timestamp=self._now(),
                    agent_name=self.plan.agent_name, success=True,
                    duration_ms=round(asked.seconds * 1000, 1), usage=usage.to_plain(),
                )  # fmt: skip
                return asked
            asked.failure = failure
            violation = failure.reason is FallbackReason.SCHEMA_VIOLATION
            retryable = (violation and not problems_sent) or (failure.transient and not violation)
            will_retry = retryable and asked.attempts < most
            logger.warning(
                "executor.step_error", **self.facts, timestamp=self._now(), agent_name=self.plan.agent_name,
                error_type=failure.type, error=failure.loggable, attempt_number=asked.attempts,
                will_retry=will_retry,
            )  # fmt: skip
            if not will_retry:
                return asked
            if violation:
                problems_sent, problems = True, failure.problems
            elif fresh and not self._played():
                wait = max(
                    retry.wait_before(asked.attempts + 1, self.driver.run.id), failure.retry_after or 0.0
                )
                async with self.driver.engine.slots.released(self.driver):
                    await self.driver.engine.slots.sleep(wait)
                if self.driver.engine.stopping:
                    # The worker that resumes the run continues after the attempts made so far.
                    raise PutDown

    def _played(self) -> bool:
        tape = self.driver.engine.tape
        return tape is not None and tape.plays

    def _now(self) -> float:
        return self.driver.clock.now()

    # -- one attempt ----------------------------------------------------------------------------------------

    async def _attempt(self, number: int, prompt: Prompt) -> tuple[dict[str, Any], bool]:
        """An attempt's record, as the journal keeps it, and whether the attempt was made just now."""
        plan, config, ctx = self.plan, self.plan.config, self.ctx
        tools = AgentTools(
            ctx, declared_tools(plan.step, ctx.tools, plan.allowed), durable=self.durable,
            secrets=self.settings.secrets,
        )  # fmt: skip
        request = {
            "agent": self.plan.agent_name,
            "instructions": prompt.instructions,
            "prompt": prompt.text,
            "schema": to_plain(answer_schema(plan, self.inputs)),
            "tools": [[tool.name, tool.kind, to_plain(tool.arguments)] for tool in tools.list()],
            "config": {
                key: value
                for key in ("provider", "model_id", "temperature", "max_tokens")
                if (value := getattr(config, key)) is not None
            },
        }
        name = digest(request, 24)
        fresh = False

        async def work() -> dict[str, Any]:
            nonlocal fresh
            fresh = True
            tape = self.driver.engine.tape
            if tape is None:
                return await self._execute(prompt, tools, name, number)
            before = set(self.driver.run.records)
            looked_before = len(ctx.looked)

            async def live() -> dict[str, Any]:
                record = await self._execute(prompt, tools, name, number)
                new_records = {
                    key: value
                    for key, value in self.driver.run.records.items()
                    if key not in before and not key.startswith("agent/")
                }
                return {"record": record, "made": new_records, "looked": list(ctx.looked)[looked_before:]}

            subject = "/".join(str(part) for part in (config.provider or "", config.model_id or "") if part)
            position = self.driver.where
            taped = await tape.through(
                TapeCall("agent", position, plan.step.name, subject or "default", request), live
            )
            for key, value in taped["made"].items():
                if (
                    key not in self.driver.run.records
                ):  # played back: records made during the attempt belong to this run
                    usage = UsageMetadata.from_plain(value.get("usage")) if isinstance(value, dict) else None
                    spend = usage.spend if usage is not None and key.startswith("turn/") else NOTHING
                    await self.driver.commit_whole(Recorded(key, value, spend))
            if len(ctx.looked) == looked_before:
                ctx.looked = [*ctx.looked, *taped["looked"]]
            return dict(taped["record"])

        async def work_offloaded() -> dict[str, Any]:
            """Keep the agent's answer outside the journal, and its cost in the journal."""
            record = await work()
            answer = {key: record.pop(key) for key in ("output", "proposed") if key in record}
            return {**record, "kept": ctx.keep(encode(answer))} if answer else record

        try:
            if not self.durable:
                return await work(), True
            record = await ctx.once(
                f"agent/{number}/{name}", work_offloaded if agent_side(plan.step).private else work,
                spend=lambda kept_record: _usage(kept_record, "usage").spend,
            )  # fmt: skip
        except BudgetExceededError as error:
            return {"error": Failure.of(error).to_plain(), "ms": 0.0}, fresh
        if "kept" in record:
            raw = await ctx.kept(record["kept"])
            purged = ExecutorError("What the agent answered was purged.")
            record |= decode(raw) if raw is not None else {"error": Failure.of(purged).to_plain()}
        if not fresh:  # this attempt also decides on the queries made then
            ctx.looked = [*ctx.looked, *record.get("looked", ())]
        return dict(record), fresh

    async def _execute(self, prompt: Prompt, tools: AgentTools, name: str, number: int) -> dict[str, Any]:
        """Call the executor once; an error becomes part of the record."""
        plan, config, clock = self.plan, self.plan.config, self.driver.clock
        began = clock.elapsed()
        looked_before = len(self.ctx.looked)
        record: dict[str, Any] = {"request": name}
        limit = asyncio.timeout(config.timeout or AGENT_TIMEOUT)
        usage: UsageMetadata | None = None
        try:
            async with limit:
                result = await self.executor.execute(
                    step_name=plan.step.name,
                    agent_name=self.plan.agent_name,
                    prompt=prompt.text,
                    instructions=prompt.instructions,
                    allowed_tools=[tool.name for tool in tools.list()],
                    cwd=self.settings.cwd,
                    output_schema=answer_schema(plan, self.inputs),
                    config=config,
                    event_callback=self._stream,
                    toolbox=tools,
                )
            usage = result.usage
            if not result.success:
                raise ExecutorError(f"The executor says that '{plan.step.name}' failed.", usage=usage)
            if too_deep(result.output):
                problems = ["/: is nested too deeply"]
                raise OutputSchemaValidationError(plan.step.name, "its contract", problems, usage=usage)
            record["output"] = to_plain(result.output)
            if result.model_id is not None:
                record["model_id"] = result.model_id
        except FATAL:
            raise
        except asyncio.CancelledError as error:
            raise PutDown from error  # also when only the executor was cancelled: resuming asks again
        except Exception as error:
            if tools.stopped is not None:
                raise tools.stopped from error
            usage = getattr(error, "usage", None) or usage
            if isinstance(error, TimeoutError) and limit.expired():
                error = ExecutorTimeoutError(plan.step.name, config.timeout or AGENT_TIMEOUT, number, usage)
            record["error"] = Failure.of(error).to_plain()
        if tools.stopped is not None:
            raise tools.stopped
        if tools.proposed:
            record["proposed"] = [
                {
                    "tool": effect.tool,
                    "args": to_plain(effect.args),
                    **({"key": effect.key} if effect.key else {}),
                }
                for effect in tools.proposed
            ]
        if looked := list(self.ctx.looked)[looked_before:]:
            record["looked"] = looked
        record["ms"] = round((clock.elapsed() - began) * 1000, 3)
        if usage is not None:
            try:
                _ = usage.spend
                record["usage"] = usage.to_plain()
            except (AttributeError, TypeError, ValueError) as error:  # invalid figures
                record.setdefault("error", Failure.of(error).to_plain())
        if tools.used is not None:
            record["turns"] = tools.used.to_plain()
        return record

    async def _stream(self, chunk: AgentStreamChunk) -> None:
        self.driver.engine.observers.stream(self.driver.run, self.plan.step.name, chunk)

    async def _read(self, record: Mapping[str, Any], check: Any) -> tuple[Failure | None, Proposal | None]:
        """The proposal read from an attempt's record, or its failure."""
        if "error" in record:
            return Failure.from_plain(record["error"]), None
        try:
            effects = [
                Effect(item["tool"], item["args"], item.get("key")) for item in record.get("proposed", ())
            ]
            answer = record.get("output")
            proposal = await over(answer, self.plan.dialect.read, self.plan, answer, effects, self.inputs)
            if isinstance(proposal.plain, Mapping) and proposal.plain.get("success") is False:
                raise StepFailed(f"The agent says that '{self.plan.step.name}' failed.")
            if check is not None:
                await check(proposal)
        except FATAL:
            raise
        except Exception as error:  # no answer, however malformed, may keep the handler from running
            return Failure.of(error), None
        return None, proposal

    @staticmethod
    def _count(asked: Asked, record: Mapping[str, Any]) -> None:
        asked.seconds += record.get("ms", 0.0) / 1000
        for part in ("usage", "turns"):
            if part in record:
                usage = _usage(record, part)
                asked.usage = usage if asked.usage is None else asked.usage + usage
        asked.model_id = record.get("model_id") or asked.model_id


def _usage(record: Mapping[str, Any], part: str) -> UsageMetadata:
    return UsageMetadata.from_plain(record.get(part)) or UsageMetadata()


def _without_prompt(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without its prompt text, for a log line."""
    return {key: value for key, value in config.items() if key != "prompt_suffix"}
