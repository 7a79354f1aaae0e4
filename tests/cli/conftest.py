"""A working folder with one flow in it, and two ways to call the program: in this process and in its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent.cli.main import run

FLOW = '''
"""Takes somebody on board; every road the commands must handle can be taken by choosing the data."""

import asyncio
from pathlib import Path

from detent import Effect, Flow, Hold, Machine, Outcome, RetryPolicy, Spend, Status, ToolError, tool


@tool("desk.send")
async def send(to: str, text: str) -> dict:
    """Send a mail; cut off in the middle when its text is `boom`."""
    with Path("sent.txt").open("a") as file:
        file.write(f"{to}: {text}\\n")
    if text == "boom":
        raise RuntimeError("connection cut")
    return {"id": f"mail to {to}"}


onboarding = Flow(
    Machine(
        "onboarding",
        start="collect",
        moves={
            "collect": ["check"],
            "check": ["approve", "welcome"],
            "approve": ["welcome", "rejected"],
            "welcome": ["done"],
        },
        ends={"done": Status.SUCCEEDED, "rejected": Status.FAILED},
    ),
    description="Takes somebody on board.",
    tools=[send],
)


@onboarding.step("collect")
async def collect(ctx):
    """Read the form."""
    while Path("wait").exists():
        Path("waiting").touch()
        await asyncio.sleep(0.01)
    await asyncio.sleep(ctx.data.get("slow", 0))
    private = {"letter": ctx.keep("a private letter")} if ctx.data.get("letter") else {}
    name = ctx.data.get("name", "Ada")
    return Outcome(set={"name": name, **private}, reason="form read", spend=Spend(10, 5, 0.01))


@onboarding.step("check", retry=RetryPolicy(2, 0.01, 0.01))
async def check(ctx):
    """Look at the amount."""
    if ctx.data.get("broken"):
        raise ValueError("the form makes no sense")
    if ctx.data.get("flaky") and ctx.attempt == 1:
        raise ConnectionError("refused")
    if ctx.data.get("amount", 0) > 100:
        return Outcome("approve", reason="amount above limit")
    return Outcome("welcome", reason="small amount")


@onboarding.step("approve")
async def approve(ctx):
    """Have a person approve."""
    if not ctx.answered("approval"):
        question = f"Approve {ctx.data.amount} for {ctx.data.name}?"
        return Hold("approval", question=question, choices=["yes", "no"])
    return Outcome("welcome" if ctx.answer("approval") == "yes" else "rejected")


@onboarding.step("welcome")
async def welcome(ctx):
    """Send the welcome mail."""
    await asyncio.sleep(ctx.data.get("slow", 0))
    mail = Effect("desk.send", {"to": ctx.data.name, "text": ctx.data.get("text", "hello")})
    return Outcome("done", effects=[mail], reason="welcomed")
'''


class Result(NamedTuple):
    """What a call of the program came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the JSON it must be."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Standard output by line."""
        return self.out.splitlines()


Call = Callable[..., Result]

PATIENCE = 60.0
"""Seconds after which a process that should have said or done something never will."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the flow in it and a clean environment."""
    for name in list(os.environ):
        if name.startswith("DETENT"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DETENT_TRUST", "all")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.py").write_text(FLOW)
    return tmp_path


@pytest.fixture
def detent(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the program in this process."""

    def call(*args: str) -> Result:
        capsys.readouterr()
        code = run(args)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return call


@pytest.fixture
def started(detent: Call) -> Callable[..., str]:
    """Run the flow with some data and give the run's id."""

    def start(**data: Any) -> str:
        return str(detent("run", "flow.py", "--data", json.dumps(data), "--json").json["id"])

    return start


@pytest.fixture
def token(detent: Call) -> Callable[[str], str]:
    """The token of the only hold of a run."""

    def look(run_id: str) -> str:
        (hold,) = detent("show", run_id, "--json").json["holds"]
        return str(hold["token"])

    return look


class Process:
    """The program in a process of its own, with its output in files."""

    def __init__(self, folder: Path, args: tuple[str, ...]) -> None:
        self.folder = folder
        self._out, self._err = folder / f"{id(self)}.out", folder / f"{id(self)}.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "detent", *args],
                cwd=folder,
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )

    def until(self, text: str, seconds: float = PATIENCE) -> None:
        """Wait until it has said a text."""
        self.until_true(lambda: text in self.so_far(), f"never said {text!r}", seconds)

    def until_true(self, test: Callable[[], bool], otherwise: str, seconds: float = PATIENCE) -> None:
        """Wait for something this process brings about."""
        deadline = time.monotonic() + seconds
        while not test():
            assert self.process.poll() is None, f"{otherwise} before it ended: {self.so_far()}"
            assert time.monotonic() < deadline, f"{otherwise}: {self.so_far()}"
            time.sleep(0.02)

    def until_in_step(self) -> None:
        """Wait until the flow's first step is under way; a file `wait` in the folder keeps it there."""
        self.until_true((self.folder / "waiting").exists, "never came to its first step")

    def so_far(self) -> str:
        """Everything said."""
        return self._out.read_text() + self._err.read_text()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut would."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def result(self, seconds: float = PATIENCE) -> Result:
        """Wait for the end."""
        code = self.process.wait(seconds)
        return Result(code, self._out.read_text(), self._err.read_text())


@pytest.fixture
def spawn(folder: Path) -> Iterator[Callable[..., Process]]:
    """Start the program in a process of its own."""
    begun: list[Process] = []

    def start(*args: str) -> Process:
        begun.append(Process(folder, args))
        return begun[-1]

    yield start
    for process in begun:
        if process.process.poll() is None:
            process.kill()
