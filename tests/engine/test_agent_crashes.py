"""Killed while a model is asked: no committed answer is paid for again, no effect is performed twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.due_comparison import DUE
from detent.dispatch.evidence_log import EVIDENCE
from detent.dispatch.standing import Standing
from detent.engine.engine import Engine
from detent.kernel.entries import Entry, Moved, Noted, Recorded
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.worker_processes import Job, Nursery
from detent.testing.world import World
from tests.engine.agent_crashing import KEY, Oracle, effects_of, journey
from tests.examples import covering, one_in

pytestmark = pytest.mark.slow

PLENTY, LEAN, THIN = range(3)
"""Which run: without a budget, or with one that ends in the first step's loop, or with its answer."""

COMMITS = {PLENTY: 19, LEAN: 12, THIN: 12}
REQUESTS = 12
DOWN = (8, 9, 10)
"""Requests that are answered with status 503, three attempts at one step."""


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@dataclass
class Told:
    """All that can be said of a run afterwards."""

    status: Status
    data: dict[str, Any]
    moves: list[tuple[Any, ...]]
    effects: list[tuple[str, dict[str, Any]]]
    looked: Counter[str]
    shadows: list[tuple[Any, ...]]
    committed: int
    """Answers and failures of the model the journal holds."""
    tokens: tuple[int, int]
    asked: Counter[str]
    shadow_asked: int
    journal: list[Entry]
    evidence: dict[str, tuple[Any, ...]]
    """What the comparisons after the steps' commits add up to."""
    due: dict[str, Any]
    """Comparisons that are still to be made."""


class Scene:
    """A store, a world and a model server, and processes that die between them."""

    def __init__(self, folder: Path, nursery: Nursery, number: int) -> None:
        self.folder = folder
        self.nursery = nursery
        self.number = number
        self.world = World(folder / "world")
        self.oracle = Oracle(folder)
        self.run_id = f"r{number}"

    def start(self, *points: str, only: bool = True, counted: str | None = None) -> int:
        """A new process that works at the run."""
        job = Job(
            store=f"sqlite:{self.folder / 'store.db'}",
            world=str(self.folder / "world"),
            workload=f"{journey.__module__}:{journey.__name__}",
            journal=str(self.folder / "log"),
            numbers=[self.number],
            only=only,
            points=points,
            counted=counted,
        )
        return self.nursery.start(job)

    async def work(self, *points: str, counted: str | None = None) -> None:
        """Have a process work at the run until it is struck, or to the end of the run."""
        await self.nursery.gone(self.start(*points, counted=counted))
        self.no_trouble()

    def no_trouble(self) -> None:
        """Nobody died of anything but a signal."""
        assert "Traceback" not in (self.folder / "log").read_text()

    async def journal(self) -> list[Entry]:
        """What is written down so far."""
        store = SQLiteStore(self.folder / "store.db")
        await store.open()
        try:
            return await store.entries(self.run_id, 0, 1000) if await store.find(self.run_id) else []
        finally:
            await store.close()

    @asynccontextmanager
    async def engine(self, *, patient: bool = False) -> AsyncIterator[Engine]:
        """An engine of this process on the same store; a patient one waits an hour before it tries again."""
        workload = journey(self.world, CrashPoints())
        settings = workload.dispatch
        assert settings is not None
        if patient:
            slow = replace(settings.steps["guess"], retry_policy=RetryPolicy(3, 3600.0, 3600.0))
            settings = replace(settings, steps={**settings.steps, "guess": slow})
        store = SQLiteStore(self.folder / "store.db")
        async with Engine(store, workload.flows, dispatch=settings) as engine:
            yield engine

    async def told(self) -> Told:
        """What there is to say of the run."""
        async with self.engine() as engine:
            run = await engine.get(self.run_id)
            journal = await engine.store.entries(self.run_id, 0, 1000)
            marks, due = await engine.store.marks(EVIDENCE), await engine.store.marks(DUE)
        spend = run.total_spend
        shadows = [e.body for e in journal if isinstance(e.body, Noted) and e.body.topic == "shadow"]
        return Told(
            status=run.status,
            data=run.data,
            moves=[_said(entry.body) for entry in journal if isinstance(entry.body, Moved)],
            effects=effects_of(self.world),
            looked=Counter(one.what for one in self.world.occurrences() if one.receipt.get("time")),
            shadows=[(one.body["step"], one.body["side"], one.body["outcome"]) for one in shadows],
            committed=answers(journal),
            tokens=(spend.input_tokens, spend.output_tokens),
            asked=Counter(one.hash for one in self.oracle.asked if one.step != "count"),
            shadow_asked=sum(one.step == "count" for one in self.oracle.asked),
            journal=journal,
            evidence={
                key.split("/")[2]: (standing.answers, tally.judged, tally.n, tally.wrong, tally.detector)
                for key, standing in ((key, Standing.from_plain(mark)) for key, mark in marks.items())
                if key.split("/")[2] in ("count", "advise")
                for tally in [standing.tally()]
            },
            due=due,
        )


