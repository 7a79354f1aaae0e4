"""Building blocks of the trials: handwritten runs, commits and rows, and the decorator that runs a trial."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from detent.engine.host import this_host
from detent.engine.ports import (
    Blob,
    Cancellation,
    Commit,
    EdgeCount,
    Lease,
    LedgerLine,
    NewRun,
    RowState,
    RunQuery,
    RunRow,
    Store,
    Worker,
)
from detent.kernel.entries import Body, Entry, Moved, Noted, Started
from detent.kernel.plain import digest
from detent.kernel.status import Status

T0 = 1_700_000_000.0
"""The time of the trials."""
WITHDRAWN = Cancellation("customer withdrew: 'no', he said \0\n", "ada@example.com", True)
"""A request to cancel."""
LONGEST_TRIAL = 120.0
"""Seconds after which a trial counts as hanging."""

Suite = TypeVar("Suite", bound="Trials")


class Trials:
    """The part of a suite that its trials use."""

    async def open_store(self) -> Store:
        """A new store over an empty database, opened."""
        raise NotImplementedError("Give the suite `open_store`: a fresh, opened store.")


def trial(test: Callable[[Suite, Store], Awaitable[None]]) -> Callable[[Suite], None]:
    """Run a trial in an event loop of its own with a fresh store, so that any test runner can call it."""

    async def with_store(suite: Suite) -> None:
        store = await suite.open_store()
        try:
            await asyncio.wait_for(test(suite, store), LONGEST_TRIAL)
        finally:
            await store.close()

    @functools.wraps(test)
    def run(suite: Suite) -> None:
        asyncio.run(with_store(suite))

    del run.__dict__["__wrapped__"]  # else a runner sees the coroutine function and its parameter
    return run


async def refused(error: type[BaseException], work: Awaitable[Any]) -> Any:
    """The error of this kind that `work` must raise."""
    try:
        result = await work
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} should have been raised; got {result!r}")


def now(
    status: Status = Status.RUNNING,
    state: str = "a",
    *,
    at: float = T0,
    wake_at: float | None = None,
    **rest: Any,
) -> RowState:
    """A listing state."""
    values: dict[str, Any] = {
        "status": status, "state": state, "updated_at": at, "wake_at": wake_at, "steps": 0, "tokens": 0,
        "cost_usd": 0.0, "reason": None, "error": None, "waits": None, "version": 1, "fingerprint": "f1",
    }  # fmt: skip
    return RowState(**{**values, **rest})


def new(run_id: str, *, flow: str = "flow", worker: str | None = "w1", at: float = T0, **rest: Any) -> NewRun:
    """A run about to be created."""
    body = Started(flow=flow, state="a", machine="m", version=1, fingerprint="f1", data=rest.pop("data", {}))
    values: dict[str, Any] = {
        "run_id": run_id, "flow": flow, "machine": "m", "parent": None, "entries": (Entry(1, at, 1, body),),
        "now": now(at=at), "worker": worker, "definition": {"name": "m"},
    }  # fmt: skip
    return NewRun(**{**values, **rest})


def move(seq: int, *, epoch: int = 1, at: float = T0, frm: str = "a", to: str = "b", **rest: Any) -> Entry:
    """An entry for a move."""
    return Entry(seq, at, epoch, Moved(frm, to, **rest))


def note(seq: int, value: Any, *, epoch: int = 1) -> Entry:
    """An entry that holds any plain value."""
    return Entry(seq, T0, epoch, Noted("note", {"value": value}))


def commit(
    lease: Lease, after: int, *bodies: Entry | Body, state: RowState | None = None, **rest: Any
) -> Commit:
    """A commit after entry `after`: the given entries, or one move."""
    entries: Sequence[Entry] = tuple(
        body if isinstance(body, Entry) else Entry(after + 1 + index, T0, lease.epoch, body)
        for index, body in enumerate(bodies)
    ) or (move(after + 1, epoch=lease.epoch),)
    return Commit(lease, after, entries, state if state is not None else now(), **rest)


def edge(
    count: int = 1, *, flow: str = "flow", day: int = 19_000, frm: str = "a", to: str = "b"
) -> EdgeCount:
    """Counted moves, with exact sums in any order of adding."""
    return EdgeCount(flow, day, frm, to, count, 0.5 * count, 0.5, 0.5 * count, 10 * count, 0.25 * count)


def line(key: str, state: str = "begun", seq: int = 2) -> LedgerLine:
    """A ledger line."""
    return LedgerLine(key, "tool", state, seq)


def blob(body: bytes) -> Blob:
    """A blob named after its content."""
    return Blob(digest(body.hex()), body)


def worker(worker_id: str) -> Worker:
    """A worker on this machine."""
    return Worker(worker_id, this_host("elsewhere"), 4242, 17.25)


async def known(store: Store, *names: str) -> list[Worker]:
    """Workers as the store knows them."""
    return [worker for worker in await store.workers() if worker.id in names]


def sums(edges: Iterable[EdgeCount]) -> dict[tuple[str, str], tuple[int, float, float, float, int, float]]:
    """Counts by move, with days added up: a store may keep days apart or not."""
    totals: dict[tuple[str, str], tuple[int, float, float, float, int, float]] = {}
    for item in edges:
        count, seconds, fastest, slowest, tokens, cost = totals.get(item[2:4], (0, 0.0, 1e9, 0.0, 0, 0.0))
        totals[item[2:4]] = (
            count + item.count, seconds + item.seconds, min(fastest, item.fastest),
            max(slowest, item.slowest), tokens + item.tokens, cost + item.cost_usd,
        )  # fmt: skip
    return totals


async def everything(store: Store, run_id: str, flow: str = "flow") -> dict[str, Any]:
    """Everything a store says about a run, to check that nothing changed."""
    return {
        "row": await store.row(run_id),
        "entries": await store.entries(run_id),
        "fold": await store.saved_fold(run_id),
        "effects": await store.effects(run_id),
        "edges": await store.edges(flow),
        "flows": await store.flows(),
    }


async def pages(
    store: Store, query: dict[str, Any], meanwhile: Callable[[], Awaitable[Any]] | None = None
) -> list[RunRow]:
    """All rows of a listing, page by page, with `meanwhile` called between the pages."""
    rows: list[RunRow] = []
    before: int | None = None
    while True:
        page = await store.rows(RunQuery(**query, before=before))
        assert len(page.rows) <= query.get("limit", 50)
        rows.extend(page.rows)
        if page.next is None:
            return rows
        assert page.rows, "a page that is not the last must have rows"
        before = page.next
        if meanwhile is not None:
            await meanwhile()
