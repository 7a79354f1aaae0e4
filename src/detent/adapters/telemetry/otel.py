"""Runs as OpenTelemetry traces: one trace for a run and all it starts, a span for each visit of a state.

Trace and span ids are derived from run ids and entry numbers, so what several processes tell about one run
fits together without their knowing of each other. Spans are made when what they describe is over, from the
times in the journal: nothing stays open, and a run that is put down leaves nothing behind in memory.

Spans carry names, counts and ids. Data, answers, receipts, messages and questions never get here.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from typing import Any

from detent.adapters.telemetry.visits import Attributes, Event, RunUnderWay, Visit, estimated_start
from detent.engine import logger
from detent.kernel.entries import (
    AttemptFailed,
    CalledOff,
    ChildEnded,
    Claimed,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Forked,
    Held,
    Migrated,
    Moved,
    Noted,
    Proposed,
    Recorded,
    Released,
    Reopened,
    Started,
    Tagged,
)
from detent.kernel.errors import ConfigurationError, IntegrationMissing, nearest
from detent.kernel.ids import ROOT, guessed_root
from detent.kernel.run import Run
from detent.kernel.status import Status

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
except ImportError as error:
    raise IntegrationMissing(
        "Telemetry needs OpenTelemetry, which is not installed. Get it with: pip install 'detent[telemetry]'"
    ) from error

MOST_RUNS = 20_000
"""Runs remembered at once. One that is forgotten is gone on with as if another process had begun it."""


def trace_id(root_run: str) -> str:
    """The trace that a run is told in with everything below it: 32 hex digits. A child is in its root's."""
    return trace.format_trace_id(_trace_number(root_run))


