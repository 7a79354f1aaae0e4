"""Finds what is wrong with a store and a world after a disturbance, by comparison with undisturbed runs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.journal_reader import load, read, rows_of
from detent.engine.ports import RunQuery, Store
from detent.engine.tools import Toolbox
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


UNHURRIED = 600.0
"""Seconds that a call of a tool may take in an undisturbed run."""
TOGETHER = 50
"""Undisturbed runs under way at the same time."""


@dataclass(slots=True)
class Expected:
    """The results of undisturbed runs."""

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
        for flow in workload.flows:  # however busy this machine is, no call is cut short here
            flow.tools = Toolbox(replace(tool, timeout=UNHURRIED) for tool in flow.tools)
        async with Engine(MemoryStore(), workload.flows) as engine:
            yield world, engine, workload
        world.close()


async def expect(make: MakeWorkload, runs: Mapping[str, int]) -> Expected:
    """Run the same runs (id to number in the plan) in memory, undisturbed."""
    expected = Expected()
    async with _undisturbed(make) as (world, engine, workload):
        waiting = list(runs.items())
        while waiting:  # a few at a time: thousands at once would wait for threads
            some, waiting = waiting[:TOGETHER], waiting[TOGETHER:]
            for run_id, number in some:
                planned = workload.plan(number)
                await engine.start(planned.flow, planned.data, run_id=run_id, budget=planned.budget)
            for run_id, _ in some:
                await engine.finish(run_id)
        async for run_id in all_runs(engine.store):
            lines = [entry async for entry in read(engine.store, run_id)]
            expected.runs[run_id] = signature(Run.fold(run_id, lines), lines)
        expected.effects = Counter(
            (occurrence.what, occurrence.key)
            for occurrence in world.occurrences()
            if occurrence.what not in workload.paid
        )
    return expected


async def all_runs(store: Store) -> AsyncIterator[str]:
    """Ids of all runs in a store."""
    async for row in rows_of(store, RunQuery()):
        yield row.id


@dataclass(slots=True)
class Found:
    """What the journals show besides the violations."""

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
    """Answers that were paid for and lost before they could be recorded."""
    violations: list[Violation] = field(default_factory=list)


async def verify(store: Store, world: World, expected: Expected, paid: Collection[str]) -> Found:
    """Compare every expected run, and the world, with the store."""
    findings = Found()
    answers: Answers = {}
    for occurrence in world.occurrences():
        if occurrence.what in paid:
            run_answers = answers.setdefault((occurrence.what, occurrence.key.partition(":")[0]), {})
            run_answers.setdefault(occurrence.key, []).append(occurrence.receipt)
    for run_id, expected_run in expected.runs.items():
        await _verify_run(store, run_id, expected_run, findings, answers, paid)
    existing = {run_id async for run_id in all_runs(store)}
    roots = {run_id.partition(".")[0] for run_id in expected.runs}
    for run_id in sorted(existing - set(expected.runs)):
        if run_id.partition(".")[0] in roots:
            findings.violations.append(Violation(run_id, "is a run nobody asked for"))
    actual = Counter(
        (occurrence.what, occurrence.key)
        for occurrence in world.occurrences()
        if occurrence.what not in paid and occurrence.key.partition(":")[0] in expected.runs
    )
    for what, key in sorted({*actual, *expected.effects}):
        times, expected_times = actual[what, key], expected.effects[what, key]
        if times != expected_times:
            run_id = key.partition(":")[0]
            lines = [entry async for entry in read(store, run_id)] if run_id in existing else []
            findings.violations.append(
                Violation(
                    run_id,
                    f"{what} ({key}) happened {times} times instead of {expected_times}",
                    excerpt(lines, None),
                )
            )
    return findings


async def _verify_run(
    store: Store,
    run_id: str,
    expected: dict[str, Any],
    findings: Found,
    answers: Answers,
    paid: Collection[str],
) -> None:
    lines: list[Entry] = []

    def report(message: str, around: int | None = None) -> None:
        findings.violations.append(Violation(run_id, message, excerpt(lines, around)))

    try:
        lines = [entry async for entry in read(store, run_id)]
        run = Run.fold(run_id, lines)
    except Exception as error:
        report(f"cannot be folded: {type(error).__name__}: {error}")
        return
    findings.runs += 1
    findings.entries += len(lines)
    for number, entry in enumerate(lines, 1):
        if entry.seq != number:
            report(f"has entry {entry.seq} where {number} should be", number)
    for before, after in pairwise(lines):
        if after.epoch < before.epoch:
            report(f"entry {after.seq} of epoch {after.epoch} follows epoch {before.epoch}", after.seq)
    row = await store.row(run_id)
    if (row.seq, row.now.status, row.now.state) != (run.seq, run.status, run.state):
        report(f"its row says {row.seq} {row.now.status} {row.now.state}, its journal {run!r}")
    folded = encode(run.to_plain())
    if encode((await load(store, run_id)).to_plain()) != folded:
        report("loads as something else than its journal adds up to")
    saved = await store.saved_fold(run_id)
    if saved is not None:
        findings.folds += 1
        if encode(Run.fold(run_id, lines[: saved["seq"]]).to_plain()) != encode(saved):
            report(f"its saved fold at entry {saved['seq']} is not what the journal adds up to")
    got = signature(run, lines)
    for name, value in expected.items():
        if got[name] != value:
            report(f"{name} differs: {_difference(got[name], value)}")
    _count(run_id, lines, findings, report, answers, paid)


def _count(
    run_id: str,
    lines: list[Entry],
    findings: Found,
    report: Any,
    answers: Answers,
    paid: Collection[str],
) -> None:
    begun: Counter[str] = Counter()
    for entry in lines:
        body = entry.body
        if isinstance(body, Claimed):
            findings.takeovers += 1
        elif isinstance(body, EffectBegun):
            begun[body.key] += 1
        elif isinstance(body, EffectDone):
            findings.effects[body.how] += 1
        elif isinstance(body, Recorded) and body.key in paid:
            findings.paid += 1
            run_answers = answers.get((body.key, run_id), {}).values()
            receipts = next((times for times in run_answers if body.value in times), None)
            if receipts is None:
                report(f"keeps an answer to '{body.key}' nobody gave", entry.seq)
            elif receipts[-1] != body.value:
                report(f"paid for '{body.key}' again after the answer was written down", entry.seq)
            else:
                findings.lost += len(receipts) - 1
    findings.repeated += sum(1 for times in begun.values() if times > 1)


def _difference(got: Any, wanted: Any) -> str:
    if isinstance(got, list) and isinstance(wanted, list):
        for index, (got_item, wanted_item) in enumerate(zip(got, wanted, strict=False)):
            if got_item != wanted_item:
                return f"item {index} is {_short(got_item)}, not {_short(wanted_item)}"
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
