"""An answer on which a pattern runs away is refused, and other runs go on."""

from __future__ import annotations

import asyncio

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.step import Step
from detent.kernel.status import Status
from tests.dispatch.samples import again, agent, result_of, scripted, settings, single
from tests.engine.conftest import flow_of

PATTERNED = {
    "type": "object",
    "required": ["serial"],
    "properties": {"serial": {"type": "string", "pattern": "^(A|AA|-)+$"}},
}
HOSTILE = {"serial": "A" * 60 + "!"}


def by_code(ctx):
    return {"serial": "AA-AA"}


async def test_an_answer_on_which_a_pattern_runs_away_falls_back_and_its_neighbours_go_on():
    """The neighbour passes its baton on through the loop, which nothing may hold for long."""
    turns = []

    async def neighbour(ctx):
        while len(turns) < 50:
            turns.append(None)
            await asyncio.sleep(0)
        return {"turns": len(turns)}

    asked = single(
        Step("work", by_code, intent="Find the serial number.", output_schema=PATTERNED), name="asked"
    )
    beside = flow_of({"walk": ["done"]}, {"walk": Step("walk", neighbour)}, name="beside")
    executor = scripted(again(HOSTILE))
    async with Engine(
        MemoryStore(), [asked, beside], dispatch=settings(executor, agent("approver"))
    ) as engine:
        stuck, walking = await asyncio.gather(engine.run("asked", {}), engine.run("beside", {}))
        result = await result_of(engine, stuck.id)
        assert (stuck.status, stuck.data["serial"]) == (Status.SUCCEEDED, "AA-AA")
        assert (walking.status, walking.data["turns"]) == (Status.SUCCEEDED, 50)
        assert result.fallback_reason == "schema_violation"
        assert "took too long" in result.agent_error.message
