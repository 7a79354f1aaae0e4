"""The tutorial shows what the program prints."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")


def shown(command: str) -> list[str]:
    """What the page prints under a command."""
    (block,) = re.findall(rf"^\$ {re.escape(command)}.*?\n(.*?)(?=^\$ |^```)", TUTORIAL, re.M | re.S)
    return block.splitlines()


def without_chance(lines: list[str]) -> list[str]:
    """Lines without ids, dates, durations and widths, which differ from run to run."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "ID", "\n".join(lines))
    text = re.sub(r"\d\d-\d\d \d\d:\d\d:\d\d", "WHEN", text)
    text = re.sub(r"[\d.]+ (ms|s)\b", "TIME", text)
    return re.sub(r" +", " ", text).splitlines()


@pytest.fixture
def example(folder: Path) -> None:
    shutil.copy(ROOT / "examples/first/flow.py", folder / "flow.py")


def test_check_and_run_print_what_the_tutorial_shows(detent, example):
    assert detent("check", "flow.py").lines == shown("detent check flow.py")
    ran = detent("run", "flow.py", "--data", '{"items": {"lamp": 4, "book": 1}, "seconds": 0}')
    page = shown('detent run flow.py --data \'{"items": {"lamp"')
    assert without_chance(ran.lines) == without_chance(page)


def test_a_killed_run_is_listed_resumed_and_explained_as_the_tutorial_shows(detent, spawn, folder, example):
    assert detent("run", "flow.py", "--data", '{"items": {"lamp": 4}, "seconds": 0}').code == 0
    process = spawn("run", "flow.py", "--data", '{"items": {"stove": 28}, "seconds": 1}')
    process.until("28 kg")
    process.kill()
    assert without_chance(detent("runs").lines) == without_chance(shown("detent runs"))
    resumed = detent("resume", "--all")
    assert resumed.lines == shown("detent resume --all")
    run_id = detent("runs", "--json").json["runs"][0]["id"]
    assert without_chance(detent("why", run_id).lines) == without_chance(shown("detent why 16e6"))
