"""What must hold of a payload's value, in whichever format it came."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from detent.flows.notebook.payloads.code_text import syntax_problem
from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.names import (
    artifact_name,
    behavior_number,
    is_id,
    names_in,
    with_canonical_names,
)
from detent.flows.notebook.payloads.payload_error import (
    CODE,
    CONTRADICTION,
    COUNT,
    MISSING,
    NAME,
    REPEATED,
    UNKNOWN,
    VALUE,
    quoted,
)
from detent.flows.notebook.payloads.placement import placed
from detent.flows.notebook.payloads.values import (
    Actions,
    BehaviorPlan,
    BehaviorReflection,
    ContextFilter,
    Payload,
    PcsTexts,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StageReflection,
    StepPlan,
)
from detent.kernel.errors import nearest

MOST_ITEMS = 12
"""Stages of a plan, steps of a stage."""
MOST_ACTIONS = 40
USUAL_STAGES = range(6, 9)
USUAL_STEPS = range(3, 8)
COMMUNICATE_TO = ("pcs", "explore", "model", "evaluate", "report", "define", "validate")
WORKING_AGENTS = ("Define", "Explore", "Validate", "Model", "Evaluate", "PCS", "Report")
SUMMARY = re.compile(r"shape_only|describe_only|head_only|last_(?:N|\d{1,6})_only")


@dataclass(frozen=True, slots=True)
class Known:
    """Facts of the run that a payload can be checked against; None where they are not known."""

    step_id: str | None = None
    """The current step."""
    variables: Mapping[str, object] | frozenset[str] | None = None
    """The variables there are."""
    missing_artifacts: frozenset[str] | None = None
    """Artifacts of the current step that are not yet produced."""
    remaining_stages: tuple[str, ...] = ()
    """Stages that a revision may name."""


NOTHING_KNOWN = Known()


def checked(value: Payload, findings: Findings, known: Known) -> Payload:
    """The value with canonical names and applied placements; its problems are added to the findings."""
    value = with_canonical_names(value)
    for part, name in names_in(value):
        if artifact_name(name) != name:
            findings.refuse_part(NAME, f"{quoted(name)} is neither a variable nor a relative path", part)
    match value:
        case StagePlan():
            return _stage_plan(value, findings, known)
        case StepPlan():
            _step_plan(value, findings)
        case BehaviorPlan():
            _behavior_plan(value, findings, known)
        case Actions():
            _actions(value, findings)
        case BehaviorReflection():
            _behavior_reflection(value, findings)
        case StageReflection():
            return _stage_reflection(value, findings)
    return value


# -- plans --------------------------------------------------------------------------------------------------


def _stage_plan(plan: StagePlan, findings: Findings, known: Known) -> StagePlan:
    _items(plan.stages, "stages", findings)
    for index, stage in enumerate(plan.stages):
        for word in ("Artifacts", "Acceptance"):
            if not re.search(rf"{word}\s*[:：]", stage.goal):
                findings.flag(f"goal: stages[{index}] names no {word.lower()}")
    stages = placed(plan.stages, known.remaining_stages, findings)
    if len(stages) not in USUAL_STAGES:
        findings.flag(f"count: {len(stages)} stages, usual are 6 to 8")
    return plan if stages == plan.stages else replace(plan, stages=stages)


def _step_plan(plan: StepPlan, findings: Findings) -> None:
    _items(plan.steps, "steps", findings)
    if len(plan.steps) not in USUAL_STEPS:
        findings.flag(f"count: {len(plan.steps)} steps, usual are 3 to 7")
    for index, step in enumerate(plan.steps):
        _pcs(step.pcs_considerations, f"steps[{index}]", findings)
    _filter(plan.context_filter, findings)


def _items(items: Sequence[PlannedStage | PlannedStep], noun: str, findings: Findings) -> None:
    if not 1 <= len(items) <= MOST_ITEMS:
        findings.refuse_part(COUNT, f"{len(items)} {noun}, allowed are 1 to {MOST_ITEMS}", noun)
    times = Counter(item.id for item in items)
    for index, item in enumerate(items):
        part = f"{noun}[{index}]"
        if not is_id(item.id):
            why = "an id is lower-case letters, digits and _, and begins with a letter"
            findings.refuse_part(NAME, f"{quoted(item.id)}: {why}", part)
        if times[item.id] > 1:
            times[item.id] = 0
            findings.refuse_part(REPEATED, f"the id {quoted(item.id)} is given twice", part)
        _filled(item.title, "title", part, findings)
        _filled(item.goal, "goal", part, findings)
        if not item.verified_artifacts:
            findings.refuse_part(COUNT, "no artifact is named", f"{part}.verified_artifacts")


def _behavior_plan(plan: BehaviorPlan, findings: Findings, known: Known) -> None:
    if not is_id(plan.step_id):
        findings.refuse_part(NAME, f"{quoted(plan.step_id)} is no id of a step", "step_id")
    elif known.step_id is not None and plan.step_id != known.step_id:
        why = f"the current step is {quoted(known.step_id)}, not {quoted(plan.step_id)}"
        findings.refuse_part(UNKNOWN, why, "step_id")
    if behavior_number(plan.behavior_id, plan.step_id) is None:
        why = f"{quoted(plan.behavior_id)} is not {plan.step_id[:80]}_b1, _b2, …"
        findings.refuse_part(NAME, why, "behavior_id")
    _filled(plan.agent, "agent", "", findings)
    _filled(plan.task, "task", "", findings)
    if plan.agent not in WORKING_AGENTS:
        findings.flag(f"agent: {quoted(plan.agent)} is none of {', '.join(WORKING_AGENTS)}")
    _bound(plan, findings, known)
    _filter(plan.context_filter, findings)


def _bound(plan: BehaviorPlan, findings: Findings, known: Known) -> None:
    if known.variables is not None:
        for index, given in enumerate(plan.inputs):
            if given.name not in known.variables:
                why = f"there is no variable {quoted(given.name)}.{nearest(given.name, known.variables)}"
                findings.refuse_part(UNKNOWN, why, f"inputs[{index}]")
    names = [output.name for output in plan.outputs]
    if not names:
        findings.refuse_part(COUNT, "no output is named", "outputs")
    elif known.missing_artifacts is not None:
        if known.missing_artifacts.isdisjoint(names):
            listed = ", ".join(sorted(known.missing_artifacts)) or "none"
            findings.refuse_part(UNKNOWN, f"no output is an artifact still to produce: {listed}", "outputs")
        for name in names:
            if name not in known.missing_artifacts:
                findings.flag(f"temporary: {name} is no artifact of the step that is still to produce")
    if not plan.acceptance:
        findings.refuse_part(COUNT, "no criterion is given", "acceptance")
    for index, criterion in enumerate(plan.acceptance):
        _filled(criterion, "criterion", f"acceptance[{index}]", findings)
    if names and not any(_names(criterion, name) for criterion in plan.acceptance for name in names):
        findings.flag("acceptance: no criterion names an output")


def _names(criterion: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name.removeprefix('./'))}(?!\w)", criterion) is not None


# -- actions ------------------------------------------------------------------------------------------------


def _actions(payload: Actions, findings: Findings) -> None:
    if not 1 <= len(payload.actions) <= MOST_ACTIONS:
        why = f"{len(payload.actions)} actions, allowed are 1 to {MOST_ACTIONS}"
        findings.refuse_part(COUNT, why, "actions")
    for index, action in enumerate(payload.actions):
        part = f"actions[{index}]"
        if action.kind == "communicate" and action.to not in COMMUNICATE_TO:
            why = f"{quoted(action.to or '')} is none of: {', '.join(COMMUNICATE_TO)}"
            findings.refuse_part(VALUE, why, part)
        if action.kind == "add_code" and (found := syntax_problem(action.text)) is not None:
            findings.refuse_part(CODE, f"the code is not Python: {found}", part)
        if action.kind != "note" and not action.text.strip():
            findings.flag(f"empty: {part}")


# -- reflections --------------------------------------------------------------------------------------------


def _behavior_reflection(reflection: BehaviorReflection, findings: Findings) -> None:
    if reflection.step_is_complete != (reflection.next_state == "STEP_COMPLETED"):
        said = str(reflection.step_is_complete).lower()
        why = f"current_step_is_complete is {said} and next_state is {reflection.next_state}"
        findings.refuse_part(CONTRADICTION, why, "next_state")
    if not reflection.reasoning:
        findings.flag("empty: reasoning")


def _stage_reflection(reflection: StageReflection, findings: Findings) -> StageReflection:
    if reflection.stage_is_complete != (reflection.next_state == "STAGE_COMPLETED"):
        said = str(reflection.stage_is_complete).lower()
        why = f"stage_is_complete is {said} and next_state is {reflection.next_state}"
        findings.refuse_part(CONTRADICTION, why, "next_state")
    if not is_id(reflection.step_id):
        findings.refuse_part(NAME, f"{quoted(reflection.step_id)} is no id of a step", "step_id")
    for noun in ("completed_steps", "remaining_steps"):
        if getattr(reflection, noun) < 0:
            findings.refuse_part(VALUE, f"{noun} is below 0", noun)
    if not 0 <= reflection.percentage <= 100:
        findings.refuse_part(VALUE, "a percentage is between 0 and 100", "percentage")
    _pcs(reflection.pcs_check, "pcs_check", findings)
    for index, gap in enumerate(reflection.variables.gaps):
        _filled(gap.needed_for, "needed_for", f"variables.gaps[{index}]", findings)
        _filled(gap.how_to_obtain, "how_to_obtain", f"variables.gaps[{index}]", findings)
    if not reflection.reasoning:
        findings.flag("empty: reasoning")
    _progress(reflection, findings)
    return _experience(reflection, findings)


def _progress(reflection: StageReflection, findings: Findings) -> None:
    steps = reflection.completed_steps + reflection.remaining_steps
    if steps > 0 and abs(100 * reflection.completed_steps / steps - reflection.percentage) > 1:
        findings.flag(f"percentage: {reflection.percentage:g} is not {reflection.completed_steps} of {steps}")
    if reflection.stage_is_complete and reflection.remaining_steps:
        findings.flag(f"remaining_steps: {reflection.remaining_steps} remain of a complete stage")


def _experience(reflection: StageReflection, findings: Findings) -> StageReflection:
    if not reflection.stage_is_complete:
        if reflection.experience is None and reflection.experience_from is None:
            return reflection
        findings.flag("unused: stage_experience of a stage that is not complete")
        return replace(reflection, experience=None, experience_from=None)
    if not reflection.experience:
        findings.flag("missing: stage_experience of a complete stage")
    elif reflection.experience_from is None:
        findings.flag("missing: the stage that stage_experience comes from")
    elif not is_id(reflection.experience_from):
        why = f"{quoted(reflection.experience_from)} is no id of a stage"
        findings.refuse_part(NAME, why, "experience")
    return reflection


# -- parts --------------------------------------------------------------------------------------------------


def _pcs(texts: PcsTexts, part: str, findings: Findings) -> None:
    for word in ("predictability", "computability", "stability"):
        _filled(getattr(texts, word), word, part, findings)


def _filter(wanted: ContextFilter | None, findings: Findings) -> None:
    for name, how in wanted.summarize if wanted else ():
        if not SUMMARY.fullmatch(how):
            findings.flag(f"summary: {quoted(how)} of {name} is unknown")


def _filled(text: str, noun: str, part: str, findings: Findings) -> None:
    if not text.strip():
        findings.refuse_part(MISSING, f"{noun} is missing or empty", part)
