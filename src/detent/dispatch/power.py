"""The power of a step's check: the share of planted errors that it refuses.

Real visits are taken from finished runs, with their inputs and query answers; wrong answers made from theirs
are put to the real check, through the gate. Nothing is performed, journaled or counted as a judged visit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AgentRole, AutonomyLevel
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.draft import texts_of, with_texts
from detent.dispatch.equivalence import CompareRules, canonical_value
from detent.dispatch.evidence import POWER, mostly_dropped
from detent.dispatch.execution import Execution
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.gate import HandlerFailed, Side
from detent.dispatch.past_visit import PastContext, past_visits
from detent.dispatch.planted import PlainAnswer, Plant, Sort, plants, without
from detent.dispatch.proposal import Proposal
from detent.engine import claims, logger
from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.outcome import Effect
from detent.engine.ports import RunQuery
from detent.engine.trial_context import CannotCheck, TrialContext, TrialPaused
from detent.kernel.errors import DefinitionChanged, Fenced, RunBusy, StoreUnavailable
from detent.kernel.plain import canonical

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.engine.engine import Engine

PLANTED = 200
"""Errors of each sort and kind that are put to a check."""
MOST_TRIED = 5
"""Mutants of a sort that are tried at most, for each one that is to be planted."""
MOST_VISITS = 100
"""Real visits of a step that errors are made from, the newest ones."""


@dataclass(frozen=True, slots=True)
class SortPower:
    """What a check made of one sort of planted error, on inputs of one kind."""

    sort: str
    kind: str = ""
    planted: int = 0
    """Errors that were put to the check."""
    caught: int = 0
    dropped: int = 0
    """Mutants that were no errors: equal to the real answer or to the handler's."""
    contract: int = 0
    """Mutants that the hard contract refused; they say nothing about the check."""
    prose: int = 0
    """Mutants that differ in text for people alone, which no check by code judges."""

    @property
    def share(self) -> float | None:
        """The share that was caught; None where the sort is not measurable."""
        return self.caught / self.planted if self.why_not is None else None

    @property
    def why_not(self) -> str | None:
        """Why the sort is not measurable; None where it is."""
        if mostly_dropped(asdict(self)):
            return f"more than half of the mutants are no errors ({self.dropped} dropped)"
        if self.planted:
            return None
        if self.prose:
            return "it is text for people, which only a person judges"
        return "the contract refuses all of them" if self.contract else "no such error can be made"


