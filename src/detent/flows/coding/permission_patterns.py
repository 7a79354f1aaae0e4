"""Patterns `TOOL` and `TOOL:PATTERN` of calls that a person's rules allow or deny.

For tools on files the pattern is one of paths, relative to the workspace, matched against the place a path
leads to. For commands it is the words of the command; `*` at its end stands for any further words.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from detent.engine.tools import ToolError
from detent.flows.coding.tools.path_pattern import PathPattern, alternatives
from detent.flows.coding.tools.spec import SPECS
from detent.kernel.errors import ConfigurationError, nearest

PATH_OF: Mapping[str, str] = {
    "read_file": "filepath", "write_file": "filepath", "update_file": "filepath", "list_dir": "directory",
    "glob": "directory", "grep": "directory",
}  # fmt: skip
"""The argument that is a path, of each tool that has one."""
COMMAND = "bash"
ANY_WORDS = "*"

_SHELL = frozenset(";&|`$<>(){}!\\")
"""Characters that make a shell do more than run the one program that a command begins with."""
_OPERATORS = re.compile(r"\s\d*[<>]|[;&|`$<>(){}!\n]")
"""Where a shell may begin another program, or no longer gives words to this one."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
_STARTERS = frozenset({
    "sudo", "doas", "env", "command", "builtin", "exec", "eval", "nohup", "time", "nice", "ionice", "xargs",
    "setsid", "stdbuf", "timeout", "find", "busybox", "sh", "bash", "dash", "zsh", "ksh", "if", "then",
    "elif", "else", "while", "until", "do", "not",
})  # fmt: skip
"""Programs and words of a shell that run a program named further on."""


class Rule(NamedTuple):
    """A pattern, read."""

    text: str
    """As it was written."""
    tool: str
    paths: tuple[PathPattern, ...] = ()
    """The same pattern for each alternative in braces."""
    words: tuple[str, ...] | None = None
    """The words of a command; the last may be `*`."""

    @property
    def is_bare(self) -> bool:
        """Whether it is about every call of the tool."""
        return not self.paths and self.words is None


def parse_rule(text: str, further: Iterable[str] = ()) -> Rule:
    """A pattern, read. `further` are the names of tools besides those of the flow.

    Raises:
        ConfigurationError: it means nothing.
    """
    return _parsed(text, tuple(sorted(further)))


def parse_protected(pattern: str, tool: str = "write_file") -> Rule:
    """A pattern of paths that no file tool may change, as a rule about one of these.

    Raises:
        ConfigurationError: it is no pattern of paths in a workspace.
    """
    try:
        return _parsed(f"{tool}:{pattern}", ())
    except ConfigurationError:
        raise ConfigurationError(
            f"'{pattern}' cannot be protected: write a path, or a pattern of paths, from the workspace on, "
            f"such as 'tests/**'."
        ) from None


@lru_cache(maxsize=1024)
def _parsed(text: str, further: tuple[str, ...]) -> Rule:
    name, colon, pattern = text.strip().partition(":")
    known = [*SPECS, *further]
    if name not in known:
        hint = " To allow everything, say --yes." if name == "*" else nearest(name, known)
        raise ConfigurationError(
            f"'{text}' is no rule: there is no tool '{name}'.{hint} Tools: {', '.join(known)}."
        )
    if not colon:
        return Rule(text, name)
    if name == COMMAND:
        return Rule(text, name, words=_words(text, pattern))
    if name in PATH_OF:
        return Rule(text, name, paths=_paths(text, pattern))
    takers = ", ".join([*PATH_OF, COMMAND])
    raise ConfigurationError(f"'{text}' is no rule: '{name}' takes no pattern. These do: {takers}.")


