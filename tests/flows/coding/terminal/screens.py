"""Draws the screens of `docs/coding.md`: `detent chat` in tmux, its model a scripted server.

    python -m tests.flows.coding.terminal.screens

The pictures are what tmux shows of the real program. The answers and keys are the ones below.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from tests.flows.coding.terminal.model_server import ModelServer, Rule, Written, says

PICTURES = Path(__file__).parents[4] / "docs" / "pictures"
COLUMNS, ROWS = 92, 60
PATIENCE = 60.0
WIDE, HIGH, EDGE = 8.4, 18, 14
"""Pixels of a character, of a line, and around all of them."""
INK, PAPER = "#d4d4d4", "#1e1e1e"
COLOURS = {31: "#f14c4c", 32: "#23d18b", 33: "#e5c07b", 35: "#d670d6", 36: "#29b8db"}
DIM = "#8f8f8f"
_SGR = re.compile(r"\x1b\[([\d;]*)m")

DATES = """import datetime


def parse_date(text):
    year, day, month = map(int, text.split("-"))
    return datetime.date(year, month, day)
"""
TEST = """from dates import parse_date

assert str(parse_date("2026-03-02")) == "2026-03-02"
"""
RUN = ("bash", {"command": "make test"})
READ = (("read_file", {"filepath": "dates.py"}), ("grep", {"pattern": "parse_date"}))
EDIT = (
    "update_file",
    {
        "filepath": "dates.py",
        "target": "    year, day, month = map",
        "patch": "    year, month, day = map",
    },
)


class Style(NamedTuple):
    """How a piece of a line is written."""

    ink: str = INK
    bold: bool = False
    dim: bool = False


class Pane:
    """One window of tmux."""

    _number = 0

    def __init__(self, folder: Path, command: str) -> None:
        Pane._number += 1
        self._socket = f"detent-screens-{os.getpid()}-{Pane._number}"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "LANG": "C.UTF-8"}
        for name in ("NO_COLOR", "TMUX"):
            env.pop(name, None)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS),
                   "-c", str(folder), "env PS1='$ ' bash --norc", env=env)  # fmt: skip
        self.keys(command, until="> ")

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-L", self._socket, *words], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    def keys(self, text: str, *, until: str, enter: bool = True) -> None:
        """Type a line, and wait until the last line that is written begins with some text."""
        before = len(self._lines())
        self._tmux("send-keys", "-l", text)
        if enter:
            self._tmux("send-keys", "Enter")
        self.wait(lambda lines: len(lines) > before and lines[-1].lstrip().startswith(until.rstrip()))

    def press(self, key: str, *, until: str) -> None:
        """Press a key that tmux has a name for."""
        before = len(self._lines())
        self._tmux("send-keys", key)
        self.wait(lambda lines: len(lines) > before and lines[-1].lstrip().startswith(until.rstrip()))

    def wait(self, is_so: Callable[[list[str]], bool]) -> None:
        """Wait until the screen is so, and a moment longer."""
        deadline = time.monotonic() + PATIENCE
        while not is_so(self._lines()):
            if time.monotonic() > deadline:
                raise AssertionError("\n".join(self._lines()))
            time.sleep(0.1)
        time.sleep(0.5)

    def _lines(self, *more: str) -> list[str]:
        return self._tmux("capture-pane", "-p", *more).rstrip("\n").split("\n")

    def coloured(self) -> list[str]:
        """The lines of the screen with their colours."""
        return self._lines("-e")

    def close(self) -> None:
        """End it."""
        self._tmux("kill-server")


# -- drawing ------------------------------------------------------------------------------------------------


def pieces(line: str, style: Style) -> Iterator[tuple[str, Style]]:
    """The pieces of a line that are written alike."""
    at = 0
    for found in _SGR.finditer(line):
        if found.start() > at:
            yield line[at : found.start()], style
        at = found.end()
        for code in map(int, (found[1] or "0").split(";")):
            if code in (0, 39):
                style = Style() if code == 0 else style._replace(ink=INK)
            elif code == 1:
                style = style._replace(bold=True)
            elif code == 2:
                style = style._replace(dim=True)
            elif code in COLOURS:
                style = style._replace(ink=COLOURS[code])
    yield line[at:], style


def svg(lines: Sequence[str], title: str) -> str:
    """A screen as a picture."""
    height = len(lines) * HIGH + 2 * EDGE
    width = COLUMNS * WIDE + 2 * EDGE
    drawn = []
    style = Style()
    for row, line in enumerate(lines):
        column = 0
        for text, own in pieces(line, style):
            style = own  # the next line goes on with it
            if text.strip():
                ink = DIM if style.dim else style.ink
                weight = ' font-weight="bold"' if style.bold else ""
                drawn.append(
                    f'<text x="{EDGE + column * WIDE:.1f}" y="{EDGE + row * HIGH + 13}" fill="{ink}"{weight} '
                    f'textLength="{len(text) * WIDE:.1f}" xml:space="preserve">{escape(text)}</text>'
                )
            column += len(text)
    plain = "\n".join(_SGR.sub("", line) for line in lines)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" aria-labelledby="title desc" font-size="14" '
        "font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">",
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(plain)}</desc>',
        f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>',
        *drawn, "</svg>", "",
    ])  # fmt: skip


def draw(name: str, title: str, lines: list[str]) -> None:
    """Write a picture; the shell's own line is left out."""
    first = next(number for number, line in enumerate(lines) if "detent chat  " in _SGR.sub("", line))
    (PICTURES / f"chat-{name}.svg").write_text(svg(lines[first:], title), "utf-8")


