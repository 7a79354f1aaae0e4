"""What kinds of flow ask of the engine, each as its author would try it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.state_machine import StateMachine
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError, query, tool
from detent.insight import timeline
from detent.insight.why import render, why
from detent.kernel.budget import Budget, Spend
from detent.kernel.errors import ConfigurationError, DefinitionError, Fenced, KeyTaken, RunStateError
from detent.kernel.guards import when
from detent.kernel.machine import Move
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, journal, kinds, one_step, until


def counting(**options):
    """A flow that moves back and forth between two states, five times."""

    async def one(ctx):
        return "two"

    async def two(ctx):
        return "one" if ctx.visit < 5 else "done"

    return flow_of({"one": ["two"], "two": ["one", "done"]}, {"one": one, "two": two}, **options)


class TestInterruptApartFromCancel:
    async def test_an_interrupted_run_stays_open_and_goes_on(self, bench):
        """Ctrl-C: what waits is dropped, the one who waits for the run gets it back as it stands."""
        begun, calls = asyncio.Event(), []

        async def work(ctx):
            calls.append(ctx.attempt)
            begun.set()
            if len(calls) == 1:
                await asyncio.Event().wait()
            return "done"

        engine = await bench.engine(one_step(work))
        run_id = await engine.start("flow")
        waiting = asyncio.ensure_future(engine.finish(run_id))
        await begun.wait()
        await engine.interrupt(run_id)
        run = await waiting
        assert (run.status, run.state) == (Status.RUNNING, "work")
        assert await kinds(engine, run_id) == ["started"]
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED
        assert calls == [1, 1]

    async def test_who_waits_for_a_new_run_gets_it_back_too(self, quick):
        """`run` is start and finish; it does not take up again what was interrupted."""
        begun = asyncio.Event()

        async def work(ctx):
            begun.set()
            await asyncio.Event().wait()

        engine = await quick.engine(one_step(work))
        waiting = asyncio.ensure_future(engine.run("flow", run_id="r"))
        await begun.wait()
        await engine.interrupt("r")
        assert (await waiting).status is Status.RUNNING
        assert engine.active.runs_under_way() == []

    async def test_an_effect_under_way_is_finished_and_nothing_after_it_begun(self, bench):
        """A command gets its grace; the calls behind it are not made before the run goes on."""
        begun, go_on, done = asyncio.Event(), asyncio.Event(), []

        async def act(name):
            begun.set()
            await go_on.wait()
            done.append(name)

        async def work(ctx):
            for name in "ab":
                await ctx.perform("act", name=name)
            return "done"

        engine = await bench.engine(one_step(work, tools=[Tool("act", act)]))
        run_id = await engine.start("flow")
        await begun.wait()
        interrupted = asyncio.ensure_future(engine.interrupt(run_id, grace=20))
        await asyncio.sleep(0)
        go_on.set()
        await interrupted
        assert done == ["a"]
        assert (await engine.get(run_id)).status is Status.RUNNING
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED
        assert done == ["a", "b"]

    async def test_children_are_put_down_with_their_parent(self, bench):
        """And go on with it."""
        begun, open_ = asyncio.Event(), []

        async def part(ctx):
            begun.set()
            if not open_:
                await asyncio.Event().wait()
            return "done"

        async def work(ctx):
            await ctx.child("part", key="a")
            return "done"

        engine = await bench.engine(one_step(work), one_step(part, name="part"))
        run_id = await engine.start("flow")
        await begun.wait()
        await engine.interrupt(run_id)
        assert [row.status for row in (await engine.get(run_id), await engine.get(f"{run_id}.a"))] == [
            Status.RUNNING, Status.RUNNING
        ]  # fmt: skip
        assert engine.active.runs_under_way() == []
        open_.append(True)
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED

    async def test_a_run_that_is_not_under_way_here_is_refused(self, quick):
        """There is nothing to interrupt."""
        engine = await quick.engine(counting())
        run_id = await engine.start("flow", drive=False)
        with pytest.raises(RunStateError, match="not under way"):
            await engine.interrupt(run_id)

    async def test_a_worker_that_serves_leaves_it_alone(self, quick, clock):
        """Until somebody says that it goes on."""
        begun = asyncio.Event()

        async def work(ctx):
            begun.set()
            await asyncio.Event().wait()

        engine = await quick.engine(one_step(work))
        run_id = await engine.start("flow")
        await begun.wait()
        await engine.interrupt(run_id)
        assert await engine.resume_all() == []
        await engine.cancel(run_id)
        assert (await engine.get(run_id)).status is Status.CANCELLED


class TestStopping:
    async def test_at_a_state_then_on_with_other_settings(self, bench):
        """The step of that state is not performed; a fork from there may have other data."""
        engine = await bench.engine(counting())
        run_id = await engine.start("flow", {"k": 1}, drive=False)
        run = await engine.finish(run_id, stop_at="two")
        assert (run.state, run.steps, run.status) == ("two", 1, Status.RUNNING)
        fork = await engine.fork(run_id, set={"k": 2})
        assert (await engine.finish(fork)).data["k"] == 2
        assert (await engine.finish(run_id)).data["k"] == 1

    async def test_after_so_many_moves(self, bench):
        """Counted from where it stands."""
        engine = await bench.engine(counting())
        run_id = await engine.start("flow", drive=False)
        assert [(await engine.finish(run_id, stop_after=3)).steps for _ in range(4)] == [3, 6, 9, 10]

    async def test_a_stop_that_cannot_be_reached_is_refused(self, quick):
        """A misspelt state is no stop."""
        engine = await quick.engine(counting())
        run_id = await engine.start("flow", drive=False)
        with pytest.raises(ConfigurationError, match="no state 'tow'"):
            await engine.finish(run_id, stop_at="tow")
        with pytest.raises(ConfigurationError, match="not after 0"):
            await engine.finish(run_id, stop_after=0)

    @pytest.mark.parametrize("order", [(1, 2, None), (2, None, 1), (None, 1, 2)], ids=str)
    async def test_each_who_waits_gets_the_run_where_they_asked(self, bench, order):
        """A stop of one does not put the run down for those who wait for more."""
        engine = await bench.engine(counting())
        run_id = await engine.start("flow", drive=False)
        waiting = [engine.finish(run_id, stop_after=moves) for moves in order]
        runs = dict(zip(order, await asyncio.gather(*waiting), strict=True))
        assert [(runs[moves].steps, runs[moves].status) for moves in (1, 2)] == [
            (1, Status.RUNNING),
            (2, Status.RUNNING),
        ]
        assert (runs[None].status, runs[None].steps) == (Status.SUCCEEDED, 10)
        assert not engine.active.stops

    async def test_a_stop_that_is_met_holds_where_nobody_waits_for_more(self, bench):
        """Also of two who asked for the same; a serving engine does not take the run up."""
        engine = await bench.engine(counting())
        run_id = await engine.start("flow", drive=False)
        both = [engine.finish(run_id, stop_at="two"), engine.finish(run_id, stop_at="two")]
        assert [run.state for run in await asyncio.gather(*both)] == ["two", "two"]
        assert await engine.resume_all() == []
        assert (await engine.get(run_id)).steps == 1
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED


class Watcher:
    """Sees progress and streamed text."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.threads: set[int] = set()

    def on_progress(self, run_id, flow, step, progress):
        self.threads.add(threading.get_ident())
        self.seen.append((flow, step, progress.done, progress.of, progress.text))


