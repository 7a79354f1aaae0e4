"""What a run has tried at a step, read from its cells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from detent.flows.notebook.cells import Cell
from detent.flows.notebook.roles.variants import attempts_that_ran_out

STEP = "model_training_tuning"


def cell(iteration: int, status: str, error: str | None = None, *, step: str = STEP, number: int = 1) -> Cell:
    return Cell(
        f"{step}-{iteration}-{number}", "code", "x = 1", step=step, behavior=f"{step}_b1",
        iteration=iteration, status=status, error=error,
    )  # fmt: skip


def at_step(*cells: Cell) -> Any:
    return SimpleNamespace(step=SimpleNamespace(step_id=STEP), cells=cells)


def test_attempts_that_ran_out_of_time_or_memory_are_counted_once_each():
    run = at_step(
        cell(1, "timeout", "TimeoutError: the cell did not end within 300 s"),
        cell(2, "ok"),
        cell(2, "error", "MemoryError: Unable to allocate 3 GiB", number=2),
        cell(2, "died", "KernelDied: the kernel's process ended", number=3),
        cell(3, "error", "ValueError: a MemoryError in words"),
        cell(1, "timeout", "TimeoutError", step="method_integration"),
    )
    assert attempts_that_ran_out(run) == 2
    assert attempts_that_ran_out(at_step(cell(1, "ok"))) == 0
