"""A report as JUnit XML: a testsuite per category, a testcase per play; deprecated cases are skipped."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from detent.evals.report import CaseResult, EvalReport
from detent.evals.terminal import failure_lines

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow."""


def to_junit(report: EvalReport) -> str:
    """The XML text."""
    root = Element("testsuites", _counts(report.suite, list(report.cases)))
    categories: dict[str, list[CaseResult]] = {}
    for case in report.cases:
        categories.setdefault(case.category, []).append(case)
    for category, cases in categories.items():
        suite = SubElement(root, "testsuite", _counts(category, cases))
        suite.set("timestamp", _clean(report.started_at))
        for case in cases:
            _testcase(suite, report, case)
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
    if not case.counted:
        SubElement(testcase, "skipped", {"message": _clean(f"deprecated: {case.deprecated}")})
    elif not case.passed:
        lines = failure_lines(case)
        first = case.failures[0].kind if case.failures else ""
        failure = SubElement(
            testcase, "failure", {"message": _clean(lines[0] if lines else ""), "type": first}
        )
        failure.text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
