"""When the command that is being run was given."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

CUT_OFF = 0.02
"""Seconds by which what the system says of times may be wrong."""
_asked_at = 0.0


def begin(as_program: bool) -> None:
    """A command begins: with this process, or now where a program calls it."""
    global _asked_at
    _asked_at = time.time() - (_age() if as_program else 0.0)


def asked_at() -> float:
    """When the command was given, in seconds since the epoch."""
    return _asked_at or time.time()


def _age() -> float:
    """Seconds since this process was started; those at work where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        # Both are cut off: rather a little too young than told to have come before it was started.
        return max(0.0, uptime - ticks / os.sysconf("SC_CLK_TCK") - CUT_OFF)
    return time.process_time()
