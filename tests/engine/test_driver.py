"""The driver: what outcomes lead to, what they cannot lead to, and what failure does."""

from __future__ import annotations

import asyncio
import threading
from enum import Enum

import pytest

from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.kernel.budget import Spend
from detent.kernel.guards import when
from detent.kernel.machine import Machine, Move
from detent.kernel.policy import BreakerPolicy, RetryPolicy
from detent.kernel.status import Status
from tests.engine.conftest import Bench, flow_of, journal, kinds, one_step, until


async def run_one(bench: Bench, flow: Flow, data=None, **options):
    engine = await bench.engine(flow)
    return await engine.run(flow.name, data, **options)


class TestOutcomes:
    async def test_nothing_takes_the_first_move_whose_condition_holds(self, bench):
        run = await run_one(bench, one_step(lambda ctx: None))
        assert (run.state, run.status) == ("done", Status.SUCCEEDED)

    async def test_a_mapping_is_data_to_set(self, bench):
        run = await run_one(bench, one_step(lambda ctx: {"answer": 42}))
        assert run.data == {"answer": 42}

    async def test_a_text_is_the_next_state(self, bench):
        run = await run_one(bench, one_step(lambda ctx: "degraded", also=("degraded",)))
        assert (run.state, run.status) == ("degraded", Status.DEGRADED)

    async def test_an_enum_member_is_the_next_state(self, bench):
        class Light(str, Enum):
            RED = "red"
            GREEN = "green"
            OFF = "off"

        machine = Machine(
            "light",
            start=Light.RED,
            moves={Light.RED: [Light.OFF, Light.GREEN], Light.GREEN: [Light.OFF]},
            ends={Light.OFF: Status.SUCCEEDED},
        )
        flow = Flow(machine, {Light.RED: lambda ctx: Light.GREEN, Light.GREEN: lambda ctx: None})
        run = await run_one(bench, flow)
        assert run.visits == {"red": 1, "green": 1}

    async def test_an_outcome_says_everything(self, bench):
        outcome = Outcome(
            next="done", set={"a": 1}, append={"log": ["x", "y"]}, reason="because", spend=Spend(3, 4, 0.5),
            by="agent", detail={"mode": "agent"},
        )  # fmt: skip
        engine = await bench.engine(one_step(lambda ctx: outcome))
        run = await engine.run("flow", {"log": ["w"]})
        assert run.data == {"a": 1, "log": ["w", "x", "y"]}
        assert run.spend == Spend(3, 4, 0.5)
        moved = (await journal(engine, run.id))[-1].body
        assert (moved.reason, moved.by, moved.detail) == ("because", "agent", {"mode": "agent"})

    async def test_a_subclass_of_outcome_is_an_outcome(self, quick):
        class Mine(Outcome):
            pass

        run = await run_one(quick, one_step(lambda ctx: Mine(set={"a": 1})))
        assert run.data == {"a": 1}

    async def test_a_hold_waits(self, bench):
        run = await run_one(bench, one_step(lambda ctx: Hold(question="Go on?")))
        assert run.status is Status.WAITING
        assert run.holds["hold"].question == "Go on?"

    async def test_a_hold_that_also_changes_data_is_refused_rather_than_half_heeded(self, bench):
        run = await run_one(bench, one_step(lambda ctx: Outcome(hold=Hold(), set={"a": 1})))
        assert run.status is Status.FAILED
        assert "hold" in run.error

    @pytest.mark.parametrize("name", ["children", "takeovers", "retry", "breaker", "effect:abc"])
    async def test_a_hold_may_not_take_a_name_the_engine_uses(self, quick, name):
        run = await run_one(quick, one_step(lambda ctx: Hold(name)))
        assert run.status is Status.FAILED
        assert name in run.error

    async def test_sync_async_and_blocking_handlers_all_work(self, bench):
        threads = []

        def blocking(ctx):
            threads.append(threading.current_thread() is threading.main_thread())
            return {"blocking": True}

        async def later(ctx):
            await asyncio.sleep(0)
            return {"async": True}

        flow = flow_of(
            {"a": ["b"], "b": ["c"], "c": ["done"]},
            {"a": lambda ctx: {"sync": True}, "b": later, "c": Step("c", blocking, blocking=True)},
        )
        run = await run_one(bench, flow)
        assert run.data == {"sync": True, "async": True, "blocking": True}
        assert threads == [False]

    async def test_a_machine_may_go_round_and_stay(self, bench):
        flow = flow_of(
            {"work": ["work", "done"]},
            {
                "work": lambda ctx: Outcome(
                    "done" if ctx.visit == 5 else "work", append={"visits": [ctx.visit]}
                )
            },
            counts=lambda frm, to: frm == to,
        )
        run = await run_one(bench, flow)
        assert run.data["visits"] == [1, 2, 3, 4, 5]
        assert (run.steps, run.iterations, run.visits) == (5, 4, {"work": 5})


