"""The built-in prerequisites, on real repositories, programs, variables and packages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from detent.adapters.project import prerequisites as checks
from detent.dispatch.executor import Availability


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which git knows nothing of whoever runs the tests."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(tmp_path),
    }


@pytest.fixture
def repo(tmp_path: Path, environ: dict[str, str]) -> Path:
    """An empty repository without identity or remote."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, environ, "init", "-q")
    return folder


def git(folder: Path, environ: dict[str, str], *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, env=environ, check=True, capture_output=True)


async def test_git_is_found_and_says_its_version(tmp_path, environ):
    found = await checks.git(tmp_path, environ)
    assert found.ok
    assert found.message.startswith("git version")


@pytest.mark.parametrize("check", [checks.git, checks.git_repo, checks.git_identity, checks.git_remote])
async def test_without_git_every_check_of_it_says_so(tmp_path, check):
    """D-72."""
    assert await check(tmp_path, {"PATH": str(tmp_path)}) == (False, "git is not on PATH")


@pytest.mark.parametrize("check", [checks.git, checks.git_repo, checks.git_identity, checks.git_remote])
async def test_a_git_that_never_stops_talking_is_ended(tmp_path, environ, check):
    talking = tmp_path / "bin" / "git"
    talking.parent.mkdir()
    talking.write_text("#!/bin/sh\nexec head -c 300000000 /dev/zero\n")
    talking.chmod(0o755)
    environ["PATH"] = f"{talking.parent}{os.pathsep}{environ['PATH']}"
    assert await check(tmp_path, environ) == (False, "git answers with more than 65,536 bytes")


async def test_a_folder_is_a_repository_only_when_it_is_in_a_work_tree(tmp_path, repo, environ):
    inside = repo / "deep" / "down"
    inside.mkdir(parents=True)
    assert (await checks.git_repo(repo, environ)).ok
    assert (await checks.git_repo(inside, environ)).ok
    assert await checks.git_repo(tmp_path, environ) == (False, "the project is in no git work tree")
    assert not (await checks.git_repo(repo / ".git", environ)).ok
    assert not (await checks.git_remote(tmp_path, environ)).ok


async def test_an_identity_is_never_guessed_from_the_machine_and_never_shown(repo, environ):
    missing = await checks.git_identity(repo, environ)
    assert missing == (False, "git knows no name and e-mail address to commit under")
    git(repo, environ, "config", "user.name", "Ada")
    assert not (await checks.git_identity(repo, environ)).ok
    git(repo, environ, "config", "user.email", "ada@example.com")
    found = await checks.git_identity(repo, environ)
    assert found.ok
    assert "Ada" not in found.message
    assert "ada@" not in found.message


async def test_an_identity_may_come_from_the_environment(repo, environ):
    who = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
    }
    assert (await checks.git_identity(repo, {**environ, **who})).ok


async def test_a_remote_is_there_or_it_is_not(repo, environ):
    assert await checks.git_remote(repo, environ) == (False, "the repository has no remote")
    git(repo, environ, "remote", "add", "origin", "https://user:hidden@example.com/repo.git")
    found = await checks.git_remote(repo, environ)
    assert found == (True, "remotes: origin")


def test_a_program_is_found_on_path_or_by_its_path_from_the_project(tmp_path):
    tool = tmp_path / "tools" / "mend"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    assert checks.command("sh", tmp_path).ok
    assert checks.command("no-such-program", tmp_path) == (False, "no-such-program is not on PATH")
    assert checks.command("./tools/mend", tmp_path) == (False, "there is no program ./tools/mend")
    tool.chmod(0o755)
    assert checks.command("./tools/mend", tmp_path).ok
    assert not checks.command("mend", tmp_path, {"PATH": str(tmp_path)}).ok
    assert checks.command("mend", tmp_path, {"PATH": str(tool.parent)}).ok


def test_a_variable_must_be_set_to_something_and_its_value_is_never_shown():
    assert checks.env("KEY", {}) == (False, "KEY is not set")
    assert checks.env("KEY", {"KEY": ""}) == (False, "KEY is empty")
    found = checks.env("KEY", {"KEY": "very-private"})
    assert found == (True, "KEY is set")


@pytest.mark.parametrize("name", ["pyyaml", "yaml", "json", "importlib.metadata", "detent"])
def test_a_package_goes_by_the_name_it_is_installed_or_imported_under(name):
    assert checks.package(name).ok


@pytest.mark.parametrize("name", ["no-such-package", "no_such.package", "..", "not a name"])
def test_a_package_that_is_not_there_is_missed(name):
    assert checks.package(name) == (False, f"{name} is not installed")


def test_a_path_starts_from_the_project(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").touch()
    assert checks.path("data/rows.csv", tmp_path).ok
    assert checks.path(str(tmp_path / "data"), tmp_path).ok
    assert checks.path("data/gone.csv", tmp_path) == (False, "there is no data/gone.csv")


class Asked:
    def __init__(self, ok: bool, why: str = "") -> None:
        self.answer = Availability(ok, why)

    def available(self) -> Availability:
        return self.answer


def test_an_executor_is_there_when_the_default_one_could_be_asked():
    assert checks.executor(None, lambda name: Asked(True)) == (False, "no model is configured")
    assert checks.executor("big", lambda name: Asked(True)).ok
    missing = checks.executor("big", lambda name: Asked(False, "MY_KEY is not set"))
    assert missing == (False, "the provider big cannot be asked: MY_KEY is not set")

    def refuse(name: str) -> Asked:
        raise RuntimeError("needs\nthe package x")

    assert checks.executor("big", refuse).message == "the provider big cannot be used: needs the package x"
