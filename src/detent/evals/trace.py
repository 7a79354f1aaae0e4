"""The trace of a play: its actions and outputs, without values that differ between plays (times, new ids).

Equal plays leave equal traces; a case with more than one is unstable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from detent.evals.likeness import plainly
from detent.evals.played import Played
from detent.insight.visits import FunctionCall
from detent.kernel.plain import canonical

Trace = tuple[tuple[str, str], ...]
"""Lines, each with the place it belongs to: a step, or a word such as `end`."""

_TIMES = re.compile(r"(^|_)(ms|at|duration|elapsed|timestamp)$")
"""Keys whose values are times."""
_IDS = frozenset({"run_id", "message_id", "reply_message_id", "in_reply_to", "references", "idempotency_key"})
"""Keys whose values are generated ids."""
_GENERATED = (
    (re.compile(r"<[^<>\s@]+@[^<>\s@]+>"), "<message-id>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"), "<time>"),
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "<hex>"),
    (re.compile(r"\b\d+(?:\.\d+)? ?ms\b"), "<ms>"),
)


def trace_of(played: Played) -> Trace:
    """The trace of a play."""
    return tuple((place, _text(line, played.run_id)) for place, line in _lines(played))


def first_difference(trace: Trace, other: Trace) -> tuple[str, str, str]:
    """The first difference of two traces: the place, and the line of each."""
    for (place, line), (other_place, different) in zip(trace, other, strict=False):
        if (place, line) != (other_place, different):
            return place if place == other_place else f"{place} or {other_place}", line, different
    longer = trace if len(trace) > len(other) else other
    place, line = longer[min(len(trace), len(other))]
    return place, line if longer is trace else "nothing", line if longer is other else "nothing"


def _lines(played: Played) -> Iterator[tuple[str, str]]:
    if played.intake is not None:
        yield "intake", f"{played.intake.decision} {played.intake.reason or ''}".strip()
    for step in played.steps:
        yield step.step_name, f"mode {step.mode}" + (f", fallback {step.fallback}" if step.fallback else "")
        for call in step.calls:
            yield step.step_name, _call(call)
        yield step.step_name, f"said {step.output_text}"
        yield step.step_name, f"led to {step.next_step}, reason {step.reason}"
    for call in played.calls:
        yield "calls", _call(call)
    for kind, artifacts in played.artifacts.items():
        for artifact in artifacts:
            yield kind, canonical(_without_times_and_ids(plainly(artifact)))
    yield "end", f"{played.status} {played.end} {played.reason} {', '.join(played.flags)}"


def _call(call: FunctionCall) -> str:
    fate = "" if call.success else f" failed {call.error_message}"
    arguments, result = (
        canonical(_without_times_and_ids(plainly(call.arguments))),
        canonical(_without_times_and_ids(plainly(call.result))),
    )
    return f"{call.kind} {call.function_name} {arguments} gave {result}{fate}"


def _without_times_and_ids(value: Any) -> Any:
    """A value without times and ids."""
    if isinstance(value, Mapping):
        return {
            key: _without_times_and_ids(item)
            for key, item in value.items()
            if not (_TIMES.search(str(key)) or key in _IDS)
        }
    if isinstance(value, list):
        return [_without_times_and_ids(item) for item in value]
    return value


def _text(text: str, run_id: str | None) -> str:
    if run_id:
        text = text.replace(run_id, "<run>")
    for pattern, name in _GENERATED:
        text = pattern.sub(name, text)
    return text
