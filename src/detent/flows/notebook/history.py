"""The transitions of a run, read back from its journal: the state after each, and what was decided."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.journal_reader import read
from detent.flows.notebook.run_view import LOG, NotebookRun
from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.state.state_json import write_state
from detent.kernel.entries import Moved
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.engine.ports import Store

START = "IDLE"


class Transition(NamedTuple):
    """A move of a run."""

    number: int
    """0 for the start."""
    name: str
    """Its event, such as START_STEP; IDLE for the start."""
    state: Mapping[str, Any]
    """The state JSON after it."""
    before: str
    to: str
    lines: Sequence[Mapping[str, Any]]
    """Lines of the log that it has added: payloads, claims, repairs."""
    detail: Mapping[str, Any]
    """How its step was performed."""
    at: float
    spend: Any = None


async def transitions(store: Store, run_id: str) -> AsyncIterator[Transition]:
    """Every transition, the start first."""
    run = Run(run_id)
    number = seen = 0
    begun = False
    async for entry in read(store, run_id):
        run.apply(entry)
        if not begun:
            begun = True
            state = write_state(NotebookRun(run.data).document)
            yield Transition(0, START, state, START, START, (), {}, entry.at)
        body = entry.body
        if not isinstance(body, Moved):
            continue
        number += 1
        log = run.data.get(LOG, ())
        document = NotebookRun(run.data).document
        name = document.fsm.last_transition
        yield Transition(
            number, "FAIL" if body.to == NotebookState.FAILED.value else name.value if name else body.to,
            write_state(document), str(body.frm), str(body.to), tuple(log[seen:]), body.detail or {}, entry.at,
            body.spend,
        )  # fmt: skip
        seen = len(log)
