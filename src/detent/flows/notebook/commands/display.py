"""How a notebook is shown while it is built, and what it came to: lines, a live block, or JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.flows.notebook.commands.block import block_lines
from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.finished import metrics_of, scores_of, verdicts_of
from detent.flows.notebook.history import position
from detent.flows.notebook.kernel.session import REPLAYING
from detent.flows.notebook.run_view import LOG, NotebookRun
from detent.flows.notebook.state.document import StateDocument
from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.verification import EXECUTING_AGAIN
from detent.kernel.entries import AttemptFailed, Ended, Entry, Moved
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
    """Observes runs of one flow: prints a line for each behavior, and on a terminal a block below them."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._block: Any = None
        self._view: NotebookRun | None = None
        self._run_id = ""
        self._progress = ""
        self._told = ""

    def __enter__(self) -> Self:
        from detent.cli.output import is_terminal

        if is_terminal():
            from rich.console import Console
            from rich.live import Live

            console = Console(highlight=False, markup=False, emoji=False)
            self._block = Live(console=console, refresh_per_second=4, transient=True, redirect_stdout=True)
            self._block.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is not None:
            self._block.stop()
            self._block = None

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Print a transition."""
        from detent.cli.output import clean, paint, say

        if run.flow != self._flow:
            return
        body = entry.body
        if isinstance(body, AttemptFailed):
            say(f"    {paint('again', 'yellow')}: {clean(str(body.message))[:150]}")
        if not isinstance(body, Moved):
            return
        self._view, self._run_id, self._progress = NotebookRun(run.data), run.id, ""
        self._told = ""
        for line in transition_lines(self._view, body):
            say(line)
        self._redraw()

    def on_progress(self, run_id: str, flow: str, step: str, progress: Progress) -> None:
        """Say what takes long, once for each transition; on a terminal, show how far a round is."""
        from detent.cli.output import say

        if flow != self._flow:
            return
        if progress.text in (EXECUTING_AGAIN, REPLAYING) and progress.text != self._told:
            self._told = progress.text
            say(f"    {f'{progress.text} ({progress.of:g})' if progress.of else progress.text}")
        if self._block is None:
            return
        self._progress = f"{progress.text} of {progress.of:g}" if progress.of else progress.text
        self._redraw()

    def _redraw(self) -> None:
        if self._block is None or self._view is None:
            return
        from rich.text import Text

        from detent.cli.output import printable

        width = self._block.console.width
        lines = block_lines(self._view, self._run_id, self._progress, width)
        self._block.update(Text.from_ansi("\n".join(map(printable, lines)), no_wrap=True, overflow="crop"))


def transition_lines(run: NotebookRun, move: Moved) -> Iterator[str]:
    """The lines of one transition: stages and steps as headings, behaviors with their verdicts."""
    from detent.cli.output import clean, paint

    document = run.document
    row = (move.reason or "").partition(" ")[0]
    reason = (move.reason or "").partition(" ")[2]
    if (instead := _instead_of_agent(run, move)) is not None:
        yield f"    {paint('code', 'yellow')} took over from the agent: {clean(instead)}"
    match row:
        case "1" | "6b":
            if reason.startswith("closed as partial"):
                yield f"  {paint('closed as partial', 'yellow')}: {clean(reason.partition(': ')[2])}"
            yield _stage_line(document)
        case "6d" if document.steps.current is None:
            yield f"  {paint('↺', 'yellow')} back to an earlier stage: {clean(reason)}"
            yield _stage_line(document)
        case "2" | "6a" | "6d" | "6e":
            mark = {"6d": "↺ ", "6e": "↻ "}.get(row, "")
            yield f"  {mark}{_step_line(document)}"
        case "5a" | "5d":
            behavior = document.behaviors.completed[-1] if document.behaviors.completed else None
            mark = paint("✓", "green") if row == "5a" else paint("✗", "red")
            name = "" if behavior is None else behavior.behavior_id
            after = "" if row == "5a" else "   no further attempt"
            yield f"    {mark} {clean(name):<44} {clean(reason)}{after}"
        case "5b":
            behavior = document.behaviors.completed[-1]
            yield f"    {paint('✓', 'green')} {clean(behavior.behavior_id):<44} {clean(reason)}"
        case "5c":
            current = document.behaviors.current
            name = "" if current is None else current.behavior_id
            yield (
                f"    {paint('↻', 'yellow')} {clean(name):<44} {clean(reason)}; iteration "
                f"{document.location.behavior_iteration}"
            )
        case "6c":
            yield f"  {paint('complete', 'green')}"
        case "6f":
            yield f"  {paint('not achieved', 'red')}: {clean(reason)}"


def _instead_of_agent(run: NotebookRun, move: Moved) -> str | None:
    """Why code performed a step that was an agent's; None where it did not."""
    detail = move.detail or {}
    if not detail.get("fallback_used"):
        return None
    log = run.values.get(LOG, ())
    flows_own = log[-1].get("fallback") if log and move.event == "COMPLETE_ACTION" else None
    return str((flows_own or {}).get("reason") or detail.get("fallback_reason"))


