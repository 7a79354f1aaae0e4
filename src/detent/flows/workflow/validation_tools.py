"""The project's checks as tools: how they are run, running one, and running the command that fixes it.

Commands come from the project, never from the caller, who only names a stage. A check may be run again, and
so may a fix, so one that was interrupted is simply run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from detent.engine.tools import EffectCall, Tool, ToolError
from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import ONCE

Stages: TypeAlias = Callable[[list[str]], Sequence[dict[str, Any]]]
"""Gives `name`, `command`, `fix_command` and `timeout` of stages, by name."""
LONGEST_TOLD = 10_000
"""Characters kept of what a check says: its end."""


def validation_tools(stages: Stages, shell: Tool) -> list[Tool]:
    """The tools for stages; `shell` runs their commands."""

    def stage_named(name: str) -> dict[str, Any]:
        try:
            (found,) = stages([name])
        except (ConfigurationError, ValueError) as error:
            raise ToolError("unknown_stage", str(error)) from None
        return found

    async def run(call: EffectCall, stage: str) -> dict[str, Any]:
        """Run one check; one without a command is skipped."""
        found = stage_named(stage)
        if not found.get("command"):
            return {"name": stage, "status": "skipped", "exit_code": None, "duration_ms": 0.0, "output": ""}
        ran = await shell.perform(
            call, argv=list(found["command"]), timeout=found.get("timeout") or 300, check=False
        )
        output = "\n".join(part for part in (ran["stdout"].rstrip(), ran["stderr"].rstrip()) if part)
        return {
            "name": stage, "status": "passed" if ran["exit_code"] == 0 else "failed",
            "exit_code": ran["exit_code"], "duration_ms": ran["duration_ms"],
            "output": output[-LONGEST_TOLD:],
        }  # fmt: skip

    async def fix(call: EffectCall, stage: str) -> dict[str, Any]:
        """Run the command that fixes what a check complains about; there may be none."""
        found = stage_named(stage)
        if not found.get("fix_command"):
            return {"name": stage, "applied": False, "exit_code": None, "changed_files": []}
        ran = await shell.perform(
            call, argv=list(found["fix_command"]), timeout=found.get("timeout") or 300, check=False,
            watch=True,
        )  # fmt: skip
        return {
            "name": stage, "applied": True, "exit_code": ran["exit_code"],
            "changed_files": ran["changed_files"],
        }  # fmt: skip

    return [
        Tool("validation.stages", stages, "query", description="Tell how the project's checks are run."),
        Tool("validation.run", run, idempotent=True, wants_call=True, retry=ONCE,
             description="Run one of the project's checks, by its name. The receipt says name, status "
             "(passed, failed, skipped), exit_code, duration_ms, output."),
        Tool("validation.fix", fix, idempotent=True, wants_call=True, retry=ONCE,
             description="Run the project's own command that mends what a check complains about. The receipt "
             "says name, applied, exit_code, changed_files."),
    ]  # fmt: skip
