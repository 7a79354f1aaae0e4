"""Nothing a handler, tool, guard or observer gives back or raises can wedge its run or its neighbours.

Every case drives a real run on SQLite with a healthy one beside it that waits for the clock, and asks where
both ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import inspect
import itertools
import math
import sqlite3
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import Budget, Spend
from detent.kernel.errors import InvalidValue
from detent.kernel.guards import Guard
from detent.kernel.machine import Move
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine.conftest import flow_of, one_step, until
from tests.examples import examples


class Odd:
    """An object of somebody's own."""


class Escape(BaseException):
    """An exception no `except Exception` catches."""


class Mute(Exception):
    """An exception that cannot say what is wrong."""

    def __str__(self) -> str:
        raise ValueError("no words")


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["itself"] = value
    return value


def deep(levels: int = 5000) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def raising(error: BaseException) -> None:
    raise error


UNPLAIN = {
    "object": Odd(),
    "class": Odd,
    "function": print,
    "set": {1, 2},
    "bytes": b"raw",
    "nan": math.nan,
    "inf": math.inf,
    "endless integer": 10**5000,
    "contains itself": endless(),
    "deep": deep(),
    "key that is no text": {1: "one"},
    "inside": {"a": [{"b": Odd()}]},
    "generator": iter([]),
    "complex": 1j,
}
"""Values that no journal can keep."""
ODD = {
    **UNPLAIN, "none": None, "number": 5, "text": "4 kg", "empty text": "", "truth": True, "list": [1],
    "mapping": {"a": 1}, "date": datetime.datetime(2026, 1, 1), "half a pair": "\ud800", "nul": "a\0b",
    "long text": "x" * 10_000, "negative": -1, "fraction": 0.5, "huge": 1e300,
}  # fmt: skip
"""These and values that are right in one place and wrong in another."""
RAISED = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "BaseException": lambda: Escape("out"),
    "RecursionError": RecursionError,
    "MemoryError": MemoryError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "an error without words": Mute,
    "half a pair": lambda: ValueError("\ud800"),
    "a detail of its own": lambda: with_detail(ValueError("not found")),
    "group": lambda: BaseExceptionGroup("two", [Escape(), ValueError()]),
}
"""What code may raise."""


def with_detail(error: Any) -> Any:
    error.detail = "Not Found"  # as errors of web frameworks have
    return error


def napping():
    """A healthy flow that the clock must wake."""

    def nap(ctx):
        return {"woken": ctx.answer()} if ctx.answered() else Hold(wake_at=ctx.now() + 0.05, default="ok")

    return one_step(nap, name="nap")


async def beside(bench, *flows, **options):
    """Runs of flows as far as they come, once a healthy run beside them has succeeded, and another after."""
    for number, flow in enumerate(flows):
        flow.name = f"bad {number}"
    engine = await bench.engine(*flows, napping(), **options)
    runs = []
    async with asyncio.timeout(120):
        ids = [await engine.start(flow.name) for flow in flows]
        neighbour = await engine.start("nap")
        for run_id in ids:
            with contextlib.suppress(Exception):  # of a driver that failed, told to those who wait
                await engine.finish(run_id, patience=1)
            await until(lambda run_id=run_id: engine.active.driver_of(run_id) is None)
            runs.append(await engine.get(run_id))
            assert runs[-1].status is not Status.RUNNING
            assert (await engine.store.row(run_id)).owner is None
        assert (await engine.finish(neighbour)).data == {"woken": "ok"}
        assert (await engine.run("nap")).status is Status.SUCCEEDED
    return runs if len(runs) > 1 else runs[0]


HERE = __file__


def line_in(function, text):
    """`file:line` of the line of a function that has a text in it."""
    lines, first = inspect.getsourcelines(function)
    return f"{HERE}:{first + next(number for number, line in enumerate(lines) if text in line)}"


# -- values where they are made -----------------------------------------------------------------------------


