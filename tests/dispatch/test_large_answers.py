"""A large answer is checked beside the event loop, and no longer than it is worth."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.step import Step
from detent.kernel.status import Status
from tests.dispatch.samples import again, agent, result_of, scripted, settings, single
from tests.engine.conftest import flow_of

CODES = [f"code-{number}" for number in range(300)]
CODED = {
    "type": "object",
    "required": ["codes"],
    "properties": {"codes": {"type": "array", "items": {"enum": CODES}}},
}


async def test_other_runs_go_on_while_a_large_answer_is_checked():
    """The check waits for the neighbour, which could never come by on a loop that the check holds."""
    checking, passed = threading.Event(), threading.Event()

    @dataclass
    class Report:
        text: str

        def __post_init__(self) -> None:
            checking.set()
            if not passed.wait(10):
                raise ValueError("nobody came by")

    async def neighbour(ctx):
        while not checking.is_set():
            await asyncio.sleep(0)
        passed.set()
        return {}

    def by_code(ctx):
        return {"text": "by code"}

    asked = single(Step("work", by_code, intent="Write the report.", output_schema=Report), name="asked")
    beside = flow_of({"walk": ["done"]}, {"walk": Step("walk", neighbour)}, name="beside")
    executor = scripted(again({"text": "long " * 100_000}))
    async with Engine(
        MemoryStore(), [asked, beside], dispatch=settings(executor, agent("approver"))
    ) as engine:
        written, walked = await asyncio.gather(engine.run("asked", {}), engine.run("beside", {}))
        result = await result_of(engine, written.id)
        assert (written.status, walked.status) == (Status.SUCCEEDED, Status.SUCCEEDED)
        assert result.fallback_reason is None


async def test_a_long_list_of_wrong_codes_falls_back_and_a_few_of_them_are_told():
    def by_code(ctx):
        return {"codes": CODES[:1]}

    asked = single(Step("work", by_code, intent="List the codes.", output_schema=CODED), name="asked")
    executor = scripted(again({"codes": [f"x{number}" for number in range(100_000)]}))
    async with Engine(MemoryStore(), [asked], dispatch=settings(executor, agent("approver"))) as engine:
        run = await engine.run("asked", {})
        result = await result_of(engine, run.id)
        assert (run.status, run.data["codes"]) == (Status.SUCCEEDED, CODES[:1])
        assert result.fallback_reason == "schema_violation"
        assert "/codes/0: must be one of code-0" in result.agent_error.message
