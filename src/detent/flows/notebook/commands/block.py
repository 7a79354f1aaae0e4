"""The block that a terminal shows of a run under way: location, bars, counts, the step's criteria."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from detent.flows.notebook.finished import metrics_of

if TYPE_CHECKING:
    from detent.flows.notebook.run_view import NotebookRun

BAR = 36
"""Cells of a bar."""


def block_lines(run: NotebookRun, run_id: str, progress: str, width: int) -> list[str]:
    """The lines of the block, cut to a width."""
    lines = _lines(run, run_id, progress)
    return [line if len(line) <= width else f"{line[: max(0, width - 1)]}…" for line in lines]


def _lines(run: NotebookRun, run_id: str, progress: str) -> Iterator[str]:
    from detent.cli.output import clean

    document, metrics = run.document, metrics_of(run)
    stages, steps, behaviors = document.stages, document.steps, document.behaviors
    all_stages = len(stages.completed) + len(stages.remaining) + (stages.current is not None)
    title = "" if stages.current is None else stages.current.title
    name = document.state.notebook.title or run.reading.problem
    yield (
        f" {clean(name)[:40]}  ·  run {run_id[:8]}  ·  STAGE {len(stages.completed) + 1}/{all_stages} "
        f"{clean(title)}  ·  {document.fsm.state.value}"
    )
    first = _percent(metrics.first_passed, metrics.first_criteria)
    yield (
        f" stages    {_bar(len(stages.completed), all_stages)}  artifacts {metrics.produced}/"
        f"{metrics.expected}    criteria {metrics.passed}/{metrics.criteria} (first try {first})"
    )
    all_steps = len(steps.completed) + len(steps.remaining) + (steps.current is not None)
    rate = "–" if metrics.retry_rate is None else f"{metrics.retry_rate:.2f}"
    yield (
        f" steps     {_bar(len(steps.completed), all_steps)}  retries {metrics.retries} ({rate})   "
        f"variables {metrics.available}/{metrics.required}"
    )
    behavior = behaviors.current
    if behavior is not None:
        yield (
            f" behavior  {clean(behavior.behavior_id)} · {clean(behavior.agent or '')} · iteration "
            f"{document.location.behavior_iteration}{f' · {clean(progress)}' if progress else ''}"
        )
    if steps.current is not None:
        makes = ", ".join(steps.current.verified_artifacts or ())
        yield f"   ▸ {clean(steps.current.step_id):<32} {clean(makes)}"
    for step in steps.remaining[:3]:
        yield f"   · {clean(step.step_id):<32} {clean(', '.join(step.verified_artifacts or ()))}"
    for text, met in run.state.ledger.locked.items():
        yield f"   {'✓' if met else '·'} {clean(text)} (locked)"
    last = document.state.notebook.last_output
    if last:
        yield f" last output  {clean(' '.join(last.split()))}"


def _bar(done: int, of: int) -> str:
    filled = round(BAR * done / of) if of else 0
    return f"{'█' * filled}{'░' * (BAR - filled)}  {done}/{of}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"
