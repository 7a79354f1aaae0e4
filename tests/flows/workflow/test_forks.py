"""Forks of runs that were rolled back: what was undone since is neither undone again nor taken for done."""

from __future__ import annotations

from typing import Any

import pytest

from detent.engine.context import StepContext
from detent.engine.engine import Engine
from detent.engine.fork import UNDONE
from detent.flows.workflow.registry import Action
from detent.kernel.entries import EffectDone, Moved
from detent.kernel.errors import RunStateError
from detent.kernel.status import Status
from detent.stores import MemoryStore
from detent.testing.clock import HandClock
from detent.tools import Tool
from tests.flows.workflow.workshop import INTENT, Workshop, flow

BREAKS = """
- {name: first, type: python, action: put, kwargs: {text: first}}
- name: each
  type: loop
  for_each: [x, y]
  steps: [{name: one, type: python, action: put, kwargs: {text: "one ${{ item }}"}}]
- {name: second, type: python, action: put, kwargs: {text: second}}
- {name: bad, type: python, action: fragile}
- {name: last, type: python, action: put, kwargs: {text: last}}
"""
ALL = ["first", "one x", "one y", "second"]


@pytest.fixture
def fragile(workshop: Workshop) -> dict[str, Any]:
    """Whether `fragile` fails, as it does at first."""
    now = {"breaks": True}

    def handler() -> dict[str, Any]:
        if now["breaks"]:
            raise ValueError("it broke")
        return {}

    workshop.more.append(Action("fragile", handler=handler, intent=INTENT))
    return now


async def left(engine: Engine, run_id: str, state: str) -> int:
    """The entry with which a run left a state."""
    entries = await engine.store.entries(run_id, 0, 1000)
    (found,) = [entry.seq for entry in entries if isinstance(entry.body, Moved) and entry.body.frm == state]
    return found


def taken(workshop: Workshop) -> list[str]:
    return [text for what, text in workshop.effects if what == "take"]


@pytest.mark.parametrize("clock", [None, HandClock], ids=["real", "standing still"])
async def test_without_a_place_it_is_forked_before_the_rollback_and_knows_what_is_undone(
    workshop: Workshop, fragile: dict[str, Any], clock: Any
) -> None:
    options = {} if clock is None else {"clock": clock()}
    async with workshop.under_way(flow(BREAKS), engine=options) as engine:
        assert (await engine.finish("r")).status is Status.FAILED
        assert taken(workshop) == ALL[::-1]
        await engine.fork("r", new_id="f")
        assert (await engine.finish("f")).status is Status.FAILED
        assert taken(workshop) == ALL[::-1], "nothing is undone twice"
        assert set((await engine.get("f")).data[UNDONE]) == {
            "first",
            "second",
            "each/[0]/one",
            "each/[1]/one",
        }
        fragile["breaks"] = False
        await engine.fork("r", new_id="g")
        assert (await engine.finish("g")).status is Status.SUCCEEDED


async def test_what_the_fork_did_itself_is_undone_and_the_rest_is_not(
    workshop: Workshop, fragile: dict[str, Any]
) -> None:
    async with workshop.under_way(flow(BREAKS)) as engine:
        await engine.finish("r")
        workshop.effects.clear()
        await engine.fork("r", await left(engine, "r", "first"), new_id="f")
        assert (await engine.finish("f")).status is Status.FAILED
        assert (await engine.get("f")).data[UNDONE] == ["first"]
        assert workshop.effects == [
            ("put", "one x"), ("put", "one y"), ("put", "second"),
            ("take", "second"), ("take", "one y"), ("take", "one x"),
        ]  # fmt: skip


async def test_a_fork_of_a_fork_knows_what_both_have_undone(
    workshop: Workshop, fragile: dict[str, Any]
) -> None:
    async with workshop.under_way(flow(BREAKS)) as engine:
        await engine.finish("r")
        await engine.fork("r", await left(engine, "r", "first"), new_id="f")
        await engine.finish("f")
        for number, at in enumerate([None, await left(engine, "f", "first")]):
            workshop.effects.clear()
            await engine.fork("f", at, new_id=f"g{number}")
            assert (await engine.finish(f"g{number}")).status is Status.FAILED
            done = [text for what, text in workshop.effects if what == "put"]
            assert taken(workshop) == done[::-1]


