"""What the engine needs from outside: a store, a clock, observers. Adapters plug in here.

The store is the only durable thing. Every write to a run goes through `append`, which must refuse
(`Fenced`) unless the run still has the lease's epoch and stands at the expected entry; everything in one
`Commit` becomes durable together or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from detent.kernel.entries import Entry
from detent.kernel.errors import DetentError, RunDamaged
from detent.kernel.status import Status

USUAL_LEASE = 15.0
"""Default duration of a worker's lease, in seconds."""
PAGE = 2000
"""Entries of a journal that are read at once."""
FORGOTTEN_AFTER = 86400.0
"""Seconds after the end of its lease at which a worker that never retired and holds no run is forgotten."""


class Worker(NamedTuple):
    """A process that drives runs."""

    id: str
    host: str
    """Identity of machine, boot and process namespace: within one host, pids can be looked up."""
    pid: int
    born: float
    """When the process started, to tell a reused pid apart."""
    until: float = 0.0
    """When its lease ends, on a clock only the store can read."""
    left: float = 0.0
    """Seconds until then, by the store's own clock when the worker was read."""


class Lease(NamedTuple):
    """The right to write to one run, until another claim raises its epoch."""

    run_id: str
    epoch: int
    seq: int
    """Last entry at the time of claiming."""
    key: Any
    """The store's own handle of the run."""
    lost: str | None = None
    """The dead worker from which the run was taken over, if any."""


class Taken(NamedTuple):
    """A run claimed in a batch, with the data needed to continue it."""

    lease: Lease
    flow: str
    fold: dict[str, Any] | None
    """The latest saved fold."""
    entries: Sequence[Entry] | None
    """First page of the journal after the fold; None if it has to be read separately."""


class Cancellation(NamedTuple):
    """That a run is to be cancelled: why, by whom and whether it rolls back."""

    reason: str = "cancelled"
    by: str = "person"
    undo: bool = False
    """Settle the step's effects first, so that the run can be rolled back."""


class RowState(NamedTuple):
    """A run's current values in listings; every commit keeps them in step with the journal."""

    status: Status
    state: str
    updated_at: float
    wake_at: float | None
    steps: int
    tokens: int
    cost_usd: float
    reason: str | None
    error: str | None
    waits: list[dict[str, Any]] | None
    """Open holds: `{name, token, why, question, choices, wake_at}`; rows of version 0.1 have no token."""
    version: int
    fingerprint: str


class RunRow(NamedTuple):
    """One run in a listing."""

    id: str
    number: int
    """Order of creation in this store."""
    flow: str
    machine: str
    parent: str | None
    created_at: float
    seq: int
    epoch: int
    owner: str | None
    asked: Cancellation | None
    """The pending request to its worker, if any."""
    tags: tuple[str, ...]
    now: RowState


class LedgerLine(NamedTuple):
    """Current state of one effect of a run."""

    key: str
    tool: str
    state: str
    """begun, done, failed, skipped."""
    seq: int
    """Number of the entry that records this state."""


class EdgeCount(NamedTuple):
    """Number and cost of one move in one flow on one day."""

    flow: str
    day: int
    """Days since the epoch, UTC."""
    frm: str
    to: str
    count: int  # type: ignore[assignment]  # a field, not the method of tuples
    seconds: float
    fastest: float
    slowest: float
    tokens: int
    cost_usd: float


class Blob(NamedTuple):
    """A large or private value kept outside the journal, addressed by its hash."""

    hash: str
    body: bytes


