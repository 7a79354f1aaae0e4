"""Checkpoint files: what a workflow had done by a named point, written whole or not at all."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from detent.adapters.anchored import write_private

_PLAIN = re.compile(r"(?!.*-[0-9a-f]{16}\Z)[a-z0-9][a-z0-9._-]{0,99}")


class Checkpoints:
    """Checkpoint files below a folder, by run and id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def save(self, root_run: str, checkpoint_id: str, document: Mapping[str, Any]) -> None:
        """Write a checkpoint's file; the same one again replaces it. `OSError` when it cannot be written."""
        await asyncio.to_thread(self._write, root_run, checkpoint_id, document)

    def _write(self, root_run: str, checkpoint_id: str, document: Mapping[str, Any]) -> None:
        place = self.folder / _safe(root_run) / f"{_safe(checkpoint_id)}.json"
        text = json.dumps(document, ensure_ascii=False, indent=1)
        write_private(self.folder, place, f"{text}\n".encode(), f".{secrets.token_hex(4)}.tmp")

    def all(self) -> list[dict[str, Any]]:
        """Every checkpoint there is, the latest first."""
        found = sorted(self._documents(), key=lambda one: one[:2], reverse=True)
        return [document for _, _, document in found]

    def _documents(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Each with the time it says, and that of its file: several may be of the same second."""
        for path in self.folder.glob("*/*.json"):
            try:
                written = path.stat().st_mtime_ns
                document = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue  # being replaced just now, or not ours
            if isinstance(document, dict):
                yield str(document.get("saved_at")), written, document


def _safe(name: str) -> str:
    """A file name for any text: itself where it is one, else its beginning and a hash of the whole.

    Different texts give different names, also where capitals do not count.
    """
    if _PLAIN.fullmatch(name):
        return name
    kept = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40]
    return f"{kept or 'checkpoint'}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