class OpenTelemetryObserver:
    """Tells every committed entry as spans. Give it to an engine: `Engine(store, observers=[…])`.

    Without a `tracer_provider`, the program's global one is used as soon as there is one. Reasons are free
    text that steps and models write, and may quote the data; with `reasons` they are told all the same.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None, *, reasons: bool = False) -> None:
        self._provider = tracer_provider
        self._reasons = reasons
        self._tracer: trace.Tracer | None = None
        self._runs: OrderedDict[str, RunUnderWay] = OrderedDict()

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Take in one committed entry, and tell what is over with it."""
        under_way = self._runs.get(run.id)
        if under_way is None:
            if isinstance(entry.body, _ASIDE):
                return
            under_way = self._take_up(run, entry)
        elif entry.seq != under_way.seq + 1:
            # Others have written since: where the visit stands is not known here.
            under_way.visit, under_way.whole = None, False
        under_way.seq = entry.seq
        self._runs.move_to_end(run.id)
        handler = _HANDLERS.get(type(entry.body))
        if handler is not None:
            handler(self, under_way, entry, entry.body)

    def _take_up(self, run: Run, entry: Entry) -> RunUnderWay:
        """Begin to remember a run, whether it begins here or was begun elsewhere."""
        under_way = RunUnderWay(run.id, run.flow, run.parent, _root(run), estimated_start(entry))
        self._runs[run.id] = under_way
        if len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)
        return under_way

    # -- what happened --------------------------------------------------------------------------------------

    def _started(self, run: RunUnderWay, entry: Entry, body: Started) -> None:
        run.whole = True
        run.visit = Visit(entry.seq, entry.at, body.state)

    def _moved(self, run: RunUnderWay, entry: Entry, body: Moved) -> None:
        visit = run.visiting(entry)
        visit.state = body.frm
        visit.spend = body.spend  # of the whole visit, whoever began it
        said: Attributes = {"detent.next": body.to}
        if body.event is not None:
            said["detent.event"] = body.event
        self._tell_visit(run, visit, entry, "moved", said, body, body.status)
        run.steps += 1
        run.visit = Visit(entry.seq, entry.at, body.to)
        if body.status is not None:
            self._tell_run(run, entry, body.status, body.to, body.detail.get("error"))

    def _ended(self, run: RunUnderWay, entry: Entry, body: Ended) -> None:
        visit = run.visit
        if visit is not None:
            visit.spend += body.spend
            self._tell_visit(run, visit, entry, "ended", {}, body, body.status)
        self._tell_run(run, entry, body.status, visit.state if visit is not None else None, body.error)

    def _held(self, run: RunUnderWay, entry: Entry, body: Held) -> None:
        """The run is put down: tell the visit so far, and forget. Its rest is told once it goes on."""
        visit = run.visiting(entry)
        visit.happened("run.held", entry.at, {"detent.hold": body.name, "detent.why": body.why})
        self._tell_visit(run, visit, entry, "held", {"detent.hold": body.name})
        self._runs.pop(run.id, None)

    def _released(self, run: RunUnderWay, entry: Entry, body: Released) -> None:
        said: Attributes = {"detent.hold": body.name, "detent.by": body.by}
        run.visiting(entry, begins=True).happened("run.released", entry.at, said)

    def _claimed(self, run: RunUnderWay, entry: Entry, body: Claimed) -> None:
        said: Attributes = {"detent.worker": body.worker}
        if body.lost is not None:
            said["detent.lost_worker"] = body.lost
        run.visiting(entry, begins=True).happened("run.taken_over", entry.at, said)

    def _migrated(self, run: RunUnderWay, entry: Entry, body: Migrated) -> None:
        visit = run.visiting(entry, begins=True)
        visit.state = body.state
        visit.happened("run.migrated", entry.at, {"detent.version": body.version})

    def _called_off(self, run: RunUnderWay, entry: Entry, body: CalledOff) -> None:
        run.visiting(entry).happened("run.called_off", entry.at, {"detent.by": body.by})

    def _reopened(self, run: RunUnderWay, entry: Entry, body: Reopened) -> None:
        """The span of the run's first life is told already: this one gets its own, below it."""
        run.parent, run.label = run.id, f"run {run.id} {entry.seq}"
        run.began, run.whole = entry.at, True
        run.visit = Visit(entry.seq, entry.at, body.state)
        run.visit.happened("run.reopened", entry.at, {"detent.by": body.by})

    def _attempt_failed(self, run: RunUnderWay, entry: Entry, body: AttemptFailed) -> None:
        visit = run.visiting(entry)
        visit.state = visit.state or body.step
        visit.spend += body.spend
        said: Attributes = {
            "detent.attempt": body.attempt,
            "error.type": body.error,
            "detent.transient": body.transient,
            "detent.will_retry": body.retry_at is not None,
        }
        visit.happened("attempt.failed", entry.at, said)

    def _proposed(self, run: RunUnderWay, entry: Entry, body: Proposed) -> None:
        visit = run.visiting(entry)
        visit.state = visit.state or body.step
        visit.spend += body.spend

    def _recorded(self, run: RunUnderWay, entry: Entry, body: Recorded) -> None:
        run.visiting(entry).spend += body.spend

    def _child_ended(self, run: RunUnderWay, entry: Entry, body: ChildEnded) -> None:
        said: Attributes = {"detent.child": body.run, "detent.status": body.status.value}
        run.visiting(entry).happened("child.ended", entry.at, said)

    def _effect_begun(self, run: RunUnderWay, entry: Entry, body: EffectBegun) -> None:
        visit = run.visiting(entry)
        visit.begun = (body.key, body.tool, entry.at)
        visit.happened("effect.begun", entry.at, _named(body.key, body.tool))

    def _effect_done(self, run: RunUnderWay, entry: Entry, body: EffectDone) -> None:
        visit = run.visiting(entry)
        said = {**_named(body.key, body.tool), "detent.how": body.how}
        visit.happened("effect.done", entry.at, said)
        if body.how != "reused":  # nothing was performed for that one
            began = visit.settled(body.key, entry.at - body.duration)
            self._tell_effect(run, visit, entry, body.tool, began, said)

    def _effect_failed(self, run: RunUnderWay, entry: Entry, body: EffectFailed) -> None:
        visit = run.visiting(entry)
        said = {
            **_named(body.key, body.tool),
            "error.type": body.code,
            "detent.attempt": body.attempts,
            "detent.will_retry": body.retry_at is not None,
        }
        visit.happened("effect.failed", entry.at, said)
        self._tell_effect(
            run, visit, entry, body.tool, visit.settled(body.key, entry.at), said, _bad(body.code)
        )

    def _effect_skipped(self, run: RunUnderWay, entry: Entry, body: EffectSkipped) -> None:
        visit = run.visiting(entry)
        visit.settled(body.key, entry.at)
        visit.happened("effect.skipped", entry.at, {**_named(body.key, body.tool), "detent.by": body.by})

    # -- spans ----------------------------------------------------------------------------------------------

    def _tell_run(
        self, run: RunUnderWay, entry: Entry, status: Status, state: str | None, error: Any
    ) -> None:
        """The run is over: tell it, and forget it."""
        self._runs.pop(run.id, None)
        said: Attributes = {
            "detent.run": run.id,
            "detent.flow": run.flow,
            "detent.status": status.value,
            "detent.steps": run.steps,
        }
        if state is not None:
            said["detent.state"] = state
        if run.parent is not None and run.parent != run.id:
            said["detent.parent"] = run.parent
        if (
            not run.whole
        ):  # where it began, and the steps before, were seen by another process or before a wait
            said["detent.partial"] = True
        kind = _error_type(error)
        if kind is not None:
            said["error.type"] = kind
        above = f"run {run.parent}" if run.parent is not None else None
        self._tell(run, f"run {run.flow}", run.label, above, (run.began, entry.at), said, _verdict(status))

    def _tell_visit(
        self,
        run: RunUnderWay,
        visit: Visit,
        entry: Entry,
        outcome: str,
        said: Attributes,
        body: Moved | Ended | None = None,
        status: Status | None = None,
    ) -> None:
        if visit.begun is not None:  # and never settled
            key, tool, began = visit.begun
            in_doubt = {**_named(key, tool), "detent.how": "in_doubt"}
            self._tell_effect(run, visit, entry, tool, began, in_doubt, _bad("in doubt"))
        said |= {"detent.run": run.id, "detent.flow": run.flow, "detent.outcome": outcome}
        if visit.state is not None:
            said["detent.state"] = visit.state
        if visit.partial:
            said["detent.partial"] = True
        if visit.dropped:
            said["detent.events_dropped"] = visit.dropped
        if body is not None:
            said |= {
                "detent.by": body.by,
                "detent.attempt": body.attempt,
                "detent.work_seconds": body.duration,
                "gen_ai.usage.input_tokens": visit.spend.input_tokens,
                "gen_ai.usage.output_tokens": visit.spend.output_tokens,
                "detent.cost_usd": visit.spend.cost_usd,
            }
            # The engine's own reasons hold nothing but names.
            if body.reason is not None and (self._reasons or body.by == "engine"):
                said["detent.reason"] = body.reason
        name = f"step {visit.state}" if visit.state is not None else "step"
        self._tell(
            run,
            name,
            visit.label(run),
            run.label,
            (visit.began, entry.at),
            said,
            _bad(status.value) if status in _BAD else None,
            visit.events,
        )

    def _tell_effect(
        self,
        run: RunUnderWay,
        visit: Visit,
        entry: Entry,
        tool: str,
        began: float,
        said: Attributes,
        status: trace.Status | None = None,
    ) -> None:
        said = {**said, "detent.run": run.id, "detent.flow": run.flow}
        label = f"effect {run.id} {entry.seq}"
        self._tell(run, f"effect {tool}", label, visit.label(run), (began, entry.at), said, status)

    def _tell(
        self,
        run: RunUnderWay,
        name: str,
        label: str,
        above: str | None,
        times: tuple[float, float],
        said: Attributes,
        status: trace.Status | None,
        events: deque[Event] | tuple[()] = (),
    ) -> None:
        """Make a span that is over. Whatever goes wrong with it stays here."""
        try:
            tracer = self._tracer or self._find_tracer()
            if tracer is None:
                return
            number, own = _trace_number(run.root), _span_number(label)
            ids = getattr(tracer, "id_generator", None)
            if not isinstance(ids, _Ids):
                ids, above = None, above or label  # its own ids cannot be set: at least the trace is the same
            context = Context() if above is None else _below(tracer, number, _span_number(above))
            began, over = _nanoseconds(times[0]), _nanoseconds(times[1])
            if ids is not None:
                ids.trace, ids.span = number, own
            try:
                span = tracer.start_span(name, context, attributes=said, start_time=min(began, over))
            finally:
                if ids is not None:
                    ids.trace = ids.span = None
            for event, facts, at in events:
                span.add_event(event, facts, _nanoseconds(at))
            if status is not None:
                span.set_status(status)
            span.end(over)
        except Exception as error:
            logger.warning("telemetry.failed", run_id=run.id, span=name, error=type(error).__name__)

    def _find_tracer(self) -> trace.Tracer | None:
        """The tracer, prepared to give spans the ids they are to have; None while nobody listens."""
        provider = self._provider or trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return None  # the program has not set its provider, or not yet
        tracer = provider.get_tracer("detent")
        ids = getattr(tracer, "id_generator", None)
        if ids is not None and not isinstance(ids, _Ids):  # providers hand the same tracer out again
            tracer.id_generator = _Ids(ids)  # type: ignore[attr-defined]
        self._tracer = tracer
        return tracer


