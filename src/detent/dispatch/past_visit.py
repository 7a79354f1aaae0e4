"""Past visits of a run as the journal holds them, and their comparison with the side that did not count.

Inputs and query answers come from the journal; only an agent is asked anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from detent.dispatch.autonomy import AutonomyLevel, Check, StepMode
from detent.dispatch.execution import Answer, Execution
from detent.dispatch.gate import Side
from detent.dispatch.plan import Plan
from detent.dispatch.result import DispatchResult
from detent.dispatch.shadow import Shadow
from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.journal_reader import read
from detent.engine.offloaded import looked_beside
from detent.engine.outcome import Outcome
from detent.engine.trial_context import CannotCheck, TrialContext
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Ended, Entry, Moved, Noted, Proposed
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import brief, canonical, copied, decode, to_plain
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.dispatch.evidence_log import EvidenceLog
    from detent.dispatch.planner import Planner
    from detent.engine.child import Child
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.engine.step import Step
    from detent.engine.work import Work


PURGED = (
    "What the step saw was purged by the rule that says how long values are kept outside the journal. Keep "
    "them longer, and replay runs before that."
)
"""Why a past visit cannot be compared."""


class Journals(Protocol):
    """Where the journals and flows of past visits are."""

    @property
    def store(self) -> Store:
        """The store."""

    def flow(self, name: str) -> Flow:
        """A flow by name."""


class PastVisit:
    """One past visit of a state: the run before the decision, and the decision."""

    def __init__(self, before: Run, entry: Entry, proposals: Sequence[Proposed]) -> None:
        self.before = before
        """With every effect of the visit settled."""
        self.entry = entry
        self.looked = [line for proposal in proposals for line in proposal.looked]
        self.looked += [line for line in self.body.looked if line not in self.looked]
        self.notes: list[Mapping[str, Any]] = []

    @property
    def body(self) -> Moved | Ended:
        body = self.entry.body
        assert isinstance(body, Moved | Ended)
        return body

    @property
    def state(self) -> str:
        return self.before.state


async def past_visits(engine: Journals, run_id: str) -> AsyncIterator[PastVisit]:
    """Every visit decided by a handler or an agent."""
    run = Run(run_id)
    proposals: list[Proposed] = []
    visits: list[PastVisit] = []
    notes: list[Mapping[str, Any]] = []
    async for entry in read(engine.store, run_id):
        body = entry.body
        if isinstance(body, Proposed):
            proposals.append(body)
        elif isinstance(body, Noted) and body.topic == "shadow":
            notes.append(body.body)
        elif isinstance(body, Moved | Ended):
            if body.by in ("handler", "agent"):
                before = Run.from_plain(copied(run.to_plain()))
                if before.proposal is not None:
                    before.settled |= {
                        item["key"]: {**item, "receipt": before.done[item["key"]], "by": before.proposal.by}
                        for item in before.proposal.effects
                        if item["key"] in before.done
                    }
                before.proposal, before.done, before.failure = None, {}, None
                visits.append(PastVisit(before, entry, proposals))
            proposals = []
        run.apply(entry)
    beside: Mapping[str, Any] = {}
    with contextlib.suppress(ConfigurationError):  # purged: steps that read it cannot be compared
        beside = await looked_beside(engine.flow(run.flow).beside, run, engine.store.blob)
    for visit in visits:
        visit.before.beside = beside
        visit.notes = notes
        yield visit


class PastContext(TrialContext):
    """A step's context at the time of a past visit, with query answers from the journal."""

    def __init__(self, home: StepContext, looked: Sequence[Mapping[str, Any]], at: float) -> None:
        super().__init__(home)
        self._kept = {canonical([line["tool"], line["args"]]): line["answer"] for line in looked}
        self._at = at

    def now(self) -> float:
        """The time of the past visit."""
        return self._at

    async def inputs(self) -> dict[str, Any]:
        """Computed anew from what the journal holds; the outside world is not asked."""
        return await StepContext.inputs(self)

    async def kept(self, reference: Mapping[str, Any]) -> bytes | None:
        """The kept value; without it the step would not see what it saw.

        Raises:
            CannotCheck: it was purged.
        """
        raw = await super().kept(reference)
        if raw is None:
            raise CannotCheck(PURGED)
        return raw

    async def _answer_to(self, tool: str, args: Mapping[str, Any], *, durable: bool, agent: bool) -> Any:
        """The recorded answer."""
        query = self.tools.get(tool, "query")
        plain = to_plain(query.whole(self, args))
        for written in (plain, brief(plain, query.private)):
            if (key := canonical([tool, written])) in self._kept:
                return await self._whole(self._kept[key], tool)
        raise CannotCheck(f"'{tool}' was not asked then in these words, so there is no answer to give.")

    async def _whole(self, answer: Any, tool: str) -> Any:
        if isinstance(answer, Mapping) and set(answer) == {"$blob", "size"}:
            raw = await self.kept(answer)
            assert raw is not None
            return decode(raw)
        if isinstance(answer, Mapping) and set(answer) == {"$hash", "size"}:
            raise CannotCheck(
                f"The answer of '{tool}' is private and was not kept. Its tool is declared `private=True`; "
                f"without it, or with a query of its own for what may be kept, later runs can be replayed."
            )
        if isinstance(answer, Mapping) and set(answer) == {"$error"}:
            raise CannotCheck(f"'{tool}' failed then ({answer['$error']}).")
        return copied(answer)

    async def once(
        self, key: str, work: Callable[[], Any], *, spend: Callable[[Any], Spend] | None = None
    ) -> Any:
        """The kept answer."""
        if key in self._run.records:
            return copied(self._run.records[key])
        raise CannotCheck(f"'{key}' was not asked then, so there is no answer to give.")

    async def children(self, items: Iterable[Any], **options: Any) -> list[Child]:
        """Refused."""
        raise CannotCheck(f"The handler of step '{self.step.name}' starts child runs.")