class TestProgressOfALongStep:
    async def test_a_plain_function_shows_it_from_its_thread(self, bench):
        """Observers see it on the event loop; the journal and the other runs do not notice."""
        other_ended = threading.Event()

        def long(ctx):
            ctx.progress(1, 2, "reading")
            assert other_ended.wait(20), "the event loop was blocked"
            ctx.progress(2, 2)
            return "done"

        async def short(ctx):
            return "done"

        watcher = Watcher()
        flow = one_step(Step("work", long, blocking=True))
        engine = await bench.engine(flow, one_step(short, name="short"), observers=[watcher], lease=0.5)
        run_id = await engine.start("flow")
        await engine.run("short")
        other_ended.set()
        run = await engine.finish(run_id)
        assert run.status is Status.SUCCEEDED
        assert watcher.seen == [("flow", "work", 1, 2, "reading"), ("flow", "work", 2, 2, "")]
        assert watcher.threads == {threading.get_ident()}
        assert await kinds(engine, run_id) == ["started", "moved"]

    async def test_an_effect_shows_its_own(self, quick):
        """Through its call; a watcher that breaks harms nobody."""

        class Breaks:
            def on_progress(self, *facts):
                raise ValueError("no screen")

        def act(call, name):
            call.progress(text=f"{name} begins")
            return {}

        async def work(ctx):
            await ctx.perform("act", name="cell")
            return "done"

        watcher = Watcher()
        flow = one_step(work, tools=[Tool("act", act, wants_call=True)])
        engine = await quick.engine(flow, observers=[Breaks(), watcher])
        assert (await engine.run("flow")).status is Status.SUCCEEDED
        assert watcher.seen == [("flow", "work", None, None, "cell begins")]


