"""How a show is told of: a line for each state while it is made, then where it lies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.apps.choreography.export import result_of_show
from detent.flows.refine.decisions import REJECTED
from detent.flows.refine.kind import RefineKind
from detent.flows.refine.result import OrchestratorResult
from detent.flows.refine.state_machine import OrchestrationState

if TYPE_CHECKING:
    from detent.cli.options import Options
    from detent.engine.engine import Engine
    from detent.kernel.run import Run

SHOWN = (".xsq", ".png")
"""Files that the last line names; the others lie beside them."""


class ShowKind(RefineKind):
    """Shows a run line by line as every refinement, and its end as a show."""

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run, told: str | None = None) -> bool:
        """Print what was made, or why nothing was."""
        from detent.cli.output import say

        if not run.status.is_end:
            return False
        for line in lines_of(await result_of_show(engine, run.id)):
            say(line)
        say(f"  {workspace.command('show', run.id)}")
        return True


DISPLAY = ShowKind()


def lines_of(result: OrchestratorResult) -> list[str]:
    """The last lines: status, score, files, tokens; which attempt was kept; what went wrong."""
    from detent.cli.output import clean, status

    run_status = "" if result.run_status is None else result.run_status.value
    facts = [status(run_status, result.final_state)]
    if result.reason:
        facts.append(clean(result.reason))
    if result.evaluation is not None:
        facts.append(f"{result.evaluation.overall_score:.1f} / 100")
    facts += [clean(_shown(path)) for path in result.files if path.endswith(SHOWN)]
    facts.append(f"{result.tokens_used:,} tokens")
    lines = ["  " + "   ".join(facts)]
    plan = () if result.best is None or result.best.validation is None else result.best.validation.issues
    about_plan = {issue.message for issue in plan}
    lines += [f"  warning: {clean(line)}" for line in result.warnings if line not in about_plan]
    if result.error:
        lines.append(f"  {clean(result.error)}")
    if result.status != "success":
        if result.implementation is not None:
            lines.append(f"  No show passed; the best attempt, {result.best_iteration}, is written.")
        else:
            lines.append("  No sequence is written: there is no implementation to write.")
    if result.final_state == OrchestrationState.BUDGET_EXHAUSTED.value and result.run_id:
        lines.append(f"  Go on with more: detent reopen {result.run_id} --budget-tokens N")
    return lines


def exit_code(result: OrchestratorResult) -> int:
    """2 for an input that was rejected, 1 for anything else that did not succeed."""
    if (result.reason or "").startswith(REJECTED):
        return 2
    return 0 if result.status == "success" and not result.error else 1


def tell_result(result: OrchestratorResult, options: Options) -> None:
    """Print the result of a show that was made without a run."""
    from detent.cli.output import say, say_json

    if options.json:
        say_json(result.to_plain())
    elif not options.quiet:
        for line in lines_of(result):
            say(line)


def _shown(path: str) -> str:
    """A path relative to the working folder, if it lies below it."""
    place = Path(path)
    return str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else path
