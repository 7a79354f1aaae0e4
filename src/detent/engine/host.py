"""This machine and its processes: who we are, who is still running, and a clock that nobody sets.

Wall clocks differ between machines and jump; what leases compare is never one of them. Nothing here knows
about runs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path


def this_host(name: str | None = None) -> str:
    """Machine, boot and process namespace: process ids compare only within one of these.

    `name` stands in for the machine's own.
    """
    machine = name or socket.gethostname()
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        return f"{machine}/{boot}/{os.readlink('/proc/self/ns/pid')[5:-1]}"
    return machine


def boot_of(host: str) -> str:
    """The boot a host identity speaks of; empty where the system does not tell."""
    parts = host.split("/")
    return parts[1] if len(parts) == 3 else ""


def _boot_clock() -> int | None:
    """The clock that also counts the time a machine is suspended, where there is one."""
    name = "CLOCK_BOOTTIME" if sys.platform == "linux" else "CLOCK_MONOTONIC"
    clock: int | None = getattr(time, name, None)
    try:
        if clock is not None:
            time.clock_gettime(clock)
    except OSError:
        return None
    return clock


_BOOT_CLOCK = _boot_clock()


def ticks() -> float:
    """Seconds since the machine started, suspended ones included: the same in all its processes."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def born(pid: int) -> float | None:
    """When a process started; 0.0 where that cannot be told; None when there is no such process."""
    if sys.platform == "win32":
        return 0.0
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _born_by_ps(pid)
    except ProcessLookupError:  # it ended while its file was being read
        return None
    except OSError:
        return 0.0
    fields = stat.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else float(fields[19])


def _born_by_ps(pid: int) -> float | None:
    """As `born`, where the system has no /proc: a number that stands for the time `ps` prints."""
    try:
        listing = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
    except OSError:
        return 0.0
    state, _, started = listing.stdout.strip().partition(" ")
    if not state or state.startswith("Z"):
        return None
    return float(zlib.crc32(started.strip().encode()) or 1)
