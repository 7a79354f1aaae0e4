"""What the command of a check runs: files it names, and those in which its programs find their work.

A check that passes proves less if these were edited. Nothing is certain here: what a Makefile or a script
calls in its turn is not looked at, nor are installed programs.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from detent.flows.coding.test_files import is_test_file

_MAKE = ("Makefile", "makefile", "GNUmakefile")
_NPM = ("package.json", ".npmrc", ".yarnrc.yml", "pnpm-workspace.yaml", "bunfig.toml")
_PYTHON = ("pyproject.toml", "setup.cfg", "sitecustomize.py", "usercustomize.py")
RUN_BY: Mapping[str, frozenset[str]] = {
    program: frozenset(names)
    for programs, names in (
        (("make", "gmake"), _MAKE),
        (("npm", "npx", "yarn", "pnpm", "bun"), _NPM),
        (("pytest", "tox", "nox"), _PYTHON),
        (("gradle", "gradlew"), ("build.gradle", "build.gradle.kts")),
        (("just",), ("justfile", "Justfile", ".justfile")),
        (("task",), ("Taskfile.yml", "Taskfile.yaml")),
        (("rake",), ("Rakefile",)),
        (("mvn",), ("pom.xml",)),
        (("composer",), ("composer.json",)),
        (("cargo",), ("Cargo.toml", "build.rs")),
        (("cmake", "ctest"), ("CMakeLists.txt",)),
        (("deno",), ("deno.json", "deno.jsonc")),
        (("mix",), ("mix.exs",)),
    )
    for program in programs
}
"""Files in which programs find what they are to run, by program."""
INCLUDED = {"make": ".mk", "gmake": ".mk"}
"""Ends of the names of files that such files take in."""
_MOVES = frozenset({"cd", "pushd"})
_LOOKS = frozenset({"test", "[", "[[", "ls", "stat", "grep", "rg", "cat", "head", "tail", "wc", "file"})
"""Programs that only look at the files they are given: those are what is checked, and not what checks."""
_OPERATORS = ";&|()<>`\n"
_SEPARATORS = re.compile(r"[\s;&|()<>`'\"]+")
_EXPANDED = ("/", "$", "~")
_DEEPEST = 3
"""How far a command within a command is read: `sh -c 'sh -c …'`."""


class CheckParts(NamedTuple):
    """What tells the files that a check's command runs."""

    files: frozenset[str]
    """Paths as the command's words have them, normalised; a module as the files it may be in."""
    recipes: frozenset[str]
    """Names of files in which its programs find their work."""
    ends: tuple[str, ...]
    """Ends of names of such files."""
    moves: bool
    """It changes its folder, so that its paths may be those of any folder."""

    def has(self, path: str) -> bool:
        """Whether a path relative to the workspace is one of tests, or of a file that the command runs."""
        name = PurePosixPath(path).name
        if is_test_file(path) or name in self.recipes or name.endswith(self.ends):
            return True
        path = os.path.normpath(path)
        return any(_stands_for(word, path, self.moves) for word in self.files)


@lru_cache(maxsize=64)
def parts_of(command: str) -> CheckParts:
    """The parts of a check with this command."""
    words = list(_running(_words(command, _DEEPEST)))
    programs = {PurePosixPath(word).name for word in words}
    modules = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"]
    return CheckParts(
        frozenset(os.path.normpath(word) for word in [*words, *_files_of(modules)] if word),
        frozenset().union(*(RUN_BY.get(program, ()) for program in programs)),
        tuple(sorted({INCLUDED[program] for program in programs & INCLUDED.keys()})),
        not _MOVES.isdisjoint(words),
    )


def _words(command: str, depth: int) -> Iterator[str]:
    """The words of a command, and of commands within it."""
    try:
        reader = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
        reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
        words = list(reader)
    except ValueError:
        words = _SEPARATORS.split(command)
    for word in words:
        if depth and word != command and _SEPARATORS.search(word):
            yield from _words(word, depth - 1)
        elif word:
            yield word.partition("=")[2] if word.startswith("-") and "=" in word else word


def _running(words: Iterator[str]) -> Iterator[str]:
    """These words without the arguments of programs that only look at files."""
    begins, looks = True, False
    for word in words:
        if _SEPARATORS.fullmatch(word):
            begins, looks = True, False
            continue
        if begins:
            looks = word in _LOOKS
            begins = word in ("!", "if", "while", "then", "do", "else")
        if not looks:
            yield word


def _files_of(modules: list[str]) -> Iterator[str]:
    """The files in which `python -m` may find modules in the folder that it is started in."""
    for module in modules:
        path = module.replace(".", "/")
        yield from (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")


def _stands_for(word: str, path: str, moves: bool) -> bool:
    """Whether a word of the command stands for the file of this path."""
    if word == path or (moves and path.endswith(f"/{word}")):
        return True
    return word.startswith(_EXPANDED) and word.endswith(f"/{path}")
