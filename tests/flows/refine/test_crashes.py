"""kill -9 in each working state and between any two files: the journal is that of an undisturbed run."""

from __future__ import annotations

from typing import Any

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.flows.refine.result import result_of
from detent.kernel.entries import Entry, body_to_plain
from detent.testing.crash import CrashPoints
from detent.testing.worker_processes import Job, Nursery
from detent.testing.world import World
from tests.examples import one_in
from tests.flows.refine.crashing import refinement

pytestmark = pytest.mark.slow

MOVES = 9
"""prepare, plan, validate, plan, validate, implement, judge, implement, judge."""
POINTS = [
    *(f"kill-after-commit-{number}" for number in range(1, MOVES + 1)),
    *(f"kill-{when}-effect-{number}" for number in (1, 2) for when in ("before", "after")),
    "kill-before-commit-12",
]
TIMES = ("duration", "timestamp", "seconds", "worker", "duration_s", "key")
"""Left out: times, and the keys of effects at the end, which hold the number of an entry."""


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if name not in TIMES}
    return [timeless(inner) for inner in value] if isinstance(value, list | tuple) else value


def told(entries: list[Entry]) -> list[Any]:
    """A journal without times, durations, take-overs, and how a receipt was come by."""
    rows = [timeless(body_to_plain(entry.body)) | {"kind": entry.kind} for entry in entries]
    rows = [row for row in rows if row["kind"] not in ("claimed", "effect_begun")]
    return [{name: value for name, value in row.items() if name not in ("how", "receipt")} for row in rows]


async def finished(folder, nursery, *points: str) -> tuple[list[Any], World, Any]:
    """The journal of a run whose process was killed and that another one has finished."""
    world = World(folder / "world")
    if points:
        job = Job(
            store=f"sqlite:{folder / 'store.db'}", world=str(folder / "world"),
            workload="tests.flows.refine.crashing:refinement", journal=str(folder / "log"), numbers=[0],
            only=True, points=points,
        )  # fmt: skip
        await nursery.gone(nursery.start(job))
        assert "Traceback" not in (folder / "log").read_text()
    workload = refinement(world, CrashPoints())
    async with Engine(SQLiteStore(folder / "store.db"), workload.flows) as engine:
        if not points:
            await engine.start("words", workload.plan(0).data, run_id="r0")
        before = (await engine.get("r0")).status
        assert not points or not before.is_end
        await engine.finish("r0")
        return told(await engine.store.entries("r0")), world, await result_of(engine, "r0")


@pytest.mark.parametrize("point", one_in(3, POINTS))
async def test_a_killed_run_ends_with_the_journal_of_an_undisturbed_one(tmp_path, nursery, point):
    """R-34: nothing that is committed is done again, and each file is written once."""
    (tmp_path / "calm").mkdir()
    expected, _, _ = await finished(tmp_path / "calm", nursery)
    entries, world, result = await finished(tmp_path, nursery, point)
    assert entries == expected
    assert sum(row["kind"] == "moved" for row in entries) == MOVES
    assert world.count() == 2
    assert (result.status, result.best_iteration, result.iterations) == ("success", 3, 3)
