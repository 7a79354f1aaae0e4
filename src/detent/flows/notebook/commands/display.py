"""How a notebook is shown while it is built: a line for each transition, and what it came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.finished import metrics_of, scores_of
from detent.flows.notebook.run_view import NotebookRun
from detent.flows.notebook.state.document import StateDocument
from detent.kernel.entries import Entry, Moved
from detent.runtime.plugs import Kind

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.engine.observers import Progress
    from detent.kernel.run import Run


class NotebookLines:
    """Observes runs of one flow: prints where each is after every transition."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._live = False

    def __enter__(self) -> Self:
        from detent.cli.output import is_terminal

        self._live = is_terminal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Print a transition."""
        from detent.cli.output import say

        if run.flow != self._flow or not isinstance(entry.body, Moved):
            return
        self._clear()
        for line in transition_lines(NotebookRun(run.data), entry.body):
            say(line)

    def on_progress(self, run_id: str, flow: str, step: str, progress: Progress) -> None:
        """Show how far a round is, on a terminal."""
        from detent.cli.output import clean, paint

        if flow != self._flow or not self._live:
            return
        text = f"    {clean(progress.text)}"
        if progress.of:
            text += f" of {progress.of:g}"
        print(f"\r{paint(text[:78].ljust(78), dim=True)}", end="", flush=True)

    def _clear(self) -> None:
        if self._live:
            print("\r" + " " * 80 + "\r", end="", flush=True)


def transition_lines(run: NotebookRun, move: Moved) -> Iterator[str]:
    """The lines of one transition: stages and steps as headings, behaviors with their verdicts."""
    from detent.cli.output import clean, paint

    document = run.document
    row = (move.reason or "").partition(" ")[0]
    reason = (move.reason or "").partition(" ")[2]
    match row:
        case "1" | "6b":
            yield _stage_line(document)
        case "2" | "6a" | "6d" | "6e":
            mark = {"6d": "↺ ", "6e": "↻ "}.get(row, "")
            if row != "2" or document.steps.completed or document.steps.current:
                yield f"  {mark}{_step_line(document)}"
        case "5a" | "5d":
            behavior = document.behaviors.completed[-1] if document.behaviors.completed else None
            good = row == "5a"
            mark = paint("✓", "green") if good else paint("✗", "red")
            name = "" if behavior is None else behavior.behavior_id
            yield f"    {mark} {clean(name):<44} {clean(reason)}"
        case "5b":
            behavior = document.behaviors.completed[-1]
            yield f"    {paint('✓', 'green')} {clean(behavior.behavior_id):<44} {clean(reason)}"
        case "5c":
            current = document.behaviors.current
            name = "" if current is None else current.behavior_id
            yield (
                f"    {paint('↻', 'yellow')} {clean(name):<44} iteration "
                f"{document.location.behavior_iteration}"
            )
        case "6c":
            yield f"  {paint('complete', 'green')}"
        case "6f":
            yield f"  {paint('not achieved', 'red')}: {clean(reason)}"


def _stage_line(document: StateDocument) -> str:
    from detent.cli.output import clean, paint

    stages = document.stages
    total = len(stages.completed) + len(stages.remaining) + (stages.current is not None)
    title = "" if stages.current is None else stages.current.title
    number = len(stages.completed) + 1
    bar = "█" * round(20 * (number - 1) / max(1, total)) + "░" * (
        20 - round(20 * (number - 1) / max(1, total))
    )
    return f"{paint(f'Stage {number}/{total}', bold=True)}  {bar}  {clean(title)}"


def _step_line(document: StateDocument) -> str:
    from detent.cli.output import clean

    steps = document.steps
    total = len(steps.completed) + len(steps.remaining) + (steps.current is not None)
    title = "" if steps.current is None else steps.current.title
    return f"{len(steps.completed) + 1}/{total} {clean(title)}"


class NotebookDisplay(Kind):
    """Shows runs of the notebook flow."""

    name = "notebook-display"

    @staticmethod
    def reading_lines(reading: ProblemReading) -> Iterator[str]:
        """What was read of the problem, before anything is done."""
        from detent.cli.output import clean, paint

        thresholds = ", ".join(map(str, reading.thresholds)) or "better than the baseline"
        yield (
            f"  {reading.task} of {clean(reading.target)}   {reading.table.rows:,} rows x "
            f"{len(reading.table.columns)} columns   {clean(thresholds)}"
        )
        split = f"{reading.split.kind} split" + (
            f" by {reading.split.column}" if reading.split.column else ""
        )
        yield f"  {clean(split)}{f': {clean(reading.split.why)}' if reading.split.why else ''}"
        yield from (f"  {paint('warning', 'yellow')}: {clean(warning)}" for warning in reading.warnings)

    def lines(self, engine: Engine, flow: Flow) -> AbstractContextManager[Any]:
        """Print a line for each transition."""
        lines = NotebookLines(flow.name)
        engine.add_observer(lines)
        return lines

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run, told: str | None = None) -> bool:
        """Print how a run ended, its scores and its figures."""
        from detent.cli.output import clean, say, status

        if not run.status.is_end:
            return False
        for line in ending_lines(run):
            say(line)
        if run.error:
            say(f"  {clean(str(run.error))}")
        say(f"  {status(run.status.value, run.status.value)}   {workspace.command('show', run.id)}")
        return True


def ending_lines(run: Run) -> Iterator[str]:
    """The verdict on each threshold, the scores, and the figures of the run."""
    from detent.cli.output import clean, paint

    view = NotebookRun(run.data)
    for text, met in view.state.ledger.locked.items():
        yield f"  {paint('met', 'green') if met else paint('not met', 'red')}  {clean(text)}"
    for name, scores in scores_of(view).items():
        shown = "   ".join(
            f"{key} {value:,.4g}" for key, value in scores.items() if isinstance(value, int | float)
        )
        yield f"  {name}: {clean(shown)}"
    metrics = metrics_of(view)
    yield (
        f"  artifacts {metrics.produced}/{metrics.expected}   criteria {metrics.passed}/{metrics.criteria}   "
        f"retries {metrics.retries}"
    )


DISPLAY = NotebookDisplay()
