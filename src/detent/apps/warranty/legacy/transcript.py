"""A legacy run as text, the same for the same behaviour: no times, no ids of mails, no run ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.engine.journal_reader import load, read
from detent.engine.ports import Store
from detent.insight.visits import FunctionCall, blobs_of, visits
from detent.kernel.plain import encode

LEFT_OUT = frozenset(
    {
        "message_id",
        "source",
        "in_reply_to",
        "references",
        "customer",
        "step",
        "source_message_id",
        "thread_root",
        "created_at",
    }
)
"""Keys whose values differ between two deliveries of the same mail."""


async def transcript(store: Store, run_id: str) -> str:
    """The decisions, queries, effects and replies of a run."""
    entries = [entry async for entry in read(store, run_id)]
    blobs = await blobs_of(store, entries)
    run = await load(store, run_id)
    detected = run.data.get("detected") or {}
    lines = [
        f"detected: {detected.get('scenario_name')} {detected.get('confidence')} "
        f"{detected.get('detection_method')} {detected.get('detected_intent')}"
        f"{' ambiguous' if detected.get('ambiguous') else ''}",
        f"scenario: {run.data.get('scenario')}",
        f"language: {run.data.get('language')}",
        f"serial: {run.data.get('serial_number')}",
    ]
    for visit in visits(entries, blobs=blobs):
        lines.append(f"{visit.step_name} → {visit.next_step} ({visit.reason})")
        for call in visit.calls:
            lines += _call_lines(call)
    if flags := run.data.get("flags"):
        lines.append(f"flags: {', '.join(flags)}")
    lines.append(f"end: {run.state} ({run.status.value})")
    return "\n".join(lines) + "\n"


def _call_lines(call: FunctionCall) -> list[str]:
    args = _without_ids(call.arguments)
    body = args.pop("body", None) if isinstance(args, dict) else None
    outcome = (
        _without_ids(call.result)
        if call.success
        else f"failed ({(call.error_message or '').partition(':')[0]})"
    )
    lines = [
        f"  {call.function_name} {encode(args)}",
        f"    = {outcome if isinstance(outcome, str) else encode(outcome)}",
    ]
    if isinstance(body, str):
        lines += [f"    | {line}".rstrip() for line in body.splitlines()]
    return lines


def _without_ids(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_ids(item) for key, item in sorted(value.items()) if key not in LEFT_OUT}
    return value
