"""Ids with dots: whose child a run is follows from its row and its key, never from the look of its id."""

from __future__ import annotations

import pytest

from detent.engine.derived import row_of
from detent.engine.family import ancestors
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.ports import NewRun
from detent.engine.tools import Tool
from detent.kernel.entries import Entry, Started
from detent.kernel.errors import ConfigurationError, RunExists
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.engine import answers
from tests.engine.conftest import one_step


def nested():
    """A parent with the child `a`, whose child is `b`, and with the child `a.b`."""

    async def work(ctx):
        first = await ctx.child("middle", {}, key="a")
        second = await ctx.child("leaf", {"said": "child"}, key="a.b")
        return {"first": first.data.below, "second": second.data.said, "ids": [first.id, second.id]}

    async def middle(ctx):
        return {"below": (await ctx.child("leaf", {"said": "grandchild"}, key="b")).data.said}

    return (
        one_step(work, name="parent"),
        one_step(middle, name="middle"),
        one_step(lambda ctx: {}, name="leaf"),
    )


async def test_a_child_whose_key_has_a_dot_is_not_taken_for_a_grandchild(bench):
    engine = await bench.engine(*nested())
    run = await engine.run("parent", {}, run_id="p")
    assert (run.data["first"], run.data["second"]) == ("grandchild", "child")
    assert len(set(run.data["ids"])) == 2


async def test_a_child_is_not_the_run_that_a_person_gave_the_same_id(bench):
    engine = await bench.engine(
        one_step(lambda ctx: {"said": "another"}, name="other"),
        one_step(lambda ctx: {"said": "child"}, name="child"),
        one_step(_asks_for_child, name="parent"),
    )
    await engine.run("other", {}, run_id="release-1.2")
    run = await engine.run("parent", {}, run_id="release-1")
    assert run.data["said"] == "child"
    assert await ancestors(engine.store, run.data["id"]) == ["release-1"]


async def _asks_for_child(ctx):
    child = await ctx.child("child", {}, key="2")
    return {"said": child.data.said, "id": child.id}


async def test_a_child_beside_a_run_of_its_id_is_found_again_on_resume(durable):
    times = []

    async def parent(ctx):
        child = await ctx.child("child", {}, key="2")
        return {"said": child.data.said} if ctx.answered() else Hold()

    def child(ctx):
        times.append(ctx.run_id)
        return {"said": "child"}

    flows = [
        one_step(parent, name="parent"),
        one_step(child, name="child"),
        one_step(lambda ctx: {}, name="o"),
    ]
    engine = await durable.engine(*flows)
    await engine.run("o", {}, run_id="release-1.2")
    await engine.run("parent", {}, run_id="release-1")
    await engine.stop()
    engine = await durable.engine(*flows)
    await answers.release(engine, "release-1")
    run = await engine.finish("release-1")
    assert (run.data["said"], len(times)) == ("child", 1)


async def test_halting_children_leaves_a_run_alone_that_a_person_gave_the_id_of_one(bench):
    async def parent(ctx):
        results = await ctx.children([("bad", {}, "bad"), ("2", {}, "child")], limit=1, stop_on_failure=True)
        return {"keys": [child.key for child in results]}

    def bad(ctx):
        raise ValueError("no")

    engine = await bench.engine(
        one_step(parent, name="parent"), one_step(bad, name="bad", also=("failed",)),
        one_step(lambda ctx: {}, name="child"), one_step(lambda ctx: Hold(), name="other"),
    )  # fmt: skip
    await engine.run("other", {}, run_id="release-1.2")
    await engine.run("parent", {}, run_id="release-1")
    assert (await engine.get("release-1.2")).status is Status.WAITING


async def test_a_child_that_an_earlier_version_began_is_found_by_its_key(bench):
    engine = await bench.engine(
        one_step(_asks_for_dotted, name="parent"), one_step(lambda ctx: {"said": "new"}, name="child")
    )
    await engine.start("parent", {}, run_id="p", drive=False)
    await _written_before(engine, "p.v1.2", "p", {"said": "old"})
    await engine.resume("p")
    run = await engine.finish("p")
    assert run.data["id"] == "p.v1.2"
    assert run.data["said"] == "new"  # done by the child itself, which was under way
    assert [row async for row in _rows_below(engine, "p")] == ["p.v1.2"]


