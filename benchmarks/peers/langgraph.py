"""The peer ``langgraph`` with its SQLite checkpointer at full sync and ``durability="sync"``."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from operator import add
from typing import Annotated, Any, TypedDict

import aiosqlite
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from benchmarks.protocol import (
    ANSWER,
    INTENT,
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


class Data(TypedDict):
    """What a run carries: how many steps it took."""

    step: int


class Log(TypedDict):
    """What a growing run carries: its step count and an ever longer log."""

    step: int
    log: Annotated[list[str], add]


def extend(log: list[str], batches: list[list[str]]) -> list[str]:
    """Append batches of new lines to the log, as the delta channel wants it."""
    return [*log, *(line for batch in batches for line in batch)]


class DeltaLog(TypedDict):
    """The growing run again, storing only what each step adds (a beta feature of the peer)."""

    step: int
    log: Annotated[list[str], DeltaChannel(extend)]


def cycle(schema: type, node: Callable[[Any], Any], limit: int) -> StateGraph:
    """Build the four-state cycle that ends after a number of steps."""
    graph = StateGraph(schema)
    graph.add_edge(START, STATES[0])
    for name in STATES:
        target = succ(name)
        graph.add_node(name, node)
        graph.add_conditional_edges(
            name, lambda data, target=target: END if data["step"] >= limit else target, [target, END]
        )
    return graph


def config(run: int, steps: int) -> dict[str, Any]:
    """Return the configuration of one run."""
    return {"configurable": {"thread_id": str(run)}, "recursion_limit": steps + 2}


def run_engine(param: Param) -> Result:
    """Take all steps in one run, with or without checkpoints in memory."""
    steps = param["steps"]
    history: list[tuple[int, float]] = []

    def node(data: Data) -> Data:
        history.append((data["step"], time.time()))
        return {"step": data["step"] + 1}

    saver = InMemorySaver() if param.get("saver") else None
    graph = cycle(Data, node, steps).compile(checkpointer=saver)
    begin = time.perf_counter()
    done = graph.invoke({"step": 0}, config(0, steps))
    seconds = time.perf_counter() - begin
    require(done["step"] == steps == len(history), f"{done['step']} steps ran")
    return {"seconds": seconds, "n": steps}


def run_durable(param: Param) -> Result:
    """Take the runs one after another, every step checkpointed before the next begins."""
    path, runs, steps = database(param), param["runs"], param["steps"]
    connection = sqlite3.connect(path, check_same_thread=False)
    full_sync(connection)
    graph = cycle(Data, lambda data: {"step": data["step"] + 1}, steps).compile(SqliteSaver(connection))
    begin = time.perf_counter()
    for run in range(runs):
        graph.invoke({"step": 0}, config(run, steps), durability="sync")
    seconds = time.perf_counter() - begin
    check_full_sync(connection)
    connection.close()
    require(count_rows(path, "checkpoints") >= runs * steps, "checkpoints are missing")
    return {"seconds": seconds, "n": runs * steps}


async def set_fully(connection: aiosqlite.Connection) -> None:
    """Switch a connection to WAL and full sync."""
    await connection.execute("PRAGMA journal_mode=WAL")
    await connection.execute("PRAGMA synchronous=FULL")


async def check_fully(connection: aiosqlite.Connection) -> None:
    """Stop unless the connection is still so."""
    (mode,) = await (await connection.execute("PRAGMA journal_mode")).fetchone()
    (level,) = await (await connection.execute("PRAGMA synchronous")).fetchone()
    require_full_sync(mode, level)


async def fan_out(param: Param) -> float:
    """Take all runs concurrently through the asynchronous saver."""
    path, runs, steps = database(param), param["runs"], param["steps"]

    async def node(data: Data) -> Data:
        await asyncio.sleep(param["wait"])
        return {"step": data["step"] + 1}

    async with aiosqlite.connect(path) as connection:
        await set_fully(connection)
        graph = cycle(Data, node, steps).compile(AsyncSqliteSaver(connection))
        begin = time.perf_counter()
        ended = await asyncio.gather(
            *(graph.ainvoke({"step": 0}, config(run, steps), durability="sync") for run in range(runs))
        )
        seconds = time.perf_counter() - begin
        await check_fully(connection)
    require(all(data["step"] == steps for data in ended), "a run ended early")
    require(count_rows(path, "checkpoints") >= runs * steps, "checkpoints are missing")
    return seconds


def run_fanout(param: Param) -> Result:
    """Take all runs concurrently, every step checkpointed before the next begins."""
    return {"seconds": asyncio.run(fan_out(param)), "n": param["runs"] * param["steps"]}


def run_growth(param: Param) -> Result:
    """Take one long run whose log grows by one line a step."""
    path, steps, marks = database(param), param["steps"], Marks()
    line = "x" * param["bytes"]

    def node(data: Any) -> dict[str, Any]:
        marks.mark()
        return {"step": data["step"] + 1, "log": [line]}

    connection = sqlite3.connect(path, check_same_thread=False)
    full_sync(connection)
    graph = cycle(DeltaLog if param.get("delta") else Log, node, steps).compile(SqliteSaver(connection))
    begin = time.perf_counter()
    done = graph.invoke({"step": 0, "log": []}, config(0, steps), durability="sync")
    seconds = time.perf_counter() - begin
    check_full_sync(connection)
    saved = graph.get_state(config(0, steps)).values["log"]
    connection.close()
    require(len(saved) == len(done["log"]) == steps, "the stored log is incomplete")
    return grown(seconds, path, marks, param)


class Form(BaseModel):
    """What the agent step states."""

    kind: str
    urgent: bool


class Stand(BaseChatModel):
    """A chat model that calls the one tool it has, after a while."""

    wait: float

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        """Take the form as a tool, as real models do."""
        return self.bind(tools=tools)

    def _generate(self, *args: Any, **more: Any) -> ChatResult:
        raise NotImplementedError("it is asked asynchronously only")

    async def _agenerate(self, *args: Any, **more: Any) -> ChatResult:
        call = {"name": Form.__name__, "args": await asked(self.wait), "id": "1"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])


class Mail(TypedDict, total=False):
    """What a run with an agent step carries."""

    text: str
    kind: str
    urgent: bool


async def ask_agents(param: Param) -> Result:
    """Have a node ask for a structured answer, checkpointed before the run goes on."""
    model = Stand(wait=param["wait"]).with_structured_output(Form)

    async def triage(mail: Mail) -> Mail:
        form = await model.ainvoke([("system", INTENT), ("human", mail["text"])])
        return {"kind": form.kind, "urgent": form.urgent}

    graph = StateGraph(Mail)
    graph.add_node("triage", triage)
    graph.add_edge(START, "triage")
    graph.add_edge("triage", END)
    path = database(param)
    async with aiosqlite.connect(path) as connection:
        await set_fully(connection)
        compiled = graph.compile(AsyncSqliteSaver(connection))

        async def execute(run: int) -> None:
            done = await compiled.ainvoke({"text": MESSAGE}, config(run, 1), durability="sync")
            require(done["kind"] == ANSWER["kind"], "a run ended without its answer")

        result = await agent_steps(execute, param)
        await check_fully(connection)
    require(count_rows(path, "checkpoints") >= param["runs"] + 1, "checkpoints are missing")
    return result


def run_agent(param: Param) -> Result:
    """Have the agent step performed by a node that asks a chat model."""
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
