"""Detent's half of the benchmarks, speaking the same script protocol as every peer."""

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

from benchmarks.protocol import (
    STATES,
    Marks,
    Param,
    Result,
    count_rows,
    database,
    grown,
    main,
    require,
    require_full_sync,
    succ,
)
from benchmarks.start import help_time, import_time

END = "done"


def cycle_flow(work: Any, name: str = "cycle") -> Any:
    """The four-state cycle with a way out of its last state, every step done by `work`."""
    from detent import Flow, Machine, Status

    moves = {state: [succ(state)] for state in STATES}
    moves[STATES[-1]] = [STATES[0], END]
    machine = Machine(name, start=STATES[0], moves=moves, ends={END: Status.SUCCEEDED})
    return Flow(machine, dict.fromkeys(STATES, work))


def line_flow(steps: int, work: Any) -> Any:
    """A line of steps, every one done by `work`."""
    from detent import Flow, Machine, Status

    states = [f"step{number}" for number in range(steps)]
    moves = {state: [following] for state, following in zip(states, [*states[1:], END], strict=True)}
    return Flow(
        Machine("line", start=states[0], moves=moves, ends={END: Status.SUCCEEDED}),
        dict.fromkeys(states, work),
    )


def check_store(path: str, entries: int) -> None:
    """Stop unless the file is in WAL mode and holds as many committed entries as it must."""
    connection = sqlite3.connect(path)
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    require(mode == "wal", f"journal_mode is {mode}")
    require(count_rows(path, "entries") == entries, "entries are missing")


async def check_sync(store: Any) -> None:
    """Stop unless the store's own connections are at full sync."""
    facts = await store.facts()
    require_full_sync("wal", {"full": 2, "extra": 3}.get(facts["synchronous"], 0))


def run_object(param: Param) -> Result:
    """Walk the cycle with the bare object: every move validated and recorded with its time."""
    from detent import Machine, Status
    from detent.machines import InvalidTransitionError, StateMachine

    moves = {state: [succ(state), END] for state in STATES}
    machine = StateMachine(Machine("cycle", start=STATES[0], moves=moves, ends={END: Status.SUCCEEDED}))
    targets = [STATES[(index + 1) % len(STATES)] for index in range(param["steps"])]
    begin = time.perf_counter()
    for target in targets:
        machine.transition(target)
    seconds = time.perf_counter() - begin
    require(len(machine.history) == param["steps"], "moves were not recorded")
    try:
        machine.transition(machine.current_state)
    except InvalidTransitionError:
        return {"seconds": seconds, "n": param["steps"]}
    raise SystemExit("an illegal move was accepted")


def run_engine(param: Param) -> Result:
    """Take steps around the cycle in one run of the whole engine: driver, journal in memory, an observer."""
    from detent import Engine, Outcome
    from detent.stores import MemoryStore

    steps = param["steps"]

    class Count:
        moves = 0

        def on_entry(self, run_id: str, flow: str, entry: Any) -> None:
            self.moves += entry.kind == "moved"

    def plain(ctx: Any) -> Any:
        taken = ctx.data["taken"] + 1
        state = END if taken == steps else succ(ctx.state)
        return Outcome(state, set={"taken": taken, "at": time.time()})

    async def work(ctx: Any) -> Any:
        taken = ctx.data["taken"] + 1
        state = END if taken == steps else succ(ctx.state)
        return Outcome(state, set={"taken": taken, "at": time.time()})

    async def everything() -> float:
        seen = Count()
        flow = cycle_flow(plain if param.get("plain") else work)
        async with Engine(MemoryStore(), [flow], observers=[seen]) as engine:
            begin = time.perf_counter()
            run = await engine.run("cycle", {"taken": 0})
            seconds = time.perf_counter() - begin
            require(run.steps == steps and seen.moves == steps, "steps are missing")
            return seconds

    return {"seconds": asyncio.run(everything()), "n": steps}


def run_durable(param: Param) -> Result:
    """Take runs one after another on SQLite at full sync."""
    from detent import Engine, Outcome
    from detent.stores import SQLiteStore

    path, runs, steps = database(param), param["runs"], param["steps"]

    async def work(ctx: Any) -> Any:
        return Outcome(set={"at": time.time()})

    async def everything() -> float:
        store = SQLiteStore(path)
        async with Engine(store, [line_flow(steps, work)]) as engine:
            await check_sync(store)
            begin = time.perf_counter()
            for _ in range(runs):
                await engine.run("line")
            return time.perf_counter() - begin

    seconds = asyncio.run(everything())
    check_store(path, runs * (steps + 1))
    return {"seconds": seconds, "n": runs * steps}


