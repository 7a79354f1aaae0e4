"""kill -9 inside a change of a file: resumed, it has happened once, whole, or waits for a person."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flows.coding.tools.bench import Bench
from tests.flows.coding.tools.crashing import POINTS

EDIT = ["update_file", {"filepath": "src/a.py", "target": "one", "patch": "two"}]
NEW = ["write_file", {"filepath": "src/b.py", "content": "new\n"}]


def process(folder: Path, *point: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.flows.coding.tools.crashing", str(folder), *point]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[4], timeout=60)


def resumed(folder: Path) -> dict[str, Any]:
    ran = process(folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "ws")
    bench.put("src/a.py", "one\r\n")
    return bench


def crash(bench: Bench, calls: list[Any], point: str) -> None:
    folder = bench.root.parent
    (folder / "calls.json").write_text(json.dumps(calls))
    ran = process(folder, point)
    assert ran.returncode == -signal.SIGKILL, ran.stderr


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("call", [EDIT, NEW], ids=["update_file", "write_file"])
def test_a_change_that_was_interrupted_happens_once_and_leaves_nothing_else(bench, call, point):
    crash(bench, [call], point)
    end = resumed(bench.root.parent)
    assert (end["status"], end["holds"]) == ("succeeded", [])
    assert (bench.root / "src/a.py").read_bytes() == (b"two\r\n" if call is EDIT else b"one\r\n")
    assert sorted(os.listdir(bench.root / "src")) == (["a.py"] if call is EDIT else ["a.py", "b.py"])
    if call is NEW:
        assert (bench.root / "src/b.py").read_text() == "new\n"


@pytest.mark.parametrize("point", ["after-intent", "after-write"])
def test_a_file_with_neither_content_is_left_to_a_person(bench, point):
    crash(bench, [EDIT], point)
    bench.put("src/a.py", "someone else's\n")
    end = resumed(bench.root.parent)
    assert end["status"] == "waiting"
    assert "update_file" in end["holds"][0]
    assert (bench.root / "src/a.py").read_text() == "someone else's\n"


def test_a_file_that_was_changed_before_anything_began_is_judged_anew(bench):
    crash(bench, [EDIT], "before-intent")
    bench.put("src/a.py", "one more one\n")
    end = resumed(bench.root.parent)
    assert (bench.root / "src/a.py").read_text() == "one more one\n"
    assert end["status"] != "succeeded"


def test_only_what_the_write_itself_left_is_removed(bench):
    bench.put("src/.0123456789abcde0.tmp", "x" * 1000)
    bench.put("src/.0123.tmp", "x")
    bench.put("src/keep.tmp", "x")
    crash(bench, [EDIT], "half-written")
    assert resumed(bench.root.parent)["status"] == "succeeded"
    assert sorted(os.listdir(bench.root / "src")) == [
        ".0123.tmp",
        ".0123456789abcde0.tmp",
        "a.py",
        "keep.tmp",
    ]
