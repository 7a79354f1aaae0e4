"""The agent workload: a step with one query and one effect, by a model over HTTP, by code, and bare."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.model_server import DEVICE, EFFECT, FACTS, QUERY
from benchmarks.ours import END, check_sync
from benchmarks.protocol import Param, Result, check_full_sync, database, full_sync, main, require

COUNTED = 5
"""Visits whose commits are counted."""
INTENT = "Find out which part a device needs, and order one."


@dataclass
class Order:
    """What the step states."""

    part: str
    quantity: int


class Desk:
    """The two tools, and how often each was called."""

    def __init__(self) -> None:
        """Begin with nothing called."""
        self.looked = self.ordered = 0

    def part(self, device: str) -> dict[str, Any]:
        """Find the part a device needs."""
        self.looked += 1
        return {"part": FACTS["part"], "for": device}

    def order(self, part: str, quantity: int) -> dict[str, Any]:
        """Order parts."""
        self.ordered += 1
        return {"part": part, "quantity": quantity}


def order_flow(desk: Desk) -> Any:
    """One step that looks the part up and orders it, and the end."""
    from detent import Flow, Machine, Status, Step, query, tool

    async def order(ctx: Any) -> Order:
        found = await ctx.query(QUERY, device=ctx.data["device"])
        ctx.propose(EFFECT, part=found["part"], quantity=1)
        return Order(found["part"], 1)

    machine = Machine("orders", start="order", moves={"order": [END]}, ends={END: Status.SUCCEEDED})
    step = Step(
        "order", order, INTENT, inputs=("device",), output_schema=Order, queries=(QUERY,), effects=(EFFECT,)
    )
    return Flow(machine, {"order": step}, tools=[query(QUERY)(desk.part), tool(EFFECT)(desk.order)])


Visit = Callable[[], Awaitable[None]]
Visits = Callable[[str], AbstractAsyncContextManager[Visit]]
"""Opens whatever performs visits, given the address of the model server."""


def measured(visits: Visits, desk: Desk, param: Param, others: int = 0) -> Result:
    """Time visits one after another, less what the model took for its replies.

    One visit before them warms up, and five after them are looked at for their commits, of which `others`
    belong to no visit.
    """
    path, runs = database(param), param["runs"]

    async def everything(url: str) -> tuple[float, float]:
        async with visits(url) as visit:
            await visit()
            begin = time.perf_counter()
            for _ in range(runs):
                await visit()
            seconds, counts = time.perf_counter() - begin, [commits(path)]
            for _ in range(COUNTED):
                await visit()
                counts.append(commits(path))
            # The median: a checkpoint in between begins the log anew.
            return seconds, median(after - before for before, after in pairwise(counts)) - others

    command = [sys.executable, "-m", "benchmarks.model_server", str(param["wait"])]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        seconds, committed = asyncio.run(everything(f"http://127.0.0.1:{int(server.stdout.readline())}/v1"))
    finally:
        model = json.loads(server.communicate()[0] or "{}")
    visited = 1 + runs + COUNTED
    require(desk.ordered == visited, f"{desk.ordered} orders were made")
    asked, spent = model["replies"] / visited, model["seconds"] / visited
    over = (seconds / runs - spent) * 1000
    return {"seconds": seconds, "n": runs, "over_ms": over, "asked": asked, "commits": committed}


def commits(path: str) -> int:
    """Count the commits in the write-ahead log of a database: its frames that end a transaction."""
    log = Path(path + "-wal").read_bytes()
    page, salts = int.from_bytes(log[8:12], "big"), log[16:24]
    frames = (log[at : at + 24] for at in range(32, len(log) - page - 23, page + 24))
    return sum(frame[8:16] == salts and any(frame[4:8]) for frame in frames)


# -- the bare loop ------------------------------------------------------------------------------------------


def run_bare(param: Param) -> Result:
    """Ask the model, do what it calls for, and commit a row before the effect and one after it."""
    desk = Desk()
    functions: dict[str, Callable[..., Any]] = {QUERY: desk.part, EFFECT: desk.order}
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in functions]

    @asynccontextmanager
    async def visits(url: str) -> AsyncIterator[Visit]:
        import httpx2

        connection = sqlite3.connect(database(param), isolation_level=None)
        full_sync(connection)
        connection.execute("CREATE TABLE step (seq INTEGER PRIMARY KEY, body TEXT)")
        check_full_sync(connection)

        def commit(body: Any) -> None:
            connection.execute("INSERT INTO step (body) VALUES (?)", (json.dumps(body),))

        async def visit() -> None:
            messages: list[Any] = [{"role": "user", "content": f"{INTENT} {json.dumps(DEVICE)}"}]
            name = result = None
            while name != EFFECT:
                body = {"model": "scripted", "messages": messages, "tools": tools}
                response = await client.post(f"{url}/chat/completions", json=body)
                message = response.json()["choices"][0]["message"]
                (call,) = message["tool_calls"]
                name = call["function"]["name"]
                if name == EFFECT:
                    commit([*messages, message])
                result = functions[name](**json.loads(call["function"]["arguments"]))
                said = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
                messages += [message, said]
            commit(result)

        async with httpx2.AsyncClient() as client:
            yield visit
        connection.close()

    return measured(visits, desk, param)


# -- Detent -------------------------------------------------------------------------------------------------


def run_detent(param: Param) -> Result:
    """Run the flow on SQLite at full sync; with a level, the step is the agent's."""
    from detent.kernel.entries import Moved
    from detent.runtime.settings import Settings
    from detent.runtime.wiring import engine_for

    desk, level = Desk(), param.get("level")

    @asynccontextmanager
    async def visits(url: str) -> AsyncIterator[Visit]:
        model = {"kind": "vllm", "base_url": url, "model_id": "scripted", "native_tools": True}
        values: dict[str, Any] = {"store": database(param), "models": {"near": model}}
        if level is not None:
            values["steps"] = {"order": {"mode": "agent", "autonomy": level, "max_retries": 0}}
        visited: list[str] = []
        performers: set[str] = set()

        async def visit() -> None:
            run = await engine.run("orders", dict(DEVICE))
            require(run.data["part"] == FACTS["part"], "a run ended without its facts")
            visited.append(run.id)

        async with engine_for(Settings(Path(param["folder"]), values=values), [order_flow(desk)]) as engine:
            await check_sync(engine.store)
            yield visit
            for run_id in visited:
                bodies = [entry.body for entry in await engine.store.entries(run_id)]
                performers.update(body.by for body in bodies if isinstance(body, Moved))
        require(performers == {"handler" if level is None else "agent"}, f"performed by {performers}")

    return measured(visits, desk, param, others=1)  # the commit that starts the run


if __name__ == "__main__":
    main({"agent": lambda param: (run_bare if param.get("bare") else run_detent)(param)})
