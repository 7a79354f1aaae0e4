"""The project's files: read, list, inspect, write, delete and restore them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from fnmatch import translate
from pathlib import Path
from typing import Any, BinaryIO, Literal

from detent.adapters.project.backups import Backups
from detent.adapters.project.effect_notes import EffectNotes
from detent.adapters.project.sandbox import PIECE, Sandbox, certain, quoted
from detent.engine.tools import EffectCall, Tool, ToolError

LARGEST_TEXT = 10 * 1024 * 1024
"""Bytes of the largest text that may be written."""
MOST_LOOKED_AT = 200_000
"""Files a listing may visit."""

IfExists = Literal["replace", "fail", "append"]


class Files:
    """The files of one project."""

    def __init__(self, sandbox: Sandbox, notes: EffectNotes, backups: Backups) -> None:
        self.sandbox = sandbox
        self._notes = notes
        self._backups = backups

    # -- queries --------------------------------------------------------------------------------------------

    def read(self, path: str, encoding: str = "utf-8", max_bytes: int = 1_000_000) -> dict[str, Any]:
        """The text of a project file, with its size and SHA-256."""
        place = self.sandbox.readable(path)
        raw = self.sandbox.content(place, max_bytes, path)
        try:
            text = raw.decode(encoding)
        except LookupError:
            raise ToolError("invalid", f"there is no encoding {quoted(encoding)}.") from None
        except UnicodeDecodeError as error:
            raise ToolError(
                "not_text", f"{quoted(path)} is no {encoding} text (byte {error.start})."
            ) from None
        return {"path": path, "text": text, "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}

    def listing(self, pattern: str = "**/*", root: str = ".", limit: int = 1000) -> dict[str, Any]:
        """Project files whose path below `root` matches a pattern (*, ?, [..], ** for folders), sorted."""
        matches = _matcher(pattern)
        base = self.sandbox.folder(root)
        files = [
            self.sandbox.relative(place)
            for place in self._walk(base)
            if matches(place.relative_to(base).as_posix())
        ]
        files.sort()
        most = max(0, limit)
        return {"files": files[:most], "count": len(files), "truncated": len(files) > most}

    def stat(self, path: str) -> dict[str, Any]:
        """What a path leads to: kind (file, folder, none), size, SHA-256, and the target of links."""
        place = self.sandbox.inside(path)
        if self.sandbox.hidden(place):
            raise ToolError("protected", f"{quoted(path)} is not for actions.")
        facts: dict[str, Any] = {"path": path, "real": self.sandbox.relative(place), "bytes": None}
        if place.is_file():
            size, sha256 = self.sandbox.fingerprint(place)
            return {**facts, "exists": True, "kind": "file", "bytes": size, "sha256": sha256}
        exists = place.exists()
        return {**facts, "exists": exists, "kind": "folder" if exists else "none", "sha256": None}

    def _walk(self, base: Path) -> Iterator[Path]:
        """Files below a folder; links to folders are not followed, links to files must stay inside."""
        count = 0
        for folder_path, folders, names in os.walk(base):
            folder = Path(folder_path)
            folders[:] = sorted(name for name in folders if not self.sandbox.hidden(folder / name))
            for name in names:
                count += 1
                if count > MOST_LOOKED_AT:
                    raise ToolError(
                        "too_many", f"there are more than {MOST_LOOKED_AT:,} files; name a folder."
                    )
                place = folder / name
                if place.is_symlink():
                    try:
                        target = place.resolve()
                    except (OSError, RuntimeError):
                        continue
                    if not target.is_relative_to(self.sandbox.root) or self.sandbox.hidden(target):
                        continue
                if place.is_file() and not self.sandbox.hidden(place):
                    yield place

    # -- effects --------------------------------------------------------------------------------------------

    def write(
        self,
        call: EffectCall,
        path: str,
        text: str | None = None,
        source: str | None = None,
        spool: str | None = None,
        if_exists: IfExists = "replace",
        sha256: str | None = None,
    ) -> dict[str, Any]:
        """Write a project file: a text, the content of another file, or a fetched spool.

        With `sha256`, only if the file's content still has that SHA-256.
        """
        if [text, source, spool].count(None) != 2:
            raise ToolError("invalid", "say exactly one of text, source and spool.")
        with certain(path):
            return self._write(call, path, self._content(text, source, spool), source, if_exists, sha256)

    def _write(
        self,
        call: EffectCall,
        path: str,
        fresh: _Content,
        source: str | None,
        if_exists: IfExists,
        sha256: str | None,
    ) -> dict[str, Any]:
        place = self.sandbox.writable(path)
        self.sandbox.check_writer(call, place)
        current = self.sandbox.fingerprint(place) if place.is_file() else None
        note = self._notes.get(call)
        if note is not None and current is not None and current[1] == note["after"]:
            return _written(path, *current, note["existed"])
        if source is not None and self.sandbox.inside(source) == place and current is not None:
            return _written(path, *current, True)
        if current is not None and if_exists == "fail":
            raise ToolError(
                "exists", f"{quoted(path)} already exists. Set if_exists: replace if it may be replaced."
            )
        if sha256 is not None and (current is None or current[1] != sha256):
            raise ToolError("changed", f"{quoted(path)} was changed meanwhile; read it again.")
        if note is not None and if_exists == "append" and (current or (0, ""))[1] != note["before"]:
            raise ToolError("changed", f"{quoted(path)} was changed while something was appended to it.")
        if if_exists == "append" and current is not None:
            fresh = _Joined(_OfFile(self.sandbox, place), fresh)
        size, after = fresh.measured()
        before = current[1] if current is not None else ""
        self._notes.put(call, {"existed": current is not None, "before": before, "after": after})
        self._backups.save(call.root, place)
        self.sandbox.write(place, fresh.into, fresh.mode)
        return _written(path, size, after, current is not None)

    def _content(self, text: str | None, source: str | None, spool: str | None) -> _Content:
        if text is not None:
            try:
                raw = text.encode()
            except UnicodeEncodeError:
                raise ToolError(
                    "invalid", "the text holds half a character, which UTF-8 has no place for."
                ) from None
            if len(raw) > LARGEST_TEXT:
                raise ToolError("too_large", f"a text has at most {LARGEST_TEXT:,} bytes, not {len(raw):,}.")
            return _Bytes(raw)
        if source is not None:
            return _OfFile(self.sandbox, self.sandbox.readable(source), keeps_mode=True)
        if spool is None or not re.fullmatch("[0-9a-f]{64}", spool):
            raise ToolError("invalid", "a spool is named by its SHA-256.")
        place = self.sandbox.state / "spools" / spool
        if not place.is_file():
            raise ToolError("gone", "what was fetched is no longer there; fetch it again.")
        return _OfFile(self.sandbox, place)

    def delete(
        self, call: EffectCall, path: str, missing_ok: bool = False, sha256: str | None = None
    ) -> dict[str, Any]:
        """Delete a project file; with `sha256`, only if its content still has that SHA-256."""
        place = self.sandbox.entry(path)
        self.sandbox.check_writer(call, place)
        exists = place.is_symlink() or place.exists()
        note = self._notes.get(call)
        if not exists:
            if note is None and not missing_ok:
                raise ToolError("no_file", f"there is no file {quoted(path)} to remove.")
            return {"path": path, "existed": note is not None and note["existed"]}
        if sha256 is not None and not place.is_symlink() and self.sandbox.fingerprint(place)[1] != sha256:
            raise ToolError("changed", f"{quoted(path)} was changed meanwhile; it is left alone.")
        with certain(path):
            self._notes.put(call, {"existed": True})
            self._backups.save(call.root, place)
            self.sandbox.remove(place)
        return {"path": path, "existed": True}

    def restore(self, call: EffectCall, paths: list[str]) -> dict[str, Any]:
        """Bring project files back to what they held before this run first changed them."""
        done = []
        for path in paths:
            entry = self.sandbox.entry(path)
            # A link that was written through is backed up under the path of its target.
            with certain(path):
                places = dict.fromkeys((entry, self.sandbox.inside(path)))
                self.sandbox.check_writer(call, *places)
                if any(self._backups.restore(call, place) for place in places):
                    done.append(path)
                else:
                    self._backups.check(call.root, quoted(path))
        return {"paths": done, "restored": bool(done)}


class _Content:
    """Bytes to be written."""

    mode: int | None = None

    def into(self, file: BinaryIO) -> None:
        raise NotImplementedError

    def measured(self) -> tuple[int, str]:
        """Size and SHA-256."""
        meter = _Meter()
        self.into(meter)  # type: ignore[arg-type]
        return meter.size, meter.digest.hexdigest()


class _Meter:
    def __init__(self) -> None:
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, piece: bytes) -> int:
        self.digest.update(piece)
        self.size += len(piece)
        return len(piece)


class _Bytes(_Content):
    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def into(self, file: BinaryIO) -> None:
        file.write(self.raw)


class _OfFile(_Content):
    def __init__(self, sandbox: Sandbox, path: Path, keeps_mode: bool = False) -> None:
        self.sandbox, self.path = sandbox, path
        if keeps_mode:
            self.mode = stat.S_IMODE(path.stat().st_mode)

    def into(self, file: BinaryIO) -> None:
        with self.sandbox.reading(self.path) as source:
            shutil.copyfileobj(source, file, PIECE)


class _Joined(_Content):
    def __init__(self, *parts: _Content) -> None:
        self.parts = parts

    def into(self, file: BinaryIO) -> None:
        for part in self.parts:
            part.into(file)


def _written(path: str, size: int, sha256: str, replaced: bool) -> dict[str, Any]:
    return {"path": path, "bytes": size, "sha256": sha256, "replaced": replaced}


def _matcher(pattern: str) -> Callable[[str], bool]:
    """A test whether a path matches a pattern; its time grows with the path alone, whatever the pattern."""
    if not isinstance(pattern, str) or not pattern or len(pattern) > 500 or "\0" in pattern:
        raise ToolError("invalid", "a pattern is a text of 1 to 500 characters.")
    parts = pattern.split("/")
    if pattern.startswith("/") or ".." in parts:
        raise ToolError(
            "outside", f"the pattern {quoted(pattern)} leads outside the folder it is applied to."
        )
    rules = [None if part == "**" else re.compile(translate(part)) for part in parts if part not in ("", ".")]

    def skip_folders(positions: set[int]) -> set[int]:
        for position in sorted(positions):
            while position < len(rules) and rules[position] is None:
                position += 1
                positions.add(position)
        return positions

    def fits(path: str) -> bool:
        positions = skip_folders({0})
        for part in path.split("/"):
            next_positions: set[int] = set()
            for position in positions:
                rule = rules[position] if position < len(rules) else _NOTHING
                if rule is None:
                    next_positions.add(position)
                elif rule.match(part):
                    next_positions.add(position + 1)
            positions = skip_folders(next_positions)
        return len(rules) in positions

    return fits


_NOTHING = re.compile(r"(?!)")


def file_tools(files: Files) -> list[Tool]:
    """The tools for files."""
    return [
        Tool("files.read", files.read, "query", blocking=True,
             description="The text of a project file, with its size and SHA-256."),
        Tool("files.list", files.listing, "query", blocking=True,
             description="Project files whose path fits a pattern, sorted."),
        Tool("files.stat", files.stat, "query", blocking=True,
             description="What there is at a path of the project: kind, size, SHA-256, where links lead."),
        Tool("files.write", files.write, idempotent=True, wants_call=True, blocking=True, private=True,
             refuses=files.sandbox.refusing("path"),
             description="Put a text, or what another file (source) or a fetched spool holds, into a project "
             "file. Give the sha256 of a file that was read before, and it is left alone if it has changed "
             "since. The receipt says path, bytes, sha256, replaced."),
        Tool("files.delete", files.delete, idempotent=True, wants_call=True, blocking=True,
             refuses=files.sandbox.refusing("path"),
             description="Remove a project file. Give the sha256 of a file that was read or copied before, "
             "and it is left alone if it has changed since. The receipt says path, existed."),
        Tool("files.restore", files.restore, idempotent=True, wants_call=True, blocking=True,
             refuses=files.sandbox.refusing("paths"),
             description="Bring project files back to what they held before this run changed them. The "
             "receipt says paths, restored."),
    ]  # fmt: skip
