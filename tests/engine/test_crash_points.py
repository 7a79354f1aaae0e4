"""Killed at one exact commit or effect, a run is settled in exactly one way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.kernel.entries import AttemptFailed, EffectDone, Entry, Recorded
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.worker_processes import Job, Nursery
from detent.testing.workload import MakeWorkload
from detent.testing.world import World
from tests.engine import answers, crashing
from tests.examples import covering

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


class Scene:
    """A store and a world in a folder, and processes that die in it."""

    def __init__(self, folder: Path, nursery: Nursery, make: MakeWorkload) -> None:
        self.folder = folder
        self.nursery = nursery
        self.make = make
        self.world = World(folder / "world")

    async def die(self, *points: str, number: int = 0, only: bool = True, takeover_limit: int = 10) -> None:
        """Have a process work at the run until it is struck."""
        job = Job(
            store=f"sqlite:{self.folder / 'store.db'}",
            world=str(self.folder / "world"),
            workload=f"tests.engine.crashing:{self.make.__name__}",
            journal=str(self.folder / "log"),
            numbers=[number],
            only=only,
            points=points,
            takeover_limit=takeover_limit,
        )
        await self.nursery.gone(self.nursery.start(job))
        assert "Traceback" not in (self.folder / "log").read_text()

    @asynccontextmanager
    async def engine(self, **options) -> AsyncIterator[Engine]:
        """An engine of this process on the same store."""
        workload = self.make(self.world, CrashPoints())
        async with Engine(SQLiteStore(self.folder / "store.db"), workload.flows, **options) as engine:
            yield engine


@pytest.fixture
def scene(tmp_path, nursery) -> Callable[[MakeWorkload], Scene]:
    return lambda make: Scene(tmp_path, nursery, make)


async def journal(engine: Engine, run_id: str) -> list[Entry]:
    return await engine.store.entries(run_id)


async def kinds(engine: Engine, run_id: str) -> list[str]:
    return [entry.kind for entry in await journal(engine, run_id)]


async def how_done(engine: Engine, run_id: str) -> list[str]:
    return [entry.body.how for entry in await journal(engine, run_id) if isinstance(entry.body, EffectDone)]


# The commits: 1 started; 2 proposed, effect begun; 3 effect done, moved.
BEFORE_THE_INTENT = ["kill-after-commit-1", "kill-before-commit-2"]
INTENDED_NOT_DONE = ["kill-after-commit-2", "kill-before-effect-1"]
DONE_NOT_WRITTEN = ["kill-after-effect-1", "kill-before-commit-3"]


@pytest.mark.parametrize("number", range(3), ids=crashing.KINDS)
@pytest.mark.parametrize("point", BEFORE_THE_INTENT)
async def test_killed_before_the_intent_the_step_is_done_again_and_the_effect_once(scene, point, number):
    here = scene(crashing.one_effect)
    await here.die(point, number=number)
    async with here.engine() as engine:
        run_id = f"r{number}"
        assert await engine.resume_all() == [run_id]
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED
        assert await how_done(engine, run_id) == ["performed"]
        assert await kinds(engine, run_id) == [
            "started", "claimed", "proposed", "effect_begun", "effect_done", "moved",
        ]  # fmt: skip
    assert here.world.count() == 1


@pytest.mark.parametrize("number", range(2), ids=crashing.KINDS[:2])
@pytest.mark.parametrize("point", [*INTENDED_NOT_DONE, *DONE_NOT_WRITTEN])
async def test_an_effect_in_doubt_is_probed_or_repeated_without_asking_anybody(scene, point, number):
    here = scene(crashing.one_effect)
    await here.die(point, number=number)
    assert here.world.count() == (1 if point in DONE_NOT_WRITTEN else 0)
    async with here.engine() as engine:
        run_id = f"r{number}"
        await engine.resume_all()
        assert (await engine.finish(run_id)).status is Status.SUCCEEDED
        found = point in DONE_NOT_WRITTEN and crashing.KINDS[number] == "probed"
        assert await how_done(engine, run_id) == ["probed" if found else "performed"]
        assert await kinds(engine, run_id) == [
            "started", "proposed", "effect_begun", "claimed", "effect_done", "moved",
        ]  # fmt: skip
    assert here.world.count() == 1


@pytest.mark.parametrize("point", [*INTENDED_NOT_DONE, *DONE_NOT_WRITTEN])
async def test_an_effect_nobody_can_ask_about_waits_for_a_person(scene, point):
    here = scene(crashing.one_effect)
    await here.die(point, number=2)
    happened = here.world.occurrences()
    async with here.engine() as engine:
        await engine.resume_all()
        run = await engine.finish("r2")
        assert run.status is Status.WAITING
        (hold,) = run.holds.values()
        assert (hold.why, hold.choices) == ("attention", ["happened", "again", "skip"])
        assert here.world.occurrences() == happened
        if happened:
            await answers.resolve(engine, "r2", "happened", receipt=happened[0].receipt)
        else:
            await answers.resolve(engine, "r2", "again")
        assert (await engine.finish("r2")).status is Status.SUCCEEDED
        assert await how_done(engine, "r2") == ["told" if happened else "performed"]
    assert here.world.count() == 1


async def test_a_skipped_effect_is_not_performed(scene):
    here = scene(crashing.one_effect)
    await here.die("kill-before-effect-1", number=2)
    async with here.engine() as engine:
        await engine.resume_all()
        await engine.finish("r2")
        await answers.resolve(engine, "r2", "skip")
        assert (await engine.finish("r2")).status is Status.SUCCEEDED
        assert "effect_skipped" in await kinds(engine, "r2")
    assert here.world.count() == 0


async def test_killed_after_the_last_commit_there_is_nothing_to_resume(scene):
    here = scene(crashing.one_effect)
    await here.die("kill-after-commit-3")
    async with here.engine() as engine:
        assert await engine.resume_all() == []
        assert (await engine.get("r0")).status is Status.SUCCEEDED
    assert here.world.count() == 1


@pytest.mark.parametrize(
    ("point", "paid"), [("kill-before-commit-2", 2), ("kill-after-commit-2", 1), ("kill-before-commit-3", 1)]
)
async def test_an_answer_is_paid_for_again_only_if_it_was_lost(scene, point, paid):
    here = scene(crashing.one_answer)
    await here.die(point)
    async with here.engine() as engine:
        await engine.resume_all()
        run = await engine.finish("r0")
        assert run.data == {"time": paid}
        assert run.total_spend.tokens == 10
        assert sum(isinstance(entry.body, Recorded) for entry in await journal(engine, "r0")) == 1
    assert here.world.count("model") == paid


@pytest.mark.parametrize(("number", "when"), covering(range(2, 10), ["before", "after"], together=1))
async def test_a_budget_ends_a_killed_run_where_it_ends_any_other(scene, when, number):
    here = scene(crashing.metered)
    await here.die(f"kill-{when}-commit-{number}")
    async with here.engine() as engine:
        await engine.resume_all()
        run = await engine.finish("r0")
        assert run.status is Status.BUDGET_EXHAUSTED
        assert (run.total_spend.tokens, run.steps) == (40, 4)
        assert sum(isinstance(entry.body, Recorded) for entry in await journal(engine, "r0")) == 4


@pytest.mark.parametrize("number", [2, 3])
async def test_attempts_made_before_the_kill_count(scene, number):
    here = scene(crashing.failing)
    await here.die(f"kill-after-commit-{number}")
    assert here.world.count("tried") == number - 1
    async with here.engine() as engine:
        await engine.resume_all()
        run = await engine.finish("r0")
        assert run.status is Status.FAILED
        failures = [e.body.attempt for e in await journal(engine, "r0") if isinstance(e.body, AttemptFailed)]
        assert failures == [1, 2, 3]
    assert here.world.count("tried") == 3


async def test_an_open_breaker_stays_open_in_the_next_process(scene):
    here = scene(crashing.failing)
    await here.die("kill-after-commit-4")
    assert here.world.count("tried") == 3
    async with here.engine() as engine:
        run = await engine.finish(await engine.start("failing"), patience=60)
        assert run.status is Status.WAITING
        (hold,) = run.holds.values()
        assert (hold.name, hold.why) == ("breaker", "breaker")
        assert hold.wake_at is not None
    assert here.world.count("tried") == 3


async def test_a_run_that_kills_its_workers_asks_for_attention(scene):
    here = scene(crashing.deadly)
    for _ in range(3):
        await here.die(only=False, takeover_limit=3)
    assert here.world.count("died") == 3
    async with here.engine(takeover_limit=3) as engine:
        await engine.resume_all()
        run = await engine.finish("r0")
        assert run.status is Status.WAITING
        (hold,) = run.holds.values()
        assert (hold.name, hold.why, hold.choices) == ("takeovers", "attention", ["continue", "cancel"])
        assert await kinds(engine, "r0") == ["started", "claimed", "claimed", "claimed", "held"]
        await answers.release(engine, "r0", "cancel")
        assert (await engine.get("r0")).status is Status.CANCELLED
    assert here.world.count("died") == 3


# The commits of three rounds: 1 started; then, for each round, [proposed, begun] and [done]; 8 moved.
OF_THREE_ROUNDS = [f"kill-{when}-commit-{number}" for number in range(2, 9) for when in ("before", "after")]
OF_THREE_ROUNDS += [f"kill-{when}-effect-{number}" for number in (1, 2, 3) for when in ("before", "after")]
IN_DOUBT = {f"kill-after-commit-{number}" for number in (2, 4, 6)}
IN_DOUBT |= {f"kill-before-commit-{number}" for number in (3, 5, 7)}
IN_DOUBT |= {point for point in OF_THREE_ROUNDS if "effect" in point}


@pytest.mark.parametrize(
    ("point", "number"),
    [
        pytest.param(point, number, marks=() if place % 3 == number else pytest.mark.exhaustive)
        for place, point in enumerate(OF_THREE_ROUNDS)
        for number in range(3)
    ],
)
async def test_killed_anywhere_in_three_rounds_each_effect_happens_once(scene, point, number):
    """The step looks before it acts, so a second pass with live queries would leave two effects out."""
    here = scene(crashing.three_rounds)
    await here.die(point, number=number)
    async with here.engine() as engine:
        run_id = f"r{number}"
        await engine.resume_all()
        run = await engine.finish(run_id)
        if run.status is Status.WAITING:
            assert crashing.KINDS[number] == "blind"
            assert point in IN_DOUBT
            (hold,) = run.holds.values()
            of_it = [
                line for line in here.world.occurrences() if line.args["run"] == hold.about["args"]["run"]
            ]
            if of_it:
                await answers.resolve(engine, run_id, "happened", receipt=of_it[0].receipt)
            else:
                await answers.resolve(engine, run_id, "again")
            run = await engine.finish(run_id)
        assert run.status is Status.SUCCEEDED
        assert len(run.data["receipts"]) == run.data["size"] == 3
        done = [
            entry.body.key for entry in await journal(engine, run_id) if isinstance(entry.body, EffectDone)
        ]
        assert len(done) == len(set(done)) == 3
    assert here.world.count() == 3


# The commits: 1 started; 2 attempt failed, proposed; 3 effect begun; 4 done, begun; 5 done, ended.
AT_THE_END = [
    *(f"kill-before-commit-{number}" for number in (2, 3, 4, 5)),
    *(f"kill-after-commit-{number}" for number in (2, 3, 4)),
    *(f"kill-{when}-effect-{number}" for when in ("before", "after") for number in (1, 2)),
]


@pytest.mark.parametrize(("point", "number"), covering(AT_THE_END, range(2)))
async def test_killed_anywhere_at_its_end_a_run_leaves_each_effect_once(scene, point, number):
    """What the flow wants done at the end of a failed run is completed by whoever takes it over."""
    here = scene(crashing.effects_at_the_end)
    await here.die(point, number=number)
    async with here.engine() as engine:
        run_id = f"r{number}"
        await engine.resume_all()
        run = await engine.finish(run_id)
        assert (run.status, run.error) == (Status.FAILED, "ValueError: no idea")
        attempts = (await kinds(engine, run_id)).count("attempt_failed")
        assert attempts == 1
    happened = [line.args["run"] for line in here.world.occurrences()]
    assert happened == [f"{run_id}-a-failed", f"{run_id}-b-failed"]