CHECKED = {
    "Outcome.spend": lambda ctx, bad: Outcome(spend=bad),
    "Outcome.hold": lambda ctx, bad: Outcome(hold=bad),
    "Outcome.end": lambda ctx, bad: Outcome(end=bad),
    "Outcome.effects": lambda ctx, bad: Outcome(effects=bad),
    "Hold.wake_at": lambda ctx, bad: Hold(wake_at=bad),
    "Effect.args": lambda ctx, bad: Outcome(effects=[Effect("do", bad)]),
    "Spend": lambda ctx, bad: Outcome(spend=Spend(bad)),
    "Spend.cost_usd": lambda ctx, bad: Outcome(spend=Spend(cost_usd=bad)),
    "Transient": lambda ctx, bad: raising(Transient("later", retry_after=bad)),
}
"""Places that take none of these values: a text, an object, not-a-number, infinity."""


@pytest.mark.parametrize("bad", ["4 kg", Odd(), math.nan, math.inf], ids=["text", "object", "nan", "inf"])
@pytest.mark.parametrize("place", CHECKED)
async def test_a_wrong_value_fails_the_attempt_and_names_the_line_that_made_it(durable, place, bad):
    make = CHECKED[place]
    run = await beside(durable, one_step(lambda ctx: make(ctx, bad)))
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.startswith("InvalidValue: ")
    assert "; it takes " in run.error
    assert f"({HERE}:{make.__code__.co_firstlineno})" in run.error


async def test_the_sentence_says_field_value_and_what_would_be_right(durable):
    async def weigh(ctx):
        await ctx.note("weighed", "4 kg")

    run = await beside(durable, one_step(weigh))
    assert run.error == (
        "InvalidValue: The spend of a note is '4 kg'; it takes a Spend; what a note says is given by name, "
        f'as in ctx.note("weighed", kg=4). ({line_in(weigh, "ctx.note")})'
    )


async def test_a_time_that_is_none_is_refused_where_it_is_made(durable):
    def wait(ctx):
        return Hold("delivery", wake_at="tomorrow")

    run = await beside(durable, one_step(wait))
    assert run.error == (
        "InvalidValue: Hold.wake_at is 'tomorrow'; it takes seconds since the epoch, such as ctx.now() + 3600"
        f", or the timestamp() of a datetime. ({line_in(wait, 'tomorrow')})"
    )


@pytest.mark.parametrize("value", UNPLAIN.values(), ids=UNPLAIN)
async def test_data_no_journal_can_keep_names_the_key_and_the_handler(durable, value):
    async def work(ctx):
        return {"kept": value}

    run = await beside(durable, one_step(work))
    assert run.status is Status.FAILED
    assert run.error is not None
    assert "'kept" in run.error
    assert f"({line_in(work, 'def work')})" in run.error


def test_values_are_checked_in_a_program_of_ones_own_too():
    for make in (
        lambda: Spend("5"), lambda: Spend(-1), lambda: Spend(True), lambda: Spend(cost_usd=-0.1),
        lambda: Budget(tokens="many"), lambda: Budget(seconds=math.inf), lambda: Budget(steps=True),
        lambda: Budget(enforce="no"), lambda: Effect(5), lambda: Effect(""), lambda: Effect("do", {1: 2}),
        lambda: Effect("do", key=5), lambda: Hold(5), lambda: Hold(""), lambda: Hold("a\nb"),
        lambda: Hold(why=None), lambda: Hold(question=5), lambda: Hold(choices="yes"),
        lambda: Hold(choices=[1]), lambda: Hold(wake_at=True), lambda: Hold(wake_at=1e300),
        lambda: Hold(default={1}), lambda: Hold(about=5), lambda: Outcome(set=5), lambda: Outcome(append=5),
        lambda: Outcome(detail=5), lambda: Outcome(event=5), lambda: Outcome(reason=5), lambda: Outcome(by=5),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match="; it (takes|must be) |cannot be kept") as caught:
            make()
        assert caught.value.where == f"{HERE}:{make.__code__.co_firstlineno}"


