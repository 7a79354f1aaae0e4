"""How a refinement is shown while it runs: one line for each state, then how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from detent.cli.live import LiveLines
from detent.cli.output import clean, cut, paint, say, status
from detent.cli.progress import under_way
from detent.dispatch.autonomy import StepMode
from detent.flows.refine.evaluation import Evaluation, ValidationReport
from detent.flows.refine.loop import NOTE
from detent.flows.refine.result import result_of
from detent.flows.refine.run_data import EVALUATION, IMPLEMENTATION, PLAN, VALIDATION, RunData
from detent.flows.refine.state_machine import REFINE, OrchestrationState
from detent.kernel.entries import Moved
from detent.kernel.plain import to_plain
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.observers import Progress
    from detent.flows.refine.flow import RefineFlow
    from detent.flows.refine.part import Part, Parts
    from detent.kernel.entries import Entry
    from detent.kernel.run import Run
    from detent.kernel.state_history import StateTransition

WIDEST_NOTE = 44


class RefineLines(LiveLines):
    """Prints a line for each state that a run leaves; on a terminal also the one it is in."""

    def __init__(self, flow: RefineFlow) -> None:
        super().__init__()
        self._flow = flow
        self._run_id: str | None = None
        self._number = 0
        """The attempt of the last planning or implementing line."""

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Print the line of a move of the run."""
        if run.flow != self._flow.name or self._run_id not in (None, run.id):
            return
        self._run_id = run.id
        if isinstance(entry.body, Moved):
            self.print(self._line(run, entry.body))
        if (doing := under_way(entry)) is not None:
            self.show_under_way(doing)

    def on_progress(self, run_id: str, flow: str, step: str, progress: Progress) -> None:
        """Show how far a long part has come."""
        if flow == self._flow.name and self._run_id in (None, run_id):
            self.show_under_way(_progress(step, progress.done, progress.of, progress.text))

    def _line(self, run: Run, move: Moved) -> str:
        went_wrong = move.status is not None and move.status is not Status.SUCCEEDED
        by = StepMode.AGENT.value if move.by == "agent" else StepMode.DETERMINISTIC.value
        note = note_of(self._flow.parts, to_plain(dict(move.set))) or str(move.detail.get("note", ""))
        return line(move.frm, by, move.duration, note, self._attempt(run, move), move.reason, went_wrong)

    def _attempt(self, run: Run, move: Moved) -> str:
        data = RunData(run.data, self._flow.refine_settings)
        if move.frm not in ("planning", "implementing"):
            return ""
        rows = run.data.get("made") or [{"attempt": 0}]
        number = max(row["attempt"] for row in rows)
        if number == self._number:
            return ""
        self._number = number
        return f"attempt {number}/{data.settings.max_iterations}"


class LoopLines(LiveLines):
    """Prints the same lines for a refinement without a run, as an observer of `refine_loop`."""

    def __init__(self, parts: Parts, max_iterations: int) -> None:
        super().__init__()
        self._parts = parts
        self._most = max_iterations
        self._attempts = 0
        self._told = 0
        """The attempt of the last line that names one."""

    def on_state_transition(self, transition: StateTransition[Any]) -> None:
        """Print the line of the state that was left."""
        frm, to = transition.from_state, transition.to_state
        planned = frm is OrchestrationState.PLANNING and to is not OrchestrationState.FAILED
        self._attempts += planned
        attempt = ""
        if frm in (OrchestrationState.PLANNING, OrchestrationState.IMPLEMENTING):
            attempt = "" if self._attempts == self._told else f"attempt {self._attempts}/{self._most}"
            self._told = self._attempts
        went_wrong = REFINE.ends.get(to) not in (None, Status.SUCCEEDED)
        self.print(
            line(
                frm.value, StepMode.DETERMINISTIC.value, transition.duration_seconds,
                note_of(self._parts, transition.context), attempt, transition.reason, went_wrong,
            )
        )  # fmt: skip
        # A refined implementation is an attempt of its own.
        self._attempts += (frm, to) == (OrchestrationState.JUDGING, OrchestrationState.IMPLEMENTING)
        self.show_under_way(to.value)

    def on_metrics_update(self, metrics: Any) -> None:
        """The lines have no room for totals."""

    def on_progress(self, state: str, done: float | None, of: float | None, text: str) -> None:
        """Show how far a long part has come."""
        self.show_under_way(_progress(state, done, of, text))


def line(
    state: str, by: str, seconds: float, note: str, attempt: str, reason: str | None, went_wrong: bool
) -> str:
    """The line of a state that was left."""
    mark = paint("✗", "red") if went_wrong else paint("✓", "green")
    noted = cut(clean(note), WIDEST_NOTE)
    text = f"  {mark} {state:<15}{by:<16}{seconds:>6.2f} s  {noted:<{WIDEST_NOTE}}  {attempt}"
    return f"{text.rstrip()}  {clean(reason or '')}".rstrip()


def note_of(parts: Parts, values: Mapping[str, Any]) -> str:
    """A few words about what a part has made; nothing where no part has."""
    if VALIDATION in values:
        return _of(parts.validator, ValidationReport.from_plain(values[VALIDATION]), _issues)
    if EVALUATION in values:
        return _of(parts.judge, Evaluation.from_plain(values[EVALUATION]), _score)
    if PLAN in values:
        return _of(parts.planner, values[PLAN], _nothing)
    if IMPLEMENTATION in values:
        return _of(parts.implementer, values[IMPLEMENTATION], _nothing)
    return str(values.get(NOTE, ""))  # of the prepared request, which is kept elsewhere


def _progress(step: str, done: float | None, of: float | None, text: str) -> str:
    share = f" {done / of:.0%}" if of and done is not None else ""
    return f"{step}{share}  {text}".rstrip()


def _of(part: Part, value: Any, usual: Any) -> str:
    """The note of a part; one that fails says nothing."""
    note = part.note or usual
    try:
        return str(note(value))
    except Exception:
        return ""


def _nothing(value: Any) -> str:
    return ""


def _issues(report: ValidationReport) -> str:
    warnings = sum(issue.severity == "warning" for issue in report.issues)
    return f"{_count(len(report.errors), 'error')}, {_count(warnings, 'warning')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _score(evaluation: Evaluation) -> str:
    lowest = evaluation.lowest
    worst = f"  (lowest: {lowest.category} {lowest.score:.0f})" if lowest is not None else ""
    return f"{evaluation.overall_score:g} / 100{worst}"


async def tell_ending(workspace: Any, engine: Engine, run: Run) -> None:
    """Print the status, the best attempt where it is not the last, the files and the tokens."""
    result = await result_of(engine, run.id)
    facts = [status(run.status.value, run.state)]
    if run.reason:
        facts.append(clean(run.reason))
    if result.evaluation is not None:
        facts.append(f"{result.evaluation.overall_score:g} / 100")
    if result.status != "success" and result.best_iteration is not None:
        facts.append(f"best attempt {result.best_iteration} of {result.iterations}")
    facts += [*map(clean, result.files), f"{result.tokens_used:,} tokens"]
    say("  " + "   ".join(facts))
    if result.error:
        say(f"  {clean(result.error)}")
    say(f"  {workspace.command('show', run.id)}")
