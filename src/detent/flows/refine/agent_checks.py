"""How agents' answers are checked at collaborator: by rehearsing what code makes of them.

"No validation error" alone would be no check: a bad plan can be valid. So the remaining parts are done by
their handlers, and code judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from detent.dispatch.proposal import Proposal, Verdict
from detent.flows.refine.decisions import RefineSettings
from detent.flows.refine.evaluation import Evaluation, ValidationReport
from detent.flows.refine.part_schemas import evaluation_of
from detent.flows.refine.run_data import EVALUATION, IMPLEMENTATION, PLAN, SETTINGS, VALIDATION
from detent.flows.refine.state_machine import OrchestrationState as State
from detent.kernel.plain import to_plain

MOST_APART = 15
"""Points by which two judges may differ."""


class _Rehearsed(NamedTuple):
    """What code makes of a plan or an implementation."""

    passes: bool
    score: float
    """-1: it could not be judged, -2: it is not valid."""
    why: str = ""


_FAILED = _Rehearsed(False, -1)


async def plan_is_no_worse(inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
    """A plan counts if it is valid and passes, or scores no less than code's own."""
    agents = await _of_plan(proposal, proposal.output)
    if agents.passes or agents.score == -2:
        return Verdict(agents.passes, () if agents.passes else (agents.why,))
    own = await proposal.rehearse(State.PLANNING)
    code = await _of_plan(proposal, own.data[PLAN]) if own.to != State.FAILED.value else _FAILED
    return _no_worse(agents, code)


async def implementation_is_no_worse(inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
    """An implementation counts if it passes, or scores no less than code's own."""
    agents = await _of_implementation(proposal, {IMPLEMENTATION: to_plain(proposal.output)})
    if agents.passes:
        return Verdict(True)
    own = await proposal.rehearse(State.IMPLEMENTING)
    code = await _of_implementation(proposal, own.data) if own.to != State.FAILED.value else _FAILED
    return _no_worse(agents, code)


def _no_worse(agents: _Rehearsed, code: _Rehearsed) -> Verdict:
    if agents.score >= 0 and not code.passes and agents.score >= code.score:
        return Verdict(True)
    scores = [f"{side.score:g}" if side.score >= 0 else "nothing" for side in (agents, code)]
    return Verdict(False, (f"/: scores {scores[0]}, code's own {scores[1]}",))


async def _of_plan(proposal: Proposal, plan: Any) -> _Rehearsed:
    checked = await proposal.rehearse(State.VALIDATING, {PLAN: to_plain(plan)})
    if checked.to != State.IMPLEMENTING.value:
        report = None if checked.outcome is None else checked.outcome.set.get(VALIDATION)
        errors = ValidationReport.from_plain(report).errors if report else ()
        why = f"/: {errors[0].rule}: {errors[0].message}" if errors else "/: it could not be validated"
        return _Rehearsed(False, -2, why)
    made = await proposal.rehearse(State.IMPLEMENTING, checked.data)
    return _FAILED if made.to == State.FAILED.value else await _of_implementation(proposal, made.data)


async def _of_implementation(proposal: Proposal, data: Mapping[str, Any]) -> _Rehearsed:
    judged = await proposal.rehearse(State.JUDGING, data)
    if judged.outcome is None or EVALUATION not in judged.outcome.set:
        return _FAILED
    return _Rehearsed(judged.to == State.SUCCEEDED.value, judged.data[EVALUATION]["overall_score"])


def judges_alike(settings: RefineSettings) -> Any:
    """The check of a judge: the verdict and failing categories of the code judge, at most 15 points apart."""

    async def check(inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
        judged = await proposal.rehearse(State.JUDGING)
        if judged.outcome is None or EVALUATION not in judged.outcome.set:
            return Verdict(False, ("/: code cannot judge it",))
        in_force = settings.changed(judged.data.get(SETTINGS) or {})
        code = Evaluation.from_plain(judged.data[EVALUATION])
        plain = to_plain(proposal.output)
        failures = [*code.automatic_failures, *(plain.get("automatic_failures") or ())]
        agents = evaluation_of({**plain, "automatic_failures": list(dict.fromkeys(failures))})
        reasons = []
        verdicts = [side.passes(in_force.pass_threshold, in_force.category_pass) for side in (agents, code)]
        if verdicts[0] != verdicts[1]:
            reasons.append(f"/: the verdict is {_word(verdicts[0])}, code's {_word(verdicts[1])}")
        failing = [
            {score.category for score in side.failing(in_force.category_pass)} for side in (agents, code)
        ]
        if failing[0] != failing[1]:
            reasons.append("/category_scores: other categories fail")
        if abs(agents.overall_score - code.overall_score) > MOST_APART:
            reasons.append(f"/: scores {agents.overall_score:g}, code's judge {code.overall_score:g}")
        return Verdict(not reasons, tuple(reasons))

    return check


def _word(passes: bool) -> str:
    return "pass" if passes else "fail"


async def finds_all_errors(inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
    """A report counts if it holds every error that code finds, by rule and section."""
    checked = await proposal.rehearse(State.VALIDATING)
    report = checked.data.get(VALIDATION) if checked.outcome is not None else None
    if report is None or checked.outcome is None or VALIDATION not in checked.outcome.set:
        return Verdict(False, ("/: code cannot validate it",))
    reported = {
        (issue.rule, issue.section_name)
        for issue in ValidationReport.from_plain(to_plain(proposal.output)).errors
    }
    missed = [
        issue
        for issue in ValidationReport.from_plain(report).errors
        if (issue.rule, issue.section_name) not in reported
    ]
    return Verdict(not missed, tuple(f"/issues: misses {issue.rule}: {issue.message}" for issue in missed))