class Files:
    """Files that runs leave behind when they end."""

    def __init__(self, *, fails: int = 0) -> None:
        self.written: list[tuple[str, str]] = []
        self.fails = fails

    def tool(self) -> Tool:
        def write(name: str, text: str) -> dict[str, int]:
            if self.fails:
                self.fails -= 1
                raise ToolError("disk_full", f"no room for {name}")
            self.written.append((name, text))
            return {"size": len(text)}

        return Tool("write", write)

    def at_end(self, ending):
        yield Effect("write", {"name": "result", "text": f"{ending.status.value} with {ending.data['best']}"})
        yield Effect("write", {"name": "report", "text": f"{ending.state}: {ending.reason}"})


class TestEffectsAtAnyEnd:
    def flow(self, files, work, **options):
        return flow_of(
            {"work": ["done", "spent", "failed", "work"]},
            {"work": work},
            tools=[files.tool()],
            at_end=files.at_end,
            **options,
        )

    async def test_a_run_that_succeeds_leaves_its_files(self, bench):
        """With the data it ends with; they are performed before the end is committed."""

        async def work(ctx):
            return Outcome("done", set={"best": 2}, reason="good enough")

        files = Files()
        engine = await bench.engine(self.flow(files, work))
        run = await engine.run("flow", {"best": 1})
        assert files.written == [("result", "succeeded with 2"), ("report", "done: good enough")]
        assert (run.state, run.status, run.reason) == ("done", Status.SUCCEEDED, "good enough")
        assert (run.steps, run.data) == (1, {"best": 2})
        expected = [
            "started",
            "proposed",
            "effect_begun",
            "effect_done",
            "effect_begun",
            "effect_done",
            "moved",
        ]
        assert await kinds(engine, run.id) == expected
        assert "good enough" in render(why(await journal(engine, run.id)))

    async def test_so_does_one_that_fails(self, bench):
        """An exception, or effects that failed, end it as before."""

        async def work(ctx):
            raise ValueError("no idea")

        files = Files()
        engine = await bench.engine(self.flow(files, work))
        run = await engine.run("flow", {"best": 1})
        assert (run.state, run.status, run.error) == ("failed", Status.FAILED, "ValueError: no idea")
        assert files.written == [("result", "failed with 1"), ("report", "failed: work failed: ValueError")]

    async def test_so_does_one_that_runs_out_of_budget_and_again_when_it_is_reopened(self, bench):
        """Every end has its own effects, equal or not."""

        async def work(ctx):
            count = ctx.data["count"] + 1
            return Outcome(
                "work" if count < 4 else "done", set={"count": count}, spend=Spend(input_tokens=10)
            )

        files = Files()
        engine = await bench.engine(self.flow(files, work))
        run = await engine.run("flow", {"best": 1, "count": 0}, budget=Budget(tokens=15))
        assert (run.state, run.status) == ("spent", Status.BUDGET_EXHAUSTED)
        assert [name for name, _ in files.written] == ["result", "report"]
        await engine.reopen(run.id, budget=Budget(tokens=25))
        run = await engine.finish(run.id)
        assert (run.status, run.total_spend.tokens) == (Status.BUDGET_EXHAUSTED, 30)
        assert [name for name, _ in files.written] == ["result", "report"] * 2
        await engine.reopen(run.id, budget=Budget(tokens=100))
        run = await engine.finish(run.id)
        assert (run.status, run.total_spend.tokens, run.data["count"]) == (Status.SUCCEEDED, 40, 4)
        assert files.written[-2:] == [("result", "succeeded with 1"), ("report", "done: None")]

    @pytest.mark.parametrize("waits", [True, False])
    async def test_so_does_one_that_a_person_cancels(self, bench, waits):
        """While it waits for an answer, or works."""
        begun = asyncio.Event()

        async def work(ctx):
            begun.set()
            return Hold("ok", question="Go on?") if waits else await asyncio.Event().wait()

        files = Files()
        engine = await bench.engine(self.flow(files, work))
        run_id = await engine.start("flow", {"best": 1})
        await begun.wait()
        if waits:
            await engine.finish(run_id)
        await engine.cancel(run_id, reason="enough")
        run = await engine.finish(run_id)
        assert run.status is Status.CANCELLED
        assert files.written == [("result", "cancelled with 1"), ("report", "work: enough")]
        assert not run.holds

    async def test_a_failure_there_waits_for_a_person_and_is_completed(self, bench):
        """The disk is full: the run has not ended, and nothing is decided again."""
        calls = []

        async def work(ctx):
            calls.append(ctx.attempt)
            return "done"

        files = Files(fails=1)
        engine = await bench.engine(self.flow(files, work))
        run = await engine.run("flow", {"best": 1})
        (hold,) = run.holds.values()
        assert (run.status, hold.why) == (Status.WAITING, "attention")
        assert hold.about["error"] == "disk_full: no room for result"
        await engine.resolve(run.id, "again", hold=run.token())
        assert (await engine.finish(run.id)).status is Status.SUCCEEDED
        assert [name for name, _ in files.written] == ["result", "report"]
        assert calls == [1]

    async def test_who_will_not_wait_cancels_again(self, bench):
        """A run that cannot finish can still be ended."""

        async def work(ctx):
            return "done"

        files = Files(fails=99)
        engine = await bench.engine(self.flow(files, work))
        run = await engine.run("flow", {"best": 1})
        await engine.cancel(run.id)
        assert (await engine.finish(run.id)).status is Status.CANCELLED
        assert files.written == []

    async def test_a_report_that_raises_keeps_no_run_from_its_end(self, bench):
        """The run ends as it was going to, with nothing performed; the journal and `show` have the error."""

        async def work(ctx):
            return Outcome("done", set={"worst": 1}, reason="good enough")

        files = Files()
        engine = await bench.engine(self.flow(files, work))
        run = await engine.run("flow")
        assert (run.state, run.status, run.reason) == ("done", Status.SUCCEEDED, "good enough")
        assert files.written == []
        *_, note, moved = await journal(engine, run.id)
        assert (note.body.topic, note.body.body) == ("at_end.failed", {"error": "KeyError: 'best'"})
        assert moved.kind == "moved"
        text = timeline.render(timeline.timeline(await journal(engine, run.id)))
        assert "nothing was performed at its end: KeyError: 'best'" in text

    async def test_nor_from_being_cancelled(self, bench):
        """Whatever the report raises, and with whatever arguments it calls a tool."""
        begun = asyncio.Event()

        async def work(ctx):
            begun.set()
            await asyncio.Event().wait()

        def at_end(ending):
            return [Effect("write", {"nom": "result"})]

        files = Files()
        flow = one_step(work, tools=[files.tool()], at_end=at_end)
        engine = await bench.engine(flow)
        run_id = await engine.start("flow")
        await begun.wait()
        await engine.cancel(run_id)
        run = await engine.finish(run_id)
        assert (run.status, files.written) == (Status.CANCELLED, [])
        (note,) = [entry.body for entry in await journal(engine, run_id) if entry.kind == "noted"]
        assert "missing a required argument: 'name'" in note.body["error"]

    @pytest.mark.parametrize(("large", "performed"), [(True, []), (False, [("result", "x")])])
    async def test_what_a_person_must_confirm_cannot_be_performed_there(self, quick, large, performed):
        """No step could see the decision. Where nobody need be asked, it is performed."""

        async def work(ctx):
            return "done"

        def question(name, text):
            return f"Write {name}?" if large else None

        def at_end(ending):
            return [Effect("write", {"name": "result", "text": "x"})]

        files = Files()
        asking = replace(files.tool(), confirm=question)
        engine = await quick.engine(one_step(work, tools=[asking], at_end=at_end))
        run = await engine.run("flow")
        assert (run.status, files.written) == (Status.SUCCEEDED, performed)
        errors = [
            entry.body.body["error"] for entry in await journal(engine, run.id) if entry.kind == "noted"
        ]
        refused = "ConfigurationError: 'write' needs a person's confirmation and cannot be performed"
        assert [error[: len(refused)] for error in errors] == [refused] * large


