"""Walking through the files of a workspace for searches: in the order of paths, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from detent.engine.tools import ToolError
from detent.flows.coding.tools import gitignore
from detent.flows.coding.tools.gitignore import IgnoreFile, IgnoreRules
from detent.flows.coding.tools.path_pattern import PathPattern
from detent.flows.coding.workspace import Entry, Workspace, kind_of

DEEPEST = 200
"""Folders below each other that are searched."""


class Deadline:
    """A moment after which a search stops and returns what it has found."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self.passed = False
        """Whether it has been missed: there may be more to find."""

    def over(self) -> bool:
        """Whether the time is up."""
        self.passed = self.passed or time.monotonic() > self._end
        return self.passed


class Group(NamedTuple):
    """Files and links of a folder that follow each other in the order of paths."""

    folder: Path
    prefix: str
    """What comes before the names in their paths relative to the workspace: empty, or ending with `/`."""
    entries: list[Entry]


@dataclass
class Search:
    """What a walk leaves out, and how much it has left out."""

    workspace: Workspace
    deadline: Deadline
    hidden: bool = False
    """Whether names that begin with a dot are visited."""
    use_gitignore: bool = True
    exclude: tuple[PathPattern, ...] = ()
    """Folders that are left out, relative to where the walk starts."""
    denied: tuple[PathPattern, ...] = ()
    """Paths that are left out with everything below them, relative to the workspace."""
    may_enter: Callable[[str], bool] = field(default=lambda folder: True)
    """Whether a folder, relative to where the walk starts, is worth visiting."""
    with_folders: bool = False
    """Whether folders are among the entries, too."""
    ignored: int = 0
    """Files and folders left out because of `.gitignore`."""
    unread: int = 0
    """Folders that cannot be read, or lie too deep."""

    def walk(self, start: Path) -> Iterator[Group]:
        """The files below a folder, in the order of their paths."""
        root = self.workspace.relative(start)
        if self.denies(root):
            return
        prefix = "" if root == "." else f"{root}/"
        rules = self._rules_above(start) if self.use_gitignore else IgnoreRules()
        stack = [self._groups(start, prefix, len(prefix), rules)]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
            elif isinstance(step, Group):
                yield step
            elif len(stack) > DEEPEST:
                self.unread += 1
            else:
                folder, below, inherited = step
                stack.append(self._groups(folder, below, len(prefix), inherited))
            if self.deadline.over():
                return

    def _groups(
        self, folder: Path, prefix: str, skip: int, rules: IgnoreRules
    ) -> Iterator[Group | tuple[Path, str, IgnoreRules]]:
        """What is in a folder: groups of files, and between them the folders to visit."""
        try:
            entries = self._entries(folder)
        except ToolError:
            self.unread += 1
            return
        if self.use_gitignore and any(entry.name == gitignore.NAME for entry in entries):
            rules = rules.with_file(prefix.rstrip("/"), self._ignore_file(folder))
        files: list[Entry] = []
        for entry in sorted(entries, key=_in_order):
            if self.deadline.over():
                break
            path = prefix + entry.name
            is_folder = entry.kind == "folder"
            if not self._is_visited(entry.name, path, path[skip:], is_folder, rules):
                continue
            if not is_folder or self.with_folders:
                files.append(entry)
            if is_folder and self.may_enter(path[skip:]):
                if files:
                    yield Group(folder, prefix, files)
                    files = []
                yield folder / entry.name, f"{path}/", rules
        if files:
            yield Group(folder, prefix, files)

    def _entries(self, folder: Path) -> list[Entry]:
        entries: list[Entry] = []
        with self.workspace.scanning(folder, self.workspace.relative(folder)) as found:
            for entry in found:
                if self.deadline.over():
                    break
                if (self.hidden or not entry.name.startswith(".") or entry.name == gitignore.NAME) and (
                    not self.workspace.hides_entry(folder, entry)
                ):
                    kind = kind_of(entry)
                    if kind != "other":
                        entries.append(Entry(entry.name, kind))
        return entries

    def _is_visited(self, name: str, path: str, below: str, is_folder: bool, rules: IgnoreRules) -> bool:
        if not self.hidden and name.startswith("."):
            return False
        if is_folder and any(pattern.matches(below) for pattern in self.exclude):
            return False
        if any(pattern.matches(path) for pattern in self.denied):
            return False
        if rules.ignores(path, is_folder):
            self.ignored += 1
            return False
        return True

    def denies(self, path: str) -> bool:
        """Whether a path relative to the workspace, or a folder above it, is denied."""
        return any(pattern.matches_above(path) for pattern in self.denied)

    def _rules_above(self, start: Path) -> IgnoreRules:
        """The rules that the folders above a folder set, from the workspace down."""
        rules = IgnoreRules()
        root = self.workspace.root
        for folder in reversed([folder for folder in start.parents if folder.is_relative_to(root)]):
            path = "" if folder == root else self.workspace.relative(folder)
            rules = rules.with_file(path, self._ignore_file(folder))
        return rules

    def _ignore_file(self, folder: Path) -> IgnoreFile:
        try:
            with self.workspace.reading(folder / gitignore.NAME, gitignore.NAME) as file:
                return IgnoreFile(file.read(gitignore.LARGEST))
        except ToolError:
            return IgnoreFile(b"")

    def notes(self) -> list[str]:
        """What was left out, in sentences."""
        notes = []
        if self.deadline.passed:
            notes.append(
                f"The search was stopped after {self.deadline.seconds:g} seconds and is incomplete. "
                f"Name a folder further inside."
            )
        if self.ignored:
            notes.append(f"Left out because of {gitignore.NAME}: {self.ignored}.")
        if self.unread:
            notes.append(f"Folders that cannot be read: {self.unread}.")
        return notes


def _in_order(entry: Entry) -> str:
    """Sorts entries as the paths of the files in and below them sort."""
    return f"{entry.name}/" if entry.kind == "folder" else entry.name
