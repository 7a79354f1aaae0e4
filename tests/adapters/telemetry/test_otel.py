"""Runs told as spans: the shape of the tree, one trace across processes, nothing told that must not be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.adapters.telemetry import otel, visits
from detent.adapters.telemetry.otel import OpenTelemetryObserver, from_environment, trace_id
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import Spend
from detent.kernel.entries import Entry, Moved, Noted, Recorded, Started
from detent.kernel.errors import ConfigurationError, IntegrationMissing
from detent.kernel.machine import Machine
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.engine import answers

ROOT = Path(__file__).parents[3]
SECRET = "jane.doe@example.org"
"""A value of the runs' data; it must never be found in a span."""


class Traces:
    """A provider whose spans can be looked at."""

    def __init__(self, exporter: InMemorySpanExporter | None = None, **options: Any) -> None:
        self.exporter = exporter or InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def names(self) -> list[str]:
        return [span.name for span in self.all]

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self.all)


def number(span: ReadableSpan) -> int:
    """The span's id."""
    assert span.context is not None
    return span.context.span_id


def above(span: ReadableSpan) -> int | None:
    """The id of the span's parent."""
    return span.parent.span_id if span.parent is not None else None


def said(span: ReadableSpan) -> Mapping[str, Any]:
    """The span's attributes."""
    return dict(span.attributes or {})


def facts(span: ReadableSpan, key: str) -> list[Any]:
    """What the span's events say under a key."""
    return [dict(event.attributes or {}).get(key) for event in span.events]


def events(span: ReadableSpan) -> list[str]:
    """What happened within the span, in order."""
    return [event.name for event in span.events]


def flow_of(moves: Mapping[str, Any], steps: Mapping[str, Any], name: str = "flow", **options: Any) -> Flow:
    """A flow whose ends are those of `done` and `failed` that the table mentions."""
    ends = {"done": Status.SUCCEEDED, "failed": Status.FAILED}
    mentioned = {to for row in moves.values() for to in row}
    machine: Machine[str] = Machine(
        name,
        start=next(iter(moves)),
        moves=moves,
        ends={end: status for end, status in ends.items() if end in mentioned},
    )
    return Flow(machine, steps, **options)


def two_steps(**second: Any) -> Flow:
    """`first`, then `second`, each with something to hide."""

    async def one(ctx: Any) -> Outcome:
        return Outcome("second", set={"mail": SECRET}, reason=f"mail is {SECRET}", spend=Spend(10, 5, 0.25))

    async def two(ctx: Any) -> Outcome:
        return Outcome("done", set={"answer": SECRET}, detail={"note": SECRET})

    return flow_of(
        {"first": ["second"], "second": ["done"]}, {"first": one, "second": second.get("step", two)}
    )


async def run(flow: Flow, observer: Any, *also: Flow, data: Any = None, **options: Any) -> Any:
    """Finish one run in memory."""
    async with Engine(MemoryStore(), [flow, *also], observers=[observer]) as engine:
        return await engine.run(flow.name, data, **options)


# -- the tree -----------------------------------------------------------------------------------------------


async def test_a_run_is_a_root_span_and_every_visit_a_span_below_it() -> None:
    traces = Traces()
    ended = await run(two_steps(), OpenTelemetryObserver(traces.provider))

    assert traces.names() == ["step first", "step second", "run flow"]
    root, first, second = traces.one("run flow"), traces.one("step first"), traces.one("step second")
    assert root.parent is None
    assert above(first) == above(second) == number(root)
    assert {trace.format_trace_id(span.context.trace_id) for span in traces.all} == {trace_id(ended.id)}
    assert root.status.status_code is StatusCode.OK
    assert said(root) == {
        "detent.run": ended.id,
        "detent.flow": "flow",
        "detent.status": "succeeded",
        "detent.state": "done",
        "detent.steps": 2,
    }