class MarkChange(NamedTuple):
    """A mark to be set in the same transaction as a run's entries, by compare-and-set."""

    key: str
    value: Any
    expected: int
    """Its version before; if it has another one, nothing is written (`MarkMoved`)."""
    remove: bool = False
    """Remove the mark, so that its versions begin again: only for marks that one driver at a time writes."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """Everything a store writes when a run is created."""

    run_id: str
    flow: str
    machine: str
    parent: str | None
    entries: tuple[Entry, ...]
    now: RowState
    tags: tuple[str, ...] = ()
    worker: str | None = None
    """The worker that drives it from the start; None leaves it to any worker."""
    definition: dict[str, Any] = field(default_factory=dict)
    ledger: tuple[LedgerLine, ...] = ()
    blobs: tuple[Blob, ...] = ()
    """Values kept outside the journal from the start."""
    blobs_of: str | None = None
    """Run whose blobs this one refers to as well (a fork)."""
    alone: bool = False
    """No other run is under way in this process: a store may write at once instead of gathering writes."""
    mark: MarkChange | None = None
    """A mark that is set with the run, or the run is not created."""


class Commit(NamedTuple):
    """Everything that becomes durable together."""

    lease: Lease
    after: int
    """Number of the run's last entry before this commit."""
    entries: Sequence[Entry]
    now: RowState
    park: bool = False
    """Park the run in the same commit: it ended or waits."""
    ledger: tuple[LedgerLine, ...] = ()
    edges: tuple[EdgeCount, ...] = ()
    tags: tuple[tuple[str, bool], ...] = ()
    """Tags put on (True) or taken off (False)."""
    fold: dict[str, Any] | None = None
    """The run as of the last entry, saved so that resuming reads less. Encode it before waiting."""
    blobs: tuple[Blob, ...] = ()
    definition: dict[str, Any] | None = None
    alone: bool = False
    """As in `NewRun`."""
    marks: tuple[MarkChange, ...] = ()
    """Marks that are set with the entries, or nothing is written."""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list, newest first."""

    flow: str | None = None
    status: Collection[Status] = ()
    tag: str | None = None
    since: float | None = None
    until: float | None = None
    parent: str | None = None
    """Children of this run."""
    roots_only: bool = False
    before: int | None = None
    """Only runs created before this number: the cursor of the previous page."""
    limit: int = 50
    tolerant: bool = False
    """List damaged runs apart, in `Page.damaged`; otherwise the first of them raises `RunDamaged`."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing."""

    rows: list[RunRow]
    next: int | None
    """Cursor of the next page, or None when this was the last."""
    damaged: list[RunDamaged] = field(default_factory=list)
    """Runs of this page that cannot be read; only where the query is tolerant."""


