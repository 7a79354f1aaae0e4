"""What the SQL stores share: how rows become values and back. Knows no database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from detent.engine.ports import EdgeCount, RowState, RunQuery, RunRow
from detent.kernel.entries import Entry, body_from_plain
from detent.kernel.plain import decode, encode
from detent.kernel.status import Status

STATE_COLUMNS = (
    "status", "state", "updated_at", "wake_at", "steps", "tokens", "cost_usd", "reason", "error", "waits",
    "version", "fingerprint",
)  # fmt: skip
RUN_COLUMNS = (
    "id", "number", "flow", "machine", "parent", "created_at", "seq", "epoch", "owner", "asked", *STATE_COLUMNS,
)  # fmt: skip


def state_values(now: RowState) -> tuple[Any, ...]:
    """Values of STATE_COLUMNS."""
    return (
        now.status.value, now.state, now.updated_at, now.wake_at, now.steps, now.tokens, now.cost_usd, now.reason,
        now.error, encode(now.waits) if now.waits else None, now.version, now.fingerprint,
    )  # fmt: skip


def run_row(values: Sequence[Any], tags: Iterable[str]) -> RunRow:
    """A listing line from values of RUN_COLUMNS."""
    status, state, updated_at, wake_at, steps, tokens, cost, reason, error, waits, version, fingerprint = values[10:22]
    now = RowState(
        Status(status), state, updated_at, wake_at, steps, tokens, cost, reason, error,
        decode(waits) if waits else None, version, fingerprint,
    )  # fmt: skip
    return RunRow(*values[:10], tuple(tags), now)


def entry(seq: int, at: float, epoch: int, kind: str, body: str) -> Entry:
    """A journal line from its columns."""
    return Entry(seq, at, epoch, body_from_plain(kind, decode(body)))


def conditions(query: RunQuery, mark: str) -> tuple[str, list[Any]]:
    """The WHERE clause of a listing and its values; `mark` is the database's placeholder."""
    parts: list[str] = []
    values: list[Any] = []

    def add(text: str, *given: Any) -> None:
        parts.append(text.replace("?", mark))
        values.extend(given)

    if query.flow is not None:
        add("flow = ?", query.flow)
    if query.status:
        statuses = [status.value for status in query.status]
        add(f"status IN ({', '.join('?' * len(statuses))})", *statuses)
    if query.tag is not None:
        add("number IN (SELECT run FROM tags WHERE tag = ?)", query.tag)
    if query.since is not None:
        add("created_at >= ?", query.since)
    if query.until is not None:
        add("created_at < ?", query.until)
    if query.parent is not None:
        add("parent = ?", query.parent)
    if query.roots_only:
        add("parent IS NULL")
    if query.before is not None:
        add("number < ?", query.before)
    return ("WHERE " + " AND ".join(parts)) if parts else "", values


def add_edge(edges: dict[tuple[str, int, str, str], EdgeCount], edge: EdgeCount) -> None:
    """Add one move to those already counted."""
    key = edge[:4]
    there = edges.get(key)
    if there is not None:
        edge = EdgeCount(
            *key, there.count + edge.count, there.seconds + edge.seconds, min(there.fastest, edge.fastest),
            max(there.slowest, edge.slowest), there.tokens + edge.tokens, there.cost_usd + edge.cost_usd,
        )  # fmt: skip
    edges[key] = edge