async def test_a_visit_says_where_it_went_who_decided_and_what_it_cost() -> None:
    traces = Traces()
    ended = await run(two_steps(), OpenTelemetryObserver(traces.provider))

    told = dict(said(traces.one("step first")))
    assert told.pop("detent.work_seconds") >= 0
    assert told == {
        "detent.run": ended.id,
        "detent.flow": "flow",
        "detent.state": "first",
        "detent.next": "second",
        "detent.outcome": "moved",
        "detent.by": "handler",
        "detent.attempt": 1,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "detent.cost_usd": 0.25,
    }


async def test_spans_have_the_times_of_the_journal() -> None:
    traces = Traces()
    async with Engine(
        MemoryStore(), [two_steps()], observers=[OpenTelemetryObserver(traces.provider)]
    ) as engine:
        ended = await engine.run("flow")
        at = [round(entry.at * 1e9) for entry in await engine.store.entries(ended.id, 0)]

    times = {span.name: (span.start_time, span.end_time) for span in traces.all}
    assert times == {
        "step first": (at[0], at[1]),
        "step second": (at[1], at[2]),
        "run flow": (at[0], at[2]),
    }


async def test_reasons_are_told_only_when_asked_for() -> None:
    quiet, open_ = Traces(), Traces()
    await run(two_steps(), OpenTelemetryObserver(quiet.provider))
    await run(two_steps(), OpenTelemetryObserver(open_.provider, reasons=True))

    assert "detent.reason" not in said(quiet.one("step first"))
    assert said(open_.one("step first"))["detent.reason"] == f"mail is {SECRET}"


async def test_failed_attempts_are_events_and_the_end_is_an_error_without_its_message() -> None:
    async def fails(ctx: Any) -> Outcome:
        raise Transient(f"cannot reach {SECRET}")

    step = Step("work", fails, retry=RetryPolicy(max_attempts=2, wait_min=0, wait_max=0))
    traces = Traces()
    await run(flow_of({"work": ["done", "failed"]}, {"work": step}), OpenTelemetryObserver(traces.provider))

    visit, root = traces.one("step work"), traces.one("run flow")
    assert events(visit) == ["attempt.failed", "attempt.failed"]
    assert facts(visit, "detent.will_retry") == [True, False]
    assert facts(visit, "error.type") == ["Transient", "Transient"]
    assert visit.status.status_code is StatusCode.ERROR
    assert said(visit)["detent.reason"] == "work failed: Transient"  # the engine's words: names only
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "failed")
    assert said(root)["error.type"] == "Transient"
    assert SECRET not in traces.text()


async def test_effects_are_spans_below_their_visit() -> None:
    tries: list[str] = []

    async def send(to: str) -> dict[str, str]:
        tries.append(to)
        if len(tries) == 1:
            raise ToolError("busy", f"{to} is busy", transient=True)
        return {"id": SECRET}

    async def work(ctx: Any) -> Outcome:
        return Outcome("done", effects=[Effect("send", {"to": SECRET})])

    tool = Tool("send", send, retry=RetryPolicy(max_attempts=2, wait_min=0, wait_max=0))
    traces = Traces()
    await run(
        flow_of({"work": ["done"]}, {"work": work}, tools=[tool]), OpenTelemetryObserver(traces.provider)
    )

    assert traces.names() == ["effect send", "effect send", "step work", "run flow"]
    failed, done, visit, _ = traces.all
    assert above(failed) == above(done) == number(visit)
    assert (said(failed)["error.type"], said(failed)["detent.will_retry"]) == ("busy", True)
    assert failed.status.status_code is StatusCode.ERROR
    assert (said(done)["detent.tool"], said(done)["detent.how"]) == ("send", "performed")
    assert events(visit) == ["effect.begun", "effect.failed", "effect.begun", "effect.done"]
    assert len({number(span) for span in traces.all}) == 4
    assert SECRET not in traces.text()