def _said(move: Moved) -> tuple[Any, ...]:
    said = ("mode_used", "agent_called", "fallback_reason", "check", "attempts", "agent_result_accepted")
    return move.frm, move.to, move.by, move.attempt, *(move.detail.get(name) for name in said)


def answers(journal: list[Entry]) -> int:
    """How many of the model's answers and refusals are written down, shadows aside."""
    found = 0
    for body in (entry.body for entry in journal):
        if not isinstance(body, Recorded):
            continue
        if body.key.startswith("agent/"):  # one that the budget ended asked nothing on its own account
            found += body.value.get("error", {}).get("reason") != "budget"
    return found


_UNDISTURBED: dict[int, Told] = {}


@pytest.fixture
async def scene(tmp_path, nursery) -> AsyncIterator[Any]:
    """Makes scenes; each knows how the same run goes when nobody disturbs it."""
    opened: list[Scene] = []

    async def make(number: int = PLENTY) -> Scene:
        if number not in _UNDISTURBED:
            quiet = Scene(_made(tmp_path / "quiet"), nursery, number)
            async with quiet.oracle:
                await quiet.work(counted=str(quiet.folder / "counted"))
                _UNDISTURBED[number] = await quiet.told()
            commits, effects = (quiet.folder / "counted").read_text().split()
            assert (int(commits), int(effects)) == (COMMITS[number], 2)
        here = Scene(_made(tmp_path / "here"), nursery, number)
        await here.oracle.__aenter__()
        opened.append(here)
        return here

    yield make
    for one in opened:
        await one.oracle.__aexit__()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def goes_on_as_if_nothing_had_happened(here: Scene) -> Told:
    """Resume in a new process; the run ends as the undisturbed one, and only what was lost is asked again."""
    before = await here.journal()
    asked = [one for one in here.oracle.asked if one.step != "count"]
    lost = len(asked) - answers(before)
    assert lost in (0, 1), "a process asks one thing at a time, and writes each answer down"
    await here.work()
    async with here.engine() as engine:
        await engine.resume_all()
    told, quiet = await here.told(), _UNDISTURBED[here.number]
    assert (told.status, told.data) == (quiet.status, quiet.data)
    assert told.moves == quiet.moves
    assert told.effects == quiet.effects, "each effect once, in order"
    again = told.asked - quiet.asked
    assert again.total() == lost
    assert not quiet.asked - told.asked
    if lost:
        assert again == Counter([asked[-1].hash]), "only the question whose answer was lost is asked again"
    assert told.committed == quiet.committed
    assert told.tokens == paid_for(here, told)
    assert told.shadow_asked - quiet.shadow_asked in (0, 1), "a shadow that was cut off is made up for"
    # An answer to a query is written down with the reply that rests on it, and looked up again without it.
    assert (told.looked - quiet.looked).total() <= 1
    assert Counter(told.shadows) == Counter(quiet.shadows), "each comparison once"
    assert told.evidence == quiet.evidence, "each verdict counted once"
    assert not told.due
    return told


def paid_for(here: Scene, told: Told) -> tuple[int, int]:
    """What the server counted for the answers that are written down."""
    quiet = _UNDISTURBED[here.number]
    by_hash = {one.hash: one for one in here.oracle.asked}
    kept = [by_hash[hash] for hash in quiet.asked if by_hash[hash].step != "guess"]
    if any(step == "journey/count" and outcome != "failed" for step, _, outcome in told.shadows):
        kept += [one for one in here.oracle.asked if one.step == "count"][-1:]  # an answer lost is not paid
    return sum(one.tokens[0] for one in kept), sum(one.tokens[1] for one in kept)


# -- nobody disturbs it -------------------------------------------------------------------------------------


async def test_undisturbed_the_run_asks_twelve_times_and_does_two_things(scene):
    await scene()
    quiet = _UNDISTURBED[PLENTY]
    assert quiet.status is Status.SUCCEEDED
    assert quiet.asked.total() + quiet.shadow_asked == REQUESTS
    assert [(move[0], move[2], move[6]) for move in quiet.moves] == [
        ("gather", "agent", None),
        ("judge", "agent", None),
        ("settle", "agent", None),
        ("guess", "handler", "exception"),
        ("count", "handler", None),
        ("advise", "agent", None),
    ]
    assert [args for _, args in quiet.effects] == [
        {"part": "a fast heater"},
        {"order": quiet.data["settled"]["order"]},
    ]
    assert quiet.shadows == [
        ("journey/count", "agent", "agreed"),
        ("journey/advise", "handler", "differed"),
    ]