@dataclass(frozen=True, slots=True)
class PowerReport:
    """The measured power of a step's check."""

    step: str
    check: str
    """`validator` or `comparison`."""
    fingerprint: str
    sorts: tuple[SortPower, ...] = ()
    visits: int = 0
    """Real visits that the errors were made from."""
    unusable: Mapping[str, int] | None = None
    """Visits left out, by reason."""
    harmless: tuple[str, ...] = ()
    """Places that are declared to vary rightly, where nothing was planted."""

    @property
    def lowest(self) -> SortPower | None:
        """The measurable sort of which the check catches the smallest share: the one that counts."""
        measured = [sort for sort in self.sorts if sort.why_not is None]
        return min(measured, key=lambda sort: (sort.caught / sort.planted, sort.planted), default=None)

    def to_plain(self) -> dict[str, Any]:
        """As the mark keeps it."""
        return {
            "step": self.step,
            "check": self.check,
            "fingerprint": self.fingerprint,
            "sorts": [asdict(sort) for sort in self.sorts],
            "visits": self.visits,
            "unusable": dict(self.unusable or {}),
            "harmless": list(self.harmless),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> PowerReport | None:
        """Read back what `to_plain` wrote; None becomes None."""
        if not plain:
            return None
        sorts = tuple(SortPower(**sort) for sort in plain["sorts"])
        return cls(
            plain["step"], plain["check"], plain["fingerprint"], sorts, plain["visits"], plain["unusable"],
            tuple(plain["harmless"]),
        )  # fmt: skip


def power_mark(plan: Plan) -> str:
    """Key of the mark that holds the power of a step's present check."""
    return f"{POWER}{plan.qualified}/{plan.check_fingerprint}"


async def measure(
    engine: Engine, flow_name: str, step: str, *, planted: int = PLANTED, seed: int = 0, keep: bool = True
) -> PowerReport:
    """Measure the check of one step on the finished runs of its flow; `keep` writes the mark."""
    flow = engine.flow(flow_name)
    plan = dispatcher_of(engine).plan_for(flow, next(s for s in flow.every_step() if s.name == step))
    rules: CompareRules = plan.step.compare or CompareRules()
    check = "comparison" if plan.step.validator is None else "validator"
    unusable: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        trials: list[_Trial] = []
        if agent_side(plan.step).role is AgentRole.OPTIONAL:
            trials = await _trials(engine, plan, stack, unusable)
        sorts = await _put_to_the_check(plan, trials, rules.harmless, planted, seed)
    power = PowerReport(
        plan.qualified, check, plan.check_fingerprint, sorts, len(trials), unusable, tuple(rules.harmless)
    )
    if keep:
        while True:
            _, version = await engine.store.mark(power_mark(plan))
            if await engine.store.set_mark(power_mark(plan), power.to_plain(), version):
                break
    return power


async def _trials(
    engine: Engine, plan: Plan, stack: AsyncExitStack, unusable: dict[str, int]
) -> list[_Trial]:
    """The real visits of a step whose answer can be given again and is accepted by the check."""
    trials: list[_Trial] = []
    query: RunQuery | None = RunQuery(flow=plan.flow.name, limit=MOST_VISITS)
    dispatcher = dispatcher_of(engine)
    while query is not None and len(trials) < MOST_VISITS:
        page = await engine.store.rows(query)
        for row in page.rows:
            if not row.now.status.is_end or len(trials) >= MOST_VISITS:
                continue
            past = [visit async for visit in past_visits(engine, row.id)]
            mine = [visit for visit in past if plan.flow.steps.get(visit.state) is plan.step]
            if not mine:
                continue
            try:
                driver = await stack.enter_async_context(claims.claimed(engine.active, row.id))
            except (RunBusy, DefinitionChanged) as error:
                unusable[type(error).__name__] = unusable.get(type(error).__name__, 0) + len(mine)
                continue
            for visit in mine:
                home = StepContext(driver, plan.step, visit.body.attempt, visit.before, plan.retry)
                ctx = PastContext(home, visit.looked, visit.entry.at)
                ctx.looked = list(visit.looked)  # an agent has asked what code asked
                trial = _Trial(Execution(dispatcher, dispatcher.evidence, driver, plan, ctx))
                if (why := await trial.prepare()) is None:
                    trials.append(trial)
                else:
                    unusable[why] = unusable.get(why, 0) + 1
        query = None if page.next is None else replace(query, before=page.next)
    return trials[:MOST_VISITS]


async def _put_to_the_check(
    plan: Plan, trials: Sequence[_Trial], harmless: Sequence[str], planted: int, seed: int
) -> tuple[SortPower, ...]:
    kinds = sorted({trial.kind for trial in trials}) or [""]
    pools: dict[tuple[Sort, str], list[tuple[_Trial, Plant]]] = {(s, k): [] for k in kinds for s in Sort}
    for trial in trials:
        others = [other.answer for other in trials if other is not trial]
        schema = plan.dialect.answer_schema(plan, trial.execution.inputs)
        made = plants(trial.answer, schema=schema, moves=plan.contract.next, others=others, harmless=harmless)
        for text, plant in {(p.sort, p.answer.text): p for p in made}.items():
            pools[text[0], trial.kind].append((trial, plant))
    figures: list[SortPower] = []
    for (sort, kind), pool in pools.items():
        random.Random(f"{seed}/{sort.value}/{kind}").shuffle(pool)
        counts = {"planted": 0, "caught": 0, "dropped": 0, "contract": 0, "prose": 0}
        for trial, plant in pool[: planted * MOST_TRIED]:
            if counts["planted"] >= planted:
                break
            verdict = await trial.put(plant.answer)
            counts["planted"] += verdict in ("caught", "missed")
            if verdict in counts:
                counts[verdict] += 1
        figures.append(SortPower(sort.value, kind, **counts))
    return tuple(figures)


class _Trial:
    """One real visit, on which answers are put to the step's check."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        execution.level = AutonomyLevel.COLLABORATOR
        self.kind = ""
        self.answer = PlainAnswer(None)
        self._acts: list[Act] = []
        self._handler: Side | None = None
        self._harmless = tuple((execution.plan.step.compare or CompareRules()).harmless)
        self._stated = _Stated("", "")
        self._real: set[str] = set()
        """The real answer and the handler's, strictly."""

    async def prepare(self) -> str | None:
        """Find the real answer; gives why the visit cannot be used."""
        execution, plan = self.execution, self.execution.plan
        try:
            await execution.prepare_inputs()
            self._acts = [act for act in await execution.ctx.acts() if act.happened]
            handler = self._handler = await execution.own_code.side_after(self._acts)
            answering = TrialContext(execution.ctx)
            self.answer = await plan.dialect.answer_for(plan, answering, execution.inputs, handler)
        except (Fenced, StoreUnavailable):
            raise
        except TrialPaused:
            return "the handler would act otherwise today"
        except CannotCheck as error:
            return str(error)
        except Exception as error:
            return f"the handler fails on it today ({type(error).__name__})"
        kind: Callable[[Mapping[str, Any]], str] | None = agent_side(plan.step).kind
        self.kind = "" if kind is None else str(kind(execution.inputs))
        self._real = {self._strict(handler)}
        verdict = await self.put(self.answer, real=True)
        if verdict == "contract":
            return "the contract refuses the real answer"
        if verdict == "caught":
            return "the check refuses the real answer"
        assert execution.agent_side is not None
        self._real.add(self._strict(execution.agent_side))
        return None

    async def put(self, answer: PlainAnswer, *, real: bool = False) -> str:
        """`caught`, `missed`, `dropped`, `contract`, `prose` or `harmless`."""
        with logger.quiet():
            return await self._put(answer, real)

    async def _put(self, answer: PlainAnswer, real: bool) -> str:
        execution, plan = self.execution, self.execution.plan
        effects = [Effect(effect.tool, dict(effect.args)) for effect in answer.effects]
        for effect in effects:
            tool = plan.contract.effects.get(effect.tool)
            if tool is None or tool.misfits(dict(effect.args)):
                return "contract"
        with_answer = agent_side(plan.step).rounds == 0 and agent_side(plan.step).dialect is not None
        acts = () if with_answer else tuple(self._performed(effects))
        try:
            written = plan.dialect.written(plan, answer)
            carried = effects if with_answer else ()
            proposal = plan.dialect.read(plan, written, carried, execution.inputs, acts)
            proposal = proposal._replace(acts=acts)
            await execution.judge.check_proposal(proposal)
        except OutputSchemaValidationError:
            return "contract"
        side = execution.agent_side
        assert side is not None
        stated = _Stated.of(proposal, answer, self._harmless)
        if real:
            self._stated = stated
        elif stated.facts != self._stated.facts and stated.that_matter == self._stated.that_matter:
            return "harmless"
        elif self._strict(side) in self._real:
            return "dropped"
        texts = texts_of(plan, side)
        own = {} if self._handler is None else texts_of(plan, self._handler)
        if texts != own:  # a person reads it, or the handler's text is used: the rest is judged
            side = with_texts(plan, side, own)
            if not texts.keys() <= own.keys() or self._strict(side) in self._real:
                return "prose"
        if effects and not with_answer:
            try:
                judgement, _ = await execution.judge.effects((), effects, 1)
            except HandlerFailed:
                return "caught"
            if not judgement.accepted:
                return "caught"
        judgement = await execution.judge.answer(proposal, side)
        return "missed" if judgement.accepted else "caught"

    def _strict(self, side: Side) -> str:
        """A side with nothing ignored; the keys of effects say nothing about what they do.

        Where the handler is known by its outcome alone, so is the agent: facts that change nothing in what
        is set, done and decided are no errors.
        """
        step = self.execution.step
        if step.conclude is not None and self._handler is not None and self._handler.whole:
            side = Side.of(step, side.outcome, side.outcome, side.to, side.effects)
        document = side.document()
        for effect in document["effects"]:
            del effect["key"]
        return canonical(document)

    def _performed(self, effects: Sequence[Effect]) -> list[Act]:
        """The effects as acts, with the receipts of the real ones; nothing is performed."""
        acts: list[Act] = []
        left = list(self._acts)
        for effect in effects:
            like = next((act for act in left if act.effect.tool == effect.tool), None)
            if like is not None:
                left.remove(like)
            settled = {"receipt": None} if like is None else like.settled
            key = effect.identity(self.execution.step.name) if like is None else like.key
            acts.append(Act(key, effect, settled))
        return acts


class _Stated(NamedTuple):
    """What an answer states."""

    facts: str
    that_matter: str
    """Without the facts that are declared harmless."""

    @classmethod
    def of(cls, proposal: Proposal, answer: PlainAnswer, harmless: Sequence[str]) -> _Stated:
        facts, rest = canonical_value(proposal.plain), PlainAnswer(None, proposal.next, answer.effects).text
        return cls(canonical([facts, rest]), canonical([without(facts, harmless), rest]))
