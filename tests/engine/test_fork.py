"""A fork of a run takes along what was below it, as it all stood at one moment."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.engine import Engine
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.tools import Tool
from detent.kernel.errors import ConfigurationError, DefinitionChanged, RunExists, RunNotFound
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.engine import answers
from tests.engine.conftest import flow_of, journal, kinds, one_step, until


class House:
    """A root with three parts of two steps each, and a last step; every step notes that it was done."""

    def __init__(self, limit=None, hang=None):
        self.done = []
        self.calls = []
        self.limit = limit
        self.hang = hang
        """What to wait for in the first step of the last part."""

    def flows(self, extra=None):
        async def parts(ctx):
            items = [(f"part[{n}]", {"n": n}) for n in range(3)]
            await ctx.children(items, flow="part", limit=self.limit)
            return Outcome("last")

        def step(name, to):
            def work(ctx):
                what = f"{name}{ctx.data.get('n', '')}"
                return Outcome(to, effects=[Effect("do", {"what": what})], set={name: True})

            return work

        async def do(call, what):
            self.calls.append(call)
            if what == "one2" and self.hang is not None and not self.hang.is_set():
                self.done.append("begun one2")
                await self.hang.wait()
            self.done.append(what)
            return {}

        tool = Tool("do", do, wants_call=True)
        root = flow_of(
            {"first": ["parts"], "parts": ["last"], "last": ["done"]},
            {"first": step("first", "parts"), "parts": parts, "last": step("last", "done")},
            name="root", tools=[tool], extra=extra,
        )  # fmt: skip
        part = flow_of(
            {"one": ["two"], "two": ["done"]}, {"one": step("one", "two"), "two": step("two", "done")},
            name="part", tools=[tool],
        )  # fmt: skip
        return [root, part]


async def left(engine, run_id, state):
    """The number of the entry with which a run left a state."""
    return next(
        entry.seq
        for entry in await journal(engine, run_id)
        if entry.kind == "moved" and entry.body.frm == state
    )


class TestFamily:
    async def test_it_goes_on_from_the_moment_one_of_its_parts_left_a_step(self, bench):
        house = House(limit=1)
        engine = await bench.engine(*house.flows())
        run = await engine.run("root", tags=["t"])
        part = f"{run.id}.part[1]"
        before, house.done[:] = list(house.done), []
        fork = await engine.fork_family(run.id, (part, await left(engine, part, "one")))
        forked = await engine.finish(fork)
        assert before == ["first", "one0", "two0", "one1", "two1", "one2", "two2", "last"]
        assert house.done == ["two1", "one2", "two2", "last"], "what was done by then is not done again"
        assert forked.status is Status.SUCCEEDED
        assert (forked.parent, forked.tags, forked.forked_from["run"]) == (None, ["t"], run.id)
        assert set(forked.children) == {f"{fork}.part[{n}]" for n in range(3)}
        assert (await engine.get(f"{fork}.part[1]")).parent == fork
        assert (await engine.get(run.id)).to_plain() == run.to_plain()

    async def test_clocks_that_stand_still_do_not_mix_up_what_came_before(self, quick, clock):
        house = House(limit=1)
        engine = await quick.engine(*house.flows(), clock=clock)
        run = await engine.run("root")
        part = f"{run.id}.part[1]"
        fork = await engine.fork_family(run.id, (part, await left(engine, part, "one")), drive=False)
        kept = await engine.get(fork)
        assert (kept.state, kept.status) == ("parts", Status.RUNNING)
        assert f"{fork}.part[1]" not in kept.children
        assert (await engine.get(f"{fork}.part[1]")).state == "two"

    async def test_what_was_begun_beside_it_and_not_settled_is_begun_anew(self, durable):
        hang = asyncio.Event()
        house = House(hang=hang)
        engine = await durable.engine(*house.flows())
        run_id = await engine.start("root")
        part = f"{run_id}.part[1]"
        await until(lambda: "begun one2" in house.done and "two1" in house.done)
        at = (part, await left(engine, part, "one"))
        hang.set()
        await engine.finish(run_id)
        house.done.clear()
        fork = await engine.fork_family(run_id, at)
        forked = await engine.finish(fork)
        assert forked.status is Status.SUCCEEDED, "nobody is asked about what the other run did"
        assert house.done.count("one2") == 1

    async def test_one_beside_it_that_waited_then_waits_again(self, bench):
        async def root(ctx):
            await ctx.children([("asks", {}, "asks"), ("goes", {}, "goes")])

        asks = one_step(lambda ctx: {"said": ctx.answer()} if ctx.answered() else Hold(), name="asks")
        steps = {
            "one": lambda ctx: Outcome("two"),
            "two": lambda ctx: Outcome("done") if ctx.answered() else Hold(),
        }
        goes = flow_of({"one": ["two"], "two": ["done"]}, steps, name="goes")
        engine = await bench.engine(one_step(root, name="root"), asks, goes)
        run = await engine.run("root")
        for part in ("goes", "asks"):
            await answers.release(engine, f"{run.id}.{part}", "yes")
        assert (await engine.finish(run.id)).status is Status.SUCCEEDED
        entries = await journal(engine, f"{run.id}.goes")
        waited = next(entry.seq for entry in entries if entry.kind == "held")
        fork = await engine.fork_family(run.id, (f"{run.id}.goes", waited))
        assert (await engine.finish(fork)).status is Status.WAITING
        for part in ("goes", "asks"):
            await answers.release(engine, f"{fork}.{part}", "no")
        assert (await engine.finish(fork)).status is Status.SUCCEEDED
        assert (await engine.get(f"{fork}.asks")).data == {"said": "no"}

    async def test_data_may_be_changed_from_what_the_new_family_has_done(self, quick):
        house = House(limit=1)
        engine = await quick.engine(*house.flows())
        run = await engine.run("root")
        part = f"{run.id}.part[0]"

        def changes(family):
            return {"seen": [[past.run.id, len(past.moves)] for past in family]}

        fork = await engine.fork_family(run.id, (part, await left(engine, part, "one")), set=changes)
        assert (await engine.finish(fork)).data["seen"] == [[fork, 1], [f"{fork}.part[0]", 1]]

    async def test_tools_are_told_under_whose_name_they_kept_things(self, quick):
        house = House(limit=1)
        engine = await quick.engine(*house.flows())
        run = await engine.run("root")
        assert {call.root for call in house.calls} == {run.id}
        house.calls.clear()
        part = f"{run.id}.part[1]"
        fork = await engine.fork_family(run.id, (part, await left(engine, part, "one")))
        await engine.finish(fork)
        again = await engine.fork(fork, await left(engine, fork, "parts"))
        await engine.finish(again)
        assert {call.root for call in house.calls} == {run.id}
        assert {call.run_id.partition(".")[0] for call in house.calls} == {fork, again}
        assert len({call.idempotency_key for call in house.calls}) == len(house.calls)


class TestRefusals:
    async def test_a_moment_that_is_none_is_refused(self, quick):
        engine = await quick.engine(*House().flows())
        run, other = await engine.run("root"), await engine.run("root")
        with pytest.raises(ConfigurationError, match="has no entry 99"):
            await engine.fork_family(run.id, (run.id, 99))
        with pytest.raises(ConfigurationError, match=f"{other.id} is not part of {run.id}"):
            await engine.fork_family(run.id, (other.id, 1))
        with pytest.raises(ConfigurationError, match="had come to its end by then; nothing is left"):
            await engine.fork_family(run.id, (run.id, run.seq))
        with pytest.raises(RunNotFound):
            await engine.fork_family("nobody", ("nobody", 1))

    async def test_the_name_of_another_run_is_refused_before_anything_is_written_below_it(self, bench):
        engine = await bench.engine(*House().flows())
        run = await engine.run("root")
        other = await engine.start("root", drive=False)
        at = (run.id, await left(engine, run.id, "parts"))
        with pytest.raises(RunExists):
            await engine.fork_family(run.id, at, new_id=other)
        assert await engine.store.find(other) == [other]

    async def test_what_is_left_of_a_fork_that_never_came_to_be_is_never_driven(self, durable):
        house = House(limit=1)
        engine = await durable.engine(*house.flows())
        run = await engine.run("root")
        part = f"{run.id}.part[1]"
        at = (part, await left(engine, part, "one"))

        class Dead(Exception):
            """As if the process had died here."""

        def strike(point):
            raise Dead

        crash = CrashPoints([CrashPoint(3, "before")], strike=strike)
        dying = Engine(crash.store(durable.store()), house.flows())
        async with dying:
            with pytest.raises(Dead):
                await dying.fork_family(run.id, at, new_id="new")
        assert sorted(await engine.store.find("new")) == ["new.part[0]", "new.part[1]"]
        house.done.clear()
        other = await durable.engine(*house.flows())
        assert await other.resume_all() == []
        assert house.done == []

    async def test_a_changed_definition_is_refused_before_anything_is_written(self, durable):
        engine = await durable.engine(*House().flows())
        run = await engine.run("root")
        other = await durable.engine(*House().flows(extra={"file": 2}))
        with pytest.raises(DefinitionChanged):
            await other.fork_family(run.id, (run.id, await left(engine, run.id, "first")), new_id="new")
        assert await engine.store.find("new") == []


class TestFork:
    async def test_a_fork_takes_finished_children_along(self, bench):
        house = House(limit=1)
        engine = await bench.engine(*house.flows())
        run = await engine.run("root")
        house.done.clear()
        fork = await engine.fork(run.id, await left(engine, run.id, "parts"))
        assert (await engine.finish(fork)).status is Status.SUCCEEDED
        assert house.done == ["last"]
        assert (await engine.get(f"{fork}.part[2]")).status is Status.SUCCEEDED

    async def test_forked_before_them_it_starts_its_own(self, bench):
        house = House(limit=1)
        engine = await bench.engine(*house.flows())
        run = await engine.run("root")
        house.done.clear()
        fork = await engine.fork(run.id, await left(engine, run.id, "first"))
        assert (await engine.finish(fork)).status is Status.SUCCEEDED
        assert house.done == ["one0", "two0", "one1", "two1", "one2", "two2", "last"]
        assert "forked" in await kinds(engine, fork)


class TestWhatAForkHasOfItsOwn:
    """`Flow.copied`: data that a fork cannot share with its original."""

    def flow(self, copied):
        flow = flow_of(
            {"a": ["b"], "b": ["done"]},
            {"a": lambda ctx: Outcome("b", set={"seen": 1}), "b": lambda ctx: Outcome("done")},
        )
        flow.copied = copied
        return flow

    async def test_it_is_given_by_the_flow_from_the_original_as_it_stood_and_the_new_id(self, quick):
        told = []

        def copied(run, new_id):
            told.append((run.data["folder"], run.data["seen"], new_id))
            return {"folder": new_id, "seen": 0}

        engine = await quick.engine(self.flow(copied))
        run_id = await engine.start("flow", {"folder": "first"}, drive=False)
        await engine.finish(run_id, stop_at="b")
        fork = await engine.fork(run_id, set={"seen": 5}, new_id="fork", drive=False)
        data = (await engine.get(fork)).data
        assert told == [("first", 1, "fork")]
        assert (data["folder"], data["seen"]) == ("fork", 5)  # what is asked for comes last

    async def test_where_it_cannot_be_given_no_run_is_made(self, quick):
        def copied(run, new_id):
            raise ConfigurationError("its folder is gone")

        engine = await quick.engine(self.flow(copied))
        run_id = await engine.start("flow", {}, drive=False)
        with pytest.raises(ConfigurationError, match="folder is gone"):
            await engine.fork(run_id, new_id="fork", drive=False)
        with pytest.raises(RunNotFound):
            await engine.get("fork")

    async def test_nothing_is_copied_for_a_fork_that_is_refused(self, quick):
        """The definition has changed: no folder is left behind."""
        told = []
        engine = await quick.engine(self.flow(lambda run, new_id: {}))
        run_id = await engine.start("flow", {}, drive=False)
        await engine.finish(run_id, stop_at="b")
        await engine.stop()
        changed = flow_of(
            {"a": ["b"], "b": ["c"], "c": ["done"]},
            {name: lambda ctx: Outcome("done") for name in "abc"},
        )
        changed.copied = lambda run, new_id: told.append(new_id) or {}
        engine = await quick.engine(changed)
        with pytest.raises(DefinitionChanged):
            await engine.fork(run_id, new_id="fork", drive=False)
        assert told == []