# -- SIGKILL at a commit or an effect -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    one_in(
        5,
        [f"kill-{when}-commit-{n}" for n in range(1, COMMITS[PLENTY] + 1) for when in ("before", "after")],
    ),
)
async def test_killed_at_any_commit_it_goes_on_as_if_nothing_had_happened(scene, point):
    """D-59, D-56: before a commit the answer just given is lost and asked for again; after it, nothing."""
    here = await scene()
    await here.work(point)
    await goes_on_as_if_nothing_had_happened(here)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_an_effect_it_is_performed_once_and_nothing_is_asked_again(scene, when, number):
    """D-59."""
    here = await scene()
    await here.work(f"kill-{when}-effect-{number}")
    seen = len(here.oracle.asked)
    told = await goes_on_as_if_nothing_had_happened(here)
    assert told.asked == _UNDISTURBED[PLENTY].asked
    assert len(here.oracle.asked) > seen


# -- SIGKILL while the model is asked -----------------------------------------------------------------------


async def killed_at_request(here: Scene, number: int, when: str) -> None:
    """Start a process and kill it exactly where the server says."""
    there, dead = asyncio.Event(), asyncio.Event()

    async def here_we_are() -> None:
        there.set()
        await dead.wait()

    here.oracle.at(number, when, here_we_are)
    pid = here.start()
    async with asyncio.timeout(30):
        await there.wait()
    await here.nursery.kill(pid)
    dead.set()
    here.no_trouble()


@pytest.mark.parametrize("number", one_in(4, range(1, REQUESTS + 1)))
async def test_killed_while_the_model_thinks_it_is_asked_once_more(scene, number):
    """The request was received, and nothing answered."""
    here = await scene()
    await killed_at_request(here, number, "before")
    assert len(here.oracle.asked) == number
    assert len(here.oracle.sent) == number - 1
    told = await goes_on_as_if_nothing_had_happened(here)
    if here.oracle.asked[number - 1].step != "count":
        assert told.asked.total() == _UNDISTURBED[PLENTY].asked.total() + 1


@pytest.mark.parametrize("number", one_in(4, sorted(set(range(1, REQUESTS + 1)) - set(DOWN))))
async def test_killed_amid_an_answer_half_of_it_counts_for_nothing(scene, number):
    here = await scene()
    await killed_at_request(here, number, "amid")
    await goes_on_as_if_nothing_had_happened(here)


@pytest.mark.parametrize("number", one_in(4, range(1, REQUESTS + 1)))
async def test_killed_as_the_last_byte_is_sent_it_is_written_down_or_asked_once_more(scene, number):
    """Wherever in reading, checking and committing the answer the signal lands."""
    here = await scene()
    victim: list[int] = []
    may = asyncio.Event()

    async def until_known() -> None:
        await may.wait()

    async def strike() -> None:
        here.nursery.send(victim[0], signal.SIGKILL)

    here.oracle.at(number, "before", until_known)
    here.oracle.at(number, "after", strike)
    victim.append(here.start())
    may.set()
    await here.nursery.gone(victim[0])
    here.no_trouble()
    await goes_on_as_if_nothing_had_happened(here)


async def test_killed_after_every_single_commit_it_still_asks_each_question_once(scene):
    """Each process gets one commit further than the one before."""
    here = await scene()
    await here.work("kill-after-commit-1")
    for _ in range(2 * COMMITS[PLENTY]):
        await here.work("kill-after-commit-4")  # found, claimed, the take-over written down: one more
        if any(isinstance(one.body, Moved) and one.body.to == "done" for one in await here.journal()):
            break
    told, quiet = await here.told(), _UNDISTURBED[PLENTY]
    assert (told.status, told.data, told.effects) == (quiet.status, quiet.data, quiet.effects)
    assert told.asked == quiet.asked
    assert told.moves == quiet.moves


# -- attempts and budgets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("failed", [1, 2, 3])
async def test_attempts_that_failed_before_the_kill_are_not_made_again(scene, failed):
    """D-55, D-56: three attempts at a server that is down, however many processes make them."""
    here = await scene()
    await here.work(f"kill-after-commit-{commit_of_attempt(failed)}")
    assert sum(one.step == "guess" for one in here.oracle.asked) == failed
    await goes_on_as_if_nothing_had_happened(here)
    assert sum(one.step == "guess" for one in here.oracle.asked) == 3


