"""The scenarios are eval cases: `detent eval` plays them and holds each to what is expected of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from detent.evals.case import EvalTestCase
from detent.evals.reading import read_cases
from detent.evals.report import EvalReport
from detent.evals.runner import EvalRunner
from detent.flows.coding.measure.suite import SHIPPED, SUITE, MeasurePlayer
from tests.flows.coding.measure.samples import write_scenario

FEW = ("S01", "S03", "S11", "S22", "S24", "S27", "S29")


async def _report(cases: list[EvalTestCase], mode: str) -> EvalReport:
    return await EvalRunner(MeasurePlayer(), suite=SUITE.name).run(cases, orchestrator=mode)


def _shipped(*names: str) -> list[EvalTestCase]:
    cases = read_cases(SHIPPED, MeasurePlayer()).check().cases
    assert len(cases) == 32
    return [case for case in cases if not names or case.scenario_id in names]


async def test_the_shipped_scenarios_are_as_expected_under_the_machine() -> None:
    report = await _report(_shipped(), "step")
    assert [(result.scenario_id, result.failures) for result in report.cases if not result.passed] == []
    assert len(report.cases) == 32


async def test_they_are_as_expected_under_the_legacy_rule_and_in_every_style() -> None:
    report = await _report(_shipped(), "legacy")
    assert [(result.scenario_id, result.failures) for result in report.cases if not result.passed] == []
    report = await _report(_shipped(*FEW), "both")
    assert {result.orchestrator for result in report.cases} == {"step", "written", "reasoning", "legacy"}
    assert [(result.scenario_id, result.failures) for result in report.cases if not result.passed] == []


async def test_another_end_than_expected_fails_its_case() -> None:
    (case,) = _shipped("S03")
    expected = replace(case.expected_output, context={"completed_at": 1})
    report = await _report([replace(case, expected_output=expected)], "step")
    (result,) = report.cases
    assert not result.passed


async def test_an_input_that_is_no_scenario_fails_its_case(tmp_path: Path) -> None:
    write_scenario(tmp_path, "mine", "input: {prompt: p, replies: [1], goal: {answer: r}}\n")
    report = await _report(list(read_cases(tmp_path, MeasurePlayer()).cases), "step")
    (result,) = report.cases
    assert "a reply is a text" in str(result.failures)


def test_the_suite_ships_its_cases() -> None:
    assert SUITE.folder == SHIPPED
    settings: Any = None
    assert SUITE.player is not None
    assert isinstance(SUITE.player(settings, SHIPPED), MeasurePlayer)