async def test_an_effect_in_doubt_says_so_and_skipping_it_is_an_event() -> None:
    async def send() -> None:
        raise RuntimeError(f"lost the line to {SECRET}")

    async def work(ctx: Any) -> Outcome:
        return Outcome("done", effects=[Effect("send")])

    flow = flow_of({"work": ["done"]}, {"work": work}, tools=[Tool("send", send)])
    traces = Traces()
    async with Engine(MemoryStore(), [flow], observers=[OpenTelemetryObserver(traces.provider)]) as engine:
        waiting = await engine.run("flow")
        assert waiting.status is Status.WAITING
        effect = traces.one("effect send")
        assert said(effect)["detent.how"] == "in_doubt"
        assert above(effect) == number(traces.one("step work"))
        await answers.resolve(engine, waiting.id, "skip")
        await engine.finish(waiting.id)

    before, after = (span for span in traces.all if span.name == "step work")
    assert events(before) == ["effect.begun", "run.held"]
    assert events(after) == ["run.released", "effect.skipped"]
    assert SECRET not in traces.text()


async def test_children_are_told_in_their_parents_trace_below_its_run() -> None:
    async def inner(ctx: Any) -> Outcome:
        return Outcome("done")

    async def outer(ctx: Any) -> Outcome:
        await ctx.children([("a", {}), ("b", {})], flow="inner")
        return Outcome("done")

    traces = Traces()
    child = flow_of({"work": ["done"]}, {"work": inner}, name="inner")
    parent = flow_of({"spread": ["done"]}, {"spread": outer}, name="outer")
    await run(parent, OpenTelemetryObserver(traces.provider), child, run_id="r1")

    root = traces.one("run outer")
    children = [span for span in traces.all if span.name == "run inner"]
    assert sorted(said(span)["detent.run"] for span in children) == ["r1.a", "r1.b"]
    assert {above(span) for span in children} == {number(root)}
    assert {said(span)["detent.parent"] for span in children} == {"r1"}
    for step in (span for span in traces.all if span.name == "step work"):
        assert above(step) in {number(span) for span in children}
    assert len({span.context.trace_id for span in traces.all}) == 1
    assert events(traces.one("step spread")) == ["child.ended", "child.ended"]


async def test_two_runs_are_two_traces() -> None:
    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    await run(two_steps(), observer)
    await run(two_steps(), observer)

    assert len({span.context.trace_id for span in traces.all}) == 2


async def test_the_callers_own_span_does_not_capture_a_run() -> None:
    traces = Traces()
    with traces.provider.get_tracer("web").start_as_current_span("request") as request:
        await run(two_steps(), OpenTelemetryObserver(traces.provider))

    assert traces.one("run flow").parent is None
    assert traces.one("run flow").context.trace_id != request.get_span_context().trace_id


async def test_spans_of_others_keep_ids_of_their_own() -> None:
    traces = Traces()
    await run(two_steps(), OpenTelemetryObserver(traces.provider))
    await run(two_steps(), OpenTelemetryObserver(traces.provider))  # the same tracer, prepared once
    before = {number(span) for span in traces.all}
    for _ in range(2):
        traces.provider.get_tracer("detent").start_span("mine").end()

    mine = [span for span in traces.all if span.name == "mine"]
    assert len({number(span) for span in mine} | before) == len(before) + 2
    assert len({span.context.trace_id for span in mine}) == 2


# -- waits and other processes ------------------------------------------------------------------------------


def asking() -> Flow:
    """Asks a person in `ask`, then is done."""

    async def ask(ctx: Any) -> Any:
        if not ctx.answered("approve"):
            return Hold("approve", question=f"May {SECRET} have it?")
        return Outcome("done")

    return flow_of({"ask": ["done"]}, {"ask": ask})


async def test_a_wait_divides_a_visit_and_leaves_nothing_in_memory() -> None:
    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    async with Engine(MemoryStore(), [asking()], observers=[observer]) as engine:
        waiting = await engine.run("flow")
        assert traces.names() == ["step ask"]
        assert not observer._runs
        await answers.release(engine, waiting.id, SECRET, by="person")
        await engine.finish(waiting.id)
    assert not observer._runs

    before, after, root = traces.all
    assert (before.name, after.name, root.name) == ("step ask", "step ask", "run flow")
    assert (said(before)["detent.outcome"], said(after)["detent.outcome"]) == ("held", "moved")
    assert (events(before), events(after)) == (["run.held"], ["run.released"])
    assert said(before)["detent.hold"] == "approve"
    assert "detent.next" not in said(before)
    assert number(before) != number(after)
    assert above(before) == above(after) == number(root)
    assert said(root)["detent.partial"] is True
    assert SECRET not in traces.text()


