"""How a refinement is shown while it runs: one line for each state, then how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.cli.live import LiveLines
from detent.cli.output import clean, cut, paint, say, status
from detent.cli.progress import under_way
from detent.dispatch.autonomy import StepMode
from detent.flows.refine.evaluation import Evaluation, ValidationReport
from detent.flows.refine.result import result_of
from detent.flows.refine.run_data import EVALUATION, IMPLEMENTATION, PLAN, VALIDATION, RunData
from detent.kernel.entries import Moved
from detent.kernel.plain import to_plain
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.observers import Progress
    from detent.flows.refine.flow import RefineFlow
    from detent.flows.refine.part import Part
    from detent.kernel.entries import Entry
    from detent.kernel.run import Run

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
            share = f" {progress.done / progress.of:.0%}" if progress.of and progress.done is not None else ""
            self.show_under_way(f"{step}{share}  {progress.text}".rstrip())

    def _line(self, run: Run, move: Moved) -> str:
        went_wrong = move.status is not None and move.status is not Status.SUCCEEDED
        mark = paint("✗", "red") if went_wrong else paint("✓", "green")
        by = StepMode.AGENT.value if move.by == "agent" else StepMode.DETERMINISTIC.value
        note = cut(clean(self._note(move)), WIDEST_NOTE)
        attempt = self._attempt(run, move)
        reason = clean(move.reason or "")
        line = f"  {mark} {move.frm:<15}{by:<16}{move.duration:>6.2f} s  {note:<{WIDEST_NOTE}}  {attempt}"
        return f"{line.rstrip()}  {reason}".rstrip() if reason else line.rstrip()

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

    def _note(self, move: Moved) -> str:
        parts = self._flow.parts
        values = to_plain(dict(move.set))
        if VALIDATION in values:
            return _of(parts.validator, ValidationReport.from_plain(values[VALIDATION]), _issues)
        if EVALUATION in values:
            return _of(parts.judge, Evaluation.from_plain(values[EVALUATION]), _score)
        if PLAN in values:
            return _of(parts.planner, values[PLAN], _nothing)
        if IMPLEMENTATION in values:
            return _of(parts.implementer, values[IMPLEMENTATION], _nothing)
        return str(move.detail.get("note", ""))  # of the prepared request, which is kept elsewhere


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
