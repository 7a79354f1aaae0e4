"""Reading a unified diff as git writes it: which files, what became of them, how many lines came and went."""

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
    """What a diff says of one file."""

    path: str
    change: Change = "changed"
    old_path: str | None = None
    added: int | None = 0
    """Lines; None when they are not known, or are none."""
    removed: int | None = 0
    binary: bool = False
    brings: list[str] = field(default_factory=list)
    """Functions and classes that stand in added lines only."""
    takes: list[str] = field(default_factory=list)
    """Those that stand in removed lines only."""


def read_diff(diff: str) -> list[FileChange]:
    """The files of a diff, in its order. A diff cut off in the middle is read as far as it goes."""
    found: list[FileChange] = []
    here: FileChange | None = None
    left = right = 0
    came: list[str] = []
    went: list[str] = []

    def close() -> None:
        if here is not None:
            here.brings = [name for name in dict.fromkeys(came) if name not in went]
            here.takes = [name for name in dict.fromkeys(went) if name not in came]
        came.clear()
        went.clear()

    for line in diff.split("\n"):
        if here is not None and (left > 0 or right > 0):
            # Inside a hunk the first character counts, whatever the rest of the line looks like.
            if line.startswith("+"):
                right -= 1
                here.added = (here.added or 0) + 1
                came += _NAMED.findall(line[1:])
                continue
            if line.startswith("-"):
                left -= 1
                here.removed = (here.removed or 0) + 1
                went += _NAMED.findall(line[1:])
                continue
            if line.startswith("\\"):
                continue
            if line.startswith(" ") or not line:
                left, right = left - 1, right - 1
                continue
            left = right = 0
        if line.startswith("diff --git "):
            close()
            here = FileChange(_second_path(line[len("diff --git ") :]))
            left = right = 0
            found.append(here)
        elif here is None:
            continue
        elif (hunk := _HUNK.match(line)) is not None:
            left, right = (1 if part is None else int(part) for part in hunk.groups())
        else:
            _header(here, line)
    close()
    return found


def _header(here: FileChange, line: str) -> None:
    if line.startswith("new file mode"):
        here.change = "added"
    elif line.startswith("deleted file mode"):
        here.change = "removed"
    elif line.startswith("rename from "):
        here.change, here.old_path = "renamed", _unquoted(line[len("rename from ") :])
    elif line.startswith("rename to "):
        here.path = _unquoted(line[len("rename to ") :])
    elif line.startswith("+++ ") and line[4:] != "/dev/null":
        here.path = _unquoted(line[4:].removesuffix("\t")).removeprefix("b/")
    elif line.startswith("--- ") and line[4:] != "/dev/null" and here.change == "removed":
        here.path = _unquoted(line[4:].removesuffix("\t")).removeprefix("a/")
    elif line.startswith(("Binary files ", "GIT binary patch")):
        here.binary, here.added, here.removed = True, None, None


def _second_path(said: str) -> str:
    """The path after the change, of `a/old b/new`; later lines say it more clearly where there are any."""
    if said.endswith('"'):
        start = said.rfind(' "b/')
        return _unquoted(said[start + 1 :]).removeprefix("b/") if start >= 0 else said
    # Without a rename both halves are alike.
    half = len(said) // 2
    if said[2:half] == said[half + 3 :] and said[half : half + 1] == " ":
        return said[half + 3 :]
    start = said.rfind(" b/")
    return said[start + 3 :] if start >= 0 else said


def _unquoted(said: str) -> str:
    """A path as git quotes it in C's way where it holds quotes, tabs or line ends."""
    if not (said.startswith('"') and said.endswith('"') and len(said) > 1):
        return said
    raw, at, inner = bytearray(), 0, said[1:-1]
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
    """What is known of files: named as paths or with counts, and what the diff says of them.

    A file the diff does not (any longer) speak of has no counts unless it brings them.
    """
    read = {one.path: one for one in read_diff(diff)}
    found: dict[str, FileChange] = {}
    for said in files:
        path = str(said.get("path", "")) if isinstance(said, Mapping) else str(said)
        if not path:
            continue
        one = read.get(path) or FileChange(path, added=None, removed=None)
        if isinstance(said, Mapping):
            for name in ("added", "removed"):
                if isinstance(said.get(name), int):
                    setattr(one, name, said[name])
        found[path] = one
    return list(found.values()) if found else list(read.values())
