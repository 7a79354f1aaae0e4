"""What is wrong with the files of a SQLite store: damaged pages, a log cut short, values that changed."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
import time
from pathlib import Path

from detent.adapters.stores.sqlite_reading import index_of, log_of

MOST_TOLD = 20
"""Findings of one kind that are told."""
LARGEST_LOG = 64 << 20
"""Bytes of a log up to which its checksums are computed."""
HEADER, FRAME = 32, 24
TRIES, PAUSE = 4, 0.05

_LOST_ENTRIES = "SELECT count(*) FROM entries WHERE (key >> 24) NOT IN (SELECT number FROM runs)"
_LOST_BLOBS = "SELECT count(*) FROM blob_refs WHERE hash NOT IN (SELECT hash FROM blobs)"


def damage_in(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the pages, and with what they hold; one sentence each."""
    found: list[str] = []
    try:
        rows = connection.execute(f"PRAGMA integrity_check({MOST_TOLD})").fetchall()
        found += [f"Damaged pages: {row[0]}." for row in rows if row[0] != "ok"]
        (entries,) = connection.execute(_LOST_ENTRIES).fetchone()
        if entries:
            found.append(f"{entries:,} journal entries belong to no run.")
        (blobs,) = connection.execute(_LOST_BLOBS).fetchone()
        if blobs:
            found.append(f"{blobs:,} values kept beside journals are missing.")
        for name, body in connection.execute("SELECT hash, body FROM blobs"):
            if hashlib.sha256(body).hexdigest() != name:
                found.append(f"The value {name[:12]}… kept beside a journal is not the one that was kept.")
    except sqlite3.DatabaseError as error:
        found.append(f"Damaged pages: {error}.")
    return found[: MOST_TOLD + 1]


def damage_of_log(path: Path) -> list[str]:
    """What is wrong with a store's log; look before the store is opened, for opening it mends or drops it.

    Other processes may be writing: only what stays so for a moment is told.
    """
    found: list[str] = []
    for _ in range(TRIES):
        found = _damage_of_log(path)
        if not found:
            break
        time.sleep(PAUSE)
    return found


def _damage_of_log(path: Path) -> list[str]:
    try:
        raw = log_of(path).read_bytes() if log_of(path).stat().st_size <= LARGEST_LOG else b""
    except OSError:
        return []
    if not raw:
        return []
    name = log_of(path).name
    if len(raw) < HEADER:
        return [f"The log {name} was cut short: it has {len(raw)} bytes."]
    magic, _, page = struct.unpack(">III", raw[:12])
    if magic not in (0x377F0682, 0x377F0683):
        return [f"The log {name} does not begin as a log does; what was in it is lost."]
    order = "<" if magic == 0x377F0682 else ">"
    salts = raw[16:24]
    sums = _checksum(order, raw[:24], (0, 0))
    if sums != struct.unpack(">II", raw[24:32]):
        return [f"The header of the log {name} is damaged; what was in it is lost."]
    size, whole, at = FRAME + page, 0, HEADER
    while at + size <= len(raw) and raw[at + 8 : at + 16] == salts:
        sums = _checksum(order, raw[at : at + 8], sums)
        sums = _checksum(order, raw[at + FRAME : at + size], sums)
        if sums != struct.unpack(">II", raw[at + 16 : at + FRAME]):
            break
        whole, at = whole + 1, at + size
    written = _written(path, salts)
    if written is not None and written > whole:
        return [
            f"The log {name} holds {whole:,} of the {written:,} pages that were written to it: the last "
            f"commits are lost."
        ]
    if at < len(raw) and raw[at + 8 : at + 16] == salts:
        what = "is damaged" if at + size <= len(raw) else "ends in the middle of a page"
        return [f"The log {name} {what} after {whole:,} pages; what follows cannot be read."]
    return []


def _written(path: Path, salts: bytes) -> int | None:
    """How many pages of the log the index knows that the file does not have yet; None where nobody knows."""
    try:
        index = index_of(path).read_bytes()[:136]
    except OSError:
        return None
    if len(index) < 136 or index[32:40] != salts:
        return None
    (written,) = struct.unpack("=I", index[16:20])
    (moved,) = struct.unpack("=I", index[96:100])
    return int(written) if moved < written else None


def _checksum(order: str, raw: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    words = struct.unpack(f"{order}{len(raw) // 4}I", raw)
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two
