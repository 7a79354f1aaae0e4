"""Whether a visit has been found right before: a visit that is found right twice has agreed once.

A comparison with the handler and a later verdict come at different times, in either order, and both are notes
in the run's journal. The report reads the whole journal and sees both; the engine, which counts each as it
comes, asks here for the other. What speaks against an agent always counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.dispatch.agreement import SHADOW
from detent.dispatch.evidence import Verdict, verdict_of_later, verdict_of_shadow
from detent.engine.journal_reader import read
from detent.engine.ports import Store
from detent.engine.verdicts import VERDICT
from detent.kernel.entries import Noted


async def found_right_by_comparison(store: Store, run_id: str, note: Mapping[str, Any]) -> bool:
    """Whether a comparison has found the visit right that a later verdict is about."""
    return await _found_right(store, run_id, note["entry"], note["record"], SHADOW)


async def found_right_later(store: Store, run_id: str, note: Mapping[str, Any]) -> bool:
    """Whether a later verdict has found the visit right that a comparison is about."""
    return await _found_right(store, run_id, note["of"], note, VERDICT)


async def _found_right(store: Store, run_id: str, visit: int, record: Mapping[str, Any], topic: str) -> bool:
    """Whether a note of a topic finds one step of the visit that ended with an entry right."""
    async for entry in read(store, run_id, after=visit):
        body = entry.body
        if not isinstance(body, Noted) or body.topic != topic:
            continue
        note = body.body
        if topic == SHADOW:
            of, judged = note.get("of"), note
            right = note.get("side") == "handler" and verdict_of_shadow(note) is Verdict.AGREED
        else:
            of, judged = note["entry"], note["record"]
            right = verdict_of_later(note) is Verdict.AGREED and not note.get("again")
        if right and of == visit and all(judged.get(key) == record.get(key) for key in ("step", "series")):
            return True
    return False
