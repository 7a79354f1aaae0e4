"""The run data that expressions read: inputs, results of finished steps, the current item.

Each step's result has a key of its own, so that a step writes only its own result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from detent.engine.offloaded import Beside, set_aside
from detent.flows.workflow.expressions import UNBOUND, Prepared, Scope

if TYPE_CHECKING:
    from detent.engine.child import Child

INPUTS, SECRETS, OUTER, ITEM, INDEX = "inputs", "secrets", "outer", "item", "index"
BESIDE = "beside"
"""Key that lists which inputs and results from the parent run are offloaded values."""
HASH = "inputs_hash"
"""Hash of the inputs of the root run."""
TOTAL = "total"
"""Number of iterations, if it is known."""
RESULT, FAILURE = "result", "failure"
ROLLED_BACK, ROLLBACK_ERRORS = "rolled_back", "rollback_errors"
STEP = "steps/"
"""Prefix of the key of a step's result."""
OK, SKIPPED = "ok", "skipped"
OUTPUT = "output"
"""In a step's result: its output."""
GIVEN = "given"
"""In a step's result: its inputs, if its rollback may need them and they are recorded nowhere else."""
PERFORMED = "performed"
"""What a step that failed had performed by then: tool, arguments and receipt of each effect."""
PASSED_OVER = "passed_over"
"""In a branch's result: the step it chose was skipped."""


def key_of(step: str) -> str:
    """Return the key of a step's result in the run data."""
    return f"{STEP}{step}"


def finished(output: Any, ran: str | None = None) -> dict[str, Any]:
    """Return the result of a finished step. `ran` names the step that a branch chose."""
    result = {OUTPUT: output, "status": OK}
    return result if ran is None else {**result, "ran": ran}


def skipped(ran: str | None = None) -> dict[str, Any]:
    """Return the result of a skipped step; a branch that chose it (`ran`) is not skipped itself."""
    if ran is not None:
        return {**finished(None, ran), PASSED_OVER: True}
    return {"output": None, "status": SKIPPED}


class Results(Mapping[str, Mapping[str, Any]]):
    """Results of finished steps by name: those of this run, then those of its parent runs."""

    __slots__ = ("_data", "_outer")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._outer: Mapping[str, Any] = data.get(OUTER) or {}

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        result = self._data.get(f"{STEP}{name}")
        if result is None:
            result = self._outer[name]
        return result  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        names = [key[len(STEP) :] for key in self._data if key.startswith(STEP)]
        return iter(dict.fromkeys([*names, *self._outer]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def scope_of(data: Mapping[str, Any]) -> Scope:
    """Return the scope in which expressions of a run are evaluated."""
    return Scope(data.get(INPUTS) or {}, Results(data), data.get(ITEM, UNBOUND), data.get(INDEX, UNBOUND))


def handed_down(
    data: Mapping[str, Any], inputs: Iterable[str], steps: Iterable[str]
) -> tuple[dict[str, Any], Beside]:
    """Return the part of a run's data that a child run of the same file needs; long values offloaded."""
    values = data.get(INPUTS) or {}
    results = Results(data)
    down: dict[str, Any] = {INPUTS: {name: values[name] for name in inputs if name in values}}
    outer = {name: results[name] for name in steps if name in results}
    if outer:
        down[OUTER] = outer
    for name in (HASH, SECRETS, ITEM, INDEX):
        if name in data:
            down[name] = data[name]
    return set_aside(down, INPUTS, OUTER)


def error_of(child: Child) -> str:
    """Return the error of a child run that did not succeed."""
    failure = child.data.get(FAILURE)
    return str(failure["error"]) if failure else child.error or child.reason or child.status.value


def used(parts: Iterable[Prepared]) -> tuple[set[str], set[str]]:
    """Return the names of the inputs and of the steps that expressions read."""
    inputs: set[str] = set()
    steps: set[str] = set()
    for part in parts:
        for reference in part.references:
            if reference.root == "inputs" and reference.name is not None:
                inputs.add(reference.name)
            elif reference.root == "steps" and reference.name is not None:
                steps.add(reference.name)
    return inputs, steps
