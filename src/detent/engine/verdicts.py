"""Verdicts on earlier visits: what a later step, or a person, has found out about a decision of the run.

A verdict is a note in the journal, with what the performer recorded about the visit it judges. The performer
is told once it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from detent.engine.ports import PAGE, Store
from detent.kernel import checks
from detent.kernel.entries import Body, Moved, Noted
from detent.kernel.errors import ConfigurationError, name_of, nearest
from detent.kernel.run import Run

VERDICT = "evidence.verdict"
"""Topic of the notes that hold verdicts."""
RECORDED = ("step", "series", "autonomy_level", "lowered", "check", "kind", "draft")
"""What is copied from the performer's record of the judged visit."""


async def verdict_note(
    store: Store,
    run: Run,
    state: Any,
    right: Any,
    *,
    visit: int | None,
    why: str,
    by: str,
    waiting: Iterable[Body] = (),
    aside: bool = False,
) -> Noted:
    """The note that says whether an earlier visit of a state was right; `waiting` are entries before it.

    Raises:
        ConfigurationError: the run has not made that visit.
    """
    name = name_of(state)
    visits = run.visits.get(name, 0)
    if visit is not None and (type(visit) is not int or not 1 <= visit <= visits):
        times = {0: "not visited it", 1: "visited it once"}.get(visits, f"visited it {visits} times")
        raise ConfigurationError(f"Run {run.id} has no visit {visit} of '{name}' to judge. It has {times}.")
    if type(right) is not bool:
        raise checks.refuse("A verdict", right, "True for right, or False")
    entry, by_whom, record, judged = await _visit(store, run, name, None if visit is None else visits - visit)
    judged = judged or any(_judges(body, entry, name) for body in waiting)
    body: dict[str, Any] = {
        "state": name, "visit": visit or visits, "entry": entry, "right": right, "by": by,
        "performed_by": by_whom, "record": {key: record[key] for key in RECORDED if key in record},
    }  # fmt: skip
    if why:
        body["why"] = checks.text("why", why)[:500]
    if judged:
        body["again"] = True
    return Noted(VERDICT, body, aside=aside)


async def _visit(
    store: Store, run: Run, name: str, later: int | None
) -> tuple[int, str, Mapping[str, Any], bool]:
    """The visit to judge: its entry's number, who performed it, its record, and whether it was judged before.

    It is the visit of a state with so many `later` ones; with None the latest, of a state or of a further
    step of this name. The journal is read from its end: most verdicts are about what has just been done.
    """
    end, judged = run.seq, set()
    while end > 0:
        first = max(0, end - PAGE)
        for entry in reversed(await store.entries(run.id, first, end - first)):
            body = entry.body
            if type(body) is Noted and body.topic == VERDICT:
                judged.add((body.body.get("entry"), body.body.get("state")))
            if type(body) is not Moved:
                continue
            seen = (entry.seq, name) in judged
            for record in body.detail.get("then", ()) if later is None else ():
                if str(record.get("step")).rpartition("/")[2] == name:
                    by = "agent" if record.get("mode_used") == "agent" else "handler"
                    return entry.seq, by, record, seen
            if body.frm == name:
                if not later:
                    return entry.seq, body.by, body.detail, seen
                later -= 1
        end = first
    states = ", ".join(run.visits) or "none yet"
    raise ConfigurationError(
        f"Run {run.id} has not visited '{name}', so there is nothing to judge.{nearest(name, run.visits)} "
        f"It has visited: {states}."
    )


def _judges(body: Body, entry: int, name: str) -> bool:
    if type(body) is not Noted or body.topic != VERDICT:
        return False
    return (body.body.get("entry"), body.body.get("state")) == (entry, name)


def counts_in(run: Run, verdict: Mapping[str, Any]) -> bool:
    """Whether a verdict is the first about a visit that this run has made itself."""
    copied = int((run.forked_from or {}).get("seq", 0))
    return not verdict.get("again") and int(verdict["entry"]) > copied
