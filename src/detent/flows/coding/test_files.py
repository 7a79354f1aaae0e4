"""Files that tests are made of, told by their paths.

Nothing is certain here: a project may keep its tests anywhere.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

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


def is_test_file(path: str) -> bool:
    """Whether a path relative to the workspace is one that tests usually have."""
    *folders, name = PurePosixPath(path).parts or ("",)
    if CONFIGURATIONS.fullmatch(name) or _NAMES.fullmatch(name):
        return True
    return any(_is_test_folder(folder) for folder in folders)


def _is_test_folder(name: str) -> bool:
    small = name.lower()
    return small in FOLDERS or small.endswith((".tests", ".test"))
