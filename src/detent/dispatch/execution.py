"""One dispatched execution of a step: the order of checks, the gate, the fallback.

The outcome is the agent's only when the gate accepted it; in every other case it is the handler's, as if
there were no agent. Where the agent has already acted, the handler goes on from there if all that was done
is what it would do too; otherwise the step fails, or a person decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from detent.dispatch.after_effects import AfterEffects
from detent.dispatch.agent import AgentVisit, Asked
from detent.dispatch.agent_side import highest_level
from detent.dispatch.answer_judge import AnswerJudge, whole
from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode
from detent.dispatch.draft import DraftVerdict, Review, texts_of, with_texts
from detent.dispatch.draft_planting import DraftPlanting
from detent.dispatch.draft_review import DraftReview
from detent.dispatch.executor import PlayedExecutor, StepExecutor
from detent.dispatch.executor_errors import DispatchError
from detent.dispatch.failure import Failure
from detent.dispatch.fallback import Fallback
from detent.dispatch.gate import HandlerFailed, Judgement, Rejected, Side
from detent.dispatch.own_code import OwnCode, failed_before
from detent.dispatch.plan import Plan, check_price, facts_of, no_agent_side
from detent.dispatch.proposal import Proposal
from detent.dispatch.result import DispatchResult, milliseconds
from detent.dispatch.text_policy import is_composed, is_free
from detent.dispatch.unperformed import Unperformed
from detent.dispatch.unread_text import UnreadText
from detent.dispatch.visit_level import Lowered, lowered
from detent.dispatch.visit_trust import VisitTrust
from detent.engine import logger, moves
from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.patterns import PatternTimeout
from detent.engine.performer import called, called_through_ledger, concluded
from detent.engine.step import WAITS
from detent.engine.step_failures import StepFailed
from detent.engine.trial_context import CannotCheck, TrialContext, TrialPaused
from detent.kernel.entries import Body, Recorded
from detent.kernel.errors import BudgetExceededError
from detent.kernel.plain import digest

if TYPE_CHECKING:
    from detent.dispatch.evidence_log import EvidenceLog
    from detent.dispatch.planner import Planner
    from detent.engine.work import Work
    from detent.kernel.run import Run

ASKED = "agent/"
"""Prefix of the keys under which a visit keeps an agent's replies."""
FALLBACK = "fallback"
"""Key under which a visit keeps the decision that the handler goes on where an agent has acted."""


@dataclass(slots=True)
class Answer:
    """A step's outcome, and what remains to be done once it is committed."""

    outcome: Outcome
    result: DispatchResult
    side: Side
    """The side that counts."""
    remarks: tuple[Body, ...] = ()
    """Notes of the side that counts, made in a trial context and not yet committed."""


