"""`detent doctor`: what needs a person makes it fail, with the command that helps."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.clock import SystemClock
from detent.engine.host import born, this_host
from detent.engine.ports import Worker
from detent.kernel.status import Status
from detent.runtime.settings import read_settings
from detent.runtime.store_health import LOOK_AT, definition_problem, disk_needs, run_needs
from detent.runtime.wiring import store_for
from detent.testing.store_trials.builders import commit, new, now


def told(said):
    return [need["what"] for need in said.json["needs"]]


def test_a_run_that_only_waits_for_an_answer_is_nothing_wrong(detent, started):
    started(amount=5000)
    assert [row["status"] for row in detent("runs", "--json").json["runs"]] == ["waiting"]
    assert detent("doctor").code == 0


def test_runs_of_a_dead_worker_are_told_with_the_command(detent, spawn, folder):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    worker.signal(signal.SIGKILL)
    worker.process.wait()
    said = detent("doctor", "--json")
    assert said.code == 1
    assert said.json["healthy"] is False
    (need,) = said.json["needs"]
    assert need["runs"] == ["r1"]
    assert need["command"] == "detent resume --all"
    (worker_id,) = said.json["store"]["workers_dead"]
    assert (
        need["what"] == f"Run r1 was being driven by worker {worker_id}, which died; no worker drives it now."
    )
    shown = detent("doctor")
    assert shown.code == 1
    assert "    detent resume --all" in shown.lines


async def test_a_worker_that_is_there_and_silent_is_told_with_its_runs(folder):
    """A stopped process keeps its runs; somebody has to notice."""
    pid = os.getppid()
    store = SQLiteStore(folder / "silent.db")
    await store.open()
    await store.beat(Worker("w1", this_host(), pid, born(pid) or 0.0), -60)
    await store.create(new("r1"))
    health = await run_needs(store, SystemClock(), definition_problem({}))
    await store.close()
    assert health.workers_alive == ["w1"]
    assert f"Worker w1 (process {pid}) has not been heard of" in health.needs[0].what
    assert health.needs[0].runs == ["r1"]
    assert "Nobody takes over its 1 run until it goes on or is ended." in health.needs[0].what


async def test_of_dead_workers_only_those_whose_runs_were_left_are_named(folder):
    store = SQLiteStore(folder / "dead.db")
    await store.open()
    for worker in ("w1", "w2", "w3", "w4"):
        await store.beat(Worker(worker, this_host(), 2**22 + 1, 1.0), 60)
    await store.create(new("r1", worker="w2"))
    (need,) = (await run_needs(store, SystemClock(), no_problem)).needs
    assert need.what == "Run r1 was being driven by worker w2, which died; no worker drives it now."
    await store.create(new("r2", worker="w4"))
    await store.create(new("r3", worker="w4"))
    (need,) = (await run_needs(store, SystemClock(), no_problem)).needs
    assert need.what == "3 runs were being driven by workers that died (w2, w4); no worker drives them now."
    await store.close()


async def no_problem(row):
    return None


def test_a_run_that_needs_attention_is_told_with_its_question(detent, started):
    run = started(text="boom")
    said = detent("doctor", "--json")
    assert said.code == 1
    assert f"Run {run} waits for a person: It is not known whether 'desk.send' happened" in told(said)[0]
    assert said.json["needs"][0]["command"] == f"detent show {run}"


def test_a_run_whose_definition_was_changed_or_is_gone_is_told(detent, started, folder):
    started(amount=5000)
    flow = folder / "flow.py"
    flow.write_text(flow.read_text().replace('"welcome"', '"greet"'))
    said = detent("doctor", "--json")
    assert (said.code, "unable to go on: the definition of" in told(said)[0]) == (1, True), said.out
    flow.unlink()
    said = detent("doctor", "--json")
    assert (said.code, "is not known here" in told(said)[0]) == (1, True), said.out


def test_a_disk_with_little_room_is_told(detent, started, folder):
    started()
    store = store_for(read_settings(None, {}), create=False)
    assert disk_needs(store) == []
    (need,) = disk_needs(store, least=1 << 62)
    assert "MiB are free where the store lies" in need.what


def test_a_disk_that_takes_nothing_more_is_told(started, folder):
    """As a full disk refuses: no file of this process may grow beyond what an open store needs."""
    started()
    ran = subprocess.run(
        [sys.executable, "-m", "detent", "doctor", "--json"], cwd=folder, capture_output=True, text=True,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (48 << 10, 48 << 10)),
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert "Nothing can be written where the store lies" in ran.stdout


@pytest.fixture
def many(folder):
    """A store with more runs of each kind than are looked at."""

    async def make():
        store = SQLiteStore(folder / "many.db", sync="normal")
        await store.open()
        due = time.time() - 3600
        for number in range(LOOK_AT + 50):
            lease = await store.create(new(f"w{number}", worker=None))
            await store.append(commit(lease, 1, state=now(Status.WAITING, wake_at=due)))
            await store.create(new(f"r{number}", worker=None))
        return store

    return make


async def test_a_huge_store_is_looked_at_in_part_and_that_is_told(many):
    store = await many()
    asked = []

    async def cannot_resume(row):
        asked.append(row.id)

    health = await run_needs(store, SystemClock(), cannot_resume)
    await store.close()
    assert len(asked) == 1, "runs of one definition are asked about once"
    assert health.not_looked_at == [
        "Of the waiting runs only the newest 1,000 were looked at.",
        "Of the interrupted runs only 1,000 were looked at.",
        "Of the due runs only 1,000 were looked at.",
        "Of the interrupted runs only 100 were asked whether they can go on here.",
    ]
    assert any("past the time waited for, and no worker" in need.what for need in health.needs)
