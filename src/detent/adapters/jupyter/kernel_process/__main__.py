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
from pathlib import Path

LOOKS = 20
"""How often the lock is looked at in a lifetime."""
SELDOM = 5.0
"""Seconds between two looks at most."""


def main(connection: str, lock: str, lifetime: float, memory: int) -> None:
    """Run the kernel in a child process until it ends or is left alone."""
    launcher = os.getpid()
    kernel = os.fork()
    if kernel == 0:
        _limit(memory)
        from detent.adapters.jupyter.kernel_process.ipython_kernel import run

        run(connection, launcher)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts go to the whole group, for the kernel's workers
    threading.Thread(target=_watch, args=(Path(lock), lifetime), daemon=True).start()
    os.waitpid(kernel, 0)
    _end(Path(lock).parent)


def _limit(memory: int) -> None:
    """Bound the address space of the kernel, so that too large an array is a MemoryError."""
    with contextlib.suppress(OSError, ValueError):  # a system without this limit, or with a lower one
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch(lock: Path, lifetime: float) -> None:
    """End the kernel when nobody has held the lock for its lifetime."""
    seen = time.monotonic()
    while time.monotonic() - seen < lifetime:
        time.sleep(min(lifetime / LOOKS, SELDOM))
        if _held(lock):
            seen = time.monotonic()
    _end(lock.parent)


def _held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the folder is gone: the engine has given the kernel up
        return False
    return False


def _end(folder: Path) -> None:
    """Remove the sockets and end what the kernel has left running, this process included."""
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
