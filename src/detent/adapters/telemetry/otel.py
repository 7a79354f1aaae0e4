"""Runs as OpenTelemetry traces: one trace for a run and its child runs, a span for each visit of a state.

Trace and span ids are derived from run ids and entry numbers, so the spans that several processes send about
the same run fit together. A span is made when what it describes is over, from the times in the journal:
nothing stays open, and a run that is put down leaves nothing in memory.

Spans carry names, counts and ids. They never carry data, answers, receipts, messages or questions.
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
"""Runs remembered at once. A forgotten one is continued as if another process had started it."""


def trace_id(root_run: str) -> str:
    """The trace of a run and everything below it: 32 hex digits. A child run is in the trace of its root."""
    return trace.format_trace_id(_trace_number(root_run))


class OpenTelemetryObserver:
    """Reports every committed entry as spans. Give it to an engine: `Engine(store, observers=[…])`.

    Without a `tracer_provider`, the program's global one is used as soon as there is one. Reasons are free
    text written by steps and models, and may quote data; they are reported only with `reasons`.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None, *, reasons: bool = False) -> None:
        self._provider = tracer_provider
        self._reasons = reasons
        self._tracer: trace.Tracer | None = None
        self._runs: OrderedDict[str, RunUnderWay] = OrderedDict()

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Process one committed entry, and report what it completes."""
        under_way = self._runs.get(run.id)
        if under_way is None:
            if isinstance(entry.body, _ASIDE):
                return
            under_way = self._remember(run, entry)
        elif entry.seq != under_way.seq + 1:
            # Other processes have written since: the state of the visit is not known here.
            under_way.visit, under_way.whole = None, False
        under_way.seq = entry.seq
        self._runs.move_to_end(run.id)
        handler = _HANDLERS.get(type(entry.body))
        if handler is not None:
            handler(self, under_way, entry, entry.body)

    def _remember(self, run: Run, entry: Entry) -> RunUnderWay:
        """Start to remember a run, whether it started here or elsewhere."""
        under_way = RunUnderWay(run.id, run.flow, run.parent, _root(run), estimated_start(entry))
        self._runs[run.id] = under_way
        if len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)
        return under_way

    # -- entries --------------------------------------------------------------------------------------------

    def _started(self, run: RunUnderWay, entry: Entry, body: Started) -> None:
        run.whole = True
        run.visit = Visit(entry.seq, entry.at, body.state)

    def _moved(self, run: RunUnderWay, entry: Entry, body: Moved) -> None:
        visit = run.visiting(entry)
        visit.state = body.frm
        visit.spend = body.spend  # of the whole visit, whichever process began it
        facts: Attributes = {"detent.next": body.to}
        if body.event is not None:
            facts["detent.event"] = body.event
        self._send_visit(run, visit, entry, "moved", facts, body, body.status)
        run.steps += 1
        run.visit = Visit(entry.seq, entry.at, body.to)
        if body.status is not None:
            self._send_run(run, entry, body.status, body.to, body.detail.get("error"))

    def _ended(self, run: RunUnderWay, entry: Entry, body: Ended) -> None:
        visit = run.visit
        if visit is not None:
            visit.spend += body.spend
            self._send_visit(run, visit, entry, "ended", {}, body, body.status)
        self._send_run(run, entry, body.status, visit.state if visit is not None else None, body.error)

    def _held(self, run: RunUnderWay, entry: Entry, body: Held) -> None:
        """The run is put down: report the visit so far, and forget it. The rest is reported later."""
        visit = run.visiting(entry)
        visit.happened("run.held", entry.at, {"detent.hold": body.name, "detent.why": body.why})
        self._send_visit(run, visit, entry, "held", {"detent.hold": body.name})
        self._runs.pop(run.id, None)

    def _released(self, run: RunUnderWay, entry: Entry, body: Released) -> None:
        facts: Attributes = {"detent.hold": body.name, "detent.by": body.by}
        run.visiting(entry, begins=True).happened("run.released", entry.at, facts)

    def _claimed(self, run: RunUnderWay, entry: Entry, body: Claimed) -> None:
        facts: Attributes = {"detent.worker": body.worker}
        if body.lost is not None:
            facts["detent.lost_worker"] = body.lost
        run.visiting(entry, begins=True).happened("run.taken_over", entry.at, facts)

    def _migrated(self, run: RunUnderWay, entry: Entry, body: Migrated) -> None:
        visit = run.visiting(entry, begins=True)
        visit.state = body.state
        visit.happened("run.migrated", entry.at, {"detent.version": body.version})

    def _called_off(self, run: RunUnderWay, entry: Entry, body: CalledOff) -> None:
        run.visiting(entry).happened("run.called_off", entry.at, {"detent.by": body.by})

    def _reopened(self, run: RunUnderWay, entry: Entry, body: Reopened) -> None:
        """The span of the run's first life was sent already: this life gets its own, below it."""
        run.parent, run.label = run.id, f"run {run.id} {entry.seq}"
        run.began, run.whole = entry.at, True
        run.visit = Visit(entry.seq, entry.at, body.state)
        run.visit.happened("run.reopened", entry.at, {"detent.by": body.by})

    def _attempt_failed(self, run: RunUnderWay, entry: Entry, body: AttemptFailed) -> None:
        visit = run.visiting(entry)
        visit.state = visit.state or body.step
        visit.spend += body.spend
        facts: Attributes = {
            "detent.attempt": body.attempt,
            "error.type": body.error,
            "detent.transient": body.transient,
            "detent.will_retry": body.retry_at is not None,
        }
        visit.happened("attempt.failed", entry.at, facts)

    def _proposed(self, run: RunUnderWay, entry: Entry, body: Proposed) -> None:
        visit = run.visiting(entry)
        visit.state = visit.state or body.step
        visit.spend += body.spend

    def _recorded(self, run: RunUnderWay, entry: Entry, body: Recorded) -> None:
        run.visiting(entry).spend += body.spend

    def _child_ended(self, run: RunUnderWay, entry: Entry, body: ChildEnded) -> None:
        facts: Attributes = {"detent.child": body.run, "detent.status": body.status.value}
        run.visiting(entry).happened("child.ended", entry.at, facts)

    def _effect_begun(self, run: RunUnderWay, entry: Entry, body: EffectBegun) -> None:
        visit = run.visiting(entry)
        visit.begun = (body.key, body.tool, entry.at)
        visit.happened("effect.begun", entry.at, _effect_facts(body.key, body.tool))

    def _effect_done(self, run: RunUnderWay, entry: Entry, body: EffectDone) -> None:
        visit = run.visiting(entry)
        facts = {**_effect_facts(body.key, body.tool), "detent.how": body.how}
        visit.happened("effect.done", entry.at, facts)
        if body.how != "reused":  # nothing was performed
            began = visit.settled(body.key, entry.at - body.duration)
            self._send_effect(run, visit, entry, body.tool, began, facts)

    def _effect_failed(self, run: RunUnderWay, entry: Entry, body: EffectFailed) -> None:
        visit = run.visiting(entry)
        facts = {
            **_effect_facts(body.key, body.tool),
            "error.type": body.code,
            "detent.attempt": body.attempts,
            "detent.will_retry": body.retry_at is not None,
        }
        visit.happened("effect.failed", entry.at, facts)
        began = visit.settled(body.key, entry.at)
        self._send_effect(run, visit, entry, body.tool, began, facts, _failed(body.code))

    def _effect_skipped(self, run: RunUnderWay, entry: Entry, body: EffectSkipped) -> None:
        visit = run.visiting(entry)
        visit.settled(body.key, entry.at)
        visit.happened(
            "effect.skipped", entry.at, {**_effect_facts(body.key, body.tool), "detent.by": body.by}
        )

    # -- spans ----------------------------------------------------------------------------------------------

    def _send_run(
        self, run: RunUnderWay, entry: Entry, status: Status, state: str | None, error: Any
    ) -> None:
        """The run is over: report and forget it."""
        self._runs.pop(run.id, None)
        facts: Attributes = {
            "detent.run": run.id,
            "detent.flow": run.flow,
            "detent.status": status.value,
            "detent.steps": run.steps,
        }
        if state is not None:
            facts["detent.state"] = state
        if run.parent is not None and run.parent != run.id:
            facts["detent.parent"] = run.parent
        if not run.whole:  # another process, or this one before a wait, saw the beginning
            facts["detent.partial"] = True
        error_type = _error_type(error)
        if error_type is not None:
            facts["error.type"] = error_type
        parent_label = f"run {run.parent}" if run.parent is not None else None
        self._send_span(
            run, f"run {run.flow}", run.label, parent_label, (run.began, entry.at), facts, _end_status(status)
        )

    def _send_visit(
        self,
        run: RunUnderWay,
        visit: Visit,
        entry: Entry,
        outcome: str,
        facts: Attributes,
        body: Moved | Ended | None = None,
        status: Status | None = None,
    ) -> None:
        if visit.begun is not None:  # an effect that was never settled
            key, tool, began = visit.begun
            in_doubt = {**_effect_facts(key, tool), "detent.how": "in_doubt"}
            self._send_effect(run, visit, entry, tool, began, in_doubt, _failed("in doubt"))
        facts |= {"detent.run": run.id, "detent.flow": run.flow, "detent.outcome": outcome}
        if visit.state is not None:
            facts["detent.state"] = visit.state
        if visit.partial:
            facts["detent.partial"] = True
        if visit.dropped:
            facts["detent.events_dropped"] = visit.dropped
        if body is not None:
            facts |= {
                "detent.by": body.by,
                "detent.attempt": body.attempt,
                "detent.work_seconds": body.duration,
                "gen_ai.usage.input_tokens": visit.spend.input_tokens,
                "gen_ai.usage.output_tokens": visit.spend.output_tokens,
                "detent.cost_usd": visit.spend.cost_usd,
            }
            # The engine's own reasons contain only names.
            if body.reason is not None and (self._reasons or body.by == "engine"):
                facts["detent.reason"] = body.reason
        name = f"step {visit.state}" if visit.state is not None else "step"
        self._send_span(
            run,
            name,
            visit.label(run),
            run.label,
            (visit.began, entry.at),
            facts,
            _failed(status.value) if status in _BAD else None,
            visit.events,
        )

    def _send_effect(
        self,
        run: RunUnderWay,
        visit: Visit,
        entry: Entry,
        tool: str,
        began: float,
        facts: Attributes,
        status: trace.Status | None = None,
    ) -> None:
        facts = {**facts, "detent.run": run.id, "detent.flow": run.flow}
        label = f"effect {run.id} {entry.seq}"
        self._send_span(run, f"effect {tool}", label, visit.label(run), (began, entry.at), facts, status)

    def _send_span(
        self,
        run: RunUnderWay,
        name: str,
        label: str,
        parent: str | None,
        times: tuple[float, float],
        attributes: Attributes,
        status: trace.Status | None,
        events: deque[Event] | tuple[()] = (),
    ) -> None:
        """Send a span that is over. Any failure stays here."""
        try:
            tracer = self._tracer or self._find_tracer()
            if tracer is None:
                return
            trace_number, span_number = _trace_number(run.root), _span_number(label)
            ids = getattr(tracer, "id_generator", None)
            if not isinstance(ids, _Ids):
                ids, parent = None, parent or label  # its ids cannot be set, but the trace is the same
            context = (
                Context() if parent is None else _parent_context(tracer, trace_number, _span_number(parent))
            )
            began, ended = _nanoseconds(times[0]), _nanoseconds(times[1])
            if ids is not None:
                ids.trace, ids.span = trace_number, span_number
            try:
                span = tracer.start_span(name, context, attributes=attributes, start_time=min(began, ended))
            finally:
                if ids is not None:
                    ids.trace = ids.span = None
            for event, facts, at in events:
                span.add_event(event, facts, _nanoseconds(at))
            if status is not None:
                span.set_status(status)
            span.end(ended)
        except Exception as error:
            logger.warning("telemetry.failed", run_id=run.id, span=name, error=type(error).__name__)

    def _find_tracer(self) -> trace.Tracer | None:
        """The tracer, prepared to use our ids for spans; None while the program has no provider."""
        provider = self._provider or trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return None  # the program has not set its provider yet
        tracer = provider.get_tracer("detent")
        ids = getattr(tracer, "id_generator", None)
        if ids is not None and not isinstance(ids, _Ids):  # providers return the same tracer again
            tracer.id_generator = _Ids(ids)  # type: ignore[attr-defined]
        self._tracer = tracer
        return tracer


