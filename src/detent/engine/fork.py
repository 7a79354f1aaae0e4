"""Forking a run with its descendants, as they were when one of them had just written an entry.

Sibling runs are cut by the clock, parents and children by their journals: every entry that a kept entry
follows from is kept. Effects begun but not settled by then are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine import claims
from detent.engine.context import step_path
from detent.engine.derived import row_of
from detent.engine.family import ancestors, children
from detent.engine.flow import Past
from detent.engine.journal_reader import read
from detent.engine.moves import UNDOES, undoing_now
from detent.engine.ports import LedgerLine, NewRun
from detent.kernel import checks
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
    Proposed,
    Started,
)
from detent.kernel.errors import ConfigurationError, RunExists, RunStateError
from detent.kernel.ids import ROOT, guessed_root
from detent.kernel.plain import to_plain
from detent.kernel.run import Run
from detent.kernel.run_config import KEY, ORIGIN

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns

UNDONE = "undone"
"""Key in the data of a fork: paths of steps done in it that the original run has rolled back since."""
Changes = Mapping[str, Any] | Callable[[Sequence[Past]], Mapping[str, Any]]
"""Changed data of the new run, or a function that computes it from the new run and its descendants."""


class _Copy(NamedTuple):
    """The kept entries of a run of the old family, under the new ids."""

    old: str
    new: str
    entries: list[Entry]


async def fork_run(
    active: ActiveRuns,
    run_id: str,
    at: int | None,
    changes: Mapping[str, Any],
    config: Mapping[str, Any],
    budget: Budget | None,
    new_id: str,
    by: str,
    drive: bool,
) -> str:
    """A new run from the first `at` entries of another, with its descendants of that time.

    Raises:
        ConfigurationError: the run has no such entry, or had ended by then.
    """
    row = await active.store.row(run_id)
    if at is not None and not 1 <= at <= row.seq:
        raise ConfigurationError(f"Run {run_id} has entries 1 to {row.seq}; it cannot be forked at {at}.")
    run = Run(new_id)
    flow = active.flow(row.flow)
    keep = 0
    async for entry in read(active.store, run_id):
        if entry.seq > (at or row.seq):
            break
        run.apply(entry)
        # By default, fork before the end and before any rollback.
        if not run.status.is_end and (at is not None or not undoing_now(flow, run)):
            keep = entry.seq
    if at is not None and keep < at:
        raise ConfigurationError(
            f"Run {run_id} has ended at entry {at}; it can be forked at {keep}, or earlier."
        )
    await fork_family(
        active, run_id, (run_id, keep), new_id, by=by, changes=changes, config=config, budget=budget
    )
    if drive:
        await active.resume(new_id)
    return new_id


async def fork_family(
    active: ActiveRuns,
    root: str,
    at: tuple[str, int],
    new_id: str,
    *,
    by: str = "person",
    changes: Changes | None = None,
    config: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
) -> str:
    """A new run in the state of `root` and its descendants when the run `at[0]` wrote entry `at[1]`.

    The entries each of them had written by then are copied; later ones are ignored, except that steps rolled
    back since are neither rolled back again nor counted as done when they are repeated. The new run is not
    driven until it is resumed.

    Raises:
        RunExists: an id is taken.
        RunStateError: the original run is rolling back.
        ConfigurationError: the runs are unrelated, or nothing was left to do by then.
    """
    by = checks.name("by", by)
    part_of = frozenset([at[0], *await ancestors(active.store, at[0])])
    if root not in part_of:
        raise ConfigurationError(f"Run {at[0]} is not part of {root}.")
    row = await active.store.row(root)
    if new_id in await active.store.find(new_id):  # before any descendant is written
        raise RunExists(new_id)
    undone = await _undone(active, root)
    family = _Family(active, root, new_id, at, part_of, await _moment(active, *at), undone)
    copies = await family.copies(root)
    for copy in copies[1:]:  # ids below a chosen id may be taken
        if copy.new in await active.store.find(copy.new, 1):
            raise RunExists(copy.new)
    own = copies[0].entries
    started = own[0].body
    assert isinstance(started, Started)
    origin = {"run": root, "seq": len(own)}
    own[0] = own[0]._replace(body=replace(started, parent=None, forked_from=origin))
    if Run.fold(new_id, own).status.is_end:
        raise ConfigurationError(f"Run {root} had come to its end by then; nothing is left to be done.")
    pasts = [_past(active, copy) for copy in copies]
    undone_paths = list(
        dict.fromkeys(path for past in pasts for path in past.flow.done_by(past) if path in undone)
    )
    additions: dict[str, Any] = {UNDONE: undone_paths} if undone_paths else {}
    flow = active.flow(row.flow)
    if callable(changes):
        changes = changes(pasts)
    forked = Forked(
        to_plain({**additions, **(changes or {})}),
        to_plain(dict(config or {})),
        budget.to_plain() if budget else None,
        by,
    )
    entry = Entry(len(own) + 1, active.clock.now(), 1, forked)
    run = Run.fold(new_id, [*own, entry])
    await claims.migration(active, run, flow)  # raises before anything is written, or copied by the flow
    if flow.copied is not None:
        copied = {**additions, **flow.copied(pasts[0].run, new_id), **(changes or {})}
        entry = entry._replace(body=replace(forked, set=to_plain(copied)))
    own.append(entry)
    for copy in reversed(copies):  # the root last, after the runs it refers to
        await _create(active, copy, undone)
    return new_id


async def _undone(active: ActiveRuns, run_id: str) -> frozenset[str]:
    """Paths of the steps that a family's root has rolled back; `RunStateError` during the rollback."""
    row = await active.store.row(run_id)
    while row.parent is not None:
        row = await active.store.row(row.parent)
    flow = active.flows.get(row.flow)
    if flow is None:
        return frozenset()
    top = await active.get(row.id)
    if not top.status.is_end and (top.called_off is not None or undoing_now(flow, top)):
        raise RunStateError(f"Run {top.id} is undoing what it did. Fork it when that has come to its end.")
    return await flow.undone_by(active.store, top.id) | frozenset(top.data.get(UNDONE) or ())