def run_fanout(param: Param) -> Result:
    """Take concurrent runs whose steps each wait, at full sync."""
    from detent import Engine, Outcome
    from detent.stores import SQLiteStore

    path, runs, steps = database(param), param["runs"], param["steps"]

    async def work(ctx: Any) -> Any:
        await asyncio.sleep(param["wait"])
        return Outcome(set={"at": time.time()})

    async def everything() -> float:
        store = SQLiteStore(path)
        async with Engine(store, [line_flow(steps, work)], concurrency=runs) as engine:
            await check_sync(store)
            begin = time.perf_counter()
            await asyncio.gather(*(engine.run("line") for _ in range(runs)))
            return time.perf_counter() - begin

    seconds = asyncio.run(everything())
    check_store(path, runs * (steps + 1))
    return {"seconds": seconds, "n": runs * steps}


def run_growth(param: Param) -> Result:
    """Take one run whose data grows at every step, at full sync."""
    from detent import Engine, Outcome
    from detent.stores import SQLiteStore

    path, steps, marks = database(param), param["steps"], Marks()
    body = "x" * param["bytes"]

    async def work(ctx: Any) -> Any:
        marks.mark()
        taken = ctx.data["taken"] + 1
        state = END if taken == steps else succ(ctx.state)
        return Outcome(state, set={"taken": taken}, append={"log": [body]})

    async def everything() -> float:
        # The cycle's last state alone may end, so the number of steps is a multiple of four.
        async with Engine(SQLiteStore(path), [cycle_flow(work)]) as engine:
            begin = time.perf_counter()
            run = await engine.run("cycle", {"taken": 0})
            seconds = time.perf_counter() - begin
            require(len(run.data["log"]) == steps, "data is missing")
            return seconds

    return grown(asyncio.run(everything()), path, marks, param)


def run_resume(param: Param) -> Result:
    """Resume a run with a long journal of growing data, from a store opened afresh, up to its next step."""
    from detent import Engine, Outcome
    from detent.stores import SQLiteStore

    path, entries = database(param), param["entries"]
    reached = asyncio.Event()

    async def work(ctx: Any) -> Any:
        if ctx.data["taken"] >= entries - 2:
            reached.set()
            await asyncio.sleep(3600)
        return Outcome(succ(ctx.state), set={"taken": ctx.data["taken"] + 1}, append={"log": ["x" * 200]})

    async def fill() -> str:
        store = SQLiteStore(path, sync="normal")
        engine = Engine(store, [cycle_flow(work)])
        await engine.open()
        run_id = await engine.start("cycle", {"taken": 0})
        await reached.wait()
        await engine.stop(grace=0)
        return run_id

    async def resume(run_id: str) -> float:
        reached.clear()
        engine = Engine(SQLiteStore(path), [cycle_flow(work)])
        await engine.open()
        begin = time.perf_counter()
        await engine.resume(run_id)
        await reached.wait()
        seconds = time.perf_counter() - begin
        await engine.stop(grace=0)
        return seconds

    async def everything() -> float:
        return await resume(await fill())

    return {"seconds": asyncio.run(everything()), "n": entries}


def run_scale(param: Param) -> Result:
    """Ask a store of many runs what people ask: the list, its last page, one run, a flow's metrics."""
    from detent import Engine, Outcome
    from detent.engine.journal_reader import read
    from detent.engine.ports import RunQuery
    from detent.insight.metrics import flow_metrics
    from detent.stores import SQLiteStore

    path, runs, entries = database(param), param["runs"], param["entries"]
    steps = entries // runs - 1

    async def work(ctx: Any) -> Any:
        return Outcome(set={"at": time.time()})

    async def fill() -> None:
        store = SQLiteStore(path, sync="normal")
        async with Engine(store, [line_flow(steps, work)], concurrency=500) as engine:
            for first in range(0, runs, 5000):
                await asyncio.gather(*(engine.run("line") for _ in range(first, min(runs, first + 5000))))

    async def ask() -> Result:
        store = SQLiteStore(path)
        await store.open()
        answers: dict[str, float] = {}

        async def timed(name: str, question: Any) -> Any:
            begin = time.perf_counter()
            answer = await question
            answers[name] = time.perf_counter() - begin
            return answer

        page = await timed("list", store.rows(RunQuery(limit=50)))
        await timed("last_page", store.rows(RunQuery(flow="line", before=51, limit=50)))

        async def show() -> int:
            return len([entry async for entry in read(store, page.rows[25].id)])

        require(await timed("show", show()) == steps + 1, "entries are missing")

        async def metrics() -> Any:
            return flow_metrics(await store.edges("line"))

        await timed("metrics", metrics())
        await store.close()
        return {"seconds": sum(answers.values()), "n": runs, **answers}

    asyncio.run(fill())
    result = asyncio.run(ask())
    result["bytes"] = Path(path).stat().st_size
    return result


def run_start(param: Param) -> Result:
    """Measure ``import detent``."""
    return import_time("detent", param["times"])


def run_help(param: Param) -> Result:
    """Measure ``python -m detent --help``."""
    return help_time("detent", param["times"])


if __name__ == "__main__":
    main(
        {
            "object": run_object,
            "engine": run_engine,
            "durable": run_durable,
            "fanout": run_fanout,
            "growth": run_growth,
            "resume": run_resume,
            "scale": run_scale,
            "start": run_start,
            "help": run_help,
        }
    )
