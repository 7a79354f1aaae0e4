"""Damage in the files of a SQLite store: damaged pages, a log cut short, values that changed."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
import time
from pathlib import Path

from detent.adapters.stores.sqlite_reading import index_of, log_of

MOST_TOLD = 20
"""Findings of one kind that are reported."""
LARGEST_LOG = 64 << 20
"""Bytes of the largest log whose checksums are computed."""
HEADER, FRAME = 32, 24
TRIES, PAUSE = 4, 0.05

_LOST_ENTRIES = "SELECT count(*) FROM entries WHERE (key >> 24) NOT IN (SELECT number FROM runs)"
_LOST_BLOBS = "SELECT count(*) FROM blob_refs WHERE hash NOT IN (SELECT hash FROM blobs)"


def damage_in(connection: sqlite3.Connection) -> list[str]:
    """The damage in the pages and their content, one sentence each."""
    findings: list[str] = []
    try:
        rows = connection.execute(f"PRAGMA integrity_check({MOST_TOLD})").fetchall()
        findings += [f"Damaged pages: {row[0]}." for row in rows if row[0] != "ok"]
        (entries,) = connection.execute(_LOST_ENTRIES).fetchone()
        if entries:
            findings.append(f"{entries:,} journal entries belong to no run.")
        (blobs,) = connection.execute(_LOST_BLOBS).fetchone()
        if blobs:
            findings.append(f"{blobs:,} values kept beside journals are missing.")
        for name, body in connection.execute("SELECT hash, body FROM blobs"):
            if hashlib.sha256(body).hexdigest() != name:
                findings.append(f"The value {name[:12]}… kept beside a journal is not the one that was kept.")
    except sqlite3.DatabaseError as error:
        findings.append(f"Damaged pages: {error}.")
    return findings[: MOST_TOLD + 1]


def damage_of_log(path: Path) -> list[str]:
    """The damage in a store's log; check before the store is opened, as opening repairs or drops the log.

    Other processes may be writing: only damage that persists for a moment is reported.
    """
    findings: list[str] = []
    for _ in range(TRIES):
        findings = _damage_of_log(path)
        if not findings:
            break
        time.sleep(PAUSE)
    return findings


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
    size, complete, at = FRAME + page, 0, HEADER
    while at + size <= len(raw) and raw[at + 8 : at + 16] == salts:
        sums = _checksum(order, raw[at : at + 8], sums)
        sums = _checksum(order, raw[at + FRAME : at + size], sums)
        if sums != struct.unpack(">II", raw[at + 16 : at + FRAME]):
            break
        complete, at = complete + 1, at + size
    written = _written(path, salts)
    if written is not None and written > complete:
        return [
            f"The log {name} holds {complete:,} of the {written:,} pages that were written to it: the last "
            f"commits are lost."
        ]
    if at < len(raw) and raw[at + 8 : at + 16] == salts:
        problem = "is damaged" if at + size <= len(raw) else "ends in the middle of a page"
        return [f"The log {name} {problem} after {complete:,} pages; what follows cannot be read."]
    return []


def _written(path: Path, salts: bytes) -> int | None:
    """Pages written to the log by its index, if some are not in the database yet; None if not known."""
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
    first, second = sums
    words = struct.unpack(f"{order}{len(raw) // 4}I", raw)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second
