"""The time at which the current command was invoked."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

CUT_OFF = 0.02
"""Seconds by which the system's process times may be off."""
_asked_at = 0.0


def begin(as_program: bool) -> None:
    """Note the start of a command: the start of this process, or now when a program calls the CLI."""
    global _asked_at
    _asked_at = time.time() - (_age() if as_program else 0.0)


def asked_at() -> float:
    """Time at which the command was invoked, in seconds since the epoch."""
    return _asked_at or time.time()


def _age() -> float:
    """Seconds since this process started; its CPU time where the system does not report the start."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        # Both times are truncated: err towards too young, never before the actual start.
        return max(0.0, uptime - ticks / os.sysconf("SC_CLK_TCK") - CUT_OFF)
    return time.process_time()
