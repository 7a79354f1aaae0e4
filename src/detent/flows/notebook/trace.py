"""The trace of a run as files: the state after each transition, its payload, and how it was decided."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.flows.notebook.history import Transition, transitions

if TYPE_CHECKING:
    from detent.engine.ports import Store

STATES, PAYLOADS, LOGS = "states", "payloads", "log"


async def write_trace(store: Store, run_id: str, folder: Path) -> int:
    """Write every transition of a run below a folder; how many there are. Repeatable from the journal."""
    count = 0
    async for transition in transitions(store, run_id):
        await write_transition(store, transition, folder)
        count += 1
    return count


async def write_transition(store: Store, transition: Transition, folder: Path) -> None:
    """Write the files of one transition."""
    name = f"{transition.number:04d}_{transition.name}"
    _write(folder / STATES / f"{name}.json", _json(transition.state))
    for index, line in enumerate(transition.lines):
        part = name if index == 0 else f"{name}_{index + 1}"
        if (payload := await _kept(store, line.get("payload"))) is not None:
            _write(folder / PAYLOADS / f"{part}.xml", payload)
        if (raw := await _kept(store, line.get("raw"))) is not None:
            _write(folder / PAYLOADS / f"{part}.raw.txt", raw)
    if transition.number:
        log = {
            "transition": transition.name, "from": transition.before, "to": transition.to,
            "lines": [
                {key: value for key, value in line.items() if key not in ("payload", "raw")}
                for line in transition.lines
            ],
            "performed": dict(transition.detail),
        }  # fmt: skip
        _write(folder / LOGS / f"{name}.log", _json(log))


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
