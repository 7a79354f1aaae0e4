"""kill -9 in each state and between any two files: the show is that of an undisturbed run, written once."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.apps.choreography.export import result_of_show
from detent.engine.engine import Engine
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.worker_processes import Job, Nursery
from detent.testing.world import World
from tests.apps.choreography.crashing import show
from tests.examples import one_in
from tests.flows.refine.test_crashes import told

pytestmark = pytest.mark.slow

WORKLOAD = "tests.apps.choreography.crashing:show"
FILES = 16
COMMITS = {False: 5 + 1 + FILES + 1, True: 7 + 1 + FILES + 1}
"""The start and the moves, what is to be done at the end, a receipt for each file, the end."""
POINTS = [
    (strict, f"kill-{when}-commit-{number}")
    for strict, most in COMMITS.items()
    for number in range(2, most + 1)
    for when in ("before", "after")
    if (when, number) != ("after", most)
]
"""Before its receipt is committed, a file is written; after it, the next one is about to be."""
TIMED = ("result.json", "metrics.txt", "song_final.json", "song_state_machine.json")
"""Files with times."""


class Ended(NamedTuple):
    """What a run has left behind."""

    journal: list[Any]
    files: dict[str, bytes]
    result: Any


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """The files there are, each with what changes when it is written again."""
    paths = [path for path in (folder / "out").rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


async def killed(folder: Path, nursery: Nursery, *points: str) -> None:
    job = Job(
        store=f"sqlite:{folder / 'store.db'}", world=str(folder / "world"), workload=WORKLOAD,
        journal=str(folder / "log"), numbers=[0], only=True, points=points,
    )  # fmt: skip
    await nursery.gone(nursery.start(job))
    assert "Traceback" not in (folder / "log").read_text()


async def finished(folder: Path) -> Ended:
    """The run seen through by another process."""
    async with Engine(
        SQLiteStore(folder / "store.db"), show(World(folder / "world"), CrashPoints()).flows
    ) as engine:
        await engine.finish("r0")
        journal = told(await engine.store.entries("r0"))
        paths = [path for path in (folder / "out").rglob("*") if path.is_file()]
        files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        return Ended(journal, files, await result_of_show(engine, "r0"))


def prepared(folder: Path, song: Path, strict: bool) -> Path:
    """The same folder, as it was before any run: paths are in the journal."""
    rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    (folder / "song.wav").write_bytes(song.read_bytes())
    if strict:
        (folder / "strict").touch()
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


_CALM: dict[bool, Ended] = {}


async def undisturbed(folder: Path, song: Path, strict: bool) -> Ended:
    """A run that nothing has happened to; made once."""
    if strict not in _CALM:
        workload = show(World(prepared(folder, song, strict) / "world"), CrashPoints())
        async with Engine(SQLiteStore(folder / "store.db"), workload.flows) as engine:
            planned = workload.plan(0)
            await engine.start(planned.flow, planned.data, run_id="r0", budget=planned.budget)
            await engine.finish("r0")
        _CALM[strict] = await finished(folder)
    return _CALM[strict]


@pytest.mark.parametrize("crash", one_in(14, POINTS), ids=str)
async def test_a_killed_show_ends_as_an_undisturbed_one(studio, song, nursery, place, crash):
    """R-34: same journal, same files, and what was written is left alone."""
    strict, point = crash
    calm = await undisturbed(place, song, strict)
    await killed(prepared(place, song, strict), nursery, point)
    before = identities(place)
    ended = await finished(place)
    assert ended.journal == calm.journal
    assert (ended.result.status, len(ended.files)) == ("incomplete" if strict else "success", FILES)
    after = identities(place)
    assert {path: after[path] for path in before} == before
    assert set(ended.files) == set(calm.files)
    for name, content in ended.files.items():
        assert name.endswith(TIMED) or content == calm.files[name], name


async def test_a_song_that_changes_between_kill_and_resume_is_refused(studio, song, nursery):
    """R-34: with both hashes, in its analysis as before its sequence is written; put back, it goes on."""
    await killed(prepared(studio, song, False), nursery, "kill-after-commit-4")
    whole = (studio / "song.wav").read_bytes()
    (studio / "song.wav").write_bytes(whole[:-2000])
    result = (await finished(studio)).result
    assert result.run_status is Status.WAITING
    for content in (whole, whole[:-2000]):
        assert sha256(content).hexdigest() in result.error
    assert not list((studio / "out").rglob("*.xsq"))
    (studio / "song.wav").write_bytes(whole)
    async with Engine(
        SQLiteStore(studio / "store.db"), show(World(studio / "world"), CrashPoints()).flows
    ) as engine:
        run = await engine.get("r0")
        (hold,) = run.holds
        await engine.resolve("r0", "again", hold=run.token(hold))
    assert (await finished(studio)).result.status == "success"


async def test_a_song_that_changes_before_it_is_measured_is_refused(studio, song, nursery):
    """R-34"""
    await killed(prepared(studio, song, False), nursery, "kill-before-commit-2")
    whole = (studio / "song.wav").read_bytes()
    (studio / "song.wav").write_bytes(whole[:-2000])
    result = (await finished(studio)).result
    assert (result.status, result.reason) == ("failed", "Input rejected: song_changed")
    for content in (whole, whole[:-2000]):
        assert sha256(content).hexdigest() in result.error


async def test_files_that_another_run_has_overwritten_are_told(studio, song, nursery):
    """Each file is whole, whoever wrote it; that they are of one show is only true of one run at a time."""
    await killed(prepared(studio, song, False), nursery, "kill-after-commit-9")
    (written,) = (studio / "out").rglob("audio.json")
    written.write_text("{}")
    result = (await finished(studio)).result
    assert result.status == "success"
    (warning,) = [line for line in set(result.warnings) if "another run" in line]
    assert "audio.json changed" in warning
    assert warning in (studio / "out" / "song" / "result.json").read_text()
