"""The command that runs a project's tests: which it is, and what its exit code and output say.

Nothing is run here.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

MOST_READ: Final = 1_000_000
"""Characters of a project file that are looked at."""


def find_test_command(workspace: Path, configured: str | None) -> str | None:
    """The configured test command, else the first that the workspace's own files name; None if none does."""
    if configured is not None and configured.strip():
        return configured.strip()
    for command in (_make, _pytest, _npm, _cargo, _go):
        found = command(workspace)
        if found is not None:
            return found
    return None


def _read(file: Path) -> str | None:
    """The text of a regular file, or None."""
    try:
        if not file.is_file():
            return None
        with file.open(encoding="utf-8-sig", errors="replace") as stream:
            return stream.read(MOST_READ)
    except OSError:
        return None


_ASSIGNMENT: Final = re.compile(r"\s*(?:(?:override|export|private|unexport)\s+)*[\w.-]+\s*(?:::?|[?+!])?=")


def _make(workspace: Path) -> str | None:
    for name in ("GNUmakefile", "makefile", "Makefile"):  # make reads the first there is
        text = _read(workspace / name)
        if text is not None:
            lines = text.replace("\r\n", "\n").replace("\\\n", " ").split("\n")
            return "make test" if any(_makes_test(line) for line in lines) else None
    return None


def _makes_test(line: str) -> bool:
    """True for a line that begins a rule for the target `test`."""
    targets, colon, rest = line.partition("#")[0].partition(":")
    if not colon or "=" in targets or line.startswith("\t"):
        return False
    if rest.startswith(("=", ":=", "::=")) or _ASSIGNMENT.match(rest):
        return False  # a variable
    return "test" in targets.removesuffix("&").split()


_SECTIONS: Final[Mapping[str, str | None]] = {
    "pytest.ini": None, ".pytest.ini": None, "pytest.toml": None, ".pytest.toml": None,
    "tox.ini": "pytest", "setup.cfg": "tool:pytest",
}  # fmt: skip
"""Files that configure pytest, and the section that does it."""


def _pytest(workspace: Path) -> str | None:
    if not (workspace / "tests").is_dir() and not _configures_pytest(workspace):
        return None
    for python in (".venv/bin/python", ".venv/Scripts/python.exe"):
        if (workspace / python).is_file():
            return f"{python} -m pytest -q"
    return "python3 -m pytest -q"