class _Ids(threading.local):
    """Gives our ids to our spans, and the usual ids to all others."""

    trace: int | None = None
    span: int | None = None

    def __init__(self, usual: Any) -> None:
        self._usual = usual

    def generate_trace_id(self) -> int:
        return self.trace if self.trace is not None else int(self._usual.generate_trace_id())

    def generate_span_id(self) -> int:
        return self.span if self.span is not None else int(self._usual.generate_span_id())

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


def _parent_context(tracer: trace.Tracer, trace_number: int, span: int) -> Context:
    """The context of a parent span that any process may send, before or after this one."""
    sampler = getattr(tracer, "sampler", None)
    # Sampled like the root, whose trace id every process knows: a trace is kept completely or not at all.
    sampled = sampler is None or sampler.should_sample(Context(), trace_number, "run").decision.is_sampled()
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else trace.TraceFlags.DEFAULT)
    parent = trace.SpanContext(trace_number, span, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _effect_facts(key: str, tool: str) -> Attributes:
    return {"detent.tool": tool, "detent.effect": key}


def _error_type(error: Any) -> str | None:
    """The type in `Type: message`; the message may contain anything."""
    kind = str(error or "").partition(":")[0]
    return kind if kind.isidentifier() else None


_BAD = frozenset({Status.FAILED, Status.BUDGET_EXHAUSTED})


def _failed(why: str) -> trace.Status:
    return trace.Status(trace.StatusCode.ERROR, why)


def _end_status(status: Status) -> trace.Status | None:
    """The span status for the end of a run; a cancelled run neither succeeded nor failed."""
    if status in _BAD:
        return _failed(status.value)
    return None if status is Status.CANCELLED else trace.Status(trace.StatusCode.OK)


_ASIDE = (ChildEnded, Forked, Noted, Tagged)
"""Entries that may be written to a run without a driver, and so are no reason to remember it."""

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


# -- programs without a provider ----------------------------------------------------------------------------


def from_environment(*, reasons: bool = False) -> OpenTelemetryObserver:
    """An observer on the program's provider; without one, on a new one configured by the OTEL_ variables."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return OpenTelemetryObserver(_provider(), reasons=reasons)
    return OpenTelemetryObserver(reasons=reasons)


@cache
def _provider() -> trace.TracerProvider:
    """A provider of our own, once per process. It sends its remaining spans when the process ends."""
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
    """An exporter by its registered name; `otlp` stands for the configured protocol, or an installed one."""
    exporters = {point.name: point for point in entry_points(group="opentelemetry_traces_exporter")}
    names = [name]
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        names = [_OTLP[protocol]] if protocol in _OTLP else [*_OTLP.values(), name]
    for candidate in names:
        if candidate in exporters:
            return exporters[candidate].load()()
    if name.startswith("otlp"):
        raise IntegrationMissing(
            "No OTLP exporter for spans is installed. Get one with: "
            "pip install opentelemetry-exporter-otlp-proto-http (or set OTEL_TRACES_EXPORTER=console)"
        )
    raise ConfigurationError(
        f"OTEL_TRACES_EXPORTER: there is no exporter '{name}'.{nearest(name, exporters)} "
        f"Known here: {', '.join(sorted(exporters))}, none."
    )