async def _moment(active: ActiveRuns, run_id: str, seq: int) -> float:
    page = await active.store.entries(run_id, after=seq - 1, limit=1)
    if not page or page[0].seq != seq:
        raise ConfigurationError(f"Run {run_id} has no entry {seq}.")
    return page[0].at


class _Family:
    """The runs of a family up to a moment of one of them."""

    def __init__(
        self,
        active: ActiveRuns,
        root: str,
        new_root: str,
        at: tuple[str, int],
        part_of: frozenset[str],
        moment: float,
        undone: frozenset[str],
    ) -> None:
        self._active = active
        self._undone = undone
        self._root, self._new_root = root, new_root
        self._at = at
        self._part_of = part_of
        """The run whose entry sets the moment, and its ancestors."""
        self._moment = moment

    async def copies(self, run_id: str, whole: bool = False) -> list[_Copy]:
        """Copies of a run and its descendants; `whole` if the run had ended by then."""
        entries = [entry async for entry in read(self._active.store, run_id)]
        kept_entries = entries if whole else self._entries_by_then(run_id, entries)
        if kept_entries and self._undone and run_id != self._root:
            kept_entries = self._decided_anew(kept_entries)
        if not kept_entries:
            return []
        copies = [_Copy(run_id, self._new(run_id), [self._renamed(entry) for entry in kept_entries])]
        run = Run.fold(run_id, kept_entries)
        undoes = undoing_now(self._active.flow(run.flow), run)
        ended = {entry.body.run for entry in kept_entries if isinstance(entry.body, ChildEnded)}
        async for child in children(self._active.store, run_id):
            if not (whole or undoes) and await self._undoes(child.id):
                continue  # rollback runs are later, whatever the clock says
            copies += await self.copies(child.id, whole or child.id in ended)
        return copies

    async def _undoes(self, run_id: str) -> bool:
        (first,) = await self._active.store.entries(run_id, 0, 1)
        return isinstance(first.body, Started) and bool(first.body.config.get(UNDOES))

    def _entries_by_then(self, run_id: str, entries: list[Entry]) -> list[Entry]:
        if run_id == self._at[0]:
            return entries[: self._at[1]]
        if run_id in self._part_of:
            return self._above(entries)
        return _settled(list(takewhile(lambda entry: entry.at <= self._moment, entries)))

    def _decided_anew(self, entries: list[Entry]) -> list[Entry]:
        """Entries before an open proposal of a step that was rolled back since, which decides again."""
        run = Run.fold("", entries)
        if run.proposal is None or _path(self._active, run) not in self._undone:
            return entries
        return entries[
            : max(index for index, entry in enumerate(entries) if isinstance(entry.body, Proposed))
        ]

    def _above(self, entries: list[Entry]) -> list[Entry]:
        """Entries of an ancestor: those that led to its state, then those before the moment."""
        through = next(
            (
                index
                for index, entry in enumerate(entries)
                if isinstance(entry.body, ChildEnded) and entry.body.run in self._part_of
            ),
            None,
        )
        certain = 1
        if through is not None:
            before = enumerate(entries[:through])
            certain += max(
                at for at, earlier in before if isinstance(earlier.body, Started | Moved | Migrated)
            )
        rest = takewhile(lambda entry: entry.at <= self._moment, entries[certain:through])
        return [*entries[:certain], *rest]

    def _new(self, run_id: str) -> str:
        # In the new family the usual ids are free, so the spare ones are not needed.
        return self._new_root + run_id[len(self._root) :].replace("..", ".")

    def _renamed(self, entry: Entry) -> Entry:
        """An entry with the old family's ids replaced by the new ones."""
        body = entry.body
        if isinstance(body, Started):
            root = body.config.get(ROOT) or guessed_root(self._root)
            config = {**body.config, ORIGIN: body.config.get(ORIGIN) or root}
            config.pop(ROOT, None)
            config.pop(KEY, None)  # a fork is apart, also once it is reopened
            if "." in self._new_root:
                config[ROOT] = self._new_root
            parent = body.parent if body.parent is None else self._new(body.parent)
            body = replace(body, parent=parent, config=config)
        elif isinstance(body, ChildEnded):
            body = replace(body, run=self._new(body.run))
        elif isinstance(body, Held) and body.why == "children":
            about = {**body.about, "runs": [self._new(run_id) for run_id in body.about.get("runs", ())]}
            body = replace(body, about=about)
        return entry._replace(epoch=1, body=body)


