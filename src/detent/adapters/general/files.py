"""Files below a project's folder, and no others: where a path leads, and the effect `write_file`.

Links are followed before a path is judged, so that none leads out. Writing is all or nothing: a file is there
whole under its name or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from detent.adapters.anchored import OpenFolder, open_folder
from detent.adapters.guarded import Guarded
from detent.engine.tools import NOT_DONE, UNKNOWN, Tool, ToolError

LARGEST = 10 * 1024 * 1024
"""Bytes of the largest file that is written."""

ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 400, "description": "Its place."},
        "body": {"type": "string", "maxLength": LARGEST, "description": "The text of the file."},
    },
    "required": ["path", "body"],
    "additionalProperties": False,
}
"""The arguments the tool publishes. That a file may be replaced is for step files to say, not for agents."""

_PASSING = frozenset({errno.ENOSPC, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


class Ground:
    """The folders a playbook's functions may touch.

    What is read is looked for in each of `read` in turn; what is written goes to `write`. Nothing below the
    `protected` files and folders is written.
    """

    def __init__(self, write: Path, read: Iterable[Path] = (), protected: Iterable[Path] = ()) -> None:
        self.write = write
        self.read = tuple(dict.fromkeys([*read, write]))
        self.protected = tuple(protected)

    def find(self, said: str) -> Path:
        """The file a path means, for reading; a `ToolError` when there is none or it lies elsewhere."""
        outside = 0
        for folder in self.read:
            path = _below(folder, said)
            if path is None:
                outside += 1
            elif os.path.isfile(path):
                return path
        if outside == len(self.read):
            raise ToolError("outside", f"{_told(said)} lies outside the project folder.")
        raise ToolError("no_file", f"there is no file {_told(said)} in the project folder.")

    def place(self, said: str) -> Path:
        """Where a path leads, for writing; a `ToolError` when nothing may be written there."""
        path = _below(self.write, said)
        root = self.write.resolve()
        if path is None or path == root:
            raise ToolError("outside", f"{_told(said)} is no file below the project folder.")
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        kept = Guarded(lambda: [one.resolve() for one in self.protected])
        if hidden or path in kept:
            raise ToolError(
                "protected", f"{_told(said)} is not for functions to write: settings, steps, hidden files."
            )
        if os.path.isdir(path):
            raise ToolError("folder", f"{_told(said)} is a folder.")
        return path


class Files:
    """Writes text files below a project's folder."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    def write(self, path: str, body: str, replace: bool = False) -> dict[str, Any]:
        """Write a text file. The same text again is no change; another text needs `replace`."""
        place, raw = self.ground.place(path), _bytes(body)
        there = _content(place)
        if there == raw:
            return self._receipt(place, raw, "existing")
        if there is not None and not replace:
            raise _taken(path)
        temporary = f".{place.name[:100]}.{secrets.token_hex(4)}.tmp"
        try:
            # Links put there since the path was judged are not followed.
            with open_folder(self.ground.write.resolve(), place.parent, make=0o777) as folder:
                try:
                    _whole(folder, temporary, raw)
                    if replace:
                        folder.move(temporary, folder, place.name)
                    elif not _named(folder, temporary, place.name) and _content(place) != raw:
                        raise _taken(path)  # another process was quicker
                    with contextlib.suppress(OSError):
                        folder.sync()
                finally:
                    with contextlib.suppress(OSError):
                        folder.remove(temporary, missing_ok=True)
        except OSError as error:
            raise ToolError(
                "not_written", f"{_told(path)} cannot be written ({error.strerror}).",
                transient=error.errno in _PASSING,
            ) from error  # fmt: skip
        return self._receipt(place, raw, "written")

    def probe(self, path: str, body: str, replace: bool = False) -> Any:
        """Whether the file is there with this text."""
        place, raw = self.ground.place(path), _bytes(body)
        there = _content(place)
        if there == raw:
            return self._receipt(place, raw, "existing")
        return UNKNOWN if replace and there is not None else NOT_DONE

    def _receipt(self, place: Path, raw: bytes, status: str) -> dict[str, Any]:
        return {
            "path": place.relative_to(self.ground.write.resolve()).as_posix(),
            "size": len(raw),
            "sha256": hashlib.sha256(raw).hexdigest(),
            "status": status,
        }


def write_file_tool(files: Files) -> Tool:
    """The effect `write_file`."""
    return Tool(
        "write_file", files.write, "effect", probe=files.probe, idempotent=True, blocking=True, private=True,
        description="Write a text file below the project folder.", arguments=ARGUMENTS,
    )  # fmt: skip


def _below(folder: Path, said: str) -> Path | None:
    """Where a path from a folder leads with links followed; None when that is not below the folder."""
    if not isinstance(said, str) or not said.strip():
        raise ToolError("invalid", "a path is a text that is not empty.")
    try:
        root = folder.resolve()
        path = (root / said).resolve()
    except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a null byte
        raise ToolError("invalid", f"{_told(said)} is no usable path.") from None
    return path if path.is_relative_to(root) else None


def _told(said: str) -> str:
    """A path for a message: short and on one line."""
    shown = "".join(char if char.isprintable() else "?" for char in said)
    return f"'{shown if len(shown) <= 120 else shown[:119] + '…'}'"


def _taken(said: str) -> ToolError:
    return ToolError(
        "exists", f"{_told(said)} is there with another text. Say `replace: true` if it may be replaced."
    )


def _bytes(body: str) -> bytes:
    if not isinstance(body, str):
        raise ToolError("invalid", "the body of a file is text.")
    raw = (body if body.endswith("\n") else f"{body}\n").encode("utf-8", "replace")
    if len(raw) > LARGEST:
        raise ToolError("too_large", f"a file has at most {LARGEST:,} bytes, not {len(raw):,}.")
    return raw


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise ToolError("not_read", f"the file that is there cannot be read ({error.strerror}).") from error


def _whole(folder: OpenFolder, temporary: str, raw: bytes) -> None:
    with folder.create(temporary) as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def _named(folder: OpenFolder, temporary: str, name: str) -> bool:
    """Give a finished file its name; False when the name is taken."""
    try:
        folder.link(temporary, folder, name)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with contextlib.suppress(FileNotFoundError):
            folder.stat(name)
            return False
        folder.move(temporary, folder, name)
    return True
