"""Validate steps: the project's checks in order, mended and run again while they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.engine.context import StepContext
from detent.engine.dispatch import PATH, STEPS
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.flows.workflow.errors import ValidationFailed, WorkflowError
from detent.flows.workflow.expressions import condition
from detent.flows.workflow.home import Home, Seat
from detent.flows.workflow.scope import FAILURE, SECRETS, finished, handed_down, key_of
from detent.flows.workflow.secrets import hidden
from detent.flows.workflow.spec import ValidateStep
from detent.flows.workflow.steps.common import control, own_steps, resolved
from detent.kernel.autonomy import StepType
from detent.kernel.policy import RetryPolicy

if TYPE_CHECKING:
    from detent.flows.workflow.bodies import Body
    from detent.flows.workflow.registry import ValidationStage

USUAL_RETRIES = 3
"""Runs after the first where something mends in between and the file does not say."""
WAITS = RetryPolicy(max_attempts=1000, wait_min=1.0, wait_max=60.0)
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not_run"


def validate_step(seat: Seat, home: Home, mending: Body | None) -> Step:
    """The flow's step for a validate step; `mending` is its `on_failure`."""
    spec = seat.spec
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
                return Hold(hold, "timer", wake_at=ctx.now() + WAITS.wait_before(attempt + 2))
        ran = [one for one in results if one["status"] in (PASSED, FAILED)]
        failed = [one["name"] for one in results if one["status"] == FAILED]
        success = bool(ran) and not failed
        output = {
            "success": success, "stages": stages, "stage_results": results, "attempts": attempt + 1
        }  # fmt: skip
        if not success and spec.must_pass:
            why = f"{', '.join(failed)} failed" if failed else "nothing was validated: no stage has a command"
            raise ValidationFailed(spec.name, f"{why} after {attempt + 1} runs." if failed else f"{why}.")
        # An outcome, since a mapping that says it did not succeed would fail the step.
        return Outcome(set={key_of(seat.owner): finished(output, seat.ran)})

    return control(seat, home, StepType.VALIDATE, handler)


async def _run(ctx: StepContext, home: Home, stages: Sequence[str], attempt: int) -> list[dict[str, Any]]:
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
        got: Mapping[str, Any] = await ctx.once(
            f"stage/{attempt}/{number}/{name}", partial(_said_by, stage, marks, home)
        )
        failed = got["exit_code"] != 0
        results.append({"name": name, "status": FAILED if failed else PASSED, **got})
    return results


async def _said_by(stage: ValidationStage, marks: Mapping[str, str], home: Home) -> Mapping[str, Any]:
    """What a stage's command gave; a command sees the environment, and so the values of secrets."""
    said: Mapping[str, Any] = hidden(dict(await home.ports.run_stage(stage)), marks, home.environ)
    return said


async def _mend(ctx: StepContext, spec: ValidateStep, mending: Body, attempt: int) -> None:
    """Run `on_failure` as a child run of this attempt."""
    own = own_steps(ctx, mending.names)
    child = await ctx.child(
        mending.flow, handed_down(ctx.values, mending.inputs, mending.outer), key=f"{spec.name}[{attempt}]",
        config={PATH: f"{ctx.step_path}/[{attempt}]", **({STEPS: own} if own else {})},
    )  # fmt: skip
    if not child.ok:
        failure = child.data.get(FAILURE)
        error = str(failure["error"]) if failure else child.error or child.reason or child.status.value
        raise ValidationFailed(spec.name, f"its on_failure step failed: {error}")


def _stages(spec: ValidateStep, home: Home, value: Any) -> list[str]:
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
