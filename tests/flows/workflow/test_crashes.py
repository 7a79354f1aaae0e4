"""Killed at any instant, a workflow goes on where it was: nothing is repeated, no effect is done twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.family import children
from detent.engine.ports import RunQuery
from detent.flows.workflow.results import workflow_result
from detent.kernel.entries import Moved
from detent.kernel.run import Run
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.worker_processes import Job, Nursery
from detent.testing.world import World
from tests.engine import answers
from tests.examples import covering, one_in
from tests.flows.workflow import crashing
from tests.flows.workflow.crashing import ITEMS

pytestmark = pytest.mark.slow

PROBED, KEYED, BLIND = range(3)
SUCCEEDS, FAILS = range(2)
"""Runs of `whole`: one that comes to its good end, one whose last step fails."""
BATCH_COMMITS = 204
"""Creation, the move out of `ready`, the items; four for each iteration, the last of all."""
WHOLE_COMMITS = 128
ROLLBACK_BEGINS = 127
"""The commit of `whole` that leads into `rolling_back`."""


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


class Done(NamedTuple):
    """An effect that happened."""

    what: str
    text: str
    of: str


class Scene:
    """A store and a world in a folder, and processes that die in it."""

    def __init__(self, folder: Path, nursery: Nursery, make: str, number: int) -> None:
        self.folder = folder
        self.nursery = nursery
        self.make = make
        self.number = number
        self.run_id = f"r{number}"
        self.world = World(folder / "world")

    def start(self, *points: str, counted: str | None = None) -> int:
        """A process that works at the run, to its end or until it is struck."""
        job = Job(
            store=f"sqlite:{self.folder / 'store.db'}",
            world=str(self.folder / "world"),
            workload=f"{crashing.__name__}:{self.make}",
            journal=str(self.folder / "log"),
            numbers=[self.number],
            only=True,
            points=points,
            counted=counted,
        )
        return self.nursery.start(job)

    async def work(self, *points: str, counted: str | None = None) -> None:
        """Have a process work at the run."""
        await self.nursery.gone(self.start(*points, counted=counted))
        assert "Traceback" not in (self.folder / "log").read_text()

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Engine]:
        """An engine of this process on the same store."""
        workload = getattr(crashing, self.make)(self.world, CrashPoints())
        async with Engine(SQLiteStore(self.folder / "store.db"), workload.flows) as engine:
            yield engine

    async def run(self) -> Run:
        """The run as it stands."""
        async with self.engine() as engine:
            return await engine.get(self.run_id)

    def done(self, what: str = "world") -> list[Done]:
        """What happened, in order."""
        found = [Done(one.what, one.args["text"], one.args["of"]) for one in self.world.occurrences()]
        return [one for one in found if one.what.startswith(what)]


@pytest.fixture
def scene(tmp_path: Path, nursery: Nursery) -> Callable[..., Scene]:
    return lambda make, number=0: Scene(tmp_path, nursery, make, number)


def spread(commits: int, times: int, seed: str) -> list[str]:
    """Commits all over a run, before and after; the first and the last ones always."""
    chosen = {1, 3, commits - 1, commits}
    chosen |= set(random.Random(seed).sample(range(4, commits - 1), times))
    return [f"kill-{'before' if number % 2 else 'after'}-commit-{number}" for number in sorted(chosen)]


# -- a parallel loop ----------------------------------------------------------------------------------------


def all_fifty(run: Run) -> None:
    """The loop gave fifty results in the order of the items."""
    results = run.data["steps/each"]["output"]
    assert [one["text"] for (one,) in results] == [f"item {index}" for index in range(ITEMS)]
    assert [one["turn"] for (one,) in results] == list(range(ITEMS))
    assert len({one["id"] for (one,) in results}) == ITEMS


async def test_the_loop_commits_as_often_as_these_tests_think(scene):
    here = scene("batch")
    await here.work(counted=str(here.folder / "counted"))
    assert (here.folder / "counted").read_text() == f"{BATCH_COMMITS} {ITEMS}"
    all_fifty(await here.run())


@pytest.mark.parametrize(
    ("point", "number"), covering(spread(BATCH_COMMITS, 3, "probed"), [PROBED, KEYED], together=1)
)
async def test_a_parallel_loop_of_fifty_is_killed_and_each_effect_happens_once(scene, point, number):
    """D-59, D-68"""
    here = scene("batch", number)
    await here.work(point)
    assert len(here.done()) <= ITEMS
    await here.work()
    run = await here.run()
    assert run.status is Status.SUCCEEDED
    all_fifty(run)
    assert Counter(one.text for one in here.done()) == Counter(f"item {index}" for index in range(ITEMS))


@pytest.mark.parametrize("seed", one_in(3, range(3)))
async def test_killed_at_random_instants_again_and_again_each_effect_happens_once(scene, seed):
    """D-59, D-68"""
    here, chance = scene("batch", KEYED), random.Random(seed)
    for _ in range(4):
        pid = here.start()
        await asyncio.sleep(chance.uniform(0.02, 0.4))
        await here.nursery.kill(pid)
    await here.work()
    run = await here.run()
    assert run.status is Status.SUCCEEDED
    all_fifty(run)
    assert Counter(one.text for one in here.done()) == Counter(f"item {index}" for index in range(ITEMS))


@pytest.mark.parametrize("point", one_in(2, spread(BATCH_COMMITS, 3, "blind")))
async def test_effects_nobody_can_ask_about_wait_for_a_person_and_the_others_are_through(scene, point):
    """D-59: what may have happened is never repeated on suspicion."""
    here = scene("batch", BLIND)
    await here.work(point)
    await here.work()
    async with here.engine() as engine:
        run = await engine.get(here.run_id)
        assert run.status in (Status.SUCCEEDED, Status.WAITING)
        happened = {one.text for one in here.done()}
        doubts = 0
        async for row in children(engine.store, here.run_id):
            child = await engine.get(row.id)
            for hold in child.holds.values():
                doubts += 1
                there = hold.about["args"]["text"] in happened
                receipt = {"id": "told"} if there else None
                await answers.resolve(engine, row.id, "happened" if there else "again", receipt=receipt)
        assert (run.status is Status.WAITING) == bool(doubts)
        run = await engine.finish(here.run_id)
    assert run.status is Status.SUCCEEDED
    assert [one["text"] for (one,) in run.data["steps/each"]["output"]] == [
        f"item {index}" for index in range(ITEMS)
    ]
    assert Counter(one.text for one in here.done()) == Counter(f"item {index}" for index in range(ITEMS))


# -- loops in loops, subworkflows, branches, until, validate ------------------------------------------------


class Undisturbed(NamedTuple):
    """How the same run goes when nobody dies."""

    data: dict[str, Any]
    done: Counter[Done]
    steps: Counter[tuple[str, str]]


_UNDISTURBED: dict[int, Undisturbed] = {}


async def told(here: Scene) -> Undisturbed:
    """What must be the same however often the run was interrupted."""
    async with here.engine() as engine:
        run = await engine.get(here.run_id)
        result = await workflow_result(engine, here.run_id)
        async for row in every(engine, here.run_id):
            moves = [entry.body for entry in await engine.store.entries(row) if type(entry.body) is Moved]
            assert len({move.frm for move in moves}) == len(moves), f"{row}: a finished step was repeated"
    data = {key: value for key, value in run.data.items() if key not in ("steps/spot", "rolled_back")}
    steps = Counter((one.path, str(one.status)) for one in result.step_results)
    return Undisturbed({**data, "status": run.status.value}, Counter(here.done("")), steps)


async def every(engine: Engine, run_id: str) -> AsyncIterator[str]:
    """A run and all below it."""
    yield run_id
    async for child in children(engine.store, run_id):
        async for one in every(engine, child.id):
            yield one


@pytest.fixture
async def undisturbed(tmp_path: Path, nursery: Nursery) -> Callable[[int], Any]:
    async def give(number: int) -> Undisturbed:
        if number not in _UNDISTURBED:
            (tmp_path / "quiet").mkdir()
            quiet = Scene(tmp_path / "quiet", nursery, "whole", number)
            await quiet.work(counted=str(quiet.folder / "counted"))
            if number == SUCCEEDS:
                assert (quiet.folder / "counted").read_text().split()[0] == str(WHOLE_COMMITS)
            _UNDISTURBED[number] = await told(quiet)
        return _UNDISTURBED[number]

    return give


@pytest.mark.parametrize("point", one_in(3, spread(WHOLE_COMMITS, 10, "whole")))
async def test_killed_inside_whatever_it_goes_on_there(scene, undisturbed, point):
    """D-59, D-68: nested loops, subworkflows, a branch, an until loop, a validation that is mended."""
    here = scene("whole", SUCCEEDS)
    await here.work(point)
    await here.work()
    quiet = await undisturbed(SUCCEEDS)
    assert quiet.data["status"] == "succeeded"
    assert set(quiet.done.values()) == {1}
    assert await told(here) == quiet


async def test_killed_again_and_again_it_still_comes_to_the_same_end(scene, undisturbed):
    """D-68"""
    here = scene("whole", SUCCEEDS)
    for number in (5, 9, 13, 17, 21, 25):
        await here.work(f"kill-after-commit-{number}")
    await here.work()
    assert await told(here) == await undisturbed(SUCCEEDS)


# -- rolling back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        "kill-after-commit-30", pytest.param("kill-before-commit-90", marks=pytest.mark.exhaustive),
        *one_in(3, [f"kill-{when}-commit-{ROLLBACK_BEGINS + number}" for number in (0, 1, 2, 3, 55, 108)
                    for when in ("before", "after")]),
    ],
)  # fmt: skip
async def test_killed_before_or_while_rolling_back_each_step_is_undone_once_last_thing_first(
    scene, undisturbed, point
):
    """D-69"""
    here = scene("whole", FAILS)
    await here.work(point)
    await here.work()
    quiet = await undisturbed(FAILS)
    assert quiet.data["status"] == "failed"
    assert await told(here) == quiet
    did, undid = here.done(), here.done("undo")
    assert Counter(one[1:] for one in did) == Counter(one[1:] for one in undid)
    assert set(Counter(undid).values()) == {1}
    await undone_in_reverse(here)


async def undone_in_reverse(here: Scene) -> None:
    """What was undone, in which order, is the order of completion turned round."""
    undid = [one[1:] for one in here.done("undo")]
    async with here.engine() as engine:
        result = await workflow_result(engine, here.run_id)
    did = [
        (str(one.output["text"]), one.output["of"])
        for one in result.step_results
        if one.status == "ok" and one.step_type == "python" and "of" in one.output
    ]
    assert undid == did[::-1]


async def test_a_rollback_that_nobody_can_ask_about_waits_and_the_rest_follows_once_it_is_settled(scene):
    """D-69: also what undoes is never repeated on suspicion."""
    here = scene("undone", 0)
    await here.work("kill-after-effect-4")  # three are done, the first is undone, nobody wrote it down
    await here.work()
    async with here.engine() as engine:
        assert (await engine.get(here.run_id)).status is Status.WAITING
        (waiting,) = [
            row.id
            for row in (await engine.store.rows(RunQuery(parent=here.run_id))).rows
            if row.now.status is Status.WAITING
        ]
        assert [one.text for one in here.done("undo")] == ["three"]
        await answers.resolve(engine, waiting, "happened")
        assert (await engine.finish(here.run_id)).status is Status.FAILED
    assert [one.text for one in here.done("undo")] == ["three", "two", "one"]


@pytest.mark.parametrize(
    ("effect", "point"),
    [
        ("before-effect-1", "kill-after-commit-1"),
        ("after-effect-1", "kill-before-commit-3"),
        ("after-effect-6", "kill-after-commit-2"),
        ("after-effect-9", "kill-before-commit-8"),
        ("before-effect-9", "kill-after-effect-2"),
    ],
)
async def test_called_off_after_its_worker_was_killed_amid_an_effect_all_of_it_is_undone_once(
    scene, effect, point
):
    """D-69: what was begun is found out about and undone with the rest, also when that is killed again."""
    here = scene("whole", SUCCEEDS)
    await here.work(f"kill-{effect}")
    async with here.engine() as engine:
        await engine.cancel(here.run_id, undo=True, drive=False)
    await here.work(point)
    await here.work()
    assert (await here.run()).status is Status.CANCELLED
    did, undid = here.done(), here.done("undo")
    assert Counter(one[1:] for one in did) == Counter(one[1:] for one in undid)
    assert set(Counter(undid).values()) == {1}
    async with here.engine() as engine:
        async for run_id in every(engine, here.run_id):
            ledger = await engine.store.effects(run_id)
            assert {line.state for line in ledger} <= {"done"}, f"{run_id}: something was left begun"


async def test_called_off_with_an_effect_that_nobody_can_ask_about_it_waits_for_a_person(scene):
    here = scene("undone", 0)
    await here.work("kill-after-effect-2")
    async with here.engine() as engine:
        await engine.cancel(here.run_id, undo=True)
        assert (await engine.finish(here.run_id)).status is Status.WAITING
        assert here.done("undo") == []
        await answers.resolve(engine, here.run_id, "happened", receipt={"id": "told"}, drive=False)
    await here.work("kill-after-commit-2")
    await here.work()
    assert (await here.run()).status is Status.CANCELLED
    assert [one.text for one in here.done("undo")] == ["two", "one"]
