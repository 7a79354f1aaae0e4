"""Files of sessions, opened and told apart: of this format, of an older one, no session, or damaged."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

from detent.adapters.anchored import OpenFolder
from detent.flows.coding.sessions.json_text import DEEPEST_LEGACY, NotReadable, depth_exceeds, parse, too_deep
from detent.flows.coding.sessions.legacy import is_session, map_legacy
from detent.flows.coding.sessions.record import (
    SessionInvalid,
    SessionRecord,
    SessionTooNew,
    is_of_this_format,
)

SUFFIX = ".json"
LARGEST = 256 * 1024 * 1024
"""Bytes of a file that is read at all."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""A pipe in place of a file must not make the program wait."""


class Unusable(Exception):
    """A file is no session that can be used; the message is a clause about it, without a full stop."""


class NoSession(Unusable):
    """A file holds something else than a session."""


class TooNew(Unusable):
    """A file was written by a newer version."""

    def __init__(self, error: SessionTooNew) -> None:
        self.version = error.version
        super().__init__(f"was written by a newer Detent (schema_version {error.shown})")


class FileState(NamedTuple):
    """What changes when a file is written or replaced."""

    inode: int
    size: int
    changed: int


class Content(NamedTuple):
    """A session in a file."""

    record: SessionRecord
    is_legacy: bool
    """Whether the file is of an older format."""
    raw: bytes
    status: FileState
    """The file as it was when it was read."""


def state_of(status: os.stat_result) -> FileState:
    """The state of a file."""
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns)


def bytes_of(folder: OpenFolder, name: str) -> tuple[bytes, FileState]:
    """The bytes of a file, if it is one, and its state.

    Raises:
        FileNotFoundError: there is none.
        Unusable: it is a link, a folder or a pipe, cannot be read, or is too large.
    """
    try:
        handle = folder.open(name, _FLAGS)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(_why_closed(error)) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Unusable("is a folder" if stat.S_ISDIR(status.st_mode) else "is no file")
        if status.st_size > LARGEST:
            raise Unusable(f"is larger than {LARGEST // 1024**2} MB")
        with open(handle, "rb", closefd=False) as file:
            return file.read(), state_of(status)
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror}") from None
    finally:
        os.close(handle)


def _why_closed(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "is a link, and links are not followed"
    if error.errno == errno.ENXIO:
        return "is no file"
    return f"cannot be read: {error.strerror}"


def content_of(raw: bytes, status: FileState, name: str, now: float) -> Content:
    """The session that bytes hold; `name` is that of their file.

    Raises:
        Unusable: they hold none.
    """
    try:
        plain, repeated = parse(raw)
        if is_of_this_format(plain):
            if repeated:
                keys = ", ".join(dict.fromkeys(str(item["key"])[:40] for item in repeated))
                raise Unusable(f"has keys that stand in one object several times: {keys}")
            return Content(SessionRecord(plain), False, raw, status)
    except NotReadable as error:
        raise Unusable(str(error)) from None
    except SessionTooNew as error:
        raise TooNew(error) from None
    except SessionInvalid as error:
        raise Unusable("; ".join(error.problems)) from None
    if not is_session(plain):
        raise NoSession("holds no session")
    if depth_exceeds(plain, DEEPEST_LEGACY):
        raise Unusable(too_deep(DEEPEST_LEGACY))
    mapped = map_legacy(plain, now, name=Path(name).stem, repeated=repeated)
    return Content(SessionRecord(mapped.record_fields), True, raw, status)