def test_numbers_of_other_libraries_are_taken_for_what_they_are():
    import decimal

    class Number:
        def __index__(self):
            return 5

    spend = Spend(Number(), 1, decimal.Decimal("0.25"))
    assert spend == Spend(5, 1, 0.25)
    assert type(spend.cost_usd) is float


# -- every place with every value ---------------------------------------------------------------------------


def asked(value):
    """A flow that asks a query, whose answer is this."""

    async def work(ctx):
        return {"answer": await ctx.query("look")}

    return one_step(work, tools=[Tool("look", lambda: value, "query")])


def performed(value, **options):
    """A flow that performs an effect, whose receipt is this."""

    def work(ctx):
        return Outcome(set={"receipt": ctx.propose("do")})

    return one_step(work, tools=[Tool("do", lambda: value, retry=RetryPolicy(2, 0, 0), **options)])


def probed(value):
    """A flow whose effect is in doubt, and whose probe says this."""

    def do():
        raise RuntimeError("connection cut")

    def work(ctx):
        return Outcome(set={"receipt": ctx.propose("do")})

    return one_step(work, tools=[Tool("do", do, probe=lambda: value, retry=RetryPolicy(1, 0, 0))])


def guarded(value):
    moves = {"work": [Move("done", when=Guard("odd", lambda data: value)), Move("failed")]}
    return flow_of(moves, {"work": lambda ctx: {"a": 1}})


def handler(make):
    return lambda value: one_step(lambda ctx: make(ctx, value))


PLACES = {
    "returned": handler(lambda ctx, bad: bad),
    "Outcome.next": handler(lambda ctx, bad: Outcome(next=bad)),
    "Outcome.event": handler(lambda ctx, bad: Outcome(event=bad)),
    "Outcome.set": handler(lambda ctx, bad: Outcome(set=bad)),
    "Outcome.set of a key": handler(lambda ctx, bad: Outcome(set={"a": bad})),
    "Outcome.append": handler(lambda ctx, bad: Outcome(append={"a": bad})),
    "Outcome.append of an item": handler(lambda ctx, bad: Outcome(append={"a": [bad]})),
    "Outcome.effects": handler(lambda ctx, bad: Outcome(effects=[bad])),
    "Outcome.reason": handler(lambda ctx, bad: Outcome(reason=bad)),
    "Outcome.spend": handler(lambda ctx, bad: Outcome(spend=bad)),
    "Outcome.spend, replaced": handler(lambda ctx, bad: Outcome()._replace(spend=bad)),
    "Outcome.by, replaced": handler(lambda ctx, bad: Outcome()._replace(by=bad)),
    "Outcome.detail": handler(lambda ctx, bad: Outcome(detail={"a": bad})),
    "Hold.name": handler(lambda ctx, bad: Hold(bad)),
    "Hold.why": handler(lambda ctx, bad: Hold(why=bad)),
    "Hold.question": handler(lambda ctx, bad: Hold(question=bad)),
    "Hold.choices": handler(lambda ctx, bad: Hold(choices=[bad])),
    "Hold.wake_at": handler(lambda ctx, bad: None if ctx.answered() else Hold(wake_at=bad)),
    "Hold.default": handler(lambda ctx, bad: Hold(default=bad)),
    "Hold.about": handler(lambda ctx, bad: Hold(about={"a": bad})),
    "ctx.note topic": handler(lambda ctx, bad: ctx.note(bad)),
    "ctx.note value": handler(lambda ctx, bad: ctx.note("topic", a=bad)),
    "ctx.tag": handler(lambda ctx, bad: ctx.tag(bad)),
    "ctx.tag remove": handler(lambda ctx, bad: ctx.tag(remove=bad)),
    "ctx.emit message": handler(lambda ctx, bad: ctx.emit(bad)),
    "ctx.emit level": handler(lambda ctx, bad: ctx.emit("text", bad)),
    "ctx.emit metadata": handler(lambda ctx, bad: ctx.emit("text", a=bad)),
    "ctx.keep": handler(lambda ctx, bad: {"kept": ctx.keep(bad)}),
    "ctx.once key": handler(lambda ctx, bad: ctx.once(bad, lambda: 1)),
    "ctx.once answer": handler(lambda ctx, bad: ctx.once("key", lambda: bad)),
    "ctx.once spend": handler(lambda ctx, bad: ctx.once("key", lambda: 1, spend=lambda _: bad)),
    "ctx.propose argument": handler(lambda ctx, bad: ctx.propose("do", a=bad)),
    "ctx.query argument": handler(lambda ctx, bad: ctx.query("look", a=bad)),
    "ctx.child key": handler(lambda ctx, bad: ctx.child("nap", key=bad)),
    "ctx.child data": handler(lambda ctx, bad: ctx.child("nap", bad, key="a")),
    "ctx.child tags": handler(lambda ctx, bad: ctx.child("nap", key="a", tags=[bad])),
    "ctx.child budget": handler(lambda ctx, bad: ctx.child("nap", key="a", budget=bad)),
    "ctx.child config": handler(lambda ctx, bad: ctx.child("nap", key="a", config={"a": bad})),
    "ToolError.code": lambda bad: one_step(
        lambda ctx: Outcome(effects=[Effect("do")]), tools=[Tool("do", lambda: raising(ToolError(bad, bad)))]
    ),
    "query answer": asked,
    "receipt": performed,
    "receipt of an idempotent tool": lambda bad: performed(bad, idempotent=True),
    "probe": probed,
    "guard": guarded,
    "on_failure": lambda bad: one_step(
        lambda ctx: raising(ValueError("no")), on_failure=lambda run, reason, error: bad
    ),
    "closing": lambda bad: one_step(lambda ctx: None, closing=lambda data: bad),
    "before": lambda bad: flow_of(
        {"work": ["done"]}, {"work": Step("work", lambda ctx: None, before=lambda ctx: bad)}
    ),
    "conclude": lambda bad: flow_of(
        {"work": ["done"]}, {"work": Step("work", lambda ctx: 1, conclude=lambda ctx, output: bad)}
    ),
    "inputs": lambda bad: flow_of(
        {"work": ["done"]}, {"work": Step("work", lambda ctx: ctx.inputs(), inputs=lambda ctx: bad)}
    ),
}  # fmt: skip
"""Where a value from outside comes in, as a flow made of the value."""


