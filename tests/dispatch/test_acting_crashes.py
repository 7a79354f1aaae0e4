"""Killed anywhere in a visit of several rounds, an agent's step is settled in exactly one way."""

from __future__ import annotations

from typing import Any

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.engine.engine import Engine
from detent.engine.step import Step
from detent.engine.tools import NOT_DONE, Tool
from detent.kernel.entries import Recorded
from detent.kernel.errors import StoreUnavailable
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.dispatch.samples import INTENT, agent, scripted, settings, single
from tests.dispatch.test_acting import calls

KINDS = ("probed", "repeated", "neither")
"""How an effect in doubt can be settled: by asking, by repeating, only by a person."""


def gone(point: CrashPoint) -> None:
    raise StoreUnavailable("the process is gone")


class Mill:
    """A world whose effects are counted; its process can die inside each of them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.ground: list[str] = []
        self.die_at: tuple[int, str] | None = None
        self.called = 0
        self.stock = 10
        self.keys: dict[str, dict[str, Any]] = {}

    def tools(self) -> list[Tool]:
        async def grind(call: Any, what: str) -> dict[str, Any]:
            self.called += 1
            if self.die_at == (self.called, "before"):
                raise StoreUnavailable("the process is gone")
            if call.key not in self.keys or self.kind != "repeated":
                self.ground.append(what)
                self.keys[call.key] = {"number": len(self.ground)}
                self.stock -= 1
            if self.die_at == (self.called, "after"):
                raise StoreUnavailable("the process is gone")
            return self.keys[call.key]

        async def probe(call: Any, what: str) -> Any:
            return self.keys.get(call.key, NOT_DONE)

        async def look() -> dict[str, int]:
            return {"stock": self.stock}

        options: dict[str, Any] = {"wants_call": True}
        if self.kind == "probed":
            options |= {"probe": probe, "probe_wants_call": True}
        elif self.kind == "repeated":
            options |= {"idempotent": True}
        return [Tool("grind", grind, **options), Tool("look", look, "query")]


def milling(mill: Mill):
    async def work(ctx):
        await ctx.query("look")
        for what in ("rye", "oats"):
            await ctx.perform("grind", what=what)
        done = await ctx.perform("grind", what="rye")
        return {"number": done["number"], "remark": "fine"}

    schema = {
        "type": "object",
        "required": ["number", "remark"],
        "properties": {"number": {"type": "integer"}, "remark": {"type": "string"}},
    }
    step = Step(
        "work", work, INTENT, effects=("grind",), queries=("look",), output_schema=schema, inputs=(),
        agent=AgentSide(rounds=4),
    )  # fmt: skip
    return single(step, tools=mill.tools())


RIGHT = [
    calls(("look", {})), calls(("grind", {"what": "rye"}), ("look", {})), calls(("grind", {"what": "oats"})),
    calls(("grind", {"what": "rye"})), {"output": {"number": 99, "remark": "fine"}},
]  # fmt: skip
OTHERWISE = [{**calls(("grind", {"what": "sand"})), "repeat": True}]
"""What the model says to whoever asks again after a crash."""


async def undisturbed(level: str) -> tuple[Mill, Any, int]:
    mill = Mill("probed")
    counted = CrashPoints()
    dispatch = settings(scripted(*RIGHT), agent(level))
    async with Engine(counted.store(MemoryStore()), [milling(mill)], dispatch=dispatch) as engine:
        return mill, await engine.run("flow", {}, run_id="r1"), counted.commits


async def interrupted(level: str, mill: Mill, points: CrashPoints, again: list[dict[str, Any]]):
    """The run after its process died and another took it up; the model may have changed its mind."""
    store = MemoryStore()
    first = settings(scripted(*RIGHT), agent(level))
    died = False
    try:
        async with Engine(points.store(store), [milling(mill)], dispatch=first) as engine:
            await engine.run("flow", {}, run_id="r1")
    except StoreUnavailable:
        died = True
    entries = await store.entries("r1", 0, 1000)
    answered = sum(
        isinstance(entry.body, Recorded) and entry.body.key.startswith("agent/") for entry in entries
    )
    mill.die_at = None
    executor = scripted(*again[answered:] if again is RIGHT else again)
    flow = milling(mill)
    async with Engine(store, [flow], dispatch=settings(executor, agent(level))) as engine:
        run = await engine.finish("r1")
        return run, died, executor


@pytest.mark.parametrize("level", ["collaborator", "approver"])
class TestEveryBoundary:
    async def test_killed_at_every_commit_the_end_is_the_same(self, level):
        """Each effect once, the model asked again only where no reply of its is journaled."""
        mill, quiet, commits = await undisturbed(level)
        assert mill.ground == ["rye", "oats", "rye"]
        assert quiet.data == {"number": 3, "remark": "fine"}
        for number in range(2, commits + 1):
            for when in ("before", "after"):
                mill = Mill("probed")
                points = CrashPoints([CrashPoint(number, when)], strike=gone)
                run, died, _ = await interrupted(level, mill, points, RIGHT)
                assert died, (number, when)
                assert (run.status, run.data) == (Status.SUCCEEDED, quiet.data), (number, when)
                assert mill.ground == ["rye", "oats", "rye"], (number, when)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("number", [1, 2, 3])
    async def test_killed_inside_each_effect_it_happens_once_or_a_person_is_asked(
        self, level, kind, when, number
    ):
        mill = Mill(kind)
        mill.die_at = (number, when)
        run, died, _ = await interrupted(level, mill, CrashPoints(), RIGHT)
        assert died
        if kind == "neither":
            assert run.status is Status.WAITING
            assert len(mill.ground) == number - (when == "before")
            return
        assert (run.status, run.data) == (Status.SUCCEEDED, {"number": 3, "remark": "fine"})
        assert mill.ground == ["rye", "oats", "rye"]

    async def test_a_model_that_changes_its_mind_leaves_nothing_half_done(self, level):
        """What is journaled counts; what is asked anew is judged anew."""
        _, _, commits = await undisturbed(level)
        for number in range(2, commits + 1):
            for when in ("before", "after"):
                mill = Mill("probed")
                points = CrashPoints([CrashPoint(number, when)], strike=gone)
                run, _, _ = await interrupted(level, mill, points, OTHERWISE)
                if level == "collaborator":
                    assert (run.status, run.data) == (Status.SUCCEEDED, {"number": 3, "remark": "fine"})
                    assert mill.ground == ["rye", "oats", "rye"], (number, when)
                else:  # every effect is one that some journaled reply asked for, once
                    assert mill.ground[: mill.ground.index("sand")] in (
                        [], ["rye"], ["rye", "oats"], ["rye", "oats", "rye"],
                    ) if "sand" in mill.ground else mill.ground == ["rye", "oats", "rye"]  # fmt: skip
