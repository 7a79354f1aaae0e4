"""Shows a workflow as it runs: a line for every step, indented where it stands inside another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, cut, paint, say, warn
from detent.flows.workflow import events
from detent.insight.words import span

if TYPE_CHECKING:
    from detent.flows.workflow.spec import WorkflowSpec

MOST_ITERATIONS = 20
"""Iterations of one loop that are shown one by one; of more, only failures and the count."""
CONTAINERS = ("loop", "subworkflow", "branch", "validate")


class WorkflowLines:
    """Prints what a listener is told."""

    def __init__(self, spec: WorkflowSpec) -> None:
        self._widest = max((len(step.name) for step in spec.every_step()), default=8)
        self._shown: dict[str, int] = {}

    def __call__(self, event: events.Event) -> None:
        """Show one event, if people want to see it."""
        method = getattr(self, f"_{type(event).__name__}", None)
        if method is not None:
            method(event)

    def _PreflightCheckFailed(self, event: events.PreflightCheckFailed) -> None:
        warn(f"  {paint('✗', 'red')} {clean(event.name)}: {clean(event.message)}. {clean(event.remediation)}")

    def _StepStarted(self, event: events.StepStarted) -> None:
        if event.step_type in CONTAINERS and self._wanted(event.step_path):
            self._line(event.step_path, paint("▸", "cyan"), event.step_name, event.step_type)

    def _StepCompleted(self, event: events.StepCompleted) -> None:
        if not self._wanted(event.step_path) and event.success:
            return
        if event.skipped:
            self._line(event.step_path, paint("–", dim=True), event.step_name, "skipped")
        elif event.success:
            self._line(event.step_path, paint("✓", "green"), event.step_name, span(event.duration_ms / 1000))
        else:
            self._line(event.step_path, paint("✗", "red"), event.step_name, clean(event.error or ""))

    def _LoopIterationStarted(self, event: events.LoopIterationStarted) -> None:
        loop = event.step_path.rpartition("/")[0]
        self._shown[loop] = self._shown.get(loop, 0) + 1
        if self._shown[loop] == MOST_ITERATIONS + 1:
            total = event.total_iterations
            self._line(event.step_path, paint("…", dim=True), f"{total or 'more'} iterations", "")
        if not self._wanted(event.step_path):
            return
        number = event.iteration_index + 1
        of = f"/{event.total_iterations}" if event.total_iterations else ""
        self._line(event.step_path, paint("▸", "cyan"), f"{number}{of}", clean(event.item_label))

    def _LoopConditionChecked(self, event: events.LoopConditionChecked) -> None:
        met = "holds" if event.condition_met else "does not hold yet"
        self._line(f"{event.step_path}/[]", paint("·", dim=True), "until", met)

    def _StepOutput(self, event: events.StepOutput) -> None:
        colours = {"warning": "yellow", "error": "red", "success": "green"}
        sign = paint("│", colours.get(event.level, "cyan"))
        self._line(f"{event.step_path}/", sign, clean(event.message), "")

    def _CheckpointSaved(self, event: events.CheckpointSaved) -> None:
        if self._wanted(event.step_path):
            self._line(
                f"{event.step_path}/", paint("⚑", "cyan"), f"saved as '{clean(event.checkpoint_id)}'", ""
            )

    def _RollbackStarted(self, event: events.RollbackStarted) -> None:
        say(f"  {paint('↶', 'yellow')} {clean(event.step_path)}: {clean(event.action)}")

    def _RollbackCompleted(self, event: events.RollbackCompleted) -> None:
        if not event.success:
            say(f"    {paint('✗', 'red')} {clean(event.error or '')}")

    def _wanted(self, path: str) -> bool:
        """Whether a path is shown: those deep inside a long loop are not."""
        parts = path.split("/")
        for depth, part in enumerate(parts):
            if part.startswith("[") and self._shown.get("/".join(parts[:depth]), 0) > MOST_ITERATIONS:
                return False
        return True

    def _line(self, path: str, sign: str, name: str, said: str) -> None:
        indent = "  " * (path.count("/") + 1)
        pad = max(0, self._widest + 4 - len(name) - 2 * path.count("/"))
        say(f"{indent}{sign} {cut(name, 100)}{' ' * pad}  {said}".rstrip())


def result_lines(result: Any) -> list[str]:
    """What a finished workflow gave, for people."""
    from detent.kernel.plain import encode

    if result.final_output is None:
        return []
    text = encode(result.final_output)
    if isinstance(result.final_output, dict) and all(
        not isinstance(value, dict | list) for value in result.final_output.values()
    ):
        return [f"  {key}: {cut(clean(_said(value)), 200)}" for key, value in result.final_output.items()]
    return [f"  {cut(clean(text), 400)}"]


def _said(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
