"""Payloads as canonical XML: the form in which they are journaled, and shown as examples.

Equal values give equal text, and `read_payload` reads the value back. Only characters that XML cannot hold
are lost: they are spelled out.
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.flows.notebook.payloads.values import (
    Action,
    Actions,
    ArtifactJudged,
    BehaviorPlan,
    BehaviorReflection,
    ContextFilter,
    Named,
    Payload,
    PcsTexts,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StageReflection,
    StepPlan,
    Tracking,
    VariableManagement,
    WhatHappened,
)
from detent.flows.notebook.payloads.vocabulary import ACTION_TAGS
from detent.flows.notebook.payloads.xml_writer import XmlWriter, true_or_false

_TAG_OF = {kind: tag for tag, kind in ACTION_TAGS.items()}


def canonical(value: Payload) -> str:
    """A payload as canonical XML."""
    writer = XmlWriter()
    match value:
        case StagePlan():
            _stage_plan(value, writer)
        case StepPlan():
            _step_plan(value, writer)
        case BehaviorPlan():
            _behavior_plan(value, writer)
        case Actions():
            _actions(value, writer)
        case BehaviorReflection():
            _behavior_reflection(value, writer)
        case StageReflection():
            _stage_reflection(value, writer)
    return writer.text()


# -- plans --------------------------------------------------------------------------------------------------


def _stage_plan(plan: StagePlan, to: XmlWriter) -> None:
    in_workflow = bool(plan.title or plan.description)
    if in_workflow:
        to.open("workflow")
        to.optional("title", plan.title)
        to.optional("description", plan.description)
    to.open("stages")
    to.open("remaining")
    for stage in plan.stages:
        _stage(stage, to)
    to.close()
    to.optional("focus", plan.focus)
    to.optional("goals", plan.goals)
    to.close(2 if in_workflow else 1)


def _stage(stage: PlannedStage, to: XmlWriter) -> None:
    to.open(
        "stage",
        id=stage.id,
        title=stage.title,
        insert_before=stage.insert_before,
        insert_after=stage.insert_after,
        replaces=stage.replaces,
        optional="true" if stage.optional else None,
    )
    to.element("goal", stage.goal)
    _named("verified_artifacts", "variable", stage.verified_artifacts, to)
    if stage.required_variables:
        _named("required_variables", "variable", stage.required_variables, to)
    to.close()


def _step_plan(plan: StepPlan, to: XmlWriter) -> None:
    to.open("steps")
    for step in plan.steps:
        _step(step, to)
    to.optional("focus", plan.focus)
    to.optional("goals", plan.goals)
    _happened(plan.whathappened, to)
    _filter(plan.context_filter, to)
    to.close()


def _step(step: PlannedStep, to: XmlWriter) -> None:
    to.open("step", id=step.id, title=step.title)
    to.element("goal", step.goal)
    _named("verified_artifacts", "variable", step.verified_artifacts, to)
    if step.required_variables:
        _named("required_variables", "variable", step.required_variables, to)
    _pcs("pcs_considerations", step.pcs_considerations, to)
    to.close()


def _behavior_plan(plan: BehaviorPlan, to: XmlWriter) -> None:
    to.open("behavior", id=plan.behavior_id, step_id=plan.step_id)
    to.element("agent", plan.agent)
    to.element("task", plan.task, behavior_id=plan.behavior_id)
    if plan.inputs:
        _named("inputs", "variable", plan.inputs, to)
    to.element("effects", str(plan.effects))
    _named("outputs", "artifact", plan.outputs, to)
    to.open("acceptance")
    for criterion in plan.acceptance:
        to.element("criterion", criterion)
    to.close()
    _happened(plan.whathappened, to)
    _filter(plan.context_filter, to)
    to.close()


def _named(tag: str, each: str, values: Iterable[Named], to: XmlWriter) -> None:
    to.open(tag)
    for value in values:
        to.element(each, value.text, name=value.name)
    to.close()


def _pcs(tag: str, texts: PcsTexts, to: XmlWriter) -> None:
    to.open(tag)
    to.element("predictability", texts.predictability)
    to.element("computability", texts.computability)
    to.element("stability", texts.stability)
    to.close()


def _happened(account: WhatHappened | None, to: XmlWriter) -> None:
    if account is None:
        return
    to.open("whathappened")
    to.optional("overview", account.overview)
    to.optional("background", account.background)
    to.optional("key_findings", account.key_findings)
    to.close()


def _filter(wanted: ContextFilter | None, to: XmlWriter) -> None:
    if wanted is None:
        return
    to.open("context_filter")
    if wanted.include:
        to.open("variables_to_include")
        for name in wanted.include:
            to.empty("variable", name=name)
        to.close()
    if wanted.summarize:
        to.open("variables_to_summarize")
        for name, how in wanted.summarize:
            to.empty("variable", name=name, how=how)
        to.close()
    to.close()


# -- actions ------------------------------------------------------------------------------------------------


def _actions(payload: Actions, to: XmlWriter) -> None:
    to.open("actions")
    for action in payload.actions:
        _action(action, to)
    to.close()


def _action(action: Action, to: XmlWriter) -> None:
    tag = _TAG_OF[action.kind]
    if action.kind == "add_code":
        to.code(tag, action.text)
    elif action.kind == "communicate":
        to.element(tag, action.text, to=action.to)
    elif action.kind == "note":
        to.element(tag, action.text, name=action.name)
    else:
        to.element(tag, action.text)


# -- reflections --------------------------------------------------------------------------------------------


def _behavior_reflection(reflection: BehaviorReflection, to: XmlWriter) -> None:
    to.open("reflection", current_step_is_complete=true_or_false(reflection.step_is_complete))
    to.open("evaluation")
    to.open("artifacts_produced")
    _judged(reflection.artifacts, "incomplete", to)
    to.close()
    to.open("acceptance_validation")
    for criterion in reflection.criteria:
        to.element("criterion", criterion.text, status=criterion.status)
    to.close()
    to.open("execution_quality")
    to.element("code_execution", reflection.code_execution)
    to.optional("errors_found", reflection.errors_found)
    to.optional("warnings_found", reflection.warnings_found)
    to.close()
    to.open("goal_achievement")
    to.element("status", reflection.goal_status)
    to.optional("reasoning", reflection.goal_reasoning)
    to.close(2)
    if reflection.new_variables:
        to.open("new_variable")
        for name in reflection.new_variables:
            to.empty("save_current_effect", name=name)
        to.close()
    to.open("decision")
    to.element("next_state", reflection.next_state)
    to.element("reasoning", reflection.reasoning)
    to.close()
    _context_for_next(reflection, to)
    _tracking("outputs_tracking_update", reflection.tracking, to)
    to.close()


def _context_for_next(reflection: BehaviorReflection, to: XmlWriter) -> None:
    advice = (reflection.if_continuing, reflection.if_moving_forward)
    if not (reflection.variables_produced or reflection.whathappened or any(advice)):
        return
    to.open("context_for_next")
    if reflection.variables_produced:
        to.open("variables_produced")
        for variable in reflection.variables_produced:
            to.empty("variable", name=variable.name, value=variable.text)
        to.close()
    _happened(reflection.whathappened, to)
    if any(advice):
        to.open("recommendations_for_next")
        to.optional("if_continuing_behavior", reflection.if_continuing)
        to.optional("if_moving_forward", reflection.if_moving_forward)
        to.close()
    to.close()


def _judged(artifacts: Iterable[ArtifactJudged], incomplete: str, to: XmlWriter) -> None:
    for artifact in artifacts:
        status = incomplete if artifact.status == "incomplete" else artifact.status
        to.empty("artifact", name=artifact.name, status=status)


def _tracking(tag: str, tracking: Tracking, to: XmlWriter) -> None:
    to.open(tag)
    for each in ("produced", "in_progress", "remaining"):
        names = getattr(tracking, each)
        if not names:
            to.empty(each)
            continue
        to.open(each)
        for name in names:
            to.element("artifact", name)
        to.close()
    to.close()


def _stage_reflection(reflection: StageReflection, to: XmlWriter) -> None:
    to.open("stage_reflection", stage_is_complete=true_or_false(reflection.stage_is_complete))
    to.open("step_evaluation")
    to.element("step_id", reflection.step_id)
    to.element("completion_status", reflection.step_status)
    to.optional("artifacts_produced", reflection.step_artifacts)
    if reflection.findings:
        to.open("key_findings")
        for finding in reflection.findings:
            to.element("finding", finding.text, priority=finding.priority)
        to.close()
    to.close()
    _assessment(reflection, to)
    if (review := reflection.goal_review) is not None:
        to.open("stage_goal_review", needs_update=true_or_false(review.needs_update))
        to.optional("reasoning", review.reasoning)
        to.optional("new_goal", review.new_goal)
        to.close()
    if reflection.stage_is_complete and reflection.experience is not None:
        to.element("stage_experience", reflection.experience, from_=reflection.experience_from)
    to.open("decision")
    to.element("next_state", reflection.next_state)
    to.optional("next_focus", reflection.next_focus)
    to.element("reasoning", reflection.reasoning)
    to.close()
    _variables(reflection.variables, to)
    _tracking("outputs_update", reflection.tracking, to)
    _pcs("pcs_check", reflection.pcs_check, to)
    to.close()


def _assessment(reflection: StageReflection, to: XmlWriter) -> None:
    to.open("stage_assessment")
    to.open("progress")
    to.element("completed_steps", str(reflection.completed_steps))
    to.element("remaining_steps", str(reflection.remaining_steps))
    percentage = reflection.percentage
    to.element("percentage", str(int(percentage) if percentage == int(percentage) else percentage))
    to.close()
    to.open("stage_artifacts_status")
    _judged(reflection.artifacts, "in_progress", to)
    to.close()
    to.element("goal_status", reflection.goal_status)
    to.close()


def _variables(variables: VariableManagement, to: XmlWriter) -> None:
    to.open("variable_management")
    if variables.extracted:
        to.open("extracted_from_notebook")
        for one in variables.extracted:
            to.open("variable", name=one.name, type=one.type or None, source=one.source or None)
            to.optional("summary", one.summary)
            to.optional("quality", one.quality or "")
            to.close()
        to.close()
    if variables.retain:
        to.open("retain")
        for kept in variables.retain:
            to.empty("variable", name=kept.name, next_use=kept.next_use or None)
        to.close()
    if variables.deprecate:
        to.open("deprecate")
        for old in variables.deprecate:
            safe = None if old.safe is None else true_or_false(old.safe)
            to.empty("variable", name=old.name, replacement=old.replacement, safe=safe)
        to.close()
    if variables.gaps:
        to.open("gaps")
        for gap in variables.gaps:
            to.open("missing", name=gap.name, needed_for=gap.needed_for, urgency=gap.urgency)
            to.element("how_to_obtain", gap.how_to_obtain)
            to.close()
        to.close()
    to.close()