@pytest.mark.parametrize("place", PLACES)
async def test_no_value_in_any_place_keeps_a_run_from_ending(durable, place):
    runs = await beside(durable, *(PLACES[place](value) for value in ODD.values()))
    assert len(runs) == len(ODD)


# -- what is raised -----------------------------------------------------------------------------------------


async def _raise_later(error):
    await asyncio.sleep(0)
    raise error


def raising_flow(where, make):
    """A flow in which something raises."""
    if where == "async handler":

        async def work(ctx):
            await _raise_later(make())

        return one_step(work)
    if where == "plain handler":
        return one_step(lambda ctx: raising(make()))
    if where == "blocking handler":
        return flow_of({"work": ["done"]}, {"work": Step("work", lambda ctx: raising(make()), blocking=True)})
    if where == "handler with a timeout":
        return flow_of({"work": ["done"]}, {"work": Step("work", lambda ctx: raising(make()), timeout=30)})
    if where == "opaque handler":
        step = Step("work", lambda ctx: raising(make()), opaque=True, into="a")
        return flow_of({"work": ["done"]}, {"work": step})
    if where in ("query", "blocking query"):

        async def ask(ctx):
            return {"a": await ctx.query("look")}

        blocking = where == "blocking query"
        return one_step(ask, tools=[Tool("look", lambda: raising(make()), "query", blocking=blocking)])
    if where == "once":
        return one_step(lambda ctx: ctx.once("key", lambda: raising(make())))
    if where in ("effect", "blocking effect"):
        tool = Tool("do", lambda: raising(make()), blocking=where == "blocking effect")
        return one_step(lambda ctx: Outcome(effects=[Effect("do")]), tools=[tool])
    if where == "probe":
        tool = Tool(
            "do",
            lambda: raising(RuntimeError("cut")),
            probe=lambda: raising(make()),
            retry=RetryPolicy(1, 0, 0),
        )
        return one_step(lambda ctx: Outcome(effects=[Effect("do")]), tools=[tool])
    if where == "guard":
        moves = {"work": [Move("done", when=Guard("odd", lambda data: raising(make())))]}
        return flow_of(moves, {"work": lambda ctx: {"a": 1}})
    if where == "guard after an effect":
        moves = {"work": [Move("done", when=Guard("odd", lambda data: bool(data["a"]) and raising(make())))]}
        steps = {"work": lambda ctx: Outcome(set={"a": ctx.propose("do")})}
        return flow_of(moves, steps, tools=[Tool("do", lambda: 1)])
    if where == "closing":
        return one_step(lambda ctx: None, closing=lambda data: raising(make()))
    if where == "on_failure":
        return one_step(lambda ctx: raising(ValueError()), on_failure=lambda *_: raising(make()))
    if where == "ended":
        flow = one_step(lambda ctx: None)
        flow.ended = lambda store, run: raising(make())
        return flow
    assert where == "before"
    step = Step("work", lambda ctx: None, before=lambda ctx: raising(make()))
    return flow_of({"work": ["done"]}, {"work": step})


