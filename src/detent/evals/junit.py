"""A report as JUnit XML: a testsuite per category, a testcase per play; deprecated cases are skipped.

A further testsuite has the figures about agents' answers as properties and, where a share of them must be
kept, a testcase that fails below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from detent.evals.answers import NO_AGENT, AnswerCounts
from detent.evals.report import CaseResult, EvalReport
from detent.evals.terminal import failure_lines, min_kept_line

ANSWERS = "answers"
"""Name of the testsuite about agents' answers."""

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow."""


def to_junit(report: EvalReport) -> str:
    """The XML text."""
    root = Element("testsuites", _counts(report.suite, list(report.cases)))
    if report.min_kept is not None:
        root.set("tests", str(len(report.cases) + 1))
        root.set("failures", str(int(root.get("failures", "0")) + (not report.kept_enough)))
    categories: dict[str, list[CaseResult]] = {}
    for case in report.cases:
        categories.setdefault(case.category, []).append(case)
    for category, cases in categories.items():
        suite = SubElement(root, "testsuite", _counts(category, cases))
        suite.set("timestamp", _clean(report.started_at))
        for case in cases:
            _testcase(suite, report, case)
    _answers(root, report)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _counts(name: str, cases: list[CaseResult]) -> dict[str, str]:
    return {
        "name": _clean(name),
        "tests": str(len(cases)),
        "failures": str(sum(case.counted and not case.passed for case in cases)),
        "errors": "0",
        "skipped": str(sum(not case.counted for case in cases)),
        "time": f"{sum(case.ms for case in cases) / 1000:.3f}",
    }


def _testcase(suite: Element, report: EvalReport, case: CaseResult) -> None:
    attributes = {
        "name": _clean(case.label),
        "classname": _clean(f"{report.suite}.{case.category}"),
        "time": f"{case.ms / 1000:.3f}",
        "file": _clean(case.file),
    }
    testcase = SubElement(suite, "testcase", attributes)
    if case.answers:
        counts = _count_properties(AnswerCounts.of(case.answers))
        _properties(testcase, {**counts, "passed_alone": str(case.passed_alone).lower()})
    if not case.counted:
        SubElement(testcase, "skipped", {"message": _clean(f"deprecated: {case.deprecated}")})
    elif not case.passed:
        lines = failure_lines(case)
        first = case.failures[0].kind if case.failures else ""
        failure = SubElement(
            testcase, "failure", {"message": _clean(lines[0] if lines else ""), "type": first}
        )
        failure.text = _clean("\n".join(lines))


def _answers(root: Element, report: EvalReport) -> None:
    """The testsuite about the answers of the whole report."""
    judged = report.min_kept is not None
    suite = SubElement(
        root, "testsuite",
        {
            "name": ANSWERS, "tests": str(int(judged)), "failures": str(int(not report.kept_enough)),
            "errors": "0", "skipped": "0", "time": "0.000", "timestamp": _clean(report.started_at),
        },
    )  # fmt: skip
    alone = report.agent_alone
    values = {
        **_count_properties(report.answers),
        "as_delivered.passed": str(report.passed),
        "as_delivered.counted": str(report.counted),
        "agent_alone.passed": str(alone.passed),
        "agent_alone.counted": str(alone.counted),
        "without_agent": ", ".join(alone.without),
        "scripted": ", ".join(alone.scripted),
    }
    if not report.answers.asked:
        values["note"] = NO_AGENT
    for step, counts in report.answers_by_step.items():
        values |= _count_properties(counts, f".{step}")
    _properties(suite, values)
    if judged:
        name = {"name": "min-kept", "classname": _clean(f"{report.suite}.{ANSWERS}"), "time": "0.000"}
        testcase = SubElement(suite, "testcase", name)
        if few := min_kept_line(report):
            SubElement(testcase, "failure", {"message": few, "type": "min_kept"}).text = few


def _count_properties(counts: AnswerCounts, suffix: str = "") -> dict[str, str]:
    values = {"asked": counts.asked, "kept": counts.kept, "failed": counts.failed}
    values |= {f"replaced.{reason}": number for reason, number in counts.replaced.items()}
    values |= {f"not_asked.{reason}": number for reason, number in counts.not_asked.items()}
    return {f"answers.{name}{suffix}": str(number) for name, number in values.items()}


def _properties(parent: Element, values: Mapping[str, str]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in values.items():
        SubElement(properties, "property", {"name": _clean(name), "value": _clean(value)})


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
