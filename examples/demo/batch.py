"""The demo: sixty parcels go through the first example, their worker is killed half-way, nothing is lost.

The parent only watches. A worker process does the work until the parent kills it with SIGKILL; then a second
worker resumes its runs. At the end the report is printed, and the carrier's book is compared with the
journals.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from detent import Engine, Flow, Status
from detent.engine.journal_reader import read
from detent.engine.ports import RunQuery
from detent.insight.metrics import flow_metrics
from detent.insight.timeline import render, timeline
from detent.observers import Entry
from detent.stores import SQLiteStore

PARCELS = 60
GOODS = {"lamp": 4, "book": 1, "stove": 26, "vase": 2, "chair": 6, "rug": 3, "clock": 2}


def flow() -> Flow:
    """The flow of the first example."""
    path = Path(__file__).parent.parent / "first" / "flow.py"
    spec = importlib.util.spec_from_file_location("first_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Flow = module.parcels
    return found


def pack(dice: random.Random) -> dict[str, int]:
    """A random selection of goods to send."""
    return {name: GOODS[name] for name in dice.sample(sorted(GOODS), dice.randint(1, 3))}


async def work(start: bool) -> None:
    """A worker: starts the parcels, or resumes interrupted ones, and waits until all have ended."""
    dice = random.Random(7)
    async with Engine(SQLiteStore("demo.db"), [flow()], concurrency=12) as engine:
        if start:
            runs = [
                await engine.start("parcels", {"items": pack(dice), "seconds": dice.uniform(0.1, 0.5)})
                for _ in range(PARCELS)
            ]
        else:
            runs = await engine.resume_all()
        await asyncio.gather(*(engine.finish(run) for run in runs))


class Worker:
    """A worker process."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen([sys.executable, str(Path(__file__).resolve()), "--worker", *args])

    def kill(self) -> None:
        """Kill the process without a chance to clean up."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


async def watch(store: SQLiteStore, console: Console) -> None:
    """Start a worker, kill it half-way, start another, and show the progress of the runs."""
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("parcels", total=PARCELS)
        worker, killed, said = Worker("--start"), False, -1
        while True:
            await asyncio.sleep(0.1)
            standing = Counter(row.now.status for row in (await store.rows(RunQuery(limit=PARCELS))).rows)
            ended = sum(count for status, count in standing.items() if status.is_end)
            progress.update(bar, completed=ended)
            if not console.is_terminal and ended // 15 > said // 15:
                console.print(f"  {ended:>3} of {PARCELS} parcels done")
            said = max(said, ended)
            if not killed and ended >= PARCELS // 2:
                worker.kill()
                rows = (await store.rows(RunQuery(limit=PARCELS))).rows
                left = [row for row in rows if not row.now.status.is_end]
                states = Counter(row.now.state for row in left)
                console.print(
                    f"  worker {worker.process.pid} killed with SIGKILL: {len(left)} parcels unfinished "
                    f"({', '.join(f'{count} in {state}' for state, count in sorted(states.items()))})"
                )
                worker, killed = Worker(), True
                console.print(f"  worker {worker.process.pid} resumes them")
            if killed and worker.process.poll() is not None:
                break
    if worker.process.returncode != 0:
        raise SystemExit(f"The second worker failed with exit code {worker.process.returncode}.")


async def report(store: SQLiteStore, console: Console) -> bool:
    """Print what happened, from the journals; return True if each parcel was booked exactly once."""
    rows = (await store.rows(RunQuery(limit=PARCELS))).rows
    standing = Counter(row.now.status for row in rows)
    console.print()
    console.print(flow_metrics(await store.edges("parcels")).report, highlight=False)
    taken_over: list[list[Entry]] = []
    for row in rows:
        entries = [entry async for entry in read(store, row.id)]
        if any(entry.kind == "claimed" for entry in entries):
            taken_over.append(entries)
    if taken_over:
        furthest = max(taken_over, key=lambda entries: next(e.seq for e in entries if e.kind == "claimed"))
        console.print(f"\nOne of the {len(taken_over)} runs taken over from the dead worker:")
        console.print(render(timeline(furthest)), highlight=False)
    shipped = {row.id for row in rows if row.now.status is Status.SUCCEEDED}
    bookings = Path("bookings.txt").read_text().split()
    held = sorted(bookings) == sorted(shipped) and len(rows) == PARCELS == sum(standing.values())
    console.print(
        f"\n{standing[Status.SUCCEEDED]} shipped, {standing[Status.FAILED]} refused as too heavy, "
        f"{len(rows) - sum(count for status, count in standing.items() if status.is_end)} open. "
        f"The carrier's book has {len(bookings)} bookings for {len(shipped)} shipped parcels: "
        + ("each exactly once." if held else "THE PROMISE WAS BROKEN.")
    )
    return held


async def show() -> int:
    """The whole demo, in a folder of its own."""
    console = Console(soft_wrap=True)
    console.print(f"[bold]parcels[/bold]  {PARCELS} runs of examples/first/flow.py, no model, no key\n")
    store = SQLiteStore("demo.db")
    await store.open()
    try:
        await watch(store, console)
        return 0 if await report(store, console) else 1
    finally:
        await store.close()


def main(args: Any) -> int:
    """Run as the parent, or as one of its workers."""
    if args.worker:
        asyncio.run(work(args.start))
        return 0
    with tempfile.TemporaryDirectory(prefix="detent-demo-") as folder:
        os.chdir(folder)
        try:
            return asyncio.run(show())
        finally:
            os.chdir("/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--start", action="store_true", help=argparse.SUPPRESS)
    sys.exit(main(parser.parse_args()))