class TestALimitReachedWhereNoEdgeLeadsToItsEnd:
    def flow(self, spends):
        """Only planning and implementing may end out of budget; validating lies between them."""

        def spending(to):
            async def work(ctx):
                return Outcome(to, spend=Spend(input_tokens=spends.get(ctx.state, 0)))

            return work

        return flow_of(
            {
                "plan": ["validate", "spent"],
                "validate": ["implement", "plan"],
                "implement": ["done", "spent"],
            },
            {"plan": spending("validate"), "validate": spending("implement"), "implement": spending("done")},
            exhausted={"tokens": "spent"},
        )

    @pytest.mark.parametrize("state", ["plan", "validate"])
    async def test_it_is_acted_on_in_the_next_state_that_has_one(self, bench, state):
        """By a move of the table, whichever of the two has spent it."""
        engine = await bench.engine(self.flow({state: 100}))
        run = await engine.run("flow", budget=Budget(tokens=50))
        assert (run.state, run.status) == ("spent", Status.BUDGET_EXHAUSTED)
        assert run.visits == {"plan": 1, "validate": 1, "implement": 1}
        last = (await journal(engine, run.id))[-1].body
        assert (last.frm, last.by, last.reason) == ("implement", "engine", "tokens budget used up")

    async def test_reopened_with_more_it_goes_on_where_it_stood(self, bench):
        """Nothing that is done is done again, and the old spend counts."""
        engine = await bench.engine(self.flow({"plan": 100, "implement": 1}))
        run = await engine.run("flow", budget=Budget(tokens=50))
        with pytest.raises(RunStateError, match="larger"):
            await engine.reopen(run.id)
        await engine.reopen(run.id, budget=Budget(tokens=200))
        run = await engine.finish(run.id)
        assert (run.status, run.total_spend.tokens, run.visits["plan"]) == (Status.SUCCEEDED, 101, 1)


