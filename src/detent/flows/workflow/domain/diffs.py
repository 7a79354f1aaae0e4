"""Reads unified diffs of git: the files, their changes, and the lines added and removed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Change = Literal["added", "changed", "removed", "renamed"]

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_NAMED = re.compile(
    r"^\s*(?:export\s+)?(?:default\s+)?(?:pub\s+)?(?:async\s+)?"
    r"(?:def|class|function|func|fn|struct|interface|enum|trait)\s+([A-Za-z_][A-Za-z0-9_]{2,40})"
)


@dataclass(slots=True)
class FileChange:
    """The change of one file."""

    path: str
    change: Change = "changed"
    old_path: str | None = None
    added: int | None = 0
    """Lines added; None if the number is unknown or the file is binary."""
    removed: int | None = 0
    binary: bool = False
    brings: list[str] = field(default_factory=list)
    """Functions and classes in added lines only."""
    takes: list[str] = field(default_factory=list)
    """Functions and classes in removed lines only."""


def read_diff(diff: str) -> list[FileChange]:
    """Return the files of a diff, in order; a diff that is cut off is read as far as it goes."""
    files: list[FileChange] = []
    current: FileChange | None = None
    left = right = 0
    brought: list[str] = []
    taken: list[str] = []

    def close() -> None:
        if current is not None:
            current.brings = [name for name in dict.fromkeys(brought) if name not in taken]
            current.takes = [name for name in dict.fromkeys(taken) if name not in brought]
        brought.clear()
        taken.clear()

    for line in diff.split("\n"):
        if current is not None and (left > 0 or right > 0):
            # Inside a hunk only the first character of a line counts.
            if line.startswith("+"):
                right -= 1
                current.added = (current.added or 0) + 1
                brought += _NAMED.findall(line[1:])
                continue
            if line.startswith("-"):
                left -= 1
                current.removed = (current.removed or 0) + 1
                taken += _NAMED.findall(line[1:])
                continue
            if line.startswith("\\"):
                continue
            if line.startswith(" ") or not line:
                left, right = left - 1, right - 1
                continue
            left = right = 0
        if line.startswith("diff --git "):
            close()
            current = FileChange(_second_path(line[len("diff --git ") :]))
            left = right = 0
            files.append(current)
        elif current is None:
            continue
        elif (hunk := _HUNK.match(line)) is not None:
            left, right = (1 if part is None else int(part) for part in hunk.groups())
        else:
            _header(current, line)
    close()
    return files


def _header(current: FileChange, line: str) -> None:
    if line.startswith("new file mode"):
        current.change = "added"
    elif line.startswith("deleted file mode"):
        current.change = "removed"
    elif line.startswith("rename from "):
        current.change, current.old_path = "renamed", _unquoted(line[len("rename from ") :])
    elif line.startswith("rename to "):
        current.path = _unquoted(line[len("rename to ") :])
    elif line.startswith("+++ ") and line[4:] != "/dev/null":
        current.path = _unquoted(line[4:].removesuffix("\t")).removeprefix("b/")
    elif line.startswith("--- ") and line[4:] != "/dev/null" and current.change == "removed":
        current.path = _unquoted(line[4:].removesuffix("\t")).removeprefix("a/")
    elif line.startswith(("Binary files ", "GIT binary patch")):
        current.binary, current.added, current.removed = True, None, None


def _second_path(paths: str) -> str:
    """The path after the change, from `a/old b/new`; later lines of the diff may correct it."""
    if paths.endswith('"'):
        start = paths.rfind(' "b/')
        return _unquoted(paths[start + 1 :]).removeprefix("b/") if start >= 0 else paths
    # Without a rename both halves are alike.
    half = len(paths) // 2
    if paths[2:half] == paths[half + 3 :] and paths[half : half + 1] == " ":
        return paths[half + 3 :]
    start = paths.rfind(" b/")
    return paths[start + 3 :] if start >= 0 else paths


def _unquoted(path: str) -> str:
    """A path that git may have quoted like a string in C."""
    if not (path.startswith('"') and path.endswith('"') and len(path) > 1):
        return path
    raw, at, inner = bytearray(), 0, path[1:-1]
    while at < len(inner):
        char = inner[at]
        if char != "\\":
            raw += char.encode("utf-8", "surrogatepass")
            at += 1
        elif (octal := re.match(r"[0-7]{3}", inner[at + 1 : at + 4])) is not None:
            raw.append(int(octal[0], 8) & 0xFF)
            at += 4
        else:
            raw.append(_ESCAPES.get(inner[at + 1 : at + 2], 63))
            at += 2
    return raw.decode("utf-8", "replace")


def changes_of(files: Iterable[Any], diff: str) -> list[FileChange]:
    """Return the changes of files, given as paths or as mappings with counts, completed from a diff.

    A file that is missing from the diff, which may be cut off, has no counts other than its own.
    """
    read = {change.path: change for change in read_diff(diff)}
    changes: dict[str, FileChange] = {}
    for file in files:
        path = str(file.get("path", "")) if isinstance(file, Mapping) else str(file)
        if not path:
            continue
        change = read.get(path) or FileChange(path, added=None, removed=None)
        if isinstance(file, Mapping):
            for name in ("added", "removed"):
                if isinstance(file.get(name), int):
                    setattr(change, name, file[name])
        changes[path] = change
    return list((changes or read).values())
