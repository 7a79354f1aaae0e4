"""A process that drives a notebook run and kills itself where it is told: `python driver.py FOLDER POINT`.

POINT is a crash point such as `kill-after-commit-3`; `file:NAME` kills once a cell has written this file;
`reply:ROLE` kills while the model is about to answer for a role; `none` drives to the end. Each request to
the model adds a line to `requests.txt`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from detent.adapters.stores.sqlite import SQLiteStore
from detent.engine.engine import Engine
from detent.flows.notebook.flow import NotebookFlow
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.start import prepared, read
from detent.testing.crash import CrashPoint, CrashPoints
from tests.flows.notebook.samples import (
    DONE,
    PLAIN_PROBLEM,
    Model,
    actions,
    agents,
    answers,
    beginning,
    step_of,
)

RUN = "run"
COUNTING = (
    "from pathlib import Path\nimport time\ncount = globals().get('count', 0) + 1\nlines = ['a']",
    "count = count + 1\nlines = lines + ['b']\nPath('in_cell').touch()\n"
    "while not Path('../go').exists():\n    time.sleep(0.01)\n"
    "final_model = 2.0\nprint('counted', count, lines)",
)  # fmt: skip
"""Cells that are not idempotent; the second one waits until it may go on."""
SCORED = 'test_performance = {"rmse": 1.0, "n": 3}\nprint(count, lines)'


def written(prompt: str) -> str:
    """Two rounds of code in the first step, one in the second."""
    if step_of(prompt) == "score_mean":
        return DONE if "effects.current\n" in prompt else actions(SCORED)
    return [actions(COUNTING[0]), actions(COUNTING[1]), DONE][prompt.count("effects.current\n")]


class Watched(Model):
    """A model whose requests are written down, and that may be the last thing its process asks."""

    def __init__(self, folder: Path, last: str | None) -> None:
        super().__init__(answers(action_generator=written))
        self._folder = folder
        self._last = last

    async def execute(self, **request: Any) -> Any:
        """Note the request, and answer."""
        role = request["step_name"].rpartition("/")[2]
        with (self._folder / "requests.txt").open("a") as file:
            file.write(f"{role}\n")
        if role == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().execute(**request)


def kill_at(file: Path) -> None:
    """End this process once the file is there."""
    while not file.exists():
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)


async def drive(folder: Path, point: str) -> None:
    """Start the run, or go on with it."""
    kind, _, what = point.partition(":")
    model = Watched(folder, what if kind == "reply" else None)
    points = CrashPoints([] if kind in ("file", "reply", "none") else [CrashPoint.parse(point)])
    if kind == "file":
        threading.Thread(target=kill_at, args=(folder / "work" / what,), daemon=True).start()
    flow = NotebookFlow(NotebookSettings())
    store = points.store(SQLiteStore(folder / "runs.db"))
    async with Engine(store, [flow], dispatch=agents(model)) as engine:
        if not (folder / "started").exists():
            (folder / "started").touch()
            began = beginning(folder, PLAIN_PROBLEM)
            await engine.start(flow, prepared(began, read(began)), run_id=RUN)
        await engine.finish(RUN)


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), sys.argv[2]))
