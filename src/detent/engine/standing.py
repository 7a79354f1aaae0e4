"""What a commit says about a run beside its entries: the row in lists, the ledger, the moves added up."""

from __future__ import annotations

from typing import Any

from detent.engine.context import brief
from detent.engine.ports import EdgeCount, LedgerLine, RowState
from detent.kernel.entries import EffectBegun, EffectDone, EffectFailed, EffectSkipped, Entry, Moved
from detent.kernel.run import Run

LEDGER_STATE: dict[type, str] = {
    EffectBegun: "begun",
    EffectDone: "done",
    EffectFailed: "failed",
    EffectSkipped: "skipped",
}
"""What the ledger says after each kind of entry about an effect."""


def ledger_line(entry: Entry) -> LedgerLine:
    """Standing of the effect an entry speaks of."""
    body: Any = entry.body
    return LedgerLine(body.key, body.tool, LEDGER_STATE[type(body)], entry.seq)


def edge_of(flow: str, at: float, body: Moved) -> EdgeCount:
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
