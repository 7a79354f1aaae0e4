"""A run and its descendants: what each of them has done, for whoever has to undo or retell it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from detent.engine.acts import Act
from detent.engine.flow import Flow, Past
from detent.engine.journal_reader import read, rows_of
from detent.engine.outcome import Effect
from detent.engine.ports import RunQuery, RunRow, Store
from detent.kernel.entries import EffectDone, Moved, Proposed
from detent.kernel.errors import RunNotFound
from detent.kernel.run import Run


async def family_of(store: Store, flow: Callable[[str], Flow], run_id: str) -> AsyncIterator[Past]:
    """A run and everything below it, parents before their children; `flow` gives a flow by name."""
    row = await store.row(run_id)
    run, moves = Run(run_id), []
    acts: dict[int, tuple[Act, ...]] = {}
    proposal: Proposed | None = None
    performed: list[Act] = []
    async for entry in read(store, run_id):
        run.apply(entry)
        body = entry.body
        if type(body) is Moved:
            moves.append(entry)
            if performed:
                acts[entry.seq], performed = tuple(performed), []
            proposal = None
        elif isinstance(body, Proposed):
            proposal = body
        elif isinstance(body, EffectDone) and proposal is not None:
            for item in proposal.effects:
                if item["key"] == body.key:
                    settled = {"receipt": body.receipt, "step": proposal.step, "by": proposal.by}
                    performed.append(Act(body.key, Effect(item["tool"], item["args"]), settled))
    yield Past(run, flow(row.flow), tuple(moves), acts)
    async for child in children(store, run_id):
        async for past in family_of(store, flow, child.id):
            yield past


def children(store: Store, run_id: str) -> AsyncIterator[RunRow]:
    """The children of a run, newest first."""
    return rows_of(store, RunQuery(parent=run_id))


async def child_of(store: Store, run_id: str, ids: Iterable[str]) -> str | None:
    """Which of some ids is that of a child of a run; None where none of them is."""
    for child_id in ids:
        try:
            if (await store.row(child_id)).parent == run_id:
                return child_id
        except RunNotFound:
            continue
    return None


async def ancestors(store: Store, run_id: str) -> list[str]:
    """The runs that a run is part of, its parent first."""
    ids: list[str] = []
    parent = (await store.row(run_id)).parent
    while parent is not None:
        ids.append(parent)
        parent = (await store.row(parent)).parent
    return ids
