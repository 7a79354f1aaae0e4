"""The world counts what happened in it, whoever made it happen, and fails the way it is told to."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.tools import NOT_DONE, EffectCall, Tool, ToolError
from detent.testing.world import World, WorldTrouble


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "world")
    yield world
    world.close()


def tools(world: World) -> dict[str, Tool]:
    return {tool.name.partition(".")[2]: tool for tool in world.tools()}


CALL = EffectCall("r1", "k1", 1)


async def test_occurrences_are_seen_by_everybody_who_looks_at_the_file(world):
    receipt = await tools(world)["blind"].perform(CALL, to="x")
    other = World(world.path)
    (one,) = other.occurrences()
    assert (one.what, one.key, one.args, one.receipt) == ("world.blind", "r1:k1", {"to": "x"}, receipt)
    await tools(world)["blind"].perform(CALL, to="x")
    assert other.count("world.blind", "r1:k1") == 2
    other.close()


async def test_a_probe_tells_what_happened_from_what_did_not(world):
    probed = tools(world)["probed"]
    assert probed.probe is not None
    assert probed.probe(to="x") is NOT_DONE
    receipt = await probed.perform(CALL, to="x")
    assert probed.probe(to="x") == receipt
    assert probed.probe(to="y") is NOT_DONE


async def test_the_keyed_tool_happens_once_for_a_key_and_gives_the_same_receipt(world):
    keyed = tools(world)["keyed"]
    first = await keyed.perform(CALL, to="x")
    assert await keyed.perform(CALL._replace(attempt=2), to="x") == first
    assert world.count() == 1
    await keyed.perform(CALL._replace(key="k2"), to="x")
    assert world.count() == 2


@pytest.mark.parametrize(("how", "happened"), [("refuse", 0), ("before", 0), ("after", 1)])
async def test_trouble_comes_before_or_after_it_happened(world, how, happened):
    world.trouble("world.blind", 1, how)
    blind = tools(world)["blind"]
    with pytest.raises(ToolError if how == "refuse" else WorldTrouble):
        await blind.perform(CALL)
    assert world.count() == happened
    await blind.perform(CALL._replace(attempt=2))
    assert world.count() == happened + 1


@pytest.mark.parametrize(("how", "happened"), [("hang", 0), ("hang_after", 1)])
async def test_a_hanging_tool_never_answers(world, how, happened):
    world.trouble("world.blind", 1, how)
    performing = asyncio.ensure_future(tools(world)["blind"].perform(CALL))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not performing.done()
    assert world.count() == happened
    performing.cancel()


def test_what_is_paid_for_twice_is_counted_twice(world):
    first, second = world.pay("model", "r1"), world.pay("model", "r1")
    assert first["answer"] == second["answer"]
    assert (first["time"], second["time"]) == (1, 2)
    assert world.pay("model", "r2")["time"] == 1


def test_a_line_that_was_cut_short_did_not_happen(world):
    world.pay("model", "r1")
    with world.path.open("ab") as file:
        file.write(b'{"what": "half')
    assert World(world.path).count() == 1
