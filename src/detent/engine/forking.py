"""Forking a run with everything below it, as it all stood when one of them had just written an entry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.engine import recovery
from detent.engine.journals import read
from detent.engine.lineage import children
from detent.engine.ports import LedgerLine, NewRun
from detent.engine.standing import row_of
from detent.kernel.entries import (
    ChildEnded,
    EffectDone,
    EffectSkipped,
    Entry,
    Forked,
    Held,
    Started,
)
from detent.kernel.errors import ConfigurationError
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.engine.engine import Engine


async def fork_family(
    engine: Engine, root: str, at: tuple[str, int], new_id: str, config: dict[str, Any] | None = None
) -> str:
    """A new run that stands where `root` and its descendants stood when the run `at[0]` wrote entry `at[1]`.

    What each of them had written by then is copied; the rest is as if it had not happened. It is under way
    nowhere until resumed.
    """
    moment = await _moment(engine, *at)
    if not (at[0] == root or at[0].startswith(f"{root}.")):
        raise ConfigurationError(f"Run {at[0]} is no part of {root}.")
    row = await engine.store.row(root)
    copies = await _copies(engine, root, at, moment, root, new_id)
    own = copies[0][1]
    started = own[0].body
    assert isinstance(started, Started)
    origin = {"run": root, "seq": len(own)}
    own[0] = own[0]._replace(body=replace(started, parent=None, forked_from=origin))
    own.append(Entry(len(own) + 1, engine.clock.now(), 1, Forked({}, dict(config or {}), None)))
    run = Run.fold(new_id, own)
    await recovery.migration(engine, run, engine.flow(row.flow))  # refused before anything is written
    for old, entries in reversed(copies):  # the root last: what it refers to is there before it is
        await _create(engine, old, entries, root, new_id)
    return new_id


async def _moment(engine: Engine, run_id: str, seq: int) -> float:
    page = await engine.store.entries(run_id, after=seq - 1, limit=1)
    if not page or page[0].seq != seq:
        raise ConfigurationError(f"Run {run_id} has no entry {seq}.")
    return page[0].at


async def _copies(
    engine: Engine, run_id: str, at: tuple[str, int], moment: float, root: str, new_root: str
) -> list[tuple[str, list[Entry]]]:
    """The entries of a run and its descendants that belong into the fork."""
    kept: list[Entry] = []
    async for entry in read(engine.store, run_id):
        late = entry.seq > at[1] if run_id == at[0] else entry.at > moment
        if late:
            break
        kept.append(_renamed(entry._replace(epoch=1), root, new_root))
    if not kept:
        return []
    found = [(run_id, kept)]
    async for child in children(engine.store, run_id):
        found += await _copies(engine, child.id, at, moment, root, new_root)
    return found


def _renamed(entry: Entry, root: str, new_root: str) -> Entry:
    """An entry that speaks of the new family where it spoke of the old one."""

    def new(run_id: str) -> str:
        return new_root + run_id[len(root) :]

    body = entry.body
    if isinstance(body, Started) and body.parent is not None:
        return entry._replace(body=replace(body, parent=new(body.parent)))
    if isinstance(body, ChildEnded):
        return entry._replace(body=replace(body, run=new(body.run)))
    if isinstance(body, Held) and body.why == "children":
        about = {**body.about, "runs": [new(one) for one in body.about.get("runs", ())]}
        return entry._replace(body=replace(body, about=about))
    return entry


async def _create(engine: Engine, old: str, entries: list[Entry], root: str, new_root: str) -> None:
    new_id = new_root + old[len(root) :]
    run = Run.fold(new_id, entries)
    ledger: dict[str, LedgerLine] = {}
    for seq, _, _, body in entries:
        if isinstance(body, EffectDone | EffectSkipped):
            how = "done" if isinstance(body, EffectDone) else "skipped"
            ledger[body.key] = LedgerLine(body.key, body.tool, how, seq)
    definition = await engine.store.definition(run.fingerprint)
    await engine.store.create(
        NewRun(
            new_id, run.flow, run.machine, run.parent, tuple(entries), row_of(run), tuple(run.tags), None,
            definition or engine.flow(run.flow).definition, tuple(ledger.values()), blobs_of=old,
        )
    )  # fmt: skip
