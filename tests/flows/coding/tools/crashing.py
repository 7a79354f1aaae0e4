"""One change of a file, in a run whose process is killed at one exact place: `python -m … FOLDER POINT`.

Without a point it resumes the run instead, and prints its status and what it waits for.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.tools import EffectCall, Tool
from detent.flows.coding.tools.catalogue import ToolSettings
from detent.flows.coding.tools.update_file import update_file_tool
from detent.flows.coding.tools.write_file import write_file_tool
from detent.kernel.machine import Machine
from detent.kernel.status import Status

POINTS = ("before-intent", "after-intent", "half-written", "after-write")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(tool: Tool, point: str, workspace: Path) -> Tool:
    """The tool, in a process that does not survive the point."""

    async def perform(call: EffectCall, **args: Any) -> Any:
        async def begun(**facts: Any) -> None:
            if point == "before-intent":
                die()
            await call.begun(**facts)
            if point == "after-intent":
                die()
            if point == "half-written":  # what a write leaves that is killed before the name is replaced
                (workspace / args["filepath"]).with_name(".0123456789abcdef.tmp").write_bytes(b"half")
                die()

        answer = await tool.perform(call._replace(begun=begun), **args)
        die()
        return answer

    return replace(tool, perform=perform) if point else tool


def flow(folder: Path, point: str) -> Flow:
    workspace = folder / "ws"
    tools = [
        killed_at(make(ToolSettings()), point, workspace) for make in (write_file_tool, update_file_tool)
    ]

    def work(ctx: Any) -> Outcome:
        calls = json.loads((folder / "calls.json").read_text())
        effects = [Effect(tool, {"workspace": str(workspace), **args}) for tool, args in calls]
        return Outcome("done", effects=effects)

    machine = Machine(name="edit", start="work", moves={"work": ["done"]}, ends={"done": Status.SUCCEEDED})
    return Flow(machine, {"work": work}, tools=tools)


async def main(folder: Path, point: str) -> None:
    async with Engine(SQLiteStore(folder / "runs.db"), [flow(folder, point)]) as engine:
        if point:
            await engine.run("edit", {}, run_id="r")
            return
        await engine.resume("r")
        run = await engine.finish("r", patience=20)
        holds = [hold.question for hold in run.holds.values()]
        receipts = list(run.settled.values())
        print(json.dumps({"status": run.status.value, "holds": holds, "receipts": receipts}, default=str))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
