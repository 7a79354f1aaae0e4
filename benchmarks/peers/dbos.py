"""The peer ``dbos`` on SQLite, with its database switched to WAL and full sync kept."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from dbos import DBOS, SetWorkflowID

from benchmarks.protocol import (
    Marks,
    Param,
    Result,
    count_rows,
    database,
    grown,
    main,
    require,
    require_full_sync,
)

TABLE = "operation_outputs"
FEW = 2
"""Executor threads for the fan-out: measured faster on SQLite than the default of no limit."""


@contextmanager
def launched(path: str, **settings: Any) -> Iterator[None]:
    """Launch the engine on a database in WAL, and check the connections it uses."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    config = {"name": "bench", "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"}
    engine = DBOS(config={**config, **settings})
    DBOS.launch()
    try:
        yield
        with engine._sys_db.engine.connect() as used:
            mode = used.execute(sqlalchemy.text("PRAGMA journal_mode")).scalar()
            level = used.execute(sqlalchemy.text("PRAGMA synchronous")).scalar()
        require_full_sync(mode, level)
    finally:
        DBOS.destroy()


@DBOS.step()
def count(step: int) -> int:
    """Count one step."""
    return step + 1


@DBOS.workflow()
def counted(steps: int) -> int:
    """Take a number of steps."""
    step = 0
    while step < steps:
        step = count(step)
    return step


@DBOS.step()
async def wait(step: int, seconds: float) -> int:
    """Count one step after waiting."""
    await asyncio.sleep(seconds)
    return step + 1


@DBOS.workflow()
async def waited(steps: int, seconds: float) -> int:
    """Take a number of waiting steps."""
    step = 0
    while step < steps:
        step = await wait(step, seconds)
    return step


MARKS = Marks()


@DBOS.step()
def line(size: int) -> str:
    """Return what this step adds to the log; the engine stores just that."""
    MARKS.mark()
    return "x" * size


@DBOS.workflow()
def logged(steps: int, size: int) -> int:
    """Take a number of steps, each adding a line to a log."""
    log: list[str] = []
    for _ in range(steps):
        log.append(line(size))
    return len(log)


def run_durable(param: Param) -> Result:
    """Take the runs one after another, every step recorded before the next begins."""
    path, runs, steps = database(param), param["runs"], param["steps"]
    with launched(path):
        begin = time.perf_counter()
        for run in range(runs):
            with SetWorkflowID(str(run)):
                counted(steps)
        seconds = time.perf_counter() - begin
    require(count_rows(path, TABLE) == runs * steps, "recorded steps are missing")
    return {"seconds": seconds, "n": runs * steps}


async def fan_out(param: Param) -> float:
    """Start all workflows and wait for all of them."""
    begin = time.perf_counter()
    handles = []
    for run in range(param["runs"]):
        with SetWorkflowID(str(run)):
            handles.append(await DBOS.start_workflow_async(waited, param["steps"], param["wait"]))
    await asyncio.gather(*(handle.get_result() for handle in handles))
    return time.perf_counter() - begin


def run_fanout(param: Param) -> Result:
    """Take all runs concurrently, every step recorded before the next begins."""
    path, total = database(param), param["runs"] * param["steps"]
    with launched(path, max_executor_threads=FEW):
        seconds = asyncio.run(fan_out(param))
    require(count_rows(path, TABLE) == total, "recorded steps are missing")
    return {"seconds": seconds, "n": total}


def run_growth(param: Param) -> Result:
    """Take one long run whose log grows by one line a step."""
    path = database(param)
    with launched(path):
        begin = time.perf_counter()
        done = logged(param["steps"], param["bytes"])
        seconds = time.perf_counter() - begin
    require(done == param["steps"], "the log is incomplete")
    return grown(seconds, path, MARKS, param)


if __name__ == "__main__":
    main({"durable": run_durable, "fanout": run_fanout, "growth": run_growth})
