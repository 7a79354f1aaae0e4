"""Backups: the content of files before a run first changed them, and restoring it.

One backup per path and run. It is made before the change and never replaced by a later one; restoring it uses
it up, so that a second restore does not undo later work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from detent.adapters.disk import missing_folders
from detent.adapters.project.effect_notes import folder_of, read_json
from detent.adapters.project.sandbox import PIECE, Sandbox
from detent.engine.tools import EffectCall, ToolError

PURGED = "purged"
"""Name of the note that a run had backups here which have been purged."""


class Backups:
    """The content runs may have to restore."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._lock = threading.Lock()

    def folder(self, root: str) -> Path:
        """The folder for the backups of a run and its child runs."""
        return folder_of(self._sandbox.state / "backups", root)

    def check(self, run_id: str, what: str) -> None:
        """Raise a `ToolError` when a run's backups were purged, so that the former content is not known."""
        if (self.folder(run_id) / PURGED).exists():
            raise ToolError(
                "purged", f"it is not known any more how {what} was before this run: that was purged."
            )

    def save(self, run_id: str, place: Path) -> None:
        """Keep the content of a path, or its absence, unless this run has done so before."""
        with self._lock:
            note = self._note_path(run_id, place)
            if note.exists():
                return
            backup: dict[str, Any] = {"path": self._sandbox.relative(place), "kind": "none"}
            backup["made"] = [self._sandbox.relative(folder) for folder in missing_folders(place.parent)]
            if place.is_symlink():
                backup |= {"kind": "link", "target": os.readlink(place)}
            elif place.is_file():
                backup |= {"kind": "file", "mode": stat.S_IMODE(place.stat().st_mode)}
                with self._sandbox.reading(place) as source:
                    self._keep(note, lambda file: shutil.copyfileobj(source, file, PIECE))
            self._sandbox.keep(note, json.dumps(backup).encode())

    def save_bytes(self, run_id: str, place: Path, raw: bytes | None, mode: int | None = None) -> None:
        """Keep the content a path had earlier, given by the caller; None when it did not exist."""
        with self._lock:
            note = self._note_path(run_id, place)
            if note.exists():
                return
            backup: dict[str, Any] = {"path": self._sandbox.relative(place), "kind": "none", "made": []}
            if raw is not None:
                body = raw
                backup |= {"kind": "file", "mode": mode}
                self._keep(note, lambda file: _write_all(file, body))
            self._sandbox.keep(note, json.dumps(backup).encode())

    def restore(self, call: EffectCall, place: Path) -> bool:
        """Bring a path back to its former content; False when this run did not change it."""
        with self._lock:
            note = self._note_path(call.root, place)
            used_note = note.with_suffix(".restored")
            backup = read_json(note)
            if backup is None:
                before = read_json(used_note)
                return before is not None and before.get("by") == call.idempotency_key
            self._restore(note, place, backup)
            self._sandbox.keep(used_note, json.dumps({"by": call.idempotency_key}).encode())
            self._sandbox.remove(note)
            self._sandbox.remove(note.with_suffix(".bytes"), missing_ok=True)
            return True

    def _restore(self, note: Path, place: Path, backup: dict[str, Any]) -> None:
        if backup["kind"] == "file":
            with self._sandbox.reading(note.with_suffix(".bytes")) as source:
                self._sandbox.write(
                    place, lambda file: shutil.copyfileobj(source, file, PIECE), backup.get("mode")
                )
            return
        if place.is_dir() and not place.is_symlink():
            raise ToolError("folder", f"'{backup['path']}' has become a folder; it is left alone.")
        self._sandbox.remove(place, missing_ok=True)
        if backup["kind"] == "link":
            with self._sandbox.folder_of(place, make=True) as parent:
                parent.symlink(backup["target"], place.name)
        for name in backup["made"]:
            folder = self._sandbox.root / name
            with contextlib.suppress(OSError), self._sandbox.folder_of(folder) as parent:
                parent.remove_folder(folder.name)  # unless it is not empty, or does not exist

    def _keep(self, note: Path, write: Callable[[BinaryIO], object]) -> None:
        self._sandbox.write(note.with_suffix(".bytes"), lambda file: void(write(file)), 0o600)

    def _note_path(self, run_id: str, place: Path) -> Path:
        name = hashlib.sha256(os.fsencode(self._sandbox.relative(place))).hexdigest()[:32]
        return self.folder(run_id) / f"{name}.json"


def void(_: object) -> None:
    """Discard a value."""


def _write_all(file: BinaryIO, raw: bytes) -> None:
    file.write(raw)
