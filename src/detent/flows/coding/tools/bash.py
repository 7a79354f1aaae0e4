"""The tool `bash`: one command in a shell, with named variables only, in a sandbox where there is one.

What a command does cannot be known from its text, so a path check confines nothing here. It is never run
twice: what came of one whose worker died is for a person to say, and it is ended before.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from detent.adapters.project.confinement import NONE, Confinement, Stopped, confinement
from detent.adapters.project.processes import end_process, name_process, still_runs
from detent.adapters.project.programs import Ran
from detent.adapters.project.sandbox import OWN_FOLDER, quoted
from detent.engine.calls import in_thread
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.flows.coding.check_parts import parts_of
from detent.flows.coding.tools.spec import (
    LONGEST_COMMAND,
    LONGEST_TIMEOUT,
    SPECS,
    WATCH,
    ToolSettings,
    with_code_arguments,
)
from detent.flows.coding.tools.text_form import with_notes
from detent.flows.coding.watched_files import Contents, WatchedFiles, changed
from detent.flows.coding.workspace import Workspace
from detent.kernel.policy import ONCE

NAMED = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "VIRTUAL_ENV")
"""Variables that every command is given, besides those of the locale."""
LOCALE = "LC_"
LONGEST, HEAD, TAIL = 3500, 2500, 1000
"""Characters of output that are returned whole; of a longer one, its beginning and its end."""
WIDEST = 4
"""Bytes of a character at most."""
GRACE = 5.0
"""Seconds that an interrupted command gets to end by itself."""
SETTLING = 60.0
"""Seconds beyond its own limit in which a command must have been started, ended and recorded."""
MOST_NAMED = 20
"""Files that a receipt names."""
SHELLS = ("bash", "sh")


class Bash:
    """Runs commands for one project."""

    def __init__(self, settings: ToolSettings, repeatable: bool = False) -> None:
        self._settings = settings
        self._repeatable = repeatable
        self._watched_files = WatchedFiles()

    async def run(
        self,
        call: EffectCall,
        workspace: str,
        command: str,
        cwd: str = ".",
        timeout: float = 120,
        env: Mapping[str, str] | None = None,
        watch: str = "",
    ) -> dict[str, Any]:
        """Run one command; the receipt has its output and exit code."""
        space = Workspace.at(
            workspace,
            protected=self._settings.protected,
            guarded=self._settings.guarded,
            state=self._settings.state,
        )
        folder = space.folder(cwd)
        _check(command, env or {}, timeout)
        variables = self._variables()
        argv = [_shell(variables["PATH"]), "-c", command]
        sandbox = await self._sandbox()

        async def started(pid: int) -> None:
            process = name_process(pid)
            await call.begun(pid=pid, started=process["born"], host=process["host"])

        before = await self._watched(space.root, watch)
        guarded = self._settings.guarded
        hashes = await in_thread(guarded.digests)
        began = time.monotonic()
        left, stopped = False, ""
        try:
            ran, left = await sandbox.run(
                argv, cwd=folder, env={**variables, **(env or {})}, timeout=timeout,
                network=self._settings.network, hidden=[space.root / OWN_FOLDER, *space.sandbox.protected],
                head=HEAD * WIDEST, tail=TAIL * WIDEST, interrupt=GRACE, started=started,
            )  # fmt: skip
        except Stopped as error:
            ran, stopped = error.ran, error.why
            if stopped == "interrupted" and self._repeatable:
                raise asyncio.CancelledError from None
        except ToolError as error:
            raise ToolError("failed", error.message) from None
        finally:
            configures = await in_thread(guarded.compare, hashes, f"a command of run {call.run_id}")
        receipt = _receipt(ran, left, stopped, timeout)
        if configures:
            receipt["content"] = with_notes(receipt["content"], [_untrusted(configures)])
        receipt["seconds"] = round(time.monotonic() - began, 3)
        if edited := changed(before, await self._watched(space.root, watch)):
            receipt["tests_changed"] = edited[:MOST_NAMED]
        return receipt

    async def _watched(self, root: Path, check: str) -> Contents:
        """What stands in the files of tests, and those that the command of a check runs, if there is one."""
        if not check:
            return {}
        found: Contents = await in_thread(self._watched_files.contents, root, parts_of(check))
        return found

    async def _sandbox(self) -> Confinement:
        if self._settings.sandbox is False:
            return NONE
        found = await confinement()
        if found.kind == "none" and self._settings.sandbox:
            raise ToolError(
                "failed",
                f"commands are to run in a sandbox only (coding.sandbox), and there is {found.description}.",
            )
        return found

    def _variables(self) -> dict[str, str]:
        environ = os.environ if self._settings.environ is None else self._settings.environ
        names = {*NAMED, *self._settings.pass_env}
        passed = {name: value for name, value in environ.items() if name in names or name.startswith(LOCALE)}
        return {"PATH": os.defpath, **passed}


def _untrusted(files: Sequence[str]) -> str:
    names = ", ".join(files[:MOST_NAMED])
    return f"It has changed what configures Detent ({names}), so a person has to trust the project again."


def _check(command: str, env: Mapping[str, str], timeout: float) -> None:
    """Raise a `ToolError` for what cannot be handed to a program, or would not come to an end."""
    if not command.strip():
        raise _invalid("the command is empty.")
    for name in env:
        if not name or "=" in name:
            raise _invalid(f"{quoted(name)} is no name of an environment variable.")
    variables = "".join(f"{name}={value}" for name, value in env.items())
    for text, what in ((command, "the command"), (variables, "the variables")):
        if "\0" in text:
            raise _invalid(f"{what} cannot hold a null character.")
        try:
            size = len(os.fsencode(text))
        except UnicodeEncodeError:
            raise _invalid(f"{what} cannot hold half a character.") from None
        if size > LONGEST_COMMAND:
            raise _invalid(
                f"{what} may have at most {LONGEST_COMMAND:,} bytes; write more to a file and run that."
            )
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise _invalid(f"a timeout is more than 0 and at most {LONGEST_TIMEOUT} seconds.")


def _invalid(message: str) -> ToolError:
    return ToolError("invalid_arguments", message)


def _shell(path: str) -> str:
    """The shell that commands are written for: bash, else the system's own."""
    for name in SHELLS:
        for folders in (path, os.defpath):
            if (program := shutil.which(name, path=folders)) is not None:
                return os.path.abspath(program)
    raise ToolError("failed", "there is no shell on this machine.")