class TestTheContextOfAMove:
    async def test_observers_and_the_fold_see_what_the_move_set(self, bench):
        """Its own copy, so that looking harms nobody."""
        seen = []

        class Watches:
            def on_state_transition(self, transition):
                seen.append(transition)
                transition.context["plan"].append("scribbled")

        async def work(ctx):
            return Outcome("done", set={"plan": [1, 2]})

        flow = one_step(work)
        engine = await bench.engine(flow, observers=[Watches()])
        run = await engine.run("flow", {"song": "a"})
        assert run.data == {"song": "a", "plan": [1, 2]}
        assert seen[0].context == {"plan": [1, 2, "scribbled"]}
        folded = StateMachine.from_journal(flow.machine, await journal(engine, run.id))
        assert folded.history[0].context == {"plan": [1, 2]}


class TestAStateInWhichARunMayEnd:
    @pytest.mark.parametrize("status", [status for status in Status if status.is_end])
    async def test_it_ends_with_whichever_status(self, quick, status):
        """A response may be the end of a request that is done, and of one that is not."""

        async def work(ctx):
            return Outcome(end=status, reason="needs a person")

        engine = await quick.engine(one_step(work, may_end=("work",)))
        run = await engine.run("flow")
        assert (run.state, run.status, run.reason) == ("work", status, "needs a person")


