"""A person's edit of a draft, checked before it is used: by one contract for real and planted drafts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from detent.dispatch.agent_side import agent_side
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.past_visit import PastContext, past_visits
from detent.engine import claims
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.journal_reader import load
from detent.engine.outcome import Effect, Outcome
from detent.engine.trial_context import TrialContext
from detent.kernel.errors import Fenced, RunBusy

if TYPE_CHECKING:
    from detent.dispatch.draft import Draft
    from detent.engine.engine import Engine
    from detent.engine.work import Work

TRIES, PAUSE = 100, 0.05
"""How often, and how many seconds apart, a run is tried that another worker has just taken."""


async def edit_problems(
    engine: Engine, run_id: str, draft: Draft, texts: Mapping[str, str]
) -> tuple[str, ...]:
    """What the hard contract has against other texts in a draft of this run.

    Of a run that waits, the step it waits in counts; of one that has ended, the visit in which a person
    decided on its draft.

    Raises:
        RunBusy: another worker keeps the run.
    """
    if not draft.effects:  # written before drafts kept them: the engine checks the text when it is used
        return ()
    for left in range(TRIES, -1, -1):
        try:
            async with claims.claimed(engine.active, run_id) as driver:
                return await _problems(engine, driver, draft, texts)
        except (RunBusy, Fenced):
            if not left:
                raise
            await asyncio.sleep(PAUSE)
    raise AssertionError


async def _problems(engine: Engine, driver: Work, draft: Draft, texts: Mapping[str, str]) -> tuple[str, ...]:
    ctx = await _context(engine, driver)
    contract = None if ctx is None else agent_side(ctx.step).text_contract
    if contract is None:
        return ()
    outcome = Outcome(effects=_effects(draft, texts))
    return tuple(map(str, await call(contract, None, ctx, outcome)))


async def _context(engine: Engine, driver: Work) -> TrialContext | None:
    flow, run = driver.flow, await load(engine.store, driver.run.id)
    dispatcher = dispatcher_of(engine)
    if not run.status.is_end:
        plan = dispatcher.plan_for(flow, flow.steps[run.state])
        return TrialContext(StepContext(driver, plan.step, 1, driver.run, plan.retry))
    decided = [visit async for visit in past_visits(engine, run.id) if visit.body.detail.get("draft")]
    if not decided or decided[-1].state not in flow.steps:
        return None
    visit = decided[-1]
    plan = dispatcher.plan_for(flow, flow.steps[visit.state])
    home = StepContext(driver, plan.step, visit.body.attempt, visit.before, plan.retry)
    return PastContext(home, visit.looked, visit.entry.at)


def _effects(draft: Draft, texts: Mapping[str, str]) -> tuple[Effect, ...]:
    """The draft's effects with other texts in them; further effects of a tool are numbered."""
    counts: dict[str, int] = {}
    effects = []
    for plain in draft.effects:
        tool, args = str(plain["tool"]), dict(plain["args"])
        number = counts[tool] = counts.get(tool, 0) + 1
        for argument in args:
            place = f"{tool}.{argument}" + (f"#{number}" if number > 1 else "")
            args[argument] = texts.get(place, args[argument])
        effects.append(Effect(tool, args))
    return tuple(effects)
