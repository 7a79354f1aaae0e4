"""The files of a kernel: the connection file that outlives the engine, the sockets, and the engine's lock."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent.adapters.disk import open_private, private_folder
from detent.adapters.jupyter.errors import KernelSuperseded
from detent.engine.host import born, this_host

LONGEST_SOCKET = 90
"""Characters of a socket's path that every system allows, its number left out."""
ENDS_WITHIN = 5.0
EVERY = 0.02
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_FILE = re.compile(r"kernel-(\d{1,18})\.json")


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """A kernel's folder of sockets and what is written about its process."""

    folder: Path
    """Of the sockets, the lock and the log; short, because a socket's path may not be long."""
    settings: Mapping[str, Any]
    """Jupyter's connection information."""
    pid: int = 0
    """Of the launcher, which leads the kernel's session and process group."""
    born: float = 0.0
    host: str = ""
    cwd: Path = Path()
    """The notebook's work folder."""

    @property
    def lock(self) -> Path:
        """Locked by the engine that has the kernel."""
        return self.folder / "engine.lock"

    @property
    def kernel_connection(self) -> Path:
        """The connection file that the kernel reads."""
        return self.folder / "connection.json"

    def runs(self) -> bool:
        """Whether the process still runs."""
        return bool(self.pid) and self.host == this_host() and born(self.pid) == self.born

    def kill(self) -> None:
        """Have the launcher kill the kernel and what it has started."""
        if self.runs():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)

    async def gone(self) -> None:
        """Wait until the process is gone, and kill its group if it does not go; remove its sockets."""
        for _ in range(round(ENDS_WITHIN / EVERY)):
            if not self.runs():
                break
            await asyncio.sleep(EVERY)  # it need not be a child of ours, so nothing tells us
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def new_files() -> KernelFiles:
    """Files for a kernel that is about to start."""
    folder = Path(tempfile.mkdtemp(prefix="detent-kernel-"))
    if len(str(folder)) > LONGEST_SOCKET - 2:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="detent-kernel-", dir="/tmp"))
    settings: dict[str, Any] = {
        "transport": "ipc",
        "ip": str(folder / "s"),
        "key": secrets.token_hex(32),
        "signature_scheme": "hmac-sha256",
        "kernel_name": "python3",
        **{f"{channel}_port": number for number, channel in enumerate(CHANNELS, 1)},
    }
    files = KernelFiles(folder, settings)
    _write(files.kernel_connection, settings)
    with open_private(files.lock, "w"):
        pass
    return files


def connection_path(folder: Path, epoch: int) -> Path:
    """The connection file of a driver."""
    return folder / f"kernel-{epoch}.json"


def epoch_of(path: Path) -> int:
    """The epoch in the name of a connection file; 0 where there is none."""
    match = _FILE.fullmatch(path.name)
    return int(match[1]) if match else 0


def save(path: Path, files: KernelFiles) -> None:
    """Write the file by which another process attaches."""
    private_folder(path.parent)
    process = {
        "pid": files.pid, "born": files.born, "host": files.host, "folder": str(files.folder),
        "cwd": str(files.cwd),
    }  # fmt: skip
    draft = path.with_suffix(".draft")
    _write(draft, {**files.settings, "detent": process})
    draft.replace(path)


def read(path: Path) -> KernelFiles | None:
    """What a connection file says, None if it is not there or not one of ours."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        process = settings.pop("detent")
        files = KernelFiles(
            Path(process["folder"]),
            settings,
            pid=int(process["pid"]),
            born=float(process["born"]),
            host=str(process["host"]),
            cwd=Path(process["cwd"]),
        )
        return files if files.pid > 1 and settings["key"] and settings["ip"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


async def supersede(folder: Path, epoch: int) -> None:
    """End the kernels of the run's earlier drivers.

    Raises:
        KernelSuperseded: a later driver has a kernel, so this one may have none.
    """
    found = _connections(folder)
    if found and max(found) > epoch:
        raise KernelSuperseded(
            f"The run has a kernel of epoch {max(found)}, and this driver holds epoch {epoch}: it has been "
            f"taken over."
        )
    for path in found.values():
        files = read(path)
        if files is not None:
            files.kill()
            await files.gone()
        path.unlink(missing_ok=True)


def _connections(folder: Path) -> dict[int, Path]:
    """The connection files of a run by their epochs."""
    paths = list(folder.glob("kernel-*.json"))
    return {epoch_of(path): path for path in paths if _FILE.fullmatch(path.name)}


class EngineLock:
    """Held while an engine has the kernel; the system lets go of it when the engine dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Try to take the lock; False if another engine has it, or the kernel is gone."""
        try:
            handle = os.open(self._path, os.O_RDWR)
        except OSError:
            return False
        import fcntl  # which Windows does not have: there nothing comes this far

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        self._handle = handle
        return True

    def release(self) -> None:
        """Let go of the lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _write(path: Path, value: Mapping[str, Any]) -> None:
    with open_private(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