class TestOneOpenRunOfASession:
    def flow(self):
        async def work(ctx):
            return "done" if ctx.answered("go") else Hold("go", question="Go on?")

        return one_step(work, also=("failed",))

    async def test_a_second_is_refused_until_the_first_has_ended(self, bench):
        """Whichever process starts it; another session is free."""
        here, there = await bench.engine(self.flow()), await bench.engine(self.flow())
        first = await here.start("flow", exclusive="session 1")
        run = await here.finish(first)
        with pytest.raises(KeyTaken) as error:
            await there.start("flow", exclusive="session 1")
        assert (error.value.run_id, error.value.key) == (first, "session 1")
        await there.start("flow", exclusive="session 2")
        await here.release(first, hold=run.token())
        await here.finish(first)
        await there.start("flow", exclusive="session 1")

    async def test_of_many_at_once_one_is_first(self, bench):
        """The others leave no open run behind."""
        engines = [await bench.engine(self.flow()) for _ in range(4)]
        starts = [engine.start("flow", exclusive="s", run_id=f"r{n}") for n, engine in enumerate(engines)]
        results = await asyncio.gather(*starts, return_exceptions=True)
        assert sum(isinstance(result, str) for result in results) == 1
        assert all(isinstance(result, str | KeyTaken) for result in results)

    async def test_a_key_taken_by_a_process_that_died_before_its_run_was_there_is_free(self, quick):
        """Killed between the two, nobody is shut out."""
        engine = await quick.engine(self.flow())
        assert await engine.store.set_mark("exclusive/s", "never created", 0)
        assert await engine.start("flow", exclusive="s")

    async def test_a_run_that_is_reopened_takes_its_key_again(self, quick):
        """Or is refused while another has it."""
        engine = await quick.engine(self.flow())
        first = await engine.start("flow", exclusive="s")
        await engine.finish(first)
        await engine.cancel(first)
        second = await engine.start("flow", exclusive="s")
        await engine.finish(second)
        with pytest.raises(KeyTaken):
            await engine.reopen(first)
        await engine.cancel(second)
        await engine.reopen(first)
        with pytest.raises(KeyTaken):
            await engine.start("flow", exclusive="s")


class TestTurnsKeptOnce:
    async def test_a_later_run_refers_to_what_an_earlier_one_kept(self, bench):
        """By the reference alone: the text is in the store once, and in no journal."""
        turn = "a long turn " * 1000

        async def work(ctx):
            if "turns" in ctx.data:
                texts = [(await ctx.kept(reference)).decode() for reference in ctx.data["turns"]]
                return Outcome("done", set={"read": [len(text) for text in texts]})
            return Outcome("done", append={"turns": [ctx.keep(turn)]})

        engine = await bench.engine(one_step(work))
        first = await engine.run("flow")
        second = await engine.run("flow", {"turns": first.data["turns"]})
        assert second.data["read"] == [len(turn)]
        assert turn not in str(await journal(engine, second.id))