class TestGuardsChoose:
    FLOW_MOVES = {  # noqa: RUF012
        "work": [
            Move("failed", when=when({"verdict": "bad"})),
            Move("done", when=when({"verdict": "good"}), reason="it was good"),
        ]
    }

    @pytest.mark.parametrize(("verdict", "state"), [("good", "done"), ("bad", "failed")])
    async def test_the_facts_choose_the_move(self, bench, verdict, state):
        flow = flow_of(self.FLOW_MOVES, {"work": lambda ctx: {"verdict": verdict}})
        assert (await run_one(bench, flow)).state == state

    async def test_the_edge_gives_the_reason_when_the_step_gives_none(self, quick):
        run = await run_one(quick, flow_of(self.FLOW_MOVES, {"work": lambda ctx: {"verdict": "good"}}))
        assert run.reason == "it was good"

    async def test_naming_a_state_does_not_get_past_its_condition(self, bench):
        flow = flow_of(self.FLOW_MOVES, {"work": lambda ctx: Outcome("done", set={"verdict": "bad"})})
        run = await run_one(bench, flow)
        assert run.status is Status.FAILED
        assert run.state != "done"

    async def test_conditions_see_what_is_appended(self, quick):
        moves = {
            "work": [Move("done", when=when({"log.1": "b"})), Move("failed", when=when({"log.1": "absent"}))]
        }
        flow = flow_of(moves, {"work": lambda ctx: Outcome(append={"log": ["b"]})})
        assert (await run_one(quick, flow, {"log": ["a"]})).state == "done"

    async def test_the_engine_does_not_fail_a_run_past_a_condition(self, bench):
        """A guard on the way into a failed end binds the engine as well; the run ends where it stands."""
        moves = {"work": [Move("failed", when=when({"may_fail": True})), "done"]}

        def broken(ctx):
            raise ValueError("no")

        run = await run_one(bench, flow_of(moves, {"work": broken}))
        assert (run.state, run.status) == ("work", Status.FAILED)

    async def test_when_no_condition_holds_the_run_fails_and_says_which(self, bench):
        run = await run_one(bench, flow_of(self.FLOW_MOVES, {"work": lambda ctx: {"verdict": "?"}}))
        assert run.status is Status.FAILED
        assert run.reason == "work failed: GuardRefusedError"


class TestUndeclared:
    @pytest.mark.parametrize("wanted", ["elsewhere", "work", "DONE", 7, ["done"], object])
    async def test_an_undeclared_next_step_never_routes(self, bench, wanted):
        run = await run_one(bench, one_step(lambda ctx: Outcome(next=wanted)))
        assert run.status is Status.FAILED
        assert (run.state, run.steps) == ("work", 0)

    async def test_the_error_names_where_we_are_and_what_is_allowed(self, quick):
        run = await run_one(quick, one_step(lambda ctx: "elsewhere"))
        assert "work → elsewhere" in run.error
        assert "['done']" in run.error

    async def test_an_event_moves_along_its_edge(self, bench):
        moves = {"work": [Move("degraded", event="give_up"), Move("done", event="finish")]}
        run = await run_one(bench, flow_of(moves, {"work": lambda ctx: Outcome(event="finish")}))
        assert run.state == "done"

    async def test_an_unknown_event_fails_and_names_the_events(self, quick):
        moves = {"work": [Move("done", event="finish")]}
        run = await run_one(quick, flow_of(moves, {"work": lambda ctx: Outcome(event="explode")}))
        assert run.status is Status.FAILED
        assert "finish" in run.error

    async def test_a_step_may_end_the_run_where_the_table_says_so(self, bench):
        flow = one_step(
            lambda ctx: Outcome(end=Status.DEGRADED, set={"a": 1}, reason="enough"), may_end=("work",)
        )
        run = await run_one(bench, flow)
        assert (run.state, run.status, run.data) == ("work", Status.DEGRADED, {"a": 1})

    async def test_a_step_may_not_end_the_run_elsewhere(self, bench):
        run = await run_one(bench, one_step(lambda ctx: Outcome(end=Status.SUCCEEDED)))
        assert run.status is Status.FAILED

    async def test_an_end_must_be_an_end(self, quick):
        flow = one_step(lambda ctx: Outcome(end=Status.WAITING), may_end=("work",))
        assert (await run_one(quick, flow)).status is Status.FAILED


