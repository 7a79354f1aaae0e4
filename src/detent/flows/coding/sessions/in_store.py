"""Sessions as a store knows them, each by its latest request: also those whose file is not there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from detent.engine.exclusive import EXCLUSIVE
from detent.engine.journal_reader import load
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.sessions.fold import difference, fold_runs
from detent.kernel.errors import RunNotFound

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.flows.coding.sessions.record import SessionRecord
    from detent.flows.coding.sessions.redaction import Redaction
    from detent.kernel.run import Run

LATEST = "session "
"""Behind it stands the session's id, in the key by which one request of a session is open at a time."""
DELETED = "deleted session "


async def sessions_in(store: Store) -> Mapping[str, str]:
    """The latest request of each session of a store that was not deleted."""
    prefix = f"{EXCLUSIVE}{LATEST}"
    latest = {key.removeprefix(prefix): run for key, run in (await store.marks(prefix)).items()}
    deleted = await store.marks(DELETED)
    return {
        session: run for session, run in latest.items() if run and deleted.get(f"{DELETED}{session}") != run
    }


async def note_deleted(store: Store, session: str) -> None:
    """A session's file was removed: from now on nothing goes on with what its journals say."""
    run_id, _ = await store.mark(f"{EXCLUSIVE}{LATEST}{session}")
    if run_id is not None:
        _, version = await store.mark(f"{DELETED}{session}")
        await store.set_mark(f"{DELETED}{session}", run_id, version)


async def is_deleted(store: Store, session: str) -> bool:
    """Whether a session was deleted and nothing has happened in it since."""
    run_id, _ = await store.mark(f"{DELETED}{session}")
    return run_id is not None and run_id == (await store.mark(f"{EXCLUSIVE}{LATEST}{session}"))[0]


async def folded(
    store: Store, run_id: str, known: SessionRecord | None = None, *, anew: bool = False
) -> SessionRecord:
    """A session up to one of its requests, on top of what is `known` of it.

    `anew`: earlier requests, too, are read from their journals.
    """
    written = frozenset(known.run_ids[:-1]) if known is not None and not anew else frozenset()
    runs: list[Run] = []
    following: str | None = run_id
    while following is not None and following not in written:
        try:
            run = await load(store, following)
        except RunNotFound:
            break
        runs.append(run)
        following = RequestData(run.data).earlier
    return await fold_runs(store, runs[::-1], earlier=known)


async def changes_outside(store: Store, record: SessionRecord, redaction: Redaction) -> list[str]:
    """What another program has changed in a session's file, one sentence each; the journals are right.

    A file that is older than what its journals say has not been written since, and nothing is said of it.
    """
    runs: list[Run] = []
    for run_id in record.run_ids:
        try:
            runs.append(await load(store, run_id))
        except RunNotFound:  # of another store
            continue
    if (
        not runs
        or runs[-1].id != record.run_ids[-1]
        or runs[-1].updated_at > _seconds(record.updated_at) + 0.001
    ):
        return []
    return difference(record, await fold_runs(store, runs, earlier=record), redaction)


def _seconds(moment: str | None) -> float:
    try:
        found = datetime.fromisoformat(moment or "")
    except ValueError:
        return 0.0
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
