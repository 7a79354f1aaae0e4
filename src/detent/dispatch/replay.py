"""Shadow replay: run agent or handler on past steps that the other one performed, and compare.

Inputs and query answers come from the journal; only the agent is asked anew. Each comparison is added to the
run's journal, once per step and agent, marked as a replay, and is evidence: right answers once per distinct
input, and never enough without live ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AgentRole
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.evidence import verdict_of
from detent.dispatch.past_visit import PastComparison, past_visits
from detent.dispatch.shadow import Shadow
from detent.engine import claims
from detent.engine.trial_context import CannotCheck
from detent.kernel.budget import Spend
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
    notes = visits[-1].notes if visits else ()
    compared = {(note.get("of"), canonical(note.get(key))) for note in notes for key in ("series", "agent")}
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
            agent = again.series()
            if (visit.entry.seq, canonical(agent)) in compared:
                continue
            note, spend = await _compare(again)
            note |= {"replay": True, "agent": agent}
            if keep and note["outcome"] != "impossible":
                entry = Noted("shadow", note, spend, aside=True)
                detail = visit.body.detail
                shadow = Shadow.of_failure(again.execution, detail)
                counted = await shadow.counted_by_replay(note, detail, visit.entry.at)
                if counted is None:
                    await driver.commit_whole(entry)
                else:
                    await dispatcher.evidence.commit([counted], entry)
            yield note


async def _compare(comparison: PastComparison) -> tuple[dict[str, Any], Spend]:
    """Compare, and leave the inputs as a live visit counts them."""
    execution = comparison.execution
    with contextlib.suppress(CannotCheck):  # which the comparison then says
        # An agent has prepared inputs, and they are what is judged.
        asked = not comparison.by_agent or verdict_of(comparison.visit.body.detail) is not None
        await (execution.prepare_inputs() if asked else execution.gather())
    inputs = execution.trust.inputs
    note, spend = await comparison.compare()
    execution.trust.inputs = inputs
    return note, spend