async def test_two_engines_one_after_another_make_one_trace(tmp_path: Path) -> None:
    at_second, go_on = asyncio.Event(), asyncio.Event()

    async def waits(ctx: Any) -> Outcome:
        at_second.set()
        await go_on.wait()
        return Outcome("done")

    exporter = InMemorySpanExporter()
    before, after = Traces(exporter), Traces(exporter)
    path = tmp_path / "detent.db"
    first = Engine(
        SQLiteStore(path), [two_steps(step=waits)], observers=[OpenTelemetryObserver(before.provider)]
    )
    async with first:
        run_id = await first.start("flow")
        await at_second.wait()
        await first.stop(grace=0)
    go_on.set()
    again = Engine(
        SQLiteStore(path), [two_steps(step=waits)], observers=[OpenTelemetryObserver(after.provider)]
    )
    async with again:
        await again.resume(run_id)
        await again.finish(run_id)

    assert before.names() == ["step first", "step second", "run flow"]
    assert {trace.format_trace_id(span.context.trace_id) for span in before.all} == {trace_id(run_id)}
    root = before.one("run flow")
    assert above(before.one("step first")) == above(before.one("step second")) == number(root)
    assert "detent.partial" not in said(before.one("step first"))
    assert said(before.one("step second"))["detent.partial"] is True


KILLED = """
import asyncio, os, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from detent.adapters.stores.sqlite import SQLiteStore
from detent.adapters.telemetry.otel import OpenTelemetryObserver
from detent.engine.engine import Engine
from detent.engine.outcome import Outcome
from tests.adapters.telemetry.test_otel import two_steps

class Lines(SpanExporter):
    def export(self, spans):
        for span in spans:
            print(span.to_json(indent=None), flush=True)
        return SpanExportResult.SUCCESS

async def dies(ctx):
    os._exit(9)

async def main():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines()))
    observer = OpenTelemetryObserver(provider)
    async with Engine(SQLiteStore(sys.argv[1]), [two_steps(step=dies)], observers=[observer]) as engine:
        await engine.run("flow", run_id="r1")

asyncio.run(main())
"""


