"""Whose answers a report is about: kept, replaced, not asked for, and what an agent comes to alone."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from detent.evals.answers import AnswerCounts, AnswerRecord, Fate
from detent.evals.compare import compare
from detent.evals.compare import render as render_comparison
from detent.evals.expect import validate_step_sequence
from detent.evals.failure import StepFailure
from detent.evals.junit import to_junit
from detent.evals.played import SKIPPED, PlayedStep
from detent.evals.report import CaseResult, EvalReport, read_report
from detent.evals.terminal import render
from detent.evals.transitions import validate_step_transitions
from tests.evals.lending import CHECK, LEND, LendingPlayer

KEPT = AnswerRecord("read", Fate.KEPT)
REPLACED = AnswerRecord("read", Fate.REPLACED, "schema_violation")
DIFFERS = AnswerRecord("write", Fate.REPLACED, "validation_failure")
FAILED = AnswerRecord("read", Fate.FAILED)
OPERATOR = AnswerRecord("write", Fate.NOT_ASKED, "operator")
BUDGET = AnswerRecord("write", Fate.NOT_ASKED, "budget")
SCRIPTED = AnswerRecord("read", Fate.KEPT, None, True)


def case(name: str, *answers: AnswerRecord, **more) -> CaseResult:
    return CaseResult(
        **{"scenario_id": name, "category": "c", "file": "f", "passed": True, "answers": answers, **more}
    )


def report(*cases: CaseResult, **more) -> EvalReport:
    return EvalReport("s", "now", **{"cases": cases, **more})


def test_answers_are_counted_by_step_and_by_reason():
    found = report(case("a", KEPT, REPLACED), case("b", REPLACED, DIFFERS, OPERATOR), case("c", FAILED))
    assert found.answers == AnswerCounts(
        1, {"schema_violation": 2, "validation_failure": 1}, 1, {"operator": 1}
    )
    assert (found.answers.asked, found.answers.share) == (5, 0.2)
    assert found.answers_by_step == {
        "read": AnswerCounts(1, {"schema_violation": 2}, 1),
        "write": AnswerCounts(0, {"validation_failure": 1}, 0, {"operator": 1}),
    }


@pytest.mark.parametrize(
    ("answers", "alone"),
    [
        ((KEPT,), True),
        ((KEPT, OPERATOR), True),
        ((KEPT, REPLACED), False),
        ((KEPT, FAILED), False),
        ((KEPT, BUDGET), False),
        ((OPERATOR,), False),
        ((SCRIPTED,), False),
        ((), False),
    ],
)
def test_a_case_is_the_agents_alone_only_if_code_did_none_of_its_part(answers, alone):
    assert case("a", *answers).passed_alone is alone
    assert not case("a", *answers, passed=False).passed_alone


def test_cases_without_an_agent_are_listed_and_not_counted_for_it():
    crashed = StepFailure("x", None, None, "crash", "played", "ValueError")
    found = report(
        case("kept", KEPT), case("replaced", REPLACED), case("code"), case("scripted", SCRIPTED),
        case("crashed", passed=False, failures=(crashed,)), case("old", KEPT, deprecated="gone"),
    )  # fmt: skip
    alone = found.agent_alone
    assert (alone.passed, alone.counted) == (1, 3), "a case that could not be played is no success"
    assert (alone.without, alone.scripted) == (("code",), ("scripted",))
    assert found.answers.asked == 2, "deprecated and scripted answers are not counted"


def test_a_share_is_required_of_agents_that_were_asked():
    nine = [case(str(number), KEPT) for number in range(9)]
    assert report(*nine, case("x", REPLACED), min_kept=0.9).ok
    assert not report(*nine[1:], case("x", REPLACED), min_kept=0.9).ok
    assert not report(case("x"), min_kept=0.01).ok, "nobody was asked"
    assert not report(case("x", SCRIPTED), min_kept=0.01).ok, "a script is no agent"
    assert not report(case("x", OPERATOR), min_kept=0.01).ok


def test_terminal_json_and_junit_have_the_same_figures():
    found = report(case("a", KEPT, DIFFERS), case("b", REPLACED), case("code"), min_kept=0.5)
    lines = [" ".join(line.split()) for line in render(found)]
    assert "total 3 1 2 0 schema_violation 1, validation_failure 1" in lines
    assert "as delivered 3 / 3 (100.0 %) by the agent alone 0 / 2 (0.0 %)" in lines
    assert "no agent was asked in 1: code" in lines
    assert lines[-1].endswith("1 of 3 answers kept (33.3 %), fewer than 50 %")
    plain = json.loads(json.dumps(found.to_plain()))
    assert plain["ok"] is False
    assert (plain["answers"]["asked"], plain["answers"]["kept"]) == (3, 1)
    assert plain["answers"]["by_step"]["write"]["replaced"] == {"validation_failure": 1}
    assert plain["agent_alone"]["without_agent"] == ["code"]
    root = ElementTree.fromstring(to_junit(found))
    suite = root[-1]
    values = {item.get("name"): item.get("value") for item in suite.findall("properties/property")}
    assert (values["answers.asked"], values["answers.kept"]) == ("3", "1")
    assert values["answers.replaced.validation_failure.write"] == "1"
    assert (values["agent_alone.passed"], values["agent_alone.counted"]) == ("0", "2")
    (failure,) = suite.iter("failure")
    assert failure.get("message") in lines[-1]
    assert (root.get("tests"), root.get("failures")) == ("4", "1")


def test_a_report_without_agents_says_that_it_is_about_code():
    found = report(case("a"))
    words = "no agent was asked: these figures are the handlers'"
    assert any(line.strip() == words for line in render(found))
    assert f'value="{words}"' in to_junit(found).replace("&apos;", "'")
    assert found.to_plain()["answers"]["kept_share"] is None


def test_a_comparison_tells_that_passing_cases_are_no_longer_the_agents():
    before, after = report(case("a", KEPT), case("b", KEPT)), report(case("a", KEPT), case("b", REPLACED))
    lines = render_comparison(compare(before, after))
    assert "  total   2 of 2 (100.0 %) ⇒ 1 of 2 (50.0 %)" in lines
    assert "by the agent alone: 2 / 2 (100.0 %) ⇒ 1 / 2 (50.0 %)" in lines
    code = render_comparison(compare(report(case("a")), report(case("a"))))
    assert code == ["no difference"]


def test_a_report_of_an_earlier_version_can_be_read():
    plain = report(case("a")).to_plain()
    for key in ("min_kept", "answers", "agent_alone"):
        del plain[key]
    for key in ("answers", "skipped", "passed_alone"):
        del plain["cases"][0][key]
    assert read_report(json.dumps(plain)) == report(case("a"))


# -- a player of one's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "fallback", "fate"),
    [
        ("agent", None, Fate.KEPT),
        ("deterministic", "schema_violation", Fate.REPLACED),
        ("deterministic", "no_executor", Fate.NOT_ASKED),
        ("deterministic", None, None),
    ],
)
def test_a_player_that_tells_only_mode_and_fallback_is_understood(mode, fallback, fate):
    answers = PlayedStep("read", mode=mode, fallback=fallback).all_answers()
    assert [answer.fate for answer in answers] == ([] if fate is None else [fate])


# -- steps that routing skips -------------------------------------------------------------------------------


def skipping(title: str | None) -> tuple[PlayedStep, ...]:
    """A lending whose request was read by the router."""
    data = {"title": title, "shelf": {"status": "free"}}
    return (
        PlayedStep("01-read-request", data_after=data, next_step=CHECK, mode=SKIPPED),
        PlayedStep(CHECK, data_after=data, next_step=LEND),
        PlayedStep(LEND, data_after=data, next_step="DONE"),
    )


def test_a_skipped_step_is_judged_by_the_data_and_the_move_it_stands_for():
    from detent.evals.case import ExpectedStepExecution

    expected = [ExpectedStepExecution("01-read-request", data={"title": "Dune"}), CHECK, LEND]
    assert validate_step_sequence(expected, skipping("Dune"))[0]
    passed, failures = validate_step_sequence(expected, skipping("Emma"))
    assert not passed
    assert [failure.kind for failure in failures] == ["data"]
    wrong = validate_step_sequence(["01-read-request", "03b-ask-title"], skipping("Dune"))[1]
    assert {failure.kind for failure in wrong} & {"step_wrong", "step_missing"}


def test_a_step_may_be_skipped_only_where_its_own_condition_allows_the_move(cases):
    contracts = LendingPlayer().contracts(cases()[0])
    kinds = [
        [failure.kind for failure in validate_step_transitions(skipping(title), contracts=contracts)[1]]
        for title in ("Dune", None)
    ]
    assert "condition" not in kinds[0]
    assert "condition" in kinds[1]
