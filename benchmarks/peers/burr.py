"""The peer ``apache-burr`` with its SQLite persister in WAL at full sync."""

import asyncio
import time
from typing import Any

from burr.core import ApplicationBuilder, Graph, GraphBuilder, State, action, expr
from burr.core.persistence import InMemoryPersister, SQLitePersister
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister
from pydantic import BaseModel

from benchmarks.protocol import (
    ANSWER,
    MESSAGE,
    STATES,
    Marks,
    Param,
    Result,
    agent_steps,
    asked,
    check_full_sync,
    count_rows,
    database,
    full_sync,
    grown,
    main,
    require,
    require_full_sync,
    succ,
)

TABLE = "burr_state"
HALT = {"halt_before": ["finish"]}
"""Where runs halt: before the end, so that exactly the wanted steps run and are saved."""


@action(reads=[], writes=["end"])
def finish(state: State) -> State:
    """End the run; the steps before it are the ones that count."""
    return state.update(end=True)


def cycle(step: Any, limit: int) -> Graph:
    """Build the four-state cycle that leaves for its end after a number of steps, once for all runs."""
    done = expr(f"step >= {limit}")
    return (
        GraphBuilder()
        .with_actions(finish=finish, **dict.fromkeys(STATES, step))
        .with_transitions(
            *((name, "finish", done) for name in STATES), *((name, succ(name)) for name in STATES)
        )
        .build()
    )


def application(graph: Graph, run: int, **data: Any) -> ApplicationBuilder:
    """Begin to build one run of the graph."""
    builder = ApplicationBuilder().with_graph(graph).with_entrypoint(STATES[0])
    return builder.with_identifiers(app_id=str(run)).with_state(step=0, **data)


@action(reads=["step"], writes=["step"])
def count(state: State) -> State:
    """Count one step."""
    return state.update(step=state["step"] + 1)


def run_engine(param: Param) -> Result:
    """Take all steps in one run, with or without saving states in memory."""
    steps = param["steps"]
    history: list[tuple[int, float]] = []

    @action(reads=["step"], writes=["step"])
    def recorded(state: State) -> State:
        history.append((state["step"], time.time()))
        return state.update(step=state["step"] + 1)

    builder = application(cycle(recorded, steps), 0)
    if param.get("saver"):
        builder = builder.with_state_persister(InMemoryPersister())
    run = builder.build()
    begin = time.perf_counter()
    _, _, state = run.run(**HALT)
    seconds = time.perf_counter() - begin
    require(state["step"] == steps == len(history), f"{state['step']} steps ran")
    return {"seconds": seconds, "n": steps}


def run_durable(param: Param) -> Result:
    """Take the runs one after another, every step saved before the next begins."""
    path, runs, steps = database(param), param["runs"], param["steps"]
    persister = SQLitePersister.from_values(path)
    full_sync(persister.connection)
    persister.initialize()
    graph = cycle(count, steps)
    begin = time.perf_counter()
    for run in range(runs):
        application(graph, run).with_state_persister(persister).build().run(**HALT)
    seconds = time.perf_counter() - begin
    check_full_sync(persister.connection)
    require(count_rows(path, TABLE) == runs * steps, "saved states are missing")
    return {"seconds": seconds, "n": runs * steps}


async def open_fully(persister: AsyncSQLitePersister) -> None:
    """Make the persister's tables, in WAL and at full sync."""
    await persister.connection.execute("PRAGMA journal_mode=WAL")
    await persister.connection.execute("PRAGMA synchronous=FULL")
    await persister.initialize()


async def check_fully(persister: AsyncSQLitePersister) -> None:
    """Stop unless the persister's connection is still so."""
    (mode,) = await (await persister.connection.execute("PRAGMA journal_mode")).fetchone()
    (level,) = await (await persister.connection.execute("PRAGMA synchronous")).fetchone()
    require_full_sync(mode, level)


async def fan_out(param: Param) -> float:
    """Take all runs concurrently through one asynchronous persister."""
    path, runs, steps = database(param), param["runs"], param["steps"]

    @action(reads=["step"], writes=["step"])
    async def wait(state: State) -> State:
        await asyncio.sleep(param["wait"])
        return state.update(step=state["step"] + 1)

    async with AsyncSQLitePersister.from_values(path) as persister:
        await open_fully(persister)
        graph = cycle(wait, steps)

        async def one(run: int) -> None:
            builder = application(graph, run).with_state_persister(persister)
            await (await builder.abuild()).arun(**HALT)

        begin = time.perf_counter()
        await asyncio.gather(*(one(run) for run in range(runs)))
        seconds = time.perf_counter() - begin
        await check_fully(persister)
    require(count_rows(path, TABLE) == runs * steps, "saved states are missing")
    return seconds


def run_fanout(param: Param) -> Result:
    """Take all runs concurrently, every step saved before the next begins."""
    return {"seconds": asyncio.run(fan_out(param)), "n": param["runs"] * param["steps"]}


def run_growth(param: Param) -> Result:
    """Take one long run whose log grows by one line a step."""
    path, steps, marks = database(param), param["steps"], Marks()
    line = "x" * param["bytes"]

    @action(reads=["step", "log"], writes=["step", "log"])
    def extend(state: State) -> State:
        marks.mark()
        return state.update(step=state["step"] + 1).append(log=line)

    persister = SQLitePersister.from_values(path)
    full_sync(persister.connection)
    persister.initialize()
    run = application(cycle(extend, steps), 0, log=[]).with_state_persister(persister).build()
    begin = time.perf_counter()
    _, _, state = run.run(**HALT)
    seconds = time.perf_counter() - begin
    check_full_sync(persister.connection)
    persister.connection.close()
    require(len(state["log"]) == steps, "the log is incomplete")
    return grown(seconds, path, marks, param)


class Form(BaseModel):
    """What the agent step states."""

    kind: str
    urgent: bool


async def ask_agents(param: Param) -> Result:
    """Have an action ask and check the answer, its state saved before the run goes on."""

    @action(reads=["text"], writes=["kind", "urgent"])
    async def triage(state: State) -> State:
        return state.update(**Form.model_validate(await asked(param["wait"])).model_dump())

    graph = (
        GraphBuilder()
        .with_actions(triage=triage, finish=finish)
        .with_transitions(("triage", "finish"))
        .build()
    )
    path = database(param)
    async with AsyncSQLitePersister.from_values(path) as persister:
        await open_fully(persister)

        async def execute(run: int) -> None:
            builder = ApplicationBuilder().with_graph(graph).with_entrypoint("triage")
            builder = builder.with_identifiers(app_id=str(run)).with_state(text=MESSAGE)
            _, _, state = await (await builder.with_state_persister(persister).abuild()).arun(**HALT)
            require(state["kind"] == ANSWER["kind"], "a run ended without its answer")

        result = await agent_steps(execute, param)
        await check_fully(persister)
    require(count_rows(path, TABLE) == param["runs"] + 1, "saved states are missing")
    return result


def run_agent(param: Param) -> Result:
    """Have the agent step performed by an action that asks."""
    return asyncio.run(ask_agents(param))


if __name__ == "__main__":
    main(
        {
            "engine": run_engine,
            "durable": run_durable,
            "fanout": run_fanout,
            "growth": run_growth,
            "agent": run_agent,
        }
    )
