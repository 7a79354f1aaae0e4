"""A Jupyter kernel in a process of its own: cells go in, outputs and facts about variables come out."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from detent.adapters.jupyter import connection as connection_file
from detent.adapters.jupyter.cell_outputs import CellOutputs
from detent.adapters.jupyter.cell_result import CellResult, CellStatus, EvalResult, KernelInfo, VariableInfo
from detent.adapters.jupyter.channels import Message
from detent.adapters.jupyter.environment import kernel_memory
from detent.adapters.jupyter.errors import KernelDied, KernelNotStarted
from detent.adapters.jupyter.kernel_process.output_limit import shortened
from detent.adapters.jupyter.launch import require_libraries
from detent.adapters.jupyter.process import SLICE, KernelProcess

INTERRUPT_AGAIN = 2.0
"""Seconds after which a cell that did not heed an interrupt is interrupted again."""
REPLY_WITHIN = 1.0
"""Seconds a reply may come after the idle status: an interrupt at the wrong instant loses the reply."""


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """The limits of a kernel; the defaults are those of the notebook flow."""

    memory: int | None = None
    """Bytes of address space; None stands for three quarters of the machine's memory, 0 for no limit."""
    lifetime: float = 600.0
    """Seconds after which a kernel without an engine ends itself."""
    grace: float = 10.0
    """Seconds an interrupted cell has to end, and a process to answer a heartbeat."""
    inspect: float = 60.0
    """Seconds for looking at one variable."""


Ending = Literal["done", "timeout", "interrupted", "died"]
Collect = Callable[[Message], None]


@dataclass(slots=True)
class _Request:
    """A request under way."""

    id: str
    reply: Mapping[str, Any] | None = None
    idle: bool = False
    interrupted: bool = False


