"""How healthy the store is, and which runs need a person: what `doctor` and `store check` report.

Every look is bounded: where there is more than is looked at, the report says so.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.engine.journal_check import check_journals
from detent.engine.leases import Leases
from detent.engine.ports import RunQuery, RunRow, Store
from detent.insight.formatting import count
from detent.kernel.errors import ConfigurationError, RunDamaged, StoreDamaged, StoreError, StoreUnavailable
from detent.kernel.status import Status
from detent.runtime.store_url import store_url
from detent.runtime.wiring import store_for

if TYPE_CHECKING:
    from detent.adapters.stores.sqlite_remains import Remains
    from detent.engine.flow import Flow
    from detent.engine.ports import Clock
    from detent.runtime.settings import Settings

LOOK_AT = 1000
"""Most runs of each kind that are examined."""
SAMPLE = 100
"""Most interrupted runs that are tested for whether they can be driven here."""
LEAST_FREE = 200 << 20
"""Bytes that should be free on the store's disk; with less, a few large values can fill it."""
PROBE = 1 << 16
"""Bytes written to test whether the disk is writable."""
OVERDUE = 60.0
"""Seconds past its due time after which a run that no worker wakes needs a person."""
SILENT = 30.0
"""Seconds past the end of its lease after which a worker with a live process is reported."""
MOST_TOLD = 50
"""Damaged runs that a report names."""


@dataclass
class Need:
    """Something that needs a person, and what to do about it."""

    what: str
    """One sentence."""
    command: tuple[str, ...] = ()
    """The command to type, without the program's name."""
    runs: list[str] = field(default_factory=list)

    def to_plain(self, command: Callable[..., str]) -> dict[str, Any]:
        """As a plain value, with the command as people type it."""
        return {
            "what": self.what,
            "command": command(*self.command) if self.command else None,
            "runs": self.runs,
        }


@dataclass
class Health:
    """The result of examining the runs."""

    needs: list[Need] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)
    """Runs that were not examined, one sentence per kind."""
    workers_alive: list[str] = field(default_factory=list)
    workers_dead: list[str] = field(default_factory=list)
    loose_runs: list[str] = field(default_factory=list)
    due_runs: list[str] = field(default_factory=list)
    attention_runs: list[str] = field(default_factory=list)


def disk_needs(store: Store, *, least: int = LEAST_FREE) -> list[Need]:
    """Problems of the store's disk."""
    path = getattr(store, "path", None)
    if not isinstance(path, Path) or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        return []
    folder = path.parent
    free = shutil.disk_usage(folder).free
    if free < least:
        return [
            Need(
                f"Only {free >> 20:,} MiB are free where the store lies ({folder}); it needs room to grow: "
                f"at least {least >> 20:,} MiB."
            )
        ]
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * PROBE)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return [Need(f"Nothing can be written where the store lies ({folder}): {error.strerror}.")]
    return []


def loss_needs(store: Store) -> list[Need]:
    """Files left over from a store that was deleted and is not in use."""
    from detent.adapters.stores.sqlite_remains import rescued_beside

    path = getattr(store, "path", None)
    if not isinstance(path, Path):
        return []
    if (remains := _remains(path)) is not None:
        command = ("store", "restore", str(remains.rescued[0])) if remains.rescued else ()
        how = "" if command else " Put the file back, restore a backup, or move away what is left."
        return [Need(f"{remains.sentence}{how}", command)]
    return [
        Need(
            f"{file} holds what a process saved of a store that was deleted here. Once nothing in it is "
            f"needed, delete it; its runs: detent runs --store {shlex.quote(str(file))}"
        )
        for file in (rescued_beside(path) if path.exists() else ())
    ]


def _remains(path: Path) -> Remains | None:
    from detent.adapters.stores.sqlite_remains import remains_of

    return remains_of(path)