class PastComparison:
    """A replay of one past visit by the side that did not count then."""

    def __init__(
        self, planner: Planner, evidence: EvidenceLog, driver: Work, plan: Plan, visit: PastVisit
    ) -> None:
        self.driver = driver
        self.visit = visit
        home = StepContext(driver, plan.step, visit.body.attempt, visit.before, plan.retry)
        past = PastContext(home, visit.looked, visit.entry.at)
        self.execution = Execution(planner, evidence, driver, plan, past)
        self.by_agent = visit.body.by == "agent"

    def series(self) -> dict[str, Any]:
        """The series that this evidence belongs to."""
        series = self.visit.body.detail.get("series")
        if self.by_agent and isinstance(series, Mapping):
            return dict(series)
        self.execution.executor()  # which knows the model that its settings name
        return self.execution.series(self.execution.configured_model)

    async def compare(self) -> tuple[dict[str, Any], Spend]:
        """Run the side that did not count then."""
        execution, clock = self.execution, self.driver.clock
        side = "handler" if self.by_agent else "agent"
        began = clock.elapsed()
        note: dict[str, Any]
        spend = NOTHING
        try:
            acts = [act for act in await execution.ctx.acts() if act.happened]
            if any(not act.effect.args and act.settled.get("args") for act in acts):
                raise CannotCheck(PURGED)
            then = self._then(execution.step, acts)
            result = (
                DispatchResult.accepted(autonomy_level=AutonomyLevel.CONSULTANT, check=Check.CONTRACT)
                if self.by_agent
                else DispatchResult.plain()
            )
            shadow = Shadow(execution, Answer(then.outcome, result, then), acts=acts, whole=True)
            note, spend = await (
                shadow.by_handler(execution) if self.by_agent else shadow.by_agent(execution)
            )
        except CannotCheck as error:
            note = {"outcome": "impossible", "error": str(error)}
        mode = StepMode.AGENT if self.by_agent else StepMode.DETERMINISTIC
        body = self.visit.body
        other = body.detail.get("agent_duration_ms" if self.by_agent else "handler_duration_ms")
        return {
            "step": execution.plan.qualified,
            "of": self.visit.entry.seq,
            "side": side,
            "mode_used": mode.value,
            "duration_ms": round((clock.elapsed() - began) * 1000, 3),
            "other_ms": other if other is not None else round(body.duration * 1000, 3),
            "autonomy_level": body.detail.get("autonomy_level", execution.level.value),
            "series": self.series(),
            **note,
        }, spend

    def _then(self, step: Step, acts: Sequence[Act]) -> Side:
        """The side that decided then."""
        visit = self.visit
        effects = tuple(act.effect for act in acts)
        outcome = Outcome(set=visit.body.set, append=visit.body.append)
        to = visit.body.to if isinstance(visit.body, Moved) else f"(end: {visit.body.status.value})"
        return Side.of(step, outcome, outcome, to, effects)