# -- the scenes ---------------------------------------------------------------------------------------------


def edits(folder: Path, chat: str) -> None:
    """A failing test is found, and mended after a question."""
    pane = Pane(folder, f"clear; {chat} --allow 'bash:make test' --done-when 'make test'")
    pane.keys("The test of parse_date fails. Find out why and fix it.", until="y/a/n>")
    pane.keys("y", until="> ")
    draw("edit", "A request in detent chat: a diff is shown before it is applied", pane.coloured())
    pane.close()


def interrupts(folder: Path, chat: str) -> None:
    """Ctrl-C while a command runs."""
    pane = Pane(folder, f"clear; {chat} --yes")
    pane.keys("watch", until="")
    pane.wait(lambda lines: "bash sleep" in lines[-1])
    pane.press("C-c", until="> ")
    pane.keys("continue", until="> ")
    draw("interrupt", "Ctrl-C ends a running command; continue goes on", pane.coloured())
    pane.close()


def follows(folder: Path, chat: str) -> None:
    """A second terminal on the same session."""
    first = Pane(folder, f"clear; {chat}")
    first.keys("Say in the docstring what it does.", until="y/a/n>")
    second = Pane(folder, f"clear; {chat} --resume last")
    draw("second", "A second terminal on a session shows the question of the first", second.coloured())
    first.close()
    second.close()


SCRIPT: dict[str, list[Written]] = {
    "edits": [
        says("I run the test first.\n", RUN),
        says("Day and month look swapped. I read the function.\n", *READ),
        says("They are: a date is year, month, day.\n", EDIT),
        says("The order was wrong in one place.\nTUNACODE DONE: parse_date reads the month before the day"),
    ],
    "interrupts": [
        says("I wait for the build.\n", ("bash", {"command": "sleep 600"})),
        says("The build was not waited for.\nTUNACODE DONE: stopped waiting, as you asked"),
    ],
    "follows": [
        says(
            "I add a docstring.\n",
            (
                "update_file",
                {
                    "filepath": "dates.py",
                    "target": "def parse_date(text):\n",
                    "patch": 'def parse_date(text):\n    """Read a date such as 2026-03-02."""\n',
                },
            ),
        ),
    ],
}


def in_order(replies: Sequence[Written]) -> Rule:
    """A rule that gives replies one after another, whatever is asked."""
    left = iter(replies)
    return lambda asked: next(left)


def main() -> None:
    """Draw every screen."""
    for scene in (edits, interrupts, follows):
        folder = Path(tempfile.gettempdir()) / "dates"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "dates.py").write_text(DATES)
        (folder / "test_dates.py").write_text(TEST)
        (folder / "Makefile").write_text("test:\n\t@python3 -B test_dates.py\n")
        with ModelServer(in_order(SCRIPT[scene.__name__])) as server:
            (folder / "detent.yaml").write_text(f"coding: {{max_retries: 0}}\n{server.settings}")
            subprocess.run(
                [sys.executable, "-m", "detent", "trust", "--yes"], cwd=folder, check=True,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
            scene(folder, "detent chat --model house")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
