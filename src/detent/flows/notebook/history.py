"""The transitions of a run, read from its journal: the state after each, and what was decided."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.journal_reader import read
from detent.flows.notebook.run_view import LOG, NotebookRun
from detent.flows.notebook.state.document import MachinePosition, StateDocument
from detent.flows.notebook.state.machine import NotebookEvent, NotebookState
from detent.flows.notebook.state.state_json import export_state
from detent.kernel.entries import Ended, Entry, Moved
from detent.kernel.run import Run
from detent.kernel.status import Status

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
    reason: str = ""


def position(run: Run) -> StateDocument:
    """The state of a run; of one that a limit, a failure or a person has ended, the end that follows."""
    document = NotebookRun(run.data).document
    state = document.fsm.state
    if run.status is Status.CANCELLED:
        end, event = NotebookState.CANCELLED, NotebookEvent.CANCEL
    elif run.status in (Status.FAILED, Status.BUDGET_EXHAUSTED) or run.state == NotebookState.FAILED.value:
        end, event = NotebookState.FAILED, NotebookEvent.FAIL
    else:
        return document
    if state is end:
        return document
    at = datetime.fromtimestamp(run.updated_at, UTC).isoformat(timespec="milliseconds")
    return document.changed(fsm=MachinePosition(state=end, last_transition=event, timestamp=at))


class TransitionReader:
    """Reads the transitions of one run from its entries, one after the other."""

    def __init__(self) -> None:
        self._number = self._seen = 0
        self._before: str | None = None
        self.seq = 0
        """The entry that was read last."""

    def read(self, run: Run, entry: Entry) -> Transition | None:
        """The transition that an entry has made; `run` as it stands after the entry."""
        self.seq = entry.seq
        before, body = self._before, entry.body
        if before is None:
            self._before = START
            return Transition(0, START, export_state(position(run)), START, START, (), {}, entry.at)
        if not isinstance(body, Moved | Ended):
            return None
        document = position(run)
        to = document.fsm.state.value
        if isinstance(body, Ended) and to == before:
            return None  # the move into this end was a transition of its own
        self._number += 1
        self._before = to
        log = run.data.get(LOG, ())
        lines, self._seen = tuple(log[self._seen :]), len(log)
        event = document.fsm.last_transition
        detail = body.detail if isinstance(body, Moved) and body.detail else {}
        return Transition(
            self._number, to if event is None else event.value, export_state(document), before, to, lines,
            detail, entry.at, str(body.reason or ""),
        )  # fmt: skip


async def transitions(store: Store, run_id: str) -> AsyncIterator[Transition]:
    """Every transition, the start first."""
    run, reader = Run(run_id), TransitionReader()
    async for entry in read(store, run_id):
        run.apply(entry)
        transition = reader.read(run, entry)
        if transition is not None:
            yield transition
