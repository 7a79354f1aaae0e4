"""Which variants of a step's recipe a run has tried, so that going back to it tries another one."""

from __future__ import annotations

from detent.flows.notebook.cells import Cell
from detent.flows.notebook.domain.catalogue import producer_of
from detent.flows.notebook.measuring.expressions import assigned_names
from detent.flows.notebook.recipes.cookbook import CLOSING
from detent.flows.notebook.recipes.recipe import VARIANTS
from detent.flows.notebook.run_view import NotebookRun


def variants_before(run: NotebookRun) -> int:
    """How many variants were tried before the run came back to the current step; 0 at its first visit."""
    step = run.step.step_id
    if step not in map(producer_of, run.state.ledger.backtracked):
        return 0
    return _iterations(run, step, but=run.behavior.behavior_id)


def is_spent(run: NotebookRun, step: str) -> bool:
    """Whether code has tried every variant of a step; what an agent may write differs each time."""
    if any(cell.mode == "agent" for cell in run.cells if cell.step == step):
        return False
    return _iterations(run, step) >= VARIANTS


def attempts_that_ran_out(run: NotebookRun) -> int:
    """How many attempts at the current step ended because time or memory ran out."""
    step = run.step.step_id
    return len({cell.attempt for cell in run.cells if cell.step == step and _ran_out(cell)})


def _ran_out(cell: Cell) -> bool:
    return cell.status in ("timeout", "died") or (cell.error or "").startswith("MemoryError")


def _iterations(run: NotebookRun, step: str, but: str = "") -> int:
    """Iterations of the step's working behaviors, superseded ones included."""
    last: dict[str, int] = {}
    for cell in run.cells:
        behavior = cell.behavior
        if behavior is None or behavior == but or cell.step != step or not cell.is_code:
            continue
        if CLOSING not in assigned_names(cell.source):
            last[behavior] = max(last.get(behavior, 0), cell.iteration or 1)
    return sum(last.values())
