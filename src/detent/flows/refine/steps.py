"""The five steps of a refinement: each calls its part, and concludes from the fact alone.

Belongs here: what surrounds a part in a run: its arguments, its failures, the budget, the data it sets. Does
not belong here: which state follows (`decisions`), and how agents' answers are checked (`agent_checks`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole, AutonomyLevel
from detent.engine import logger
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.engine.step_failures import TRANSIENT
from detent.engine.user_errors import failure, message_of
from detent.flows.refine import agent_checks, decisions
from detent.flows.refine.attempt import Attempt
from detent.flows.refine.decisions import Decision, RefineSettings
from detent.flows.refine.evaluation import Evaluation, ValidationReport
from detent.flows.refine.feedback import for_implementer, for_planner, render
from detent.flows.refine.part import Calling, Part, Parts, Rejected
from detent.flows.refine.part_schemas import (
    REPORT_SCHEMA,
    PartDialect,
    evaluation_of,
    evaluation_schema,
    size_of,
)
from detent.flows.refine.run_data import (
    EVALUATION,
    IMPLEMENTATION,
    MADE,
    PLAN,
    PREPARED,
    REQUEST,
    SETTINGS,
    VALIDATION,
    RunData,
    closing,
)
from detent.flows.refine.state_machine import OrchestrationState as State
from detent.flows.refine.token_budget import TokenBudgetManager
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Entry
from detent.kernel.errors import ConfigurationError, Fenced, StoreUnavailable
from detent.kernel.plain import copied, decode, encode, to_plain
from detent.kernel.policy import ONCE

LONGEST_BRIEF = 12 * 1024
"""Bytes of a brief."""
LONGEST_ERROR = 2000

INTENTS = {
    "plan": "Plan how the request is to be fulfilled.",
    "validate": "Find every mistake in a plan before it is carried out.",
    "implement": "Carry out the plan.",
    "judge": "Judge how well an implementation fulfils the request.",
}
"""For parts that say nothing about themselves."""


@dataclass(frozen=True, slots=True)
class ByCode:
    """A fact that a handler gives; an agent's comes bare."""

    value: Any
    """A plain value, a `ValidationReport` or an `Evaluation`."""
    spend: Spend = field(default=NOTHING, compare=False)

    def __plain__(self) -> Any:
        plain = getattr(self.value, "to_plain", None)
        return plain() if callable(plain) else self.value


