"""Flows that tests run in processes of their own: `python -m tests.engine.worker STORE COMMAND [RUN…]`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.tools import Tool
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from tests.engine import answers

ROOT = Path(__file__).parents[2]
LONG = 4.0
"""Seconds for which a worker is busy: several leases of a test."""


def told(folder: Path) -> list[str]:
    """What the effects of these flows left behind, in order."""
    place = folder / "told"
    return place.read_text().split() if place.exists() else []


def flows(folder: Path) -> list[Flow]:
    """The flows, their effects writing lines into `folder`."""

    def tell(what: str) -> str:
        with (folder / "told").open("a") as file:
            file.write(f"{what}\n")
        return what

    def found(what: str) -> object:
        from detent.engine.tools import NOT_DONE

        return what if what in told(folder) else NOT_DONE

    tool = Tool("tell", tell, probe=found)
    slow_tool = Tool("busy", lambda what: busy(what), probe=found)

    def ask(ctx):
        if not ctx.answered():
            return Hold(question="Go on?", choices=["yes", "no"])
        return Outcome("done" if ctx.answer() == "yes" else "failed", set={"answer": ctx.answer()})

    async def slow(ctx):
        (folder / f"slow-{os.getpid()}").touch()
        while not (folder / "go").exists():
            await asyncio.sleep(0.01)
        return "done"

    def busy(what: str) -> str:
        (folder / "busy").touch()
        time.sleep(LONG if not (folder / "told").exists() else 0)
        return tell(what)

    def blocking_step(ctx):
        (folder / "busy").touch()
        time.sleep(LONG)
        return Outcome("done", effects=[Effect("tell", {"what": "once"})])

    async def blocking_loop(ctx):
        return blocking_step(ctx)

    def die(ctx):
        os.kill(os.getpid(), 9)

    async def many(ctx):
        results = await ctx.children([(f"c{n}", {"n": n}) for n in range(50)], flow="one", limit=10)
        return {"told": [child.data["told"] for child in results]}

    async def one(ctx):
        await asyncio.sleep(0.005)
        return Outcome(set={"told": ctx.propose("tell", what=f"n{ctx.data.n}")})

    def flow(name: str, handler: object) -> Flow:
        machine: Machine[str] = Machine(
            name,
            start="work",
            moves={"work": ["done", "failed"]},
            ends={"done": Status.SUCCEEDED, "failed": Status.FAILED},
        )
        return Flow(machine, {"work": handler}, tools=[tool, slow_tool])  # type: ignore[dict-item]

    return [
        flow("ask", ask),
        flow("slow", slow),
        flow("die", die),
        flow("many", many),
        flow("one", one),
        flow("blocking-tool", lambda ctx: Outcome("done", effects=[Effect("busy", {"what": "once"})])),
        flow("blocking-step", blocking_step),
        flow("blocking-loop", blocking_loop),
        flow("tell", lambda ctx: Outcome(effects=[Effect("tell", {"what": "once"})])),
    ]


def spawn(folder: Path, *command: str) -> subprocess.Popen[str]:
    """Run a command of this module in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.engine.worker", str(folder), *command],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def call(folder: Path, *command: str) -> str:
    """Run a command to its end and give what it printed."""
    process = spawn(folder, *command)
    text, _ = process.communicate(timeout=60)
    return text.strip()


async def _main(folder: Path, command: str, *rest: str) -> None:
    lease = float(rest[2]) if command in ("serve", "abandon") else 15.0
    if command == "abandon":
        engine = Engine(SQLiteStore(folder / "detent.db", sync="normal"), flows(folder), lease=lease)
        await engine.open()
        await engine.start(rest[0], run_id=rest[1])
        while not (folder / "busy").exists():
            await asyncio.sleep(0.01)
        await engine.stop(grace=0)
        (folder / "stopped").touch()
        while not (folder / "go").exists():  # as a web server would, without the engine
            await asyncio.sleep(0.01)
        return
    async with Engine(SQLiteStore(folder / "detent.db", sync="normal"), flows(folder), lease=lease) as engine:
        if command in ("run", "serve"):
            run = await engine.run(rest[0], run_id=rest[1])
            print(run.status.value)
        elif command == "resume":
            await engine.resume_all()
            print((await engine.finish(rest[0])).status.value)
        elif command == "release":
            await answers.release(engine, rest[0], rest[1], drive=False)
        elif command == "cancel":
            await engine.cancel(rest[0])
            print((await engine.get(rest[0])).status.value)
        else:
            raise ValueError(command)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), *sys.argv[2:]))
