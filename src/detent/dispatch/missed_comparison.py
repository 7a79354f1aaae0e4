"""Comparisons that a crash has prevented, made from the journal by whoever has the run next."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.due_comparison import due_since, no_longer_due
from detent.dispatch.evidence import verdict_of
from detent.dispatch.past_visit import PastComparison, PastVisit, past_visits
from detent.dispatch.shadow import Shadow
from detent.dispatch.visit_level import Lowered
from detent.engine import logger
from detent.engine.trial_context import CannotCheck
from detent.kernel.errors import Fenced, StoreUnavailable
from detent.kernel.run_config import FORCE, STEPS

if TYPE_CHECKING:
    from detent.dispatch.evidence_log import EvidenceLog
    from detent.dispatch.planner import Planner
    from detent.engine.work import Work


async def make_up(planner: Planner, evidence: EvidenceLog, driver: Work) -> None:
    """Make the comparisons of a run that are due, each once."""
    store, run = driver.engine.store, driver.run
    since = await due_since(store, run.id)
    if since is None or driver.engine.stopping:
        return
    try:
        visits = [visit async for visit in past_visits(driver.engine, run.id) if visit.entry.seq > since]
        missed = [visit for visit in visits if _is_missed(visit) and visit.state in driver.flow.steps]
        for number, visit in enumerate(missed, 1):
            await _make_up(planner, evidence, driver, visit, last=number == len(missed))
        if not missed and (visits or run.status.is_end):  # else the visit is still under way
            for change in await no_longer_due(driver):
                await driver.engine.store.set_mark(change.key, None, change.expected)
    except (Fenced, StoreUnavailable):
        raise
    except Exception as error:
        logger.error("dispatch.afterwards_failed", run_id=run.id, error=type(error).__name__)


def _is_missed(visit: PastVisit) -> bool:
    """Whether a visit was drawn to be compared, and was not."""
    detail, seq = visit.body.detail, visit.entry.seq
    made = [note for note in visit.notes if note.get("of") == seq and note.get("step") == detail.get("step")]
    return bool(detail.get("shadow")) and not made


async def _make_up(
    planner: Planner, evidence: EvidenceLog, driver: Work, visit: PastVisit, *, last: bool
) -> None:
    """Make one comparison, as if there had been no crash."""
    flow, detail, config = driver.flow, visit.body.detail, driver.run.config
    plan = planner.plan_for(flow, flow.steps[visit.state], bool(config.get(FORCE)), config.get(STEPS))
    comparison = PastComparison(planner, evidence, driver, plan, visit)
    execution = comparison.execution
    execution.level = AutonomyLevel(detail.get("autonomy_level") or AutonomyLevel.OPERATOR)
    if lowered := detail.get("lowered"):
        execution.lowered = Lowered(execution.level, AutonomyLevel(lowered["was"]), str(lowered["why"]))
    with contextlib.suppress(CannotCheck):  # which the comparison then says
        # An agent has prepared inputs, and they are what was judged.
        await (execution.prepare_inputs() if verdict_of(detail) is not None else execution.gather())
    inputs = execution.trust.inputs
    note, spend = await comparison.compare()
    execution.trust.inputs = inputs
    logger.info("dispatch.shadow_made_up", run_id=driver.run.id, step_name=plan.step.name, of=visit.entry.seq)
    await Shadow.of_failure(execution, detail).conclude(note, spend, detail, last=last)