class Execution:
    """One dispatch of one step."""

    def __init__(
        self, planner: Planner, evidence: EvidenceLog, driver: Work, plan: Plan, ctx: StepContext
    ) -> None:
        self.planner = planner
        self.evidence = evidence
        self.driver = driver
        self.plan = plan
        self.step = plan.step
        self.ctx = ctx
        self.level: AutonomyLevel = plan.config.autonomy or AutonomyLevel.OPERATOR
        """The level in force."""
        self.lowered: Lowered | None = None
        """How the flow has lowered it for this visit."""
        self.facts = facts_of(plan, driver.run)
        self._began = driver.clock.elapsed()
        self._handler_seconds: float | None = None
        self.agent_side: Side | None = None
        self.own_code = OwnCode(plan, ctx, lambda trial: self._timed(self.handle(trial)))
        self.visit: AgentVisit | None = None
        self.judge = AnswerJudge(self)
        self.agent_remarks: tuple[Body, ...] = ()
        self._earlier_model: str | None = None
        """The model that was asked earlier in this visit, by whoever the run was taken over from."""
        self.trust = VisitTrust(plan, driver, evidence)
        self._draft: dict[str, Any] | None = None
        """What is recorded of the agent's text for people."""

    @property
    def run(self) -> Run:
        """The run as the step sees it."""
        return self.ctx.run

    def then(self, run: Run) -> Execution:
        """A trial of the same dispatch on an earlier state of the run, with the same inputs and answers."""
        ctx = TrialContext(self.ctx.then(run))
        execution = Execution(self.planner, self.evidence, self.driver, self.plan, ctx)
        execution.level, execution.trust.inputs = self.level, self.trust.inputs
        return execution

    @property
    def inputs(self) -> dict[str, Any]:
        """The step's inputs, once gathered."""
        assert self.trust.inputs is not None
        return self.trust.inputs

    async def gather(self) -> None:
        """Compute the step's inputs once, for agent and handler alike, before anything changes."""
        if self.trust.inputs is None:
            self.trust.inputs = await self.ctx.inputs()

    # -- the order of checks --------------------------------------------------------------------------------

    async def perform(self) -> Answer:
        """Have agent or handler perform the step, and return the outcome that counts."""
        plan, config = self.plan, self.plan.config
        if plan.alone:
            self._mode_ignored()
            return await self._agent_alone()
        demoted = await self._demoted() if plan.agent else None
        for lower in (await self._watched(), await lowered(self.ctx, self.level)) if plan.agent else ():
            if lower is not None and lower.level < self.level:
                self.lowered, self.level = lower._replace(was=self.usual_level), lower.level
                demoted = f"lowered for this visit: {lower.why}"
        self.say(
            logger.info, "dispatch.mode_selected", mode=config.mode.value if config.mode else None,
            autonomy=self.level.value, forced=plan.resolved.forced, source=plan.resolved.sources.get("mode"),
            shadow=bool(config.shadow),
        )  # fmt: skip
        if not plan.agent:
            return await self._plain()
        self._mode_ignored()
        if plan.control:
            no_agent_side(plan, self.run, self.driver.clock.now())
            return await self._plain()
        before = self._before()
        if before is not None:
            return before if isinstance(before, Answer) else await before
        if self.level is AutonomyLevel.OPERATOR:
            hint = demoted or "operator requires deterministic mode; raise autonomy to let the agent answer"
            self.say(logger.warning, "dispatch.operator_fallback", autonomy=self.level.value, hint=hint)
            return await self._fall_back(Fallback.of(Failure(FallbackReason.OPERATOR, "Operator", hint)))
        if not self.step.intent:
            hint = (
                "it waits for a person or the clock, and no agent answers in their place"
                if WAITS in self.step.metadata
                else "give the step an intent: one or two sentences on what it accomplishes"
            )
            self.say(
                logger.warning, "dispatch.no_intent", autonomy=self.level.value, step_type=plan.step_type,
                hint=hint,
            )  # fmt: skip
            return await self._fall_back(Fallback.of(Failure(FallbackReason.NO_INTENT, "NoIntent", hint)))
        executor = self.executor()
        if isinstance(executor, str):
            self.say(
                logger.warning, "dispatch.no_executor", autonomy=self.level.value, why_not=executor,
                provider=config.provider or getattr(self.planner.settings.executors, "default", None),
                hint="configure `model.provider`, or set the step to mode: deterministic",
            )  # fmt: skip
            return await self._fall_back(
                Fallback.of(Failure(FallbackReason.NO_EXECUTOR, "NoExecutor", executor))
            )
        # With replies kept before a crash, the visit continues from them and checks the budget itself.
        begun = any(key.startswith(f"{self.ctx.scope}{ASKED}") for key in self.driver.run.records)
        if not begun and (short := self.driver.spending.short_of(config.budget)) is not None:
            limit, spent, of = short
            self.say(logger.warning, "dispatch.budget_exhausted", limit=of, spent=spent, unit=limit)
            message = f"the {limit} budget is used up: {spent:g} of {of:g}"
            return await self._fall_back(
                Fallback.of(Failure(FallbackReason.BUDGET, "BudgetExhaustedError", message))
            )
        if self.driver.spending.money_is_limited(config.budget):
            check_price(plan, executor)
        return await self._by_agent(executor)

    def _mode_ignored(self) -> None:
        if self.plan.ignored:
            self.say(logger.debug, "dispatch.mode_ignored", step_type=self.plan.step_type)

    def _before(self) -> Answer | Awaitable[Answer] | None:
        """The answer that an earlier failure in this visit already determines, if any."""
        if self.ctx.scope:  # a further step never acts, so nothing of it has failed before
            return None
        kept = self.driver.run.records.get(FALLBACK)
        if kept is not None:
            result, self._earlier_model = DispatchResult.from_plain(kept), kept.get("model_id")
            assert result.fallback_reason is not None
            return self._fall_back(Fallback(result.fallback_reason, earlier=result))
        failure = self.driver.run.failure
        if failure is None:
            return None
        if failure.get("by") == "agent":
            if failure["performed"]:
                raise StepFailed(
                    f"'{failure['function']}' failed for good ({failure['code']}) after other effects of the "
                    f"agent's outcome had been performed."
                )
            self.ctx.forgiven = True
            message = f"'{failure['function']}' failed: {failure['code']}"
            recorded = failure.get("detail") or {}
            earlier = DispatchResult.from_plain(recorded) if recorded else None
            self._earlier_model = (recorded.get("series") or {}).get("model_id")
            agents = Failure(FallbackReason.EXCEPTION, "ToolError", message)
            return self._fall_back(Fallback(agents.reason, agents, earlier=earlier))
        detail = failure.get("detail") or {}
        if detail.get("fallback_used"):  # an effect of the handler failed: the handler decides again
            return self._again(DispatchResult.from_plain(detail))
        return None

    async def _again(self, earlier: DispatchResult) -> Answer:
        """Have the handler decide again after one of its own effects failed; nothing else has changed."""
        side = await self._timed(self.handle(self.ctx))
        assert earlier.fallback_reason is not None
        return self._done(side, self._recorded(Fallback(earlier.fallback_reason, earlier=earlier)))

    # -- the handler ----------------------------------------------------------------------------------------

    async def _plain(self) -> Answer:
        shadow = await self.trust.is_drawn(self.plan.config.shadow or 0.0)
        if shadow:
            await self.gather()
        side = await self._timed(self.handle(self.ctx))
        self._completed(fallback=False)
        result = DispatchResult.plain(
            autonomy_level=self.level, forced=self.plan.resolved.forced, duration_ms=self._ms(),
            handler_duration_ms=self._handler_ms(), shadow=shadow,
        )  # fmt: skip
        return self._done(side, result)

    async def handle(self, ctx: StepContext) -> Side:
        """The handler's side, processed like an agent's answer."""
        step = self.step
        if step.opaque:
            await self.gather()
            outcome, receipt = await called_through_ledger(step, ctx, self.inputs)
            return Side(outcome, receipt, None, tuple(outcome.effects))
        value = await called(step, ctx, self.plan.timeout)
        outcome = await concluded(step, ctx, value)
        return self._side(value, outcome, ctx)

    def _side(self, value: Any, outcome: Outcome, ctx: StepContext) -> Side:
        effects = (*ctx.proposed, *outcome.effects)
        to = moves.destination(self.plan.flow, self.run, whole(self.ctx, outcome))
        return Side.of(self.step, value, outcome._replace(effects=effects), to, effects)

    async def _timed(self, work: Awaitable[Side]) -> Side:
        began = self.driver.clock.elapsed()
        try:
            return await work
        finally:
            self._handler_seconds = (self._handler_seconds or 0.0) + self.driver.clock.elapsed() - began

    # -- the agent ------------------------------------------------------------------------------------------

    def executor(self) -> StepExecutor | str:
        tape = self.driver.engine.tape
        if tape is not None and tape.plays:
            return PlayedExecutor()
        config = self.plan.config
        return self.planner.usable_executor(config.provider, config.model_id, self.driver.family)

    async def ask(self, executor: StepExecutor, *, durable: bool = True) -> Asked:
        """Have the agent visit the step; unless it failed, `agent_side` then holds its proposal.

        Raises:
            Rejected: the gate rejects effects that it asks for.
        """
        try:
            await self.prepare_inputs()
        except PatternTimeout as error:  # a failed attempt: the prompt could not be prepared
            return Asked(attempts=1, failure=Failure.of(error))
        self.visit = AgentVisit(
            self.driver, self.plan, self.ctx, self.inputs, executor, self.facts, self.planner.settings,
            self.judge.judges(durable), durable,
        )  # fmt: skip
        self.ctx.cap = self.plan.config.budget
        try:
            return await self.visit.ask()
        finally:
            self.ctx.cap = None

    async def prepare_inputs(self) -> None:
        """Gather the inputs as an agent and its judges get them."""
        await self.gather()
        plan, composes = self.plan, is_composed(self.plan, self.level)
        self.trust.inputs = dict(await plan.dialect.prepare(plan, self.ctx, self.inputs, composes=composes))

    async def _by_agent(self, executor: StepExecutor) -> Answer:
        try:
            asked = await self.ask(executor)
        except Rejected as rejected:
            assert self.visit is not None
            self.judge.of_round = None
            asked, judgement = self.visit.asked, rejected.judgement
            self.visit.completed()
            return await self._answered(asked, judgement)
        except UnreadText as unread:
            assert self.visit is not None
            self.judge.of_round = None
            asked = self.visit.asked
            self.visit.completed()
            review = DraftReview.of(self.plan, self.ctx, unread.written, unread.own, self.inputs)
            return await self._unread(asked, review)
        except HandlerFailed as failed:
            raise failed.error from None
        if asked.failure is not None:
            return await self._fall_back(Fallback.of(asked.failure, asked))
        assert asked.proposal is not None
        assert self.agent_side is not None
        self.judge.of_round = None
        written = texts_of(self.plan, self._to_come(asked.proposal))
        if written and asked.proposal.composed is None and not is_free(self.plan, self.level):
            return await self._drafted(asked, written)
        return await self._answered(asked, await self.judge.answer(asked.proposal, self.agent_side))

    # -- text for people ------------------------------------------------------------------------------------

    async def _drafted(self, asked: Asked, written: Mapping[str, str]) -> Answer:
        """The answer of an agent that has written text for people: its facts, and text that may be used."""
        assert asked.proposal is not None
        assert self.agent_side is not None
        await self.driver.log.flush()
        side, reviewed = self._to_come(asked.proposal), self.plan.reviewed
        acted = self.agent_side.effects[: len(self.agent_side.effects) - len(side.effects)]
        try:
            handler = await self.own_code.side_after(asked.proposal.acts)
            if acted:
                rest = tuple(Effect.of(effect) for effect in handler.outcome.effects)
                handler = replace(handler, effects=rest)
            own = texts_of(self.plan, handler)
        except (CannotCheck, TrialPaused):
            own = {}
        written = {place: text for place, text in written.items() if own.get(place) != text}
        own = {place: text for place, text in own.items() if place in written}
        if not written:
            return await self._answered(asked, await self.judge.answer(asked.proposal, self.agent_side))
        review = DraftReview.of(self.plan, self.ctx, written, own, self.inputs)
        trusted = self.level in (AutonomyLevel.CONSULTANT, AutonomyLevel.APPROVER)
        if not reviewed and (trusted or own.keys() != written.keys()):
            return await self._unread(asked, review)
        in_own_words = with_texts(self.plan, side, own)
        in_own_words = replace(in_own_words, effects=(*acted, *in_own_words.effects))
        judgement = await self.judge.answer(asked.proposal, in_own_words)
        if not judgement.accepted:
            return await self._answered(asked, judgement)
        store = self.driver.engine.store
        unjudged = Review(DraftVerdict.UNJUDGED, own)
        decision = await review.decision(side, store) if reviewed else unjudged
        if reviewed:
            await DraftPlanting(self.plan, self.ctx, self.driver, self.evidence).follow(
                review, decision, side
            )
        if decision is None:
            self.say(logger.info, "dispatch.draft_held", autonomy=self.level.value, attempts=asked.attempts)
            return self._waiting(review.hold(self.driver.clock.now()))
        if decision.texts.keys() != written.keys():  # nobody has read it, and the handler writes no such text
            return await self._unread(asked, review)
        decided = with_texts(self.plan, side, decision.texts)
        self.agent_side = replace(decided, effects=(*acted, *decided.effects))
        self._draft = review.record(decision)
        return await self._answered(asked, judgement)

    def _to_come(self, proposal: Proposal) -> Side:
        """The agent's side without the effects that are performed already."""
        assert self.agent_side is not None
        performed = sum(act.happened for act in proposal.acts)
        return replace(self.agent_side, effects=self.agent_side.effects[performed:])

    def _held(self, failure: Failure | None) -> Answer | None:
        """The wait for a person, if the step has no handler and there was no agent to ask."""
        nobody = Unperformed(self.ctx)
        if failure is None or not nobody.holds(failure):
            return None
        self.say(
            logger.warning, "dispatch.unperformed", reason=failure.reason.value, error_type=failure.type,
            retries=nobody.retries,
        )  # fmt: skip
        return self._waiting(nobody.hold(failure))

    def _waiting(self, hold: Hold) -> Answer:
        """The answer that waits for a person."""
        outcome = Outcome(hold=hold)
        self.ctx.proposed = ()
        result = DispatchResult.plain(autonomy_level=self.level)
        return Answer(outcome, result, Side(outcome, None, None, ()))

    async def _unread(self, asked: Asked, review: DraftReview) -> Answer:
        """The handler's outcome in place of text that nobody has read; the text is kept."""
        self._draft = {"kept": review.kept()}
        return await self._fall_back(Fallback(FallbackReason.PROSE_UNREVIEWED, asked=asked))

    async def _answered(self, asked: Asked, judgement: Judgement) -> Answer:
        """The answer that follows from the gate's judgement on an agent that has come to an end."""
        self.judge.log(judgement)
        self.say(
            logger.info, "dispatch.agent_completed", autonomy=self.level.value, accepted=judgement.accepted,
            duration_ms=round(asked.seconds * 1000, 1), attempts=asked.attempts,
            input_tokens=asked.spend.input_tokens, output_tokens=asked.spend.output_tokens,
            cost_usd=asked.usage.total_cost_usd if asked.usage else None,
            model_id=asked.model_id or self.plan.config.model_id,
        )  # fmt: skip
        if not judgement.accepted:
            rejected = Fallback(FallbackReason.VALIDATION_FAILURE, asked=asked, judgement=judgement)
            return await self._fall_back(rejected)
        assert self.agent_side is not None
        share = self.trust.audited_share(self.usual_level)
        audited = self.level >= AutonomyLevel.CONSULTANT and await self.trust.is_audited(share)
        result = DispatchResult.accepted(
            autonomy_level=self.level, check=judgement.check, validation_details=judgement.details,
            more_details=judgement.more, attempts=asked.attempts, duration_ms=self._ms(),
            agent_duration_ms=milliseconds(asked.seconds), handler_duration_ms=self._handler_ms(),
            spend=asked.spend, shadow=audited,
        )  # fmt: skip
        remarks, rehearsed = self.agent_remarks, self.own_code.rehearsed
        if judgement.handler is not None and rehearsed is not None:
            remarks = tuple(rehearsed.ctx.said)  # what code notes beside the same facts
        return self._done(self.agent_side, result, asked, judgement, remarks)

    async def _agent_alone(self) -> Answer:
        """Perform a step that has no handler: the agent's failure is the step's failure."""
        executor = self.executor()
        if isinstance(executor, str):
            missing = Failure(FallbackReason.NO_EXECUTOR, "NoExecutor", executor)
            if (hold := self._held(missing)) is not None:
                return hold
            self.say(logger.error, "dispatch.failed", reason=FallbackReason.NO_EXECUTOR.value,
                      agent_error_type="NoExecutor", handler_error_type=None)  # fmt: skip
            raise StepFailed(f"Step '{self.step.name}' needs an agent: {executor}.")
        if self.driver.spending.money_is_limited(self.plan.config.budget):
            check_price(self.plan, executor)
        asked = await self.ask(executor)
        if asked.failure is not None:
            await self.driver.log.flush()
            if (hold := self._held(asked.failure)) is not None:
                return hold
            self.say(logger.error, "dispatch.failed", reason=asked.failure.reason.value,
                      agent_error_type=asked.failure.type, handler_error_type=None)  # fmt: skip
            failed = StepFailed(f"{asked.failure.type}: {asked.failure.message}")
            failed.detail = {"step": self.plan.qualified, "agent_called": True}
            raise failed
        assert self.agent_side is not None
        result = DispatchResult.accepted(
            autonomy_level=AutonomyLevel.APPROVER, check=Check.NONE, attempts=asked.attempts,
            duration_ms=self._ms(), agent_duration_ms=milliseconds(asked.seconds), spend=asked.spend,
        )  # fmt: skip
        return self._done(self.agent_side, result, asked, None, self.agent_remarks)

    # -- the fallback ---------------------------------------------------------------------------------------

    async def _fall_back(self, fallback: Fallback) -> Answer:
        """The handler's outcome, computed once: reused if the gate already ran the handler."""
        await self.driver.log.flush()
        if (hold := self._held(fallback.failure)) is not None:
            return hold
        asked, judgement = fallback.asked, fallback.judgement
        every = await self.ctx.acts(by="agent")
        acts = [act for act in every if act.happened]
        remarks: tuple[Body, ...] = ()
        rehearsed = self.own_code.rehearsed
        if rehearsed is not None and judgement is not None and judgement.handler is not None and not acts:
            side, remarks = rehearsed.side, tuple(rehearsed.ctx.said)
            self.own_code.account_for(self.driver.run)
        else:
            self.ctx.fallback = fallback.reason
            error = fallback.agent_error
            if error is not None:
                self.ctx.fallback_error, self.ctx.fallback_message = error.type, error.message
            try:
                side, remarks = await self._by_handler(fallback, acts)
                self.own_code.check_denied(side.outcome.effects, every)
            except BudgetExceededError:  # the handler itself spends, and the run is out of budget
                raise
            except Exception as broken:
                self._both_failed(fallback, broken)
                raise
        assert side is not None
        self._fell_back(fallback, succeeded=True)
        self._completed(fallback=True)
        return self._done(side, self._recorded(fallback), asked, judgement, remarks)

    async def _by_handler(self, fallback: Fallback, acts: Sequence[Act]) -> tuple[Side, tuple[Body, ...]]:
        """The side of the handler, which goes on from what the agent has done."""
        kept = FALLBACK in self.driver.run.records
        model_id = None if fallback.asked is None else fallback.asked.model_id
        record = Recorded(FALLBACK, {**self._recorded(fallback).to_plain(), "model_id": model_id})
        if acts:
            if not kept:
                # From here on code or a person decides, also in a worker that takes the run over.
                await self.driver.commit_whole(record)
            after = AfterEffects(
                self.driver, self.own_code, self.trust.inputs or {}, lambda ctx: self._timed(self.handle(ctx))
            )
            return await after.go_on(acts)
        if not kept:
            # Should the handler act and go on, it does so also in a worker that takes over.
            self.ctx.with_round = (record,)
        self.ctx.begin_again(failed_before(self.driver.run))
        side = await self._timed(self.handle(self.ctx))
        self.own_code.account_for(self.driver.run)
        return side, ()

    def _both_failed(self, fallback: Fallback, broken: Exception) -> None:
        """Raise the error that names both failures, unless only the handler's counts or it is tried again."""
        error = fallback.failure
        self._fell_back(fallback, succeeded=False)
        self.say(
            logger.error, "dispatch.failed", reason=fallback.reason.value,
            agent_error_type=error.type if error else None, handler_error_type=type(broken).__name__,
        )  # fmt: skip
        transient = isinstance(broken, self.step.retry_on)
        if not fallback.attempts or (transient and self.ctx.attempt < self.plan.retry.max_attempts):
            broken.add_note(f"The agent was not used: {fallback.reason.value}.")
            return
        agent_error = f"{error.type}: {error.message}" if error else fallback.reason.value
        failed = DispatchError(self.step.name, fallback.reason, agent_error, broken)
        failed.detail = self._detail(self._recorded(fallback), fallback.asked, fallback.judgement)
        raise failed from broken

    def _recorded(self, fallback: Fallback) -> DispatchResult:
        return fallback.result(self.level, self._ms(), self._handler_ms())

    # -- records and log events -----------------------------------------------------------------------------

    def _done(
        self,
        side: Side,
        result: DispatchResult,
        asked: Asked | None = None,
        judgement: Judgement | None = None,
        remarks: tuple[Body, ...] = (),
    ) -> Answer:
        """The answer, with its outcome as the journal will keep it."""
        agent = result.mode_used is StepMode.AGENT
        detail = self._detail(result, asked, judgement)
        outcome = side.outcome
        if outcome.hold is None:
            outcome = outcome._replace(
                by="agent" if agent else outcome.by, detail={**outcome.detail, **detail}
            )
            self.ctx.proposed = ()
        return Answer(outcome, result, side, remarks)

    def _detail(
        self, result: DispatchResult, asked: Asked | None, judgement: Judgement | None
    ) -> dict[str, Any]:
        """The dispatch record that the journal keeps."""
        detail: dict[str, Any] = {"step": self.plan.qualified, **result.to_plain()}
        if self.plan.agent or self.plan.config.shadow:
            model_id = asked.model_id if asked is not None else self._earlier_model
            detail["series"] = self.series(model_id or self.configured_model)
        if self.plan.agent:
            detail |= self.plan.resolved.to_plain()
            if self.lowered is not None:
                detail["lowered"] = self.lowered.to_plain()
            if kind := self.trust.kind:
                detail["kind"] = kind
            if (highest := highest_level(self.step)) is not None:
                detail["max_autonomy"] = highest.value
        if self.visit is not None and self.visit.denied:
            detail["denied"] = True
        if asked is not None and asked.cuts:
            detail["cuts"] = list(asked.cuts)
        if asked is not None and asked.left_out:
            detail["left_out"] = dict(asked.left_out)
        if asked is not None and (asked.rounds or asked.refused):
            detail |= {"rounds": asked.rounds, "refused_calls": asked.refused, "effects": asked.effects}
        if judgement is not None and judgement.reasons:
            detail["verdict"] = list(judgement.reasons)
        if self._draft is not None:
            detail["draft"] = dict(self._draft)
        if asked is not None and asked.proposal is not None and asked.proposal.composed is not None:
            detail["composed"] = list(asked.proposal.composed)
        return detail

    @property
    def configured_model(self) -> str | None:
        """The model that the settings name for the step: one that gives no answer is known by that name."""
        config = self.plan.config
        if config.model_id is not None:
            return config.model_id
        name = config.provider or getattr(self.planner.settings.executors, "default", None)
        return getattr(self.driver.family.get(name or ""), "model_id", None)

    def series(self, model_id: str | None) -> dict[str, Any]:
        """The series this evidence belongs to: another model, prompt or handler starts a new one."""
        plan = self.plan
        return {
            "model_id": model_id,
            "prompt": plan.prompt_fingerprint,
            "handler": plan.handler_fingerprint,
            "check": plan.check_fingerprint,
            "sampling": self._sampling,
        }

    @cached_property
    def _sampling(self) -> str:
        """How the model is asked, and where."""
        server_of = getattr(self.planner.settings.executors, "server_of", None)
        server = None if server_of is None else server_of(self.plan.config.provider)
        usual = self.plan.sampling_fingerprint
        return usual if server is None else digest([usual, *server], 12)

    def _fell_back(self, fallback: Fallback, *, succeeded: bool) -> None:
        self.say(
            logger.warning, "dispatch.fallback", autonomy=self.level.value, **fallback.facts,
            handler_duration_ms=self._handler_ms(), fallback_succeeded=succeeded,
        )  # fmt: skip

    def _completed(self, *, fallback: bool) -> None:
        self.say(
            logger.info, "dispatch.deterministic_completed", duration_ms=self._handler_ms(), fallback=fallback
        )

    def say(self, level: Callable[..., None], event: str, **more: Any) -> None:
        """Log an event about this step."""
        level(event, **self.facts, timestamp=self.driver.clock.now(), **more)

    def _ms(self) -> float:
        return milliseconds(self.driver.clock.elapsed() - self._began)

    def _handler_ms(self) -> float | None:
        return None if self._handler_seconds is None else milliseconds(self._handler_seconds)

    # -- trust ----------------------------------------------------------------------------------------------

    @property
    def usual_level(self) -> AutonomyLevel:
        """The level of the step, whatever its flow has made of it for this visit."""
        return self.level if self.lowered is None else self.lowered.was

    async def _demoted(self) -> str | None:
        """Lower the level to the step's demotion, if it has one; return the reason in words."""
        demotion = await self.trust.demotion(self.level)
        if demotion is None:
            return None
        self.level = demotion.level
        return f"demoted: {demotion.why or 'no reason given'}"

    @cached_property
    def agent_fingerprint(self) -> str:
        """The agent, as far as it is known before it answers."""
        return digest(self.series(self.plan.config.model_id), 12)

    async def _watched(self) -> Lowered | None:
        """How the step's watch lowers a level at which answers are used unchecked."""
        if self.level < AutonomyLevel.CONSULTANT:
            return None
        await self.gather()
        await self.trust.load_watch()
        return self.trust.lowered(self.level, self.agent_fingerprint)
