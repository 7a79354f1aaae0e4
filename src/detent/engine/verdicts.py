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
RECORDED = ("step", "series", "autonomy_level", "lowered", "check")
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
    number = visits if visit is None else visit
    if type(number) is not int or not 1 <= number <= visits:
        if not visits:
            states = ", ".join(run.visits) or "none yet"
            raise ConfigurationError(
                f"Run {run.id} has not visited '{name}', so there is nothing to judge."
                f"{nearest(name, run.visits)} It has visited: {states}."
            )
        times = "once" if visits == 1 else f"{visits} times"
        raise ConfigurationError(
            f"Run {run.id} has no visit {number} of '{name}' to judge. It has visited it {times}."
        )
    if type(right) is not bool:
        raise checks.refuse("A verdict", right, "True for right, or False")
    entry, move, judged = await _visit(store, run, name, visits - number)
    judged = judged or any(_judges(body, entry) for body in waiting)
    body: dict[str, Any] = {
        "state": name, "visit": number, "entry": entry, "right": right, "by": by, "performed_by": move.by,
        "record": {key: move.detail[key] for key in RECORDED if key in move.detail},
    }  # fmt: skip
    if why:
        body["why"] = checks.text("why", why)[:500]
    if judged:
        body["again"] = True
    return Noted(VERDICT, body, aside=aside)


async def _visit(store: Store, run: Run, state: str, later: int) -> tuple[int, Moved, bool]:
    """The move that ended a visit with so many `later` ones: its entry's number, itself, whether judged.

    The journal is read from its end, since most verdicts are about what has just been done.
    """
    end, judged = run.seq, set()
    while end > 0:
        first = max(0, end - PAGE)
        for entry in reversed(await store.entries(run.id, first, end - first)):
            body = entry.body
            if type(body) is Noted and body.topic == VERDICT:
                judged.add(body.body.get("entry"))
            elif type(body) is Moved and body.frm == state:
                if not later:
                    return entry.seq, body, entry.seq in judged
                later -= 1
        end = first
    raise ConfigurationError(f"The journal of run {run.id} has no such visit of '{state}'.")


def _judges(body: Body, entry: int) -> bool:
    return type(body) is Noted and body.topic == VERDICT and body.body.get("entry") == entry


def counts_in(run: Run, verdict: Mapping[str, Any]) -> bool:
    """Whether a verdict is the first about a visit that this run has made itself."""
    copied = int((run.forked_from or {}).get("seq", 0))
    return not verdict.get("again") and int(verdict["entry"]) > copied
