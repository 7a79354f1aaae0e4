"""The trace of a run as files: the state after each transition, its payload, and how it was decided."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.engine.journal_reader import read
from detent.flows.notebook.history import Transition, TransitionReader, transitions
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.kernel.entries import Entry

STATES, PAYLOADS, LOGS = "states", "payloads", "log"


async def write_trace(store: Store, run_id: str, folder: Path) -> int:
    """Write every transition of a run below a folder; how many there are. Repeatable from the journal."""
    count = 0
    async for transition in transitions(store, run_id):
        _write_state(transition, folder)
        await _write_payloads(store, transition, folder)
        count += 1
    return count


class TraceWriter:
    """Observes one run and writes its trace as it goes: states at once, payloads as soon as they are read."""

    def __init__(self, store: Store, run_id: str, folder: Path) -> None:
        self._store, self._run_id, self._folder = store, run_id, folder
        self._reader = TransitionReader()
        self._writing: set[asyncio.Task[None]] = set()

    async def catch_up(self) -> None:
        """Write what the run has done so far; called before it is driven."""
        run = Run(self._run_id)
        async for entry in read(self._store, self._run_id):
            run.apply(entry)
            self.on_run_entry(run, entry)
        await self.written()

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Write a transition."""
        if run.id != self._run_id or entry.seq <= self._reader.seq:
            return
        transition = self._reader.read(run, entry)
        if transition is None:
            return
        _write_state(transition, self._folder)
        task = asyncio.ensure_future(_write_payloads(self._store, transition, self._folder))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def written(self) -> None:
        """Wait until every payload is written."""
        if self._writing:
            await asyncio.gather(*self._writing)


def _name(transition: Transition) -> str:
    return f"{transition.number:04d}_{transition.name}"


def _write_state(transition: Transition, folder: Path) -> None:
    """Write the state after a transition, and its log."""
    name = _name(transition)
    _write(folder / STATES / f"{name}.json", _json(transition.state))
    if transition.number:
        log = {
            "transition": transition.name, "from": transition.before, "to": transition.to,
            "reason": transition.reason,
            "lines": [
                {key: value for key, value in line.items() if key not in ("payload", "raw")}
                for line in transition.lines
            ],
            "performed": dict(transition.detail),
        }  # fmt: skip
        _write(folder / LOGS / f"{name}.log", _json(log))


async def _write_payloads(store: Store, transition: Transition, folder: Path) -> None:
    for name, text in (await payloads_of(store, transition)).items():
        _write(folder / PAYLOADS / name, text)


async def payloads_of(store: Store, transition: Transition) -> dict[str, str]:
    """The payloads of a transition by the names of their files: canonical, and as an agent wrote them."""
    texts: dict[str, str] = {}
    for index, line in enumerate(transition.lines):
        part = _name(transition) if index == 0 else f"{_name(transition)}_{index + 1}"
        if (payload := await _kept(store, line.get("payload"))) is not None:
            texts[f"{part}.xml"] = payload
        if (raw := await _kept(store, line.get("raw"))) is not None:
            texts[f"{part}.raw.txt"] = raw
    return texts


async def _kept(store: Store, reference: Any) -> str | None:
    if not isinstance(reference, Mapping) or "$blob" not in reference:
        return None
    raw = await store.blob(str(reference["$blob"]))
    return None if raw is None else raw.decode("utf-8", "replace")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
