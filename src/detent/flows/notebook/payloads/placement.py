"""Stages placed relative to others: `insert_before`, `insert_after` and `replaces`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.payload_error import CONTRADICTION, UNKNOWN, quoted
from detent.flows.notebook.payloads.values import PlannedStage
from detent.kernel.errors import nearest


def placed(
    stages: tuple[PlannedStage, ...], remaining: Collection[str], findings: Findings
) -> tuple[PlannedStage, ...]:
    """The stages in the order in which they are done.

    Placements are applied in document order. One that names another stage of the payload is done with once it
    is applied; one that names a `remaining` stage stays on its stage for the revision.
    """
    order = list(stages)
    moves: list[str] = []
    for index, stage in enumerate(stages):
        part = f"stages[{index}]"
        wanted = [(how, name) for how, name in _placements(stage) if name is not None]
        if not wanted:
            continue
        if len(wanted) > 1:
            findings.refuse_part(CONTRADICTION, f"{quoted(stage.id)} is placed in more than one way", part)
            continue
        how, other = wanted[0]
        at = next((at for at, item in enumerate(order) if item.id == other and item is not stage), None)
        if at is not None:
            _move(order, stage, order[at], how)
            moves.append(f"{stage.id} {how} {other}")
        elif other not in remaining:
            known = [item.id for item in order if item is not stage] + list(remaining)
            why = f"{how} names no stage: {quoted(other)}.{nearest(other, known)}"
            findings.refuse_part(UNKNOWN, why, part)
    if moves:
        findings.details["placed"] = "; ".join(moves)
    return tuple(order)


def _placements(stage: PlannedStage) -> tuple[tuple[str, str | None], ...]:
    return (
        ("insert_before", stage.insert_before),
        ("insert_after", stage.insert_after),
        ("replaces", stage.replaces),
    )


def _move(order: list[PlannedStage], stage: PlannedStage, other: PlannedStage, how: str) -> None:
    order[:] = [item for item in order if item is not stage]
    at = next(index for index, item in enumerate(order) if item is other)
    done = replace(stage, insert_before=None, insert_after=None, replaces=None)
    if how == "replaces":
        order[at] = done
    else:
        order.insert(at + (how == "insert_after"), done)
