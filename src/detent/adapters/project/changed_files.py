"""Which project files a program changed, and their former content, so that it can be restored.

In a repository git knows what differs from the index, so only files that differ beforehand have to be
copied. Elsewhere all files are copied, up to a limit.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from detent.adapters.project.backups import Backups
from detent.adapters.project.effect_notes import read_json, safe
from detent.adapters.project.git import Git
from detent.adapters.project.sandbox import Sandbox
from detent.engine.tools import ToolError

MOST_FILES = 5000
MOST_BYTES = 200 * 1024 * 1024


class Watch:
    """Looks at a project before and after a program runs."""

    def __init__(self, sandbox: Sandbox, git: Git, backups: Backups) -> None:
        self._sandbox = sandbox
        self._git = git
        self._backups = backups

    async def before(self, run_id: str, key: str) -> dict[str, str | None]:
        """The state of the files before an effect; their content at the run's first watch is kept.

        An effect that is attempted again is told of the state before its first attempt.
        """
        first = self._backups.folder(run_id) / "watches" / f"{safe(key)}.json"
        earlier: dict[str, str | None] | None = read_json(first)
        if earlier is not None:
            return earlier
        repository = await self._in_repository()
        hashes = await self._standing(repository)
        note = self._note_path(run_id)
        if read_json(note) is None:
            tree = await self._git.text("write-tree", changes=True) if repository else None
            kept = {}
            for path, sha256 in hashes.items():
                if sha256 is None:
                    continue
                place = self._sandbox.root / path
                blob = note.parent / "watched" / sha256
                if not blob.exists():
                    self._sandbox.keep(blob, self._sandbox.content(place, MOST_BYTES, path))
                kept[path] = [sha256, stat.S_IMODE(place.stat().st_mode)]
            # Files that differ from the index because they are missing were missing before.
            missing = [path for path, sha256 in hashes.items() if sha256 is None]
            self._sandbox.keep(note, json.dumps({"tree": tree, "kept": kept, "gone": missing}).encode())
        self._sandbox.keep(first, json.dumps(hashes).encode())
        return hashes

    async def changed(self, run_id: str, before: dict[str, str | None]) -> list[str]:
        """Files that differ now; each is backed up with its content at the run's first watch."""
        after = await self._standing(await self._in_repository())
        paths = [path for path in before.keys() | after.keys() if before.get(path, "") != after.get(path, "")]
        note = read_json(self._note_path(run_id))
        assert note is not None
        for path in paths:
            raw, mode = await self._earlier(run_id, note, path)
            self._backups.save_bytes(run_id, self._sandbox.root / path, raw, mode)
        return sorted(paths)

    async def _earlier(self, run_id: str, note: dict[str, Any], path: str) -> tuple[bytes | None, int | None]:
        """The content of a file at the run's first watch: as copied then, else from the index."""
        if path in note["kept"]:
            sha256, mode = note["kept"][path]
            return (self._note_path(run_id).parent / "watched" / sha256).read_bytes(), mode
        if note["tree"] is None or path in note["gone"]:
            return None, None
        prefix = await self._git.prefix()
        listed = await self._git.ask("ls-tree", "-z", note["tree"], "--full-tree", "--", prefix + path)
        if not listed.out:
            return None, None
        mode = 0o755 if listed.out.startswith(b"100755") else 0o644
        name = f"{note['tree']}:{prefix}{path}"
        ran = await self._git.ask("cat-file", "--filters", name, limit=MOST_BYTES, runs="filters")
        return ran.out, mode

    async def _standing(self, repository: bool) -> dict[str, str | None]:
        """SHA-256 of each file that differs from the index (outside git: of all files); None if missing."""
        if repository:
            raw = await self._git.ask(
                "ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--",
                *self._git.specs(["."]),
            )  # fmt: skip
            names = {os.fsdecode(path) for path in raw.out.split(b"\0") if path}
        else:
            names = set(self._all_files())
        hashes: dict[str, str | None] = {}
        total = 0
        for name in sorted(names):
            place = self._sandbox.root / name
            if place.is_symlink() or not place.is_file():
                hashes[name] = None if not place.is_symlink() else os.readlink(place)
                continue
            total += place.stat().st_size
            if len(hashes) >= MOST_FILES or total > MOST_BYTES:
                raise ToolError(
                    "too_many_files", f"more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes would have to "
                    f"be watched. Put the project under git, and ignore what is built.",
                )  # fmt: skip
            hashes[name] = self._sandbox.fingerprint(place)[1]
        return {name: sha256 for name, sha256 in hashes.items() if sha256 is None or len(sha256) == 64}

    def _all_files(self) -> list[str]:
        paths = []
        for folder_path, folders, names in os.walk(self._sandbox.root):
            folder = Path(folder_path)
            folders[:] = [name for name in folders if not self._sandbox.hidden(folder / name)]
            paths += [
                self._sandbox.relative(folder / name)
                for name in names
                if not self._sandbox.hidden(folder / name)
            ]
        return paths

    async def _in_repository(self) -> bool:
        try:
            return await self._git.text("rev-parse", "--is-inside-work-tree") == "true"
        except ToolError as error:
            if error.code in ("no_repository", "no_git"):
                return False
            raise

    def _note_path(self, run_id: str) -> Path:
        return self._backups.folder(run_id) / "watch.git"
