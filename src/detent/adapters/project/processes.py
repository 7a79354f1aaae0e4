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
from typing import Any, NamedTuple

from detent.engine.host import born, this_host

ENDS_WITHIN = 10.0
"""Seconds in which a killed process must be gone."""
EVERY = 0.02
PASSES = 3
"""How often a session is looked through for processes to kill: one may start another meanwhile."""


def name_process(pid: int) -> dict[str, Any]:
    """The name of a process of this machine, as plain values."""
    return {"pid": pid, "born": born(pid) or 0.0, "host": this_host()}


def still_runs(name: Mapping[str, Any]) -> bool | None:
    """Whether a named process still runs; None if that cannot be told here."""
    if not name.get("born") or name.get("host") != this_host():
        return None
    return bool(born(int(name["pid"])) == name["born"])


class Member(NamedTuple):
    """A process of a session."""

    pid: int
    group: int


def members_of(session: int) -> list[Member]:
    """The processes of a session, without those that have ended and whose parents have not asked how."""
    if not os.path.exists("/proc/self/stat"):
        return _members_by_ps(session)
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if os.getsid(int(name)) == session:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, _, group = file.read().rpartition(b")")[2].split()[:3]
                if state != b"Z":
                    found.append(Member(int(name), int(group)))
    return found


def _members_by_ps(session: int) -> list[Member]:
    """As `members_of`, where the system has no /proc."""
    command = ["ps", "-A", "-o", "pid=,pgid=,stat="]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return []
    found = []
    for line in listing.stdout.splitlines():
        pid, group, state = line.split(maxsplit=2)
        with contextlib.suppress(OSError):
            if os.getsid(int(pid)) == session and not state.startswith("Z"):
                found.append(Member(int(pid), int(group)))
    return found


def signal_groups(session: int, number: signal.Signals) -> None:
    """Send a signal to all processes of a session that have left the group of its first process."""
    for _ in range(PASSES if number == signal.SIGKILL else 1):
        others = [member.pid for member in members_of(session) if member.group != session]
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if not others:
            break


async def end_process(name: Mapping[str, Any]) -> bool:
    """End a named process with its whole session; False if that cannot be done here, or it does not end."""
    running = still_runs(name)
    if running:
        signal_groups(int(name["pid"]), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(name["pid"]), signal.SIGKILL)
        for _ in range(round(ENDS_WITHIN / EVERY)):
            if not (running := still_runs(name)):
                break
            await asyncio.sleep(EVERY)  # it is no child of ours, so nothing tells us
    return running is False
