"""Backups: what files held before a run changed them first, and bringing that back.

One backup per path and run. It is there before the change is, and never replaced by a later one; bringing it
back uses it up, so that doing so twice undoes nobody's later work.
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

from detent.adapters.project.effect_notes import folder_of, read_json
from detent.adapters.project.sandbox import PIECE, Sandbox
from detent.engine.tools import EffectCall, ToolError

PURGED = "purged"
"""Name of the note that a run had backups here, and that they were taken away."""


class Backups:
    """What runs may have to bring back."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._lock = threading.Lock()

    def folder(self, root: str) -> Path:
        """Where the backups of a run, its child runs included, are kept."""
        return folder_of(self._sandbox.state / "backups", root)

    def check(self, run_id: str, what: str) -> None:
        """Raise a `ToolError` where a run's backups were taken away: nobody can tell what there was."""
        if (self.folder(run_id) / PURGED).exists():
            raise ToolError(
                "purged", f"it is not known any more how {what} was before this run: that was purged."
            )

    def save(self, run_id: str, place: Path) -> None:
        """Keep what a path holds, or that it holds nothing, unless this run has done so before."""
        with self._lock:
            note = self._note(run_id, place)
            if note.exists():
                return
            found: dict[str, Any] = {"path": self._sandbox.relative(place), "kind": "none"}
            found["made"] = [self._sandbox.relative(one) for one in _missing(place.parent)]
            if place.is_symlink():
                found |= {"kind": "link", "target": os.readlink(place)}
            elif place.is_file():
                found |= {"kind": "file", "mode": stat.S_IMODE(place.stat().st_mode)}
                with self._sandbox.reading(place) as source:
                    self._keep(note, lambda file: shutil.copyfileobj(source, file, PIECE))
            self._sandbox.keep(note, json.dumps(found).encode())

    def save_bytes(self, run_id: str, place: Path, raw: bytes | None, mode: int | None = None) -> None:
        """Keep what a path held earlier, as somebody else remembers it; None: it was not there."""
        with self._lock:
            note = self._note(run_id, place)
            if note.exists():
                return
            found: dict[str, Any] = {"path": self._sandbox.relative(place), "kind": "none", "made": []}
            if raw is not None:
                body = raw
                found |= {"kind": "file", "mode": mode}
                self._keep(note, lambda file: _all(file, body))
            self._sandbox.keep(note, json.dumps(found).encode())

    def restore(self, call: EffectCall, place: Path) -> bool:
        """Bring a path back to what it held; False when this run did not change it."""
        with self._lock:
            note = self._note(call.root, place)
            used = note.with_suffix(".restored")
            found = read_json(note)
            if found is None:
                before = read_json(used)
                return before is not None and before.get("by") == call.idempotency_key
            self._bring_back(note, place, found)
            self._sandbox.keep(used, json.dumps({"by": call.idempotency_key}).encode())
            self._sandbox.remove(note)
            self._sandbox.remove(note.with_suffix(".bytes"), missing_ok=True)
            return True

    def _bring_back(self, note: Path, place: Path, found: dict[str, Any]) -> None:
        if found["kind"] == "file":
            with self._sandbox.reading(note.with_suffix(".bytes")) as source:
                self._sandbox.write(
                    place, lambda file: shutil.copyfileobj(source, file, PIECE), found.get("mode")
                )
            return
        if place.is_dir() and not place.is_symlink():
            raise ToolError("folder", f"'{found['path']}' has become a folder; it is left alone.")
        self._sandbox.remove(place, missing_ok=True)
        if found["kind"] == "link":
            with self._sandbox.folder_of(place, make=True) as around:
                around.symlink(found["target"], place.name)
        for name in found["made"]:
            folder = self._sandbox.root / name
            with contextlib.suppress(OSError), self._sandbox.folder_of(folder) as around:
                around.remove_folder(folder.name)  # unless it is not empty, or not there

    def _keep(self, note: Path, write: Callable[[BinaryIO], object]) -> None:
        self._sandbox.write(note.with_suffix(".bytes"), lambda file: void(write(file)), 0o600)

    def _note(self, run_id: str, place: Path) -> Path:
        name = hashlib.sha256(os.fsencode(self._sandbox.relative(place))).hexdigest()[:32]
        return self.folder(run_id) / f"{name}.json"


def void(_: object) -> None:
    """Nothing, whatever was given."""


def _all(file: BinaryIO, raw: bytes) -> None:
    file.write(raw)


def _missing(folder: Path) -> list[Path]:
    """Folders that are not there yet, the innermost first."""
    found = []
    while not folder.exists():
        found.append(folder)
        folder = folder.parent
    return found
