"""A bench for the engine: real stores, engines that are put away after the test, a clock turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.host import ticks
from detent.kernel.entries import Entry
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from detent.testing.clock import HandClock


class Clock(HandClock):
    """The hand-turned clock, which also says for how long somebody sleeps."""

    def sleeping(self, seconds: float, many: int = 1) -> bool:
        """True when so many sleep for exactly so long from now. (An engine's beat sleeps 5, its heed 0.5.)"""
        due = [due for due, _, waiting in self._sleepers if not waiting.done()]
        return sum(abs(when - self.now() - seconds) < 1e-6 for when in due) >= many


class Bench:
    """Stores that share one truth, and engines on them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "detent.db"
        self._ahead = 0.0
        self._memory = MemoryStore(ticks=self._ticks)
        self._engines: list[Engine] = []

    def store(self) -> Any:
        """A store object; all of them hold the same runs."""
        if self.kind == "memory":
            return self._memory
        return SQLiteStore(self.path, sync="normal", ticks=self._ticks)

    def _ticks(self) -> float:
        return ticks() + self._ahead

    def let_leases_run_out(self) -> None:
        """Have the store's clock jump past the end of every lease taken out so far."""
        self._ahead += 3600.0

    async def engine(self, *flows: Flow, **options: Any) -> Engine:
        """An open engine, stopped after the test."""
        engine = Engine(self.store(), flows, **options)
        self._engines.append(engine)
        await engine.open()
        return engine

    async def close(self) -> None:
        """Stop every engine."""
        for engine in self._engines:
            await engine.stop(grace=0)


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench on each kind of store."""
    made = Bench(request.param, tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def durable(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench on a SQLite file."""
    made = Bench("sqlite", tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench in memory, where the store makes no difference."""
    made = Bench("memory", tmp_path)
    yield made
    await made.close()


@pytest.fixture
def clock() -> Clock:
    """A clock turned by hand."""
    return Clock()


ENDS = {
    "done": Status.SUCCEEDED,
    "failed": Status.FAILED,
    "degraded": Status.DEGRADED,
    "spent": Status.BUDGET_EXHAUSTED,
}


def flow_of(
    moves: Mapping[str, Any],
    steps: Mapping[str, Any],
    *,
    name: str = "flow",
    version: int = 1,
    may_end: tuple[str, ...] = (),
    **options: Any,
) -> Flow:
    """A flow whose table is `moves`; targets called done, failed, degraded or spent are ends."""
    ends = {
        end: status
        for end, status in ENDS.items()
        if any(end == getattr(move, "to", move) for row in moves.values() for move in row)
    }
    machine: Machine[str] = Machine(
        name, start=next(iter(moves)), moves=moves, ends=ends, version=version, may_end=may_end
    )
    return Flow(machine, steps, **options)


def one_step(handler: Any, *, name: str = "flow", also: tuple[str, ...] = (), **options: Any) -> Flow:
    """A flow of the single working state `work`, which may go to `done` and the states in `also`."""
    return flow_of({"work": ["done", *also]}, {"work": handler}, name=name, **options)


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until something is so; fails when it never becomes so. An async condition is awaited."""
    async with asyncio.timeout(seconds):
        while True:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.002)


async def journal(engine: Engine, run_id: str) -> list[Entry]:
    """The whole journal of a run."""
    return await engine.store.entries(run_id, 0, 1_000_000)


async def kinds(engine: Engine, run_id: str) -> list[str]:
    """What happened in a run, in order."""
    return [entry.kind for entry in await journal(engine, run_id)]
