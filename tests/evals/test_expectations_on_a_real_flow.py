"""Every expectation a case may have holds on the real flow when it is right, and fails when it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from detent.evals.case import EvalTestCase
from detent.evals.played import PlayOptions
from detent.evals.reading import read_case
from detent.evals.runner import EvalRunner
from tests.evals.lending import CHECK, EDGES, LEND, READ, SORRY, WAIT, LendingPlayer

DUNE = {"data": {"request": 'Please lend me "Dune"'}}
EMMA = {"data": {"request": 'I want "Emma"'}}
VAGUE = {"data": {"request": "A good book please"}}
TIMEOUT = {**DUNE, "failures": {"find_copy": ["timeout"]}}
BY_AGENT = {**DUNE, "steps": {READ: {"mode": "agent"}}}
NO_SLIP = {**DUNE, "failures": {"print_slip": ["http_400"]}}


def case_of(given, expected, name: str = "x") -> EvalTestCase:
    """A case as a file would say it."""
    said = {
        "scenario_id": name,
        "description": "d",
        "category": "c",
        "input": given,
        "expected_output": expected,
    }
    case, problems = read_case(yaml.safe_dump(said), LendingPlayer())
    assert case is not None
    assert problems == []
    return case


async def judged(given, expected, *, orchestrator: str = "step", player: LendingPlayer | None = None):
    """The failures of one case, played for real."""
    player = player or LendingPlayer()
    case = case_of(given, expected)
    played = await player.play(case, orchestrator=orchestrator, options=PlayOptions())
    played = replace(played, ms=played.ms if played.ms is not None else 12.0)
    return EvalRunner(player).validate_output(case, played, orchestrator=orchestrator)


def steps(*items):
    return {"expected_steps": list(items)}


@pytest.mark.parametrize(
    ("given", "right", "wrong", "kinds"),
    [
        (DUNE, steps("01", "02", "03a"), steps("01", "02", "03c"), ["step_wrong"]),
        (DUNE, steps("01", "02", "lend"), steps("01", "02"), ["step_extra"]),
        (VAGUE, steps("01", "03b"), steps("01", "02", "03b"), ["step_missing"]),
        ({"data": {"spam": True}}, {"expected_steps": []}, steps("01"), ["step_missing"]),
        (
            DUNE,
            steps("01", "02", {"step_name": "03a", "function_call": ["print_slip", "send_letter"]}),
            steps("01", "02", {"step_name": "03a", "function_call": "print_slip"}),
            ["function_call"],
        ),
        (
            DUNE,
            steps("01", {"step_name": "02", "function_args": {"title": "dune"}}, "03a"),
            steps("01", {"step_name": "02", "function_args": {"title": "Emma"}}, "03a"),
            ["function_args"],
        ),
        (
            DUNE,
            steps({"step_name": "01", "output_contains": ["title: dune"]}, "02", "03a"),
            steps({"step_name": "01", "output_contains": ["title: emma"]}, "02", "03a"),
            ["output"],
        ),
        (
            DUNE,
            steps({"step_name": "01", "output_excludes": ["emma"]}, "02", "03a"),
            steps({"step_name": "01", "output_excludes": ["dune"]}, "02", "03a"),
            ["output"],
        ),
        (
            DUNE,
            steps("01", {"step_name": "02", "data": {"shelf": {"status": "FREE"}}}, "03a"),
            steps("01", {"step_name": "02", "data": {"shelf.status": "lent"}}, "03a"),
            ["data"],
        ),
        (
            DUNE,
            steps("01", {"step_name": "02", "next_step": "03a"}, "03a"),
            steps("01", {"step_name": "02", "next_step": "03c"}, "03a"),
            ["next_step"],
        ),
        (
            BY_AGENT,
            steps({"step_name": "01", "fallback": "no_executor", "mode": "agent"}, "02", "03a"),
            steps({"step_name": "01", "fallback": None, "mode": "deterministic"}, "02", "03a"),
            ["mode", "fallback"],
        ),
        (BY_AGENT, {"fallbacks": [{"step": "01", "reason": "no_executor"}]}, {"fallbacks": []}, ["fallback"]),
        (BY_AGENT, {"fallbacks": [{"step": "01"}]}, {"fallbacks": [{"step": "02"}]}, ["fallback"]),
        (DUNE, {"fallbacks": []}, {"fallbacks": [{"step": "01", "reason": "timeout"}]}, ["fallback"]),
        (
            EMMA,
            {"expected_function_calls": ["find_copy", "send_letter"]},
            {"expected_function_calls": ["send_letter"]},
            ["calls"],
        ),
        (
            DUNE,
            {"scenario_instruction_used": "multi-step"},
            {"scenario_instruction_used": "legacy"},
            ["scenario"],
        ),
        (
            DUNE,
            {"scenario_instruction_used": f"steps:{LEND}"},
            {"scenario_instruction_used": "steps:x"},
            ["scenario"],
        ),
        (DUNE, {"processing_time_ms": 12}, {"processing_time_ms": 11.5}, ["time"]),
        (DUNE, {"email_sent": True}, {"email_sent": False}, ["email_sent"]),
        ({"data": {"spam": True}}, {"email_sent": False}, {"email_sent": True}, ["email_sent"]),
        (
            DUNE,
            {"response_body_contains": ["is ready"]},
            {"response_body_contains": ["lent"]},
            ["response_body"],
        ),
        (
            DUNE,
            {"response_body_excludes": ["lent"]},
            {"response_body_excludes": ["READY"]},
            ["response_body"],
        ),
        (EMMA, {"ticket_created": False}, {"ticket_created": True}, ["ticket_created"]),
        (DUNE, {"ticket_created": True}, {"ticket_created": False}, ["ticket_created"]),
        (DUNE, {"ticket_fields": {"copy": "c-7"}}, {"ticket_fields": {"copy": "C-8"}}, ["ticket_fields"]),
        (EMMA, {"status": "succeeded"}, {"ticket_fields": {"copy": "C-7"}}, ["ticket_fields"]),
        (DUNE, {"status": "succeeded"}, {"status": "failed"}, ["status"]),
        (
            NO_SLIP,
            {"status": "failed", "end": "FAILED"},
            {"status": "succeeded", "end": "DONE"},
            ["status", "end"],
        ),
        (DUNE, {"reason": "lent"}, {"reason": "asked"}, ["reason"]),
        (TIMEOUT, {"flags": ["shelf_unknown"]}, {"flags": ["other"]}, ["flags"]),
        (TIMEOUT, {"status": "succeeded"}, {"flags": []}, ["flags"]),
        (DUNE, {"context": {"lent": True, "shelf.copy": "C-7"}}, {"context": {"lent": False}}, ["context"]),
        (DUNE, {"forbidden_steps": ["03c"]}, {"forbidden_steps": ["03a"]}, ["forbidden_step"]),
        (EMMA, {"forbidden_calls": ["print_slip"]}, {"forbidden_calls": ["find_copy"]}, ["forbidden_call"]),
        (DUNE, {"intake": {"decision": "run"}}, {"intake": {"decision": "ignored"}}, ["intake"]),
        (
            {"data": {"spam": True}},
            {"intake": {"decision": "ignored", "reason": "spam"}},
            {"intake": {"decision": "ignored", "reason": "bounce"}},
            ["intake"],
        ),
    ],
)  # fmt: skip
async def test_an_expectation_holds_when_right_and_fails_when_wrong(given, right, wrong, kinds):
    """W-22, W-24: every field is able to fail a case."""
    assert await judged(given, right) == []
    failures = await judged(given, wrong)
    assert [one.kind for one in failures] == kinds
    assert all(one.hint and one.scenario_id == "x" for one in failures)


async def test_transitions_are_checked_although_no_path_is_expected():
    """Transitions hold in every step-mode case."""
    given = {"start_step": LEND, "data": {"request": "", "shelf": {"copy": "C-7"}, "title": "Dune"}}
    assert await judged(given, {"status": "succeeded"}) == []
    given["data"]["member"] = ""
    (failure,) = await judged(given, {"status": "succeeded"})
    assert (failure.kind, failure.step_name) == ("needs", LEND)
    assert await judged(given, {"status": "succeeded", "allow_missing": ["member"]}) == []


async def test_a_failed_call_that_nobody_planned_fails_the_case():
    player = LendingPlayer()
    case = case_of(TIMEOUT, {"status": "succeeded"})
    played = await player.play(case, orchestrator="step", options=PlayOptions())
    unplanned = replace(case, input=DUNE)
    (failure,) = EvalRunner(player).validate_output(unplanned, replace(played, ms=1.0))
    assert (failure.kind, failure.step_name) == ("call_failed", CHECK)


async def test_a_run_the_engine_ended_does_not_go_unnoticed():
    """A case that expects only a path still fails when the last step of it broke."""
    (failure,) = await judged(NO_SLIP, steps("01", "02", "03a"))
    assert (failure.kind, failure.step_name, failure.actual) == ("end", LEND, "FAILED")
    assert await judged(NO_SLIP, {**steps("01", "02", "03a"), "status": "failed"}) == []


async def test_failures_come_in_the_order_of_the_checks():
    failures = await judged(
        DUNE,
        {
            **steps("01", "03b"),
            "expected_function_calls": [],
            "status": "failed",
            "processing_time_ms": 1,
        },
    )
    assert [one.group for one in failures] == ["routing", "routing", "function calls", "status", "time"]


@pytest.mark.parametrize(
    ("step", "to", "instead"),
    [
        (step, edge.to, other)
        for step, edges in EDGES.items()
        for edge in edges
        for other in (READ, WAIT, SORRY, "DONE")
        if other not in (edge.to, step)
    ],
)
async def test_redirecting_any_edge_makes_a_case_fail_that_names_the_step(cases, step, to, instead):
    """W-28, on a flow of our own: the shipped edges are the warranty suite's to prove."""
    player = LendingPlayer(redirect={(step, to): instead})
    report = await EvalRunner(player).run(cases())
    failed = [case for case in report.cases if not case.passed]
    assert failed
    told = "\n".join(str(failure) for case in failed for failure in case.failures)
    assert step in told or step.partition("-")[0] in told


# -- the older mode -----------------------------------------------------------------------------------------


async def test_in_legacy_mode_step_checks_do_not_apply_and_all_else_holds():
    expected = {
        **steps("01", "02", "03c"),
        "forbidden_steps": ["03a"],
        "scenario_instruction_used": "multi-step",
        "ticket_created": True,
    }
    assert await judged(DUNE, expected, orchestrator="legacy") == []
    (failure,) = await judged(DUNE, {**expected, "ticket_created": False}, orchestrator="legacy")
    assert failure.kind == "ticket_created"


async def test_what_differs_in_legacy_mode_is_said_apart():
    expected = {
        "scenario_instruction_used": "multi-step",
        "legacy": {"scenario_instruction_used": "lend-book"},
    }
    assert await judged(DUNE, expected) == []
    assert await judged(DUNE, expected, orchestrator="legacy") == []
    expected["legacy"] = {"scenario_instruction_used": "other"}
    assert [one.kind for one in await judged(DUNE, expected, orchestrator="legacy")] == ["scenario"]
