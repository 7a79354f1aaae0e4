"""Whether what a workflow needs is there: git, a repository, programs, variables, packages, paths, a model.

Each check gives `(ok, message)`. A message names things, never a variable's value or a person.
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
    """What a check found."""

    ok: bool
    message: str = ""


TIMEOUT = 60.0
"""Seconds git may take."""
LONGEST_OUTPUT = 64 * 1024
"""Bytes of what git says: a version, a name, a list of remotes."""

QUIET = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
"""For git: words we know, no question to a person, no lock beside somebody's work."""


# -- git ----------------------------------------------------------------------------------------------------


async def git(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """Git can be called."""
    code, said = await _git(root, environ, "version")
    return Answer(True, said) if code == 0 else Answer(False, said or "git does not run")


async def git_repo(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """The project is in a work tree of git."""
    code, said = await _git(root, environ, "rev-parse", "--is-inside-work-tree")
    if code == 0 and said == "true":
        return Answer(True, "the project is in a git work tree")
    return Answer(False, said if code is None else "the project is in no git work tree")


async def git_identity(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """Git knows in whose name to commit, without guessing it from the machine."""
    for who in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        code, said = await _git(root, environ, "-c", "user.useConfigOnly=true", "var", who)
        if code != 0:
            return Answer(
                False, said if code is None else "git knows no name and e-mail address to commit under"
            )
    return Answer(True, "git knows whom to commit as")


async def git_remote(root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """The repository has somewhere to push to."""
    code, said = await _git(root, environ, "remote")
    if code == 0 and said:
        return Answer(True, f"remotes: {', '.join(said.split())}")
    if code == 0:
        return Answer(False, "the repository has no remote")
    return Answer(False, said if code is None else "the project is in no git work tree")


async def _git(root: Path, environ: Mapping[str, str] | None, *words: str) -> tuple[int | None, str]:
    """Exit code and output of git; no code, and why, when it could not be asked."""
    settled = {**(os.environ if environ is None else environ), **QUIET}
    try:
        ran = await run_program(
            ["git", *words], cwd=root, env=settled, timeout=TIMEOUT, head=LONGEST_OUTPUT, stop_when_full=True
        )
    except TimedOut as error:
        return None, str(error).rstrip(".")
    except ToolError as error:
        missing = shutil.which("git", path=settled.get("PATH")) is None
        return None, "git is not on PATH" if missing else error.message.rstrip(".")
    if ran.out_cut:
        return None, f"git answers with more than {LONGEST_OUTPUT:,} bytes"
    return ran.code, ran.out.decode(errors="replace").strip()


# -- the machine --------------------------------------------------------------------------------------------


def command(name: str, root: Path, environ: Mapping[str, str] | None = None) -> Answer:
    """A program can be found: by name on PATH, or by its path from the project."""
    path = (os.environ if environ is None else environ).get("PATH")
    said = Path(name).expanduser()
    by_path = len(said.parts) > 1
    found = shutil.which(str(root / said) if by_path else name, path=path)
    if found is None:
        return Answer(False, f"there is no program {name}" if by_path else f"{name} is not on PATH")
    return Answer(True, f"{name} is there")


def env(name: str, environ: Mapping[str, str] | None = None) -> Answer:
    """An environment variable is set, and not to nothing."""
    value = (os.environ if environ is None else environ).get(name)
    if value:
        return Answer(True, f"{name} is set")
    return Answer(False, f"{name} is not set" if value is None else f"{name} is empty")


def package(name: str) -> Answer:
    """A Python package is installed here: by the name it is installed under, or the one it is imported by."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        return Answer(True, f"{name} {version(name)}")
    except (PackageNotFoundError, ValueError):
        pass
    try:
        there = find_spec(name) is not None
    except (ImportError, ValueError):  # part of a package that is not there; no name at all
        there = False
    return Answer(True, f"{name} can be imported") if there else Answer(False, f"{name} is not installed")


def path(name: str, root: Path) -> Answer:
    """A file or folder is there; a relative path starts from the project."""
    there = (root / Path(name).expanduser()).exists()
    return Answer(True, f"{name} is there") if there else Answer(False, f"there is no {name}")


# -- agents -------------------------------------------------------------------------------------------------


def executor(default: str | None, make: Callable[[str], Any]) -> Answer:
    """Somebody can be asked to perform a step as an agent; nobody is asked anything for that."""
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
