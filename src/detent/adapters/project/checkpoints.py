"""Checkpoint files: what a workflow had done by a named point, written atomically."""

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
        """Write a checkpoint's file, replacing an earlier one. `OSError` when it cannot be written."""
        await asyncio.to_thread(self._write, root_run, checkpoint_id, document)

    def _write(self, root_run: str, checkpoint_id: str, document: Mapping[str, Any]) -> None:
        file = self.folder / _safe(root_run) / f"{_safe(checkpoint_id)}.json"
        text = json.dumps(document, ensure_ascii=False, indent=1)
        write_private(self.folder, file, f"{text}\n".encode(), f".{secrets.token_hex(4)}.tmp")

    def all(self) -> list[dict[str, Any]]:
        """All checkpoints, the latest first."""
        documents = sorted(self._documents(), key=lambda item: item[:2], reverse=True)
        return [document for _, _, document in documents]

    def _documents(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Each with its own time and its file's time, as several may have been saved in the same second."""
        for path in self.folder.glob("*/*.json"):
            try:
                written = path.stat().st_mtime_ns
                document = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue  # being replaced at this moment, or not one of ours
            if isinstance(document, dict):
                yield str(document.get("saved_at")), written, document


def _safe(name: str) -> str:
    """A file name for any text: the text itself if it qualifies, else its beginning and a hash.

    Different texts give different names, even on file systems that ignore case.
    """
    if _PLAIN.fullmatch(name):
        return name
    start = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40]
    return f"{start or 'checkpoint'}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