def _configures_pytest(workspace: Path) -> bool:
    for name, section in _SECTIONS.items():
        text = _read(workspace / name)
        if text is not None and (
            section is None or re.search(rf"^\[{re.escape(section)}\]", text, re.MULTILINE)
        ):
            return True
    try:
        project = tomllib.loads(_read(workspace / "pyproject.toml") or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    tool = project.get("tool")
    return isinstance(tool, dict) and "pytest" in tool


def _npm(workspace: Path) -> str | None:
    try:
        package = json.loads(_read(workspace / "package.json") or "null")
    except (ValueError, RecursionError):
        return None
    scripts = package.get("scripts") if isinstance(package, dict) else None
    script = scripts.get("test") if isinstance(scripts, dict) else None
    if not isinstance(script, str) or not script.strip() or "no test specified" in script:
        return None  # `npm init` writes a script that only says so
    return "npm test"


def _cargo(workspace: Path) -> str | None:
    return "cargo test" if (workspace / "Cargo.toml").is_file() else None


def _go(workspace: Path) -> str | None:
    return "go test ./..." if (workspace / "go.mod").is_file() else None


# -- what came of it ----------------------------------------------------------------------------------------


class TestsRun(NamedTuple):
    """What came of running the tests."""

    ran: bool
    """False if they could not run at all, which is no verdict on the project."""
    words: str
    """`3 failed, 12 passed`, `12 passed`, `failed (exit 1)`; or why they could not run."""


def read_tests_run(command: str, exit_code: int | None, output: str) -> TestsRun:
    """What the exit code and output of a test command say. `exit_code` None: it did not come to its end."""
    if exit_code is None:
        return TestsRun(False, f"{command} did not come to its end")
    text = _ESCAPES.sub("", output[:MOST_READ]).replace("\r\n", "\n")
    code = exit_code
    if exit_code and (of_make := _MAKE_ERROR.search(text)):
        code = int(of_make[1][:9])
    counts = _counts(text)
    if why := _why_not_run(text, code, counts):
        return TestsRun(False, why)
    words = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    if exit_code == 0:
        return TestsRun(True, words or "passed")
    if not words:
        return TestsRun(True, f"failed (exit {exit_code})")
    if not counts["failed"]:
        return TestsRun(True, f"{words}, but {command} ended with exit {exit_code}")
    return TestsRun(True, words)


_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MAKE_ERROR: Final = re.compile(r"^make(?:\[\d+\])?: \*\*\* .*\bError (\d+)", re.MULTILINE)

_CANNOT_RUN: Final = tuple(
    (re.compile(pattern, re.MULTILINE | re.IGNORECASE), why)
    for pattern, why in (
        (r"\bNo module named '?pytest'?[ \t]*$", "pytest is not installed (No module named pytest)"),
        (r"^make(?:\[\d+\])?: \*\*\* No rule to make target", "make does not know how to make them"),
        (r"\bMissing script: \"?test\b", "package.json has no script test"),
        (r"^error(?:\[E\d+\])?:.*(?:could not compile|no targets|could not find `Cargo\.toml`)",
         "the project does not compile"),
        (r"\[(?:build|setup) failed\]", "the project does not compile"),
    )
)  # fmt: skip
"""What an output without a single test result says about the reason."""
_NONE_COLLECTED: Final = re.compile(
    r"^(?:=+ )?no tests ran\b|^NO TESTS RAN|^No tests? (?:files? )?found|^no tests collected", re.MULTILINE
)
_COLLECTION_ERRORS: Final = re.compile(r"Interrupted: (\d+ errors?) during collection")


def _why_not_run(text: str, code: int, counts: Counter[str]) -> str | None:
    """Why no test could run, or None if some did."""
    if errors := _COLLECTION_ERRORS.search(text):
        return f"{errors[1]} while the tests were collected"
    if counts["failed"] or counts["passed"] or counts["skipped"]:
        return None
    if code in (126, 127):
        return f"a program they need is missing (exit {code})"
    for pattern, why in _CANNOT_RUN:
        if pattern.search(text):
            return why
    if code == 5 or counts or _NONE_COLLECTED.search(text) or _only_untested_packages(text):
        return f"no tests were collected{f' (exit {code})' if code else ''}"
    return None


def _only_untested_packages(text: str) -> bool:
    """True for `go test` where no package has tests."""
    lines = [line for line in text.splitlines() if line.startswith(("ok  \t", "FAIL\t", "?   \t", "---"))]
    return bool(lines) and all(line.endswith("[no test files]") for line in lines)


_NAMES: Final[Mapping[str, str]] = {
    "failed": "failed", "fail": "failed", "failing": "failed", "failures": "failed", "error": "failed",
    "errors": "failed", "passed": "passed", "pass": "passed", "passing": "passed", "xpassed": "passed",
    "skipped": "skipped", "xfailed": "skipped", "ignored": "skipped", "pending": "skipped",
    "todo": "skipped", "deselected": "deselected", "total": "total", "tests": "total",
}  # fmt: skip
"""The words of test runners, and ours."""


def _counts(text: str) -> Counter[str]:
    """Tests by result: `failed`, `passed`, `skipped`; empty where the output has no summary known here."""
    for reading in (_pytest_counts, _unittest_counts, _cargo_counts, _node_counts, _go_counts):
        found = reading(text)
        if found is not None:
            return Counter({name: found[name] for name in ("failed", "passed", "skipped")})
    return Counter()


def _sum(pairs: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, number in pairs:
        counts[_NAMES.get(name.lower(), "other")] += int(number[:9])
    return counts


_PYTEST: Final = re.compile(r"^(?:=+ )?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s\b", re.MULTILINE)
_NUMBER: Final = re.compile(r"(\d+) ([A-Za-z]+)")


def _pytest_counts(text: str) -> Counter[str] | None:
    summaries = _PYTEST.findall(text)
    if not summaries:
        return None
    return _sum((name, number) for line in summaries for number, name in _NUMBER.findall(line))


def _unittest_counts(text: str) -> Counter[str] | None:
    ran = re.findall(r"^Ran (\d+) tests? in ", text, re.MULTILINE)
    if not ran:
        return None
    details = re.findall(r"^(?:FAILED|OK) \((.*)\)$", text, re.MULTILINE)
    counts = _sum(pair for line in details for pair in re.findall(r"([a-z]+)=(\d+)", line))
    total = sum(int(number[:9]) for number in ran)
    counts["passed"] = max(0, total - counts["failed"] - counts["skipped"])
    return counts


def _cargo_counts(text: str) -> Counter[str] | None:
    summaries = re.findall(r"^test result: \w+\. (.*)$", text, re.MULTILINE)
    if not summaries:
        return None
    return _sum((name, number) for line in summaries for number, name in _NUMBER.findall(line))


_NODE: Final[tuple[tuple[re.Pattern[str], Callable[[str, str], tuple[str, str]]], ...]] = (
    (re.compile(r"^(?:#|ℹ) (tests|pass|fail|skipped|todo) (\d+)$", re.MULTILINE), lambda name, n: (name, n)),
    (re.compile(r"^[ \t]*(\d+) (passing|failing|pending)\b", re.MULTILINE), lambda n, name: (name, n)),
)


def _node_counts(text: str) -> Counter[str] | None:
    """Jest and vitest; node's own runner and TAP; mocha."""
    lines = re.findall(r"^[ \t]*Tests:?[ \t]+(\d+ [a-z].*)$", text, re.MULTILINE)
    if lines:
        return _sum((name, number) for line in lines for number, name in _NUMBER.findall(line))
    for pattern, pair in _NODE:
        found = pattern.findall(text)
        if found:
            return _sum(pair(*match) for match in found)
    return None


def _go_counts(text: str) -> Counter[str] | None:
    failed = len(re.findall(r"^--- FAIL: ", text, re.MULTILINE))
    passed = len(re.findall(r"^--- PASS: ", text, re.MULTILINE))
    return Counter(failed=failed, passed=passed) if failed or passed else None