class RefineSteps:
    """The steps of one flow."""

    def __init__(self, parts: Parts, settings: RefineSettings) -> None:
        self.parts = parts
        self.settings = settings

    def by_state(self) -> dict[State, Step]:
        """The step of each working state."""
        preparer = self.parts.preparer
        return {
            State.INITIALIZED: Step(
                "prepare", self._prepare, effects=(), queries=(),
                retry=ONCE if preparer is None else preparer.retry, agent=AgentSide(role=AgentRole.NONE),
            ),
            State.PLANNING: self._step(
                "plan", self.parts.planner, self._plan, self._planned, self._plan_arguments,
                agent_checks.plan_is_no_worse, self._before_plan,
            ),
            State.VALIDATING: self._step(
                "validate", self.parts.validator, self._validate, self._validated, self._validate_arguments,
                agent_checks.finds_all_errors, None, REPORT_SCHEMA,
            ),
            State.IMPLEMENTING: self._step(
                "implement", self.parts.implementer, self._implement, self._implemented,
                self._implement_arguments, agent_checks.implementation_is_no_worse, self._before_implement,
            ),
            State.JUDGING: self._step(
                "judge", self.parts.judge, self._judge, self._judged, self._judge_arguments,
                agent_checks.judges_alike(self.settings), self._before_judge, self._evaluation_schema(),
            ),
        }  # fmt: skip

    def _step(
        self,
        name: str,
        part: Part,
        handler: Callable[[StepContext], Any],
        conclude: Callable[[StepContext, Any], Any],
        arguments: Callable[[StepContext], Awaitable[dict[str, Any]]],
        validator: Callable[[Mapping[str, Any], Any], Any],
        before: Callable[[StepContext], Any] | None,
        own_schema: Any = None,
    ) -> Step:
        schema = part.output_schema if part.output_schema is not None else own_schema
        dialect = None if part.parse is None else PartDialect(None, part.parse)
        if callable(schema) and not isinstance(schema, type | Mapping):
            schema_of = schema

            async def of_request(ctx: StepContext) -> Any:
                return schema_of(await self.request(ctx))

            dialect, schema = PartDialect(of_request, part.parse), None
        return Step(
            name, handler, part.purpose or INTENTS[name], retry=part.retry, effects=(), queries=(),
            inputs=self._inputs(name, part, arguments), output_schema=schema, conclude=conclude,
            validator=part.validator or validator, before=before, examples=part.examples,
            config=part.config,
            agent=AgentSide(level_for=self._level_for, names_next=False, dialect=dialect),
        )  # fmt: skip

    def _evaluation_schema(self) -> Any:
        rubric = self.parts.rubric
        if callable(rubric):
            return lambda request: evaluation_schema(self.parts.rubric_for(request))
        return evaluation_schema(self.parts.rubric_for(None))

    # -- reading --------------------------------------------------------------------------------------------

    def data(self, ctx: StepContext) -> RunData:
        """The run's data, read."""
        return RunData(ctx.values, self.settings)

    async def request(self, ctx: StepContext) -> Any:
        """The prepared request.

        Raises:
            ConfigurationError: it was purged.
        """
        reference = ctx.values.get(PREPARED)
        if reference is None:
            return copied(ctx.values.get(REQUEST))
        raw = await ctx.kept(reference)
        if raw is None:
            raise ConfigurationError(
                f"Run {ctx.run_id} cannot go on: its prepared request was purged. Start a new run."
            )
        return decode(raw)

    async def _plan_arguments(self, ctx: StepContext) -> dict[str, Any]:
        data = self.data(ctx)
        previous = data.closed[-1] if data.number > 1 else None
        return {
            "request": await self.request(ctx), "feedback": for_planner(data.feedback), "previous": previous
        }  # fmt: skip

    async def _validate_arguments(self, ctx: StepContext) -> dict[str, Any]:
        return {"request": await self.request(ctx), "plan": copied(ctx.values.get(PLAN))}

    async def _implement_arguments(self, ctx: StepContext) -> dict[str, Any]:
        data = self.data(ctx)
        previous = data.closed[-1] if data.refined else None
        return {
            "request": await self.request(ctx), "plan": copied(ctx.values.get(PLAN)),
            "feedback": for_implementer(data.feedback), "previous": previous,
        }  # fmt: skip

    async def _judge_arguments(self, ctx: StepContext) -> dict[str, Any]:
        return {
            "request": await self.request(ctx), "plan": copied(ctx.values.get(PLAN)),
            "implementation": copied(ctx.values.get(IMPLEMENTATION)),
        }  # fmt: skip

    def _inputs(
        self, name: str, part: Part, arguments: Callable[[StepContext], Awaitable[dict[str, Any]]]
    ) -> Callable[[StepContext], Any]:
        """What an agent is shown: the brief of its part, or the arguments as they are."""

        async def inputs(ctx: StepContext) -> dict[str, Any]:
            values = await arguments(ctx)
            feedback = render(values.pop("feedback", ()))
            if part.brief is None:
                shown = dict(values)
                previous = shown.pop("previous", None)
                if previous is not None:
                    shown["previous"] = _shown(previous)
            else:
                whole = await arguments(ctx)
                shown = dict(part.brief(*whole.values()))
                if (size := size_of(shown)) > LONGEST_BRIEF:
                    logger.warning(
                        "refine.brief_long", run_id=ctx.run_id, step=name, bytes=size, most=LONGEST_BRIEF
                    )
            return {**shown, "feedback": feedback} if feedback and "feedback" not in shown else shown

        return inputs

    # -- the budget -----------------------------------------------------------------------------------------

    def _used(self, ctx: StepContext, spend: Spend) -> int:
        return int(ctx.used["tokens"]) + spend.tokens

    def _exhausted(self, ctx: StepContext, spend: Spend) -> bool:
        """Whether an enforced budget of tokens or money is used up, this visit included."""
        budget = ctx.budget
        if budget is None or not budget.enforce:
            return False
        tokens, cost = self._used(ctx, spend), ctx.used["cost_usd"] + spend.cost_usd
        return budget.exceeded({"tokens": tokens, "cost_usd": cost}) is not None

    async def _too_dear(self, ctx: StepContext, stage: str) -> bool:
        """Whether an agent's next visit to this state cannot be paid.

        Code costs nothing; who performs the step is read from the visit before.
        """
        budget = ctx.budget
        if budget is None or budget.tokens is None or not budget.enforce:
            return False
        last = await self._last_visit(ctx, ctx.state)
        if last is None or (last.body.detail.get("config") or {}).get("mode") != "agent":
            return False
        settings = self.data(ctx).settings
        manager = TokenBudgetManager(
            max(1, int(budget.tokens)), True, settings.token_buffer_pct, settings.estimates
        )
        return budget.tokens - self._used(ctx, NOTHING) < manager.needed(stage)

    @staticmethod
    async def _last_visit(ctx: StepContext, state: str) -> Any:
        """The entry by which the run last left a state; None if it never did."""
        for past in await ctx.lineage():
            if past.run.id == ctx.run_id:
                return next((move for move in reversed(past.moves) if _moved(move).frm == state), None)
        return None

    def _level_for(self, ctx: StepContext) -> Any:
        """The last attempt is code's, at every level below approver."""
        data = self.data(ctx)
        if data.settings.max_iterations < 2 or not data.is_last:
            return None
        return _operator_below_approver

    # -- prepare --------------------------------------------------------------------------------------------

    async def _prepare(self, ctx: StepContext) -> Outcome:
        calling = Calling(ctx.progress)
        changes: dict[str, Any] = {}
        detail: dict[str, str] = {}
        try:
            if REQUEST not in ctx.values:
                raise Rejected("no_request", "The run was started without a request: give {'request': …}.")
            given = ctx.values.get(SETTINGS) or {}
            try:
                changes[SETTINGS] = self.settings.changed(given).to_plain()
            except (ConfigurationError, TypeError) as wrong:
                raise Rejected("settings", str(wrong)) from wrong
            if self.parts.preparer is not None:
                prepared = await self.parts.prepared(calling, ctx.values[REQUEST])
                changes[PREPARED] = ctx.keep(encode(prepared))
                if self.parts.preparer.note is not None:
                    detail["note"] = str(self.parts.preparer.note(prepared))[:200]
        except Rejected as rejected:
            reason = f"{decisions.REJECTED}: {rejected.code}"[:200]
            error = {"error": rejected.message[:LONGEST_ERROR]}
            return Outcome(State.FAILED, reason=reason, detail=error, spend=calling.spend)
        except BaseException as raised:
            broken = _error(ctx, raised)
            reason = f"{decisions.REJECTED}: {type(broken).__name__}"
            return _failed(reason, broken, calling.spend)
        return Outcome(State.PLANNING, set=changes, detail=detail, spend=calling.spend)

    # -- plan -----------------------------------------------------------------------------------------------

    async def _plan(self, ctx: StepContext) -> Any:
        async def work(calling: Calling) -> Any:
            return await self.parts.planned(calling, **await self._plan_arguments(ctx))

        return await _by_code(ctx, decisions.PLAN_FAILED, work)

    async def _planned(self, ctx: StepContext, fact: Any) -> Outcome:
        plan, by, spend = _fact(fact)
        decision = decisions.after_plan(self._exhausted(ctx, spend))
        return self._outcome(ctx, decision, "plan", by, spend, {PLAN: plan})

    async def _before_plan(self, ctx: StepContext) -> Outcome | None:
        data = self.data(ctx)
        if data.has("plan"):  # made before the budget ended the run
            decision = decisions.after_plan(self._exhausted(ctx, NOTHING))
            return Outcome(decision.to, reason=decision.reason, set={PLAN: copied(ctx.values[PLAN])})
        if data.number > 1 and await self._too_dear(ctx, "plan"):
            return Outcome(State.BUDGET_EXHAUSTED, reason=decisions.EXHAUSTED)
        return None

    # -- validate -------------------------------------------------------------------------------------------

    async def _validate(self, ctx: StepContext) -> Any:
        async def work(calling: Calling) -> ValidationReport:
            return await self.parts.validated(calling, **await self._validate_arguments(ctx))

        return await _by_code(ctx, decisions.VALIDATOR_FAILED, work)

    async def _validated(self, ctx: StepContext, fact: Any) -> Outcome:
        report, by, spend = _fact(fact)
        if by == "agent":
            calling = Calling()
            own = await self.parts.validated(calling, **await self._validate_arguments(ctx))
            added = ValidationReport.from_plain(to_plain(report)).issues
            known = {(issue.rule, issue.section_name) for issue in own.issues}
            report = ValidationReport(
                (*own.issues, *(issue for issue in added if (issue.rule, issue.section_name) not in known))
            )
            spend = calling.spend
        data = self.data(ctx)
        decision = decisions.after_validation(report, data.number, data.settings, ctx.now())
        return self._outcome(ctx, decision, "validate", by, spend, {VALIDATION: report.to_plain()})

    # -- implement ------------------------------------------------------------------------------------------

    async def _implement(self, ctx: StepContext) -> Any:
        async def work(calling: Calling) -> Any:
            return await self.parts.implemented(calling, **await self._implement_arguments(ctx))

        return await _by_code(ctx, decisions.IMPLEMENTATION_FAILED, work)

    async def _implemented(self, ctx: StepContext, fact: Any) -> Outcome:
        implementation, by, spend = _fact(fact)
        decision = decisions.after_implementation(self._exhausted(ctx, spend))
        return self._outcome(ctx, decision, "implement", by, spend, {IMPLEMENTATION: implementation})

    async def _before_implement(self, ctx: StepContext) -> Outcome | None:
        data = self.data(ctx)
        if data.has("implement"):
            decision = decisions.after_implementation(self._exhausted(ctx, NOTHING))
            return Outcome(decision.to, reason=decision.reason)
        if data.refined and await self._too_dear(ctx, "refinement"):
            return Outcome(State.BUDGET_EXHAUSTED, reason=decisions.EXHAUSTED)
        return None

    # -- judge ----------------------------------------------------------------------------------------------

    async def _judge(self, ctx: StepContext) -> Any:
        async def work(calling: Calling) -> Evaluation:
            return await self.parts.judged(calling, **await self._judge_arguments(ctx))

        return await _by_code(ctx, decisions.JUDGE_FAILED, work)

    async def _judged(self, ctx: StepContext, fact: Any) -> Outcome:
        evaluation, by, spend = _fact(fact)
        if by == "agent":
            evaluation = await self.parts.completed(
                evaluation_of(evaluation), **await self._judge_arguments(ctx)
            )
        settings = self.data(ctx).settings
        plain = evaluation.to_plain(settings.pass_threshold, settings.category_pass)
        row = self.data(ctx).row("judge", by, self._used(ctx, spend))
        after = {**ctx.values, EVALUATION: plain, MADE: [*(ctx.values.get(MADE) or ()), row]}
        decision, added = await self._verdict(ctx, RunData(after, self.settings), spend)
        return Outcome(
            decision.to, reason=decision.reason, set={EVALUATION: plain}, append={**added, MADE: [row]},
            spend=spend,
        )  # fmt: skip

    async def _before_judge(self, ctx: StepContext) -> Outcome | None:
        data = self.data(ctx)
        if not data.has("judge"):
            return None
        decision, added = await self._verdict(ctx, data, NOTHING)
        return Outcome(
            decision.to,
            reason=decision.reason,
            set={EVALUATION: copied(ctx.values[EVALUATION])},
            append=added,
        )

    async def _verdict(
        self, ctx: StepContext, data: RunData, spend: Spend
    ) -> tuple[Decision, dict[str, list[Any]]]:
        """What follows from the evaluation of the attempt under way, and what is added to the data."""
        attempt, closed = data.current(), data.closed
        assert attempt is not None
        rubric = self.parts.rubric_for(await self.request(ctx))
        before = closed[-1] if closed else None
        facts = attempt, before, rubric, data.settings, ctx.now()
        exhausted = self._exhausted(ctx, spend)
        decision = decisions.after_judgement(*facts, exhausted=exhausted)
        if (
            decision.to is State.IMPLEMENTING
            and data.number + 1 >= data.settings.max_iterations
            and await self._plan_is_an_agents(ctx)
        ):
            decision = decisions.after_judgement(*facts, exhausted=exhausted, replan=True)
        return decision, closing(attempt, decision, data.settings)

    async def _plan_is_an_agents(self, ctx: StepContext) -> bool:
        """Whether an agent below approver made the current plan."""
        last = await self._last_visit(ctx, State.PLANNING.value)
        if last is None or last.body.by != "agent":
            return False
        return bool(last.body.detail.get("autonomy_level") != AutonomyLevel.APPROVER.value)

    # -- outcomes -------------------------------------------------------------------------------------------

    def _outcome(
        self,
        ctx: StepContext,
        decision: Decision,
        part: str,
        by: str,
        spend: Spend,
        changes: dict[str, Any],
    ) -> Outcome:
        data = self.data(ctx)
        row = data.row(part, by, self._used(ctx, spend))
        after = RunData({**ctx.values, **changes, MADE: [*(ctx.values.get(MADE) or ()), row]}, self.settings)
        added: dict[str, list[Any]] = {}
        if decision.feedback is not None:
            attempt = after.current()
            assert attempt is not None
            added = closing(attempt, decision, data.settings)
        return Outcome(
            decision.to, reason=decision.reason, set=changes, append={**added, MADE: [row]}, spend=spend
        )


