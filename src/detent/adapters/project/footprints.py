"""Footprints: what a tool notes down before it acts, so that after a crash it finds out what happened.

A footprint belongs to one effect of one run and stays the same over all attempts at it.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from detent.adapters.project.ground import Project
from detent.engine.tools import EffectCall

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}")


def root_of(run_id: str) -> str:
    """The run that a child run belongs to in the end."""
    return run_id.partition(".")[0]


def safe(name: str) -> str:
    """A text as the name of a file or folder; different texts give different names."""
    if _PLAIN.fullmatch(name):
        return name
    return f"_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


class Footprints:
    """Notes of tools about effects under way."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def get(self, call: EffectCall) -> dict[str, Any] | None:
        """What was noted about an effect before; None at the first attempt."""
        return read_json(self._place(call))

    def put(self, call: EffectCall, note: dict[str, Any]) -> None:
        """Note something about an effect; kept before this returns."""
        self._project.keep(self._place(call), json.dumps(note).encode())

    def _place(self, call: EffectCall) -> Path:
        folder = self._project.state / "footprints" / safe(root_of(call.run_id))
        return folder / f"{safe(call.idempotency_key)}.json"


def read_json(path: Path) -> dict[str, Any] | None:
    """One of our own files; None when it is not there."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found