def _receipt(ran: Ran, left: bool, stopped: str, timeout: float) -> dict[str, Any]:
    """What came of a command: its output as an assistant reads it, and its exit code."""
    text, truncated = _shortened(ran)
    code = ran.code if ran.code >= 0 else 128 - ran.code
    if stopped:
        error = stopped
        note = "interrupted" if stopped == "interrupted" else f"not over within {timeout:g} s"
        notes = [f"It was {note} and was ended with all it had started."]
    else:
        error = "nonzero_exit" if code else ""
        notes = [f"exit code {code}"]
        if left:
            notes = [f"exit code {code}; processes it had left running were ended"]
    receipt: dict[str, Any] = {
        "content": with_notes(text, notes), "ok": not error, "truncated": truncated, "paths": [],
    }  # fmt: skip
    if error:
        receipt["error"] = error
    if not stopped:
        receipt["exit_code"] = code
    return receipt


def _shortened(ran: Ran) -> tuple[str, bool]:
    """The output, or its beginning and its end with a note on what is left out."""
    if not ran.out_cut:
        text = _text(ran.out)
        if len(text) <= LONGEST:
            return text, False
        head, tail = text[:HEAD], text[-TAIL:]
        left_out = f"{len(text) - HEAD - TAIL:,} characters"
    else:
        head, tail = _text(ran.out[: HEAD * WIDEST])[:HEAD], _text(ran.out[-TAIL * WIDEST :])[-TAIL:]
        left_out = f"more than {ran.out_cut:,} bytes"
    return f"{head}\n[… {left_out} are left out …]\n{tail}", True


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "\ufffd")


async def stop(call: EffectCall) -> None:
    """End the command of an effect in doubt, with all it has started, if it still runs."""
    if "pid" not in call.intent:
        return
    intent = call.intent
    process = {"pid": intent["pid"], "born": intent["started"], "host": intent["host"]}
    if still_runs(process) and not await end_process(process):
        raise ToolError("running", f"process {process['pid']} cannot be ended.")


def preview(
    workspace: str,
    command: str,
    cwd: str = ".",
    timeout: float = 120,
    env: Mapping[str, str] | None = None,
    watch: str = "",
) -> str:
    """What would be run, and where."""
    lines = [command, f"in {cwd}", f"for at most {timeout:g} seconds"]
    return "\n".join([*lines, *(f"with {name}={value}" for name, value in (env or {}).items())])


def bash_tool(settings: ToolSettings, *, name: str = "bash", repeatable: bool = False) -> Tool:
    """The tool, for the settings of a project.

    A command that is `repeatable`, such as a check, is run again after an interrupt; any other has then been
    interrupted, and that is its result.
    """
    spec = SPECS["bash"]
    return Tool(
        name, Bash(settings, repeatable).run, wants_call=True, idempotent=repeatable, stop=stop, retry=ONCE,
        timeout=LONGEST_TIMEOUT + SETTLING, preview=preview, description=spec.description,
        arguments=with_code_arguments(spec, watch=WATCH),
    )  # fmt: skip
