"""A server started as a child process and reached through its standard input and output, one message a line.

The SDK's own transport reads lines of any length. This one gives up on the child at `LARGEST_MESSAGE`, and
ends it with all its descendants: its input is closed, then it is sent SIGTERM, then SIGKILL.
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
"""Bytes of one message; the limit for an answer is lower."""
GRACE = 2.0
"""Seconds a child gets to end after its input is closed, and again after SIGTERM."""
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
    """Streams of messages from and to the child; `give_up` is called with the reason it was cut off.

    Raises:
        OSError: the program cannot be started.
    """
    environment = get_default_environment() | dict(env)
    child = await asyncio.create_subprocess_exec(
        shutil.which(command[0], path=environment.get("PATH")) or command[0],
        *command[1:],
        env=environment, cwd=cwd, stderr=stderr, limit=LARGEST_MESSAGE, start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    # No buffer in either: a sender that is too fast has to wait.
    incoming, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read_messages(child, incoming, give_up), name="mcp stdout"),
        asyncio.create_task(_write_messages(child, outgoing, incoming), name="mcp stdin"),
    ]
    try:
        yield reading, writing
    finally:
        reading.close()
        writing.close()
        ending = asyncio.ensure_future(_end(child, tasks))
        with anyio.CancelScope(shield=True):
            await ending
        for stream in (incoming, outgoing):
            stream.close()


async def _read_messages(
    child: asyncio.subprocess.Process, incoming: Any, give_up: Callable[[str], None]
) -> None:
    """Pass on each line from the child, until it ends or a line is too long."""
    assert child.stdout is not None
    async with incoming:
        while True:
            try:
                line = await child.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                give_up(f"it sent more than {LARGEST_MESSAGE:,} bytes in one message")
                _signal(child, KILL)  # it may never read while it writes
                return
            try:
                await incoming.send(_message(line))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        logger.debug("mcp.no_message", size=len(line))
        return error


async def _write_messages(child: asyncio.subprocess.Process, outgoing: Any, incoming: Any) -> None:
    """Send the child each message."""
    assert child.stdin is not None
    try:
        async with outgoing:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                child.stdin.write(text.encode() + b"\n")
                await child.stdin.drain()
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        incoming.close()  # the child may live on, but will read nothing any more


async def _end(child: asyncio.subprocess.Process, tasks: Sequence[asyncio.Task[None]]) -> None:
    """End the child with all its descendants, and the tasks that serve it. Takes a few seconds at most."""
    assert child.stdin is not None
    await asyncio.wait(tasks[1:], timeout=GRACE / 4)  # messages already accepted are sent
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    child.stdin.close()
    if not await _ends_within(child, GRACE):
        _signal(child, signal.SIGTERM)
        await _ends_within(child, GRACE)
        _signal(child, KILL)
        await _ends_within(child, GRACE)
    # asyncio keeps the output pipe open as long as a descendant that left the group does.
    transport = getattr(child, "_transport", None)
    if transport is not None:
        with contextlib.suppress(PermissionError):
            transport.close()


async def _ends_within(child: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the child ends in time. (`wait` would also wait for all that inherited its output.)"""
    for _ in range(round(seconds / POLL)):
        if child.returncode is not None:
            break
        await asyncio.sleep(POLL)
    return child.returncode is not None


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to the whole process group, where there are groups."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, number)
        elif child.returncode is None:
            child.kill()