async def _by_code(
    ctx: StepContext, reason: str, work: Callable[[Calling], Awaitable[Any]]
) -> ByCode | Outcome:
    """What a part gives; a part that fails for good ends the run with its reason."""
    calling = Calling(ctx.progress)
    try:
        return ByCode(await work(calling), calling.spend)
    except BaseException as raised:
        return _failed(reason, _error(ctx, raised), calling.spend)


def _error(ctx: StepContext, raised: BaseException) -> Exception:
    """The failure of a part; what is none, or may be tried again, is raised on."""
    failed = failure(raised)
    if failed is None or isinstance(failed, Fenced | StoreUnavailable):
        raise raised
    if isinstance(failed, TRANSIENT) and not ctx.last_attempt:
        raise failed
    return failed


def _failed(reason: str, error: Exception, spend: Spend) -> Outcome:
    text = decisions.error_text(reason, type(error).__name__, message_of(error))[:LONGEST_ERROR]
    return Outcome(State.FAILED, reason=reason[:200], detail={"error": text}, spend=spend)


def _fact(fact: Any) -> tuple[Any, str, Spend]:
    """A fact, who gives it, and what its part has spent."""
    if isinstance(fact, ByCode):
        return fact.value, "code", fact.spend
    return to_plain(fact), "agent", NOTHING


def _shown(attempt: Attempt) -> dict[str, Any]:
    """An earlier attempt as an agent is shown it; what it has taught is in the feedback."""
    shown = {"iteration": attempt.iteration, "plan": attempt.plan, "implementation": attempt.implementation}
    return {name: value for name, value in shown.items() if value is not None}


def _moved(entry: Entry) -> Any:
    return entry.body


def _operator_below_approver(level: AutonomyLevel) -> Any:
    if level is AutonomyLevel.APPROVER:
        return None
    return AutonomyLevel.OPERATOR, "the last attempt is code's"
