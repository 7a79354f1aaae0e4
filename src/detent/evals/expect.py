"""Checks of the path and of the calls; each reports all its failures.

Whether the moves themselves were allowed is checked in `transitions`, everything else in `outcome`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from detent.evals.case import ExpectedFunctionCall, ExpectedStepExecution, Unsaid
from detent.evals.contracts import Contracts, StepContract, UnknownStep
from detent.evals.failure import StepFailure
from detent.evals.likeness import MISSING, differences, plainly, same_text, stands_in, told
from detent.evals.paths import beside, short_names
from detent.evals.played import PlayedStep
from detent.insight.visits import FunctionCall
from detent.kernel.guards import dig

Verdict = tuple[bool, list[StepFailure]]
"""Whether all expectations hold, and the failures."""
Rules = Contracts | Mapping[str, StepContract]
NONE = "none"
"""Shown in place of an empty value."""


# -- the path -----------------------------------------------------------------------------------------------


def validate_step_sequence(
    expected: Sequence[ExpectedStepExecution | str] | None,
    actual: Sequence[PlayedStep | str],
    *,
    scenario_id: str = "",
    contracts: Rules | None = None,
) -> Verdict:
    """Compare a path with the expected one, place by place, and each step with its expectation.

    None expects nothing and passes. Names are resolved with `contracts`, else among the steps that ran.
    """
    if expected is None:
        return True, []
    ran = [PlayedStep(step) if isinstance(step, str) else step for step in actual]
    expectations = [ExpectedStepExecution(step) if isinstance(step, str) else step for step in expected]
    rules = Contracts.of(contracts) if contracts is not None else None
    known = rules or Contracts({step.step_name: StepContract(step.step_name) for step in ran})
    names = [resolved(known, step.step_name) for step in expectations]
    path = [step.step_name for step in ran]
    failures = list(_path_failures(names, ran, rules))
    if failures:
        failures[0] = replace(failures[0], lines=beside(names, path))
    for at, index in _pairs(names, path):
        failures += _step_failures(index + 1, expectations[at], ran[index], known)
    return not failures, [failure.of(scenario_id) for failure in failures]


def resolved(contracts: Contracts, reference: str) -> str:
    """The step a reference means; a reference that matches none is returned unchanged."""
    try:
        return contracts.resolve(reference)
    except UnknownStep:
        return reference  # it will match nothing, and the failure shows it


def _opcodes(names: Sequence[str], path: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    if len(names) == len(
        path
    ):  # place by place; an alignment would report a swap as one missing and one extra
        for at, (name, other) in enumerate(zip(names, path, strict=True)):
            yield ("equal" if name == other else "replace"), at, at + 1, at, at + 1
    else:
        yield from SequenceMatcher(None, names, path, autojunk=False).get_opcodes()


def _pairs(names: Sequence[str], path: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places of the expected path, each with the place of the actual path it is compared with."""
    for operation, start, stop, other, _ in _opcodes(names, path):
        if operation == "equal":
            yield from ((start + index, other + index) for index in range(stop - start))


def _path_failures(
    names: Sequence[str], ran: Sequence[PlayedStep], contracts: Contracts | None
) -> Iterator[StepFailure]:
    path = [step.step_name for step in ran]
    for operation, start, stop, other, until in _opcodes(names, path):
        if operation == "equal":
            continue
        for offset in range(max(stop - start, until - other)):
            at, index = start + offset, other + offset
            if at < stop and index < until:
                swapped = next(
                    (
                        place + 1
                        for place in range(min(len(names), len(path)))
                        if place != at and names[place] == path[index] and path[place] == names[at]
                    ),
                    None,
                )
                hint = f"swapped with step {swapped}" if swapped else _choice_hint(ran, index, contracts)
                yield StepFailure("", index + 1, path[index], "step_wrong", names[at], path[index], hint)
            elif at < stop:
                hint = _end_hint(ran) if index >= len(path) else _choice_hint(ran, index, contracts)
                yield StepFailure("", at + 1, names[at], "step_missing", names[at], "no such step", hint)
            else:
                hint = _choice_hint(ran, index, contracts)
                yield StepFailure("", index + 1, path[index], "step_extra", "no step here", path[index], hint)


