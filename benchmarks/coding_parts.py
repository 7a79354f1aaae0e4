"""What is measured of the coding assistant, each part in a process of its own.

The bounds, and how the parts are judged, are in `coding`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from benchmarks import paired
from benchmarks.coding_requests import (
    BooleanRule,
    Flowing,
    MachineRule,
    ReadingModel,
    by_flow,
    by_loop,
    flowing,
    scenarios_of,
    write_notes,
)
from benchmarks.failing_commits import run_disturbed
from benchmarks.protocol import Param, Result, Workload, full_sync, main, peak_memory, require, stored_bytes

WARM = 10
"""The turn from which memory is held against that of the last turn."""


def p99(seconds: Sequence[float]) -> float:
    """The slowest but one in a hundred, in milliseconds."""
    return quantiles(seconds, n=100)[-1] * 1000


# -- transitions --------------------------------------------------------------------------------------------


def run_transitions(param: Param) -> Result:
    """Legal moves of the state machine in memory, and committed ones on the memory store."""
    begin = time.perf_counter()
    moved = _moves(param["moves"])
    committed = asyncio.run(_committed(param["committed"]))
    return {
        "seconds": time.perf_counter() - begin, "n": len(moved) + len(committed),
        "moved_ms": p99(moved), "committed_ms": p99(committed),
    }  # fmt: skip


def _moves(count: int) -> list[float]:
    from detent.flows.coding.state_transition import AgentStateMachine

    machine, chance, clock = AgentStateMachine(), random.Random(1), time.perf_counter
    taken: list[float] = []
    for _ in range(count):
        target = chance.choice(machine.valid_next_states())
        begin = clock()
        machine.transition_to(target)
        taken.append(clock() - begin)
    require(len(machine.history) == count, "a move was not recorded")
    return taken


async def _committed(count: int) -> list[float]:
    """Times from the end of a step to the beginning of the next one: everything that the engine does for a
    move, by the table of the flow, with steps that do nothing."""
    from detent import Engine, Flow, Outcome, Step
    from detent.adapters.stores.memory import MemoryStore
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.flows.coding.agent_state import AgentState
    from detent.flows.coding.state_transition import CODING
    from detent.kernel.status import Status

    chance, marks = random.Random(1), [0.0]

    def step(state: AgentState) -> Step:
        async def handle(ctx: Any) -> Outcome:
            marks.append(time.perf_counter())
            if len(marks) > count + 1 and state is AgentState.RESPONSE:
                return Outcome(end=Status.SUCCEEDED)
            return Outcome(chance.choice(CODING.allowed(state)))

        return Step(state.value, handle)

    flow = Flow(CODING, {state: step(state) for state in AgentState})
    async with Engine(MemoryStore(), [flow], dispatch=DispatchSettings()) as engine:
        run = await engine.run(flow, {})
    require(run.status is Status.SUCCEEDED, f"the run ended as {run.status.value}")
    return [after - before for before, after in pairwise(marks[1:])][:count]


# -- pairs --------------------------------------------------------------------------------------------------


Way = Callable[[Path], Coroutine[Any, Any, float]]


def run_response(param: Param) -> Result:
    """The flow on SQLite beside the plain loop, at the parity scenarios."""
    scenarios, wait = scenarios_of(param["scenarios"]), param["wait"]
    commits = _commits(Path(param["folder"]))
    measured = _rounds(
        param,
        lambda folder: by_flow(scenarios, folder, wait),
        lambda folder: by_loop(scenarios, folder, wait),
    )
    return {**measured, "commit_ms": median([*commits, *_commits(Path(param["folder"]))]) * 1000}


def _commits(folder: Path, count: int = 25) -> list[float]:
    """Seconds of commits of one row each at full sync, to know the disk."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    full_sync(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS bare (body TEXT)")
    taken: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        connection.execute("INSERT INTO bare VALUES ('row')")
        taken.append(time.perf_counter() - begin)
    connection.close()
    return taken


