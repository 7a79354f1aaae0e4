"""The tool `read_file`: the text of a file, or of some of its lines, as it is."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from detent.adapters.project.sandbox import quoted
from detent.engine.tools import Tool, ToolError
from detent.flows.coding.tools.spec import DECIDED, SPECS, ToolSettings, with_code_arguments
from detent.flows.coding.tools.text_form import HEAD, counted, is_binary, with_notes
from detent.flows.coding.tools.tree import Deadline

LARGEST = 100_000
"""Bytes that one call returns."""
LARGEST_HASHED = 256 * 1024 * 1024
"""Bytes of the largest file that is read to its end; of a larger one nobody learns hash or length."""
PIECE = 256 * 1024
"""Bytes read at a time."""
SECONDS = 10.0
"""Longest time to look for a line."""


@dataclass
class _Lines:
    """The wanted lines of a file, picked while it goes by in pieces."""

    start: int
    most: int
    number: int = 1
    """The line that the next byte belongs to."""
    taken: bytearray = field(default_factory=bytearray)
    full: bool = False
    """Whether a wanted line did not fit any more."""
    ends_with_newline: bool = True

    @property
    def end(self) -> int:
        """The first line that is not wanted any more."""
        return self.start + self.most

    @property
    def done(self) -> bool:
        """Whether nothing more is wanted."""
        return self.full or self.number >= self.end

    def take(self, piece: bytes) -> None:
        """Go through the next bytes of the file."""
        position = 0
        while self.number < self.start:
            found = piece.find(b"\n", position)
            if found < 0:
                break
            position, self.number = found + 1, self.number + 1
        if self.number >= self.start and not self.full:
            while self.number < self.end and position < len(piece) and not self.full:
                found = piece.find(b"\n", position)
                end = len(piece) if found < 0 else found + 1
                room = LARGEST - len(self.taken)
                self.full = end - position > room
                self.taken += piece[position : min(end, position + room)]
                position = end
                self.number += found >= 0
        self.number += piece.count(b"\n", position)
        self.ends_with_newline = piece.endswith(b"\n")

    @property
    def total(self) -> int:
        """Lines of the file, once it has gone by."""
        return self.number - 1 if self.ends_with_newline else self.number


def read_file(
    settings: ToolSettings,
    *,
    workspace: str,
    filepath: str,
    start_line: int = 1,
    max_lines: int = 2000,
    decided: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The text of a file from a line on."""
    space = settings.workspace(workspace)
    place = space.resolve(filepath)
    space.check_decided(place, filepath, decided)
    lines = _Lines(int(start_line), int(max_lines))
    with space.reading(place, filepath) as file:
        size = os.fstat(file.fileno()).st_size
        sha256 = _read(file, size, lines, filepath)
    taken = bytes(lines.taken)
    if b"\0" in taken:
        raise _binary(filepath, size)
    whole = sha256 is not None
    if whole and lines.start > max(lines.total, 1):
        raise ToolError(
            "invalid_arguments",
            f"{quoted(filepath)} has {counted(lines.total, 'line')}; start_line is {lines.start}.",
        )
    hashed = {"sha256": sha256} if whole else {}
    return {**_content(taken, lines, whole), "path": space.relative(place), **hashed}


def _read(file: BinaryIO, size: int, lines: _Lines, name: str) -> str | None:
    """Let a file go by; its SHA-256 if it was read to its end."""
    deadline, digest = Deadline(SECONDS), hashlib.sha256()
    piece = file.read(HEAD)
    if is_binary(piece):
        raise _binary(name, size)
    while piece:
        lines.take(piece)
        digest.update(piece)
        if lines.done and size > LARGEST_HASHED:
            return None
        if deadline.over():
            if lines.done:
                return None
            raise ToolError(
                "timeout", f"line {lines.start} of {quoted(name)} was not reached in {SECONDS:g} seconds."
            )
        piece = file.read(PIECE)
    return digest.hexdigest()


def _content(taken: bytes, lines: _Lines, whole: bool) -> dict[str, Any]:
    notes = []
    if lines.full:
        taken = taken[: taken.rfind(b"\n") + 1] or taken
    is_cut = lines.full and not taken.endswith(b"\n")
    next_line = lines.start + taken.count(b"\n") + (not taken.endswith(b"\n") if taken else 0)
    if is_cut:
        notes.append(f"Line {lines.start} is longer than {LARGEST:,} bytes and was cut.")
    more = lines.full or not whole or next_line <= lines.total
    if more and next_line > lines.start:
        shown = (
            f"Line {lines.start} is"
            if next_line == lines.start + 1
            else f"Lines {lines.start} to {next_line - 1} are"
        )
        of = f"; the file has {lines.total:,}" if whole else ""
        going_on = f" Go on with start_line={next_line}." if not whole or next_line <= lines.total else ""
        notes.append(f"{shown} shown{of}.{going_on}")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(taken, final=not is_cut)
    bad = text.count("\ufffd") - taken.count("\ufffd".encode())
    if bad:
        notes.append(f"Bytes that are no UTF-8 are shown as \ufffd: {bad}. Editing other parts keeps them.")
    return {"content": with_notes(text, notes), "truncated": more, "count": next_line - lines.start}


def _binary(name: str, size: int) -> ToolError:
    return ToolError("binary", f"{quoted(name)} is no text file ({size:,} bytes); it is not read.")


def read_file_tool(settings: ToolSettings) -> Tool:
    """The tool, for the settings of a project."""
    spec = SPECS["read_file"]
    return Tool(
        spec.name, partial(read_file, settings), "query", blocking=True, description=spec.description,
        arguments=with_code_arguments(spec, decided=DECIDED),
    )  # fmt: skip
