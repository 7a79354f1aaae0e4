"""What the SQL stores share: how rows become values and back. Knows no database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from detent.engine.ports import EdgeCount, RowState, RunQuery, RunRow
from detent.kernel import log
from detent.kernel.entries import Entry, body_from_plain, body_to_plain
from detent.kernel.plain import decode, encode
from detent.kernel.status import Status

STATE_COLUMNS = (
    "status", "state", "updated_at", "wake_at", "steps", "tokens", "cost_usd", "reason", "error", "waits",
    "version", "fingerprint",
)  # fmt: skip
RUN_COLUMNS = (
    "id", "number", "flow", "machine", "parent", "created_at", "seq", "epoch", "owner", "asked",
    *STATE_COLUMNS,
)  # fmt: skip

EdgeKey = tuple[str, int, str, str]


def written(value: Any) -> str:
    """JSON text of a plain value that any database can hold and that reads back the same.

    Half a surrogate pair (from a file name or a cut-off text) has no UTF-8 form: such a value is written in
    ASCII.
    """
    text = encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def body_of(entry: Entry) -> str:
    """The written form of what a journal line says."""
    return written(body_to_plain(entry.body))


def shown(text: str | None) -> str | None:
    """A text for listings, with a mark in place of what databases cannot hold; the journal has it in full."""
    if text is None:
        return None
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text


def state_values(now: RowState) -> tuple[Any, ...]:
    """Values of STATE_COLUMNS."""
    return (
        now.status.value, now.state, now.updated_at, now.wake_at, now.steps, now.tokens, now.cost_usd,
        shown(now.reason), shown(now.error), written(now.waits) if now.waits else None, now.version,
        now.fingerprint,
    )  # fmt: skip


def run_row(values: Sequence[Any], tags: Iterable[str]) -> RunRow:
    """A listing line from values of RUN_COLUMNS."""
    status, state, updated_at, wake_at, steps, tokens, cost, reason, error, waits, version, fingerprint = (
        values[10:22]
    )
    if wake_at is not None and type(wake_at) not in (int, float):
        # Version 0.1 took any value for a time, and SQLite any for a number.
        log.warning("timer.skipped", run_id=values[0], wake_at=wake_at)
        wake_at = None
    now = RowState(
        Status(status), state, updated_at, wake_at, steps, tokens, cost, reason, error,
        decode(waits) if waits else None, version, fingerprint,
    )  # fmt: skip
    return RunRow._make((*values[:10], tuple(tags), now))


def entry(seq: int, at: float, epoch: int, kind: str, body: str) -> Entry:
    """A journal line from its columns."""
    return Entry(seq, at, epoch, body_from_plain(kind, decode(body)))


def conditions(query: RunQuery, mark: str, tags: str = "tags") -> tuple[str, list[Any]]:
    """The WHERE clause of a listing and its values; `mark` is the placeholder, `tags` the table of tags."""
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
        add(f"number IN (SELECT run FROM {tags} WHERE tag = ?)", query.tag)
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


def after_prefix(prefix: str) -> str:
    """The text that bounds from above, byte by byte, all texts that begin with `prefix`."""
    return prefix + "\U0010ffff"


def add_edge(edges: dict[EdgeKey, EdgeCount], edge: EdgeCount) -> None:
    """Add one move to those already counted."""
    key = edge[:4]
    there = edges.get(key)
    if there is not None:
        edge = EdgeCount(
            *key, there.count + edge.count, there.seconds + edge.seconds, min(there.fastest, edge.fastest),
            max(there.slowest, edge.slowest), there.tokens + edge.tokens, there.cost_usd + edge.cost_usd,
        )  # fmt: skip
    edges[key] = edge
