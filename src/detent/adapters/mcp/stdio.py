"""A server started as a child process, spoken to over its standard input and output, one message a line.

The SDK's own transport reads a line however long it gets. This one gives the child up at `LARGEST_MESSAGE`,
and ends it and all it started: it is asked to end by closing its input, then told to, then killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import anyio
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from detent.engine import logger

LARGEST_MESSAGE = 8 * 1024 * 1024
"""Bytes of one message; what an answer may hold in the end is less."""
GRACE = 2.0
"""Seconds a child gets to end when its input is closed, and once more when it is told to."""
POLL = 0.01
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@contextlib.asynccontextmanager
async def stdio_streams(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None,
    stderr: TextIO,
    give_up: Callable[[str], None],
) -> AsyncIterator[tuple[Any, Any]]:
    """What the child sends and what it is sent, as streams of messages; `give_up` hears why it was cut off.

    Raises:
        OSError: the program cannot be started.
    """
    settled = get_default_environment() | dict(env)
    child = await asyncio.create_subprocess_exec(
        shutil.which(command[0], path=settled.get("PATH")) or command[0],
        *command[1:],
        env=settled, cwd=cwd, stderr=stderr, limit=LARGEST_MESSAGE, start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    # No room in either: who sends too fast has to wait.
    heard, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, told = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_listen(child, heard, give_up), name="mcp stdout"),
        asyncio.create_task(_tell(child, told, heard), name="mcp stdin"),
    ]
    try:
        yield reading, writing
    finally:
        reading.close()
        writing.close()
        ending = asyncio.ensure_future(_end(child, tasks))
        with anyio.CancelScope(shield=True):
            await ending
        for stream in (heard, told):
            stream.close()


async def _listen(child: asyncio.subprocess.Process, heard: Any, give_up: Callable[[str], None]) -> None:
    """Pass on each line the child sends, until it ends or one is too long."""
    assert child.stdout is not None
    async with heard:
        while True:
            try:
                line = await child.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                give_up(f"it sent more than {LARGEST_MESSAGE:,} bytes in one message")
                _signal(child, KILL)  # it would hear nothing as long as it speaks
                return
            try:
                await heard.send(_message(line))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        logger.debug("mcp.no_message", size=len(line))
        return error


async def _tell(child: asyncio.subprocess.Process, told: Any, heard: Any) -> None:
    """Send the child each message."""
    assert child.stdin is not None
    try:
        async with told:
            async for message in told:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                child.stdin.write(text.encode() + b"\n")
                await child.stdin.drain()
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        heard.close()  # the child may live on, but will hear nothing any more


async def _end(child: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    """End the child with all it started, and the tasks that speak with it. Takes a few seconds at most."""
    assert child.stdin is not None
    await asyncio.wait(tasks[1:], timeout=GRACE / 4)  # what was accepted is sent
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    child.stdin.close()
    if not await _gone(child, GRACE):
        _signal(child, signal.SIGTERM)
        await _gone(child, GRACE)
        _signal(child, KILL)
        await _gone(child, GRACE)
    # asyncio keeps the pipe of its output open as long as a descendant that left the group does.
    transport = getattr(child, "_transport", None)
    if transport is not None:
        with contextlib.suppress(PermissionError):
            transport.close()


async def _gone(child: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the child ends in time. (`wait` would also wait for all who inherited its output.)"""
    for _ in range(round(seconds / POLL)):
        if child.returncode is not None:
            break
        await asyncio.sleep(POLL)
    return child.returncode is not None


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the whole group, where there are groups."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, number)
        elif child.returncode is None:
            child.kill()
