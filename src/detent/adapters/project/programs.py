"""Running a program: no shell, no terminal, output up to a bound, its whole process group ended in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent.engine.tools import ToolError

GRACE = 1.0
"""Seconds a program gets to end by itself when it must."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program went."""

    code: int
    """Its exit code; below zero, the signal that ended it."""
    out: bytes
    err: bytes
    out_cut: int
    """Bytes of its output that were left out."""
    err_cut: int
    seconds: float


class TimedOut(Exception):
    """A program did not end in time, and was ended."""


class _Kept:
    """What is kept of a stream: its beginning, and its end where there is room for one."""

    def __init__(self, head: int, tail: int) -> None:
        self._most, self._tail_most = head, tail
        self.head, self.tail = bytearray(), bytearray()
        self.cut = 0

    def take(self, piece: bytes) -> None:
        room = self._most - len(self.head)
        self.head += piece[:room]
        self.tail += piece[max(room, 0) :]
        over = len(self.tail) - self._tail_most
        if over > 0:
            self.cut += over
            del self.tail[:over]

    def text(self) -> bytes:
        return bytes(
            self.head
            + (f"\n…[cut {self.cut} bytes]…\n".encode() if self.cut and self.tail else b"")
            + self.tail
        )


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    stdin: bytes | None = None,
    head: int = 100_000,
    tail: int = 0,
    stop_when_full: bool = False,
    strays: bool = True,
) -> Ran:
    """Run a program to its end. `TimedOut` when it took too long; `ToolError` when it cannot be started.

    With `stop_when_full` it is ended once its output is longer than `head`; with `strays`, what it leaves
    running in its process group is ended with it.
    """
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=dict(env), start_new_session=True,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError:
        raise ToolError("no_program", f"there is no program '{_name(argv)}' on this machine.") from None
    except PermissionError:
        raise ToolError("no_program", f"'{_name(argv)}' may not be run.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ToolError("not_started", f"'{_name(argv)}' cannot be started ({why}).") from None
    out, err = _Kept(head, tail), _Kept(head, tail)
    full = asyncio.Event()
    readers = [
        asyncio.ensure_future(_drain(process.stdout, out, full if stop_when_full else None)),
        asyncio.ensure_future(_drain(process.stderr, err, None)),
        asyncio.ensure_future(_feed(process.stdin, stdin)),
    ]
    ending = asyncio.ensure_future(process.wait())
    filling = asyncio.ensure_future(full.wait())
    try:
        await asyncio.wait({ending, filling}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await _end(process, ending, gently=not full.is_set())
            if not full.is_set():
                raise TimedOut(f"'{_name(argv)}' did not end within {timeout:g} seconds and was ended.")
        # Whoever inherited its output may hold it open for ever.
        await asyncio.wait(readers, timeout=GRACE)
    except asyncio.CancelledError:
        await asyncio.shield(_end(process, ending, gently=False))
        raise
    finally:
        if strays:
            _signal(process, signal.SIGKILL)
        for task in (*readers, filling):
            task.cancel()
        await asyncio.gather(*readers, filling, return_exceptions=True)
        _close(process)
    return Ran(
        process.returncode if process.returncode is not None else -1, out.text(), err.text(), out.cut,
        err.cut, time.monotonic() - began,
    )  # fmt: skip


async def _drain(stream: asyncio.StreamReader | None, kept: _Kept, full: asyncio.Event | None) -> None:
    assert stream is not None
    while piece := await stream.read(65536):
        kept.take(piece)
        if full is not None and kept.cut:
            full.set()
            return


async def _feed(stream: asyncio.StreamWriter | None, body: bytes | None) -> None:
    if stream is None or body is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(body)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def _end(process: asyncio.subprocess.Process, ending: asyncio.Future[int], gently: bool) -> None:
    if gently:
        _signal(process, signal.SIGTERM)
        await asyncio.wait({ending}, timeout=GRACE)
    if not ending.done():
        _signal(process, signal.SIGKILL)
        await ending


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the whole group, where there are groups."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        elif process.returncode is None:
            process.kill()


def _close(process: Any) -> None:
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _name(argv: Sequence[str]) -> str:
    shown = os.path.basename(argv[0]) or argv[0]
    return "".join(char if char.isprintable() else "?" for char in shown)[:80]