def _settled(entries: list[Entry]) -> list[Entry]:
    """Entries before the first effect that they begin but do not settle."""
    begun: dict[str, int] = {}
    for index, entry in enumerate(entries):
        body = entry.body
        if isinstance(body, EffectBegun):
            begun[body.key] = index
        elif isinstance(body, EffectDone | EffectSkipped | EffectFailed):
            begun.pop(body.key, None)
    return entries[: min(begun.values())] if begun else entries


def _past(active: ActiveRuns, copy: _Copy) -> Past:
    run = Run.fold(copy.new, copy.entries)
    moves = tuple(entry for entry in copy.entries if type(entry.body) is Moved)
    return Past(run, active.flow(run.flow), moves)


def _path(active: ActiveRuns, run: Run) -> str:
    """Path of the step with the open proposal."""
    assert run.proposal is not None
    flow = active.flow(run.flow)
    own = flow.step_named(run.state, run.proposal.step) if run.state in flow.steps else None
    return step_path(own, run) if own is not None else ""


async def _create(active: ActiveRuns, copy: _Copy, undone: frozenset[str]) -> None:
    run = Run(copy.new)
    ledger: dict[str, LedgerLine] = {}
    for entry in copy.entries:
        run.apply(entry)
        body = entry.body
        if isinstance(body, EffectDone | EffectSkipped):
            how = "done" if isinstance(body, EffectDone) else "skipped"
            ledger[body.key] = LedgerLine(body.key, body.tool, how, entry.seq)
            if undone and run.proposal is not None and _path(active, run) in undone:
                del ledger[body.key]  # so that an equal effect is performed again
    definition = await active.store.definition(run.fingerprint)
    await active.store.create(
        NewRun(
            copy.new, run.flow, run.machine, run.parent, tuple(copy.entries), row_of(run), tuple(run.tags),
            None, definition or active.flow(run.flow).definition, tuple(ledger.values()), blobs_of=copy.old,
        )
    )  # fmt: skip