class TestData:
    async def test_a_handler_cannot_change_the_run_by_changing_what_it_sees(self, bench):
        def naughty(ctx):
            with pytest.raises(TypeError):
                ctx.data["list"] = 1
            with pytest.raises(TypeError):
                ctx.data.list = 1
            with pytest.raises((TypeError, AttributeError)):
                ctx.data.list.append(2)
            with pytest.raises(TypeError):
                ctx.data["deep"]["er"] = 2
            with pytest.raises(TypeError):
                ctx.config["a"] = 2

        run = await run_one(bench, one_step(naughty), {"list": [1], "deep": {"er": 1}})
        assert run.status is Status.SUCCEEDED
        assert run.data == {"list": [1], "deep": {"er": 1}}

    async def test_what_a_handler_returned_is_copied(self, bench):
        kept: list[str] = ["as it was"]
        flow = flow_of(
            {"a": ["b"], "b": ["done"]},
            {"a": lambda ctx: {"x": kept}, "b": lambda ctx: kept.append("changed")},
        )
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.data == {"x": ["as it was"]}
        assert (await engine.get(run.id)).data == {"x": ["as it was"]}

    async def test_input_is_copied(self, quick):
        given = {"x": [1]}
        engine = await quick.engine(one_step(lambda ctx: None))
        run_id = await engine.start("flow", given)
        given["x"].append(2)
        assert (await engine.finish(run_id)).data == {"x": [1]}

    @pytest.mark.parametrize(
        ("outcome", "path"),
        [
            (Outcome(set={"a": {"b": [1, object()]}}), "a.b[1]"),
            (Outcome(set={"a": float("inf")}), "a"),
            (Outcome(append={"log": [{"x": {1, 2}}]}), "log[0].x"),
            (Outcome(set={"a": {1: 2}}), "'a' has the key 1"),
        ],
    )
    async def test_data_that_is_no_json_fails_the_run_and_names_the_key(self, bench, outcome, path):
        run = await run_one(bench, one_step(lambda ctx: outcome))
        assert run.status is Status.FAILED
        assert path in run.error

    @pytest.mark.parametrize("text", ["half a pair: \ud800", "\udfff"])
    async def test_text_that_is_no_unicode_is_kept_as_it_is(self, bench, text):
        """Badly decoded mail has such text; it must not stop a run for ever."""
        engine = await bench.engine(one_step(lambda ctx: Outcome(set={"text": text}, reason=text)))
        run = await engine.run("flow")
        assert run.status is Status.SUCCEEDED
        assert (await engine.get(run.id)).data == {"text": text}

    async def test_an_error_that_is_no_unicode_is_spelled_out(self, bench):
        def broken(ctx):
            raise ValueError("half a pair: \ud800")

        run = await run_one(bench, one_step(broken))
        assert run.error == "ValueError: half a pair: \\ud800"

    async def test_appending_to_what_is_no_list_fails_the_run(self, bench):
        run = await run_one(bench, one_step(lambda ctx: Outcome(append={"a": [1]})), {"a": "text"})
        assert run.status is Status.FAILED
        assert "'a' is not a list" in run.error

    async def test_appending_a_text_is_refused_rather_than_taken_apart(self, quick):
        run = await run_one(quick, one_step(lambda ctx: Outcome(append={"log": "hello"})))
        assert run.status is Status.FAILED
        assert "log" in run.error

    async def test_appending_to_nothing_begins_a_list(self, quick):
        run = await run_one(quick, one_step(lambda ctx: Outcome(append={"a": [1], "b": (2,)})), {"b": None})
        assert run.data == {"a": [1], "b": [2]}

    async def test_setting_and_appending_the_same_key_sets_first(self, quick):
        run = await run_one(
            quick, one_step(lambda ctx: Outcome(set={"a": [1]}, append={"a": [2]})), {"a": [0]}
        )
        assert run.data == {"a": [1, 2]}

    async def test_a_long_reason_is_cut_at_200_characters(self, bench):
        run = await run_one(bench, one_step(lambda ctx: Outcome(reason="x" * 500)))
        assert len(run.reason) == 200
        assert run.reason.endswith("…")


