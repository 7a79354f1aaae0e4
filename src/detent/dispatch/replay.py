"""Shadow replay: run agent or handler on past steps that the other one performed, and compare.

Inputs and query answers come from the journal; only the agent is asked anew. Each comparison is added to the
run's journal, once per step and series, and counts as evidence like any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AgentRole
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.past_visit import PastComparison, past_visits
from detent.engine import claims
from detent.kernel.entries import Noted
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import canonical

if TYPE_CHECKING:
    from detent.engine.engine import Engine


async def replay(
    engine: Engine, run_id: str, *, step: str | None = None, keep: bool = True
) -> AsyncIterator[dict[str, Any]]:
    """Compare every past step of a run, or those named `step`; yields the comparisons.

    A step already compared in the same series is skipped. `keep` adds the comparisons to the journal.

    Raises:
        ConfigurationError: the flow has no such step.
    """
    row = await engine.store.row(run_id)
    flow = engine.flow(row.flow)
    names = {each.name for each in flow.steps.values()}
    if step is not None and step not in names:
        raise ConfigurationError(f"Flow '{flow.name}' has no step '{step}'.{nearest(step, names)}")
    visits = [visit async for visit in past_visits(engine, run_id)]
    compared = {
        (note.get("of"), canonical(note.get("series")))
        for visit in visits
        for note in visit.notes
    }  # fmt: skip
    dispatcher = dispatcher_of(engine)
    async with claims.claimed(engine.active, run_id) as driver:
        for visit in visits:
            if visit.state not in flow.steps:
                continue  # a state of an older definition
            plan = dispatcher.plan_for(flow, flow.steps[visit.state])
            optional = agent_side(plan.step).role is AgentRole.OPTIONAL
            if (step is not None and plan.step.name != step) or not optional:
                continue
            again = PastComparison(dispatcher, dispatcher.evidence, driver, plan, visit)
            if (visit.entry.seq, canonical(again.series())) in compared:
                continue
            note, spend = await again.compare()
            if keep and note["outcome"] != "impossible":
                await driver.commit_whole(Noted("shadow", note, spend, aside=True))
            yield note
