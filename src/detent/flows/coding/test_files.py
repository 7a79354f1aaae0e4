"""Files that tests are made of, told by their paths, and which of them a command has changed.

A check that passes proves less if the tests that it runs were edited. Nothing is certain here: a project may
keep its tests anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

FOLDERS = frozenset({
    "test", "tests", "testing", "__tests__", "__test__", "spec", "specs", "__specs__", "e2e", "cypress",
    "androidtest", "integrationtest", "unittest", "unittests", "testcases",
})  # fmt: skip
"""Folders of tests, in small letters; also any that ends with `.tests` or `.test`."""
CONFIGURATIONS = re.compile(
    r"conftest\.py|\.?pytest\.(?:ini|toml)|tox\.ini|noxfile\.py|phpunit\.xml(?:\.dist)?|\.rspec"
    r"|(?:jest|vitest|karma|cypress|playwright)\.(?:config|conf)\.[a-z]+|\.mocharc\.[a-z]+"
)
"""Files that say which tests are run."""
_NAMES = re.compile(
    r"(?i:tests?[_-].*|.*[_-](?:tests?|spec)\.[^.]+|.*\.(?:tests?|spec|cy|e2e)\.[^.]+)"
    r"|.*[A-Za-z0-9](?:Tests?|TestCase|Spec)\.[^.]+|.*[a-z0-9]IT\.(?:java|kt)|Test[A-Z].*\.[^.]+"
)
"""Names of files of tests: `test_a.py`, `a_test.go`, `a_spec.rb`, `a.test.ts`, `ATest.java`."""
RUN_BY: Mapping[str, frozenset[str]] = {
    "make": frozenset({"Makefile", "makefile", "GNUmakefile"}),
    "gmake": frozenset({"Makefile", "makefile", "GNUmakefile"}),
    "just": frozenset({"justfile", "Justfile", ".justfile"}),
    "task": frozenset({"Taskfile.yml", "Taskfile.yaml"}),
    "rake": frozenset({"Rakefile"}),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm", "bun"), frozenset({"package.json"})),
    **dict.fromkeys(("pytest", "tox", "nox"), frozenset({"pyproject.toml", "setup.cfg"})),
    **dict.fromkeys(("gradle", "gradlew"), frozenset({"build.gradle", "build.gradle.kts"})),
    "mvn": frozenset({"pom.xml"}),
    "composer": frozenset({"composer.json"}),
}
"""Files in which programs find what they are to run, by program."""
_RECIPES = frozenset().union(*RUN_BY.values())
_LEFT_OUT = frozenset({
    "node_modules", "__pycache__", "venv", "site-packages", "vendor", "target", "build", "dist", "out", "bin",
    "obj", "coverage", "test-results", "playwright-report", "testresults",
})  # fmt: skip
"""Folders of what is installed or made, in small letters; hidden ones are left out, too."""
MOST_FILES = 2000
"""Files of tests that are compared."""
MOST_VISITED = 50_000
"""Entries of folders that are looked at."""
LARGEST = 1024 * 1024
"""Bytes of a file whose content is compared; of a larger one, what the file system says of it."""

Contents = Mapping[str, str]
"""What stands in each file of tests, by its path: a digest."""


def is_test_file(path: str) -> bool:
    """Whether a path relative to the workspace is one that tests usually have."""
    *folders, name = PurePosixPath(path).parts or ("",)
    if CONFIGURATIONS.fullmatch(name) or _NAMES.fullmatch(name):
        return True
    return any(_is_test_folder(folder) for folder in folders)


def is_part_of_check(path: str, command: str) -> bool:
    """Whether a path is one of tests, or of a file that a check's command runs or finds its work in."""
    if is_test_file(path):
        return True
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if any(os.path.normpath(word) == os.path.normpath(path) for word in words):
        return True
    name = PurePosixPath(path).name
    return any(name in RUN_BY.get(PurePosixPath(word).name, ()) for word in words)


def _is_test_folder(name: str) -> bool:
    small = name.lower()
    return small in FOLDERS or small.endswith((".tests", ".test"))


class TestFiles:
    """The files of tests of workspaces, and those that checks may be made of.

    They are read again only where the file system says that they have changed.
    """

    __test__ = False

    def __init__(self) -> None:
        self._digests: dict[tuple[str, int, int, int, int], str] = {}

    def contents(self, workspace: Path) -> Contents:
        """What stands in the files of tests now, as far as there are not too many."""
        found: dict[str, str] = {}
        for path in _paths(workspace):
            with contextlib.suppress(OSError):
                found[path] = self._digest(workspace / path)
            if len(found) >= MOST_FILES:
                break
        return found

    def _digest(self, file: Path) -> str:
        status = file.lstat()
        key = (str(file), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if status.st_size > LARGEST:
            return repr(key)
        if key not in self._digests:
            if len(self._digests) > 4 * MOST_FILES:
                self._digests.clear()
            self._digests[key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._digests[key]


def changed(before: Contents, after: Contents) -> list[str]:
    """The files that are new, gone or different."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _paths(workspace: Path) -> Iterable[str]:
    """The files of tests below a folder, relative to it."""
    visited = 0
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name.lower() not in _LEFT_OUT
        )
        visited += len(folders) + len(names)
        below = os.path.relpath(folder, workspace)
        for name in sorted(names):
            path = name if below == "." else f"{below}/{name}"
            if (is_test_file(path) or name in _RECIPES or name.endswith(".sh")) and not os.path.islink(
                os.path.join(folder, name)
            ):
                yield path
        if visited > MOST_VISITED:
            return