async def run_needs(
    store: Store, clock: Clock, cannot_resume: Callable[[RunRow], Awaitable[str | None]] | None = None
) -> Health:
    """Runs that need a person. `cannot_resume`, given if the flows are known, returns why a run cannot be
    driven here."""
    health = Health()
    dead = await Leases(store, clock).dead()
    now = clock.now()
    health.workers_dead = sorted(worker.id for worker in dead)
    alive = [worker for worker in await store.workers() if worker.id not in health.workers_dead]
    health.workers_alive = sorted(worker.id for worker in alive)
    for worker in alive:
        if worker.left < -SILENT:
            runs = [run_id for run_id, _ in await store.owned(worker.id)]
            health.needs.append(
                Need(
                    f"Worker {worker.id} (process {worker.pid}) has not been heard of for "
                    f"{-worker.left:,.0f} seconds, and its process is still there: it is stopped or hangs. "
                    f"Nobody takes over its {count(len(runs), 'run')} until it goes on or is ended.",
                    runs=runs,
                )
            )
    loose = await store.loose(dead, LOOK_AT)
    due = await store.due(now, LOOK_AT)
    health.loose_runs, health.due_runs = loose, due
    damaged: dict[str, RunDamaged] = {}
    some: list[RunRow] = []
    for run_id in loose[:SAMPLE]:
        try:
            some.append(await store.row(run_id))
        except RunDamaged as error:
            damaged[run_id] = error
    if loose:
        owners = [row.owner for row in some if row.owner in health.workers_dead]
        health.needs.append(
            Need(_interrupted(loose, sorted({*filter(None, owners)})), ("resume", "--all"), loose)
        )
    late = [] if health.workers_alive else await store.due(now - OVERDUE, LOOK_AT)
    if late:
        them = "it" if len(late) == 1 else "them"
        problem = f"{_runs(late)} past the time waited for, and no worker is there to wake {them}."
        health.needs.append(Need(problem, ("resume", "--all"), late))
    waiting = await store.rows(RunQuery(status=[Status.WAITING], limit=LOOK_AT, tolerant=True))
    damaged |= {error.run_id: error for error in waiting.damaged}
    if waiting.next is not None:
        health.not_looked_at.append(f"Of the waiting runs only the newest {LOOK_AT:,} were looked at.")
    for name, listed in (("interrupted", loose), ("due", due)):
        if len(listed) >= LOOK_AT:
            health.not_looked_at.append(f"Of the {name} runs only {LOOK_AT:,} were looked at.")
    attention = [
        row for row in waiting.rows if any(wait["why"] == "attention" for wait in row.now.waits or ())
    ]
    health.attention_runs = [row.id for row in attention]
    for row in attention[:MOST_TOLD]:
        questions = [str(wait["question"]) for wait in row.now.waits or () if wait["why"] == "attention"]
        health.needs.append(
            Need(f"Run {row.id} waits for a person: {questions[0]}", ("show", row.id), [row.id])
        )
    if len(attention) > MOST_TOLD:
        ids = [row.id for row in attention[MOST_TOLD:]]
        health.needs.append(Need(f"{_runs(ids)} also waiting for a person.", ("runs",), ids))
    for run_id, damage in list(damaged.items())[:MOST_TOLD]:
        health.needs.append(Need(f"Run {run_id} is damaged: {damage.what}.", ("store", "check"), [run_id]))
    if len(loose) > SAMPLE:
        health.not_looked_at.append(
            f"Of the interrupted runs only {SAMPLE:,} were asked whether they can go on here."
        )
    if cannot_resume is not None:
        await _stuck(store, health, [*waiting.rows, *some], cannot_resume)
    return health


async def _stuck(
    store: Store,
    health: Health,
    rows: Sequence[RunRow],
    cannot_resume: Callable[[RunRow], Awaitable[str | None]],
) -> None:
    """Add the runs that cannot be driven here; runs of the same definition are tested once."""
    reasons: dict[tuple[str, str], str | None] = {}
    runs_by_reason: dict[str, list[str]] = {}
    for row in rows:
        key = (row.flow, row.now.fingerprint)
        if key not in reasons:
            reasons[key] = await cannot_resume(row)
        if (reason := reasons[key]) is not None:
            runs_by_reason.setdefault(reason, []).append(row.id)
    for reason, ids in runs_by_reason.items():
        health.needs.append(Need(f"{_runs(ids)} unable to go on: {reason}", ("show", ids[0]), ids))


