"""Running a program: no shell, no terminal, limited output, and its whole process group ended in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from detent.adapters.project.processes import members_of, signal_groups
from detent.engine.tools import ToolError

GRACE = 1.0
"""Seconds a program gets to end by itself after SIGTERM."""
MOMENT = 0.1
"""Seconds in which processes end that were only about to when their program did."""
SHELL = "/bin/sh"
TETHERED = """
exec 3<&0
read -r _ <&3 || exit 125
( (read -r _ <&3 || {
    for stat in /proc/[0-9]*/stat /proc/[0-9]*/stat; do
        read -r line <"$stat" || continue
        set -- ${line##*) }
        pid=${stat#/proc/}
        [ "$4" = $$ ] && [ "$3" != $$ ] && kill -KILL "${pid%/stat}"
    done
    kill -KILL 0
}) >/dev/null 2>&1 & )
exec "$@" 3<&- <"$0"
"""
"""Becomes the program once it is told to go on, and never if this process dies before that. It leaves a
watcher in the process group, which kills the session when this process dies, other groups of it first: a pipe
that nothing can write to any more reads as ended. The watcher is not a child of the program, because a
program may wait for all its children."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of running a program."""

    code: int
    """Its exit code; below zero, the signal that ended it."""
    out: bytes
    err: bytes
    out_cut: int
    """Bytes of its output that were cut."""
    seconds: float
    left: bool = False
    """Whether processes it had left in its session were ended; known if that was asked for."""


class TimedOut(Exception):
    """A program did not end in time and was stopped."""

    def __init__(self, message: str, ran: Ran) -> None:
        super().__init__(message)
        self.ran = ran


class Interrupted(Exception):
    """The task that ran a program was cancelled; the program was told so, and has ended."""

    def __init__(self, ran: Ran) -> None:
        super().__init__("interrupted")
        self.ran = ran


class _Kept:
    """The kept part of a stream: its beginning, and its end where there is room for one."""

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
    session: bool = False,
    merged: bool = False,
    interrupt: float | None = None,
    pass_fds: Sequence[int] = (),
    started: Callable[[int], Awaitable[None]] | None = None,
) -> Ran:
    """Run a program to its end. `TimedOut` when it took too long; `ToolError` when it cannot be started.

    With `stop_when_full` it is stopped once its output is longer than `head`; with `strays`, processes it
    leaves behind in its process group are killed with it; with `session`, all those of its session are, and
    the result says whether there were any. `merged` puts its errors among its output. `started` is told its
    process id before it does anything; where there is no shell, as soon as it runs.

    When the task is cancelled, the program is killed at once. With `interrupt` it first gets SIGINT and so
    many seconds, and then `Interrupted` is raised with its result, in place of the cancellation; a second
    cancellation kills it at once.
    """
    began = time.monotonic()
    transport = None
    out, err = _Kept(head, tail), _Kept(head, tail)
    loop = asyncio.get_running_loop()
    pipe = asyncio.subprocess.PIPE
    errors = asyncio.subprocess.STDOUT if merged else pipe
    tether = _Tether(stdin)
    try:
        transport, program = await loop.subprocess_exec(
            lambda: _Program({1: out} if merged else {1: out, 2: err}, stop_when_full),
            *tether.of([_find_program(argv[0], cwd, env), *argv[1:]]),
            cwd=cwd, env=dict(env), start_new_session=True, stdin=tether.stdin, stdout=pipe, stderr=errors,
            pass_fds=tuple(pass_fds),
        )  # fmt: skip
    except FileNotFoundError:
        raise ToolError("no_program", f"there is no program '{name_of(argv)}' on this machine.") from None
    except PermissionError:
        raise ToolError("no_program", f"'{name_of(argv)}' may not be run.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ToolError("not_started", f"'{name_of(argv)}' cannot be started ({why}).") from None
    finally:
        tether.handed_over(transport is not None)
    send = partial(_signal, transport, session=session)
    in_time = timed_out = interrupted = left = False
    try:
        if started is not None:
            await started(transport.get_pid())
        tether.go()
        try:
            in_time = await program.ended(timeout)
        except asyncio.CancelledError:
            if interrupt is None:
                raise
            interrupted = True
            await _end(send, program, signal.SIGINT, interrupt)
        else:
            if not in_time:
                await _end(send, program, None if program.full else signal.SIGTERM)
                timed_out = not program.full
        if strays:
            left = session and in_time and await _has_left(transport.get_pid())
            send(signal.SIGKILL)
        # A process that inherited its output and left the group may hold it open for ever.
        await asyncio.wait({program.silent}, timeout=GRACE)
    except asyncio.CancelledError:
        send(signal.SIGKILL)
        raise
    finally:
        if strays:
            send(signal.SIGKILL)
        tether.let_go()
        transport.close()
    code = transport.get_returncode()
    seconds = time.monotonic() - began
    ran = Ran(code if code is not None else -1, out.text(), err.text(), out.cut, seconds, left)
    if interrupted:
        raise Interrupted(ran)
    if timed_out:
        raise TimedOut(f"'{name_of(argv)}' did not end within {timeout:g} seconds and was ended.", ran)
    return ran


class _Tether:
    """Makes a program end with this process, however that ends. Its standard input comes from a file."""

    def __init__(self, stdin: bytes | None) -> None:
        self._input = os.devnull
        if stdin is not None:
            handle, self._input = tempfile.mkstemp()
            with os.fdopen(handle, "wb") as file:
                file.write(stdin)
        self._writing = -1
        if os.path.exists(SHELL):
            self.stdin, self._writing = os.pipe()
        else:
            self.stdin = os.open(self._input, os.O_RDONLY)

    def of(self, argv: list[str]) -> list[str]:
        """The command that runs a command on the tether."""
        return argv if self._writing < 0 else [SHELL, "-c", TETHERED, self._input, *argv]

    def handed_over(self, started: bool) -> None:
        """Close our copy of the program's input, once it is started or has failed to start."""
        os.close(self.stdin)
        if not started:
            self.let_go()

    def go(self) -> None:
        """Let the program begin."""
        if self._writing >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._writing, b"\n")

    def let_go(self) -> None:
        """Release the tether: processes the program left behind may go on."""
        if self._writing >= 0:
            with contextlib.suppress(BrokenPipeError):  # no process is left
                os.write(self._writing, b"\n")
            os.close(self._writing)
            self._writing = -1
        if self._input != os.devnull:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._input)


