"""Actions that run programs: one of the user's choosing, or the project's checks and what mends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from detent.dispatch.equivalence import CompareRules
from detent.engine.context import StepContext
from detent.engine.step import StepFailed
from detent.flows.workflow.registry import action

NO_ADDITIONS: dict[str, str] = {}
NO_PROBLEMS: list[Any] = []
LONGEST_TOLD = 10_000
"""Characters kept of what a check says: its end."""


class CommandRun(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    duration_ms: float


class StageResult(TypedDict):
    name: str
    status: Literal["passed", "failed", "skipped", "not_run"]
    """skipped: it has no command; not_run: one before it failed."""
    exit_code: int | None
    duration_ms: float
    output: str
    """The end of what it said."""


class Validated(TypedDict):
    success: bool
    stage_results: list[StageResult]


class Fixed(TypedDict):
    changed_files: list[str]
    applied: list[str]
    """Checks whose fix command ran."""


@action(
    "run_command",
    intent="Run one program with the given arguments and report its exit code and output.",
    effects=["shell.run"],
    queries=["shell.read"],
    output_schema=CommandRun,
    compare=CompareRules(ignore=["/duration_ms"]),
)
async def run_command(
    ctx: StepContext,
    argv: list[str],
    cwd: str = ".",
    env: dict[str, str] = NO_ADDITIONS,
    timeout: float = 300,
    check: bool = True,
    read_only: bool = False,
) -> dict[str, Any]:
    """Run a program, no shell. With `check` an exit code other than 0 fails the step.

    Say `read_only` of a program that changes nothing: it may then be run again without asking anybody.
    """
    if isinstance(argv, str) or not all(isinstance(part, str) for part in argv):
        raise StepFailed("`argv` is a list of texts: the program, then its arguments. There is no shell.")
    said: dict[str, Any] = {
        "argv": list(argv),
        "cwd": cwd,
        "env": dict(env),
        "timeout": timeout,
        "check": check,
    }
    if read_only:
        found: dict[str, Any] = await ctx.query("shell.read", **said)
        return found
    done = ctx.propose("shell.run", **said)
    names = ("exit_code", "stdout", "stderr", "duration_ms")
    return {name: done[name] for name in names}


@action(
    "run_validation",
    intent="Run the project's checks in order and report which pass.",
    effects=["shell.run"],
    queries=["validation.stages"],
    output_schema=Validated,
    opaque=True,
    repeatable=True,
)
async def run_validation(ctx: StepContext, stages: list[str]) -> dict[str, Any]:
    """Run the stages' commands; after the first that fails the rest are not run. A failure fails the step."""
    results: list[StageResult] = []
    for stage in await ctx.query("validation.stages", names=list(stages)):
        if any(one["status"] == "failed" for one in results):
            results.append(_result(stage["name"], "not_run"))
            continue
        if not stage.get("command"):
            ctx.emit(f"Check '{stage['name']}' has no command and is skipped.", level="warning")
            results.append(_result(stage["name"], "skipped"))
            continue
        ran = await ctx.act(
            "shell.run", argv=list(stage["command"]), timeout=stage.get("timeout", 300), check=False
        )
        results.append(_result(stage["name"], "passed" if ran["exit_code"] == 0 else "failed", ran))
    failed = [one["name"] for one in results if one["status"] == "failed"]
    answer: dict[str, Any] = {"success": not failed, "stage_results": results}
    if failed:
        answer["error"] = f"failed: {', '.join(failed)}"
    elif not any(one["status"] == "passed" for one in results):
        answer |= {"success": False, "error": "nothing was validated"}
    return answer


def _result(name: str, status: Any, ran: Mapping[str, Any] | None = None) -> StageResult:
    if ran is None:
        return {"name": name, "status": status, "exit_code": None, "duration_ms": 0.0, "output": ""}
    said = "\n".join(part for part in (ran["stdout"].rstrip(), ran["stderr"].rstrip()) if part)
    return {
        "name": name, "status": status, "exit_code": ran["exit_code"], "duration_ms": ran["duration_ms"],
        "output": said[-LONGEST_TOLD:],
    }  # fmt: skip


@action(
    "apply_fixes",
    intent=("Repair what the named checks complain about without changing what the program is meant to do."),
    effects=["shell.run", "files.write"],
    queries=["validation.stages", "files.read"],
    output_schema=Fixed,
    rollback="restore_file",
    opaque=True,
    repeatable=True,
)
async def apply_fixes(
    ctx: StepContext, stages: list[str], problems: list[Any] = NO_PROBLEMS
) -> dict[str, Any]:
    """Run the fix commands of the stages that have one; `problems` are for whoever mends by reading."""
    changed: set[str] = set()
    applied = []
    for stage in await ctx.query("validation.stages", names=list(stages)):
        if not stage.get("fix_command"):
            continue
        ran = await ctx.act(
            "shell.run", argv=list(stage["fix_command"]), timeout=stage.get("timeout", 300), check=False,
            watch=True,
        )  # fmt: skip
        changed.update(ran["changed_files"])
        applied.append(stage["name"])
    return {"changed_files": sorted(changed), "applied": applied}
