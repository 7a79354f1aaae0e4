"""Whatever stands in tags, ids, data, reasons, errors and mails: a terminal is told, and never commanded."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from detent.kernel.control_characters import is_control

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x1b]52;c;YQ==\x07\u202egnp.exe\r[red]x[/red]"
FLOW = '''
from detent import Effect, Flow, Hold, Machine, Outcome, Status, ToolError

H = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202egnp.exe\\r[red]x"

odd = Flow(
    Machine("odd", start="read", moves={"read": ["wait"], "wait": ["done"]}, ends={"done": Status.SUCCEEDED}),
    description="Odd " + H,
)


@odd.step("read")
async def read(ctx):
    """Read."""
    if ctx.data.get("fail"):
        raise RuntimeError("it broke " + H)
    await ctx.note("seen", what=H)
    return Outcome(next="wait", reason="because " + H, set={"answer": H})


@odd.step("wait")
def wait(ctx):
    """Wait."""
    return Hold("person", "Is " + H + " fine?") if ctx.data.get("hold") else Outcome(next="done", reason=H)
'''


def no_controls(text: str) -> None:
    found = {hex(ord(char)) for char in text if is_control(char)}
    assert not found, text


@pytest.fixture
def odd(folder: Path) -> Path:
    (folder / "odd.py").write_text(FLOW)
    return folder


def test_no_command_hands_a_control_character_on(detent, odd):
    commands = [
        ["run", "odd.py", "--id", "one", "--data", json.dumps({"name": HOSTILE})],
        ["run", "odd.py", "--tag", HOSTILE],
        ["run", "odd.py", "--id", "two", "--data", '{"fail": true}'],
        ["run", "odd.py", "--id", HOSTILE],
        ["run", f"odd{HOSTILE}.py"],
        ["run", "odd.py", "--store", f"memory{HOSTILE}:"],
        ["flows", "--plugin", "odd.py"],
        ["runs"],
        ["runs", "--tag", HOSTILE],
        ["show", "one"],
        ["show", "two"],
        ["show", HOSTILE],
        ["why", "one"],
        ["why", "two"],
        ["timeline", "one"],
        ["metrics", "one"],
        ["log", "one"],
        [HOSTILE],
    ]
    for command in commands:
        said = detent(*command)
        no_controls(said.out + said.err)


def test_json_stays_exact_and_says_it_in_escapes(detent, odd):
    detent("run", "odd.py", "--id", "one", "--data", json.dumps({"name": HOSTILE}))
    said = detent("show", "one", "--json")
    no_controls(said.out)
    assert said.json["data"]["name"] == HOSTILE


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines_show_them_too(detent, odd, form):
    (odd / "detent.yaml").write_text(f"logging: {{level: debug, format: {form}, file: log.txt}}\n")
    detent("run", "odd.py", "--id", "one", "--data", '{"fail": true}')
    text = (odd / "log.txt").read_text()
    assert "one" in text
    no_controls(text)


def test_a_terminal_gets_our_colours_and_nobody_elses(odd):
    """The program on a terminal of its own, with what it wrote to it."""
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    environ.pop("NO_COLOR", None)
    written = b""
    for args in (
        ["run", "odd.py", "--id", "one", "--data", json.dumps({"name": HOSTILE})],
        ["show", "one"],
        ["runs"],
    ):
        ours, theirs = pty.openpty()
        program = subprocess.Popen(
            [sys.executable, "-m", "detent", *args],
            cwd=odd,
            env=environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            written += piece
        program.wait()
        os.close(ours)
    text = written.decode()
    assert "\x1b[32m" in text or "\x1b[1m" in text
    for sequence in ("\x1b]0;", "\x1b]52", "\x1b[2J", "\x9b", "\u202e", "\x07"):
        assert sequence not in text
    assert "[red]x" in text