async def test_what_a_killed_process_told_fits_what_the_next_one_tells(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 9, killed.stderr
    (earlier,) = [json.loads(line) for line in killed.stdout.splitlines()]
    assert earlier["name"] == "step first"

    traces = Traces()
    async with Engine(
        SQLiteStore(path), [two_steps()], observers=[OpenTelemetryObserver(traces.provider)]
    ) as engine:
        await engine.resume_all()
        await engine.finish("r1")

    root, visit = traces.one("run flow"), traces.one("step second")
    assert earlier["context"]["trace_id"] == "0x" + trace_id("r1")
    assert earlier["parent_id"] == "0x" + trace.format_span_id(number(root))
    assert trace.format_trace_id(root.context.trace_id) == trace_id("r1")
    assert events(visit) == ["run.taken_over"]
    assert above(visit) == number(root)
    assert root.status.status_code is StatusCode.OK


def tell(
    observer: OpenTelemetryObserver, run_id: str, flow: str, entry: Entry, parent: str | None = None
) -> None:
    """An entry of a run that another process began."""
    run = Run(run_id)
    run.flow, run.parent = flow, parent
    observer.on_run_entry(run, entry)


async def test_runs_whose_ids_begin_alike_are_told_in_traces_of_their_own() -> None:
    async def inner(ctx: Any) -> Outcome:
        return Outcome("done")

    async def outer(ctx: Any) -> Outcome:
        await ctx.children([("2", {})], flow="inner")
        return Outcome("done")

    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    child_flow = flow_of({"work": ["done"]}, {"work": inner}, name="inner")
    parent = flow_of({"spread": ["done"]}, {"spread": outer}, name="outer")
    async with Engine(MemoryStore(), [parent, child_flow], observers=[observer]) as engine:
        for run_id in ("release-1.2", "release-1.3", "release-1"):
            await engine.run("outer", run_id=run_id)

    tops = {said(span)["detent.run"]: span for span in traces.all if span.name == "run outer"}
    assert {run_id: trace.format_trace_id(span.context.trace_id) for run_id, span in tops.items()} == {
        run_id: trace_id(run_id) for run_id in ("release-1.2", "release-1.3", "release-1")
    }
    assert len({span.context.trace_id for span in tops.values()}) == 3
    assert all(span.parent is None for span in tops.values())
    children = [span for span in traces.all if span.name == "run inner"]
    assert len(children) == 3
    for child in children:
        top = tops[str(said(child)["detent.parent"])]
        assert above(child) == number(top)
        assert child.context.trace_id == top.context.trace_id


async def test_a_child_taken_up_alone_still_finds_its_place() -> None:
    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    moved = Entry(7, 100.0, 2, Moved("work", "done", duration=2.0, status=Status.SUCCEEDED))
    tell(observer, "r1.key", "inner", moved, parent="r1")
    tell(observer, "r1", "outer", moved)

    child, parent = traces.one("run inner"), traces.one("run outer")
    assert above(child) == number(parent)
    assert child.context.trace_id == parent.context.trace_id
    assert (child.start_time, child.end_time) == (98_000_000_000, 100_000_000_000)


async def test_a_reopened_run_gets_a_second_span_below_the_first() -> None:
    fails = True

    async def work(ctx: Any) -> Outcome:
        if fails:
            raise ValueError(SECRET)
        return Outcome("done")

    traces = Traces()
    flow = flow_of({"work": ["done"]}, {"work": work})
    async with Engine(MemoryStore(), [flow], observers=[OpenTelemetryObserver(traces.provider)]) as engine:
        failed = await engine.run("flow")
        fails = False
        await engine.reopen(failed.id)
        await engine.finish(failed.id)

    first, second = (span for span in traces.all if span.name == "run flow")
    assert first.parent is None
    assert above(second) == number(first)
    assert number(second) != number(first)
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR, StatusCode.OK]


async def test_a_cancelled_run_neither_succeeded_nor_failed() -> None:
    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    async with Engine(MemoryStore(), [asking()], observers=[observer]) as engine:
        waiting = await engine.run("flow")
        await engine.cancel(waiting.id, reason=SECRET)

    assert traces.names() == ["step ask", "run flow"]
    assert said(traces.one("run flow"))["detent.status"] == "cancelled"
    assert traces.one("run flow").status.status_code is StatusCode.UNSET
    assert SECRET not in traces.text()
    assert not observer._runs


async def test_what_others_wrote_in_between_makes_a_visit_partial_not_wrong() -> None:
    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    tell(observer, "r1", "flow", Entry(1, 10.0, 1, Started("flow", "first", "flow", 1, "f")))
    tell(observer, "r1", "flow", Entry(5, 50.0, 3, Moved("third", "fourth", duration=1.0)))

    (visit,) = traces.all
    assert visit.name == "step third"
    assert said(visit)["detent.partial"] is True
    assert visit.start_time == 49_000_000_000


# -- no harm ------------------------------------------------------------------------------------------------


class Broken(SpanExporter, SpanProcessor):
    """Fails at everything, as an exporter and as a processor."""

    def export(self, spans: Any) -> Any:
        raise OSError("no collector")

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("no collector")

    def shutdown(self) -> None:
        raise OSError("no collector")


@pytest.mark.parametrize("made", [lambda: SimpleSpanProcessor(Broken()), Broken])
async def test_an_exporter_that_raises_never_harms_a_run(made: Any) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(made())
    observer = OpenTelemetryObserver(provider)
    ended = await run(two_steps(), observer)

    assert ended.status is Status.SUCCEEDED
    assert ended.steps == 2
    assert not observer._runs


