"""Checks that every move of a path was declared by its step and allowed by the data at that moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from detent.evals.contracts import Contracts, StepContract, StepEdge
from detent.evals.expect import NONE, Rules, Verdict
from detent.evals.failure import StepFailure
from detent.evals.likeness import plainly, told
from detent.evals.played import SKIPPED, PlayedStep
from detent.insight.table import condition_text
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.guards import Guard, dig
from detent.kernel.plain import canonical

History = tuple[str, Any, Any, str | None]
"""`(step_name, input_data, output_data, next_step)`, as in a run's history."""


def validate_step_transitions(
    steps: Sequence[PlayedStep | History | str],
    context_data: Mapping[str, Any] | None = None,
    *,
    contracts: Rules | None = None,
    scenario_id: str = "",
    allow_missing: Iterable[str] = (),
    start_data: Mapping[str, Any] | None = None,
    end: str | None = None,
) -> Verdict:
    """Check every move of a path: declared, its condition true, needs present, functions declared, an end.

    Plain names and history tuples take `context_data` as the data of every step. `start_data` is the data
    at the first step; `end` is the end of the run, when the engine ended it in the middle of the path.
    """
    if contracts is None:
        raise ConfigurationError("Transitions can be checked only with contracts of the steps (contracts=…).")
    rules = Contracts.of(contracts)
    bare = bool(steps) and all(isinstance(step, str) for step in steps)
    path = _path(steps, rules, context_data or {}, start_data)
    allowed = set(allow_missing)
    failures: list[StepFailure] = []
    for position, (step, before) in enumerate(path, 1):
        contract = rules.steps.get(step.step_name)
        last = position == len(path)
        if contract is None:
            hint = nearest(step.step_name, rules.steps).strip()
            failures.append(_failed(position, step, "unknown_step", "a declared step", step.step_name, hint))
            continue
        if before is not None and step.mode != SKIPPED:
            failures += _needs(position, step, contract, before, allowed)
        failures += _functions(position, step, contract, rules)
        following = None if last else path[position][0].step_name
        failures += _move(position, step, contract, following, rules)
        if last and not bare and step.next_step not in rules.ends | rules.always:
            stopped = end is not None and end in (rules.always or rules.ends)
            if not stopped:
                failures.append(_failed(position, step, "no_end", "an end", step.next_step or NONE))
    ran = [step for step, _ in path if step.mode != SKIPPED]
    if rules.max_steps is not None and len(ran) > rules.max_steps:
        step = ran[rules.max_steps]
        at_most = f"at most {rules.max_steps}"
        position = len(path) - len(ran) + rules.max_steps + 1
        failures.append(_failed(position, step, "max_steps", at_most, len(ran)))
    return not failures, [failure.of(scenario_id) for failure in failures]


def _path(
    steps: Sequence[PlayedStep | History | str],
    rules: Contracts,
    context: Mapping[str, Any],
    start: Mapping[str, Any] | None,
) -> list[tuple[PlayedStep, Mapping[str, Any] | None]]:
    """The steps that ran, each with the data before it; None where that is unknown."""
    ends = rules.ends | rules.always
    played: list[PlayedStep] = []
    for index, step in enumerate(steps):
        if isinstance(step, PlayedStep):
            played.append(step)
        elif isinstance(step, str):
            if step in ends and index == len(steps) - 1:
                continue  # the end of the run, written as the last name of a path
            following = steps[index + 1] if index + 1 < len(steps) else None
            played.append(
                PlayedStep(
                    step, data_after=context, next_step=following if isinstance(following, str) else None
                )
            )
        else:
            played.append(PlayedStep(step[0], data_after=context, next_step=step[3]))
    by_name = bool(steps) and not isinstance(steps[0], PlayedStep)
    before: Mapping[str, Any] | None = context if by_name else start
    path: list[tuple[PlayedStep, Mapping[str, Any] | None]] = []
    for step in played:
        path.append((step, before))
        before = step.data_after if step.data_after is not None else context
    return path


def _failed(
    position: int, step: PlayedStep, kind: str, expected: Any, actual: Any, hint: str = ""
) -> StepFailure:
    return StepFailure("", position, step.step_name, kind, plainly(expected), plainly(actual), hint)


def _needs(
    position: int, step: PlayedStep, contract: StepContract, before: Mapping[str, Any], allowed: set[str]
) -> Iterator[StepFailure]:
    for key in contract.needs:
        if key not in allowed and dig(before, key) in (None, ""):
            yield _failed(position, step, "needs", f"{key} present", "absent")


def _functions(
    position: int, step: PlayedStep, contract: StepContract, rules: Contracts
) -> Iterator[StepFailure]:
    if contract.functions is None:
        return
    for call in step.calls:
        if call.function_name in contract.functions:
            continue
        where = [name for name, other in rules.steps.items() if call.function_name in (other.functions or ())]
        hint = f"declared in {', '.join(where)} only" if where else "declared in no step"
        declared = ", ".join(contract.functions) or NONE
        yield _failed(position, step, "undeclared_function", declared, call.function_name, hint)


def _move(
    position: int, step: PlayedStep, contract: StepContract, following: str | None, rules: Contracts
) -> Iterator[StepFailure]:
    to = step.next_step
    if following is not None and to is not None and following != to:
        yield _failed(position, step, "next_step", to, following, "another step ran than the one chosen")
        to = following
    to = to or following
    if to is None or to in rules.always:
        return
    edges = [edge for edge in contract.edges if edge.to == to]
    data = step.data_after or {}
    if not edges:
        declared = ", ".join(edge.to for edge in contract.edges) or NONE
        yield _failed(position, step, "undeclared_step", declared, to)
    elif not any(edge.holds(data) for edge in edges):
        right = [edge.to for edge in contract.edges if edge.holds(data)]
        hint = f"the data allows {', '.join(right)}" if right else "the data allows no declared step"
        conditions = " or ".join(f"{to} only if {_condition(edge)}" for edge in edges)
        yield _failed(position, step, "condition", conditions, _values(edges, data), hint)


def _condition(edge: StepEdge) -> str:
    if edge.when is None:
        return "always"
    return condition_text(edge.when.name if isinstance(edge.when, Guard) else canonical(dict(edge.when)))


def _values(edges: Iterable[StepEdge], data: Mapping[str, Any]) -> str:
    """The data the conditions read."""
    keys = dict.fromkeys(key for edge in edges for key in edge.keys)
    return ", ".join(f"{key} = {told(dig(data, key))}" for key in keys) or "it does not hold"
