"""The dispatcher: decides who performs each step of each flow. The engine's port `Performer`, with agents.

Most plans are plain: the driver calls the handler itself. `execution` carries out the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.due_comparison import due_runs, due_since, set_due
from detent.dispatch.evidence import MEASUREMENT, PERSON, Verdict, verdict_of_later
from detent.dispatch.evidence_log import Counted, EvidenceLog
from detent.dispatch.executor_errors import DispatchError
from detent.dispatch.layers import Layers
from detent.dispatch.plan import Plan, facts_of, no_agent_side
from detent.dispatch.planner import Planner
from detent.dispatch.standing import Observation
from detent.engine import logger
from detent.engine.performer import Assignment, Performed
from detent.engine.verdicts import counts_in
from detent.kernel.errors import Fenced, StoreUnavailable
from detent.kernel.run_config import FORCE, REPLAYED

if TYPE_CHECKING:
    from detent.engine.context import StepContext
    from detent.engine.engine import Engine
    from detent.engine.ports import Store
    from detent.engine.work import Work
    from detent.kernel.run import Run


class Dispatcher(Planner):
    """Decides who performs each step of an engine's flows, under one project's settings."""

    def __init__(self, settings: Layers | None = None) -> None:
        super().__init__(settings)
        self.evidence = EvidenceLog(self.settings.evidence)
        """Writes verdicts about agents to the store."""

    # -- the engine's port ----------------------------------------------------------------------------------

    def run_config(self) -> Mapping[str, Any]:
        """Whether agents are switched off for every run."""
        return {FORCE: True} if self.settings.force_deterministic else {}

    def replaced(self, assignment: Assignment, run: Run, now: float) -> None:
        """Warn when a control-flow step is configured for an agent, which cannot perform it."""
        assert isinstance(assignment, Plan)
        if assignment.agent and assignment.control:
            no_agent_side(assignment, run, now)

    def started(self, assignment: Assignment, run: Run, now: float) -> None:
        """Log that a step's handler was selected."""
        assert isinstance(assignment, Plan)
        logger.info(
            "dispatch.mode_selected", **facts_of(assignment, run), timestamp=now, mode="deterministic",
            autonomy="operator", forced=False, source=assignment.resolved.sources.get("mode", "default"),
            shadow=False,
        )  # fmt: skip

    def completed(self, assignment: Assignment, run: Run, now: float, seconds: float) -> None:
        """Log that a step's handler completed."""
        assert isinstance(assignment, Plan)
        logger.info(
            "dispatch.deterministic_completed", **facts_of(assignment, run), timestamp=now,
            duration_ms=round(seconds * 1000, 3), fallback=False,
        )  # fmt: skip

    async def perform(self, driver: Work, assignment: Assignment, ctx: StepContext) -> Performed:
        """Have agent or handler perform the step; returns the outcome and the work left after its commit."""
        from detent.dispatch.execution import Execution
        from detent.dispatch.shadow import Shadow

        assert isinstance(assignment, Plan)
        execution = Execution(self, self.evidence, driver, assignment, ctx)
        try:
            answer = await execution.perform()
        except DispatchError as error:
            error.after = Shadow.of_failure(execution, error.detail).carry_out
            raise
        if answer.remarks:
            await driver.commit_whole(*answer.remarks)
        shadow = Shadow.of(execution, answer)
        if shadow is not None and shadow.before is not None:
            await set_due(driver)
        return Performed(answer.outcome, None if shadow is None else shadow.carry_out)

    async def unfinished(self, store: Store) -> Sequence[str]:
        """Runs with a comparison that a crash has prevented."""
        return await due_runs(store)

    async def catch_up(self, driver: Work) -> None:
        """Make the comparisons that a crash has prevented."""
        if await due_since(driver.engine.store, driver.run.id) is not None:
            from detent.dispatch.missed_comparison import make_up

            await make_up(self, self.evidence, driver)

    async def judged(self, driver: Work, verdicts: Sequence[Mapping[str, Any]]) -> None:
        """Count what later steps and people say about agents' visits."""
        from detent.dispatch.found_right import found_right_by_comparison

        for note in verdicts:
            verdict = verdict_of_later(note)
            if verdict is None or not counts_in(driver.run, note) or driver.run.config.get(REPLAYED):
                continue
            if verdict is Verdict.AGREED and await found_right_by_comparison(
                driver.engine.store, driver.run.id, note
            ):
                continue
            record = note["record"]
            step, lowered = str(record["step"]), record.get("lowered") or {}
            level = AutonomyLevel(lowered.get("was") or record.get("autonomy_level") or "operator")
            by_step = note.get("by") in driver.flow.steps
            # A step that only an agent can perform is never set to operator: nobody would perform it.
            handled = bool(record.get("series"))
            facts = partial(_say, run_id=driver.run.id, step_name=step)
            try:
                seen = Observation(
                    verdict, level, driver.clock.now(), MEASUREMENT if by_step else PERSON,
                    str(record.get("kind") or ""), str(record.get("inputs") or ""), afterwards=True,
                )  # fmt: skip
                share = self.settings.evidence.audited_share(level, None)
                series = dict(record.get("series") or {})
                await self.evidence.count(
                    Counted(seen, step, handled, series, driver, facts, share=share, audit=True)
                )
            except (Fenced, StoreUnavailable):
                raise
            except Exception as error:
                logger.error("dispatch.afterwards_failed", run_id=driver.run.id, error=type(error).__name__)

    async def close(self) -> None:
        """Write the remaining evidence, and close the executors."""
        await self.evidence.settle()
        if self.settings.executors is not None:
            await self.settings.executors.close()


def _say(level: Callable[..., None], event: str, **facts: Any) -> None:
    level(event, **facts)


class DispatchSettings(Layers):
    """Supplies an engine with a performer that can use agents."""

    def performer(self) -> Dispatcher:
        """A dispatcher under these settings."""
        return Dispatcher(self)


def dispatcher_of(engine: Engine) -> Dispatcher:
    """The dispatcher of an engine; a new one if the engine only calls handlers."""
    return engine.performer if isinstance(engine.performer, Dispatcher) else Dispatcher()