async def test_a_step_that_is_done_once_more_performs_again_what_was_undone(workshop: Workshop) -> None:
    """Forked in its middle, it must not take the receipt of an effect that is no longer there."""

    async def both(ctx: StepContext) -> dict[str, Any]:
        receipt = ctx.propose("shelf.put", text="a")
        ctx.propose("shelf.put", text="b")
        return {"text": "a", "number": receipt.number}

    workshop.more.append(
        Action("both", handler=both, intent=INTENT, effects=("shelf.put",), rollback="unput")
    )
    file = flow("""
    - name: each
      type: loop
      for_each: [x]
      steps: [{name: inner, type: python, action: both}]
    - {name: pair, type: python, action: both}
    - {name: bad, type: python, action: boom}
    """)
    async with workshop.under_way(file) as engine:
        await engine.finish("r")
        for run_id, at in (("r", "r"), ("r.each[0]", "r")):
            entries = await engine.store.entries(run_id, 0, 1000)
            first = next(entry.seq for entry in entries if isinstance(entry.body, EffectDone))
            workshop.effects.clear()
            new = await engine.fork_family(at, (run_id, first))
            assert (await engine.finish(new)).status is Status.FAILED
            put = [text for what, text in workshop.effects if what == "put"]
            assert put == (["a", "b"] if run_id == "r" else ["a", "b", "a", "b"])
            journal = await engine.store.entries(new if run_id == "r" else f"{new}.each[0]", 0, 1000)
            assert "reused" not in [entry.body.how for entry in journal if isinstance(entry.body, EffectDone)]


async def test_a_rollback_that_was_stopped_in_its_middle_counts_as_far_as_it_came(workshop: Workshop) -> None:
    async def slow(text: str) -> dict[str, Any]:
        async with workshop.arrived:
            workshop.inside.add(text)
            workshop.arrived.notify_all()
        await workshop.door(text).wait()
        return {}

    async def unslow(ctx: StepContext, text: str) -> dict[str, Any]:
        ctx.propose("slow.take", text=text)
        return {}

    workshop.tools.append(Tool("slow.take", slow))
    workshop.more.append(Action("unslow", handler=unslow, intent=INTENT, effects=("slow.take",)))
    file = flow("""
    - {name: one, type: python, action: put, rollback: unslow, kwargs: {text: one}}
    - {name: two, type: python, action: put, kwargs: {text: two}}
    - {name: bad, type: python, action: boom}
    """)
    async with workshop.under_way(file, store=MemoryStore()) as engine:
        await workshop.until_inside("one")
        with pytest.raises(RunStateError, match="is undoing what it did. Fork it when"):
            await engine.fork("r", new_id="f")
        await engine.cancel("r")
        await engine.fork("r", new_id="f")
        assert (await engine.get("f")).data[UNDONE] == ["two"]


@pytest.mark.parametrize(
    ("stuck", "undone", "partly"), [("", {"both"}, set()), ("b", set(), {"both"}), ("ab", set(), set())]
)
async def test_a_step_is_undone_when_all_its_effects_are(
    workshop: Workshop, stuck: str, undone: set[str], partly: set[str]
) -> None:
    """It puts two things and fails, and some of them cannot be taken off again."""

    async def both(ctx: StepContext) -> dict[str, Any]:
        await ctx.perform("shelf.put", text="a")
        await ctx.perform("shelf.put", text="b")
        raise ValueError("it broke")

    async def take(ctx: StepContext, text: str) -> dict[str, Any]:
        if text in stuck:
            raise ValueError(f"{text} is stuck")
        return await ctx.perform("shelf.take", text=text)

    workshop.more += [
        Action("both", handler=both, intent=INTENT, effects=("shelf.put",), rollback="take"),
        Action("take", handler=take, intent=INTENT, effects=("shelf.take",)),
    ]
    async with workshop.under_way(flow("- {name: both, type: python, action: both}")) as engine:
        run = await engine.finish("r")
        assert run.status is Status.FAILED
        known = engine.flow(run.flow)
        assert await known.undone_by(engine.store, "r") == undone
        assert await known.partly_undone_by(engine.store, "r") == partly
