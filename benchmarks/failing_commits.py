"""Requests of the coding assistant on a store whose commits fail: how many of their transitions are lost."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from benchmarks.coding_requests import ScenarioModel, flowing, scenarios_of
from benchmarks.protocol import Param, Result, require


class FailingCommits:
    """A store in whose way something is: of so many commits one fails once, of so many more one for good.

    Half of those that fail once have been written, and only the answer is lost. A run whose commit fails for
    good is never written again.
    """

    def __init__(self, inner: Any, *, once: int, for_good: int) -> None:
        self._inner = inner
        self._chance = random.Random(1)
        self._once, self._for_good = once, for_good
        self._next_once = self._next_for_good = 0
        self.commits = self.failed_once = 0
        self.lost: set[str] = set()
        """Runs that cannot be written any more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, commit: Any) -> int:
        """Write a commit, or fail."""
        from detent.kernel.errors import StoreUnavailable

        run_id, number = commit.lease.run_id, self.commits
        if run_id in self.lost:
            raise StoreUnavailable(f"The disk does not take run {run_id} any more.")
        self.commits += 1
        if number % self._once == 0:
            self._next_once = number + self._chance.randrange(self._once)
        if number % self._for_good == 0:
            self._next_for_good = number + self._chance.randrange(self._for_good)
        if number == self._next_for_good:
            self.lost.add(run_id)
            raise StoreUnavailable(f"The disk does not take run {run_id} any more.")
        if number != self._next_once:
            return cast(int, await self._inner.append(commit))
        self.failed_once += 1
        if self._chance.random() < 0.5:
            await self._inner.append(commit)
        raise StoreUnavailable("The disk was away for a moment.")


TRIES = 5
"""How often a request is resumed, at most."""
WORDS = 10
"""Characters of an error that says something, at least."""


def run_disturbed(param: Param) -> Result:
    """Requests until so many transitions were tried, on a store in which commits fail."""
    return asyncio.run(_disturbed(param))


async def _disturbed(param: Param) -> Result:
    from detent.adapters.stores.memory import MemoryStore
    from detent.engine.journal_reader import read
    from detent.flows.coding.result import result_of
    from detent.kernel.entries import Moved
    from detent.kernel.errors import StoreUnavailable

    scenarios = scenarios_of(param["scenarios"])
    store = FailingCommits(MemoryStore(), once=param["once"], for_good=param["for_good"])
    committed = lost = interrupted = requests = 0
    words: set[str] = set()
    begin = time.perf_counter()
    folder = Path(param["folder"])
    async with flowing(ScenarioModel(scenarios), folder, folder, cast(Any, store)) as desk:
        while committed + lost < param["transitions"]:
            scenario = scenarios[requests % len(scenarios)]
            requests += 1
            with tempfile.TemporaryDirectory(dir=folder) as name:
                desk.workspace = Path(name).resolve()
                scenario.furnish(desk.workspace)
                run_id = await desk.begin(scenario.prompt, deny=scenario.deny)
                error: StoreUnavailable | None = None
                for _ in range(TRIES):
                    try:
                        await desk.engine.finish(run_id)
                        error = None
                        break
                    except StoreUnavailable as raised:
                        error = raised
                        interrupted += run_id not in store.lost
                result = await result_of(desk.engine, run_id)
                if error is None:
                    require(result.done, f"{scenario.id} ended as {result.outcome}: {result.reason}")
                    reached = scenario.goal.holds(desk.workspace, [result.text])
                    require(reached, f"{scenario.id} ended without reaching its goal")
                else:
                    require(run_id in store.lost, f"a request could not be resumed: {error}")
                    require(result.outcome == "interrupted", f"a lost request is called {result.outcome}")
                    require(len(str(error)) >= WORDS, "an error says nothing")
                    words.add(type(error).__name__)
                    lost += 1
            moves = [entry async for entry in read(cast(Any, store), run_id) if isinstance(entry.body, Moved)]
            committed += len(moves)
    return {
        "seconds": time.perf_counter() - begin, "n": committed + lost, "requests": requests,
        "commits": store.commits, "failed_once": store.failed_once, "interrupted": interrupted, "lost": lost,
        "share": lost / (committed + lost), "unresumed": (interrupted + lost) / (committed + lost),
    }  # fmt: skip
