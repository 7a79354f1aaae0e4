"""The rows a store derives from journal entries: a run's listing row, its ledger, its tags, counted moves.

Pure, and the only place where they are made: what a listing shows is what the fold of the journal says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.engine.ports import EdgeCount, LedgerLine, RowState
from detent.kernel.entries import EffectBegun, EffectDone, EffectFailed, EffectSkipped, Entry, Moved, Tagged
from detent.kernel.plain import brief
from detent.kernel.run import Run

LEDGER_STATE: dict[type, str] = {
    EffectBegun: "begun",
    EffectDone: "done",
    EffectFailed: "failed",
    EffectSkipped: "skipped",
}
"""What the ledger says after each kind of entry about an effect."""


Derived = tuple[RowState, tuple[LedgerLine, ...], tuple[EdgeCount, ...], tuple[tuple[str, bool], ...]]
"""What a commit writes beside its entries: the listing row, ledger lines, counted moves, changes of tags."""


def derived(run: Run, entries: Sequence[Entry]) -> Derived:
    """What follows from entries that `run` has taken in last."""
    if len(entries) == 1 and type(move := entries[0].body) is Moved:  # by far the most common commit
        return row_of(run), (), (_edge(run.flow, entries[0].at, move),), ()
    ledger: tuple[LedgerLine, ...] = ()
    edges: tuple[EdgeCount, ...] = ()
    tags: tuple[tuple[str, bool], ...] = ()
    for entry in entries:
        body: Any = entry.body
        kind = type(body)
        if kind is Moved:
            edges = (*edges, _edge(run.flow, entry.at, body))
        elif kind in LEDGER_STATE:
            ledger = (*ledger, LedgerLine(body.key, body.tool, LEDGER_STATE[kind], entry.seq))
        elif kind is Tagged:
            # As the fold has it: a tag both removed and added stays.
            tags = (*tags, *((tag, False) for tag in body.remove), *((tag, True) for tag in body.add))
    return row_of(run), ledger, edges, tags


def _edge(flow: str, at: float, body: Moved) -> EdgeCount:
    """One move, ready to be added up."""
    return EdgeCount(
        flow, int(at // 86400), body.frm, body.to, 1, body.duration, body.duration, body.duration,
        body.spend.tokens, body.spend.cost_usd,
    )  # fmt: skip


def row_of(run: Run) -> RowState:
    """What lists show of a run."""
    waits = None
    wake_at = None
    if run.holds:
        waits = [
            {
                "name": hold.name,
                "token": run.token(hold.name),
                "why": hold.why,
                "question": brief(hold.question),
                "choices": hold.choices,
                "wake_at": hold.wake_at,
            }
            for hold in run.holds.values()
        ]
        wake_at = min((hold.wake_at for hold in run.holds.values() if hold.wake_at is not None), default=None)
    total = run.total_spend
    return RowState(
        run.status, run.state, run.updated_at, wake_at, run.steps, total.tokens, total.cost_usd, run.reason,
        run.error, waits, run.version, run.fingerprint,
    )  # fmt: skip
