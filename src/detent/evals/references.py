"""Resolves the names that cases use for steps to the steps' ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from detent.authoring.document import path_of
from detent.authoring.problem import Problem
from detent.evals.case import STEP, EvalTestCase
from detent.evals.contracts import Contracts, StepContract, UnknownStep
from detent.kernel.errors import DetentError, nearest

_PATH = re.compile(r"^\s*path\s*:\s*(.*)$", re.IGNORECASE)
_ARROWS = re.compile(r"\s*(?:->|→|,|>)\s*")


def resolve_case(
    case: EvalTestCase, contracts: Callable[[EvalTestCase], Contracts | Mapping[str, StepContract] | None]
) -> tuple[EvalTestCase, list[Problem]]:
    """The case with the ids of its steps, and the references that match no step or several."""
    if not case.holds_for(STEP):
        return case, []
    try:
        declared = contracts(case)
    except Exception as error:
        reason = str(error) if isinstance(error, DetentError) else f"{type(error).__name__}: {error}"
        message = f"its steps cannot be read: {' '.join(reason.split())}"
        return case, [Problem("", message, case.place("input"))]
    return (case, []) if declared is None else resolve(case, Contracts.of(declared))


def resolve(case: EvalTestCase, contracts: Contracts) -> tuple[EvalTestCase, list[Problem]]:
    """The case with the ids of its steps, by these contracts."""
    wrong: list[Problem] = []

    def name(reference: str, *keys: str | int) -> str:
        try:
            return contracts.resolve(reference)
        except UnknownStep as error:
            path = path_of(*keys)
            wrong.append(Problem("", str(error), case.place(path), path))
            return reference

    expected = case.expected_output
    begin = "expected_output"
    changes: dict[str, Any] = {}
    if expected.expected_steps is not None:
        changes["expected_steps"] = tuple(
            replace(
                step,
                step_name=name(step.step_name, begin, "expected_steps", index, "step_name"),
                next_step=None
                if step.next_step is None
                else name(step.next_step, begin, "expected_steps", index, "next_step"),
            )
            for index, step in enumerate(expected.expected_steps)
        )
    if expected.forbidden_steps is not None:
        changes["forbidden_steps"] = tuple(
            name(step, begin, "forbidden_steps", index) for index, step in enumerate(expected.forbidden_steps)
        )
    if expected.fallbacks is not None:
        changes["fallbacks"] = tuple(
            replace(fallback, step=name(fallback.step, begin, "fallbacks", index, "step"))
            for index, fallback in enumerate(expected.fallbacks)
        )
    case_input = dict(case.input)
    if isinstance(start := case_input.get("start_step"), str):
        case_input["start_step"] = name(start, "input", "start_step")
    for key in ("steps", "agent_replies"):
        if isinstance(by_step := case_input.get(key), Mapping):
            case_input[key] = {
                name(str(step), "input", key, str(step)): value for step, value in by_step.items()
            }
    wrong += _unknown_calls(case, contracts)
    case = replace(case, input=case_input)
    return replace(case, expected_output=replace(expected, **changes)), wrong


def _unknown_calls(case: EvalTestCase, contracts: Contracts) -> list[Problem]:
    """Forbidden functions that no step may call: such an expectation could never fail."""
    declared = [contract.functions for contract in contracts.steps.values()]
    known = sorted({function for functions in declared for function in functions or ()})
    if None in declared:
        return []  # some step may call anything
    wrong: list[Problem] = []
    for index, function in enumerate(case.expected_output.forbidden_calls or ()):
        if function not in known:
            path = path_of("expected_output", "forbidden_calls", index)
            names = ", ".join(known) or "none"
            hint = nearest(function, known)
            message = f"no step may call '{function}'.{hint} Functions of the steps: {names}."
            wrong.append(Problem("", message, case.place(path), path))
    return wrong


def stated_path(case: EvalTestCase, contracts: Contracts | None = None) -> tuple[str, ...]:
    """The path a case states: its expected steps, otherwise those in the first comment of its file."""
    if case.expected_output.expected_steps is not None:
        names = [step.step_name for step in case.expected_output.expected_steps]
    else:
        match = _PATH.match(case.path_comment)
        names = [word for word in _ARROWS.split(match.group(1)) if word] if match is not None else []
    if contracts is None:
        return tuple(names)
    path: list[str] = []
    for name in names:
        try:
            path.append(contracts.resolve(name))
        except UnknownStep:
            path.append(name)
    return tuple(path)
