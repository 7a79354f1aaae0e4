"""A report as lines for a terminal: one line per case, its failures below it, the verdict at the end.

Lines are plain text; a caller may pass a `paint` function for colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import unified_diff

from detent.evals.answers import NO_AGENT, AnswerCounts, percent, table
from detent.evals.failure import ARTIFACTS, GROUPS, StepFailure
from detent.evals.likeness import told
from detent.evals.paths import drawn
from detent.evals.report import CaseResult, EvalReport
from detent.insight.formatting import cost, count

Paint = Callable[[str, str], str]
"""`(text, colour) -> text`."""
PASSED, FAILED = "✓", "✗"
_INDENT = " " * 6
_ORDER = [*GROUPS, ARTIFACTS]


def _plain(text: str, colour: str) -> str:
    return text


class Terminal:
    """Draws reports line by line."""

    def __init__(
        self,
        *,
        label_width: int = 36,
        path_width: int = 28,
        verbose: bool = False,
        failures_only: bool = False,
        detailed: bool = False,
        paint: Paint | None = None,
    ) -> None:
        self.label_width = label_width
        self.path_width = path_width
        self.verbose = verbose
        self.failures_only = failures_only
        self.detailed = detailed
        self._paint = paint or _plain

    def head(self, suite: str, cases: int, orchestrator: str, model: str | None, note: str = "") -> str:
        """The first line."""
        mode = "both modes" if orchestrator == "both" else f"{orchestrator} mode"
        parts = [f"eval {suite}", count(cases, "case"), mode, model or "no model", note]
        return "   ".join(harmless(part) for part in parts if part)

    def case(self, result: CaseResult) -> list[str]:
        """The line of a case and the lines below it."""
        if self.failures_only and result.passed:
            return []
        mark = self._paint(PASSED, "green") if result.passed else self._paint(FAILED, "red")
        label = harmless(result.label).ljust(self.label_width)
        path = harmless(drawn(result.path)).ljust(self.path_width)
        notes = [
            f"deprecated: {result.deprecated}" if result.deprecated is not None else "",
            f"not applicable: {', '.join(result.not_applicable)}" if result.not_applicable else "",
            f"skipped: {', '.join(result.skipped)}" if result.skipped else "",
            kept_note(AnswerCounts.of(result.answers)),
            cost(result.spend),
        ]
        more = "   ".join(harmless(note) for note in notes if note)
        line = f"  {mark} {label} {path} {result.ms:>6.0f} ms"
        lines = [f"{line}   {more}" if more else line]
        lines += [f"{_INDENT}{harmless(text)}" for text in failure_lines(result, detailed=self.detailed)]
        if self.verbose:
            lines += [f"{_INDENT}{harmless(text)}" for text in output_lines(result)]
        return lines

    def tail(self, report: EvalReport) -> list[str]:
        """The summary of the whole report."""
        lines = [f"  {harmless(line)}" for line in group_lines(report)]
        if report.unstable:
            lines.append(f"  unstable: {harmless(', '.join(report.unstable))}")
        left_out = sum(not case.counted for case in report.cases)
        if left_out:
            lines.append(f"  {left_out} deprecated, not counted")
        lines += [f"  {harmless(line)}" for line in answer_lines(report)]
        verdict = verdict_line(report)
        return [*lines, "  " + self._paint(harmless(verdict), "green" if report.ok else "red")]


def render(
    report: EvalReport, *, verbose: bool = False, failures_only: bool = False, detailed: bool = False
) -> list[str]:
    """A whole report as plain lines."""
    ids = {(case.scenario_id, case.file) for case in report.cases}
    terminal = Terminal(
        label_width=max((len(case.label) for case in report.cases), default=0),
        path_width=max((len(drawn(case.path)) for case in report.cases), default=0),
        verbose=verbose,
        failures_only=failures_only,
        detailed=detailed,
    )
    lines = [terminal.head(report.suite, len(ids), report.orchestrator, report.model)]
    for case in report.cases:
        lines += terminal.case(case)
    return lines + terminal.tail(report)


def failure_lines(result: CaseResult, *, detailed: bool = False) -> list[str]:
    """The failures, in the order of their headings."""
    lines: list[str] = []
    for failure in sorted(result.failures, key=lambda item: _ORDER.index(item.group)):
        lines += str(failure).splitlines()
        if detailed:
            lines += _in_full(failure)
    return lines


def _in_full(failure: StepFailure) -> list[str]:
    """Expected and actual value in full: as a diff where both have several lines, otherwise one after
    the other."""
    expected, actual = told(failure.expected), told(failure.actual)
    expected_lines, actual_lines = expected.splitlines(), actual.splitlines()
    if failure.kind == "unstable" or (len(expected_lines) > 1 and len(actual_lines) > 1):
        return [
            f"  {line.rstrip()}"
            for line in unified_diff(expected_lines, actual_lines, "expected", "got", lineterm="")
        ]
    return [f"  expected | {line}" for line in expected_lines] + [
        f"  got      | {line}" for line in actual_lines or [""]
    ]


def output_lines(result: CaseResult) -> list[str]:
    """The output of each step."""
    lines: list[str] = []
    for number, step in enumerate(result.steps, 1):
        fallback = f", fallback {step.fallback}" if step.fallback else ""
        lines.append(f"{number} {step.step_name}   ({step.mode}{fallback})")
        lines += [f"  | {line}" for line in step.output_text.splitlines()]
    return lines


def group_lines(report: EvalReport) -> list[str]:
    """How many failures there are under each heading, and in which cases."""
    lines: list[str] = []
    for group in _ORDER:
        where = [case.label for case in report.cases for failure in case.failures if failure.group == group]
        if where:
            lines.append(f"{group}: {count(len(where), 'failure')} in {_listed(dict.fromkeys(where))}")
    return lines


def _listed(names: Iterable[str], most: int = 6) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def kept_note(counts: AnswerCounts) -> str:
    """What became of the answers in one play; empty when no agent was asked."""
    return f"kept {counts.kept} of {counts.asked}" if counts.asked else ""


def answer_lines(report: EvalReport) -> list[str]:
    """Whose answers the report is about: by step, in total, and what the agents come to alone."""
    total, alone = report.answers, report.agent_alone
    lines = table(report.answers_by_step, total) if total else []
    if total.asked:
        lines.append(
            f"as delivered {report.passed} / {report.counted} ({percent(report.passed, report.counted)})   "
            f"by the agent alone {alone.passed} / {alone.counted} ({percent(alone.passed, alone.counted)})"
        )
        if alone.without:
            lines.append(f"no agent was asked in {len(alone.without)}: {', '.join(alone.without)}")
    elif report.counted:
        lines.append(NO_AGENT)
    if alone.scripted:
        lines.append(
            f"answers scripted by the case in {len(alone.scripted)}, no agent's: {', '.join(alone.scripted)}"
        )
    return lines


def min_kept_line(report: EvalReport) -> str:
    """Why too few answers were kept; empty when enough were."""
    if report.kept_enough or report.min_kept is None:
        return ""
    counts, wanted = report.answers, f"{100 * report.min_kept:g} %"
    if not counts.asked:
        return f"no agent was asked, so nothing shows that {wanted} of its answers are kept"
    return f"{counts}, fewer than {wanted}"


def verdict_line(report: EvalReport) -> str:
    """Pass rate, threshold, and the reasons for a failed verdict."""
    if not report.counted:
        return "nothing counted"
    # Rounded down, so that a rate below the threshold never looks as if it reached it.
    rate = math.floor(report.pass_rate * 10) / 10
    why = []
    if report.passed * 100 < report.threshold * report.counted:
        why.append("below threshold")
    if failed := report.required_failed:
        why.append(f"required case{'s' if len(failed) > 1 else ''} failed: {', '.join(failed)}")
    if report.deterministic and report.unstable:
        why.append("unstable")
    if few := min_kept_line(report):
        why.append(few)
    parts = [
        f"{report.passed} / {report.counted} passed ({rate:.1f} %)",
        f"threshold {report.threshold:.1f} %",
        "; ".join(why),
    ]
    return "   ".join(part for part in parts if part)


def harmless(text: str) -> str:
    """Untrusted text made safe for a terminal: control characters are shown, not executed."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char == "\t" else f"\\x{ord(char):02x}" for char in text
    )
