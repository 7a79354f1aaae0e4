"""One short run of a notebook, made with the command line and looked at by many tests."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent.cli.main import run

PROBLEM = "Predict price; R2 > 0.2"


class Answer(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Project:
    """A folder with a table, in which commands are called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = [f"{i},{i % 7},{'ab'[i % 2]},{3 * i + (i * i) % 11}" for i in range(60)]
        (folder / "houses.csv").write_text("size,rooms,kind,price\n" + "\n".join(rows) + "\n")

    def detent(self, *args: str) -> Answer:
        """Call the program."""
        out, err = io.StringIO(), io.StringIO()
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run(args)
        finally:
            os.chdir(before)
        return Answer(code, out.getvalue(), err.getvalue())

    def notebook(self, *args: str, problem: str = PROBLEM) -> Answer:
        """Start a notebook."""
        return self.detent("run", "notebook", "--problem", problem, "--file", "houses.csv", *args)


@pytest.fixture(scope="module")
def trusted() -> Iterator[None]:
    """Projects that tests make are trusted, those of whole modules too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DETENT_TRUST", "all")
        patch.setenv("DETENT_CONFIG_HOME", os.devnull + "-none")
        yield


@pytest.fixture(scope="module")
def module_project(trusted: None, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that the tests of a module share."""
    return Project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of one test."""
    return Project(tmp_path)