def run_compatibility(param: Param) -> Result:
    """A driver on the machine, with the compatibility layer, beside one on booleans alone."""
    scenarios, wait = scenarios_of(param["scenarios"]), param["wait"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the setters warn once; that is their purpose
        measured = _rounds(
            param,
            lambda folder: by_loop(scenarios, folder, wait, MachineRule),
            lambda folder: by_loop(scenarios, folder, wait, BooleanRule),
        )
        machine_us, booleans_us = _rule_us(MachineRule), _rule_us(BooleanRule)
    return {**measured, "machine_us": machine_us, "booleans_us": booleans_us}


def _rounds(param: Param, first: Way, second: Way) -> Result:
    """Rounds of the first way, the second, and the second once more."""
    ways = (first, second, second)

    def timed(way: Way) -> float:
        gc.collect()
        with tempfile.TemporaryDirectory(dir=param["folder"]) as folder:
            return asyncio.run(way(Path(folder).resolve()))

    timed(first)
    timed(second)  # both are warm
    rounds: list[list[float]] = []
    begin = time.perf_counter()
    for number in range(param["first"], param["first"] + param["rounds"]):
        seconds = [0.0, 0.0, 0.0]
        for place in paired.order(number):
            seconds[place] = timed(ways[place])
        rounds.append(seconds)
    return {"seconds": time.perf_counter() - begin, "n": len(rounds), "rounds": rounds}


def _rule_us(rule: Callable[[], Any], requests: int = 500) -> float:
    """Microseconds of a rule alone at each reply, over the replies of three turns."""
    from detent.flows.coding.measure.script import written

    (scenario,) = scenarios_of(["S15"])
    replies = [written(reply, "native") for reply in scenario.replies]
    begin = time.perf_counter()
    for _ in range(requests):
        decides = rule()
        for reply in replies:
            decides(reply)
    return (time.perf_counter() - begin) / (requests * len(replies)) * 1e6


# -- memory -------------------------------------------------------------------------------------------------


def resident() -> int:
    """The memory that this process has at the moment, or had at most where the system says no more."""
    with suppress(OSError, AttributeError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_memory() or 0


class Growth:
    """Looks at this process's memory before each reply, from the tenth on."""

    def __init__(self, traced: bool) -> None:
        self.traced = traced
        self.before = self.most = 0

    def __call__(self, number: int) -> None:
        """The memory before a reply."""
        import tracemalloc

        if number == WARM:
            gc.collect()
            self.before = tracemalloc.get_traced_memory()[0] if self.traced else resident()
            if self.traced:
                tracemalloc.reset_peak()
        elif number > WARM:
            self.most = max(self.most, tracemalloc.get_traced_memory()[1] if self.traced else resident())


def run_memory(param: Param) -> Result:
    """How much memory a session takes from its tenth turn to its last."""
    import tracemalloc

    growth, by_request, turns = Growth(param["traced"]), param["by_request"], param["turns"]
    model = ReadingModel(turns, by_request=by_request, seen=growth)
    folder = Path(param["folder"])
    write_notes(folder)
    if param["traced"]:
        tracemalloc.start()
    begin = time.perf_counter()
    if param["flow"]:
        asyncio.run(_session_by_flow(model, folder, turns, by_request))
    else:
        asyncio.run(_session_by_loop(model, folder, turns, by_request))
    tracemalloc.stop()
    require(model.given >= turns, f"{model.given} replies were given")
    return {"seconds": time.perf_counter() - begin, "n": turns, "grown": max(0, growth.most - growth.before)}


async def _session_by_flow(model: ReadingModel, folder: Path, turns: int, by_request: bool) -> None:
    async with flowing(model, folder, folder) as desk:
        await _session(desk, turns, by_request)


async def _session(desk: Flowing, turns: int, by_request: bool) -> None:
    """A session of so many turns."""
    session = None
    for number in range(turns if by_request else 1):
        result = await desk.ask(f"Go on with part {number}.", session=session)
        require(result.done, f"a request ended as {result.outcome}: {result.reason}")
        require(result.iterations == (1 if by_request else turns + 1), "a request ended early")
        session = result.session_id


async def _session_by_loop(model: ReadingModel, folder: Path, turns: int, by_request: bool) -> None:
    from detent.adapters.models.executor import ModelStepExecutor
    from detent.flows.coding.measure.legacy_rule import PlainLoop

    loop = PlainLoop(ModelStepExecutor(model), folder)
    for number in range(turns if by_request else 1):
        done, _ = await loop.run(f"Go on with part {number}.", turns + 1)
        require(done, "the plain loop did not come to an end")


# -- flat ---------------------------------------------------------------------------------------------------


class Sessions(NamedTuple):
    """What sessions of one length took."""

    wall: float
    """Seconds a turn."""
    cpu: float
    store: int
    """Bytes."""
    file: int
    """Bytes of the session files."""
    writing: float
    """Seconds that it takes to write a session's file."""


def run_flat(param: Param) -> Result:
    """Short sessions, a long one of as many turns as all of them, and the short ones again."""
    turns, short, by_request = param["turns"], param["short"], param["by_request"]
    begin = time.perf_counter()
    folder = Path(param["folder"])

    def sessions(count: int, length: int) -> Sessions:
        gc.collect()
        with tempfile.TemporaryDirectory(dir=folder) as name:
            return asyncio.run(_sessions(Path(name).resolve(), count, length, by_request))

    sessions(1, short)  # warm
    count = turns // short
    before, long, after = sessions(count, short), sessions(1, turns), sessions(count, short)
    least, shortest = sessions(1, 0), sessions(count, 0)  # what a session takes beside its turns

    def bytes_a_turn(part: str, one: Sessions, none: Sessions) -> float:
        return float((getattr(one, part) - getattr(none, part)) / turns)

    return {
        "seconds": time.perf_counter() - begin, "n": turns,
        "short_ms": before.wall * 1000, "long_ms": long.wall * 1000, "again_ms": after.wall * 1000,
        "short_cpu_ms": before.cpu * 1000, "long_cpu_ms": long.cpu * 1000, "again_cpu_ms": after.cpu * 1000,
        "store_short": bytes_a_turn("store", before, shortest),
        "store_long": bytes_a_turn("store", long, least),
        "file_short": bytes_a_turn("file", before, shortest), "file_long": bytes_a_turn("file", long, least),
        "writing_long_ms": long.writing * 1000,
    }  # fmt: skip


class Laps:
    """Wall and processor time between the first and the last of a row of moments."""

    def __init__(self) -> None:
        self.first = self.last = (0.0, 0.0)
        self.number = 0

    def __call__(self, number: int) -> None:
        """Note a moment."""
        self.last = (time.perf_counter(), time.process_time())
        if not self.number:
            self.first = self.last
        self.number += 1

    def between(self) -> tuple[float, float]:
        """The times."""
        return self.last[0] - self.first[0], self.last[1] - self.first[1]


async def _sessions(folder: Path, count: int, turns: int, by_request: bool) -> Sessions:
    """Sessions of so many turns, and one request or turn more, with which the clock is started."""
    from detent.flows.coding.sessions.writer import write_session

    write_notes(folder)
    wall = cpu = writing = 0.0
    laps = Laps()
    model = ReadingModel(turns, by_request=by_request, seen=lambda number: laps(number))
    async with flowing(model, folder, folder) as desk:
        writer = desk.flow.writer
        assert writer is not None
        for _ in range(count):
            laps, session = Laps(), None
            for number in range(turns + 1 if by_request else 1):
                result = await desk.ask(f"Go on with part {number}.", session=session)
                require(result.done, f"a request ended as {result.outcome}: {result.reason}")
                session = result.session_id
            require(laps.number == turns + 1, f"{laps.number} replies were given")
            seconds = laps.between()
            wall, cpu = wall + seconds[0], cpu + seconds[1]
            await writer.flush()
        if count == 1:
            begin = time.perf_counter()
            await write_session(desk.engine.store, str(result.session_id), result.run_id, writer.folder)
            writing = time.perf_counter() - begin
    files = sum(file.stat().st_size for file in (folder / "sessions").glob("*.json"))
    number = max(1, count * turns)
    return Sessions(wall / number, cpu / number, stored_bytes(str(folder / "store.db")), files, writing)


PARTS: dict[str, Workload] = {
    "transitions": run_transitions, "disturbed": run_disturbed, "response": run_response,
    "compatibility": run_compatibility, "memory": run_memory, "flat": run_flat,
}  # fmt: skip

if __name__ == "__main__":
    main(PARTS)
