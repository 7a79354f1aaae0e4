"""Crash points are reached exactly where they say, and a struck process is really gone."""

from __future__ import annotations

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.tools import Tool
from detent.kernel.machine import Machine
from detent.testing.crash import CrashPoint, CrashPoints
from detent.testing.worker_processes import Job, Nursery
from detent.testing.world import World


@pytest.mark.parametrize("text", ["kill-before-commit-3", "stop-after-effect-1"])
def test_a_crash_point_reads_back_as_it_is_written(text):
    assert str(CrashPoint.parse(text)) == text


async def test_commits_and_effects_are_counted_and_struck_where_asked():
    struck: list[str] = []
    points = [
        CrashPoint(number, when, what)
        for number in (1, 2, 3, 9)
        for when in ("before", "after")
        for what in ("commit", "effect")
    ]
    crash = CrashPoints(points, strike=lambda point: struck.append(str(point)))
    machine = Machine("small", start="do", moves={"do": ["done"]}, ends=["done"])
    effect = crash.tool(Tool("act", lambda to: {"to": to}))
    flow = Flow(machine, {"do": lambda ctx: Outcome(effects=[Effect("act", {"to": "x"})])}, tools=[effect])
    async with Engine(crash.store(MemoryStore()), [flow]) as engine:
        await engine.run("small")
    assert struck == [
        "kill-before-commit-1",  # created
        "kill-after-commit-1",
        "kill-before-commit-2",  # proposed, effect begun
        "kill-after-commit-2",
        "kill-before-effect-1",
        "kill-after-effect-1",
        "kill-before-commit-3",  # effect done, moved
        "kill-after-commit-3",
    ]
    assert (crash.commits, crash.effects) == (3, 1)


def test_queries_are_no_effects():
    query = Tool("look", lambda: 1, "query")
    assert CrashPoints().tool(query) is query


async def test_a_struck_process_says_nothing_and_is_gone(tmp_path):
    journal = tmp_path / "log"
    with Nursery() as nursery:
        job = Job(
            f"sqlite:{tmp_path / 'store.db'}", str(tmp_path / "world"), "detent.testing.workload:reference",
            str(journal), numbers=[0], only=True, points=["kill-after-effect-1"],
        )  # fmt: skip
        pid = nursery.start(job)
        await nursery.gone(pid)
        assert not nursery.alive(pid)
    assert "Traceback" not in journal.read_text()
    assert World(tmp_path / "world").count() == 1
