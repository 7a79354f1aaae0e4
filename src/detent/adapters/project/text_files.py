"""The effect `write_file`: text files below a project's folder, for functions of any playbook.

Unlike the actions of workflows these functions have no undo, so they only create files, and replace one only
where a step file says so. Files may be read from several folders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from detent.adapters.guarded import Guarded
from detent.adapters.project.sandbox import OWN_FOLDER, Sandbox, quoted
from detent.engine.tools import NOT_DONE, UNKNOWN, Tool, ToolError

LARGEST = 10 * 1024 * 1024
"""Bytes of the largest file that may be written."""

ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 400, "description": "Its place."},
        "body": {"type": "string", "maxLength": LARGEST, "description": "The text of the file."},
    },
    "required": ["path", "body"],
    "additionalProperties": False,
}
"""The arguments the tool publishes. Only step files may say that a file is replaced, not agents."""


class TextFiles:
    """Finds files in each of `read` in turn, and writes below `folder` except to `protected` files."""

    def __init__(self, folder: Path, read: Iterable[Path] = (), protected: Iterable[Path] = ()) -> None:
        self._sandbox = _sandbox(folder)
        self._read = [_sandbox(path) for path in dict.fromkeys([*read, folder])]
        self._protected = Guarded(lambda: [path.resolve() for path in protected])

    def find(self, path: str) -> Path:
        """The file a path stands for; a `ToolError` when there is none or it lies elsewhere."""
        errors: list[ToolError] = []
        for sandbox in self._read:
            try:
                return sandbox.readable(path)
            except ToolError as error:
                errors.append(error)
        worst = next((error for error in errors if error.code not in ("outside", "no_file")), None)
        if worst is not None:
            raise worst
        if all(error.code == "outside" for error in errors):
            raise errors[0]
        raise ToolError("no_file", f"there is no file {quoted(path)} in the project folder.")

    def write(self, path: str, body: str, replace: bool = False) -> dict[str, Any]:
        """Write a text file. Writing the same text again changes nothing; another text needs `replace`."""
        place, raw = self._writable(path), _bytes(body)
        current = self._content(place)
        if current == raw:
            return self._receipt(place, raw, "existing")
        exists_message = (
            f"{quoted(path)} already exists with another text. Set `replace: true` if it may be replaced."
        )
        if current is not None and not replace:
            raise ToolError("exists", exists_message)
        written = self._sandbox.put(place, raw, replace=replace)
        if not written and self._content(place) != raw:  # another process was quicker
            raise ToolError("exists", exists_message)
        return self._receipt(place, raw, "written")

    def probe(self, path: str, body: str, replace: bool = False) -> Any:
        """Whether the file has this text."""
        place, raw = self._writable(path), _bytes(body)
        current = self._content(place)
        if current == raw:
            return self._receipt(place, raw, "existing")
        return UNKNOWN if replace and current is not None else NOT_DONE

    def _writable(self, path: str) -> Path:
        """The resolved path, for writing; a `ToolError` when nothing may be written there."""
        place, root = self._sandbox.inside(path), self._sandbox.root
        if place == root:
            raise ToolError("outside", f"{quoted(path)} is no file below the project folder.")
        hidden = any(part.startswith(".") for part in place.relative_to(root).parts)
        if hidden or place in self._protected:
            raise ToolError(
                "protected", f"{quoted(path)} is not for functions to write: settings, steps, hidden files."
            )
        if place.is_dir():
            raise ToolError("folder", f"{quoted(path)} is a folder.")
        return place

    def _content(self, place: Path) -> bytes | None:
        try:
            return place.read_bytes() if place.is_file() else None
        except OSError as error:
            raise ToolError("not_read", f"the existing file cannot be read ({error.strerror}).") from error

    def _receipt(self, place: Path, raw: bytes, status: str) -> dict[str, Any]:
        return {
            "path": self._sandbox.relative(place),
            "size": len(raw),
            "sha256": hashlib.sha256(raw).hexdigest(),
            "status": status,
        }


def write_file_tool(files: TextFiles) -> Tool:
    """The effect `write_file`."""
    return Tool(
        "write_file", files.write, "effect", probe=files.probe, idempotent=True, blocking=True, private=True,
        description="Write a text file below the project folder.", arguments=ARGUMENTS,
    )  # fmt: skip


def _sandbox(folder: Path) -> Sandbox:
    return Sandbox(folder, folder / OWN_FOLDER, beside=True)


def _bytes(body: str) -> bytes:
    if not isinstance(body, str):
        raise ToolError("invalid", "the body of a file is text.")
    raw = (body if body.endswith("\n") else f"{body}\n").encode("utf-8", "replace")
    if len(raw) > LARGEST:
        raise ToolError("too_large", f"a file has at most {LARGEST:,} bytes, not {len(raw):,}.")
    return raw