async def test_no_value_of_a_run_is_found_in_its_spans() -> None:
    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    ended = await run(two_steps(), observer, data={"mail": SECRET, SECRET: 1}, tags=[SECRET])
    tell(observer, "r2", "flow", Entry(2, 1.0, 1, Recorded(SECRET, SECRET)))
    tell(observer, "r2", "flow", Entry(3, 1.0, 1, Noted(SECRET, {"text": SECRET})))
    tell(observer, "r2", "flow", Entry(4, 2.0, 1, Moved("first", "second", reason=SECRET, by="agent")))

    assert ended.data["answer"] == SECRET
    assert len(traces.all) == 4
    assert SECRET not in traces.text()


async def test_memory_is_bounded() -> None:
    traces = Traces()
    observer = OpenTelemetryObserver(traces.provider)
    for index in range(otel.MOST_RUNS + 10):  # runs that are put down without a word
        tell(observer, f"r{index}", "flow", Entry(1, 1.0, 1, Started("flow", "first", "flow", 1, "f")))
    assert len(observer._runs) == otel.MOST_RUNS
    assert "r9" not in observer._runs
    assert "r10" in observer._runs
    tell(observer, "gone", "flow", Entry(9, 1.0, 1, Noted("topic")))
    assert "gone" not in observer._runs


async def test_events_of_one_span_are_bounded_and_counted() -> None:
    async def inner(ctx: Any) -> Outcome:
        return Outcome("done")

    async def outer(ctx: Any) -> Outcome:
        await ctx.children([(str(n), {}) for n in range(visits.MOST_EVENTS + 5)], flow="inner")
        return Outcome("done")

    traces = Traces()
    child = flow_of({"work": ["done"]}, {"work": inner}, name="inner")
    parent = flow_of({"spread": ["done"]}, {"spread": outer}, name="outer")
    await run(parent, OpenTelemetryObserver(traces.provider), child)

    visit = traces.one("step spread")
    assert len(visit.events) == visits.MOST_EVENTS
    assert said(visit)["detent.events_dropped"] == 5


async def test_a_sampler_keeps_whole_traces_or_nothing() -> None:
    traces = Traces(sampler=ParentBased(TraceIdRatioBased(0.5)))
    observer = OpenTelemetryObserver(traces.provider)
    async with Engine(MemoryStore(), [two_steps()], observers=[observer]) as engine:
        for index in range(40):
            await engine.run("flow", run_id=f"r{index}")

    kept: dict[int, int] = {}
    for span in traces.all:
        kept[span.context.trace_id] = kept.get(span.context.trace_id, 0) + 1
    assert 0 < len(kept) < 40
    assert set(kept.values()) == {3}


# -- switching it on ----------------------------------------------------------------------------------------


async def test_without_a_provider_nothing_is_told_and_nothing_breaks() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert (await run(two_steps(), OpenTelemetryObserver())).status is Status.SUCCEEDED
    assert (
        await run(two_steps(), OpenTelemetryObserver(trace.NoOpTracerProvider()))
    ).status is Status.SUCCEEDED


@pytest.fixture
def fresh() -> Any:
    """No provider made from the environment before or after."""
    otel._provider.cache_clear()
    yield
    otel._provider.cache_clear()


FROM_ENVIRONMENT = """
import asyncio
from detent.adapters.telemetry.otel import from_environment
from tests.adapters.telemetry.test_otel import run, two_steps
asyncio.run(run(two_steps(), from_environment(), run_id="r1"))
"""


def test_the_environment_names_the_exporter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROM_ENVIRONMENT],
        cwd=ROOT,
        env={**os.environ, "OTEL_TRACES_EXPORTER": "console"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count(f'"trace_id": "0x{trace_id("r1")}"') == 3


@pytest.mark.usefixtures("fresh")
def test_an_exporter_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp_over_pigeons")
    with pytest.raises(IntegrationMissing, match="pip install opentelemetry-exporter-otlp-proto-http"):
        from_environment()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "consol")
    with pytest.raises(ConfigurationError, match="Did you mean 'console'?"):
        from_environment()


def test_without_opentelemetry_the_extra_is_named() -> None:
    program = """
        import sys
        sys.modules["opentelemetry"] = None
        from detent.kernel.errors import IntegrationMissing
        try:
            import detent.adapters.telemetry.otel
        except IntegrationMissing as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert "pip install 'detent[telemetry]'" in done.stdout
