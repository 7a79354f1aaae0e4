"""Actions that run programs: one of the user's choosing, or the project's checks and what mends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from detent.dispatch.equivalence import CompareRules
from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.step_failures import StepFailed
from detent.flows.workflow.registry import action

NO_ADDITIONS: dict[str, str] = {}
NO_PROBLEMS: list[Any] = []
MOST_ROUNDS = 10
"""How often an agent may run checks, or fix, and look at what came of it."""


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


def _validated(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The output for the results of stages, in order."""
    failed = [result["name"] for result in results if result["status"] == "failed"]
    output: dict[str, Any] = {"success": not failed, "stage_results": list(results)}
    if failed:
        output["error"] = f"failed: {', '.join(failed)}"
    elif not any(result["status"] == "passed" for result in results):
        output |= {"success": False, "error": "nothing was validated"}
    return output


@action(
    "run_validation",
    intent="Run the project's checks in order and report which pass.",
    effects=["validation.run"],
    queries=["validation.stages"],
    output_schema=Validated,
    compare=CompareRules(ignore=["/stage_results/*/duration_ms"]),
    rounds=MOST_ROUNDS,
    from_receipts=lambda acts: _validated([act.receipt for act in acts]),
)
async def run_validation(ctx: StepContext, stages: list[str]) -> dict[str, Any]:
    """Run the stages' commands; after the first that fails the rest are not run. A failure fails the step."""
    results: list[StageResult] = []
    for stage in stages:
        if any(result["status"] == "failed" for result in results):
            results.append(
                {"name": stage, "status": "not_run", "exit_code": None, "duration_ms": 0.0, "output": ""}
            )
            continue
        results.append(await ctx.perform("validation.run", stage=stage))
        if results[-1]["status"] == "skipped":
            ctx.emit(f"Check '{stage}' has no command and is skipped.", level="warning")
    return _validated(results)


def _fixed(fixes: Sequence[Mapping[str, Any]], written: Sequence[str]) -> dict[str, Any]:
    """The output for the receipts of fixes, and for files that were written beside them."""
    changed = {path for fix in fixes for path in fix["changed_files"]}
    applied = [fix["name"] for fix in fixes if fix["applied"]]
    return {"changed_files": sorted(changed | set(written)), "applied": applied}


def _mended(acts: Sequence[Act]) -> dict[str, Any]:
    """What the receipts of an agent that mended something say."""
    written = [act.receipt["path"] for act in acts if act.effect.tool == "files.write"]
    return _fixed([act.receipt for act in acts if act.effect.tool == "validation.fix"], written)


@action(
    "apply_fixes",
    intent=("Repair what the named checks complain about without changing what the program is meant to do."),
    effects=["validation.fix", "files.write"],
    queries=["validation.stages", "files.read"],
    output_schema=Fixed,
    rollback="restore_file",
    rounds=MOST_ROUNDS,
    from_receipts=_mended,
)
async def apply_fixes(
    ctx: StepContext, stages: list[str], problems: list[Any] = NO_PROBLEMS
) -> dict[str, Any]:
    """Run the fix commands of the stages that have one; `problems` are for agents, which mend by reading."""
    fixed = [await ctx.perform("validation.fix", stage=stage) for stage in stages]
    return _fixed(fixed, [])
