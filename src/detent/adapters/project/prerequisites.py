"""Checks of what a workflow needs: git, a repository, programs, variables, packages, paths, a model.

Each check returns `(ok, message)`. A message never contains a variable's value or a person's name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from detent.adapters.project.programs import TimedOut, run_program
from detent.engine.tools import ToolError


class Answer(NamedTuple):
    """The result of a check."""

    ok: bool
    message: str = ""


TIMEOUT = 60.0
"""Seconds git may take."""
LONGEST_OUTPUT = 64 * 1024
"""Bytes of git's output: a version, a name, a list of remotes."""

QUIET = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
"""For git: known messages, no prompts, no locks."""


# -- git ----------------------------------------------------------------------------------------------------


async def git(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """Git can be called."""
    code, output = await _git(root, environ, "version")
    return Answer(True, output) if code == 0 else Answer(False, output or "git does not run")


async def git_repo(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """The project is in a git work tree."""
    code, output = await _git(root, environ, "rev-parse", "--is-inside-work-tree")
    if code == 0 and output == "true":
        return Answer(True, "the project is in a git work tree")
    return Answer(False, output if code is None else "the project is in no git work tree")


async def git_identity(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """Git knows the identity to commit under, without guessing it from the machine."""
    for identity in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        code, output = await _git(root, environ, "-c", "user.useConfigOnly=true", "var", identity)
        if code != 0:
            return Answer(
                False, output if code is None else "git knows no name and e-mail address to commit under"
            )
    return Answer(True, "git knows whom to commit as")


async def git_remote(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """The repository has a remote to push to."""
    code, output = await _git(root, environ, "remote")
    if code == 0 and output:
        return Answer(True, f"remotes: {', '.join(output.split())}")
    if code == 0:
        return Answer(False, "the repository has no remote")
    return Answer(False, output if code is None else "the project is in no git work tree")


async def _git(root: Path, environ: Mapping[str, str] | None, *args: str) -> tuple[int | None, str]:
    """Exit code and output of git; without a code, the reason it could not be run."""
    variables = {**(os.environ if environ is None else environ), **QUIET}
    try:
        ran = await run_program(
            ["git", *args], cwd=root, env=variables, timeout=TIMEOUT, head=LONGEST_OUTPUT, stop_when_full=True
        )
    except TimedOut as error:
        return None, str(error).rstrip(".")
    except ToolError as error:
        missing = shutil.which("git", path=variables.get("PATH")) is None
        return None, "git is not on PATH" if missing else error.message.rstrip(".")
    if ran.out_cut:
        return None, f"git answers with more than {LONGEST_OUTPUT:,} bytes"
    return ran.code, ran.out.decode(errors="replace").strip()


# -- the machine --------------------------------------------------------------------------------------------


def command(name: str, root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """A program exists: by name on PATH, or by its path from the project."""
    path = (os.environ if environ is None else environ).get("PATH")
    program = Path(name).expanduser()
    by_path = len(program.parts) > 1
    executable = shutil.which(str(root / program) if by_path else name, path=path)
    if executable is None:
        return Answer(False, f"there is no program {name}" if by_path else f"{name} is not on PATH")
    return Answer(True, f"{name} is there")


def env(name: str, environ: Mapping[str, str] | None = None) -> Answer:
    """An environment variable is set and not empty."""
    value = (os.environ if environ is None else environ).get(name)
    if value:
        return Answer(True, f"{name} is set")
    return Answer(False, f"{name} is not set" if value is None else f"{name} is empty")


def package(name: str) -> Answer:
    """A Python package is installed, under its distribution name or its import name."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        return Answer(True, f"{name} {version(name)}")
    except (PackageNotFoundError, ValueError):
        pass
    try:
        exists = find_spec(name) is not None
    except (ImportError, ValueError):  # part of a package that is missing, or not a name at all
        exists = False
    return Answer(True, f"{name} can be imported") if exists else Answer(False, f"{name} is not installed")


def path(name: str, root: Path) -> Answer:
    """A file or folder exists; a relative path starts from the project."""
    exists = (root / Path(name).expanduser()).exists()
    return Answer(True, f"{name} is there") if exists else Answer(False, f"there is no {name}")


# -- agents -------------------------------------------------------------------------------------------------


def executor(default: str | None, make: Callable[[str], Any]) -> Answer:
    """An agent could perform a step; nothing is sent to the model."""
    if default is None:
        return Answer(False, "no model is configured")
    try:
        available = make(default).available()
    except Exception as error:
        return Answer(False, f"the provider {default} cannot be used: {' '.join(str(error).split())}")
    if available.ok:
        return Answer(True, f"the provider {default} can be asked")
    return Answer(
        False, f"the provider {default} cannot be asked: {available.why_not or 'it does not say why'}"
    )
