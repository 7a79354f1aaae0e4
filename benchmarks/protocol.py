"""The script protocol every contestant speaks: ``WORKLOAD --param JSON`` in, one JSON line out."""

import argparse
import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Param = dict[str, Any]
Result = dict[str, Any]
Workload = Callable[[Param], Result]

STATES = ("draft", "review", "approve", "publish")
"""The four states of the cycle that every workload walks around."""

INTENT = "Say of what kind the message is and whether it is urgent."
"""What the agent step of the dispatch workloads is for."""

MESSAGE = "The oven of flat 12 is broken again!"
"""What it works on."""

ANSWER = {"kind": "fault", "urgent": True}
"""What the stand-in for a model answers, always."""


def main(workloads: dict[str, Workload]) -> None:
    """Run the workload named on the command line and print its result as one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("--param", type=json.loads, default={})
    options = parser.parse_args()
    workload = workloads.get(options.workload)
    if workload is None:
        raise SystemExit(f"no workload {options.workload!r}")
    print(json.dumps(workload(options.param)), flush=True)


def succ(state: str) -> str:
    """Return the state that follows on the cycle."""
    return STATES[(STATES.index(state) + 1) % len(STATES)]


def require(condition: bool, complaint: str) -> None:
    """Stop the contestant with one sentence when a claim about its run does not hold."""
    if not condition:
        raise SystemExit(complaint)


def require_full_sync(journal_mode: str, synchronous: int) -> None:
    """Stop unless the connection that was used reports WAL and full sync."""
    require(journal_mode.lower() == "wal", f"journal_mode is {journal_mode}, not wal")
    require(synchronous >= 2, f"synchronous is {synchronous}, not 2 (FULL)")


def full_sync(connection: sqlite3.Connection) -> None:
    """Switch a connection to WAL and full sync."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def check_full_sync(connection: sqlite3.Connection) -> None:
    """Stop unless this connection reports WAL and full sync."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    require_full_sync(mode, level)


def database(param: Param) -> str:
    """Return the path of the fresh database file of this execution."""
    return str(Path(param["folder"]) / "store.db")


def count_rows(path: str, table: str, where: str = "1") -> int:
    """Count the rows of a table through a second connection, so only committed rows are seen."""
    connection = sqlite3.connect(path)
    try:
        (rows,) = connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()
        return int(rows)
    finally:
        connection.close()


def stored_bytes(path: str) -> int:
    """Return the size of a database on disk once its write-ahead log is folded in."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return sum(part.stat().st_size for part in Path(path).parent.glob(Path(path).name + "*"))


class Marks:
    """The instants at which the steps of the growth workload began."""

    def __init__(self) -> None:
        """Begin with nothing noted."""
        self.at: list[float] = []

    def mark(self) -> None:
        """Note that a step begins now."""
        self.at.append(time.perf_counter())

    def last_over_first(self) -> float:
        """Return the time of the last tenth of the steps over the time of the first tenth."""
        tenth = len(self.at) // 10
        return (self.at[-1] - self.at[-1 - tenth]) / (self.at[tenth] - self.at[0])


def grown(seconds: float, path: str, marks: Marks, param: Param) -> Result:
    """Build the result of the growth workload from what was measured."""
    steps = param["steps"]
    require(len(marks.at) == steps, f"{len(marks.at)} steps ran, not {steps}")
    size = stored_bytes(path)
    return {
        "seconds": seconds,
        "n": steps,
        "bytes": size,
        "overhead": size / steps - param["bytes"],
        "last_over_first": marks.last_over_first(),
    }


async def asked(wait: float) -> dict[str, Any]:
    """Answer as a model would, after a while."""
    await asyncio.sleep(wait)
    return dict(ANSWER)


async def agent_steps(execute: Callable[[int], Awaitable[Any]], param: Param) -> Result:
    """Time executions of an agent step, one after another or all at once; one before them warms up."""
    runs, wait, together = param["runs"], param["wait"], bool(param.get("together"))
    await execute(0)
    memory = peak_memory()
    begin = time.perf_counter()
    if together:
        await asyncio.gather(*(execute(run) for run in range(1, runs + 1)))
    else:
        for run in range(1, runs + 1):
            await execute(run)
    seconds = time.perf_counter() - begin
    result = {"seconds": seconds, "n": runs, "over_ms": (seconds / (1 if together else runs) - wait) * 1000}
    if memory is not None:
        result["memory"] = (peak_memory() or memory) - memory
    return result


def peak_memory() -> int | None:
    """Return the most bytes this process ever held, where the system says so."""
    try:
        import resource
    except ImportError:
        return None
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024
