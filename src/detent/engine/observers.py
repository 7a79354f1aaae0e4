"""Those who are told, after the commit, what happened. Nothing they do can harm a run."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from detent.engine import logger
from detent.engine.user_errors import failure
from detent.kernel import entries as journal
from detent.kernel.entries import Entry, Moved
from detent.kernel.errors import name_of
from detent.kernel.machine import Machine
from detent.kernel.plain import copied, encode
from detent.kernel.run import Run
from detent.kernel.state_history import StateTransition


@runtime_checkable
class StateMachineObserver(Protocol):
    """Told about every transition, then about the totals after it."""

    def on_state_transition(self, transition: StateTransition[Any]) -> None:
        """A transition was committed."""

    def on_metrics_update(self, metrics: dict[str, Any]) -> None:
        """Totals after the transition."""


class Progress(NamedTuple):
    """How far a step or an effect has come, for display only."""

    done: float | None = None
    of: float | None = None
    """What `done` will be at the end, if that is known."""
    text: str = ""


class Observers:
    """The observers of an engine, told in the order in which they were added."""

    def __init__(self, observers: Iterable[Any] = ()) -> None:
        self._all: list[tuple[Any, Any, Any, Any]] = []
        self._whole: list[tuple[Any, Callable[..., None]]] = []
        self._streams: list[tuple[Any, Callable[..., None]]] = []
        self._progress: list[tuple[Any, Callable[..., None]]] = []
        for observer in observers:
            self.add(observer)

    def add(self, observer: Any) -> None:
        """Add one: anything with a method of those that are told something.

        `on_entry(run_id, flow, entry)`, `on_run_entry(run, entry)` with the run as it stands after the entry
        (to be looked at at once, not kept), `on_state_transition`, `on_metrics_update`, `on_stream(run_id,
        flow, step, chunk)` or `on_run_stream(run, step, chunk)`, `on_progress(run_id, flow, step, progress)`.
        """
        methods = tuple(
            getattr(observer, name, None) for name in ("on_entry", "on_state_transition", "on_metrics_update")
        )
        stream = getattr(observer, "on_run_stream", None)
        if stream is None and (plain := getattr(observer, "on_stream", None)) is not None:
            stream = _by_name(plain)
        whole = getattr(observer, "on_run_entry", None)
        progress = getattr(observer, "on_progress", None)
        if not any(methods) and stream is None and whole is None and progress is None:
            raise TypeError(
                f"{type(observer).__name__} observes nothing: it has neither on_entry, on_run_entry, "
                f"on_state_transition, on_metrics_update, on_stream nor on_progress."
            )
        if progress is not None:
            self._progress.append((observer, progress))
        if whole is not None:
            self._whole.append((observer, whole))
        if any(methods):
            self._all.append((observer, *methods))
        if stream is not None:
            self._streams.append((observer, stream))

    def __bool__(self) -> bool:
        return bool(self._all or self._whole)

    def tell(self, run: Run, machine: Machine[Any], entry: Entry) -> None:
        """Tell everybody; a failing observer is logged and the others still hear."""
        body = entry.body
        for observer, on_run_entry in self._whole:
            self._call(observer, entry, on_run_entry, run, entry)
        for observer, on_entry, on_transition, on_metrics in self._all:
            if on_entry is not None:
                self._call(observer, entry, on_entry, run.id, run.flow, entry)
            if type(body) is Moved:
                if on_transition is not None:
                    self._call(observer, entry, on_transition, transition_of(machine, entry, body))
                if on_metrics is not None:
                    self._call(observer, entry, on_metrics, run.total_metrics())

    def stream(self, run: Run, step: str, chunk: Any) -> None:
        """Tell those who listen a piece of an agent's text, as it is being written."""
        for observer, method in self._streams:
            self._show(observer, method, run, step, chunk)

    def progress(self, loop: AbstractEventLoop, run: Run, step: str, progress: Progress) -> None:
        """Show progress to those who want to see it, on the event loop, from whichever thread it comes."""
        for observer, method in self._progress:
            facts = observer, method, run.id, run.flow, step, progress
            if current_thread_runs(loop):
                self._show(*facts)
            else:
                with suppress(RuntimeError):  # the loop is closed: a call outlived its engine
                    loop.call_soon_threadsafe(self._show, *facts)

    @staticmethod
    def _show(observer: Any, method: Callable[..., None], *facts: Any) -> None:
        try:
            method(*facts)
        except BaseException as error:
            if failure(error) is None:
                raise
            logger.error("observer.failed", observer=type(observer).__name__, error=type(error).__name__)

    @staticmethod
    def _call(observer: Any, entry: Entry, method: Callable[..., None], *args: Any) -> None:
        try:
            method(*args)
        except BaseException as error:
            if failure(error) is None:
                raise
            logger.error(
                "observer.failed",
                observer=type(observer).__name__,
                transition=entry.seq,
                error=type(error).__name__,
            )


def current_thread_runs(loop: AbstractEventLoop) -> bool:
    """Whether this thread is the one in which a loop runs now."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _by_name(method: Callable[..., None]) -> Callable[[Run, str, Any], None]:
    """For those who are told a run's id and flow in place of the run."""

    def tell(run: Run, step: str, chunk: Any) -> None:
        method(run.id, run.flow, step, chunk)

    return tell


def transition_of(machine: Machine[Any], entry: Entry, body: Moved) -> StateTransition[Any]:
    """The record of a committed move."""
    return StateTransition(
        machine.state(body.frm) if machine.has(body.frm) else body.frm,
        machine.state(body.to) if machine.has(body.to) else body.to,
        entry.at,
        copied(dict(body.set)),
        body.reason,
        body.duration,
        body.spend.tokens,
    )


class MetricsLogger:
    """Logs one line per transition: from, to, duration, tokens."""

    def on_state_transition(self, transition: StateTransition[Any]) -> None:
        """One INFO line."""
        logger.info(
            "transition.metrics",
            frm=name_of(transition.from_state),
            to=name_of(transition.to_state),
            duration_s=round(transition.duration_seconds, 3),
            tokens=transition.tokens_consumed,
        )

    def on_metrics_update(self, metrics: dict[str, Any]) -> None:
        """Totals are at DEBUG."""
        logger.debug("transition.totals", **metrics)


class JsonLines:
    """Appends every committed entry to a file, one JSON object a line."""

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  kept open for the observer's life

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Write one line: `{run, flow, entry}`, for an entry has names of its own (a child's `run`, say)."""
        self._file.write(encode({"run": run_id, "flow": flow, "entry": journal.to_plain(entry)}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