def _words(text: str, pattern: str) -> tuple[str, ...]:
    example = "Write the words of a command, such as 'bash:make test' or 'bash:git log *'."
    words = split_command(pattern)
    if words is None:
        raise ConfigurationError(
            f"'{text}' is no rule: it holds shell syntax or an open quotation mark, and matches no command. "
            f"{example}"
        )
    if not words:
        raise ConfigurationError(f"'{text}' is no rule: the command is missing. {example}")
    if any(ANY_WORDS in word for word in words[:-1]) or (ANY_WORDS in words[-1] and words[-1] != ANY_WORDS):
        raise ConfigurationError(
            f"'{text}' is no rule: * stands for whole words, at the end of the command only. {example}"
        )
    return tuple(words)


def _paths(text: str, pattern: str) -> tuple[PathPattern, ...]:
    example = "Write it from the workspace on, such as 'write_file:src/**' or 'update_file:*.py'."
    pattern = pattern.strip()
    parts = pattern.split("/")
    if pattern.startswith(("/", "~")) or ".." in parts:
        raise ConfigurationError(f"'{text}' is no rule: its path leads out of the workspace. {example}")
    if not pattern.strip("./"):
        raise ConfigurationError(f"'{text}' is no rule: the path is missing. {example}")
    if pattern.endswith("/"):
        pattern += "**"
    try:
        return tuple(PathPattern(choice) for choice in alternatives(pattern))
    except ToolError as error:
        raise ConfigurationError(f"'{text}' is no rule: {error.message}") from None


def split_command(command: str) -> list[str] | None:
    """The words of a command that runs one program and nothing else; None if it may do more."""
    if _SHELL.intersection(command) or not all(char == " " or char.isprintable() for char in command):
        return None
    try:
        return shlex.split(command)
    except ValueError:
        return None


def allows_command(rule: Rule, args: Mapping[str, Any], root: str = ".") -> bool:
    """Whether a rule for commands is about exactly this one, in the workspace's `root`.

    In another folder the same words may mean another program: `make test` runs the Makefile that is there.
    """
    if rule.words is None:
        return True
    if PurePosixPath(str(args.get("cwd", "."))) not in (PurePosixPath("."), PurePosixPath(root)):
        return False
    command = args.get("command")
    words = split_command(command) if isinstance(command, str) and not args.get("env") else None
    return words is not None and _fits(rule.words, words)


def denies_command(rule: Rule, args: Mapping[str, Any]) -> bool:
    """Whether a rule for commands is about a program that this one runs, as far as can be seen.

    A shell can hide what it runs; a rule that denies is no wall.
    """
    if rule.words is None:
        return True
    command = args.get("command")
    return isinstance(command, str) and any(_runs(words, rule.words) for words in _readings(command))


def _fits(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if pattern[-1] == ANY_WORDS:
        count = len(pattern) - 1
        return tuple(words[:count]) == tuple(pattern[:count])
    return tuple(words) == tuple(pattern)


def _readings(command: str) -> Iterator[list[str]]:
    """The words of each part of a command line, as a shell may read them."""
    for part in _OPERATORS.split(command):
        yield re.sub(r"[\"'\\]", "", part).split()
        with contextlib.suppress(ValueError):
            yield shlex.split(part)


def _runs(words: list[str], pattern: Sequence[str]) -> bool:
    """Whether these words seem to run a program as a pattern describes it."""
    is_further = False
    for number, word in enumerate(words):
        program = PurePosixPath(word).name
        following = [program, *words[number + 1 : number + 1 + len(pattern)]]
        if _fits(pattern, following) or _fits(pattern, [word, *following[1:]]):
            return True
        is_further = is_further or program in _STARTERS
        if not is_further and not _ASSIGNMENT.fullmatch(word):
            return False
    return False


def matches_path(rule: Rule, path: str) -> bool:
    """Whether a rule that allows is about a path, which is resolved and relative to the workspace."""
    return not rule.paths or any(pattern.matches(path) for pattern in rule.paths)


def denies_path(rule: Rule, path: str) -> bool:
    """Whether a rule that denies is about a path or a folder above it, however its letters are written."""
    if not rule.paths:
        return True
    patterns = [PathPattern(pattern.text, case_sensitive=False) for pattern in rule.paths]
    return any(pattern.matches_above(path) for pattern in patterns)
