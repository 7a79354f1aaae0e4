"""The test command is the first that the project names, and its output is read for what it says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from detent.flows.coding.test_command import find_test_command, read_tests_run

PYTEST = "python3 -m pytest -q"
NPM = json.dumps({"scripts": {"test": "jest"}})


def _project(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({}, None),
        ({"README.md": "test:"}, None),
        ({"Makefile": "test:\n\tpytest\n"}, "make test"),
        ({"makefile": "all test: build\n"}, "make test"),
        ({"GNUmakefile": "test::\n\techo\n"}, "make test"),
        ({"Makefile": "check \\\n test: ; pytest\n"}, "make test"),
        ({"Makefile": "\ufefftest:\n"}, "make test"),
        ({"Makefile": "build:\r\n\tcc\r\ntest: build\r\n"}, "make test"),
        ({"Makefile": ".PHONY: test\n"}, None),
        ({"Makefile": "test = 1\ntest := 2\ntest ::= 3\n# test:\n\ttest: x\nlatest:\ntests:\n"}, None),
        ({"Makefile": "test: CFLAGS = -g\ntest: export A := b\nother: test\n"}, None),
        ({"GNUmakefile": "all:\n", "Makefile": "test:\n"}, None),
        ({"Makefile": "all:\n", "tests/test_a.py": ""}, PYTEST),
        ({"Makefile": "test:\n", "tests/test_a.py": "", "package.json": NPM}, "make test"),
        ({"tests/a.txt": ""}, PYTEST),
        ({"tests": "a file"}, None),
        ({"pytest.ini": ""}, PYTEST),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, PYTEST),
        ({"pyproject.toml": '[project]\nname = "pytest"\n'}, None),
        ({"pyproject.toml": "[tool.pytest.ini_options\n", "go.mod": ""}, "go test ./..."),
        ({"pyproject.toml": 'tool = "pytest"\n'}, None),
        ({"setup.cfg": "[metadata]\n[tool:pytest]\n"}, PYTEST),
        ({"setup.cfg": "[pytest]\n"}, None),
        ({"tox.ini": "[tox]\n[pytest]\n"}, PYTEST),
        ({"tox.ini": "[tox]\n"}, None),
        ({"pytest.ini": "", ".venv/bin/python": ""}, ".venv/bin/python -m pytest -q"),
        ({"pytest.ini": "", ".venv/Scripts/python.exe": ""}, ".venv/Scripts/python.exe -m pytest -q"),
        ({"pytest.ini": "", "venv/bin/python": ""}, PYTEST),
        ({"pytest.ini": "", "package.json": NPM}, PYTEST),
        ({"package.json": NPM, "Cargo.toml": ""}, "npm test"),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, None),
        ({"package.json": '{"scripts": {"test": ""}}', "go.mod": ""}, "go test ./..."),
        ({"package.json": '{"scripts": {"tests": "jest"}}'}, None),
        ({"package.json": '{"scripts": ["test"]}'}, None),
        ({"package.json": "[]"}, None),
        ({"package.json": "{"}, None),
        ({"package.json": "[" * 100_000, "Cargo.toml": ""}, "cargo test"),
        ({"Cargo.toml": "", "go.mod": ""}, "cargo test"),
        ({"go.mod": ""}, "go test ./..."),
        ({"src/Makefile": "test:\n", "src/tests/a": ""}, None),
    ],
)
def test_the_first_command_that_the_project_names_is_found(
    tmp_path: Path, files: dict[str, str], command: str | None
) -> None:
    workspace = _project(tmp_path, files)
    assert find_test_command(workspace, None) == command
    assert find_test_command(workspace, "  ") == command
    assert find_test_command(workspace, " tox -q ") == "tox -q"


def test_files_that_are_none_and_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "Makefile")
    (tmp_path / "package.json").mkdir()
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe\x00[tool.pytest]")
    (tmp_path / "tox.ini").symlink_to(tmp_path / "nowhere")
    assert find_test_command(tmp_path, None) is None
    assert find_test_command(tmp_path / "missing", None) is None
    (tmp_path / "setup.cfg").write_bytes(b"\xff\n[tool:pytest]\n")
    assert find_test_command(tmp_path, None) == PYTEST


PYTEST_Q = "F.             [100%]\n=== FAILURES ===\nE   assert 0\n=== short test summary info ===\n"
COLLECTING = "ERROR t2/test_x.py\n!!!!! Interrupted: 1 error during collection !!!!!\n1 error in 0.44s\n"
RUST = "running 2 tests\ntest b ... FAILED\n\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; \
0 filtered out; finished in 0.06s\n"
TAP = (
    "TAP version 13\n1..2\n# tests 2\n# suites 0\n# pass 1\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0\n"
)
RAN = [
    (0, "..\n2 passed in 0.01s\n", "2 passed"),
    (1, f"{PYTEST_Q}1 failed, 1 passed in 0.41s\n", "1 failed, 1 passed"),
    (1, "=========== 3 failed, 2 passed, 1 skipped, 4 warnings in 12.34s (0:00:12) ===========\n",
     "3 failed, 2 passed, 1 skipped"),
    (1, "\x1b[31m\x1b[1m3 failed\x1b[0m\n\x1b[31m3 failed\x1b[0m, \x1b[32m2 passed\x1b[0m in 0.1s\x1b[0m\n",
     "3 failed, 2 passed"),
    (1, "1 passed, 2 errors in 0.1s\r\n", "2 failed, 1 passed"),
    (1, "2 errors in 0.1s\n", "2 failed"),
    (1, "E  No module named 'pytest'\n1 failed, 1 passed in 0.1s\n", "1 failed, 1 passed"),
    (0, "1 skipped in 0.1s\n", "1 skipped"),
    (0, "2 passed in 0.1s\n3 passed in 0.1s\n", "5 passed"),
    (1, "FAIL Required test coverage of 90% not reached.\n2 passed in 0.1s\n",
     "2 passed, but CMD ended with exit 1"),
    (2, f"{PYTEST_Q}1 failed in 0.4s\nmake: *** [Makefile:2: test] Error 1\n", "1 failed"),
    (0, "1 failed, 1 passed in 0.4s\nmake: [Makefile:2: test] Error 1 (ignored)\n", "1 failed, 1 passed"),
    (1, "Ran 4 tests in 0.001s\n\nFAILED (failures=2, errors=1)\n", "3 failed, 1 passed"),
    (0, "Ran 4 tests in 0.001s\n\nOK (skipped=1)\n", "3 passed, 1 skipped"),
    (0, "Ran 1 test in 0.001s\n\nOK\n", "1 passed"),
    (101, RUST.format("FAILED", 1, 1) + "error: test failed, to rerun pass `--lib`\n", "1 failed, 1 passed"),
    (0, RUST.format("ok", 2, 0) + RUST.format("ok", 0, 0), "2 passed"),
    (1, TAP, "1 failed, 1 passed"),
    (1, "\n  4 passing (12ms)\n  1 pending\n  2 failing\n", "2 failed, 4 passed, 1 skipped"),
    (1, "Test Suites: 1 failed, 1 total\nTests:       1 failed, 4 passed, 5 total\n", "1 failed, 4 passed"),
    (1, " Test Files  1 failed (1)\n      Tests  1 failed | 3 passed (4)\n", "1 failed, 3 passed"),
    (1, "--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/x (0.00s)\nFAIL\tx\t0.1s\nok  \ty\t0.1s\n", "1 failed"),
    (0, "ok  \tx\t0.1s\n?   \ty\t[no test files]\n", "passed"),
    (0, "", "passed"),
    (1, "", "failed (exit 1)"),
    (-9, "Killed\n", "failed (exit -9)"),
    (3, "2 of 7 checks went wrong\n", "failed (exit 3)"),
    (5, "1 failed, 1 passed in 0.1s\n", "1 failed, 1 passed"),
]  # fmt: skip
NOT_RUN = [
    (5, "\nno tests ran in 0.01s\n", "no tests were collected (exit 5)"),
    (5, "3 deselected in 0.01s\n", "no tests were collected (exit 5)"),
    (5, "", "no tests were collected (exit 5)"),
    (5, "Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", "no tests were collected (exit 5)"),
    (0, "Ran 0 tests in 0.000s\n\nOK\n", "no tests were collected"),
    (2, "no tests ran in 0.0s\nmake: *** [Makefile:2: test] Error 5\n", "no tests were collected (exit 5)"),
    (4, "no tests ran in 0.40s\nERROR: not found: t3\n", "no tests were collected (exit 4)"),
    (0, RUST.format("ok", 0, 0), "no tests were collected"),
    (0, "?   \tx\t[no test files]\n", "no tests were collected"),
    (1, "No tests found, exiting with code 1\n", "no tests were collected (exit 1)"),
    (1, "No test files found, exiting with code 1\n", "no tests were collected (exit 1)"),
    (1, "/usr/bin/python3: No module named pytest\n", "pytest is not installed (No module named pytest)"),
    (2, "/x/python: No module named pytest\nmake: *** [Makefile:2: test] Error 1\n",
     "pytest is not installed (No module named pytest)"),
    (2, COLLECTING, "1 error while the tests were collected"),
    (2, f"{COLLECTING}make: *** [Makefile:2: test] Error 2\n", "1 error while the tests were collected"),
    (127, "bash: line 1: nosuch: command not found\n", "a program they need is missing (exit 127)"),
    (127, "> test\n> jest\n\nsh: 1: jest: not found\n", "a program they need is missing (exit 127)"),
    (126, "bash: ./t.sh: Permission denied\n", "a program they need is missing (exit 126)"),
    (2, "make: noprog: No such file or directory\nmake: *** [Makefile:2: test] Error 127\n",
     "a program they need is missing (exit 127)"),
    (2, "make: *** No rule to make target 'test'.  Stop.\n", "make does not know how to make them"),
    (1, 'npm error Missing script: "test"\n', "package.json has no script test"),
    (101, "error: could not compile `x` (lib test) due to 1 error\n", "the project does not compile"),
    (1, "FAIL\tx [build failed]\nFAIL\n", "the project does not compile"),
    (None, "..", "CMD did not come to its end"),
]  # fmt: skip


def test_failing_tests_are_told_from_tests_that_could_not_run() -> None:
    for ran, table in ((True, RAN), (False, NOT_RUN)):
        for code, output, words in table:
            read = read_tests_run("CMD", code, output)
            assert (read.ran, read.words) == (ran, words), (code, output)


def test_hostile_output_is_read_in_linear_work() -> None:
    for piece in (
        "\n",
        " ",
        "1 failed, ",
        "\x1b[",
        "make: *** ",
        "Tests: ",
        "1 ",
        "9",
        "--- FAIL: x\n",
        "FAILED (",
    ):
        text = piece * (1_500_000 // len(piece))
        assert read_tests_run("x", 1, text).words
