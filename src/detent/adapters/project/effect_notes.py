"""Effect notes: what a tool notes down before it acts, so that after a crash it finds out what happened.

A note belongs to one effect of one run and stays the same over all attempts at it.
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

    Different texts give different names, also where capitals do not count.
    """
    if _PLAIN.fullmatch(name):
        return name
    return f"_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def folder_of(folder: Path, root: str) -> Path:
    """Where what is kept for a run and all below it lies; also where an earlier version has put it."""
    place = folder / safe(root)
    if place.name != root and _PLAIN_BEFORE.fullmatch(root) and not place.exists():
        with contextlib.suppress(OSError):
            if root in os.listdir(folder):  # of this very name: `exists` may not tell capitals apart
                return folder / root
    return place


class EffectNotes:
    """Notes of tools about effects under way."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def get(self, call: EffectCall) -> dict[str, Any] | None:
        """What was noted about an effect before; None at the first attempt."""
        return read_json(self._place(call))

    def put(self, call: EffectCall, note: dict[str, Any]) -> None:
        """Note something about an effect; kept before this returns."""
        self._sandbox.keep(self._place(call), json.dumps(note).encode())

    def _place(self, call: EffectCall) -> Path:
        folder = folder_of(self._sandbox.state / "footprints", call.family)
        return folder / f"{safe(call.idempotency_key)}.json"


def read_json(path: Path) -> dict[str, Any] | None:
    """One of our own files; None when it is not there."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found
