"""Start a kernel and watch over it: `CONNECTION LOCK LIFETIME MEMORY`.

The process forks: the child becomes the kernel, the parent stays small and ends the kernel when no engine
has held the lock for a while. A thread inside the kernel could not: a call into C may keep every other thread
from running.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LOOKS = 20
"""How often the lock is looked at in a lifetime."""
SELDOM = 5.0
"""Seconds between two looks at most."""
ENDS_WITHIN = 2.0
"""Seconds that processes of the kernel have to end by themselves: joblib's clears its shared memory."""


def main(connection: str, lock: str, lifetime: float, memory: int) -> None:
    """Run the kernel in a child process until it ends, is ended by SIGTERM, or is left alone."""
    launcher = os.getpid()
    kernel = os.fork()
    if kernel == 0:
        _limit(memory)
        from detent.adapters.jupyter.kernel_process.ipython_kernel import run

        run(connection, launcher)
        return

    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(kernel, signal.SIGKILL)

    signal.signal(signal.SIGTERM, kill)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts go to the whole group, for the kernel's workers
    threading.Thread(target=_watch, args=(Path(lock), lifetime, kill), daemon=True).start()
    os.waitpid(kernel, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    shutil.rmtree(Path(lock).parent, ignore_errors=True)
    _end_group()


def _limit(memory: int) -> None:
    """Bound the address space of the kernel, so that too large an array is a MemoryError."""
    with contextlib.suppress(OSError, ValueError):  # a system without this limit, or with a lower one
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch(lock: Path, lifetime: float, kill: Callable[[], None]) -> None:
    """Kill the kernel when nobody has held the lock for its lifetime."""
    seen = time.monotonic()
    while time.monotonic() - seen < lifetime:
        time.sleep(min(lifetime / LOOKS, SELDOM))
        if _held(lock):
            seen = time.monotonic()
    kill()


def _held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the folder is gone: the engine has given the kernel up
        return False
    return False


def _end_group() -> None:
    """End what the kernel has left running; this process is the last."""
    os.killpg(os.getpgrp(), signal.SIGTERM)
    deadline = time.monotonic() + ENDS_WITHIN
    while time.monotonic() < deadline and _others():
        time.sleep(0.01)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _others() -> bool:
    """Whether the group has another process; False where the system does not tell."""
    own, group = os.getpid(), os.getpgrp()
    try:
        processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return False
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if process != own and os.getpgid(process) == group and not _zombie(process):
                return True
    return False


def _zombie(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
