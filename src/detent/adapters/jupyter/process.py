"""The process of a kernel as its engine holds it: started or taken over, interrupted, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from detent.adapters.jupyter.channels import KernelChannels
from detent.adapters.jupyter.connection import EngineLock, KernelFiles, new_files
from detent.adapters.jupyter.errors import KernelNotStarted
from detent.adapters.jupyter.launch import last_words, launch

SLICE = 0.1
"""Seconds between two looks at the process while waiting for messages."""
STARTS_WITHIN = 90.0
ATTACHES_WITHIN = 5.0
EVERY = 0.02
LOOKS = 50
"""How often an engine tries to take the lock: the launcher looks at it now and then, for an instant."""


class KernelProcess:
    """A running kernel, its launcher, and the sockets to it."""

    def __init__(
        self, files: KernelFiles, lock: EngineLock, launcher: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.files = files
        self.channels = KernelChannels(files.settings)
        self._lock = lock
        self._launcher = launcher
        """Where this engine has started it."""
        self._killed = False

    @classmethod
    async def start(cls, *, cwd: Path, env: Mapping[str, str], lifetime: float, memory: int) -> KernelProcess:
        """Start a kernel and wait until it answers.

        Raises:
            KernelNotStarted: it does not answer; the message has what it said.
        """
        files = new_files()
        lock = EngineLock(files.lock)
        lock.take()
        process: KernelProcess | None = None
        try:
            with tempfile.TemporaryFile() as log:
                files, launcher = launch(files, cwd=cwd, env=env, lifetime=lifetime, memory=memory, log=log)
                process = cls(files, lock, launcher)
                if not await process._ready(STARTS_WITHIN):
                    said = last_words(log)
                    raise KernelNotStarted(
                        "The kernel did not start." + (f" It said:\n{said}" if said else "")
                    )
        except BaseException:
            files.kill()
            if process is not None:
                process.let_go()
            await files.gone()
            raise
        return process

    @classmethod
    async def attach(cls, files: KernelFiles) -> KernelProcess | None:
        """Take over a running kernel; None if it is not idle, or another engine has it."""
        lock = EngineLock(files.lock)
        for _ in range(LOOKS):
            if lock.take():
                break
            await asyncio.sleep(EVERY)
        else:
            return None
        process = cls(files, lock)
        ready = False
        try:
            ready = await process._ready(ATTACHES_WITHIN)
        finally:
            if not ready:
                process.let_go()
        return process if ready else None

    def alive(self) -> bool:
        """Whether the process runs, and was not given up."""
        if self._killed:
            return False
        return self._launcher.poll() is None if self._launcher is not None else self.files.runs()

    def interrupt(self) -> None:
        """Interrupt the kernel and the processes it has started, as a terminal does."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.files.pid, signal.SIGINT)

    def kill(self) -> None:
        """End the kernel at once, with what it has started."""
        self._killed = True
        self.files.kill()

    async def end(self) -> None:
        """End the kernel, and wait until it is gone."""
        self.kill()
        self.let_go()
        await self.files.gone()
        if self._launcher is not None:
            self._launcher.poll()

    def let_go(self) -> None:
        """Close the sockets and leave the kernel to whoever comes next."""
        self.channels.close()
        self._lock.release()

    async def _ready(self, seconds: float) -> bool:
        """Wait until the kernel answers and its outputs reach us: a subscription takes effect late."""
        deadline = time.monotonic() + seconds
        answered = False
        while self.alive() and time.monotonic() < deadline:
            request = self.channels.send("kernel_info_request", {})
            until = deadline
            while self.alive() and time.monotonic() < until:
                for message in await self.channels.receive(SLICE):
                    if message.channel == "iopub" and message.request == request and answered:
                        return True
                    if message.channel == "shell" and message.kind == "kernel_info_reply":
                        answered, until = True, min(until, time.monotonic() + 5 * SLICE)
        return False