def definition_problem(flows: dict[str, Flow]) -> Callable[[RunRow], Awaitable[str | None]]:
    """Why a run cannot be driven with these flows."""

    async def problem(row: RunRow) -> str | None:
        flow = flows.get(row.flow)
        if flow is None:
            return f"the flow '{row.flow}' is not known here; name its file with --plugin."
        carried_over = {flow.fingerprint, *flow.migrations}
        if row.now.fingerprint not in carried_over and row.now.version not in carried_over:
            return f"the definition of '{row.flow}' was changed since; put it back, or register a migration."
        return None

    return problem


async def deep_check(store: Store, progress: Callable[[int], None] | None = None) -> list[Need]:
    """Every problem of a closed store: its files, its journals and the values beside them.

    Raises:
        StoreUnavailable: the store cannot be opened, for another reason than damage.
    """
    from detent.adapters.stores.sqlite_integrity import damage_of_log

    path = getattr(store, "path", None)
    problems: list[str] = []
    if isinstance(path, Path) and path.is_file():
        # Before the store is opened: opening may repair or drop the log.
        problems += await asyncio.to_thread(damage_of_log, path)
    try:
        await store.open()
    except StoreError as error:
        if not problems and not isinstance(error, StoreDamaged):
            raise  # the store cannot be read, or the file is no store: that is not damage
        problems.append(str(error))
        return [Need(problem) for problem in problems]
    runs: list[str] = []
    try:
        problems += await store.integrity()
        async for finding in check_journals(store, progress):
            if len(runs) < MOST_TOLD:
                problems.append(f"Run {finding.run}: {finding.what}.")
            runs.append(finding.run)
    except StoreError as error:
        problems.append(str(error))
    finally:
        await store.close()
    if len(runs) > MOST_TOLD:
        problems.append(f"{len(runs) - MOST_TOLD:,} more runs have damaged journals.")
    return [Need(problem) for problem in problems]


def _interrupted(runs: Sequence[str], workers: Sequence[str]) -> str:
    """A sentence about runs without a driver; `workers` drove them and died."""
    them = "it" if len(runs) == 1 else "them"
    if not workers:
        return f"{_runs(runs)} under way, and no worker drives {them}."
    if len(workers) == 1:
        by = f"worker {workers[0]}, which died"
    else:
        by = f"workers that died ({', '.join(workers[:5])}{', …' if len(workers) > 5 else ''})"
    were = f"Run {runs[0]} was" if len(runs) == 1 else f"{len(runs):,} runs were"
    return f"{were} being driven by {by}; no worker drives {them} now."


def _runs(ids: Sequence[str]) -> str:
    return f"Run {ids[0]} is" if len(ids) == 1 else f"{len(ids):,} runs are"


def require_store(store: Store) -> None:
    """Raise `StoreUnavailable` if the store's file was never created."""
    path = getattr(store, "path", None)
    if isinstance(path, Path) and not path.exists() and not path.is_symlink():
        if (remains := _remains(path)) is not None:
            raise remains.error()
        raise StoreUnavailable(f"There is no store at {path} yet. The first `detent run` makes one.")


def store_file(settings: Settings) -> Path:
    """The file of a SQLite store; for another store, `ConfigurationError` says how to copy it."""
    path = getattr(store_for(settings, create=False), "path", None)
    if isinstance(path, Path):
        return path
    if store_url(settings).startswith("postgres"):
        raise ConfigurationError(
            "A PostgreSQL store is copied with the server's own tools: pg_dump --schema=detent, and "
            "pg_restore or psql. docs/stores.md says more."
        )
    raise ConfigurationError("A store in memory ends with its process; there is nothing to copy.")