def _find_program(program: str, cwd: Path, env: Mapping[str, str]) -> str:
    """The file of a program, looked up as the system would."""
    if os.path.dirname(program):
        path = os.path.join(cwd, program)
        if not os.path.exists(path):
            raise FileNotFoundError
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise PermissionError
        return path
    executable = shutil.which(program, path=env.get("PATH", os.defpath))
    if executable is None:
        raise FileNotFoundError
    return os.path.join(cwd, executable)


class _Program(asyncio.SubprocessProtocol):
    """A running program. (Streams would make us wait for every process that inherited its output.)"""

    def __init__(self, streams: dict[int, _Kept], stop_when_full: bool) -> None:
        self._streams = streams
        self._stop_when_full = stop_when_full
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        """Done when it has ended, or has written enough."""
        self._gone: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()
        """Done when its output is closed."""
        self.full = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        output = self._streams[fd]
        output.take(data)
        if self._stop_when_full and fd == 1 and output.cut:
            self.full = True
            _settle(self._over)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._streams.pop(fd, None)
        if not self._streams:
            _settle(self.silent)

    def process_exited(self) -> None:
        _settle(self._over)
        _settle(self._gone)

    async def ended(self, seconds: float) -> bool:
        """Whether it ends by itself within so many seconds."""
        await asyncio.wait({self._over}, timeout=seconds)
        return self._over.done() and not self.full

    async def exited(self, seconds: float) -> bool:
        """Whether it has exited within so many seconds."""
        await asyncio.wait({self._gone}, timeout=seconds)
        return self._gone.done()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _end(
    send: Callable[[signal.Signals], None],
    program: _Program,
    number: signal.Signals | None,
    grace: float = GRACE,
) -> None:
    """End a program: by a signal and so many seconds, if one is given; where that fails, by SIGKILL."""
    if number is not None:
        send(number)
        if await program.exited(grace):
            return
    send(signal.SIGKILL)
    await program.exited(10 * GRACE)


async def _has_left(session: int) -> bool:
    """Whether a program has left processes besides the watcher, a moment after it has ended."""
    until = time.monotonic() + MOMENT
    while len(members_of(session)) > 1:
        if time.monotonic() >= until:
            return True
        await asyncio.sleep(MOMENT / 5)
    return False


def _signal(transport: asyncio.SubprocessTransport, number: signal.Signals, *, session: bool) -> None:
    """Send a signal to the whole process group, where there are groups, or to the whole session."""
    if session and hasattr(os, "getsid"):
        signal_groups(transport.get_pid(), number)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(transport.get_pid(), number)
        elif transport.get_returncode() is None:
            transport.kill()


def name_of(argv: Sequence[str]) -> str:
    """A program's name, for messages."""
    name = os.path.basename(argv[0]) or argv[0]
    return "".join(char if char.isprintable() else "?" for char in name)[:80]
