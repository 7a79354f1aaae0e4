"""Files of the project: read, listed and looked at; written, removed and brought back."""

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
"""Bytes of the largest text that is written."""
MOST_LOOKED_AT = 200_000
"""Files a listing goes through."""

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
        """Project files whose path below `root` fits a pattern (*, ?, [..], ** for folders), sorted."""
        fits = _matcher(pattern)
        base = self.sandbox.folder(root)
        found = [
            self.sandbox.relative(place)
            for place in self._walk(base)
            if fits(place.relative_to(base).as_posix())
        ]
        found.sort()
        most = max(0, limit)
        return {"files": found[:most], "count": len(found), "truncated": len(found) > most}

    def stat(self, path: str) -> dict[str, Any]:
        """What there is at a path: kind (file, folder, none), size and SHA-256, and where links lead."""
        place = self.sandbox.inside(path)
        if self.sandbox.hidden(place):
            raise ToolError("protected", f"{quoted(path)} is not for actions.")
        known: dict[str, Any] = {"path": path, "real": self.sandbox.relative(place), "bytes": None}
        if place.is_file():
            size, sha256 = self.sandbox.fingerprint(place)
            return {**known, "exists": True, "kind": "file", "bytes": size, "sha256": sha256}
        there = place.exists()
        return {**known, "exists": there, "kind": "folder" if there else "none", "sha256": None}

    def _walk(self, base: Path) -> Iterator[Path]:
        """Files below a folder; links to folders are not followed, links to files must stay inside."""
        seen = 0
        for here, folders, names in os.walk(base):
            folder = Path(here)
            folders[:] = sorted(name for name in folders if not self.sandbox.hidden(folder / name))
            for name in names:
                seen += 1
                if seen > MOST_LOOKED_AT:
                    raise ToolError(
                        "too_many", f"there are more than {MOST_LOOKED_AT:,} files; name a folder."
                    )
                place = folder / name
                if place.is_symlink():
                    try:
                        to = place.resolve()
                    except (OSError, RuntimeError):
                        continue
                    if not to.is_relative_to(self.sandbox.root) or self.sandbox.hidden(to):
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
        """Put content into a project file: a text, what another file holds, or a fetched spool.

        With `sha256`, only if the file still holds content of that SHA-256.
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
        there = self.sandbox.fingerprint(place) if place.is_file() else None
        note = self._notes.get(call)
        if note is not None and there is not None and there[1] == note["after"]:
            return _written(path, *there, note["existed"])
        if source is not None and self.sandbox.inside(source) == place and there is not None:
            return _written(path, *there, True)
        if there is not None and if_exists == "fail":
            raise ToolError(
                "exists", f"{quoted(path)} is there. Say if_exists: replace if it may be replaced."
            )
        if sha256 is not None and (there is None or there[1] != sha256):
            raise ToolError("changed", f"{quoted(path)} was changed meanwhile; read it again.")
        if note is not None and if_exists == "append" and (there or (0, ""))[1] != note["before"]:
            raise ToolError("changed", f"{quoted(path)} was changed while something was appended to it.")
        if if_exists == "append" and there is not None:
            fresh = _Joined(_OfFile(self.sandbox, place), fresh)
        size, after = fresh.measured()
        before = there[1] if there is not None else ""
        self._notes.put(call, {"existed": there is not None, "before": before, "after": after})
        self._backups.save(call.root, place)
        self.sandbox.write(place, fresh.into, fresh.mode)
        return _written(path, size, after, there is not None)

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
            raise ToolError("invalid", "a spool goes by its SHA-256.")
        place = self.sandbox.state / "spools" / spool
        if not place.is_file():
            raise ToolError("gone", "what was fetched is no longer there; fetch it again.")
        return _OfFile(self.sandbox, place)

    def delete(
        self, call: EffectCall, path: str, missing_ok: bool = False, sha256: str | None = None
    ) -> dict[str, Any]:
        """Remove a project file; with `sha256`, only if it still holds content of that SHA-256."""
        place = self.sandbox.entry(path)
        self.sandbox.check_writer(call, place)
        there = place.is_symlink() or place.exists()
        note = self._notes.get(call)
        if not there:
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
        """Bring project files back to what they held before this run changed them first."""
        done = []
        for path in paths:
            entry = self.sandbox.entry(path)
            # A link that was written through is backed up under the name it leads to.
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


def _matcher(said: str) -> Callable[[str], bool]:
    """Whether a path fits a pattern; in time that grows with the path alone, whatever the pattern."""
    if not isinstance(said, str) or not said or len(said) > 500 or "\0" in said:
        raise ToolError("invalid", "a pattern is a text of 1 to 500 characters.")
    parts = said.split("/")
    if said.startswith("/") or ".." in parts:
        raise ToolError("outside", f"the pattern {quoted(said)} leads outside the folder it is applied to.")
    rules = [None if part == "**" else re.compile(translate(part)) for part in parts if part not in ("", ".")]

    def onwards(places: set[int]) -> set[int]:
        for place in sorted(places):
            while place < len(rules) and rules[place] is None:
                place += 1
                places.add(place)
        return places

    def fits(path: str) -> bool:
        places = onwards({0})
        for part in path.split("/"):
            following: set[int] = set()
            for place in places:
                rule = rules[place] if place < len(rules) else _NOTHING
                if rule is None:
                    following.add(place)
                elif rule.match(part):
                    following.add(place + 1)
            places = onwards(following)
        return len(rules) in places

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
             description="Put a text (or what another file, a source, holds) into a project file. The "
             "receipt says path, bytes, sha256, replaced."),
        Tool("files.delete", files.delete, idempotent=True, wants_call=True, blocking=True,
             refuses=files.sandbox.refusing("path"),
             description="Remove a project file. The receipt says path, existed."),
        Tool("files.restore", files.restore, idempotent=True, wants_call=True, blocking=True,
             refuses=files.sandbox.refusing("paths"),
             description="Bring project files back to what they held before this run changed them. The "
             "receipt says paths, restored."),
    ]  # fmt: skip
