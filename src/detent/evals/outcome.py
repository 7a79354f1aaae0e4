"""Checks of a run's outcome: status, end, reason, flags, context, intake, artifacts, time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from detent.evals.artifacts import Artifacts
from detent.evals.case import ExpectedFallback, ExpectedOutput
from detent.evals.contracts import Contracts, StepContract
from detent.evals.expect import NONE, Rules, Verdict, resolved
from detent.evals.failure import StepFailure
from detent.evals.likeness import differences, plainly, same_text, told
from detent.evals.played import Played

MULTI_STEP = "multi-step"
"""What a case writes as the scenario used when the run went step by step."""


def validate_outcome(
    expected: ExpectedOutput,
    played: Played,
    *,
    scenario_id: str = "",
    contracts: Rules | None = None,
    steps: bool = True,
    artifacts: Iterable[Artifacts] = (),
) -> Verdict:
    """Compare status, end, reason, flags, context, intake, artifacts and the rest with a case.

    Without `steps`, the checks that need a path (fallbacks, forbidden steps, `multi-step`) are skipped.
    """
    failures: list[StepFailure] = []
    rules = Contracts.of(contracts) if contracts is not None else None

    def failed(kind: str, expected_value: Any, actual: Any, hint: str = "", step: str | None = None,
               position: int | None = None) -> None:  # fmt: skip
        failures.append(
            StepFailure(scenario_id, position, step, kind, plainly(expected_value), plainly(actual), hint)
        )

    _status_failures(expected, played, failed)
    if expected.context is not None:
        for where, value, actual, hint in differences(expected.context, played.context):
            failed("context", f"{where} = {told(value)}", told(actual), hint)
    if expected.intake is not None:
        _intake_failures(expected, played, failed)
    if steps:
        _path_failures(expected, played, rules, failed)
    scenario = expected.scenario_instruction_used
    if scenario is not None and (steps or scenario != MULTI_STEP):
        used = played.scenario_used or NONE
        fits = used.startswith("steps:") if scenario == MULTI_STEP else same_text(scenario, used)
        if not (fits or used == scenario):
            failed("scenario", scenario, used)
    for kind in artifacts:
        kind.check(expected.artifacts, played.artifacts, failed)
    return not failures, failures


def _status_failures(expected: ExpectedOutput, played: Played, failed: Any) -> None:
    why = played.reason or ""
    for kind in ("status", "end", "reason"):
        expectation, actual = getattr(expected, kind), getattr(played, kind)
        if expectation is not None and (actual is None or not same_text(expectation, str(actual))):
            failed(kind, expectation, actual or NONE, f"reason: {why}" if why and kind != "reason" else "")
    if expected.flags is None:
        return
    if not expected.flags and played.flags:
        failed("flags", NONE, ", ".join(played.flags))
    for flag in expected.flags:
        if flag not in played.flags:
            failed("flags", flag, ", ".join(played.flags) or NONE)


def _intake_failures(expected: ExpectedOutput, played: Played, failed: Any) -> None:
    expectation, actual = expected.intake, played.intake
    if expectation is None:
        return
    if actual is None:
        failed("intake", expectation.decision, "no decision")
    elif not same_text(expectation.decision, actual.decision):
        failed(
            "intake",
            expectation.decision,
            actual.decision,
            f"reason: {actual.reason}" if actual.reason else "",
        )
    elif expectation.reason is not None and not same_text(expectation.reason, actual.reason or ""):
        failed(
            "intake",
            f"{expectation.decision}, {expectation.reason}",
            f"{actual.decision}, {actual.reason or NONE}",
        )


def _path_failures(expected: ExpectedOutput, played: Played, rules: Contracts | None, failed: Any) -> None:
    known = rules or Contracts({step.step_name: StepContract(step.step_name) for step in played.steps})
    barred = {resolved(known, step) for step in expected.forbidden_steps or ()}
    for position, step in enumerate(played.steps, 1):
        if step.step_name in barred:
            failed("forbidden_step", f"no {step.step_name}", "it ran", "", step.step_name, position)
    if expected.fallbacks is not None:
        fell = [(step.step_name, step.fallback) for step in played.steps if step.fallback is not None]
        fallbacks = [(resolved(known, fallback.step), fallback) for fallback in expected.fallbacks]
        fits = len(fell) == len(fallbacks) and all(
            name == step and (fallback.reason is None or same_text(fallback.reason, reason))
            for (step, reason), (name, fallback) in zip(fell, fallbacks, strict=True)
        )
        if not fits:
            fallen = "; ".join(f"{step}: {reason}" for step, reason in fell) or NONE
            failed(
                "fallback",
                "; ".join(_fallback_text(name, fallback) for name, fallback in fallbacks) or NONE,
                fallen,
            )


def _fallback_text(name: str, fallback: ExpectedFallback) -> str:
    return f"{name}: {fallback.reason}" if fallback.reason is not None else name


def validate_time(bound: float | None, ms: float | None, *, scenario_id: str = "") -> Verdict:
    """Compare the time taken with its upper bound."""
    if bound is None or (ms is not None and ms <= bound):
        return True, []
    actual = "not measured" if ms is None else f"{ms:.0f}"
    return False, [StepFailure(scenario_id, None, None, "time", f"at most {bound:g}", actual)]
