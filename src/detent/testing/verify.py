"""Says what is wrong with a store and a world after a disturbance: compares them with undisturbed runs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.journal_reader import load, read, rows_of
from detent.engine.ports import RunQuery, Store
from detent.kernel import entries as journal
from detent.kernel.entries import Claimed, EffectBegun, EffectDone, Entry, Moved, Recorded
from detent.kernel.plain import encode
from detent.kernel.run import Run
from detent.testing.crash import CrashPoints
from detent.testing.workload import MakeWorkload
from detent.testing.world import World

EXCERPT = 14

Answers = dict[tuple[str, str], dict[str, list[Any]]]
"""By what was paid for and run: key to the answers given, in order."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    run: str
    message: str
    excerpt: str = ""
    """The end of the run's journal."""

    def __str__(self) -> str:
        return f"{self.run}: {self.message}" + (f"\n{self.excerpt}" if self.excerpt else "")


@dataclass(slots=True)
class Expected:
    """What undisturbed runs come to."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    effects: Counter[tuple[str, str]] = field(default_factory=Counter)


def signature(run: Run, lines: Iterable[Entry]) -> dict[str, Any]:
    """What must be the same however often the run was interrupted."""
    moves = []
    for entry in lines:
        body = entry.body
        if isinstance(body, Moved):
            plain = journal.body_to_plain(body)
            plain.pop("duration", None)
            moves.append(plain)
    return {
        "status": run.status.value,
        "state": run.state,
        "data": run.data,
        "reason": run.reason,
        "error": run.error,
        "steps": run.steps,
        "visits": run.visits,
        "iterations": run.iterations,
        "spend": run.total_spend.to_plain(),
        "moves": moves,
    }


@asynccontextmanager
async def _undisturbed(make: MakeWorkload) -> AsyncIterator[tuple[World, Engine, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "world")
        workload = make(world, CrashPoints())
        async with Engine(MemoryStore(), workload.flows) as engine:
            yield world, engine, workload
        world.close()


async def expect(make: MakeWorkload, runs: Mapping[str, int]) -> Expected:
    """Have the same runs (id to number in the plan) done in memory by nobody but this process."""
    expected = Expected()
    async with _undisturbed(make) as (world, engine, workload):
        for run_id, number in runs.items():
            planned = workload.plan(number)
            await engine.start(planned.flow, planned.data, run_id=run_id, budget=planned.budget)
        for run_id in runs:
            await engine.finish(run_id)
        async for run_id in all_runs(engine.store):
            lines = [entry async for entry in read(engine.store, run_id)]
            expected.runs[run_id] = signature(Run.fold(run_id, lines), lines)
        expected.effects = Counter(
            (one.what, one.key) for one in world.occurrences() if one.what not in workload.paid
        )
    return expected


async def all_runs(store: Store) -> AsyncIterator[str]:
    """Ids of all runs in a store."""
    async for row in rows_of(store, RunQuery(limit=500)):
        yield row.id


@dataclass(slots=True)
class Found:
    """What the journals tell beside the violations."""

    runs: int = 0
    entries: int = 0
    takeovers: int = 0
    folds: int = 0
    """Saved folds that were compared with the journal."""
    effects: Counter[str] = field(default_factory=Counter)
    """Effects by how they were settled."""
    repeated: int = 0
    """Effects begun more than once."""
    paid: int = 0
    lost: int = 0
    """Answers that were paid for and lost before they could be written down."""
    violations: list[Violation] = field(default_factory=list)


async def verify(store: Store, world: World, expected: Expected, paid: Collection[str]) -> Found:
    """Compare every expected run, and the world, with what is there."""
    found = Found()
    answers: Answers = {}
    for one in world.occurrences():
        if one.what in paid:
            asked = answers.setdefault((one.what, one.key.partition(":")[0]), {})
            asked.setdefault(one.key, []).append(one.receipt)
    for run_id, wanted in expected.runs.items():
        await _verify_run(store, run_id, wanted, found, answers, paid)
    there = {run_id async for run_id in all_runs(store)}
    roots = {run_id.partition(".")[0] for run_id in expected.runs}
    for run_id in sorted(there - set(expected.runs)):
        if run_id.partition(".")[0] in roots:
            found.violations.append(Violation(run_id, "is a run nobody asked for"))
    actual = Counter(
        (one.what, one.key)
        for one in world.occurrences()
        if one.what not in paid and one.key.partition(":")[0] in expected.runs
    )
    for what, key in sorted({*actual, *expected.effects}):
        times, right = actual[what, key], expected.effects[what, key]
        if times != right:
            run_id = key.partition(":")[0]
            lines = [entry async for entry in read(store, run_id)] if run_id in there else []
            found.violations.append(
                Violation(
                    run_id, f"{what} ({key}) happened {times} times instead of {right}", excerpt(lines, None)
                )
            )
    return found


async def _verify_run(
    store: Store,
    run_id: str,
    wanted: dict[str, Any],
    found: Found,
    answers: Answers,
    paid: Collection[str],
) -> None:
    lines: list[Entry] = []

    def wrong(message: str, around: int | None = None) -> None:
        found.violations.append(Violation(run_id, message, excerpt(lines, around)))

    try:
        lines = [entry async for entry in read(store, run_id)]
        run = Run.fold(run_id, lines)
    except Exception as error:
        wrong(f"cannot be folded: {type(error).__name__}: {error}")
        return
    found.runs += 1
    found.entries += len(lines)
    for number, entry in enumerate(lines, 1):
        if entry.seq != number:
            wrong(f"has entry {entry.seq} where {number} should be", number)
    for before, after in pairwise(lines):
        if after.epoch < before.epoch:
            wrong(f"entry {after.seq} of epoch {after.epoch} follows epoch {before.epoch}", after.seq)
    row = await store.row(run_id)
    if (row.seq, row.now.status, row.now.state) != (run.seq, run.status, run.state):
        wrong(f"its row says {row.seq} {row.now.status} {row.now.state}, its journal {run!r}")
    whole = encode(run.to_plain())
    if encode((await load(store, run_id)).to_plain()) != whole:
        wrong("loads as something else than its journal adds up to")
    saved = await store.saved_fold(run_id)
    if saved is not None:
        found.folds += 1
        if encode(Run.fold(run_id, lines[: saved["seq"]]).to_plain()) != encode(saved):
            wrong(f"its saved fold at entry {saved['seq']} is not what the journal adds up to")
    got = signature(run, lines)
    for name, value in wanted.items():
        if got[name] != value:
            wrong(f"{name} differs: {_difference(got[name], value)}")
    _count(run_id, lines, found, wrong, answers, paid)


def _count(
    run_id: str,
    lines: list[Entry],
    found: Found,
    wrong: Any,
    answers: Answers,
    paid: Collection[str],
) -> None:
    begun: Counter[str] = Counter()
    for entry in lines:
        body = entry.body
        if isinstance(body, Claimed):
            found.takeovers += 1
        elif isinstance(body, EffectBegun):
            begun[body.key] += 1
        elif isinstance(body, EffectDone):
            found.effects[body.how] += 1
        elif isinstance(body, Recorded) and body.key in paid:
            found.paid += 1
            given = answers.get((body.key, run_id), {}).values()
            receipts = next((times for times in given if body.value in times), None)
            if receipts is None:
                wrong(f"keeps an answer to '{body.key}' nobody gave", entry.seq)
            elif receipts[-1] != body.value:
                wrong(f"paid for '{body.key}' again after the answer was written down", entry.seq)
            else:
                found.lost += len(receipts) - 1
    found.repeated += sum(1 for times in begun.values() if times > 1)


def _difference(got: Any, wanted: Any) -> str:
    if isinstance(got, list) and isinstance(wanted, list):
        for index, (one, other) in enumerate(zip(got, wanted, strict=False)):
            if one != other:
                return f"item {index} is {_short(one)}, not {_short(other)}"
        return f"{len(got)} items instead of {len(wanted)}"
    if isinstance(got, dict) and isinstance(wanted, dict):
        for key in [*wanted, *got]:
            if got.get(key) != wanted.get(key):
                return f"'{key}' is {_short(got.get(key))}, not {_short(wanted.get(key))}"
    return f"{_short(got)}, not {_short(wanted)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "…"


def excerpt(lines: list[Entry], around: int | None) -> str:
    """Some lines of a journal: around an entry, or its end."""
    stop = len(lines) if around is None else min(len(lines), around + EXCERPT // 2)
    return "\n".join(
        f"    {entry.seq:>4} e{entry.epoch} {entry.kind} {_short(journal.body_to_plain(entry.body))[:160]}"
        for entry in lines[max(0, stop - EXCERPT) : stop]
    )
