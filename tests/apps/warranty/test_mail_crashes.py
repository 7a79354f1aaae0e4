"""W-44: killed at any instant, a mailbox resumes to one ticket and one mail, or asks a person."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.apps.warranty.domain.coverage import device_of
from detent.apps.warranty.mail_data import pack
from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.tools.tickets import Tickets
from detent.engine.engine import Engine
from detent.insight.visits import visits
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.worker_processes import Job, Nursery
from detent.testing.world import World
from tests.apps.warranty import mail_crashing
from tests.apps.warranty.correspondence import COVERED, CUSTOMER, DEVICES, PATHS, outbox, text_of, usual
from tests.engine import answers
from tests.examples import one_in

pytestmark = pytest.mark.slow

RUN = "r0"
COMMITS = 9
"""Commits of a whole run, the first of which finds it there; `test_a_run_that_nobody_kills` counts them."""
EVERY_COMMIT = [
    f"kill-{when}-commit-{number}" for number in range(2, COMMITS + 1) for when in ("before", "after")
]
EFFECTS = [f"kill-{when}-effect-{number}" for number in (1, 2) for when in ("before", "after")]
OUTSIDE = [f"kill-{when}-{what}-1" for what in ("desk", "sink") for when in ("before", "after")]


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


class Scene:
    """A mailbox with one mail in it, and processes that die over it."""

    def __init__(self, folder: Path, nursery: Nursery, make: str) -> None:
        self.folder = folder
        self.nursery = nursery
        self.make = make
        self.world = World(folder / "world")
        self.store = folder / "store.db"

    @asynccontextmanager
    async def engine(self):
        workload = getattr(mail_crashing, self.make)(self.world, CrashPoints())
        async with Engine(SQLiteStore(self.store), workload.flows) as engine:
            yield engine

    async def begin(self) -> None:
        """The run is there, and nobody drives it."""
        registry = Registry(self.folder / "warranty.db")
        await registry.add([device_of(dict(one)) for one in DEVICES])
        await registry.close()
        packed = pack(usual("valid", ident="<crash@x.example>"), "UTC")
        async with self.engine() as engine:
            await engine.start("warranty", packed.data, run_id=RUN, beside=packed.beside, drive=False)

    async def work(self, *points: str) -> tuple[int, int] | None:
        """A process works at it until it is struck; without points, to the end: its commits and effects."""
        counted = self.folder / "counted"
        job = Job(
            store=f"sqlite:{self.store}",
            world=str(self.folder / "world"),
            workload=f"tests.apps.warranty.mail_crashing:{self.make}",
            journal=str(self.folder / "log"),
            numbers=[0],
            only=True,
            points=points,
            counted=str(counted),
        )
        await self.nursery.gone(self.nursery.start(job))
        assert "Traceback" not in (self.folder / "log").read_text()
        if not counted.exists():
            return None
        commits, effects = counted.read_text().split()
        return int(commits), int(effects)

    async def tickets(self):
        tickets = Tickets(self.folder / "warranty.db")
        found = await tickets.list()
        await tickets.close()
        return found

    def mails(self):
        return outbox(self.folder / mail_crashing.OUTBOX)

    def slot(self) -> list[str]:
        path = self.folder / mail_crashing.SLOT
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
async def scene(tmp_path, nursery):
    async def begun(make: str = "with_outbox") -> Scene:
        here = Scene(tmp_path, nursery, make)
        await here.begin()
        return here

    return begun


async def ended(here: Scene) -> None:
    """The run's end is that of an undisturbed one: one ticket, one mail, the same history."""
    async with here.engine() as engine:
        await engine.resume_all()
        run = await engine.finish(RUN)
        assert (run.status, run.state) == (Status.SUCCEEDED, "DONE")
        steps = [one.step_name for one in visits(await engine.store.entries(RUN, 0, 10_000))]
        assert tuple(steps) == PATHS["valid"]
        (ticket,) = await here.tickets()
        assert (ticket.ticket_id, ticket.serial_number) == (run.data["ticket_id"], COVERED)
        (mail,) = here.mails()
        assert mail["To"] == CUSTOMER
        assert mail["Message-ID"] == run.data["reply_message_id"]
        assert ticket.ticket_id in text_of(mail)


async def test_a_run_that_nobody_kills(scene):
    here = await scene()
    assert await here.work() == (COMMITS, 2)
    await ended(here)


@pytest.mark.parametrize("point", [*one_in(3, EVERY_COMMIT), *EFFECTS, *OUTSIDE])
async def test_killed_anywhere_there_is_one_ticket_and_one_mail(scene, point):
    """W-44, promise 2."""
    here = await scene()
    assert await here.work(point) is None
    await ended(here)


@pytest.mark.parametrize("point", one_in(2, OUTSIDE))
async def test_killed_twice_at_the_same_place_likewise(scene, point):
    here = await scene()
    assert await here.work(point) is None
    await here.work(point)
    await ended(here)


class TestASinkThatCannotTell:
    @pytest.mark.parametrize("point", ["kill-before-effect-2", "kill-before-commit-7", "kill-after-commit-7"])
    async def test_what_was_not_begun_is_sent(self, scene, point):
        """Only a mail that was begun can have gone out."""
        here = await scene("with_slot")
        assert await here.work(point) is None
        assert here.slot() == []
        async with here.engine() as engine:
            await engine.resume_all()
            assert (await engine.finish(RUN)).state == "DONE"
        assert len(here.slot()) == len(await here.tickets()) == 1

    @pytest.mark.parametrize(("point", "went"), [("kill-before-sink-1", 0), ("kill-after-sink-1", 1)])
    async def test_what_was_begun_is_for_a_person_to_settle(self, scene, point, went):
        """W-44, 5.5: never blindly repeated."""
        here = await scene("with_slot")
        assert await here.work(point) is None
        async with here.engine() as engine:
            await engine.resume_all()
            run = await engine.finish(RUN)
            assert run.status is Status.WAITING
            (hold,) = run.holds.values()
            assert (hold.why, hold.choices) == ("attention", ["happened", "again", "skip"])
            assert len(here.slot()) == went
            if went:
                receipt = {"message_id": here.slot()[0].split()[0], "status": "sent"}
                await answers.resolve(engine, RUN, "happened", receipt=receipt)
            else:
                await answers.resolve(engine, RUN, "again")
            assert (await engine.finish(RUN)).state == "DONE"
        assert len(here.slot()) == len(await here.tickets()) == 1

    @pytest.mark.parametrize("point", ["kill-after-effect-2", "kill-before-commit-8"])
    async def test_what_was_written_down_as_sent_needs_nobody(self, scene, point):
        here = await scene("with_slot")
        assert await here.work(point) is None
        async with here.engine() as engine:
            await engine.resume_all()
            assert (await engine.finish(RUN)).state == "DONE"
        assert len(here.slot()) == 1