class _Ids(threading.local):
    """Gives a span the ids it is to have, and everybody else the ids they would have had."""

    trace: int | None = None
    span: int | None = None

    def __init__(self, others: Any) -> None:
        self._others = others

    def generate_trace_id(self) -> int:
        return self.trace if self.trace is not None else int(self._others.generate_trace_id())

    def generate_span_id(self) -> int:
        return self.span if self.span is not None else int(self._others.generate_span_id())

    def is_trace_id_random(self) -> bool:
        return False


def _root(run: Run) -> str:
    """The run at the top."""
    if run.parent is None:
        return run.id
    return str(run.config.get(ROOT) or guessed_root(run.id))


def _trace_number(root_run: str) -> int:
    return int.from_bytes(sha256(f"detent trace {root_run}".encode()).digest()[:16], "big") or 1


def _span_number(label: str) -> int:
    return int.from_bytes(sha256(f"detent {label}".encode()).digest()[:8], "big") or 1


def _below(tracer: trace.Tracer, number: int, span: int) -> Context:
    """The context of a span that may have been, or will be, told by anybody."""
    sampler = getattr(tracer, "sampler", None)
    # Asked as for the root, whose trace id every process knows: either the whole trace is kept or none of it.
    kept = sampler is None or sampler.should_sample(Context(), number, "run").decision.is_sampled()
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if kept else trace.TraceFlags.DEFAULT)
    above = trace.SpanContext(number, span, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(above), Context())


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _named(key: str, tool: str) -> Attributes:
    return {"detent.tool": tool, "detent.effect": key}