WHERE = {
    "async handler": Status.FAILED, "plain handler": Status.FAILED, "blocking handler": Status.FAILED,
    "handler with a timeout": Status.FAILED, "opaque handler": Status.FAILED, "query": Status.FAILED,
    "blocking query": Status.FAILED, "once": Status.FAILED, "effect": Status.WAITING,
    "blocking effect": Status.WAITING, "probe": Status.WAITING, "guard": Status.FAILED,
    "guard after an effect": Status.FAILED, "closing": None, "on_failure": Status.WAITING,
    "ended": Status.SUCCEEDED, "before": Status.FAILED,
}  # fmt: skip
"""Where a run ends whose code raises there: a failed attempt, or a hold for attention."""


@pytest.mark.parametrize("where", WHERE)
async def test_whatever_is_raised_the_run_ends_in_a_defined_place(durable, where):
    runs = await beside(durable, *(raising_flow(where, make) for make in RAISED.values()))
    for name, run in zip(RAISED, runs, strict=True):
        assert run.status is (WHERE[where] or run.status), name
        if run.status is Status.WAITING:
            assert {hold.why for hold in run.holds.values()} == {"attention"}, name


async def test_whatever_an_observer_raises_nobody_notices(durable):
    class Observer:
        def __init__(self, make):
            self.make = make

        def on_entry(self, run_id, flow, entry):
            raise self.make()

    observers = [Observer(make) for make in RAISED.values()]
    run = await beside(durable, one_step(lambda ctx: None), observers=observers)
    assert run.status is Status.SUCCEEDED


async def test_whatever_a_migration_or_a_resource_raises_other_runs_are_resumed(durable):
    first = await durable.engine(one_step(lambda ctx: None), napping())
    await first.start("flow", run_id="bad", drive=False)
    await first.stop()

    class Resource:
        def __init__(self, make):
            self.make = make

        async def open(self):
            raise self.make()

        async def close(self):
            pass

    for make in RAISED.values():
        for flow in (
            one_step(lambda ctx: None, version=2, migrations={1: lambda run, make=make: raising(make())}),
            one_step(lambda ctx: None, needs=[Resource(make)]),
        ):
            engine = await durable.engine(flow, napping())
            nap = await engine.start("nap", drive=False)
            assert await engine.resume_all() == [nap]
            assert (await engine.finish(nap)).status is Status.SUCCEEDED
            assert (await engine.store.row("bad")).owner is None
            await engine.stop()


async def test_a_failure_that_is_transient_is_tried_again_by_the_policy(durable):
    attempts = itertools.count(1)

    def work(ctx):
        if next(attempts) < 3:
            raise SystemExit(1)

    step = Step("work", work, retry=RetryPolicy(3, 0, 0), retry_on=(RuntimeError,))
    run = await beside(durable, flow_of({"work": ["done"]}, {"work": step}))
    assert run.status is Status.SUCCEEDED


