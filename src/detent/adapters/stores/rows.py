"""What the SQL stores share: how rows become values and back. Independent of any database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from detent.engine import logger
from detent.engine.ports import Cancellation, EdgeCount, Lease, Page, RowState, RunQuery, RunRow, Taken
from detent.kernel.entries import Entry, body_from_plain, body_to_plain
from detent.kernel.errors import RunDamaged, StoreError
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
    """The JSON text of a journal line's body."""
    return written(body_to_plain(entry.body))


def shown(text: str | None) -> str | None:
    """A text for listings, with replacements for characters databases cannot hold; the journal has all."""
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
        logger.warning("timer.skipped", run_id=values[0], wake_at=wake_at)
        wake_at = None
    numbers = {
        "created_at": values[5], "seq": values[6], "epoch": values[7], "updated_at": updated_at,
        "steps": steps, "tokens": tokens, "cost_usd": cost,
    }  # fmt: skip
    for name, number in numbers.items():
        if not isinstance(number, int | float):
            raise RunDamaged(values[0], f"its row has no number as {name}")
    try:
        known = Status(status)
    except ValueError:
        raise RunDamaged(values[0], "its row has a status that does not exist") from None
    try:
        waiting = decode(waits) if waits else None
        if not all(isinstance(wait, dict) for wait in waiting or ()):
            raise TypeError("a wait is an object")
    except (TypeError, ValueError):
        raise RunDamaged(values[0], "its row does not say what it waits for") from None
    now = RowState(
        known, state, updated_at, wake_at, steps, tokens, cost, reason, error, waiting, version, fingerprint,
    )  # fmt: skip
    asked = request(values[9]) if values[9] is not None else None
    return RunRow._make((*values[:9], asked, tuple(tags), now))


def request(text: str) -> Cancellation:
    """A request from its text. Before version 0.3 it was one word, `cancel` or `undo`."""
    if not text.startswith("["):
        return Cancellation(undo=text == "undo")
    return Cancellation(*kept("A request to cancel a run", text))


def page_of(query: RunQuery, fetched: Sequence[Any], read: Callable[[Any], RunRow]) -> Page:
    """A page of a listing from rows that begin with RUN_COLUMNS, one more than asked for if there is one."""
    rows: list[RunRow] = []
    damaged: list[RunDamaged] = []
    for values in fetched[: query.limit]:
        try:
            rows.append(read(values))
        except RunDamaged as error:
            if not query.tolerant:
                raise
            damaged.append(error)
    more = query.limit > 0 and len(fetched) > query.limit
    return Page(rows, fetched[query.limit - 1][1] if more else None, damaged)


def entries(run_id: str, rows: Iterable[Sequence[Any]]) -> list[Entry]:
    """Journal lines from their columns: seq, at, epoch, kind, body."""
    lines: list[Entry] = []
    for seq, at, epoch, kind, body in rows:
        try:
            if not isinstance(at, int | float) or not isinstance(epoch, int):
                raise TypeError("its time or epoch is no number")
            lines.append(Entry(seq, at, epoch, body_from_plain(kind, decode(body))))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error}".rstrip(".")
            raise RunDamaged(run_id, f"its journal cannot be read at entry {seq:,}: {why}") from error
    return lines


def seq_of(fold: str | None) -> int:
    """The entry of a saved fold; 0 when there is none, or a damaged one."""
    try:
        return int(decode(fold)["seq"]) if fold is not None else 0
    except (KeyError, TypeError, ValueError):
        return 0


def taken(lease: Lease, flow: str, fold: str | None, lines: Iterable[Sequence[Any]]) -> Taken:
    """A run claimed in a batch; the engine reads a damaged fold or journal again, and reports the damage."""
    try:
        saved = decode(fold) if fold is not None else None
        return Taken(lease, flow, saved, entries(lease.run_id, lines))
    except (RunDamaged, ValueError):
        return Taken(lease, flow, None, None)


def kept(what: str, text: Any) -> Any:
    """A value from its JSON text; `StoreError` names what is damaged."""
    try:
        return decode(text)
    except (TypeError, ValueError):
        raise StoreError(
            f"{what} is damaged in the store: it is not JSON. docs/stores.md says what to do."
        ) from None


def counted(rows: Iterable[Sequence[Any]]) -> list[tuple[str, Status, int]]:
    """Number of runs per flow and status; `StoreError` for an unknown status."""
    statuses = {status.value: status for status in Status}
    counts: list[tuple[str, Status, int]] = []
    for flow, status, number in rows:
        if status not in statuses:
            raise StoreError(
                f"Runs of '{flow}' have a status in the store that does not exist ({number:,}); "
                f"`detent store check` names them."
            )
        counts.append((flow, statuses[status], number))
    return counts


def conditions(query: RunQuery) -> tuple[str, list[Any]]:
    """The WHERE clause of a listing, before it is put into a store's dialect, and its values."""
    parts: list[str] = []
    values: list[Any] = []

    def add(text: str, *filtered_by: Any) -> None:
        parts.append(text)
        values.extend(filtered_by)

    if query.flow is not None:
        add("flow = ?", query.flow)
    if query.status:
        statuses = [status.value for status in query.status]
        add(f"status IN ({', '.join('?' * len(statuses))})", *statuses)
    if query.tag is not None:
        add("number IN (SELECT run FROM $.tags WHERE tag = ?)", query.tag)
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
    """The upper bound, byte by byte, of all texts that begin with `prefix`."""
    return prefix + "\U0010ffff"


def add_edge(edges: dict[EdgeKey, EdgeCount], edge: EdgeCount) -> None:
    """Add one move to the counts."""
    key = edge[:4]
    old = edges.get(key)
    if old is not None:
        edge = EdgeCount(
            *key, old.count + edge.count, old.seconds + edge.seconds, min(old.fastest, edge.fastest),
            max(old.slowest, edge.slowest), old.tokens + edge.tokens, old.cost_usd + edge.cost_usd,
        )  # fmt: skip
    edges[key] = edge
