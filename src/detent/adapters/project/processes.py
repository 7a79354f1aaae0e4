"""Processes named so that another worker can tell whether one still runs, and end it.

A process is named by its machine, its id and when it started: an id alone may belong to another process by
now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from detent.engine.host import born, this_host

ENDS_WITHIN = 10.0
"""Seconds in which a killed process must be gone."""
EVERY = 0.02


def name_process(pid: int) -> dict[str, Any]:
    """The name of a process of this machine, as plain values."""
    return {"pid": pid, "born": born(pid) or 0.0, "host": this_host()}


def still_runs(name: Mapping[str, Any]) -> bool | None:
    """Whether a named process still runs; None if that cannot be told here."""
    if not name.get("born") or name.get("host") != this_host():
        return None
    return bool(born(int(name["pid"])) == name["born"])


def members_of(group: int) -> int:
    """The number of processes in a process group, without those that have ended and are not collected."""
    if os.path.exists("/proc/self/stat"):
        return sum(_is_member(pid, group) for pid in filter(str.isdigit, os.listdir("/proc")))
    return _members_by_ps(group)


def _is_member(pid: str, group: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, member_of = file.read().rpartition(b")")[2].split()[:3]
    except OSError:  # it has ended
        return False
    return int(member_of) == group and state != b"Z"


def _members_by_ps(group: int) -> int:
    """As `members_of`, where the system has no /proc."""
    command = ["ps", "-A", "-o", "pgid=,stat="]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return 0
    rows = (line.split() for line in listing.stdout.splitlines())
    return sum(row[0] == str(group) and not row[1].startswith("Z") for row in rows if len(row) > 1)


async def end_process(name: Mapping[str, Any]) -> bool:
    """End a named process with its whole group; False if that cannot be done here, or it does not end."""
    running = still_runs(name)
    if running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(name["pid"]), signal.SIGKILL)
        for _ in range(round(ENDS_WITHIN / EVERY)):
            if not (running := still_runs(name)):
                break
            await asyncio.sleep(EVERY)  # it is no child of ours, so nothing tells us
    return running is False
