"""Validate steps: run the project's checks in order; fix and retry while they fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine.context import StepContext
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.errors import ValidationFailed, WorkflowError
from detent.flows.workflow.expressions import condition
from detent.flows.workflow.run_data import SECRETS, error_of, finished, handed_down, key_of
from detent.flows.workflow.secrets import hidden
from detent.flows.workflow.spec import ValidateStep
from detent.flows.workflow.steps.common import child_config, control, resolved
from detent.kernel.policy import RetryPolicy

if TYPE_CHECKING:
    from detent.flows.workflow.child_flows import Body
    from detent.flows.workflow.registry import ValidationStage

USUAL_RETRIES = 3
"""Default number of retries if the step has an `on_failure`."""
WAITS = RetryPolicy(max_attempts=1000, wait_min=1.0, wait_max=60.0)
MOST_LINES, LONGEST_LINE = 20, 300
"""Part of a failed stage's output that is emitted at once; the rest is in the journal."""
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not_run"


def validate_step(position: Position, home: CompileContext, mending: Body | None) -> Step:
    """Return the flow's step for a validate step; `mending` is its `on_failure`."""
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
            if not any(result["status"] == FAILED for result in results) or attempt == retries:
                break
            if mending is not None:
                await _mend(ctx, spec, mending, attempt)
            elif not ctx.answered(hold := f"again/{spec.name}/{attempt}"):
                return Hold(hold, "timer", wake_at=ctx.now() + WAITS.backoff(attempt + 2))
        ran = [result for result in results if result["status"] in (PASSED, FAILED)]
        failed = [result["name"] for result in results if result["status"] == FAILED]
        success = bool(ran) and not failed
        output = {
            "success": success, "stages": stages, "stage_results": results, "attempts": attempt + 1
        }  # fmt: skip
        if not success and spec.must_pass:
            reason = (
                f"{', '.join(failed)} failed" if failed else "nothing was validated: no stage has a command"
            )
            runs = f" after {attempt + 1} runs" if attempt else ""
            raise ValidationFailed(spec.name, f"{reason}{runs}." if failed else f"{reason}.")
        # An outcome, because a mapping with `success: false` would fail the step.
        return Outcome(set={key_of(position.owner): finished(output, position.ran)})

    return control(position, home, handler)


async def _run(
    ctx: StepContext, home: CompileContext, stages: Sequence[str], attempt: int
) -> list[dict[str, Any]]:
    """Run the stages once; after a failure the rest are not run."""
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
        # Recorded when it is done; a stage interrupted by a crash is run again.
        ask = _Asked(stage, marks, home)
        got: Mapping[str, Any] = await ctx.once(f"stage/{attempt}/{number}/{name}", ask)
        failed = got["exit_code"] != 0
        if failed and ask.asked:
            ctx.emit(_failure_message(name, attempt, got), "error")
        results.append({"name": name, "status": FAILED if failed else PASSED, **got})
    return results


class _Asked:
    """Runs a stage's command, and remembers that this process ran it, not an earlier one."""

    def __init__(self, stage: ValidationStage, marks: Mapping[str, str], home: CompileContext) -> None:
        self.stage, self.marks, self.home = stage, marks, home
        self.asked = False

    async def __call__(self) -> Mapping[str, Any]:
        """Return the command's result without secrets: the command sees the environment, which holds them."""
        self.asked = True
        result = dict(await self.home.ports.run_stage(self.stage))
        redacted: Mapping[str, Any] = hidden(result, self.marks, self.home.environ)
        return redacted


def _failure_message(name: str, attempt: int, result: Mapping[str, Any]) -> str:
    """The message about a failed stage, with the last lines of its output, where checks sum up."""
    again = f" in run {attempt + 1}" if attempt else ""
    heading = f"Stage '{name}' failed{again} (exit code {result['exit_code']})"
    lines = [line.rstrip()[:LONGEST_LINE] for line in str(result["output"]).strip("\n").split("\n")]
    omitted = len(lines) - MOST_LINES
    lines = [f"… {omitted} more before", *lines[-MOST_LINES:]] if omitted > 0 else lines
    return "\n".join([f"{heading}:", *lines]) if any(lines) else f"{heading}."


async def _mend(ctx: StepContext, spec: ValidateStep, mending: Body, attempt: int) -> None:
    """Run `on_failure` as a child run of this attempt."""
    data, beside = handed_down(ctx.values, mending.inputs, mending.outer)
    child = await ctx.child(
        mending.flow, data, key=f"{spec.name}[{attempt}]", beside=beside,
        config=child_config(ctx, f"{ctx.step_path}/[{attempt}]", mending.names),
    )  # fmt: skip
    if not child.ok:
        raise ValidationFailed(spec.name, f"its on_failure step failed: {error_of(child)}")


def _stages(spec: ValidateStep, home: CompileContext, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
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
