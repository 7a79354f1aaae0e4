"""What the sources that are folders share: names that can be written down, bounded reading, watching."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

LOOK_EVERY = 1.0
"""Seconds between two looks into a folder while waiting."""

_KEPT = " !@+=,;()[]"


def written(name: str) -> str:
    """A file name as plain printable text, whatever bytes it is made of."""
    return quote(os.fsencode(name), safe=_KEPT)


def named(text: str) -> str:
    """The file name that was `written` so."""
    return os.fsdecode(unquote_to_bytes(text))


def read_bounded(path: Path, most: int) -> tuple[os.stat_result, bytes | None]:
    """A file and its facts; None for its content when it has more than `most` bytes."""
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        if facts.st_size > most:
            return facts, None
        content = file.read(most + 1)
    return facts, None if len(content) > most else content


def file_time(facts: os.stat_result) -> datetime:
    """When the file was last written."""
    return datetime.fromtimestamp(facts.st_mtime, UTC)


async def watch(there: Callable[[], set[str]], known: set[str], seconds: float, every: float) -> None:
    """Come back when there is something that is not known, or after this time.

    The first look comes after a pause: what is there and still being written must not keep us busy.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        await asyncio.sleep(min(every, left))
        if await asyncio.to_thread(there) - known:
            return
