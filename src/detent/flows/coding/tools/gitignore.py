"""The rules of `.gitignore` files: which files and folders git leaves alone, as git itself decides it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from detent.flows.coding.tools.path_pattern import PathPattern

NAME = ".gitignore"
LARGEST = 128 * 1024
"""Bytes read of such a file."""
MOST_RULES = 2000
MOST_SLOW = 100
"""Rules with several `**`; in a file of a stranger, more of them could take for ever."""
DEEPEST = 64
"""Parts of a rule; no path is as deep."""
LONGEST = 4096
"""Characters of a rule; no path is as long."""


class _Rule(NamedTuple):
    pattern: PathPattern
    ignores: bool
    """False for a rule that takes back what an earlier one says."""
    folders_only: bool


class IgnoreFile:
    """The rules of one `.gitignore` file. Git matches bytes, so that `?` is half of an `é`."""

    def __init__(self, content: bytes) -> None:
        lines = content.removeprefix(codecs.BOM_UTF8).decode("latin-1").split("\n")[:MOST_RULES]
        rules = [rule for line in lines if (rule := _rule(line.removesuffix("\r"))) is not None]
        slow = [rule for rule in rules if rule.pattern.expression is None]
        self._rules = [rule for rule in rules if rule not in slow[MOST_SLOW:]] if slow else rules
        self._names = _any(rule.pattern for rule in self._rules if not rule.pattern.anchored)
        self._paths = _any(rule.pattern for rule in self._rules if rule.pattern.anchored)

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """Whether a path below the file's folder is ignored; None if no rule says anything."""
        if not path.isascii():
            path = path.encode("utf-8", "surrogateescape").decode("latin-1")
        if not self._names(path.rpartition("/")[2]) and not self._paths(path):
            return None  # told in one go: usually no rule matches
        for rule in reversed(self._rules):
            if (is_folder or not rule.folders_only) and rule.pattern.matches(path):
                return rule.ignores
        return None

    def __bool__(self) -> bool:
        return bool(self._rules)


class IgnoreRules:
    """The rules that hold in a folder: those of its own file, and those of the folders above it."""

    def __init__(self, files: Iterable[tuple[str, IgnoreFile]] = ()) -> None:
        self._files = tuple(files)
        """Files with the path of their folder, the outermost first."""

    def with_file(self, folder: str, file: IgnoreFile) -> IgnoreRules:
        """The rules with those of one more file, which is further inside."""
        return IgnoreRules((*self._files, (folder, file))) if file else self

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether a path is ignored, given that no folder above it is."""
        for folder, file in reversed(self._files):
            below = path[len(folder) + 1 :] if folder else path
            verdict = file.verdict(below, is_folder)
            if verdict is not None:
                return verdict
        return False


def _any(patterns: Iterable[PathPattern]) -> Callable[[str], object]:
    """A test whether one of these patterns may match a name, or a path if they are anchored."""
    expressions = []
    for pattern in patterns:
        expression = pattern.expression if pattern.anchored else pattern.name_expression
        if expression is None:
            return lambda path: True
        expressions.append(f"(?:{expression})")
    return re.compile("|".join(expressions) or "(?!)", re.DOTALL).match


def _rule(line: str) -> _Rule | None:
    line = _without_trailing_spaces(line)
    if not line or line.startswith("#") or len(line) > LONGEST:
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    parts = pattern.split("/")
    if any(part in ("", ".", "..") for part in parts) or len(parts) > DEEPEST:
        return None  # no path has such parts
    return _Rule(PathPattern(pattern, anchored=anchored, strict=True), ignores, folders_only)


def _without_trailing_spaces(line: str) -> str:
    """A line without the spaces at its end, but for one after a backslash."""
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return text + " " if backslashes % 2 and len(text) < len(line) else text
