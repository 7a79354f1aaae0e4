"""A mail sink over a folder of `.eml` files, for a person or another program to deliver.

A mail's file is named after its Message-ID: the file exists if and only if the mail went out, and the same
mail is never there twice. A delivered mail may be moved to `sent/`, where it is still found.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detent.adapters.disk import open_private, private_folder, sync_folder
from detent.adapters.mail.sink import Receipt, message_id_of
from detent.engine.tools import NOT_DONE, ToolError
from detent.kernel.errors import ConfigurationError

SENT = "sent"

_OURS = re.compile(r"<(det-[0-9a-f]{8,64})@[^@<>\s]+>")


class Outbox:
    """A sink over a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> str:
        return f"folder {self.folder}"

    async def open(self) -> None:
        await asyncio.to_thread(self._check)

    async def close(self) -> None:
        pass

    async def send(self, raw: bytes, envelope_from: str, to: Sequence[str]) -> Receipt:
        """Write the mail where it is found by its Message-ID. Sender and recipients are in its headers."""
        message_id = message_id_of(raw)
        await asyncio.to_thread(self._write, self.folder / file_name(message_id), raw)
        return _receipt(message_id)

    async def probe(self, message_id: str) -> Any:
        return _receipt(message_id) if await asyncio.to_thread(self._exists, message_id) else NOT_DONE

    # -- in a thread ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        try:
            private_folder(self.folder)
            fits = os.access(self.folder, os.R_OK | os.W_OK | os.X_OK)
        except OSError:
            fits = False
        if not fits:
            raise ConfigurationError(
                f"Outgoing mail cannot be written to {self.folder}: that must be a writable folder."
            )

    def _exists(self, message_id: str) -> bool:
        name = file_name(message_id)
        # A folder that cannot be read is no answer: the error leaves the question open.
        return name in os.listdir(self.folder) or (self.folder / SENT / name).exists()

    def _write(self, path: Path, raw: bytes) -> None:
        temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.tmp")
        try:
            if (self.folder / SENT / path.name).exists():
                return
            with open_private(temporary, "xb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _remove(temporary)
            raise ToolError(
                "outbox", f"Nothing could be written to {self.folder} ({error.strerror}).", transient=True
            ) from error
        try:
            _link(temporary, path)
            sync_folder(path.parent)
        finally:
            _remove(temporary)


def file_name(message_id: str) -> str:
    """The name of a mail's file: its key if it is one of ours, else a hash of its Message-ID."""
    if ours := _OURS.fullmatch(message_id):
        return f"{ours[1]}.eml"
    return f"mail-{hashlib.sha256(message_id.encode()).hexdigest()[:24]}.eml"


def _receipt(message_id: str) -> Receipt:
    return {"message_id": message_id, "status": "queued"}


def _link(temporary: Path, path: Path) -> None:
    """Give the finished file its name, unless the mail exists already."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        temporary.replace(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
