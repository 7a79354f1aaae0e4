"""The order in which the steps of a run and of its descendants were completed.

The journals determine it, clocks only for parallel steps: a step is completed after the step before it in its
run, and after all steps inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from detent.flows.workflow.spec import LoopStep, StepSpec, every

if TYPE_CHECKING:
    from detent.engine.flow import Past
    from detent.kernel.entries import Entry


class Completed(NamedTuple):
    """A move out of a state of some run."""

    at: float
    """Time of the move; the time of the previous move if the clock went backwards."""
    past: Past
    entry: Entry


def completed(family: Iterable[Past]) -> list[Completed]:
    """Return the moves of a run and its descendants in order of completion; `family_of` gives `family`."""
    root: Past | None = None
    below: dict[str, list[Past]] = {}
    for past in family:
        if root is None:
            root = past
        elif hasattr(past.flow, "specs"):  # runs of rollbacks have no steps of the file
            below.setdefault(past.run.parent or "", []).append(past)
    return [] if root is None else _moves_of(root, below)


def _moves_of(past: Past, below: Mapping[str, list[Past]]) -> list[Completed]:
    specs: Mapping[str, StepSpec] = getattr(past.flow, "specs", {})
    places = {step.name: (state, step) for state, spec in specs.items() for step in every([spec])}
    inside: dict[str, list[tuple[int, Past]]] = {}
    sequential: dict[str, bool] = {}
    for child in below.get(past.run.id, ()):
        name, _, index = child.run.id[len(past.run.id) + 1 :].partition("[")
        if name in places:
            state, step = places[name]
            inside.setdefault(state, []).append((int(index.rstrip("]") or 0), child))
            sequential[state] = _is_sequential(step)
    completed_moves: list[Completed] = []
    latest = 0.0

    def enter(state: str) -> None:
        nonlocal latest
        children = sorted(inside.pop(state, ()), key=lambda numbered: numbered[0])
        moves = [move for _, child in children for move in _moves_of(child, below)]
        if not sequential.get(state, True):
            moves.sort(key=lambda move: move.at)  # a stable sort; the moves of each child are in order
        for move in moves:
            latest = max(latest, move.at)
            completed_moves.append(move._replace(at=latest))

    for entry in past.moves:
        enter(entry.body.frm)  # type: ignore[union-attr]
        latest = max(latest, entry.at)
        completed_moves.append(Completed(latest, past, entry))
    for state in list(inside):  # of a step that is not completed yet
        enter(state)
    return completed_moves


def _is_sequential(step: StepSpec) -> bool:
    """Whether the child runs of a step run in sequence."""
    if not isinstance(step, LoopStep) or step.until is not None:
        return True
    return step.has_for_each and not step.bounded_by_settings and step.max_concurrency == 1