def _stage_line(document: StateDocument) -> str:
    from detent.cli.output import clean, paint

    stages = document.stages
    total = len(stages.completed) + len(stages.remaining) + (stages.current is not None)
    title = "" if stages.current is None else stages.current.title
    number = len(stages.completed) + 1
    done = round(20 * (number - 1) / max(1, total))
    bar = "█" * done + "░" * (20 - done)
    return f"{paint(f'Stage {number}/{total}', bold=True)}  {bar}  {clean(title)}"


def _step_line(document: StateDocument) -> str:
    from detent.cli.output import clean

    steps = document.steps
    total = len(steps.completed) + len(steps.remaining) + (steps.current is not None)
    title = "" if steps.current is None else steps.current.title
    return f"{len(steps.completed) + 1}/{total} {clean(title)}"


class TransitionObjects:
    """Observes one run and prints each transition as a JSON object on a line of its own."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Print a transition."""
        body = entry.body
        if run.id != self._run_id or not isinstance(body, Moved | Ended):
            return
        view, document = NotebookRun(run.data), position(run)
        metrics = metrics_of(view)
        event = document.fsm.last_transition
        say_line({
            "run_id": run.id,
            "transition": run.steps,
            "event": None if event is None else event.value,
            "state": document.fsm.state.value,
            "reason": body.reason,
            "location": document.location.model_dump(mode="json"),
            "artifacts": [metrics.produced, metrics.expected],
            "criteria": [metrics.passed, metrics.criteria],
            "retries": metrics.retries,
        })  # fmt: skip


def say_line(value: Any) -> None:
    """Print a value as JSON on one line."""
    from detent.kernel.control_characters import json_shown

    print(json_shown(json.dumps(value, ensure_ascii=False, allow_nan=False)), flush=True)


class Observed:
    """What follows one run: the trace in files, transitions as JSON."""

    def __init__(self, engine: Engine, trace: str | None, json: bool) -> None:
        self._engine, self._trace, self._json = engine, trace, json
        self._writer: Any = None

    async def begin(self, run_id: str) -> None:
        """Follow a run from here on; what it has done so far is in the trace too."""
        from detent.flows.notebook.trace import TraceWriter

        if self._json:
            self._engine.add_observer(TransitionObjects(run_id))
        if self._trace is not None:
            self._writer = TraceWriter(self._engine.store, run_id, Path(self._trace))
            await self._writer.catch_up()
            self._engine.add_observer(self._writer)

    async def end(self) -> None:
        """Wait until everything is written."""
        if self._writer is not None:
            await self._writer.written()


def observing(engine: Engine, trace: str | None, *, json: bool) -> AbstractAsyncContextManager[Observed]:
    """Follow the run that is begun inside the block."""

    @asynccontextmanager
    async def followed() -> AsyncIterator[Observed]:
        observed = Observed(engine, trace, json)
        try:
            yield observed
        finally:
            await observed.end()

    return followed()