class Store(Protocol):
    """Where journals live."""

    async def open(self) -> None:
        """Make the store usable; raise `StoreUnavailable` or `StoreTooNew` in one clear sentence."""

    async def close(self) -> None:
        """Finish accepted writes and close files and connections."""

    # Driving
    async def create(self, new: NewRun) -> Lease:
        """Make a run durable with its first entries and its mark.

        `RunExists` if the id is taken, `MarkMoved` if the mark has another version: nothing is written then.
        """

    async def append(self, commit: Commit) -> int:
        """Make a commit durable, and return the size of the saved fold.

        `Fenced` if the run was taken over, `MarkMoved` if the commit's mark has another version: nothing is
        written then.
        """

    async def claim(self, run_id: str, worker: str, dead: Collection[Worker] = ()) -> Lease:
        """Take the run and raise its epoch; `RunBusy` while another worker has it.

        A worker holds no run if the store does not know it, or if it is in `dead` and has not beaten since.
        """

    async def take(
        self,
        worker: str,
        limit: int,
        *,
        now: float,
        flows: Collection[str],
        dead: Collection[Worker] = (),
        only: Collection[str] | None = None,
        skip: Collection[str] = (),
    ) -> list[Taken]:
        """Claim at most `limit` runs that can continue and that no worker holds, by the rules of `claim`.

        First waiting runs whose timers are due, earliest first, then running ones, oldest first; of the given
        flows, only those in `only` if it is given, without those in `skip` and without children of a run that
        does not exist. Runs that another worker is claiming at the same time are skipped.
        """

    async def changed(self) -> None:
        """Return when there may be new runs for `take` to claim.

        It may return without reason or never: a worker polls as well.
        """

    async def park(self, lease: Lease) -> None:
        """Release the run if the lease still holds."""

    async def beat(self, worker: Worker, seconds: float) -> None:
        """Renew a worker's lease for `seconds` from now; forget long-dead workers that hold no run.

        Time is the store's own, so that workers whose clocks differ agree. This method and `retire` are
        awaited in an event loop of their own, in another thread than everything else.
        """

    async def retire(self, worker_id: str) -> None:
        """Forget a worker and free the runs it still holds."""

    async def workers(self) -> list[Worker]:
        """All workers that have not retired and are not forgotten, with the rest of their leases."""

    async def ask(self, run_id: str, cancellation: Cancellation) -> None:
        """Leave a request for the worker that drives the run; does nothing if no worker does."""

    async def asked(self, worker_id: str) -> list[tuple[str, Cancellation]]:
        """Requests left for runs of this worker."""

    async def due(self, now: float, limit: int = 100) -> list[str]:
        """Waiting runs whose timers are due, earliest first."""

    async def loose(self, dead: Collection[Worker] = (), limit: int = 100) -> list[str]:
        """Running runs held by no worker, by one in `dead`, or by one unknown to the store.

        Oldest first.
        """

    async def owned(self, worker_id: str) -> list[tuple[str, int]]:
        """Runs a worker holds, with their epochs."""

    # Reading
    async def row(self, run_id: str) -> RunRow:
        """One run's listing line; `RunNotFound` if there is none."""

    async def rows(self, query: RunQuery) -> Page:
        """A page of runs."""

    async def find(self, prefix: str, limit: int = 10) -> list[str]:
        """Ids that begin with `prefix`."""

    async def entries(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """The next lines of a journal after entry number `after`."""

    async def saved_fold(self, run_id: str) -> dict[str, Any] | None:
        """The latest saved fold."""

    async def definition(self, fingerprint: str) -> dict[str, Any] | None:
        """The description of a definition some run was started under."""

    async def effect(self, run_id: str, key: str) -> LedgerLine | None:
        """Current state of one effect."""

    async def effects(self, run_id: str) -> list[LedgerLine]:
        """Current states of all effects of a run, in order of their last entries."""

    async def edges(self, flow: str, since_day: int | None = None) -> list[EdgeCount]:
        """Moves of a flow added up over its runs; days are kept apart only as far as `since_day` needs."""

    async def flows(self) -> list[tuple[str, Status, int]]:
        """How many runs each flow has in each status."""

    async def facts(self) -> dict[str, Any]:
        """Kind, place, schema version, size and counts, for people."""

    async def integrity(self) -> list[str]:
        """Problems of the stored data, one sentence each; reads all of it."""

    # Values outside the journal
    async def blob(self, hash: str) -> bytes | None:
        """A kept value, or None when it was purged or never there."""

    async def purge(self, run_id: str | None = None, before: float | None = None) -> int:
        """Drop the blobs of one run, or of all ended runs last changed before a time; returns their number.

        By time, blobs of an open run's descendants are kept: a rollback may need them.
        """

    async def mark(self, key: str) -> tuple[Any, int]:
        """A small durable value and its version; `(None, 0)` when unset."""

    async def set_mark(self, key: str, value: Any, expected: int) -> bool:
        """Set a mark if its version is still `expected`; True when it was."""

    async def marks(self, prefix: str) -> dict[str, Any]:
        """All marks whose key begins with `prefix`."""


class Clock(Protocol):
    """The time, as a port so that tests can control it."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def elapsed(self) -> float:
        """Seconds on a clock that never goes back, for durations."""

    def ticks(self) -> float:
        """Seconds on a clock that never goes back and runs on while the machine is suspended."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class Observer(Protocol):
    """Is notified of every committed entry.

    All methods are optional in practice; see observers.
    """

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """An entry was committed."""


class TapeCall(NamedTuple):
    """A call to the outside world: to an agent, a query or an effect."""

    kind: Literal["agent", "query", "effect"]
    where: str
    """The run's id without the root's: empty for the root itself, `.key` for a child."""
    step: str
    subject: str
    """An agent's provider and model, or the name of a tool."""
    request: Any
    """Everything the answer depends on, as a plain value."""


class TapeError(DetentError):
    """A call differs from the recorded one; the run must not continue."""


class Tape(Protocol):
    """Records the answers of the outside world, or plays them back."""

    @property
    def plays(self) -> bool:
        """True when it plays back recorded answers, so that nothing else is called."""

    async def through(self, call: TapeCall, work: Callable[[], Awaitable[Any]]) -> Any:
        """The answer as a plain value: from `work` and recorded, or played back without calling `work`."""


class Resource(Protocol):
    """A resource that stays open as long as the engine, such as connections to tool servers."""

    async def open(self) -> None:
        """Make it usable."""

    async def close(self) -> None:
        """Close it."""


Entries = Sequence[Entry]
