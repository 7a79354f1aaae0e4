"""Validate steps: the project's checks in order, mended and run again while they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.dispatch.autonomy import StepType
from detent.engine.context import StepContext
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.errors import ValidationFailed, WorkflowError
from detent.flows.workflow.expressions import condition
from detent.flows.workflow.scope import FAILURE, SECRETS, finished, handed_down, key_of
from detent.flows.workflow.secrets import hidden
from detent.flows.workflow.spec import ValidateStep
from detent.flows.workflow.steps.common import control, own_steps, resolved
from detent.kernel.policy import RetryPolicy
from detent.kernel.run_config import PATH, STEPS

if TYPE_CHECKING:
    from detent.flows.workflow.child_flows import Body
    from detent.flows.workflow.registry import ValidationStage

USUAL_RETRIES = 3
"""Runs after the first where something mends in between and the file does not say."""
WAITS = RetryPolicy(max_attempts=1000, wait_min=1.0, wait_max=60.0)
MOST_LINES, LONGEST_LINE = 20, 300
"""Of what the command of a stage that failed said, these are told at once; the rest is in the journal."""
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not_run"


def validate_step(position: Position, home: CompileContext, mending: Body | None) -> Step:
    """The flow's step for a validate step; `mending` is its `on_failure`."""
    spec = position.spec
    assert isinstance(spec, ValidateStep)
    stages_of, retry_of = condition(spec.stages), condition(spec.retry)

    async def handler(ctx: StepContext) -> Any:
        stages = _stages(spec, home, resolved(stages_of, ctx))
        retries = _retries(spec, resolved(retry_of, ctx))
        results: list[dict[str, Any]] = []
        attempt = 0
        for attempt in range(retries + 1):
            results = await _run(ctx, home, stages, attempt)
            if not any(one["status"] == FAILED for one in results) or attempt == retries:
                break
            if mending is not None:
                await _mend(ctx, spec, mending, attempt)
            elif not ctx.answered(hold := f"again/{spec.name}/{attempt}"):
                return Hold(hold, "timer", wake_at=ctx.now() + WAITS.backoff(attempt + 2))
        ran = [one for one in results if one["status"] in (PASSED, FAILED)]
        failed = [one["name"] for one in results if one["status"] == FAILED]
        success = bool(ran) and not failed
        output = {
            "success": success, "stages": stages, "stage_results": results, "attempts": attempt + 1
        }  # fmt: skip
        if not success and spec.must_pass:
            why = f"{', '.join(failed)} failed" if failed else "nothing was validated: no stage has a command"
            runs = f" after {attempt + 1} runs" if attempt else ""
            raise ValidationFailed(spec.name, f"{why}{runs}." if failed else f"{why}.")
        # An outcome, since a mapping that says it did not succeed would fail the step.
        return Outcome(set={key_of(position.owner): finished(output, position.ran)})

    return control(position, home, StepType.VALIDATE, handler)


async def _run(
    ctx: StepContext, home: CompileContext, stages: Sequence[str], attempt: int
) -> list[dict[str, Any]]:
    """One run of the stages: after a failure the rest are left alone."""
    results: list[dict[str, Any]] = []
    failed = False
    marks = ctx.values.get(SECRETS) or {}
    for number, name in enumerate(stages):
        stage = home.registry.stages.get(name)
        if failed:
            results.append({"name": name, "status": NOT_RUN})
            continue
        if stage.command is None:
            results.append({"name": name, "status": SKIPPED})
            if attempt == 0:
                ctx.emit(f"Stage '{name}' has no command and is skipped.", "warning")
            continue
        # Kept once it is through; one under way in a crash is run again.
        ask = _Asked(stage, marks, home)
        got: Mapping[str, Any] = await ctx.once(f"stage/{attempt}/{number}/{name}", ask)
        failed = got["exit_code"] != 0
        if failed and ask.asked:
            ctx.emit(_told(name, attempt, got), "error")
        results.append({"name": name, "status": FAILED if failed else PASSED, **got})
    return results


class _Asked:
    """Runs a stage's command, and remembers that it was run here and now, not in an earlier life."""

    def __init__(self, stage: ValidationStage, marks: Mapping[str, str], home: CompileContext) -> None:
        self.stage, self.marks, self.home = stage, marks, home
        self.asked = False

    async def __call__(self) -> Mapping[str, Any]:
        """What the command gave; it sees the environment, and so the values of secrets."""
        self.asked = True
        got = dict(await self.home.ports.run_stage(self.stage))
        said: Mapping[str, Any] = hidden(got, self.marks, self.home.environ)
        return said


def _told(name: str, attempt: int, got: Mapping[str, Any]) -> str:
    """That a stage failed, and the last lines of what its command said, which is where checks sum up."""
    again = f" in run {attempt + 1}" if attempt else ""
    said = f"Stage '{name}' failed{again} (exit code {got['exit_code']})"
    lines = [line.rstrip()[:LONGEST_LINE] for line in str(got["output"]).strip("\n").split("\n")]
    left = len(lines) - MOST_LINES
    lines = [f"… {left} more before", *lines[-MOST_LINES:]] if left > 0 else lines
    return "\n".join([f"{said}:", *lines]) if any(lines) else f"{said}."


async def _mend(ctx: StepContext, spec: ValidateStep, mending: Body, attempt: int) -> None:
    """Run `on_failure` as a child run of this attempt."""
    own = own_steps(ctx, mending.names)
    data, beside = handed_down(ctx.values, mending.inputs, mending.outer)
    child = await ctx.child(
        mending.flow, data, key=f"{spec.name}[{attempt}]", beside=beside,
        config={PATH: f"{ctx.step_path}/[{attempt}]", **({STEPS: own} if own else {})},
    )  # fmt: skip
    if not child.ok:
        failure = child.data.get(FAILURE)
        error = str(failure["error"]) if failure else child.error or child.reason or child.status.value
        raise ValidationFailed(spec.name, f"its on_failure step failed: {error}")


def _stages(spec: ValidateStep, home: CompileContext, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise WorkflowError(f"Validation '{spec.name}': `stages` must give a list of names.")
    for name in value:
        home.registry.stages.get(name)
    return value


def _retries(spec: ValidateStep, value: Any) -> int:
    if value is None:
        return USUAL_RETRIES if spec.on_failure is not None else 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WorkflowError(f"Validation '{spec.name}': `retry` must give a whole number of 0 or more.")
    return value