def failing_times(times: int, error: Exception):
    """A handler that fails so often, then succeeds."""
    calls: list[int] = []

    def handler(ctx):
        calls.append(ctx.attempt)
        if len(calls) <= times:
            raise error
        return {"attempts": calls}

    return handler, calls


class TestFailure:
    async def test_a_definite_error_ends_the_run_at_once(self, bench):
        handler, calls = failing_times(9, ValueError("wrong"))
        run = await run_one(bench, one_step(Step("work", handler, retry=RetryPolicy(5))))
        assert calls == [1]
        assert run.status is Status.FAILED
        assert "ValueError: wrong" in run.error

    async def test_a_failing_run_moves_into_the_failed_end_the_table_has(self, bench):
        handler, _ = failing_times(9, ValueError("wrong"))
        engine = await bench.engine(one_step(handler, also=("failed",)))
        run = await engine.run("flow")
        assert (run.state, run.status) == ("failed", Status.FAILED)
        assert (await kinds(engine, run.id))[-2:] == ["attempt_failed", "moved"]
        assert "ValueError: wrong" in (await journal(engine, run.id))[-1].body.detail["error"]

    async def test_a_failing_run_without_such_an_end_ends_where_it_stands(self, bench):
        handler, _ = failing_times(9, ValueError("wrong"))
        engine = await bench.engine(one_step(handler))
        run = await engine.run("flow")
        assert (run.state, run.status) == ("work", Status.FAILED)
        assert (await kinds(engine, run.id))[-2:] == ["attempt_failed", "ended"]

    async def test_a_failed_visit_counts_the_time_of_every_attempt(self, quick, clock):
        async def slow(ctx):
            await clock.sleep(4)
            raise ValueError("wrong")

        for also in ((), ("failed",)):
            engine = await quick.engine(one_step(slow, also=also, name=f"f{len(also)}"), clock=clock)
            run_id = await engine.start(f"f{len(also)}")
            await until(lambda: clock.sleeping(4))
            await clock.turn(4)
            assert (await engine.finish(run_id)).seconds == 4

    async def test_a_transient_error_is_tried_again_with_growing_waits(self, bench, clock):
        handler, calls = failing_times(3, Transient("busy"))
        policy = RetryPolicy(4, wait_min=1, wait_max=3)
        engine = await bench.engine(one_step(Step("work", handler, retry=policy)), clock=clock)
        run_id = await engine.start("flow")
        for attempt in (1, 2, 3):
            wait = policy.wait_before(attempt + 1, run_id)
            await until(lambda wait=wait: clock.sleeping(wait))
            assert calls == list(range(1, attempt + 1))
            await clock.turn(wait)
        run = await engine.finish(run_id)
        assert run.data == {"attempts": [1, 2, 3, 4]}
        assert (await journal(engine, run_id))[-1].body.attempt == 4

    async def test_whoever_failed_may_say_how_long_to_wait(self, bench, clock):
        handler, _ = failing_times(1, Transient("slow down", retry_after=7))
        engine = await bench.engine(
            one_step(Step("work", handler, retry=RetryPolicy(2, wait_min=1))), clock=clock
        )
        run_id = await engine.start("flow")
        await until(lambda: clock.sleeping(7))
        await clock.turn(7)
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED

    async def test_attempts_are_used_up(self, bench):
        handler, calls = failing_times(9, Transient("busy"))
        run = await run_one(bench, one_step(Step("work", handler, retry=RetryPolicy(3, 0, 0))))
        assert calls == [1, 2, 3]
        assert run.status is Status.FAILED

    async def test_a_long_wait_for_a_retry_is_a_wait_of_the_run(self, bench, clock):
        handler, calls = failing_times(1, Transient("much later", retry_after=3600))
        engine = await bench.engine(one_step(Step("work", handler, retry=RetryPolicy(2))), clock=clock)
        run_id = await engine.start("flow")
        run = await engine.finish(run_id, patience=10)
        assert run.status is Status.WAITING
        await until(lambda: clock.sleeping(3600))
        await clock.turn(3600)
        run = await engine.finish(run_id)
        assert (run.status, calls) == (Status.SUCCEEDED, [1, 2])

    async def test_a_timeout_is_a_transient_failure_of_one_attempt(self, bench):
        calls = []

        async def slow_once(ctx):
            calls.append(ctx.attempt)
            if ctx.attempt == 1:
                await asyncio.sleep(60)

        flow = one_step(Step("work", slow_once, timeout=0.02, retry=RetryPolicy(2, 0, 0)))
        run = await run_one(bench, flow)
        assert (run.status, calls) == (Status.SUCCEEDED, [1, 2])

    async def test_a_timeout_says_how_long_was_waited(self, quick):
        async def slow(ctx):
            await asyncio.sleep(60)

        run = await run_one(quick, one_step(Step("work", slow, timeout=0.02)))
        assert run.error == "TimeoutError: no answer within 0.02 s"

    async def test_an_error_without_a_text_says_that_it_has_none(self, quick):
        def odd(ctx):
            raise ValueError

        run = await run_one(quick, one_step(odd))
        assert run.error == "ValueError: no message"

    async def test_other_errors_can_be_declared_transient(self, quick):
        handler, calls = failing_times(1, KeyError("x"))
        flow = one_step(Step("work", handler, retry=RetryPolicy(2, 0, 0), retry_on=(KeyError,)))
        assert (await run_one(quick, flow)).status is Status.SUCCEEDED
        assert calls == [1, 2]

    async def test_attempts_start_anew_on_the_next_visit(self, quick):
        seen = []

        def handler(ctx):
            seen.append((ctx.visit, ctx.attempt))
            if ctx.attempt == 1:
                raise Transient("first")
            return "done" if ctx.visit == 2 else "work"

        flow = flow_of(
            {"work": ["work", "done"]}, {"work": Step("work", handler, retry=RetryPolicy(2, 0, 0))}
        )
        await run_one(quick, flow)
        assert seen == [(1, 1), (1, 2), (2, 1), (2, 2)]

    async def test_a_breaker_leaves_a_failing_step_alone_for_a_while(self, bench, clock):
        broken = [True]
        calls = []

        def handler(ctx):
            calls.append(ctx.run_id)
            if broken[0]:
                raise Transient("down")

        step = Step("work", handler, breaker=BreakerPolicy(failures=2, cooldown=60))
        engine = await bench.engine(one_step(step), clock=clock)
        for name in ("one", "two"):
            assert (await engine.run("flow", run_id=name)).status is Status.FAILED
        await engine.start("flow", run_id="three")
        waiting = await engine.finish("three", patience=1)
        assert (waiting.status, waiting.holds["breaker"].why) == (Status.WAITING, "breaker")
        assert calls == ["one", "two"]
        broken[0] = False
        await until(lambda: clock.sleeping(60))
        await clock.turn(60)
        assert (await engine.finish("three")).status is Status.SUCCEEDED

    async def test_a_handler_that_is_cancelled_from_within_does_not_cancel_those_who_wait_for_it(self, quick):
        async def stopped(ctx):
            raise asyncio.CancelledError

        engine = await quick.engine(one_step(stopped))
        run_id = await engine.start("flow")
        task = asyncio.ensure_future(engine.finish(run_id))
        await asyncio.wait({task}, timeout=0.1)
        assert not task.cancelled()
        task.cancel()


class TestFairness:
    async def test_a_long_run_in_memory_does_not_starve_the_others(self, quick):
        def handler(ctx):
            return "done" if ctx.visit == 5000 else "work"

        engine = await quick.engine(
            flow_of({"work": ["work", "done"]}, {"work": handler}), one_step(lambda ctx: None, name="short")
        )
        long = await engine.start("flow")
        short = await engine.run("short")
        assert short.status is Status.SUCCEEDED
        assert (await engine.store.row(long)).now.status is Status.RUNNING
        assert (await engine.finish(long)).steps == 5000

    async def test_a_run_of_many_entries_resumes_from_its_saved_fold(self, bench):
        flow = flow_of(
            {"work": ["work", "done"]}, {"work": lambda ctx: "done" if ctx.visit == 600 else "work"}
        )
        engine: Engine = await bench.engine(flow)
        run = await engine.run("flow")
        saved = await engine.store.saved_fold(run.id)
        assert saved is not None
        assert 256 <= saved["seq"] < run.seq
        assert (await engine.get(run.id)).to_plain() == run.to_plain()
