"""Programs run on the project: once as an effect, or as a query where they only read.

Arguments reach the program unchanged; no shell interprets them. A program's output goes into the receipt;
that of a failed program goes into a file that the error names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detent.adapters.project.changed_files import Watch
from detent.adapters.project.effect_notes import folder_of, safe
from detent.adapters.project.processes import end_process, name_process, still_runs
from detent.adapters.project.programs import Ran, TimedOut, name_of, run_program
from detent.adapters.project.sandbox import Sandbox, quoted
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.kernel.plain import digest
from detent.kernel.policy import ONCE

MOST_KEPT = 200_000
"""Bytes of standard output kept, and as many of standard error: the beginning and the end."""
LONGEST = 24 * 3600.0
SECRET_INPUTS = "DETENT_INPUT_"
"""Variables with secret inputs are not passed on; a step passes the ones it means to in `env`."""
NO_ADDITIONS: dict[str, str] = {}
TOLD_AGAIN = 5.0
"""Seconds during which a command that failed for an agent is not run again for the handler, which asks for it
at once when the agent fails: the command did run."""


class Shell:
    """Runs programs in the folders of a project."""

    def __init__(self, sandbox: Sandbox, environ: Mapping[str, str], watch: Watch | None = None) -> None:
        self._sandbox = sandbox
        self._environ = {name: value for name, value in environ.items() if not name.startswith(SECRET_INPUTS)}
        self._watch = watch
        self._failed: dict[str, tuple[float, ToolError]] = {}

    async def run(
        self,
        call: EffectCall,
        argv: list[str],
        cwd: str = ".",
        env: dict[str, str] = NO_ADDITIONS,
        timeout: float = 300,
        check: bool = True,
        watch: bool = False,
    ) -> dict[str, Any]:
        """Run one program; with `watch`, also report which project files it changed."""
        asked = digest([call.run_id, argv, cwd, env, timeout, check, watch])
        failed_at, failure = self._failed.pop(asked, (0.0, None))
        if failure is not None and call.by != "agent" and time.monotonic() - failed_at <= TOLD_AGAIN:
            raise failure
        log = folder_of(self._sandbox.state / "commands", call.family) / f"{safe(call.idempotency_key)}.log"
        guarded = self._sandbox.guarded
        # What a program will do cannot be read from its arguments, so its effect is checked afterwards.
        hashes = await asyncio.to_thread(guarded.digests) if call.by == "agent" else None
        try:
            if not watch or self._watch is None:
                return await self._run(argv, cwd, env, timeout, check, log, call)
            before = await self._watch.before(call.root, call.idempotency_key)
            answer = await self._run(argv, cwd, env, timeout, check, log, call)
            return {**answer, "changed_files": await self._watch.changed(call.root, before)}
        except ToolError as error:
            self._failed = {
                name: failed for name, failed in self._failed.items() if time.monotonic() - failed[0] <= 60
            }
            if call.by == "agent":
                self._failed[asked] = (time.monotonic(), error)
            raise
        finally:
            if hashes is not None:
                await asyncio.to_thread(guarded.compare, hashes, f"'{name_of(argv)}' of run {call.run_id}")

    @staticmethod
    async def stop(call: EffectCall) -> None:
        """End the program that an effect in doubt has started, if it still runs."""
        process = call.intent.get("process")
        if process is not None and still_runs(process) and not await end_process(process):
            raise ToolError("running", f"process {process['pid']} cannot be ended.")

    async def read(
        self,
        argv: list[str],
        cwd: str = ".",
        env: dict[str, str] = NO_ADDITIONS,
        timeout: float = 300,
        check: bool = True,
    ) -> dict[str, Any]:
        """Run one program that only reads."""
        name = digest([argv, cwd], 16)
        log = self._sandbox.state / "commands" / "reads" / f"{name}.log"
        return await self._run(argv, cwd, env, timeout, check, log)

    async def _run(
        self,
        argv: list[str],
        cwd: str,
        env: Mapping[str, str],
        timeout: float,
        check: bool,
        log: Path,
        effect: EffectCall | None = None,
    ) -> dict[str, Any]:
        async def started(pid: int) -> None:
            if effect is not None:
                await effect.begun(process=name_process(pid))

        folder = self._sandbox.folder(cwd)
        if not argv or not argv[0] or any("\0" in part for part in argv):
            raise ToolError("invalid", "argv is a list: the program, then its arguments, no null characters.")
        for name, value in env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ToolError("invalid", f"{quoted(name)} is no name and value of an environment variable.")
        if not 0 < timeout <= LONGEST:
            raise ToolError("invalid", f"a timeout is more than 0 and at most {LONGEST:g} seconds.")
        try:
            ran = await run_program(
                argv, cwd=folder, env={**self._environ, **env}, timeout=timeout,
                head=MOST_KEPT // 2, tail=MOST_KEPT // 2, started=started,
            )  # fmt: skip
        except TimedOut as error:
            raise ToolError("timeout", str(error)) from None
        if check and ran.code != 0:
            self._sandbox.keep(log, _output(ran))
            ended = f"exit code {ran.code}" if ran.code >= 0 else f"ended by signal {-ran.code}"
            raise ToolError("failed", f"{quoted(Path(argv[0]).name)}: {ended}. What it said is in {log}.")
        return {
            "exit_code": ran.code,
            "stdout": ran.out.decode("utf-8", "replace"),
            "stderr": ran.err.decode("utf-8", "replace"),
            "duration_ms": round(ran.seconds * 1000, 1),
        }


def _output(ran: Ran) -> bytes:
    return b"--- output\n" + ran.out + b"\n--- errors\n" + ran.err + b"\n"


def shell_tools(shell: Shell) -> list[Tool]:
    """The tools for programs."""
    return [
        # Only the author of a workflow knows that a program does nothing but read.
        Tool("shell.read", shell.read, "query", for_agents=False,
             description="Run one program that only reads; its exit code and output."),
        # Whether a program has run cannot be found out afterwards, so in doubt a person is asked.
        Tool("shell.run", shell.run, wants_call=True, retry=ONCE, stop=shell.stop,
             description="Run one program with the given arguments, no shell. The receipt says exit_code, "
             "stdout, stderr, duration_ms."),
    ]  # fmt: skip