async def _asks_for_dotted(ctx):
    child = await ctx.child("child", {}, key="v1.2")
    return {"said": child.data.said, "id": child.id}


async def _written_before(engine, run_id, parent, data):
    """A run as the version before wrote it."""
    flow = engine.flow("child")
    started = Started(
        "child", "work", flow.machine.name, flow.machine.version, flow.fingerprint, data, parent, None, {}, []
    )
    entry = Entry(1, engine.clock.now(), 1, started)
    run = Run.fold(run_id, [entry])
    await engine.store.create(
        NewRun(run_id, "child", "child", parent, (entry,), row_of(run), definition=flow.definition)
    )


async def _rows_below(engine, run_id):
    from detent.engine.family import children

    async for row in children(engine.store, run_id):
        yield row.id


@pytest.mark.parametrize("run_id", ["", "a\nb", "a..b", "x" * 201])
async def test_a_run_is_not_begun_under_an_id_that_would_harm(bench, run_id):
    engine = await bench.engine(one_step(lambda ctx: {}))
    with pytest.raises(ConfigurationError, match="cannot be the id of a run"):
        await engine.start("flow", {}, run_id=run_id)
    await engine.run("flow", {}, run_id="fine")
    with pytest.raises(ConfigurationError, match="cannot be the id of a run"):
        await engine.fork("fine", 1, new_id=run_id)


async def test_a_child_of_a_key_that_would_harm_is_not_begun(bench):
    async def work(ctx):
        await ctx.child("child", {}, key="a\nb")

    engine = await bench.engine(one_step(work, name="parent"), one_step(lambda ctx: {}, name="child"))
    run = await engine.run("parent", {}, run_id="p")
    assert run.status is Status.FAILED
    assert "cannot be the key of a child" in run.error


async def test_tools_are_told_the_root_of_the_runs_that_belong_together(bench):
    roots = []
    note = Tool("note", lambda call: roots.append((call.run_id, call.root)), wants_call=True, idempotent=True)

    async def parent(ctx):
        await ctx.child("child", {}, key="c")
        return Outcome("done", effects=[Effect("note", {})])

    engine = await bench.engine(
        one_step(parent, name="parent", tools=[note]),
        one_step(lambda ctx: Outcome("done", effects=[Effect("note", {})]), name="child", tools=[note]),
    )
    for run_id in ("release-1.2", "release-1.3", "plain"):
        await engine.run("parent", {}, run_id=run_id)
    assert roots == [
        ("release-1.2.c", "release-1.2"), ("release-1.2", "release-1.2"),
        ("release-1.3.c", "release-1.3"), ("release-1.3", "release-1.3"),
        ("plain.c", "plain"), ("plain", "plain"),
    ]  # fmt: skip


async def test_a_fork_of_a_family_with_dots_keeps_every_child_with_its_parent(bench):
    engine = await bench.engine(*nested())
    await engine.run("parent", {}, run_id="v1.0")
    made = await engine.fork("v1.0", None, new_id="v1.1")
    run = await engine.finish(made)
    assert (run.data["first"], run.data["second"]) == ("grandchild", "child")
    assert all(one.startswith("v1.1.") for one in run.data["ids"])


async def test_a_fork_that_would_need_the_id_of_another_run_writes_nothing(bench):
    engine = await bench.engine(*nested())
    await engine.run("parent", {}, run_id="p")
    await engine.run("leaf", {}, run_id="q.a")
    with pytest.raises(RunExists):
        await engine.fork("p", None, new_id="q")
    assert await engine.store.find("q") == ["q.a"]


async def test_a_run_that_an_earlier_version_began_keeps_its_files_where_they_are(bench):
    """Then `release-1.2` kept them with `release-1`; what it had put there must be found again."""
    roots = []
    note = Tool("note", lambda call: roots.append(call.root), wants_call=True, idempotent=True)
    step = one_step(lambda ctx: Outcome("done", effects=[Effect("note", {})]), name="child", tools=[note])
    engine = await bench.engine(step)
    await _written_before(engine, "release-1.2", None, {})
    await engine.resume("release-1.2")
    await engine.finish("release-1.2")
    assert roots == ["release-1"]
