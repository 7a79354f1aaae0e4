"""Where a run of a workflow keeps what its expressions read: inputs, finished steps, the item at hand.

Each step's result is a key of its own, so that a step writes only what is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from detent.engine.offloaded import Beside, set_aside
from detent.flows.workflow.expressions import UNBOUND, Prepared, Scope

INPUTS, SECRETS, OUTER, ITEM, INDEX = "inputs", "secrets", "outer", "item", "index"
BESIDE = "beside"
"""Says which inputs and results that were handed down lie beside the journal."""
HASH = "inputs_hash"
"""Hash of the inputs the root was started with."""
TOTAL = "total"
"""How many iterations there are, where that is known."""
RESULT, FAILURE = "result", "failure"
ROLLED_BACK, ROLLBACK_ERRORS = "rolled_back", "rollback_errors"
STEP = "steps/"
"""Begins the key of a step's result."""
OK, SKIPPED = "ok", "skipped"
OUTPUT = "output"
"""In a step's result: what it gave."""
GIVEN = "given"
"""In a step's result: what it worked on, where its rollback may ask for that and nothing else tells."""
PASSED_OVER = "passed_over"
"""In a branch's result: the step it chose was passed over."""


def key_of(step: str) -> str:
    """The key of the data that takes a step's result."""
    return f"{STEP}{step}"


def finished(output: Any, ran: str | None = None) -> dict[str, Any]:
    """A step's result. `ran` names the step that a branch chose."""
    result = {OUTPUT: output, "status": OK}
    return result if ran is None else {**result, "ran": ran}


def skipped(ran: str | None = None) -> dict[str, Any]:
    """The result of a step that was passed over; a branch that chose it (`ran`) is not passed over itself."""
    if ran is not None:
        return {**finished(None, ran), PASSED_OVER: True}
    return {"output": None, "status": SKIPPED}


class Results(Mapping[str, Mapping[str, Any]]):
    """Results of finished steps by name: this run's own, then those of the runs around it."""

    __slots__ = ("_data", "_outer")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._outer: Mapping[str, Any] = data.get(OUTER) or {}

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        found = self._data.get(f"{STEP}{name}")
        if found is None:
            found = self._outer[name]
        return found  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        own = [key[len(STEP) :] for key in self._data if key.startswith(STEP)]
        return iter(dict.fromkeys([*own, *self._outer]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def scope_of(data: Mapping[str, Any]) -> Scope:
    """What expressions see of a run's data."""
    return Scope(data.get(INPUTS) or {}, Results(data), data.get(ITEM, UNBOUND), data.get(INDEX, UNBOUND))


def handed_down(
    data: Mapping[str, Any], inputs: Iterable[str], steps: Iterable[str]
) -> tuple[dict[str, Any], Beside]:
    """What a child run of the same file needs of its parent's data, and no more; long values apart."""
    given = data.get(INPUTS) or {}
    results = Results(data)
    down: dict[str, Any] = {INPUTS: {name: given[name] for name in inputs if name in given}}
    outer = {name: results[name] for name in steps if name in results}
    if outer:
        down[OUTER] = outer
    for name in (HASH, SECRETS, ITEM, INDEX):
        if name in data:
            down[name] = data[name]
    return set_aside(down, INPUTS, OUTER)


def used(parts: Iterable[Prepared]) -> tuple[set[str], set[str]]:
    """Names of the inputs and of the steps that expressions read."""
    inputs: set[str] = set()
    steps: set[str] = set()
    for part in parts:
        for reference in part.references:
            if reference.root == "inputs" and reference.name is not None:
                inputs.add(reference.name)
            elif reference.root == "steps" and reference.name is not None:
                steps.add(reference.name)
    return inputs, steps