def _error_type(error: Any) -> str | None:
    """The type in `Type: message`; the message may quote anything."""
    kind = str(error or "").partition(":")[0]
    return kind if kind.isidentifier() else None


_BAD = frozenset({Status.FAILED, Status.BUDGET_EXHAUSTED})


def _bad(why: str) -> trace.Status:
    return trace.Status(trace.StatusCode.ERROR, why)


def _verdict(status: Status) -> trace.Status | None:
    """How the run's end counts; a cancelled one neither succeeded nor failed."""
    if status in _BAD:
        return _bad(status.value)
    return None if status is Status.CANCELLED else trace.Status(trace.StatusCode.OK)


_ASIDE = (ChildEnded, Forked, Noted, Tagged)
"""What may be written to a run that nobody drives, and so is no reason to remember one."""

_HANDLERS: Mapping[type, Callable[[OpenTelemetryObserver, RunUnderWay, Entry, Any], None]] = {
    Started: OpenTelemetryObserver._started,
    Moved: OpenTelemetryObserver._moved,
    AttemptFailed: OpenTelemetryObserver._attempt_failed,
    Proposed: OpenTelemetryObserver._proposed,
    EffectBegun: OpenTelemetryObserver._effect_begun,
    EffectDone: OpenTelemetryObserver._effect_done,
    EffectFailed: OpenTelemetryObserver._effect_failed,
    EffectSkipped: OpenTelemetryObserver._effect_skipped,
    Recorded: OpenTelemetryObserver._recorded,
    ChildEnded: OpenTelemetryObserver._child_ended,
    Held: OpenTelemetryObserver._held,
    Released: OpenTelemetryObserver._released,
    Claimed: OpenTelemetryObserver._claimed,
    Migrated: OpenTelemetryObserver._migrated,
    CalledOff: OpenTelemetryObserver._called_off,
    Reopened: OpenTelemetryObserver._reopened,
    Ended: OpenTelemetryObserver._ended,
}


# -- a program that has set nothing up ----------------------------------------------------------------------


def from_environment(*, reasons: bool = False) -> OpenTelemetryObserver:
    """An observer on the program's provider; where it has none, on one made as the OTEL_ variables say."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return OpenTelemetryObserver(_provider(), reasons=reasons)
    return OpenTelemetryObserver(reasons=reasons)


@cache
def _provider() -> trace.TracerProvider:
    """A provider of our own, once per process. It sends what is left when the process ends."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise IntegrationMissing(
            "Telemetry needs the OpenTelemetry SDK, which is not installed. "
            "Get it with: pip install 'detent[telemetry]'"
        ) from error
    provider = TracerProvider()
    for name in (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        if name.strip() not in ("", "none"):
            provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    return provider


_OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def _exporter(name: str) -> Any:
    """An exporter by the name it is registered under; `otlp` is whichever protocol is set, or else there."""
    there = {found.name: found for found in entry_points(group="opentelemetry_traces_exporter")}
    names = [name]
    if name == "otlp":
        said = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        names = [_OTLP[said]] if said in _OTLP else [*_OTLP.values(), name]
    for candidate in names:
        if candidate in there:
            return there[candidate].load()()
    if name.startswith("otlp"):
        raise IntegrationMissing(
            "No OTLP exporter for spans is installed. Get one with: "
            "pip install opentelemetry-exporter-otlp-proto-http (or set OTEL_TRACES_EXPORTER=console)"
        )
    raise ConfigurationError(
        f"OTEL_TRACES_EXPORTER: there is no exporter '{name}'.{nearest(name, there)} "
        f"Known here: {', '.join(sorted(there))}, none."
    )
