"""Effects: proposed by steps, performed by the engine, in order, and never blindly twice."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.outcome import Effect, Outcome, Receipt
from detent.engine.step import Step
from detent.engine.tools import NOT_DONE, UNKNOWN, EffectCall, Tool, ToolError
from detent.kernel.budget import Spend
from detent.kernel.entries import EffectBegun, Moved, Proposed, to_plain
from detent.kernel.errors import ConfigurationError, HoldNotOpen, RunStateError
from detent.kernel.guards import when
from detent.kernel.machine import Move
from detent.kernel.plain import encode
from detent.kernel.policy import BreakerPolicy, RetryPolicy
from detent.kernel.status import Status
from tests.engine import answers
from tests.engine.conftest import flow_of, journal, kinds, one_step, until

NO_WAIT = RetryPolicy(3, 0, 0)


class World:
    """What was done to the outside world."""

    def __init__(self) -> None:
        self.done: list[tuple[str, dict]] = []

    def tool(self, name: str, *answers, **options) -> Tool:
        """An effect that gives these answers one after another; an exception is raised instead."""
        left = list(answers)

        async def perform(**args):
            answer = left.pop(0) if left else {"id": f"{name}-{len(self.done) + 1}"}
            if isinstance(answer, Exception):
                raise answer
            self.done.append((name, args))
            return answer

        return Tool(name, perform, **{"retry": NO_WAIT, **options})


@pytest.fixture
def world() -> World:
    return World()


class TestPerforming:
    async def test_effects_are_performed_in_order_and_the_move_comes_last(self, bench, world):
        flow = one_step(
            lambda ctx: Outcome(effects=[Effect("a", {"n": 1}), Effect("b", {"n": 2})]),
            tools=[world.tool("a"), world.tool("b")],
        )
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert world.done == [("a", {"n": 1}), ("b", {"n": 2})]
        assert await kinds(engine, run.id) == [
            "started", "proposed", "effect_begun", "effect_done", "effect_begun", "effect_done", "moved",
        ]  # fmt: skip
        assert [line.state for line in await engine.store.effects(run.id)] == ["done", "done"]

    async def test_receipts_are_used_in_data_and_in_later_effects(self, bench, world):
        def work(ctx):
            ticket = ctx.propose("open", serial="A1")
            mail = ctx.propose("send", about=ticket.id)
            return Outcome(set={"ticket": ticket.id, "all": ticket}, append={"mails": [mail["id"]]})

        flow = one_step(work, tools=[world.tool("open", {"id": "T-7"}), world.tool("send", {"id": "M-1"})])
        run = await (await bench.engine(flow)).run("flow")
        assert world.done == [("open", {"serial": "A1"}), ("send", {"about": "T-7"})]
        assert run.data == {"ticket": "T-7", "all": {"id": "T-7"}, "mails": ["M-1"]}

    async def test_the_receipt_decides_where_a_condition_asks_for_it(self, bench, world):
        def work(ctx):
            return {"ticket": ctx.propose("open").id}

        moves = {
            "work": [
                Move("degraded", when=when({"ticket": "absent"})),
                Move("done", when=when({"ticket": "present"})),
            ]
        }
        run = await (await bench.engine(flow_of(moves, {"work": work}, tools=[world.tool("open")]))).run(
            "flow"
        )
        assert run.state == "done"

    async def test_a_receipt_of_an_effect_that_comes_later_is_refused_before_anything_is_done(
        self, bench, world
    ):
        def work(ctx):
            later = Effect("b")
            first = Effect("a", {"x": Receipt(later.identity("work"))})
            return Outcome(effects=[first, later])

        flow = one_step(work, tools=[world.tool("a"), world.tool("b")])
        run = await (await bench.engine(flow)).run("flow")
        assert run.status is Status.FAILED
        assert "not performed before it" in run.error
        assert not world.done

    async def test_equal_effects_are_one_effect(self, bench, world):
        flow = one_step(
            lambda ctx: Outcome(
                effects=[Effect("a", {"n": 1}), Effect("a", {"n": 1}), Effect("a", {"n": 1}, "other")]
            ),
            tools=[world.tool("a")],
        )
        await (await bench.engine(flow)).run("flow")
        assert len(world.done) == 2

    async def test_a_revisit_performs_what_is_asked_for_again(self, bench, world):
        def work(ctx):
            receipt = ctx.propose("a", n=1)
            return Outcome(
                "done" if ctx.visit == 3 else "work", append={"ids": [receipt.id]}, spend=Spend(10)
            )

        engine = await bench.engine(
            flow_of({"work": ["work", "done"]}, {"work": work}, tools=[world.tool("a")])
        )
        run = await engine.run("flow")
        assert len(world.done) == 3
        assert run.data["ids"] == ["a-1", "a-2", "a-3"]
        done = [entry.body.how for entry in await journal(engine, run.id) if entry.kind == "effect_done"]
        assert done == ["performed"] * 3
        assert run.total_spend == Spend(30)

    async def test_a_tool_may_know_for_whom_it_works(self, quick):
        calls = []

        def perform(call: EffectCall, **args):
            calls.append((call, args))

        flow = one_step(
            lambda ctx: Outcome(effects=[Effect("a", {"n": 1})]), tools=[Tool("a", perform, wants_call=True)]
        )
        run = await (await quick.engine(flow)).run("flow")
        ((call, args),) = calls
        assert (call.run_id, call.attempt, args) == (run.id, 1, {"n": 1})

    async def test_a_step_may_only_propose_what_it_declared(self, quick, world):
        step = Step("work", lambda ctx: Outcome(effects=[Effect("a")]), effects=("b",))
        run = await (await quick.engine(one_step(step, tools=[world.tool("a"), world.tool("b")]))).run("flow")
        assert "may not propose 'a'. Allowed: b" in run.error
        assert not world.done

    @pytest.mark.parametrize("outcome", [
        Outcome("elsewhere", effects=[Effect("a")]),
        Outcome(end=Status.SUCCEEDED, effects=[Effect("a")]),
        Outcome(effects=[Effect("unknown")]),
        Outcome(set={"x": object()}, effects=[Effect("a")]),
        Outcome(effects=[Effect("a", {"x": object()})]),
        Outcome(effects=["a"]),
    ])  # fmt: skip
    async def test_nothing_is_performed_for_an_outcome_that_is_refused(self, bench, world, outcome):
        run = await (await bench.engine(one_step(lambda ctx: outcome, tools=[world.tool("a")]))).run("flow")
        assert run.status is Status.FAILED
        assert not world.done

    async def test_a_run_may_end_in_its_state_after_effects_and_counts_its_time_once(
        self, quick, world, clock
    ):
        async def slow():
            await clock.sleep(3)

        flow = one_step(
            lambda ctx: Outcome(end=Status.DEGRADED, effects=[Effect("a")], spend=Spend(4)),
            may_end=("work",),
            tools=[Tool("a", slow)],
        )
        engine = await quick.engine(flow, clock=clock)
        run_id = await engine.start("flow")
        await until(lambda: clock.sleeping(3))
        await clock.turn(3)
        run = await engine.finish(run_id)
        assert (run.status, run.seconds, run.spend) == (Status.DEGRADED, 3, Spend(4))

    async def test_the_move_says_the_whole_of_the_visit(self, bench, world):
        flow = one_step(
            lambda ctx: Outcome(effects=[Effect("a")], spend=Spend(7, 3)), tools=[world.tool("a")]
        )
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        moved = (await journal(engine, run.id))[-1].body
        assert isinstance(moved, Moved)
        assert moved.spend == run.total_spend == Spend(7, 3)


class TestFailing:
    async def test_a_transient_failure_is_tried_again(self, bench, world):
        busy = ToolError("busy", transient=True)
        flow = one_step(lambda ctx: Outcome(effects=[Effect("a")]), tools=[world.tool("a", busy, busy)])
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert (run.status, len(world.done)) == (Status.SUCCEEDED, 1)
        assert (await kinds(engine, run.id)).count("effect_failed") == 2

    async def test_the_step_is_asked_once_more_when_an_effect_fails_for_good(self, bench, world):
        failures = []

        def work(ctx):
            if ctx.failure is not None:
                failures.append(dict(ctx.failure))
                return "degraded"
            return Outcome("done", effects=[Effect("first"), Effect("a")])

        flow = one_step(
            work,
            also=("degraded",),
            tools=[world.tool("first"), world.tool("a", ToolError("refused", "not for you"))],
        )
        run = await (await bench.engine(flow)).run("flow")
        assert run.state == "degraded"
        (failure,) = failures
        assert (failure["function"], failure["code"], failure["message"], failure["attempts"]) == (
            "a", "refused", "not for you", 1,
        )  # fmt: skip
        assert len(failure["performed"]) == 1

    async def test_attempts_at_an_effect_are_used_up(self, quick, world):
        busy = [ToolError("busy", transient=True)] * 9
        seen = []

        def work(ctx):
            if ctx.failure:
                seen.append(ctx.failure["attempts"])
                return "degraded"
            return Outcome("done", effects=[Effect("a")])

        flow = one_step(work, also=("degraded",), tools=[world.tool("a", *busy)])
        await (await quick.engine(flow)).run("flow")
        assert seen == [3]

    async def test_asking_for_the_failed_effect_again_fails_the_run(self, bench, world):
        flow = one_step(
            lambda ctx: Outcome(effects=[Effect("a")]),
            tools=[world.tool("a", ToolError("refused"), ToolError("refused"))],
        )
        run = await (await bench.engine(flow)).run("flow")
        assert run.status is Status.FAILED
        assert "EffectRefused" in run.reason

    async def test_a_step_cannot_go_back_and_forth_between_two_failing_effects_for_ever(self, bench, world):
        def work(ctx):
            last = ctx.failure["function"] if ctx.failure else "b"
            return Outcome(effects=[Effect("a" if last == "b" else "b")])

        no = [ToolError("refused")] * 50
        flow = one_step(work, tools=[world.tool("a", *no), world.tool("b", *no)])
        run = await (await bench.engine(flow)).run("flow")
        assert run.status is Status.FAILED

    async def test_another_way_may_propose_another_effect(self, bench, world):
        def work(ctx):
            return Outcome(effects=[Effect("b" if ctx.failure else "a")])

        flow = one_step(work, tools=[world.tool("a", ToolError("refused")), world.tool("b")])
        run = await (await bench.engine(flow)).run("flow")
        assert (run.status, world.done) == (Status.SUCCEEDED, [("b", {})])

    async def test_a_condition_refused_after_the_receipts_fails_the_run_and_undoes_nothing(
        self, bench, world
    ):
        moves = {"work": [Move("done", when=when({"ticket": "T-1"}))]}
        flow = flow_of(
            moves,
            {"work": lambda ctx: Outcome("done", set={"ticket": ctx.propose("open").id})},
            tools=[world.tool("open")],
        )
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        assert len(world.done) == 1
        assert [line.state for line in await engine.store.effects(run.id)] == ["done"]

    async def test_a_breaker_leaves_a_failing_tool_alone(self, bench, world, clock):
        down = [ToolError("down", transient=True)] * 9
        tool = world.tool("a", *down, breaker=BreakerPolicy(failures=2, cooldown=60), retry=RetryPolicy(1))
        codes = []

        def work(ctx):
            if ctx.failure:
                codes.append(ctx.failure["code"])
                return "degraded"
            return Outcome("done", effects=[Effect("a")])

        engine = await bench.engine(one_step(work, also=("degraded",), tools=[tool]), clock=clock)
        for _ in range(2):
            await engine.run("flow")
        run_id = await engine.start("flow")
        run = await engine.finish(run_id, patience=1)
        assert (run.status, list(run.holds), codes) == (Status.WAITING, ["retry"], ["down", "down"])
        await clock.turn(61)
        assert (await engine.finish(run_id)).state == "degraded"
        assert codes == ["down", "down", "down"]

    async def test_a_fault_of_single_calls_opens_no_breaker(self, bench, world):
        """One recipient after another may be refused: the service works, and others are served."""
        refused = [ToolError("refused", transient=True, of_call=True)] * 5
        tool = world.tool("a", *refused, breaker=BreakerPolicy(failures=2, cooldown=60), retry=RetryPolicy(1))
        engine = await bench.engine(
            one_step(lambda ctx: Outcome("done", effects=[Effect("a")]), tools=[tool])
        )
        runs = [await engine.run("flow") for _ in range(6)]
        assert [run.status for run in runs] == [Status.FAILED] * 5 + [Status.SUCCEEDED]

    async def test_a_fault_of_a_single_call_shows_that_the_service_works_again(self, bench, world, clock):
        down = ToolError("down", transient=True)
        refused = ToolError("refused", of_call=True)
        breaker = BreakerPolicy(failures=2, cooldown=60)
        tool = world.tool("a", down, refused, down, breaker=breaker, retry=RetryPolicy(1))
        engine = await bench.engine(
            one_step(lambda ctx: Outcome("done", effects=[Effect("a")]), tools=[tool])
        )
        for _ in range(3):
            assert (await engine.run("flow")).status is Status.FAILED
        assert (await engine.run("flow")).status is Status.SUCCEEDED


class TestDoubt:
    def flow(self, tool):
        return one_step(lambda ctx: Outcome(set={"receipt": ctx.propose("a", n=1)}), tools=[tool])

    @pytest.mark.parametrize("error", [RuntimeError("connection lost"), TimeoutError()])
    async def test_any_other_error_leaves_it_in_doubt_and_a_person_is_asked(self, bench, world, error):
        engine = await bench.engine(self.flow(world.tool("a", error)))
        run = await engine.run("flow")
        assert run.status is Status.WAITING
        ((name, held),) = run.holds.items()
        assert name.startswith("effect:")
        assert (held.why, held.about["tool"], held.about["args"]) == ("attention", "a", {"n": 1})
        assert held.choices == ["happened", "again", "skip"]

    async def test_it_happened(self, bench, world):
        engine = await bench.engine(self.flow(world.tool("a", RuntimeError("lost"))))
        run = await engine.run("flow")
        await answers.resolve(engine, run.id, "happened", receipt={"id": 9})
        run = await engine.finish(run.id)
        assert (run.data, world.done) == ({"receipt": {"id": 9}}, [])

    async def test_do_it_again(self, bench, world):
        engine = await bench.engine(self.flow(world.tool("a", RuntimeError("lost"))))
        run = await engine.run("flow")
        await answers.resolve(engine, run.id, "again")
        run = await engine.finish(run.id)
        assert (run.status, len(world.done)) == (Status.SUCCEEDED, 1)

    async def test_skip_it(self, bench, world):
        engine = await bench.engine(self.flow(world.tool("a", RuntimeError("lost"))))
        run = await engine.run("flow")
        await answers.resolve(engine, run.id, "skip")
        run = await engine.finish(run.id)
        assert (run.data, world.done) == ({"receipt": None}, [])
        assert [line.state for line in await engine.store.effects(run.id)] == ["skipped"]

    async def test_it_can_only_be_settled_as_one_of_three(self, quick, world):
        engine = await quick.engine(self.flow(world.tool("a", RuntimeError("lost"))))
        run = await engine.run("flow")
        with pytest.raises(ConfigurationError, match="settled as happened, again or skip, not as 'hapened'"):
            await answers.resolve(engine, run.id, "hapened")
        with pytest.raises(HoldNotOpen, match="is answered with resolve"):
            await answers.release(engine, run.id, "happened")
        assert (await engine.get(run.id)).status is Status.WAITING

    async def test_an_idempotent_effect_is_repeated(self, bench, world):
        engine = await bench.engine(self.flow(world.tool("a", RuntimeError("lost"), idempotent=True)))
        run = await engine.run("flow")
        assert (run.status, len(world.done)) == (Status.SUCCEEDED, 1)

    async def test_an_idempotent_effect_that_stays_in_doubt_ends_with_a_person(self, quick, world):
        lost = [RuntimeError("lost")] * 9
        run = await (await quick.engine(self.flow(world.tool("a", *lost, idempotent=True)))).run("flow")
        assert run.status is Status.WAITING

    async def test_an_effect_on_a_rebuilt_resource_is_repeated(self, bench, world):
        """The third way out of doubt: a kernel, say, without the cell that may have run."""
        rebuilt = []
        tool = world.tool("a", RuntimeError("lost"), rebuild=lambda call: rebuilt.append(call.key))
        engine = await bench.engine(self.flow(tool))
        run = await engine.run("flow")
        assert (run.status, len(world.done), len(rebuilt)) == (Status.SUCCEEDED, 1, 1)

    async def test_a_resource_that_cannot_be_rebuilt_is_a_question(self, bench, world):
        def rebuild(call):
            raise OSError("no such kernel")

        engine = await bench.engine(self.flow(world.tool("a", RuntimeError("lost"), rebuild=rebuild)))
        run = await engine.run("flow")
        assert (run.status, world.done) == (Status.WAITING, [])

    async def test_a_probe_that_finds_it_gives_the_receipt(self, bench, world):
        engine = await bench.engine(
            self.flow(world.tool("a", RuntimeError("lost"), probe=lambda n: {"found": n}))
        )
        run = await engine.run("flow")
        assert (run.data, world.done) == ({"receipt": {"found": 1}}, [])

    async def test_a_probe_that_is_sure_it_did_not_happen_has_it_done(self, bench, world):
        engine = await bench.engine(
            self.flow(world.tool("a", RuntimeError("lost"), probe=lambda n: NOT_DONE))
        )
        run = await engine.run("flow")
        assert (run.status, len(world.done)) == (Status.SUCCEEDED, 1)

    async def test_a_probe_that_cannot_tell_leaves_it_to_a_person(self, quick, world):
        run = await (
            await quick.engine(self.flow(world.tool("a", RuntimeError("lost"), probe=lambda n: UNKNOWN)))
        ).run("flow")
        assert run.status is Status.WAITING

    async def test_a_probe_that_cannot_tell_does_not_matter_where_repeating_is_harmless(self, quick, world):
        tool = world.tool("a", RuntimeError("lost"), probe=lambda n: UNKNOWN, idempotent=True)
        run = await (await quick.engine(self.flow(tool))).run("flow")
        assert (run.status, len(world.done)) == (Status.SUCCEEDED, 1)

    async def test_a_failing_probe_is_asked_again(self, quick, world):
        answers = [ConnectionError(), {"found": True}]

        async def probe(n):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        run = await (await quick.engine(self.flow(world.tool("a", RuntimeError("lost"), probe=probe)))).run(
            "flow"
        )
        assert run.data == {"receipt": {"found": True}}

    async def test_an_effect_begun_by_a_process_that_is_gone_is_settled_not_repeated(self, bench, world):
        """Stopped in the middle of an effect: whoever takes the run up asks the world first."""
        begun = asyncio.Event()

        async def stuck(n):
            begun.set()
            await asyncio.sleep(60)

        first = await bench.engine(self.flow(Tool("a", stuck)))
        run_id = await first.start("flow")
        await begun.wait()
        await first.stop(grace=0)
        second = await bench.engine(self.flow(world.tool("a", probe=lambda n: {"found": n})))
        run = await second.finish(run_id)
        assert (run.data, world.done) == ({"receipt": {"found": 1}}, [])

    async def test_a_cancelled_run_that_is_reopened_settles_its_doubt_first(self, bench, world):
        engine = await bench.engine(self.flow(world.tool("a", RuntimeError("lost"))))
        run = await engine.run("flow")
        await engine.cancel(run.id)
        await engine.reopen(run.id)
        run = await engine.finish(run.id)
        assert run.status is Status.WAITING
        assert not world.done

    async def test_an_effect_left_in_doubt_by_a_migration_is_settled_when_it_is_proposed_again(
        self, bench, world
    ):
        from detent.engine.flow import Migration

        def make(version, tool, **options):
            work = Step("send", lambda ctx: Outcome("done", effects=[Effect("a", {"n": 1})]))
            moves = {"work": ["done"]} if version == 1 else {"work": ["work2"], "work2": ["done"]}
            return flow_of(moves, dict.fromkeys(moves, work), version=version, tools=[tool], **options)

        first = await bench.engine(make(1, world.tool("a", RuntimeError("lost"))))
        run = await first.run("flow")
        await first.stop()
        probes = []

        def probe(n):
            probes.append(n)
            return {"found": n}

        second = await bench.engine(
            make(2, world.tool("a", probe=probe), migrations={1: lambda run: Migration("work2")})
        )
        with pytest.raises(RunStateError):  # the migration took it out of the wait
            await answers.resolve(second, run.id, "skip")
        run = await second.finish(run.id)
        assert (run.status, probes, world.done) == (Status.SUCCEEDED, [1], [])

    async def test_the_journal_says_the_effect_was_begun_before_it_is_performed(self, bench):
        seen = []

        async def perform():
            seen.extend(entry.body for entry in await journal(engine, "r1"))

        engine = await bench.engine(
            one_step(lambda ctx: Outcome(effects=[Effect("a")]), tools=[Tool("a", perform)])
        )
        await engine.run("flow", run_id="r1")
        assert [type(body) for body in seen[1:]] == [Proposed, EffectBegun]


class TestPrivacy:
    async def test_the_arguments_of_a_private_tool_lie_beside_the_journal_and_can_be_purged(
        self, bench, world
    ):
        mail = world.tool("mail", {"id": "m1"}, private=True)
        plain = world.tool("log")

        def work(ctx):
            sent = ctx.propose("mail", body="Dear Ms Secret", to="ms@secret.example")
            ctx.propose("log", about=sent.id)
            return Outcome("done")

        engine = await bench.engine(one_step(work, tools=[mail, plain]))
        run = await engine.run("flow")
        assert run.status is Status.SUCCEEDED
        assert world.done == [
            ("mail", {"body": "Dear Ms Secret", "to": "ms@secret.example"}),
            ("log", {"about": "m1"}),
        ]
        written = encode([to_plain(entry) for entry in await journal(engine, run.id)])
        assert "Secret" not in written
        assert "secret" not in written
        assert await engine.store.purge(run.id) == 1
        assert (await engine.get(run.id)).status is Status.SUCCEEDED


async def test_happened_needs_the_receipt_where_the_step_uses_it(quick):
    """Else the books would say that nothing was paid."""

    def pay():
        raise ConnectionError("the line broke")

    def work(ctx):
        return Outcome(set={"payment": ctx.propose("pay").id})

    engine = await quick.engine(one_step(work, tools=[Tool("pay", pay)]))
    run = await engine.run("flow")
    with pytest.raises(ConfigurationError, match="say what that was with the receipt"):
        await engine.resolve(run.id, "happened", hold=run.token())
    await engine.resolve(run.id, "happened", hold=run.token(), receipt={"id": "P-1"})
    assert (await engine.finish(run.id)).data == {"payment": "P-1"}
