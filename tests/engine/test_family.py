"""A run and everything below it, as its journals tell it."""

from __future__ import annotations

from detent.engine.family import children, family_of
from detent.kernel.status import Status
from tests.engine.conftest import one_step


def family(many):
    """A root whose child has children of its own."""

    async def root(ctx):
        await ctx.child("middle", key="middle")

    async def middle(ctx):
        await ctx.children([(f"leaf[{n}]", {"n": n}) for n in range(many)], flow="leaf", limit=20)

    return [
        one_step(root, name="root"),
        one_step(middle, name="middle"),
        one_step(lambda ctx: {"seen": ctx.data.n}, name="leaf"),
    ]


async def test_parents_come_before_their_children_with_the_moves_each_has_made(bench):
    engine = await bench.engine(*family(3))
    run = await engine.run("root")
    found = [past async for past in family_of(engine.store, engine.flow, run.id)]
    assert [past.run.id for past in found[:2]] == [run.id, f"{run.id}.middle"]
    assert {past.run.id for past in found[2:]} == {f"{run.id}.middle.leaf[{n}]" for n in range(3)}
    assert [len(past.moves) for past in found] == [1] * 5
    assert {past.flow.name for past in found} == {"root", "middle", "leaf"}
    assert all(past.run.status is Status.SUCCEEDED for past in found)


async def test_more_children_than_a_page_of_the_store_are_all_found(quick):
    engine = await quick.engine(*family(450))
    run = await engine.run("root")
    below = [row.id async for row in children(engine.store, f"{run.id}.middle")]
    assert len(below) == len(set(below)) == 450
    assert [row.id async for row in children(engine.store, run.id)] == [f"{run.id}.middle"]


async def test_a_step_can_ask_for_its_own_lineage(quick):
    async def work(ctx):
        await ctx.child("leaf", {"n": 1}, key="leaf")
        return {"family": [past.run.id for past in await ctx.lineage()]}

    engine = await quick.engine(one_step(work, name="root"), *family(0)[2:])
    run = await engine.run("root")
    assert run.data["family"] == [run.id, f"{run.id}.leaf"]