class NotebookDisplay(Kind):
    """Shows runs of the notebook flow, and writes what they have made."""

    name = "notebook-display"

    def header_lines(self, reading: ProblemReading, run_id: str) -> Iterator[str]:
        """What a run is about, before it is driven."""
        from detent.cli.output import clean, paint

        yield f"{paint('notebook', bold=True)}  {clean(reading.problem)[:60]}  run {run_id}"
        yield from self.reading_lines(reading)

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
        """Print a line for each behavior."""
        lines = NotebookLines(flow.name)
        engine.add_observer(lines)
        return lines

    def ended_as_asked(self, run: Run) -> bool:
        """With `--no-verify`, a complete run that was not executed again is all that was asked for."""
        view = NotebookRun(run.data)
        return position(run).fsm.state is NotebookState.WORKFLOW_COMPLETE and not view.options.verify

    async def deliver(self, engine: Engine, run: Run) -> None:
        """Write the notebook to the run's own `--out`, however it stands; at its end the flow has done so."""
        from detent.flows.notebook.delivery import deliver

        if getattr(engine.flows.get(run.flow), "delivered", {}).get(run.id) == run.seq:
            return
        out = NotebookRun(run.data).options.out
        if out is not None:
            await deliver(engine.store, run, Path(out))

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run, told: str | None = None) -> bool:
        """Print how a run ended or where it was stopped, its scores and its figures."""
        from detent.cli.output import clean, say, status
        from detent.flows.notebook.delivery import places

        if run.holds:
            return False
        if run.status.is_end:
            for line in ending_lines(run):
                say(line)
            if run.error:
                say(f"  {clean(str(run.error))}")
        else:
            for line in location_lines(run):
                say(line)
        out = NotebookRun(run.data).options.out
        if out is not None:
            say(f"  {clean(str(places(Path(out)).notebook))}")
        command = workspace.command("notebook", "show" if run.status.is_end else "resume", run.id)
        why = f" ({clean(str(run.reason))})" if run.reason and not run.status.is_end else ""
        say(f"  {status(run.status.value, run.status.value.replace('_', ' '))}{why}   {command}")
        return True


def location_lines(run: Run) -> Iterator[str]:
    """Where a run stands."""
    from detent.cli.output import clean

    document = position(run)
    where = document.location
    place = " / ".join(filter(None, (where.stage_id, where.step_id, where.behavior_id)))
    iteration = f"   iteration {where.behavior_iteration}" if where.behavior_iteration else ""
    yield f"  {document.fsm.state.value}   {clean(place)}{iteration}"


def plan_lines(document: StateDocument) -> Iterator[str]:
    """The stages that are planned."""
    from detent.cli.output import clean

    current = [] if document.stages.current is None else [document.stages.current]
    for number, stage in enumerate([*document.stages.completed, *current, *document.stages.remaining], 1):
        yield f"  {number}  {clean(stage.title)}"
        yield f"     makes: {clean(', '.join(stage.verified_artifacts or ()))}"


def ending_lines(run: Run) -> Iterator[str]:
    """The verdict on each threshold, the scores, and the figures of the run."""
    from detent.cli.output import clean, paint

    view = NotebookRun(run.data)
    for verdict in verdicts_of(view):
        met = paint("met", "green") if verdict.met else paint("not met", "red")
        yield f"  {met}  {clean(verdict.threshold)}   {clean(verdict.measured)}".rstrip()
    for name, scores in scores_of(view).items():
        shown = "   ".join(
            f"{key} {value:,.4g}" for key, value in scores.items() if isinstance(value, int | float)
        )
        yield f"  {name}: {clean(shown)}"
    metrics = metrics_of(view)
    yield (
        f"  artifacts {metrics.produced}/{metrics.expected}   criteria {metrics.passed}/{metrics.criteria}"
        f"   retries {metrics.retries}   variables {metrics.available}/{metrics.required}"
    )


DISPLAY = NotebookDisplay()