def commit_of_attempt(number: int) -> int:
    """The commit that writes down how an attempt at `guess` failed."""
    seen = commits = 0
    at = 0.0
    for entry in _UNDISTURBED[PLENTY].journal:
        body = entry.body
        commits += entry.at != at  # entries of one commit have one time
        at = entry.at
        if isinstance(body, Recorded) and body.value.get("error", {}).get("reason") == "exception":
            seen += 1
            if seen == number:
                return commits
    raise AssertionError(number)


@pytest.mark.parametrize(
    ("number", "when", "budget"), covering(range(2, 8), ["before", "after"], [LEAN, THIN], together=1)
)
async def test_a_budget_runs_out_at_the_same_place_whoever_is_killed(scene, number, when, budget):
    """D-56: an answer that used up the last of the budget still counts after a kill."""
    here = await scene(budget)
    await here.work(f"kill-{when}-commit-{number}")
    told = await goes_on_as_if_nothing_had_happened(here)
    who = "handler" if budget == LEAN else "agent"
    assert told.moves[0][2] == who
    assert {move[6] for move in told.moves[1:] if move[0] != "count"} == {"budget"}


# -- stopped, not killed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", one_in(2, [1, 3, 5, 7, 9, 12]))
async def test_an_engine_that_stops_amid_an_attempt_leaves_the_step_to_be_resumed(scene, number):
    """D-35: no fallback, no failed attempt, and the model is told to stop as well."""
    here = await scene()
    there = asyncio.Event()

    async def think() -> None:
        there.set()
        await asyncio.Event().wait()

    here.oracle.at(number, "before", think)
    async with here.engine() as engine:
        await engine.start("journey", {"serial": "KX-7"}, run_id=here.run_id)
        await there.wait()
        await engine.stop(grace=0)
    await here.oracle.hung_up.wait()
    journal = await here.journal()
    step = here.oracle.asked[-1].step
    assert not [e for e in journal if isinstance(e.body, Moved) and e.body.frm == step]
    assert "attempt_failed" not in {entry.kind for entry in journal}
    await goes_on_as_if_nothing_had_happened(here)


async def test_an_engine_that_stops_between_two_attempts_leaves_the_second_to_whoever_resumes(scene):
    """D-35, D-55: the hour to wait is not waited out, and the attempt made is not made again."""
    here = await scene()
    async with here.engine(patient=True) as engine:
        await engine.start("journey", {"serial": "KX-7"}, run_id=here.run_id)
        async for entry in engine.follow(here.run_id):
            if isinstance(entry.body, Recorded) and "503" in str(entry.body.value):
                break
        await engine.stop()
    assert sum(one.step == "guess" for one in here.oracle.asked) == 1
    told = await goes_on_as_if_nothing_had_happened(here)
    assert told.asked == _UNDISTURBED[PLENTY].asked


async def test_sigterm_lets_the_answer_under_way_come_and_keeps_it(scene):
    """D-35: within the grace the attempt is finished, and nothing is asked again."""
    here = await scene()
    there, go = asyncio.Event(), asyncio.Event()

    async def think() -> None:
        there.set()
        await go.wait()

    here.oracle.at(4, "before", think)
    pid = here.start(only=False)
    await there.wait()
    here.nursery.send(pid, signal.SIGTERM)
    go.set()
    await here.nursery.gone(pid)
    here.no_trouble()
    told = await goes_on_as_if_nothing_had_happened(here)
    assert told.asked == _UNDISTURBED[PLENTY].asked


async def test_a_run_that_is_cancelled_amid_an_attempt_asks_nothing_more_and_falls_back_on_nobody(scene):
    """D-35."""
    here = await scene()
    there = asyncio.Event()

    async def think() -> None:
        there.set()
        await asyncio.Event().wait()

    here.oracle.at(6, "before", think)
    async with here.engine() as engine:
        await engine.start("journey", {"serial": "KX-7"}, run_id=here.run_id)
        await there.wait()
        await engine.cancel(here.run_id)
        run = await engine.finish(here.run_id)
        assert run.status is Status.CANCELLED
    await here.oracle.hung_up.wait()
    assert len(here.oracle.asked) == 6
    assert not effects_of(here.world)
    assert [e.body.to for e in await here.journal() if isinstance(e.body, Moved)] == ["judge", "settle"]


# -- what is nobody's business ------------------------------------------------------------------------------


async def test_the_key_reaches_the_server_and_no_file(scene):
    """I11: of the environment's secrets the journal, the log and the world know nothing."""
    here = await scene()
    await here.work("kill-after-commit-9")
    await goes_on_as_if_nothing_had_happened(here)
    assert all(one.authorized for one in here.oracle.asked)
    secret = os.environ[KEY].encode()
    assert not [path for path in here.folder.iterdir() if secret in path.read_bytes()]
    assert not [one for one in here.oracle.asked if secret.decode() in str(one.body)]
