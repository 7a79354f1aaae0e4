"""Effect notes: what a tool records before it acts, so that after a crash it can find out what happened.

A note belongs to one effect of one run and is shared by all attempts at it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from detent.adapters.project.sandbox import Sandbox
from detent.engine.tools import EffectCall

_PLAIN = re.compile(r"[a-z0-9-][a-z0-9_-]{0,79}")
_PLAIN_BEFORE = re.compile(r"[A-Za-z0-9_-]{1,80}")


def safe(name: str) -> str:
    """A text as the name of a file or folder.

    Different texts give different names, even on file systems that ignore case.
    """
    if _PLAIN.fullmatch(name):
        return name
    return f"_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def folder_of(folder: Path, root: str) -> Path:
    """The folder for a run and all its child runs; also where an earlier version put it."""
    place = folder / safe(root)
    if place.name != root and _PLAIN_BEFORE.fullmatch(root) and not place.exists():
        with contextlib.suppress(OSError):
            if root in os.listdir(folder):  # the exact name: `exists` may ignore case
                return folder / root
    return place


class EffectNotes:
    """Notes of tools on effects under way."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def get(self, call: EffectCall) -> dict[str, Any] | None:
        """The note on an effect; None at the first attempt."""
        return read_json(self._path(call))

    def put(self, call: EffectCall, note: dict[str, Any]) -> None:
        """Record a note on an effect; it is on disk when this returns."""
        self._sandbox.keep(self._path(call), json.dumps(note).encode())

    def _path(self, call: EffectCall) -> Path:
        folder = folder_of(self._sandbox.state / "footprints", call.family)
        return folder / f"{safe(call.idempotency_key)}.json"


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of one of our own files; None when it does not exist."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return content
