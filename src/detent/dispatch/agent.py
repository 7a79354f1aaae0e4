"""An agent's visit of a step: it is asked, acts, sees what came of it, and answers.

Each reply is an answer, or calls tools. Queries are answered; effects are judged by the gate, performed by
the engine, and their receipts shown. A reply that fails or breaks the contract is asked for again where that
may help. Whatever is settled in the journal is not done again after a crash: the visit walks through its kept
replies and comes to the same calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.agent_side import agent_side
from detent.dispatch.agent_tools import FAILED, FATAL, AgentTools, Refusal, result_text
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.conclusion import claimed_places, known_fields, told_names
from detent.dispatch.conversation import Conversation, Message, ToolCall
from detent.dispatch.executor import StepExecutor
from detent.dispatch.executor_errors import ExecutorError, OutputSchemaValidationError
from detent.dispatch.failure import Failure
from detent.dispatch.layers import Layers
from detent.dispatch.proposal import Proposal
from detent.dispatch.replies import Replies, Reply
from detent.dispatch.usage import UsageMetadata
from detent.engine import logger
from detent.engine.acts import Act
from detent.engine.calls import over
from detent.engine.confirmation import DENIED
from detent.engine.outcome import Effect
from detent.engine.step_failures import StepFailed
from detent.engine.tools import ToolError
from detent.engine.user_errors import PutDown
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import BudgetExceededError
from detent.kernel.plain import canonical, to_plain

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.engine.context import StepContext
    from detent.engine.work import Work

MOST_REPLIES = 12
"""Replies of one visit, unless its executor has a limit of its own; one more for each further round."""
MOST_CALLS = 50
"""Calls in one reply; further ones are refused."""
MOST_AT_ONCE = 8
"""Queries of one reply that are made side by side."""

NOTED = {"status": "noted", "note": "It is carried out once your answer is accepted."}
NOT_HERE = "nothing can be done in this step; give your answer"
LEFT_OUT = {"status": "skipped", "note": "left out, because an effect before it failed"}
ALREADY = "You have asked this already and have the result. Use it, ask something else, or give your answer."


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
    left_out: dict[str, int] = field(default_factory=dict)
    """What was left out of the longest request, counted: results, turns."""
    rounds: int = 0
    """How often the agent acted."""
    refused: int = 0
    """Calls that were not allowed."""
    effects: int = 0
    """Effects it asked for, those never performed included."""

    @property
    def spend(self) -> Spend:
        """Spend of all attempts."""
        return NOTHING if self.usage is None else self.usage.spend


class Call(NamedTuple):
    """A tool call of a reply, and what is to become of it."""

    call: ToolCall
    kind: str
    """`query`, `effect` or `refused`."""
    effect: Effect | None = None
    refusal: Refusal | None = None


async def _nothing() -> None:
    """Nothing needs to be prepared."""


@dataclass
class Judges:
    """Who judges what the agent does; each raises to stop it."""

    round: Callable[[Sequence[Effect], int], Awaitable[int]]
    """Judges effects before they are performed, in the round of this number; gives how many of them may be
    performed before it is asked again, or raises."""
    round_over: Callable[[], None]
    """The agent is asked again after a round."""
    proposal: Callable[[Proposal], Awaitable[None]]
    """Checks a final proposal against the run; raises `OutputSchemaValidationError`."""
    trusted: bool = False
    """The agent's acts and words are not compared with anybody else's."""
    ready: Callable[[], bool] = lambda: False
    """Whether a judgement runs no code of the project, so that a reply may be committed after it."""
    prepare: Callable[[], Awaitable[None]] = _nothing
    """Called while nothing waits to be committed: runs the code that coming judgements need."""
    question: Callable[[str, Effect], str | None] = lambda key, effect: None
    """What the handler would have a person asked before an effect."""


@dataclass
class AgentVisit:
    """One execution of a step by an agent."""

    driver: Work
    plan: Plan
    ctx: StepContext
    inputs: Mapping[str, Any]
    executor: StepExecutor
    facts: Mapping[str, Any]
    settings: Layers
    judges: Judges
    durable: bool = True
    """Keep replies in the visit's journal; otherwise make one attempt, which the caller keeps."""
    acts: list[Act] = field(default_factory=list)
    """Effects performed so far, in order."""

    def __post_init__(self) -> None:
        plan, side = self.plan, agent_side(self.plan.step)
        self.asked = Asked()
        self.tools = AgentTools(self.ctx, plan.tools, self._act_alone, secrets=self.settings.secrets)
        self.replies = Replies(
            self.driver, plan, self.ctx, self.executor, self.tools, self.settings, durable=self.durable
        )
        rounds = len(plan.contract.effects) if side.rounds is None else side.rounds
        # Effects that are carried out with the answer need code that concludes from their receipts.
        self.rounds = rounds if side.dialect is not None else max(1, rounds)
        most: int = getattr(self.executor, "max_turns", MOST_REPLIES)
        self.most_replies = most + max(0, self.rounds - 1)
        self.conversation = Conversation()
        self._schema: Any = None
        self._deferred: list[tuple[int, Effect]] = []
        """Effects to carry out with the answer, and the attempt that called for each."""
        self._judged = 0
        """Effects that may be performed before the gate is asked again."""
        self._queried: set[str] = set()
        self._refused_before = False
        """The last reply called a tool that is not allowed."""
        self._alone: list[dict[str, Any]] = []
        """Effects that the executor asked for in the middle of its own work."""

        self._hopeless = False
        """Asking again would not help."""
        self.replies.acted = self._alone

    @property
    def denied(self) -> bool:
        """A person has decided that an effect it asked for is not done."""
        return any(_is_no(act) for act in self.acts)

    async def ask(self) -> Asked:
        """Ask until the agent has answered within the contract, or no further attempt is allowed."""
        try:
            return await self._ask()
        finally:
            # The objects of a visit refer to each other, so they stay until the next full collection of
            # garbage. Lists as long as a session need not stay with them.
            self.conversation = Conversation()

    async def _ask(self) -> Asked:
        asked, plan = self.asked, self.plan
        asked.attempts = 1
        self._started()
        try:
            prompt = plan.dialect.build(plan, self.inputs, secrets=self.settings.secrets)
            self._schema = plan.dialect.schema_for(plan, self.inputs)
        except (TypeError, ValueError) as error:  # inputs that cannot be written down
            asked.failure = Failure.of(error)
            self._erred(asked.failure, will_retry=False)
            return asked
        asked.cuts = prompt.cuts
        self.conversation = await plan.dialect.conversation(plan, self.ctx, self.inputs, prompt)
        self.replies.begin(self.conversation, plan.dialect.offers(plan, self.inputs))
        problems_sent = again = False
        while True:
            await self.driver.log.flush()
            if self._out_of_budget():
                return asked
            asked.attempts += again
            again = False
            reply = await self._next_reply()
            failure = await self._heard(reply)
            if failure is None:
                if asked.proposal is not None:
                    asked.failure = None
                    self.completed()
                    return asked
                continue
            asked.failure = failure
            violation = failure.reason is FallbackReason.SCHEMA_VIOLATION
            retryable = (violation and not problems_sent) or (failure.transient and not violation)
            retryable = retryable and not self._hopeless
            most = plan.resolved.retry.max_attempts if self.durable else 1
            will_retry = retryable and asked.attempts < most and self._has_time(failure)
            self._erred(failure, will_retry=will_retry)
            if not will_retry:
                return asked
            again = True
            if violation:
                problems_sent = True
                if plan.dialect.takes_calls or reply.calls() is None:
                    self.conversation.add(Message("assistant", reply.text or "(nothing)"))
                self.conversation.add(Message("user", plan.dialect.refused(plan, failure.problems)))
            elif reply.fresh and not self._played():
                await self._wait(failure)

    async def _next_reply(self) -> Reply:
        self._alone.clear()
        reply = await self.replies.next(self.conversation, self._schema)
        asked = self.asked
        asked.seconds += reply.record.get("ms", 0.0) / 1000
        if (usage := reply.usage) is not None:
            asked.usage = usage if asked.usage is None else asked.usage + usage
        asked.model_id = reply.record.get("model_id") or asked.model_id
        for part, count in reply.record.get("left_out", {}).items():
            asked.left_out[part] = max(count, asked.left_out.get(part, 0))
        return reply

    async def _heard(self, reply: Reply) -> Failure | None:
        """Act on a reply. Sets the proposal when it ends the visit; returns why it failed, if it did."""
        if (failure := reply.failure) is not None:
            return failure
        if not reply.live:
            self._walk_through(reply.record.get("acted", ()))
        calls = reply.calls() if len(self.tools) and not self.plan.dialect.takes_calls else None
        if not self.judges.ready():
            await self.driver.log.flush()
        try:
            if calls is not None:
                return await self._called(reply, calls)
            if (asked_for := self._asked_for(reply)) is not None:
                return await self._called(reply, asked_for, in_answer=True)
            self.asked.proposal = await self._read(reply)
        except FATAL:
            raise
        except Exception as error:  # no answer, however malformed, may keep the handler from running
            return Failure.of(error)
        return None

    def _asked_for(self, reply: Reply) -> Sequence[ToolCall] | None:
        """The effects that an answer asks for in a format of its own."""
        if not self.rounds or self.ctx.scope:
            return None
        dialect = self.plan.dialect
        return dialect.calls(self.plan, reply.answer, self.inputs, self.acts, cut=reply.cut)

    # -- answers --------------------------------------------------------------------------------------------

    async def _read(self, reply: Reply) -> Proposal:
        """The proposal of a reply that calls no tools, or whose calls are part of its answer."""
        if self.plan.dialect.takes_calls:
            return await self._proposal(reply.written)
        cut = f"/: the answer was cut at {self.plan.config.max_tokens} tokens (max_tokens)"
        answer = reply.answer
        if isinstance(answer, str) and not answer.strip():
            raise self.plan.contract.broken([cut if reply.cut else "/: the answer is empty"])
        try:
            proposal = await self._proposal(self._abstained(answer))
        except OutputSchemaValidationError as error:
            if reply.cut:
                raise self.plan.contract.broken([cut]) from error
            raise
        if reply.cut and isinstance(proposal.given, str):
            raise self.plan.contract.broken([cut])
        return proposal

    def _abstained(self, answer: Any) -> Any:
        """The answer of an agent that has done nothing of a step with effects, if it may."""
        acting = self.rounds > 0 and bool(self.plan.contract.effects) and not self.ctx.scope
        failed = isinstance(answer, Mapping) and answer.get("success") is False
        tried = any(act.happened or _is_no(act) for act in self.acts)
        if tried or failed or not acting or not self.judges.trusted:
            return answer
        may = agent_side(self.plan.step).may_abstain
        known = None
        if callable(may):
            lookups = self.tools.lookups or [
                (line["tool"], line["args"], line["answer"]) for line in self.ctx.looked
            ]
            known = may(self.inputs, lookups)
        if may is not True and known is None:
            tools = ", ".join(self.plan.contract.effects)
            raise self.plan.contract.broken(
                [f"/: nothing was done. Do the step by calling its tools ({tools}); look first if in doubt"]
            )
        return answer if known is None else known

    def _check_founded(self, claimed: Any) -> None:
        """Refuse what only the receipt of an effect could say, if that effect was not performed.

        Raises:
            OutputSchemaValidationError: the output holds it.
        """
        if not self.acts or not self.judges.trusted or not isinstance(claimed, Mapping):
            return
        contract = self.plan.contract
        founded = {
            *known_fields(self.plan.step, contract.output, self.acts, arguments=False), *told_names(self.acts)
        }  # fmt: skip
        problems: list[str] = []
        for tool in contract.effects.values():
            acts = [act for act in self.acts if (act.asked or act.effect).tool == tool.name]
            if any(act.happened for act in acts):
                continue
            denied = any(_is_no(act) for act in acts)
            problems += [
                f"{place}: only '{tool.name}' can tell, and it was not performed"
                + ("; leave it empty" if denied else "")
                for place, name, value in sorted(
                    claimed_places(to_plain(claimed), tool.receipt_fields), key=str
                )
                if name not in founded and not (denied and not value)
            ]
        if problems:
            raise contract.broken(problems)

    async def _proposal(self, answer: Any) -> Proposal:
        plan = self.plan
        proposal = await over(
            answer, plan.dialect.read, plan, answer, self._carried_out_with_answer(), self.inputs, self.acts
        )
        if isinstance(proposal.plain, Mapping) and proposal.plain.get("success") is False:
            raise StepFailed(f"The agent says that '{plan.step.name}' failed.")
        self._check_founded(proposal.given)
        proposal = proposal._replace(acts=tuple(self.acts), round=max(1, self.asked.rounds))
        await self.judges.proposal(proposal)
        return proposal

    def _carried_out_with_answer(self) -> list[Effect]:
        """The effects to carry out with the answer; what was called for again replaces what was before."""
        last: dict[str, int] = {}
        for attempt, effect in self._deferred:
            last[effect.tool] = max(attempt, last.get(effect.tool, 0))
        return [effect for attempt, effect in self._deferred if attempt == last[effect.tool]]

    # -- calls ----------------------------------------------------------------------------------------------

    async def _called(
        self, reply: Reply, called: Sequence[ToolCall], *, in_answer: bool = False
    ) -> Failure | None:
        """Carry out the calls of a reply, in order; each gets exactly one result.

        `in_answer`: the dialect has read them from the answer, and tells what came of them as text.
        """
        asked = self.asked
        calls = await self._sorted_out(self.conversation.with_ids(called))
        effects = [call.effect for call in calls if call.effect is not None]
        asked.effects += len(effects)
        acts_now = bool(effects) and self.rounds > 0
        if acts_now:
            asked.rounds += 1
            self._judged = await self.judges.round(effects, asked.rounds)
        # If these effects conclude the visit, the last receipt is committed with the move.
        last = acts_now and calls[-1].kind == "effect" and self._acted_out(effects)
        results: list[Message] = []
        groups = [(kind, list(group)) for kind, group in groupby(calls, key=lambda call: call.kind)]
        performed = len(self.acts)
        for number, (kind, group) in enumerate(groups):
            if any("code" in act.settled for act in self.acts[performed:]):
                texts = [result_text(LEFT_OUT) for _ in group]
            elif kind == "query":
                await self.driver.log.flush()
                texts = await self._queries(group)
            elif kind == "refused":
                texts = [self._refused(call) for call in group]
            elif self.rounds == 0:
                self._deferred += [(asked.attempts, call.effect) for call in group if call.effect is not None]
                texts = [result_text(NOTED) for _ in group]
            else:
                withhold = last and number == len(groups) - 1 and self.judges.ready()
                texts = await self._perform([call.effect for call in group if call.effect], withhold)
            results += [
                Message("tool", text, answers=call.call.id) for call, text in zip(group, texts, strict=True)
            ]
        if in_answer:
            texts = [message.content for message in results]
            told = self.plan.dialect.answered(self.plan, self.acts[performed:], texts)
            self.conversation.add(
                Message("assistant", reply.text, opaque=reply.opaque), Message("user", told)
            )
        else:
            self.conversation.add(
                Message(
                    "assistant",
                    reply.text if reply.record.get("calls") else "",
                    tuple(c.call for c in calls),
                    opaque=reply.opaque,
                ),
                *results,
            )
        if (failure := self._refusals(calls)) is not None:
            return failure
        if self.durable and self.rounds and self.plan.contract.effects and not self.acts:
            await self.judges.prepare()
        if acts_now and self._acted_out():
            return await self._concluded(self.acts[performed:])
        if acts_now:
            self._round_over()
        return None

    def _acted_out(self, coming: Sequence[Effect] = ()) -> bool:
        """Whether the agent may not act again: its rounds are used up, or nothing it may do is left."""
        if self.asked.rounds >= self.rounds:
            return True
        side = agent_side(self.plan.step)
        if side.acted_out is not None and self.acts and side.acted_out(self.acts):
            return True
        if side.rounds is not None:
            return False
        done = {(act.asked or act.effect).tool for act in self.acts if act.happened or _is_no(act)}
        return done.union(effect.tool for effect in coming).issuperset(self.plan.contract.effects)

    def _round_over(self) -> None:
        self.completed()
        self.judges.round_over()
        self._started()

    async def _sorted_out(self, called: Sequence[ToolCall]) -> list[Call]:
        """What is to become of each call."""
        calls: list[Call] = []
        for number, call in enumerate(called):
            refusal = await self.tools.refusal(call.name, call.arguments)
            if refusal is None and number >= MOST_CALLS:
                refusal = Refusal("too_many_calls", (f"at most {MOST_CALLS} calls in one reply",))
            kind = self.tools.kind(call.name) if refusal is None else "refused"
            if kind == "effect" and self.ctx.scope:
                refusal, kind = Refusal("not_allowed", (NOT_HERE,)), "refused"
            if kind == "effect" and self.rounds and self._acted_out():
                why = "nothing more can be done in this step; give your answer"
                refusal, kind = Refusal("too_many_rounds", (why,)), "refused"
            effect = None
            if kind == "effect":
                make = self.tools.effect if self.rounds else Effect
                effect = make(call.name, call.arguments)
                if self._is_denied(effect):
                    effect, kind = None, "refused"
                    refusal = Refusal(DENIED, ("a person has said no to this; do not ask for it again",))
            arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
            calls.append(Call(call._replace(arguments=arguments), kind, effect, refusal))
        return calls

    def _is_denied(self, effect: Effect) -> bool:
        """Whether a person has decided in this visit that this very effect is not done."""
        name = self.plan.step.name
        return any(_is_no(act) and act.effect.identity(name) == effect.identity(name) for act in self.acts)

    def _refused(self, call: Call) -> str:
        assert call.refusal is not None
        self.asked.refused += 1
        return result_text({
            "status": "refused",
            "code": call.refusal.code,
            "why": list(call.refusal.why),
            "allowed": [tool.name for tool in self.tools.list()],
        })  # fmt: skip

    def _refusals(self, calls: Sequence[Call]) -> Failure | None:
        """The failure of an agent whose second reply in a row calls what it may not."""
        problems = [why for call in calls if call.refusal is not None for why in call.refusal.why]
        again, self._refused_before = self._refused_before, bool(problems)
        step = self.plan.step
        if not problems or agent_side(step).stands_alone:
            return None
        if not again and self.durable and self.plan.resolved.retry.max_attempts > 1:
            return None
        self._hopeless = True  # it was told already what is allowed
        return Failure.of(OutputSchemaValidationError(step.name, "the allowed tools", problems[:20]))

    async def _queries(self, group: Sequence[Call]) -> list[str]:
        """The results of neighbouring queries, made side by side."""
        gate = asyncio.Semaphore(MOST_AT_ONCE)

        async def one(call: ToolCall) -> str:
            async with gate:
                return await self.tools.result(call.name, call.arguments)

        async def told(call: ToolCall) -> str:
            key = canonical([call.name, to_plain(dict(call.arguments)), len(self.acts)])
            if key in self._queried:
                return ALREADY
            self._queried.add(key)
            text = await one(call)
            if text.startswith(FAILED):  # it may succeed a moment later
                self._queried.discard(key)
            return text

        if len(group) == 1:
            return [await told(group[0].call)]
        tasks = [asyncio.ensure_future(told(call.call)) for call in group]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _perform(self, effects: Sequence[Effect], withhold: bool) -> list[str]:
        """Have neighbouring effects performed, and show what came of each."""
        texts: list[str] = []
        while effects:
            if not self._judged:
                await self.driver.log.flush()
                self._judged = await self.judges.round(effects, self.asked.rounds)
            now, effects = effects[: self._judged], effects[self._judged :]
            self._judged -= len(now)
            keyed = [(self.ctx.next_key(effect), effect) for effect in now]
            withheld = withhold and not effects
            await self.ctx.perform_round(keyed, withhold=withheld, confirm=self._question)
            for key, effect in keyed:
                texts.append(result_text(self._shown(self._come_to(key, effect))))
        return texts

    def _question(self, key: str, effect: Effect) -> str | None:
        own, tool = agent_side(self.plan.step).confirm, self.ctx.tools[effect.tool]
        question = None if own is None else own(effect)
        question = self.judges.question(key, effect) if question is None else question
        return tool.question(effect.args) if question is None else question

    def _come_to(self, key: str, effect: Effect) -> Act:
        settled = self.ctx.come_to(key)
        act = Act(key, effect, settled)
        if "key" in settled:  # a person has put another one in its place
            act = Act(key, Effect(settled["tool"], settled["args"]), settled, asked=effect)
        self.acts.append(act)
        return act

    def _shown(self, act: Act) -> Any:
        """What an agent is told of a settled effect."""
        if act.happened and act.asked is not None:
            args = self.tools.shown(to_plain(act.effect.args))
            return {"status": "edited", "performed": args, "receipt": self.tools.shown(act.receipt)}
        if act.happened:
            return self.tools.shown(act.receipt)
        if "code" in act.settled:
            return {"status": "failed", "code": act.settled["code"], "message": act.settled["message"]}
        why = str(act.settled.get("why") or "a person decided that it is not done")
        return {"status": DENIED if why.startswith(DENIED) else "skipped", "note": why}

    async def _concluded(self, acts: Sequence[Act]) -> Failure | None:
        """After the last time that the agent may act: conclude, or ask for what the receipts do not hold."""
        plan = self.plan
        for act in acts:
            if "code" in act.settled:
                return self._effect_failed(act)
        if plan.dialect.settled(plan, self.acts):
            self.asked.proposal = await self._proposal(None)
            return None
        await self.driver.log.flush()
        self._round_over()
        if (asked := plan.dialect.missing(plan, self.acts)) is not None:
            text, self._schema = asked
            self.conversation.add(Message("user", text))
        return None

    @staticmethod
    def _effect_failed(act: Act) -> Failure:
        message = f"'{act.effect.tool}' failed: {act.settled['code']}"
        return Failure(FallbackReason.EXCEPTION, ToolError.__name__, message)

    # -- executors with a loop of their own -----------------------------------------------------------------

    async def _act_alone(self, effect: Effect) -> Any:
        """Carry out an effect that an executor asks for in the middle of its own work."""
        asked = self.asked
        if self.ctx.scope:
            raise ToolError("not_allowed", NOT_HERE)
        asked.effects += 1
        self._alone.append({"tool": effect.tool, "args": to_plain(effect.args)})
        if self.rounds == 0:
            self._deferred.append((asked.attempts, effect))
            return dict(NOTED)
        if asked.rounds >= self.rounds:
            raise ToolError("too_many_rounds", "nothing more can be done in this step; give your answer")
        asked.rounds += 1
        await self.driver.log.flush()
        self._judged = await self.judges.round([effect], asked.rounds)
        await self._perform([effect], withhold=False)
        act = self.acts[-1]
        if "code" in act.settled:
            raise ToolError(act.settled["code"], act.settled["message"])
        return self._shown(act)

    def _walk_through(self, acted: Sequence[Mapping[str, Any]]) -> None:
        """Come again to the effects that a kept execution asked for in the middle of its own work."""
        for item in acted:
            effect = Effect(item["tool"], item["args"])
            self.asked.effects += 1
            if self.rounds == 0:
                self._deferred.append((self.asked.attempts, effect))
                continue
            if self.asked.rounds < self.rounds:
                self.asked.rounds += 1
                self._come_to(self.ctx.next_key(effect), effect)

    # -- attempts -------------------------------------------------------------------------------------------

    def _out_of_budget(self) -> bool:
        asked = self.asked
        if self.replies.given >= self.most_replies:
            error = ExecutorError(
                f"The agent gave no answer for '{self.plan.step.name}' within {self.most_replies} replies.",
                step_name=self.plan.step.name,
            )
            asked.failure = Failure.of(error)
            self._erred(asked.failure, will_retry=False)
            return True
        if not self.replies.given:
            return False
        short = self.driver.spending.short_of(self.plan.config.budget)
        if short is None:
            return False
        limit, spent, of = short
        logger.warning(
            "dispatch.budget_exhausted", **self.facts, timestamp=self._now(), limit=of, spent=spent,
            unit=limit,
        )  # fmt: skip
        asked.failure = Failure.of(BudgetExceededError(limit, of, spent))
        return True

    def _wait_before_next(self, failure: Failure) -> float:
        """Seconds until the next attempt after a transient failure."""
        own = self.plan.resolved.retry.wait_before(self.asked.attempts + 1, self.driver.run.id)
        return max(own, failure.retry_after or 0.0)

    def _has_time(self, failure: Failure) -> bool:
        """Whether the time of the visit leaves room for another attempt."""
        left = self.plan.dialect.seconds_left(self.plan, self.ctx)
        return left is None or self._wait_before_next(failure) < left

    async def _wait(self, failure: Failure) -> None:
        """Wait before an attempt that follows a transient failure."""
        wait = self._wait_before_next(failure)
        await self.driver.log.flush()
        async with self.driver.engine.slots.released(self.driver):
            await self.driver.engine.slots.sleep(wait)
        if self.driver.engine.stopping:
            # The worker that resumes the run continues after the attempts made so far.
            raise PutDown

    def _played(self) -> bool:
        tape = self.driver.engine.tape
        return tape is not None and tape.plays

    # -- events ---------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self.driver.clock.now()

    def _started(self) -> None:
        if not logger.wants(logger.INFO):
            return
        config = {key: value for key, value in self.plan.config.to_plain().items() if key != "prompt_suffix"}
        logger.info(
            "executor.step_start", **self.facts, timestamp=self._now(), agent_name=self.plan.agent_name,
            config=config,
        )  # fmt: skip

    def completed(self) -> None:
        """Tell that the agent has replied within the contract."""
        usage = self.asked.usage or UsageMetadata()
        logger.info(
            "executor.step_complete", **self.facts, timestamp=self._now(), agent_name=self.plan.agent_name,
            success=True, duration_ms=round(self.asked.seconds * 1000, 1), usage=usage.to_plain(),
        )  # fmt: skip

    def _erred(self, failure: Failure, *, will_retry: bool) -> None:
        logger.warning(
            "executor.step_error", **self.facts, timestamp=self._now(), agent_name=self.plan.agent_name,
            error_type=failure.type, error=failure.loggable, attempt_number=self.asked.attempts,
            will_retry=will_retry,
        )  # fmt: skip


def _is_no(act: Act) -> bool:
    """Whether a person has decided that an effect is not done."""
    return str(act.settled.get("why") or "").startswith(DENIED)
