"""Moves held against what the steps declare, on the data of that moment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detent.evals.contracts import Contracts, StepContract, StepEdge, UnknownStep
from detent.evals.played import PlayedStep
from detent.evals.transitions import validate_step_transitions
from detent.insight.visits import FunctionCall
from detent.kernel.errors import ConfigurationError
from detent.kernel.guards import Guard

E01, E02, E03A, E03C, E03D = "01-extract", "02-check", "03a-valid", "03c-expired", "03d-request"
RULES = Contracts(
    {
        E01: StepContract(
            E01, (StepEdge(E02, {"serial": "present"}), StepEdge(E03D, {"serial": "absent"})), functions=()
        ),
        E02: StepContract(
            E02,
            (StepEdge(E03A, {"data.status": "valid"}), StepEdge(E03C, {"data.status": "expired"})),
            ("serial",),
            ("check",),
            ("check",),
        ),
        E03A: StepContract(E03A, (StepEdge("DONE"),), ("data",), ("ticket",)),
        E03C: StepContract(E03C, (StepEdge("DONE"),), (), ("send",)),
        E03D: StepContract(E03D, (StepEdge("DONE"),), (), ("send",)),
    },
    frozenset({"DONE", "FAILED"}),
    frozenset({"FAILED"}),
)
FOUND = {"serial": "SN1"}
EXPIRED = {**FOUND, "data": {"status": "expired"}}
VALID = {**FOUND, "data": {"status": "valid"}}


def wrong(steps, data=None, **options):
    passed, failures = validate_step_transitions(steps, data, contracts=RULES, scenario_id="x", **options)
    assert passed is not bool(failures)
    assert all(one.scenario_id == "x" and one.hint for one in failures)
    return [(one.kind, one.position, one.step_name) for one in failures]


def good() -> list[PlayedStep]:
    return [
        PlayedStep(E01, data_after=FOUND, next_step=E02),
        PlayedStep(E02, data_after=EXPIRED, next_step=E03C, calls=(FunctionCall("check", {}),)),
        PlayedStep(E03C, data_after=EXPIRED, next_step="DONE", calls=(FunctionCall("send", {}),)),
    ]


def test_a_path_that_keeps_its_contracts_passes():
    assert wrong(good()) == []
    assert wrong([]) == []


@pytest.mark.parametrize(
    ("path", "data", "failed"),
    [
        ([E01, E03D], FOUND, [("condition", 1, E01)]),
        ([E01, E02], {}, [("condition", 1, E01), ("needs", 2, E02)]),
        ([E01, E02, E03A], EXPIRED, [("condition", 2, E02)]),
        ([E01, E03C], FOUND, [("undeclared_step", 1, E01)]),
        ([E01, E02, E03C], EXPIRED, []),
        ([E01, E02, E03C, "DONE"], EXPIRED, []),
        ([E01, E02, E03A, E03D], VALID, [("undeclared_step", 3, E03A)]),
        (["00-nobody"], {}, [("unknown_step", 1, "00-nobody")]),
    ],
)
def test_plain_names_take_the_context_for_every_step(path, data, failed):
    """W-20: serial found → 03d, no serial → 02, expired → 03a, and an undeclared hop fail."""
    assert wrong(path, data) == failed


def test_history_tuples_are_taken_too():
    assert wrong([(E01, {}, {}, E02), (E02, {}, {}, E03C), (E03C, {}, {}, "DONE")], EXPIRED) == []
    assert wrong([(E01, {}, {}, E02), (E02, {}, {}, E03A), (E03A, {}, {}, "DONE")], EXPIRED) == [
        ("condition", 2, E02)
    ]


def test_the_data_of_that_moment_decides_not_that_of_the_end():
    steps = good()
    steps[0] = replace(steps[0], data_after={})
    assert wrong(steps, EXPIRED) == [("condition", 1, E01), ("needs", 2, E02)]


def test_the_failure_of_a_condition_tells_the_values_and_what_was_allowed():
    _, (failure,) = validate_step_transitions([E01, E02, E03A], EXPIRED, contracts=RULES)
    assert failure.expected == "03a-valid only if data.status = valid"
    assert failure.actual == "data.status = expired"
    assert failure.hint == "the data allows 03c-expired"


def test_what_a_step_needs_must_be_there_unless_it_may_be_missing():
    steps = [PlayedStep(E02, data_after=EXPIRED, next_step=E03C), good()[2]]
    assert wrong(steps) == []  # what the first step found is not known
    assert wrong(steps, start_data={"serial": ""}) == [("needs", 1, E02)]
    assert wrong(steps, start_data={}, allow_missing=["serial"]) == []
    assert wrong(steps, start_data={"serial": 0}) == []


def test_a_function_in_the_wrong_step_fails():
    """W-21."""
    steps = good()
    steps[0] = replace(steps[0], calls=(FunctionCall("check", {}),))
    _, (failure,) = validate_step_transitions(steps, contracts=RULES)
    assert (failure.kind, failure.step_name, failure.actual) == ("undeclared_function", E01, "check")
    assert failure.hint == "declared in 02-check only"


def test_another_step_than_the_one_chosen_fails():
    steps = good()
    steps[1] = replace(steps[1], next_step=E03A)
    assert wrong(steps) == [("next_step", 2, E02)]


def test_the_last_step_leads_to_an_end():
    steps = good()
    steps[2] = replace(steps[2], next_step=None)
    assert wrong(steps) == [("no_end", 3, E03C)]
    assert wrong(steps, end="DONE") == [("no_end", 3, E03C)]
    assert wrong(steps, end="FAILED") == []
    steps[2] = replace(steps[2], next_step="FAILED")
    assert wrong(steps) == []


def test_there_are_at_most_so_many_steps():
    loop = Contracts(
        {"a": StepContract("a", (StepEdge("b"),)), "b": StepContract("b", (StepEdge("a"),))},
        frozenset({"FAILED"}), frozenset({"FAILED"}), 10,
    )  # fmt: skip
    ten = [PlayedStep("ab"[n % 2], next_step="ba"[n % 2]) for n in range(10)]
    assert validate_step_transitions(ten, contracts=loop, end="FAILED") == (True, [])
    eleven = [*ten, PlayedStep("a", next_step="b")]
    _, (failure,) = validate_step_transitions(eleven, contracts=loop, end="FAILED")
    assert (failure.kind, failure.position, failure.actual) == ("max_steps", 11, 11)


def test_a_condition_may_be_a_guard_of_any_kind():
    rules = {"a": StepContract("a", (StepEdge("DONE", Guard("is big", lambda data: data["n"] > 5)),))}
    assert validate_step_transitions(["a", "DONE"], {"n": 6}, contracts=rules)[0]
    _, (failure,) = validate_step_transitions(["a", "DONE"], {"n": 5}, contracts=rules)
    assert failure.expected == "DONE only if is big"


def test_without_contracts_nothing_can_be_checked():
    with pytest.raises(ConfigurationError, match="only with contracts"):
        validate_step_transitions([E01], {})


def test_a_reference_is_an_id_an_alias_or_a_beginning():
    assert RULES.resolve("01-EXTRACT") == E01
    assert RULES.resolve("check") == E02
    assert RULES.resolve("03a") == E03A
    assert RULES.resolve("done") == "DONE"
    with pytest.raises(UnknownStep, match="'03' may mean 03a-valid or 03c-expired or 03d-request"):
        RULES.resolve("03")
    with pytest.raises(UnknownStep, match="Did you mean '03a-valid'"):
        RULES.resolve("03a-vald")