class Kernels:
    """Kernels as a notebook has them: variables in memory, gone with the kernel."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails = 0
        self.breaks_after: set[int] = set()

    @asynccontextmanager
    async def open(self, opening):
        """A kernel in which the cells of the run have been run again."""
        if self.fails:
            self.fails -= 1
            raise OSError("no memory")
        name = f"kernel {opening.epoch}"
        self.log.append(f"open {name}")
        variables = {"n": 0}
        for act in await opening.performed():
            variables["n"] += act.effect.args["add"]
            self.log.append(f"replay {act.effect.args['add']}")
        try:
            yield variables
        finally:
            self.log.append(f"close {name}")

    def flow(self, work, **options):
        @tool("cell", resource="kernel", rebuild=lambda call, kernel: None, **options)
        async def cell(kernel, add: int):
            """Run a cell, which is not idempotent."""
            kernel["n"] += add
            if add in self.breaks_after:
                self.breaks_after.discard(add)
                raise ConnectionError("the reply was lost")
            return {"n": kernel["n"]}

        @query("read", resource="kernel")
        def read(kernel):
            """Read the variable."""
            return kernel["n"]

        return one_step(work, tools=[cell, read], resources={"kernel": self.open})


class TestAResourceOfARun:
    async def test_it_is_opened_when_needed_shared_by_tools_and_closed_at_the_end(self, bench):
        """Queries and effects of one run work on the same one."""

        async def work(ctx):
            for number in (1, 2):
                await ctx.perform("cell", add=number)
            return Outcome("done", set={"n": await ctx.query("read")})

        kernels = Kernels()
        engine = await bench.engine(kernels.flow(work))
        runs = await asyncio.gather(*(engine.run("flow") for _ in range(2)))
        assert [run.data["n"] for run in runs] == [3, 3]
        assert sorted(kernels.log) == ["close kernel 1"] * 2 + ["open kernel 1"] * 2

    async def test_a_hold_closes_it_and_it_is_rebuilt_from_the_journal(self, bench):
        """Nothing is open while a person thinks; later it is as the run's effects have left it."""

        async def work(ctx):
            await ctx.perform("cell", add=1)
            if not ctx.answered("ok"):
                return Hold("ok", question="Go on?")
            await ctx.perform("cell", add=2)
            return Outcome("done", set={"n": await ctx.query("read")})

        kernels = Kernels()
        engine = await bench.engine(kernels.flow(work))
        run = await engine.run("flow")
        assert kernels.log == ["open kernel 1", "close kernel 1"]
        await engine.release(run.id, hold=run.token())
        run = await engine.finish(run.id)
        assert run.data["n"] == 3
        assert kernels.log[2:] == ["open kernel 2", "replay 1", "close kernel 2"]

    async def test_an_effect_in_doubt_is_repeated_on_a_resource_that_was_rebuilt(self, bench):
        """A cell that ran and lost its reply counts once: the variable is not added to twice."""

        async def work(ctx):
            for number in (1, 2):
                await ctx.perform("cell", add=number)
            return Outcome("done", set={"n": await ctx.query("read")})

        kernels = Kernels()
        kernels.breaks_after = {2}
        engine = await bench.engine(kernels.flow(work, retry=RetryPolicy(3, 0, 0)))
        run = await engine.run("flow")
        assert (run.status, run.data["n"]) == (Status.SUCCEEDED, 3)
        assert kernels.log[2:] == ["open kernel 1", "replay 1", "close kernel 1"]

    async def test_one_that_cannot_be_opened_has_done_nothing(self, bench):
        """It is tried again like an effect that certainly did not happen."""

        async def work(ctx):
            return Outcome("done", set={"n": (await ctx.perform("cell", add=1))["n"]})

        kernels = Kernels()
        kernels.fails = 2
        engine = await bench.engine(kernels.flow(work, retry=RetryPolicy(3, 0, 0)))
        assert (await engine.run("flow")).data["n"] == 1

    async def test_a_worker_that_lost_the_run_is_refused_it(self, durable):
        """The epoch fences it: the new worker has a resource of its own, the old one closes."""
        begun, go_on = asyncio.Event(), asyncio.Event()
        seen: list[BaseException] = []

        async def stale(ctx):
            await ctx.perform("cell", add=1)
            begun.set()
            await go_on.wait()
            try:
                await ctx.query("read")
            except BaseException as error:
                seen.append(error)
                raise

        async def work(ctx):
            await ctx.perform("cell", add=1)
            return Outcome("done", set={"n": await ctx.query("read")})

        kernels = Kernels()
        first = await durable.engine(kernels.flow(stale), host="elsewhere")
        run_id = await first.start("flow")
        await begun.wait()
        durable.let_leases_run_out()
        second = await durable.engine(kernels.flow(work))
        assert (await second.finish(run_id)).data["n"] == 1
        go_on.set()
        await until(lambda: not first.active.runs_under_way())
        assert [type(error) for error in seen] == [Fenced]
        assert kernels.log.count("close kernel 1") == 1

    async def test_a_tool_on_an_unknown_resource_is_a_problem_of_the_flow(self, quick):
        """Said before anything runs."""
        flow = one_step(lambda ctx: "done", tools=[Tool("cell", lambda kernel: None, resource="kernle")])
        with pytest.raises(DefinitionError, match="no resource of the flow"):
            flow.check()


