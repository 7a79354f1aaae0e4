"""Work after a dispatched step is committed: run the shadow comparison, count the evidence.

Nothing here can change the step's outcome or fail the run, and no effect is performed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from detent.dispatch import gate
from detent.dispatch.agent import Asked
from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason, StepMode
from detent.dispatch.config import AGENT_TIMEOUT
from detent.dispatch.draft import texts_of, with_texts
from detent.dispatch.draft_plants import REVIEWER
from detent.dispatch.due_comparison import no_longer_due
from detent.dispatch.evidence import COMPARISON, PERSON, Verdict, judge_of, verdict_of, verdict_of_shadow
from detent.dispatch.evidence_log import Counted, mark_of
from detent.dispatch.execution import Answer, Execution
from detent.dispatch.found_right import found_right_later
from detent.dispatch.matching import normal
from detent.dispatch.result import DispatchResult
from detent.dispatch.standing import Observation, Standing, gathered_at
from detent.engine import logger
from detent.engine.acts import Act
from detent.engine.journal_reader import read
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.trial_context import CannotCheck, TrialPaused
from detent.engine.work import Work
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.effect_key import effect_key
from detent.kernel.entries import EffectDone, Ended, Moved, Noted, Proposed
from detent.kernel.errors import Fenced, StoreUnavailable
from detent.kernel.plain import copied
from detent.kernel.run import Run
from detent.kernel.run_config import REPLAYED


@dataclass(slots=True)
class Shadow:
    """The comparison and evidence of one execution."""

    execution: Execution
    answer: Answer
    before: Run | None = None
    """The run before the step, if a shadow needs it."""
    acts: Sequence[Act] = ()
    """Effects that were performed in the visit."""
    whole: bool = False
    """Only the outcome of the side that counted is known, so outcomes are compared instead of facts."""

    @classmethod
    def of(cls, execution: Execution, answer: Answer) -> Shadow | None:
        """The work left after an answer is committed; None if there is none."""
        shadow = answer.result.shadow
        if not shadow and not execution.plan.agent:
            return None
        before = Run.from_plain(copied(execution.run.to_plain())) if shadow else None
        if before is not None:
            before.beside = execution.run.beside
        return cls(execution, answer, before)

    @classmethod
    def of_failure(cls, execution: Execution, detail: Mapping[str, Any]) -> Shadow:
        """The work left after agent and handler both failed: the agent's failure is evidence too."""
        outcome = Outcome(detail=detail)
        failed = Answer(outcome, DispatchResult.plain(), gate.Side(outcome, None, None, ()))
        return cls(execution, failed)

    async def carry_out(self) -> None:
        """Compare and count."""
        driver = self.execution.driver
        try:
            detail = self.answer.outcome.detail
            if self.before is None:
                if (counted := await self._counted_at_once(detail)) is not None:
                    await self.execution.evidence.count(counted)
            elif not driver.engine.stopping:  # or whoever resumes the run makes the comparison
                note, spend = await self._shadow(self.before)
                await self.conclude(note, spend, detail, last=self.answer.outcome.then is None)
        except (Fenced, StoreUnavailable):
            raise
        except Exception as error:
            logger.error("dispatch.afterwards_failed", run_id=driver.run.id, error=type(error).__name__)

    async def conclude(
        self, note: dict[str, Any], spend: Spend, record: Mapping[str, Any], *, last: bool
    ) -> None:
        """Commit a comparison, and with it the verdicts on the visit; `record` is its dispatch record.

        With the last comparison of a run none is due any more.
        """
        driver, evidence = self.execution.driver, self.execution.evidence
        at_once = await self._counted_at_once(record)
        compared = await self._counted_by_comparison(note, record)
        several = [counted for counted in (at_once, compared) if counted is not None]
        if at_once is not None and compared is not None and at_once.series != compared.series:
            await evidence.count(at_once)
            several = [compared]
        entry = Noted("shadow", note, spend, aside=True)
        since = None if self.before is None else self.before.seq
        marks = await no_longer_due(driver, since) if last else ()
        if several:
            await evidence.commit(several, entry, *marks)
        else:
            await driver.commit_whole(entry, marks=marks)

    # -- the other side -------------------------------------------------------------------------------------

    async def _shadow(self, before: Run) -> tuple[dict[str, Any], Spend]:
        """Run the side that did not count on the step's inputs, and compare."""
        agent = self.answer.result.mode_used is not StepMode.AGENT
        settled, entry = await settled_since(self.execution.driver, before)
        before.settled |= settled
        before.proposal, before.done, before.round = None, {}, 0
        execution = self.execution.then(before)
        self.acts = [act for act in await execution.ctx.acts() if act.happened]
        before.settled = _keyed_as_asked_for(execution, self.acts)
        clock = execution.driver.clock
        side = "agent" if agent else "handler"
        began = clock.elapsed()
        note, spend = await (self.by_agent(execution) if agent else self.by_handler(execution))
        result, level = self.answer.result, execution.level
        # Of the side that counted, which knows the model that answered.
        series = None if agent else self.answer.outcome.detail.get("series")
        note = {
            "step": execution.plan.qualified,
            "of": entry,
            "side": side,
            "duration_ms": round((clock.elapsed() - began) * 1000, 3),
            "other_ms": result.handler_duration_ms if agent else result.agent_duration_ms,
            "autonomy_level": level.value,
            "series": dict(series or execution.series(execution.configured_model)),
            **note,
        }
        execution.say(
            logger.info, "dispatch.shadow_completed", side=side, outcome=note["outcome"],
            pointers=gate.loggable(note.get("pointers", [])[:10]), duration_ms=note["duration_ms"],
            cost_usd=spend.cost_usd,
        )  # fmt: skip
        return note, spend

    async def by_agent(self, execution: Execution) -> tuple[dict[str, Any], Spend]:
        """Ask the agent, and compare."""
        executor = execution.executor()
        if isinstance(executor, str):
            return {"outcome": "failed", "reason": FallbackReason.NO_EXECUTOR.value}, NOTHING
        if execution.driver.spending.short_of(execution.plan.config.budget) is not None:
            return {"outcome": "failed", "reason": FallbackReason.BUDGET.value}, NOTHING
        try:
            asked = await execution.ask(executor, durable=False)
        except TrialPaused:  # it would act otherwise than the side that counted
            assert execution.visit is not None
            asked = execution.visit.asked
            differed = {"outcome": "differed", "pointers": ["/effects"], "count": 1, "round": asked.rounds}
            return {**differed, **self._told(execution, asked)}, asked.spend
        except CannotCheck as error:
            if execution.visit is None and self.whole:  # what the step saw is gone
                raise
            spend = NOTHING if execution.visit is None else execution.visit.asked.spend
            return {"outcome": "not_comparable", "error": str(error)}, spend
        more = self._told(execution, asked)
        if asked.failure is not None:
            failed = {"outcome": "failed", "reason": asked.failure.reason.value, "error": asked.failure.type}
            return {**failed, **more}, asked.spend
        assert execution.agent_side is not None
        assert asked.proposal is not None
        judgement = await gate.validated(execution.step, execution.inputs, asked.proposal)
        if judgement is None:
            return {**self._compared(execution, self.answer.side, execution.agent_side), **more}, asked.spend
        return {**_judged(judgement), **more}, asked.spend

    @staticmethod
    def _told(execution: Execution, asked: Asked) -> dict[str, Any]:
        """What is kept of a shadowing agent whatever came of it."""
        more: dict[str, Any] = {}
        if asked.model_id is not None:
            more["series"] = execution.series(asked.model_id)
        if asked.usage is not None and asked.usage.total_cost_usd is not None:
            more["cost_usd"] = asked.usage.total_cost_usd
        return more

    async def by_handler(self, execution: Execution) -> tuple[dict[str, Any], Spend]:
        """Run the handler, and compare."""
        try:
            async with asyncio.timeout(execution.plan.timeout or AGENT_TIMEOUT):
                handler = await execution.own_code.side_after(self.acts)
        except TrialPaused:
            differed = {"outcome": "differed", "pointers": ["/effects"], "count": 1}
            return differed, NOTHING
        except (Fenced, StoreUnavailable):
            raise
        except CannotCheck:
            if self.whole:
                raise
            return {"outcome": "failed", "error": CannotCheck.__name__}, NOTHING
        except Exception as error:
            return {"outcome": "failed", "error": type(error).__name__}, NOTHING
        return self._compared(execution, handler, self.answer.side), NOTHING

    def _compared(self, execution: Execution, handler: gate.Side, agent: gate.Side) -> dict[str, Any]:
        own, written = texts_of(execution.plan, handler), texts_of(execution.plan, agent)
        unread = [place for place in own if written.get(place, own[place]) != own[place]]
        # No comparison judges text for people.
        texts = {place: own[place] for place in unread}
        agent = with_texts(execution.plan, agent, texts)
        handler, agent = (execution.own_code.filled(side, self.acts) for side in (handler, agent))
        if self.acts:  # what the side that counted did, in however many rounds
            acted = [act.asked or act.effect for act in self.acts]
            done = tuple(normal(execution.ctx, effect) or effect for effect in acted)
            if self.answer.result.mode_used is StepMode.AGENT:
                agent = replace(
                    agent, effects=with_texts(execution.plan, replace(agent, effects=done), texts).effects
                )
            else:
                handler = replace(handler, effects=done)
        if self.whole:
            handler, agent = _bare(execution.step, handler), _bare(execution.step, agent)
        details, count = gate.compare_sides(execution.step, execution.plan.contract, handler, agent)
        composed = "composed" in self.answer.outcome.detail  # persons have judged its text beforehand
        if not count:
            return (
                {"outcome": "unjudged", "text": unread} if unread and not composed else {"outcome": "agreed"}
            )
        return {"outcome": "differed", "pointers": [detail.pointer for detail in details], "count": count}

    async def _counted_at_once(self, record: Mapping[str, Any]) -> Counted | None:
        """What the visit itself says about the agent."""
        if (verdict := verdict_of(record)) is None:
            return None
        return await self._counted(verdict, dict(record.get("series") or {}), judge=_judge(record))

    async def _counted_by_comparison(
        self, note: Mapping[str, Any], record: Mapping[str, Any]
    ) -> Counted | None:
        """What the comparison says about the agent; a visit is judged right once."""
        before, verdict = verdict_of(record), verdict_of_shadow(note)
        if verdict is None or (verdict is Verdict.AGREED and before is not None and before.judges):
            return None
        if await self._found_right_before(verdict, note):
            return None
        return await self._counted(
            verdict, note["series"], judge=judge_of(note), audit=note["side"] == "handler"
        )

    async def counted_by_replay(
        self, note: Mapping[str, Any], record: Mapping[str, Any], at: float
    ) -> Counted | None:
        """What a comparison of a past visit says about the agent now; None if it is no evidence at its level.

        At consultant and approver only answers that were used there count, since the step came there: an
        answer that nobody was to use carries no further level. `at` is the time of the visit.
        """
        execution, before, verdict = self.execution, verdict_of(record), verdict_of_shadow(note)
        if verdict is None or not verdict.judges or (before is not None and before.judges):
            return None
        audit, level = note["side"] == "handler", gathered_at(execution.usual_level)
        if audit:
            was = (record.get("lowered") or {}).get("was") or record.get("autonomy_level")
            key = mark_of(execution.plan.qualified, note["series"])
            mark, _ = await execution.driver.engine.store.mark(key)
            if was != level.value or at < Standing.from_plain(mark).since:
                return None
        elif level >= AutonomyLevel.CONSULTANT:
            return None
        if await self._found_right_before(verdict, note):
            return None
        judge, series = judge_of(note), dict(note["series"])
        return await self._counted(verdict, series, judge=judge, audit=audit, replayed=True)

    async def _found_right_before(self, verdict: Verdict, note: Mapping[str, Any]) -> bool:
        """Whether a comparison only says again what a later verdict has said already.

        No later verdict is evidence about an agent that was only the shadow.
        """
        if verdict is not Verdict.AGREED or note["side"] != "handler":
            return False
        driver = self.execution.driver
        return await found_right_later(driver.engine.store, driver.run.id, note)

    async def _counted(
        self,
        verdict: Verdict,
        series: dict[str, Any],
        *,
        judge: str | None = None,
        audit: bool = False,
        replayed: bool = False,
    ) -> Counted | None:
        """A verdict to be counted; None if the answers come from a recording."""
        execution = self.execution
        driver, plan = execution.driver, execution.plan
        tape = driver.engine.tape
        if driver.run.config.get(REPLAYED) or (tape is not None and tape.plays):
            return None
        handled = plan.agent and agent_side(plan.step).handled
        seen = Observation(
            verdict, execution.usual_level, driver.clock.now(), judge or COMPARISON,
            execution.trust.kind, await execution.trust.inputs_digest(), replayed, afterwards=audit,
        )  # fmt: skip
        return Counted(
            seen, plan.qualified, handled, series, driver, execution.say,
            execution.agent_fingerprint, execution.trust.audited_share(execution.usual_level), audit,
        )  # fmt: skip


