"""Reports: JSON, JUnit and terminal say the same; comparisons and intervals."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.evals.answers import AnswerRecord, Fate
from detent.evals.compare import arms, compare, newcombe, render_arms
from detent.evals.compare import render as render_comparison
from detent.evals.failure import GROUP_OF, HINTS, StepFailure
from detent.evals.junit import to_junit
from detent.evals.report import CaseResult, EvalReport, StepRecord, failed_ids, read_report
from detent.evals.runner import EvalRunner
from detent.evals.terminal import FAILED, PASSED, Terminal, render
from detent.kernel.budget import Spend
from detent.kernel.errors import ConfigurationError
from tests.evals.lending import CHECK, LEND, SORRY, WAIT, LendingPlayer
from tests.examples import examples

texts = st.text(max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
failures = st.builds(
    StepFailure,
    texts,
    st.none() | st.integers(1, 20),
    st.none() | texts,
    st.sampled_from([*sorted(GROUP_OF), "email_sent"]),
    plain,
    plain,
    texts,
    st.lists(texts, max_size=3).map(tuple),
)
results = st.builds(
    CaseResult,
    scenario_id=texts,
    category=texts,
    file=texts,
    passed=st.booleans(),
    ms=st.floats(0, 1e6),
    path=st.lists(texts, max_size=3).map(tuple),
    status=st.none() | texts,
    end=st.none() | texts,
    calls=st.lists(texts, max_size=2).map(tuple),
    spend=st.builds(Spend, st.integers(0, 99), st.integers(0, 99), st.floats(0, 10)),
    failures=st.lists(failures, max_size=2).map(tuple),
    repeat=st.integers(1, 3),
    orchestrator=st.sampled_from(["step", "legacy"]),
    arm=st.none() | texts,
    required=st.booleans(),
    deprecated=st.none() | texts,
    not_applicable=st.lists(texts, max_size=2).map(tuple),
    steps=st.lists(st.builds(StepRecord, texts, texts, st.none() | texts), max_size=2).map(tuple),
    run_id=st.none() | texts,
    answers=st.lists(
        st.builds(AnswerRecord, texts, st.sampled_from(Fate), st.none() | texts, st.booleans()), max_size=3
    ).map(tuple),
    skipped=st.lists(texts, max_size=2).map(tuple),
)
reports = st.builds(
    EvalReport,
    suite=texts,
    started_at=texts,
    orchestrator=st.sampled_from(["step", "legacy", "both"]),
    model=st.none() | texts,
    threshold=st.floats(0.1, 100),
    cases=st.lists(results, max_size=3).map(tuple),
    unstable=st.lists(texts, max_size=2).map(tuple),
    deterministic=st.booleans(),
    arms=st.lists(texts, max_size=2).map(tuple),
    min_kept=st.none() | st.floats(0.01, 1),
)


@settings(max_examples=examples(150), deadline=None)
@given(reports)
def test_a_report_written_as_json_reads_back_equal(report):
    text = json.dumps(report.to_plain(), allow_nan=False)
    assert read_report(text) == report


@settings(max_examples=examples(60), deadline=None)
@given(reports)
def test_any_report_can_be_drawn(report):
    ElementTree.fromstring(to_junit(report).encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    for line in render(report, verbose=True, detailed=True):
        assert line.isprintable()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"suite": 1}', '{"cases": 3}'])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(ConfigurationError, match="old.json"):
        read_report(text, "old.json")


# -- agreement ----------------------------------------------------------------------------------------------

BROKEN = {(CHECK, WAIT): SORRY}


async def report_of(cases, **options) -> EvalReport:
    more = {
        "old_001": "scenario_id: old_001\ndescription: d\ncategory: waiting\ndeprecated: replaced\n"
        "input: {data: {request: nothing}}\nexpected_output: {status: failed}\n"
    }
    runner = EvalRunner(LendingPlayer(redirect=BROKEN), suite="lending", **options)
    return await runner.run(cases(**more), orchestrator="both")


async def test_json_junit_and_terminal_agree_on_every_case(cases):
    """W-59."""
    report = await report_of(cases, repeat=2)
    plain = {case.label: case for case in read_report(json.dumps(report.to_plain())).cases}
    assert len(plain) == len(report.cases) == 18
    drawn = {}
    for line in render(report):
        mark, _, rest = line.strip().partition(" ")
        if mark in (PASSED, FAILED):
            label = next(name for name in sorted(plain, key=len, reverse=True) if rest.startswith(name))
            drawn[label] = mark == PASSED
    junit = {
        case.get("name"): "skipped" if case.find("skipped") is not None else case.find("failure") is None
        for case in ElementTree.fromstring(to_junit(report)).iter("testcase")
    }
    assert set(plain) == set(drawn) == set(junit)
    for label, case in plain.items():
        assert drawn[label] is case.passed
        assert junit[label] == (case.passed if case.deprecated is None else "skipped")
    assert {True, False} == set(drawn.values())
    assert "skipped" in junit.values()


async def test_the_json_has_what_people_are_promised(cases):
    report = await report_of(cases)
    plain = report.to_plain()
    assert {
        "suite", "started_at", "orchestrator", "model", "threshold", "counted", "passed", "pass_rate", "ok",
        "unstable", "cases", "by_step",
    } <= set(plain)  # fmt: skip
    assert {
        "scenario_id", "category", "file", "passed", "ms", "path", "status", "calls", "spend", "failures",
        "repeat",
    } <= set(plain["cases"][0])  # fmt: skip
    assert plain["by_step"][SORRY] == {"runs": 2, "failures": 1}
    assert plain["by_step"][LEND]["runs"] == 1
    assert failed_ids(report) == {"lent_out_001", "old_001"}


async def test_junit_has_a_suite_per_category_and_the_lines_of_the_terminal(cases):
    report = await report_of(cases)
    root = ElementTree.fromstring(to_junit(report))
    assert [suite.get("name") for suite in root] == ["lending", "waiting", "trouble", "answers"]
    waiting = root[1]
    assert (waiting.get("failures"), waiting.get("skipped")) == ("1", "2")
    (failure,) = root.iter("failure")
    lines = [line.strip() for line in (failure.text or "").splitlines()]
    shown = [line.strip() for line in render(report)]
    assert failure.get("type") == "step_wrong"
    assert lines
    assert all(line in shown for line in lines)


# -- terminal -----------------------------------------------------------------------------------------------


async def test_the_terminal_tells_a_failure_as_promised(cases):
    report = await EvalRunner(LendingPlayer(redirect=BROKEN), suite="lending").run(cases())
    report = replace(report, cases=tuple(replace(case, ms=14.0) for case in report.cases))
    assert render(report) == [
        "eval lending   4 cases   step mode   no model",
        "  ✓ lend_001          01 → 02 → 03a     14 ms",
        "  ✗ lent_out_001      01 → 02 → 04      14 ms",
        "      step 3: expected 03c-wait-list, got 04-sorry   (02 chose it; shelf.status = lent)",
        "      expected  01 → 02 → 03c",
        "      got       01 → 02 → 04",
        "                          ^",
        "  ✓ no_title_001      01 → 03b          14 ms",
        "  ✓ shelf_timeout_001 01 → 02 → 04      14 ms",
        "  routing: 1 failure in lent_out_001",
        "  no agent was asked: these figures are the handlers'",
        "  3 / 4 passed (75.0 %)   threshold 99.0 %   below threshold",
    ]


async def test_only_failures_outputs_and_full_differences_are_shown_on_request(cases):
    report = await EvalRunner(LendingPlayer(redirect=BROKEN), suite="lending").run(cases())
    marks = [line.split()[0] for line in render(report, failures_only=True) if line.strip()[:1] in "✓✗"]
    assert marks == [FAILED]
    assert any("| TITLE: Dune" in line for line in render(report, verbose=True))
    assert any("expected | 03c-wait-list" in line for line in render(report, detailed=True))


def case(**said) -> CaseResult:
    return CaseResult(**{"scenario_id": "x", "category": "c", "file": "x.yaml", "passed": True, **said})


def test_a_rate_below_the_threshold_never_looks_as_if_it_were_at_it():
    cases = tuple(case(scenario_id=str(n), passed=n >= 11) for n in range(1001))
    line = render(EvalReport("s", "now", cases=cases))[-1]
    assert line.strip() == "990 / 1001 passed (98.9 %)   threshold 99.0 %   below threshold"


def test_the_last_line_names_required_cases_and_unstable_ones():
    cases = (case(passed=False, required=True),)
    report = EvalReport("s", "now", cases=cases, threshold=1, deterministic=True, unstable=("x",))
    assert render(report)[-1].endswith("below threshold; required case failed: x; unstable")
    assert render(EvalReport("s", "now"))[-1].strip() == "nothing counted"


def test_text_from_outside_is_shown_and_not_obeyed():
    nasty = StepFailure("x", None, None, "output", "a\x1b[31m", "b\x07\nc")
    step = StepRecord("01-a", "\x1b]0;title\x07")
    lines = render(
        EvalReport("s\x1b", "now", cases=(case(passed=False, failures=(nasty,), steps=(step,)),)),
        verbose=True,
        detailed=True,
    )
    assert all(line.isprintable() for line in lines)
    assert "\\x1b" in "\n".join(lines)


def test_colours_are_left_to_whoever_prints():
    terminal = Terminal(paint=lambda text, colour: f"<{colour}>{text}")
    assert terminal.case(case())[0].startswith("  <green>✓")


def test_every_kind_of_failure_has_a_heading_and_a_hint():
    assert set(HINTS) == set(GROUP_OF)
    assert all(HINTS.values())


def test_a_long_difference_is_shown_as_one():
    failure = StepFailure("x", 1, "a", "unstable", "one\ntwo\nthree", "one\n2\nthree")
    report = EvalReport("s", "now", cases=(case(passed=False, failures=(failure,)),))
    assert [line.strip() for line in render(report, detailed=True)][-6:-3] == ["-two", "+2", "three"]


# -- comparing ----------------------------------------------------------------------------------------------


def test_two_reports_are_compared_case_by_case():
    before = EvalReport("s", "t1", cases=(
        case(scenario_id="breaks", path=("a",), ms=10), case(scenario_id="mends", passed=False),
        case(scenario_id="slows", ms=100), case(scenario_id="hums", ms=10), case(scenario_id="goes"),
        case(scenario_id="turns", path=("a", "b")),
    ))  # fmt: skip
    after = EvalReport("s", "t2", cases=(
        case(scenario_id="breaks", passed=False, path=("a",), ms=10), case(scenario_id="mends"),
        case(scenario_id="slows", ms=200), case(scenario_id="hums", ms=20), case(scenario_id="comes"),
        case(scenario_id="turns", path=("a", "c")),
    ))  # fmt: skip
    found = compare(before, after)
    assert (found.newly_failing, found.newly_passing) == (("breaks",), ("mends",))
    assert [one.case for one in found.slower] == ["slows"]
    assert [(one.case, one.before, one.after) for one in found.paths] == [("turns", ("a", "b"), ("a", "c"))]
    assert (found.added, found.removed) == (("comes",), ("goes",))
    assert found.worse
    assert render_comparison(found) == [
        "newly failing: 1", "  breaks",
        "newly passing: 1", "  mends",
        "another path: 1", "  turns   a → b  ⇒  a → c",
        "slower: 1", "  slows   100 ms ⇒ 200 ms",
        "new cases: 1", "  comes",
        "cases no longer there: 1", "  goes",
    ]  # fmt: skip
    assert render_comparison(compare(before, before)) == ["no difference"]
    assert not compare(before, before).worse


def test_repetitions_are_taken_together_when_reports_are_compared():
    before = EvalReport("s", "t1", cases=(case(repeat=1), case(repeat=2)))
    after = EvalReport(
        "s", "t2", cases=(case(repeat=1), case(repeat=2, passed=False), case(orchestrator="legacy"))
    )
    found = compare(before, after)
    assert (found.newly_failing, found.added) == (("x",), ("x [legacy]",))


@pytest.mark.parametrize(
    ("one", "other", "interval"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table II, method 10.
        ((56, 70), (48, 80), (0.2000, 0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.6000, 0.1705, 0.8090)),
        ((6, 7), (2, 7), (0.5714, 0.0582, 0.8062)),
        ((5, 56), (0, 29), (0.0893, -0.0381, 0.1926)),
        ((0, 10), (0, 20), (0.0000, -0.1611, 0.2775)),
        ((10, 10), (0, 20), (1.0000, 0.6791, 1.0000)),
    ],
)
def test_the_difference_of_two_shares_has_newcombes_interval(one, other, interval):
    assert newcombe(*one, *other) == pytest.approx(interval, abs=5e-5)


def test_nothing_is_known_about_an_arm_that_was_never_played():
    assert newcombe(0, 0, 1, 2) == (0.0, -1.0, 1.0)


async def test_arms_are_compared_with_the_first(cases):
    report = await EvalRunner(LendingPlayer(), arms=["plain", "agent"]).run(cases())
    first, second = arms(report)
    assert (first.runs, first.passed, first.gap) == (4, 4, None)
    assert second.fallbacks == {"no_executor": 4}
    assert second.gap is not None
    assert second.gap.difference == 0.0
    assert second.gap.lower < 0 < second.gap.upper
    assert first.too_few
    lines = render_arms([first, second])
    assert lines[0].split()[:3] == ["arm", "passed", "share"]
    assert "too few plays" in lines[1]
    assert "agent fallbacks: no_executor 4 (100 %)" in lines
    assert any(line.startswith("plain paths: 01 → 02 → 03a 1 (25 %)") for line in lines)


def test_what_could_not_be_played_is_told_under_a_heading_of_its_own():
    """A case file with a mistake says nothing about how runs end."""
    for kind in ("file", "play", "crash", "reference"):
        assert StepFailure("a", None, None, kind, "a case", "x").group == "not played"