class TestRoundsOfAVisit:
    async def test_a_query_behind_an_effect_sees_what_it_wrote(self, bench):
        """Write, then read; asked twice in between, it is asked once."""
        world = {"text": "old", "reads": 0}

        @tool("write")
        def write(text: str) -> None:
            """Write the text."""
            world["text"] = text

        @query("read")
        def read() -> str:
            """Read the text."""
            world["reads"] += 1
            return world["text"]

        async def work(ctx):
            before = [await ctx.query("read"), await ctx.query("read")]
            await ctx.perform("write", text="new")
            return Outcome("done", set={"seen": [*before, await ctx.query("read")]})

        engine = await bench.engine(one_step(work, tools=[write, read]))
        assert (await engine.run("flow")).data["seen"] == ["old", "old", "new"]
        assert world["reads"] == 2

    async def test_facts_computed_from_receipts_choose_the_move(self, bench):
        """By the conditions of the table, from what was measured."""

        @tool("measure")
        def measure() -> dict[str, float]:
            """Measure."""
            return {"score": 0.9}

        async def work(ctx):
            receipt = await ctx.perform("measure")
            return {"passes": receipt["score"] >= 0.8}

        table = {
            "work": [Move("failed", when=when({"passes": False})), Move("done", when=when({"passes": True}))]
        }
        engine = await bench.engine(flow_of(table, {"work": work}, tools=[measure]))
        run = await engine.run("flow")
        assert (run.state, run.data) == ("done", {"passes": True})

    async def test_the_same_command_and_the_same_child_in_a_later_visit_are_others(self, bench):
        """An effect by its visit; a child by the key that its step gives it."""
        ran: list[str] = []

        async def work(ctx):
            await ctx.perform("run", command="make test")
            await ctx.child("part", key=f"part {ctx.visit}")
            return "work" if ctx.visit < 3 else "done"

        async def part(ctx):
            return "done"

        tools = [Tool("run", lambda command: ran.append(command))]
        flow = flow_of({"work": ["work", "done"]}, {"work": work}, tools=tools)
        engine = await bench.engine(flow, one_step(part, name="part"))
        run = await engine.run("flow")
        assert ran == ["make test"] * 3
        assert len(run.children) == 3
