"""The floors: one full-sync SQLite insert per step, and sleeping or asking with nothing stored."""

import asyncio
import json
import sqlite3
import time

from benchmarks.protocol import (
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
)

INSERT = "INSERT INTO step (run, seq, body) VALUES (?, ?, ?)"


def open_store(path: str) -> sqlite3.Connection:
    """Open a fresh database with one table of steps, at full sync."""
    connection = sqlite3.connect(path, isolation_level=None)
    full_sync(connection)
    connection.execute("CREATE TABLE step (run INTEGER, seq INTEGER, body BLOB, PRIMARY KEY (run, seq))")
    check_full_sync(connection)
    return connection


def run_durable(param: Param) -> Result:
    """Insert one row per step, each in a transaction of its own."""
    path, runs, steps = database(param), param["runs"], param["steps"]
    connection = open_store(path)
    body = b"x" * 100
    begin = time.perf_counter()
    for run in range(runs):
        for seq in range(steps):
            connection.execute(INSERT, (run, seq, body))
    seconds = time.perf_counter() - begin
    connection.close()
    require(count_rows(path, "step") == runs * steps, "rows are missing")
    return {"seconds": seconds, "n": runs * steps}


def run_fanout(param: Param) -> Result:
    """Sleep as all runs would, concurrently, storing nothing."""

    async def one() -> None:
        for _ in range(param["steps"]):
            await asyncio.sleep(param["wait"])

    async def everything() -> float:
        begin = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(param["runs"])))
        return time.perf_counter() - begin

    return {"seconds": asyncio.run(everything()), "n": param["runs"] * param["steps"]}


def run_growth(param: Param) -> Result:
    """Insert only what each step adds, one transaction per step."""
    path, marks, body = database(param), Marks(), b"x" * param["bytes"]
    connection = open_store(path)
    begin = time.perf_counter()
    for seq in range(param["steps"]):
        marks.mark()
        connection.execute(INSERT, (0, seq, body))
    seconds = time.perf_counter() - begin
    connection.close()
    return grown(seconds, path, marks, param)


def run_agent(param: Param) -> Result:
    """Ask and take the answer as it is; `recorded` inserts it as one row, in a transaction of its own."""
    path, recorded = database(param), bool(param.get("recorded"))
    connection = open_store(path) if recorded else None

    async def execute(run: int) -> None:
        answer = await asked(param["wait"])
        if connection is not None:
            connection.execute(INSERT, (run, 0, json.dumps(answer)))

    result = asyncio.run(agent_steps(execute, param))
    if connection is not None:
        connection.close()
        require(count_rows(path, "step") == param["runs"] + 1, "rows are missing")
    return result


if __name__ == "__main__":
    main({"durable": run_durable, "fanout": run_fanout, "growth": run_growth, "agent": run_agent})