# -- effects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"idempotent": True}], ids=["plain", "idempotent"])
async def test_an_effect_whose_receipt_cannot_be_kept_is_not_performed_again(durable, options):
    calls = []

    def pay():
        calls.append(1)
        return Odd()

    def work(ctx):
        return Outcome(set={"paid": ctx.propose("pay")})

    tool = Tool("pay", pay, retry=RetryPolicy(3, 0, 0), **options)
    run = await beside(durable, one_step(work, tools=[tool]))
    (hold,) = run.holds.values()
    assert (run.status, len(calls), hold.why) == (Status.WAITING, 1, "attention")
    assert hold.question == "'pay' was performed, but its receipt cannot be kept. Did it happen?"
    assert f"({line_in(pay, 'def pay')})" in hold.about["error"]


async def test_an_answer_that_was_paid_for_is_kept_although_its_price_is_wrong(durable):
    calls = []

    async def work(ctx):
        return {
            "answer": await ctx.once("key", lambda: calls.append(1) or "bought", spend=lambda _: "3 cents")
        }

    step = Step("work", work, retry=RetryPolicy(2, 0, 0), retry_on=(InvalidValue,))
    run = await beside(durable, flow_of({"work": ["done"]}, {"work": step}))
    assert (run.status, run.data, calls) == (Status.SUCCEEDED, {"answer": "bought"}, [1])


# -- stores of the version before ---------------------------------------------------------------------------


async def test_a_timer_that_is_none_in_an_old_store_breaks_no_other(durable, caplog):
    asking = one_step(lambda ctx: None if ctx.answered() else Hold(question="Go on?"))
    first = await durable.engine(asking, napping())
    await first.run("flow", run_id="bad")
    await first.stop()
    with sqlite3.connect(durable.path) as database:  # as version 0.1 wrote it
        database.execute("UPDATE runs SET wake_at = 'tomorrow'")
        body = """{"name":"hold","why":"person","question":"Go on?","wake_at":"tomorrow"}"""
        assert database.execute("UPDATE entries SET body = ? WHERE kind = 'held'", (body,)).rowcount == 1
    engine = await durable.engine(asking, napping())
    assert (await engine.run("nap")).status is Status.SUCCEEDED
    await engine.resume_all()
    assert "timer.skipped" in caplog.text
    run = await engine.finish("bad")
    assert (run.status, run.holds["hold"].wake_at) == (Status.WAITING, None)
    assert run.holds["hold"].about == {"wake_at": "tomorrow"}
    await engine.release("bad", "yes", hold=run.token())
    assert (await engine.finish("bad")).status is Status.SUCCEEDED


# -- anything ------------------------------------------------------------------------------------------------

GARBAGE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers(),
        st.datetimes(), st.decimals(), st.just(Odd()),
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)  # fmt: skip


@settings(
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.sampled_from(sorted(PLACES)), value=GARBAGE)
async def test_no_garbage_anywhere_keeps_a_run_from_ending(quick, place, value):
    flow = PLACES[place](value)
    engine = await quick.engine(flow, napping())
    async with asyncio.timeout(60):
        run_id = await engine.start("flow")
        with contextlib.suppress(Exception):  # of a driver that failed, told to those who wait
            await engine.finish(run_id, patience=0)
    assert (await engine.get(run_id)).status is not Status.RUNNING
    await engine.stop(grace=0)


async def test_a_value_that_comes_to_light_only_when_written_leaves_the_run_where_its_journal_is(durable):
    """The last line of defence: an outcome whose fields were replaced behind the checks."""
    run = await beside(durable, one_step(lambda ctx: Outcome()._replace(by=Odd())))
    (hold,) = run.holds.values()
    assert (run.status, hold.name) == (Status.WAITING, "driver")
    assert hold.question.startswith("It cannot be driven: ")