def _judge(record: Mapping[str, Any]) -> str | None:
    """The judge of a visit; of a person who read a draft, the name too, because power is a person's own."""
    judge, draft = judge_of(record), record.get("draft") or {}
    return f"{REVIEWER}{draft.get('by') or ''}" if judge == PERSON else judge


def _judged(judgement: gate.Judgement) -> dict[str, Any]:
    """The note of a validator's verdict on what an agent would have answered."""
    if judgement.accepted:
        return {"outcome": "agreed", "check": judgement.check.value}
    pointers = [detail.pointer for detail in judgement.details]
    count = len(pointers) + judgement.more
    return {"outcome": "differed", "check": judgement.check.value, "pointers": pointers, "count": count}


def _bare(step: Step, side: gate.Side) -> gate.Side:
    """A side as the journal records it: its outcome, and its effects without their keys."""
    effects = tuple(Effect(effect.tool, effect.args) for effect in side.effects)
    return gate.Side.of(step, side.outcome, side.outcome, side.to, effects)


def _keyed_as_asked_for(execution: Execution, acts: Sequence[Act]) -> dict[str, dict[str, Any]]:
    """Settled effects by the keys under which whoever goes on with receipts asks for them."""
    ctx, step = execution.ctx, execution.step
    counts: dict[str, int] = {}
    settled: dict[str, dict[str, Any]] = {}
    for act in acts:
        args = dict(act.effect.args)
        if act.effect.tool in ctx.tools:
            tool = ctx.tools[act.effect.tool]
            given = () if tool.given is None else tool.given(ctx)
            args = tool.normal({name: value for name, value in args.items() if name not in given})
        action = Effect(act.effect.tool, args).identity(step.name)
        settled[effect_key(action, ctx.run.visit, counts.get(action, 0))] = dict(act.settled)
        counts[action] = counts.get(action, 0) + 1
    return settled


async def settled_since(driver: Work, before: Run) -> tuple[dict[str, dict[str, Any]], int]:
    """The effects of a visit that were settled after a state of its run, by key; its last entry."""
    settled: dict[str, dict[str, Any]] = {}
    proposal: Proposed | None = None
    async for entry in read(driver.engine.store, before.id, after=before.seq):
        body = entry.body
        if isinstance(body, Proposed):
            proposal = body
        elif isinstance(body, EffectDone) and proposal is not None:
            item = next((item for item in proposal.effects if item["key"] == body.key), None)
            if item is not None:
                settled[body.key] = {"receipt": copied(body.receipt), **copied(item), "by": proposal.by}
        elif isinstance(body, Moved | Ended):
            return settled, entry.seq
    return settled, driver.run.seq