class JupyterKernel:
    """The kernel of one run, held by one driver of it.

    The connection file in `folder` carries the driver's epoch. Starting a kernel ends those of earlier
    epochs, and is refused where a later one has started its own.
    """

    def __init__(self, folder: Path, *, epoch: int = 1, limits: KernelLimits | None = None) -> None:
        self._folder = folder
        self._path = connection_file.connection_path(folder, epoch)
        self._epoch = epoch
        self._limits = limits or KernelLimits()
        self._process: KernelProcess | None = None
        self._started: tuple[Path, Mapping[str, str]] | None = None
        """Work folder and environment for a restart."""
        self._busy = asyncio.Lock()
        self._current: _Request | None = None

    @property
    def connection(self) -> Path | None:
        """The file by which another process attaches; None while no kernel runs."""
        return self._path if self._process is not None else None

    # --- the process ---

    async def start(self, *, cwd: Path, env: Mapping[str, str]) -> KernelInfo:
        """Start a kernel in the work folder `cwd`, with the variables of `env` that are no secrets.

        Raises:
            KernelNotStarted: a library is missing, or the process does not answer.
            KernelSuperseded: a later driver of the run has a kernel.
        """
        require_libraries()
        await self._end()
        await connection_file.supersede(self._folder, self._epoch)
        self._started = (cwd, dict(env))
        memory = kernel_memory() if self._limits.memory is None else self._limits.memory
        self._process = await KernelProcess.start(
            cwd=cwd, env=env, lifetime=self._limits.lifetime, memory=memory
        )
        connection_file.save(self._path, self._process.files)
        return await self._info()

    async def attach(self, connection: Path) -> KernelInfo | None:
        """Take over the kernel of a connection file; None unless it lives, is idle and nobody holds it.

        The kernel of a later driver of the run is none to take over.

        Raises:
            KernelNotStarted: a library is missing.
        """
        require_libraries()
        files = connection_file.read(connection)
        if connection_file.epoch_of(connection) > self._epoch:
            return None
        process = await KernelProcess.attach(files) if files is not None and files.runs() else None
        if files is None or process is None:
            return None
        await self._end()
        self._process = process
        self._started = (files.cwd, dict(os.environ))
        connection_file.save(self._path, files)
        if connection != self._path:
            connection.unlink(missing_ok=True)  # noqa: ASYNC240
        return await self._info()

    async def restart(self) -> None:
        """End the kernel and start another one in the same folder.

        Raises:
            KernelNotStarted: it was never started, or the new one does not answer.
            KernelSuperseded: a later driver of the run has a kernel.
        """
        if self._started is None:
            raise KernelNotStarted("There is no kernel to restart: none was started.")
        cwd, env = self._started
        await self.start(cwd=cwd, env=env)

    async def shutdown(self) -> None:
        """End the kernel and remove its connection file; a cell that is running ends as after its death."""
        await self._end()

    async def interrupt(self) -> None:
        """Interrupt the cell that is running, if one is."""
        if self._current is not None:
            self._current.interrupted = True

    def is_alive(self) -> bool:
        """Whether the kernel's process runs."""
        return self._process is not None and self._process.alive()

    async def _end(self) -> None:
        """Kill what runs, and remove its files."""
        process = self._process
        if process is None:
            return
        process.kill()
        async with self._busy:  # a request under way notices that the process is gone
            await process.end()
            self._process = None
            if connection_file.read(self._path) == process.files:
                self._path.unlink(missing_ok=True)

    async def _info(self) -> KernelInfo:
        _, answer = await self._ask({"ask": "kernel"}, self._limits.inspect)
        versions = dict(answer["versions"])
        return KernelInfo("python3", versions.pop("python"), versions, int(answer["pid"]))

    # --- what is asked of it ---

    async def execute(self, code: str, *, cell_id: str, timeout: float) -> CellResult:
        """Run a cell to its end; what it raises is part of the result.

        A cell that runs longer than `timeout` seconds is interrupted. One that does not heed an interrupt
        within the grace ends with its kernel: `is_alive` is then False, as after its death.
        """
        collected = CellOutputs()
        started = time.monotonic()
        content = {
            "code": code, "silent": False, "store_history": True, "user_expressions": {},
            "allow_stdin": False, "stop_on_error": False,
        }  # fmt: skip

        def collect(message: Message) -> None:
            collected.add(message.kind, message.content)

        ending, reply = await self._request("execute_request", content, timeout, collect, {"cellId": cell_id})
        count = (reply or {}).get("execution_count")
        status, error = _verdict(ending, reply, timeout)
        return CellResult(
            status,
            collected.outputs(),
            count if isinstance(count, int) else None,
            round((time.monotonic() - started) * 1000, 1),
            error,
        )

    async def evaluate(self, expressions: Mapping[str, str], *, timeout: float) -> Mapping[str, EvalResult]:
        """The values of expressions by their keys, each within `timeout` seconds.

        An expression that raises, runs too long or ends the kernel has an error; the others are evaluated.
        """
        results: dict[str, EvalResult] = {}
        for key, expression in expressions.items():
            try:
                ending, answer = await self._ask({"ask": "evaluate", "expression": expression}, timeout)
                if ending == "timeout":
                    answer = {"error": f"TimeoutError: no value within {timeout:g} s"}
            except KernelDied as error:
                answer = {"error": f"KernelDied: {error}"}
            results[key] = EvalResult(**answer)
        return results

    async def inspect(self, names: Sequence[str]) -> Mapping[str, VariableInfo]:
        """What is known of variables of any names; what cannot be read of a value is left out.

        Raises:
            KernelDied: the kernel is gone, or was ended because a value could not be read in time.
        """
        found: dict[str, VariableInfo] = {}
        for name in names:
            _, facts = await self._ask({"ask": "inspect", "name": name}, self._limits.inspect)
            found[name] = _variable(facts)
        return found

    async def names(self) -> Mapping[str, str]:
        """The names that cells have defined, each with the type of its value.

        Raises:
            KernelDied: the kernel is gone.
        """
        _, answer = await self._ask({"ask": "names"}, self._limits.inspect)
        names: dict[str, str] = answer.get("names", {})
        return names

    async def _ask(self, question: Mapping[str, Any], timeout: float) -> tuple[Ending, dict[str, Any]]:
        """The answer to a question about the namespace; what there is of it where it took too long.

        Raises:
            KernelDied: the kernel is gone, or does not heed an interrupt.
        """
        ending, reply = await self._request("probe_request", question, timeout)
        if not self.is_alive():
            raise KernelDied("the kernel is gone")
        return ending, json.loads((reply or {}).get("answer", "{}"))

    async def _request(
        self,
        kind: str,
        content: Mapping[str, Any],
        timeout: float,
        collect: Collect | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> tuple[Ending, Mapping[str, Any] | None]:
        """Send a request and wait for its reply and its idle status, however it ends."""
        async with self._busy:
            process = self._process
            if process is None or not process.alive():
                return "died", None
            request = _Request(process.channels.send(kind, content, metadata=metadata))
            self._current = request
            try:
                return await self._until_idle(process, request, timeout, collect), request.reply
            except asyncio.CancelledError:
                process.interrupt()
                raise
            finally:
                self._current = None

    async def _until_idle(
        self, process: KernelProcess, request: _Request, timeout: float, collect: Collect | None
    ) -> Ending:
        deadline = time.monotonic() + timeout
        ending: Ending = "done"
        kill_at = reply_until = interrupt_at = float("inf")
        while not (request.idle and request.reply is not None):
            now = time.monotonic()
            if ending == "done" and (now >= deadline or request.interrupted):
                ending = "interrupted" if request.interrupted else "timeout"
                kill_at, interrupt_at = now + self._limits.grace, now
            if now >= interrupt_at:
                interrupt_at = now + INTERRUPT_AGAIN
                process.interrupt()
            if now >= kill_at or process.channels.silent_for() > self._limits.grace:
                process.kill()
                return "died" if ending == "done" else ending
            if now >= reply_until:
                break
            alive = process.alive()
            messages = await process.channels.receive(SLICE if alive else 0)
            for message in messages:
                _take(request, message, collect)
            if request.idle and reply_until == float("inf"):
                reply_until = time.monotonic() + REPLY_WITHIN
            if not alive and not messages:
                return "died" if ending == "done" else ending
        return ending


def _variable(facts: Mapping[str, Any]) -> VariableInfo:
    """What the kernel told of a variable; nothing but that it exists where it was interrupted at once."""
    known = {name: value for name, value in facts.items() if name not in ("content", "error", "shape")}
    shape = facts.get("shape")
    return VariableInfo(
        **{"exists": True, **known, **(facts.get("content") or {})},
        shape=None if shape is None else tuple(shape),
    )


def _take(request: _Request, message: Message, collect: Collect | None) -> None:
    if message.request != request.id:
        return
    if message.channel == "shell":
        request.reply = message.content
    elif message.kind == "status":
        request.idle = request.idle or message.content.get("execution_state") == "idle"
    elif collect is not None:
        collect(message)


def _verdict(
    ending: Ending, reply: Mapping[str, Any] | None, timeout: float
) -> tuple[CellStatus, str | None]:
    """What a cell's result says of its ending."""
    raised = reply is None or reply.get("status") != "ok"
    match ending:
        case "timeout":
            return "timeout", f"TimeoutError: the cell did not end within {timeout:g} s"
        case "died":
            return "died", "KernelDied: the kernel's process ended"
        case "interrupted" if raised:
            return "interrupted", "KeyboardInterrupt"
    if not raised:
        return "ok", None
    name, message = (str((reply or {}).get(part, "")) for part in ("ename", "evalue"))
    first = message.strip().splitlines()[0] if message.strip() else ""
    return "error", shortened(f"{name}: {first}" if first else name or "Error", 500)