def _choice_hint(ran: Sequence[PlayedStep], index: int, contracts: Contracts | None) -> str:
    """The step that sent the run to this place, and the data its choice depended on."""
    if index == 0 or index >= len(ran):
        return "the run starts here" if index == 0 else ""
    before = ran[index - 1]
    short = short_names(step.step_name for step in ran)[before.step_name]
    data = before.data_after or {}
    contract = contracts.steps.get(before.step_name) if contracts is not None else None
    keys = dict.fromkeys(key for edge in (contract.edges if contract else ()) for key in edge.keys)
    looked = [f"{key} = {told(value)}" for key in keys if (value := dig(data, key)) is not None]
    sentence = f"{short} chose it" + (f": {before.reason}" if before.reason and not looked else "")
    return "; ".join([sentence, *looked])


def _end_hint(ran: Sequence[PlayedStep]) -> str:
    if not ran:
        return "no step ran at all"
    last = ran[-1]
    return f"{last.step_name} led to {last.next_step}" if last.next_step else f"it ended in {last.step_name}"


# -- one step -----------------------------------------------------------------------------------------------


def _step_failures(
    position: int, expected: ExpectedStepExecution, step: PlayedStep, contracts: Contracts
) -> Iterator[StepFailure]:
    def failed(kind: str, value: Any, actual: Any, hint: str = "") -> StepFailure:
        return StepFailure("", position, step.step_name, kind, plainly(value), plainly(actual), hint)

    for text in expected.output_contains:
        if not stands_in(text, step.output_text):
            yield failed("output", f"text with '{text}'", step.output_text)
    for text in expected.output_excludes:
        if stands_in(text, step.output_text):
            yield failed("output", f"text without '{text}'", step.output_text)
    yield from _function_failures(expected, step, failed)
    if expected.data is not None:
        for where, value, actual, hint in differences(expected.data, step.data_after or {}):
            yield failed("data", f"{where} = {told(value)}", told(actual), hint)
    if expected.next_step is not None:
        target = resolved(contracts, expected.next_step)
        if step.next_step is None or not same_text(target, step.next_step):
            yield failed("next_step", target, step.next_step or NONE, step.reason or "")
    if expected.mode is not None and not same_text(expected.mode, step.mode):
        yield failed("mode", expected.mode, step.mode)
    if not isinstance(expected.fallback, Unsaid):
        yield from _fallback_failures(expected.fallback, step.fallback, failed)


def _fallback_failures(expected: str | bool | None, actual: str | None, failed: Any) -> Iterator[StepFailure]:
    if expected is None or expected is False:
        if actual is not None:
            yield failed("fallback", NONE, actual)
    elif expected is True:
        if actual is None:
            yield failed("fallback", "a fallback", NONE)
    elif actual is None or not same_text(expected, actual):
        yield failed("fallback", expected, actual or NONE)


def _function_failures(
    expected: ExpectedStepExecution, step: PlayedStep, failed: Any
) -> Iterator[StepFailure]:
    called = [call.function_name for call in step.calls]
    functions = expected.function_call
    if functions is None:
        if called:
            yield failed("function_call", NONE, ", ".join(called))
    elif not isinstance(functions, Unsaid):
        names = [functions] if isinstance(functions, str) else list(functions)
        if names != called:
            yield failed("function_call", ", ".join(names) or NONE, ", ".join(called) or NONE)
    if expected.function_args is None:
        return
    several = isinstance(functions, tuple)
    for name, args in expected.function_args.items() if several else [(functions, expected.function_args)]:
        yield from _args_failures(name, args, step.calls, failed)


