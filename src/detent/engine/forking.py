"""Forking a run with everything below it, as it all stood when one of them had just written an entry.

Runs side by side are cut off by the clock, runs inside one another by what their journals say: whatever a
kept entry follows from is kept. What was begun and not settled by then is as if it had not been begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine import recovery
from detent.engine.journals import read
from detent.engine.lineage import Past, children
from detent.engine.ports import LedgerLine, NewRun
from detent.engine.standing import row_of
from detent.kernel.budget import Budget
from detent.kernel.entries import (
    ChildEnded,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Entry,
    Forked,
    Held,
    Migrated,
    Moved,
    Started,
)
from detent.kernel.errors import ConfigurationError, RunExists
from detent.kernel.plain import to_plain
from detent.kernel.run import ORIGIN, Run

if TYPE_CHECKING:
    from detent.engine.engine import Engine

Changes = Mapping[str, Any] | Callable[[Sequence[Past]], Mapping[str, Any]]
"""Data the new run has otherwise; or what gives it, from the new run and all below it as they will stand."""


class _Copy(NamedTuple):
    """What a run of the old family had written, under the new names."""

    old: str
    new: str
    entries: list[Entry]


async def fork_family(
    engine: Engine,
    root: str,
    at: tuple[str, int],
    new_id: str,
    *,
    changes: Changes | None = None,
    config: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
) -> str:
    """A new run that stands where `root` and its descendants stood when the run `at[0]` wrote entry `at[1]`.

    What each of them had written by then is copied; the rest is as if it had not happened. It is under way
    nowhere until resumed.
    """
    if not (at[0] == root or at[0].startswith(f"{root}.")):
        raise ConfigurationError(f"Run {at[0]} is no part of {root}.")
    row = await engine.store.row(root)
    if new_id in await engine.store.find(new_id):  # before anything is written below it
        raise RunExists(new_id)
    copies = await _Family(engine, root, new_id, at, await _moment(engine, *at)).copies(root)
    own = copies[0].entries
    started = own[0].body
    assert isinstance(started, Started)
    origin = {"run": root, "seq": len(own)}
    own[0] = own[0]._replace(body=replace(started, parent=None, forked_from=origin))
    if Run.fold(new_id, own).status.is_end:
        raise ConfigurationError(f"Run {root} had come to its end by then; nothing is left to be done.")
    if callable(changes):
        changes = changes([_past(engine, copy) for copy in copies])
    forked = Forked(
        to_plain(dict(changes or {})), to_plain(dict(config or {})), budget.to_plain() if budget else None
    )
    own.append(Entry(len(own) + 1, engine.clock.now(), 1, forked))
    run = Run.fold(new_id, own)
    await recovery.migration(engine, run, engine.flow(row.flow))  # refused before anything is written
    for copy in reversed(copies):  # the root last: what it refers to is there before it is
        await _create(engine, copy)
    return new_id


async def _moment(engine: Engine, run_id: str, seq: int) -> float:
    page = await engine.store.entries(run_id, after=seq - 1, limit=1)
    if not page or page[0].seq != seq:
        raise ConfigurationError(f"Run {run_id} has no entry {seq}.")
    return page[0].at


class _Family:
    """The runs of a family up to a moment of one of them."""

    def __init__(self, engine: Engine, root: str, new_root: str, at: tuple[str, int], moment: float) -> None:
        self._engine = engine
        self._root, self._new_root = root, new_root
        self._at = at
        self._moment = moment

    async def copies(self, run_id: str, whole: bool = False) -> list[_Copy]:
        """A run and its descendants; `whole` where it had come to its end by then."""
        entries = [entry async for entry in read(self._engine.store, run_id)]
        kept = entries if whole else self._kept(run_id, entries)
        if not kept:
            return []
        found = [_Copy(run_id, self._new(run_id), [self._renamed(entry) for entry in kept])]
        ended = {entry.body.run for entry in kept if isinstance(entry.body, ChildEnded)}
        async for child in children(self._engine.store, run_id):
            found += await self.copies(child.id, whole or child.id in ended)
        return found

    def _kept(self, run_id: str, entries: list[Entry]) -> list[Entry]:
        if run_id == self._at[0]:
            return entries[: self._at[1]]
        if self._at[0].startswith(f"{run_id}."):
            return self._above(entries)
        return _settled(list(takewhile(lambda entry: entry.at <= self._moment, entries)))

    def _above(self, entries: list[Entry]) -> list[Entry]:
        """Of a run that the moment's run is part of: all that led to its state, then by the clock."""
        through = next(
            (
                index
                for index, entry in enumerate(entries)
                if isinstance(entry.body, ChildEnded) and self._leads_to(entry.body.run)
            ),
            None,
        )
        certain = 1
        if through is not None:
            before = enumerate(entries[:through])
            certain += max(at for at, one in before if isinstance(one.body, Started | Moved | Migrated))
        rest = takewhile(lambda entry: entry.at <= self._moment, entries[certain:through])
        return [*entries[:certain], *rest]

    def _leads_to(self, run_id: str) -> bool:
        return self._at[0] == run_id or self._at[0].startswith(f"{run_id}.")

    def _new(self, run_id: str) -> str:
        return self._new_root + run_id[len(self._root) :]

    def _renamed(self, entry: Entry) -> Entry:
        """An entry that speaks of the new family where it spoke of the old one."""
        body = entry.body
        if isinstance(body, Started):
            config = {**body.config, ORIGIN: body.config.get(ORIGIN) or self._root.partition(".")[0]}
            parent = body.parent if body.parent is None else self._new(body.parent)
            body = replace(body, parent=parent, config=config)
        elif isinstance(body, ChildEnded):
            body = replace(body, run=self._new(body.run))
        elif isinstance(body, Held) and body.why == "children":
            about = {**body.about, "runs": [self._new(one) for one in body.about.get("runs", ())]}
            body = replace(body, about=about)
        return entry._replace(epoch=1, body=body)


def _settled(entries: list[Entry]) -> list[Entry]:
    """Entries up to where an effect was begun of which they do not say how it went."""
    begun: dict[str, int] = {}
    for index, entry in enumerate(entries):
        body = entry.body
        if isinstance(body, EffectBegun):
            begun[body.key] = index
        elif isinstance(body, EffectDone | EffectSkipped | EffectFailed):
            begun.pop(body.key, None)
    return entries[: min(begun.values())] if begun else entries


def _past(engine: Engine, copy: _Copy) -> Past:
    run = Run.fold(copy.new, copy.entries)
    moves = tuple(entry for entry in copy.entries if type(entry.body) is Moved)
    return Past(run, engine.flow(run.flow), moves)


async def _create(engine: Engine, copy: _Copy) -> None:
    run = Run.fold(copy.new, copy.entries)
    ledger: dict[str, LedgerLine] = {}
    for seq, _, _, body in copy.entries:
        if isinstance(body, EffectDone | EffectSkipped):
            how = "done" if isinstance(body, EffectDone) else "skipped"
            ledger[body.key] = LedgerLine(body.key, body.tool, how, seq)
    definition = await engine.store.definition(run.fingerprint)
    await engine.store.create(
        NewRun(
            copy.new, run.flow, run.machine, run.parent, tuple(copy.entries), row_of(run), tuple(run.tags),
            None, definition or engine.flow(run.flow).definition, tuple(ledger.values()), blobs_of=copy.old,
        )
    )  # fmt: skip