def _args_failures(
    name: Any, arguments: Mapping[str, Any], calls: Sequence[FunctionCall], failed: Any
) -> Iterator[StepFailure]:
    """Every call of the function must have the arguments; without a name, some call of the step."""
    if isinstance(name, str):
        chosen = [call for call in calls if call.function_name == name]
        if not chosen:
            yield failed("function_args", f"{name} called with {told(arguments)}", "no such call")
        for call in chosen:
            for where, value, actual, hint in differences(arguments, call.arguments):
                yield failed("function_args", f"{name} {where} = {told(value)}", told(actual), hint)
        return
    if not any(not list(differences(arguments, call.arguments)) for call in calls):
        yield failed("function_args", f"a call with {told(arguments)}", _calls_text(calls))


def _calls_text(calls: Iterable[FunctionCall]) -> str:
    return ", ".join(f"{call.function_name} {told(call.arguments)}" for call in calls) or NONE


# -- calls --------------------------------------------------------------------------------------------------


def validate_function_calls(
    expected: Sequence[ExpectedFunctionCall | str] | None,
    actual: Sequence[FunctionCall],
    *,
    scenario_id: str = "",
    planned: Iterable[str] = (),
    forbidden: Iterable[str] = (),
) -> Verdict:
    """Compare all calls with the expected ones: order, number, arguments and results.

    A failed call is a failure unless its function is `planned` to fail, whatever else is expected.
    """
    failures: list[StepFailure] = []
    may_fail, barred = set(planned), set(forbidden)
    positions = {id(call): place for place, call in enumerate(actual, 1)}

    def failed(
        kind: str, call: FunctionCall | None, expected_value: Any, actual_value: Any, hint: str = ""
    ) -> None:
        step = call.step_name if call is not None else None
        failures.append(
            StepFailure(scenario_id, None, step, kind, plainly(expected_value), plainly(actual_value), hint)
        )

    for call in actual:
        if call.function_name in barred:
            failed("forbidden_call", call, f"no call of {call.function_name}", f"call {positions[id(call)]}")
        if not call.success and call.function_name not in may_fail:
            failed("call_failed", call, f"{call.function_name} to succeed", call.error_message or "it failed")
    if expected is not None:
        expectations = [ExpectedFunctionCall(call) if isinstance(call, str) else call for call in expected]
        names, called = [call.function_name for call in expectations], [call.function_name for call in actual]
        if names != called:
            failed("calls", None, ", ".join(names) or NONE, ", ".join(called) or NONE, _count(names, called))
        for operation, start, stop, other, _ in SequenceMatcher(
            None, names, called, autojunk=False
        ).get_opcodes():
            for offset in range(stop - start) if operation == "equal" else ():
                _call_failures(expectations[start + offset], actual[other + offset], failed)
    return not failures, failures


def _count(names: Sequence[str], called: Sequence[str]) -> str:
    parts = [
        f"{name} {called.count(name)} times instead of {names.count(name)}"
        for name in dict.fromkeys([*names, *called])
        if names.count(name) != called.count(name)
    ]
    return "; ".join(parts) or "the order differs"


def _call_failures(expected: ExpectedFunctionCall, call: FunctionCall, failed: Any) -> None:
    name = expected.function_name
    for where, value, actual, hint in differences(expected.arguments or {}, call.arguments):
        failed("call_arguments", call, f"{name} {where} = {told(value)}", told(actual), hint)
    contained = dict(expected.arguments_contain)
    if expected.body_contains:
        contained["body"] = (*contained.get("body", ()), *expected.body_contains)
    for key, texts in contained.items():
        value = dig(call.arguments, key)
        content = MISSING if value is None else told(value)
        for text in texts:
            if value is None or not stands_in(text, content):
                failed("call_arguments", call, f"{name} {key} with '{text}'", content)
    if expected.result_contains is not None:
        for where, value, actual, hint in differences(expected.result_contains, call.result):
            at = f"{name} result {where}".rstrip()
            failed("call_result", call, f"{at} = {told(value)}", told(actual), hint)
