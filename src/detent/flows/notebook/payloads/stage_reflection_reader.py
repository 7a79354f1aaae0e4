"""T6 from elements, in its short shape and in its long one.

The paths of an element are tried in order: the short shape first, then the long one, whose names are found at
any depth.
"""

from __future__ import annotations

from typing import Any

from detent.flows.notebook.payloads.part import TRUE_FALSE, Part
from detent.flows.notebook.payloads.plan_reader import pcs_texts
from detent.flows.notebook.payloads.reflection_reader import GOAL, decision, judged, tracking
from detent.flows.notebook.payloads.stage_variables_reader import variable_management
from detent.flows.notebook.payloads.values import ArtifactJudged, Finding, GoalReview, StageReflection

COMPLETION = ("complete", "incomplete")
NEXT_STATE = ("STAGE_COMPLETED", "STEP_RUNNING")
PRIORITY = ("high", "medium", "low")
STATUS = ("complete", "in_progress", "missing")
EXPERIENCE_PARTS = {
    "lessons_learned": "Lessons learned: ",
    "challenges_encountered": "Challenges encountered: ",
    "best_practices_identified": "Best practices: ",
    "pitfalls_to_avoid": "Pitfalls to avoid: ",
    "stage_experience_variable": "",
}
"""Parts of the long shape's experience, with the words that introduce them."""
SHORT_NAMES = frozenset({
    "percentage", "goal_status", "stage_experience", "new_goal", "next_focus", "outputs_update",
    "extracted_from_notebook", "retain", "deprecate", "gaps", "pcs_check",
})  # fmt: skip
LONG_NAMES = frozenset({
    "step_summary", "progress_percentage", "required_artifact", "stage_goal_achievement",
    "experience_summary", "proposed_goal", "update_reasoning", "next_step_focus", "if_continuing_stage",
    "stage_level", "variables_extracted_from_notebook", "variables_to_retain", "variables_to_deprecate",
    "variables_required_for_next", "variable_gap_analysis", "pcs_alignment_check", "plan_new_steps",
})  # fmt: skip


def stage_reflection(root: Part) -> StageReflection:
    """T6. Where both shapes are mixed, the short one wins."""
    _note_shape(root)
    step_id = root.first("step_evaluation/step_id", "//step_summary/step_id")
    step_id.is_at("step_id")
    choice = root.one("decision", required=True)
    experience, origin = _experience(root)
    values: dict[str, Any] = {
        "stage_is_complete": root.is_true("stage_is_complete", required=True),
        "step_status": _chosen(
            root, COMPLETION, "step_evaluation/completion_status", "//step_summary/completion_status"
        ),
        "goal_status": _chosen(
            root, GOAL, "stage_assessment/goal_status", "//stage_goal_achievement/status",
            "//stage_goal_achievement",
        ),
        "next_state": decision(choice, NEXT_STATE),
    }  # fmt: skip
    percentage = root.first("stage_assessment/progress/percentage", "//progress_percentage")
    return StageReflection(
        step_id=step_id.body,
        completed_steps=_progress(root, "completed_steps").count(),
        remaining_steps=_progress(root, "remaining_steps").count(),
        percentage=percentage.percentage(),
        artifacts=_artifacts(root),
        reasoning=choice.text("reasoning", required=True),
        variables=variable_management(root),
        tracking=tracking(root.first("outputs_update", "//stage_level", "outputs_tracking_update")),
        pcs_check=pcs_texts(root.first("pcs_check", "//pcs_alignment_check")),
        next_focus=_next_focus(root),
        step_artifacts=_step_artifacts(root),
        findings=_findings(root),
        goal_review=_goal_review(root),
        experience=experience,
        experience_from=origin,
        **values,
    )


def _note_shape(root: Part) -> None:
    tags = _tags(root)
    long = sorted(tags & LONG_NAMES)
    short = tags & SHORT_NAMES
    if long and short:
        root.findings.flag(f"shape: both shapes are mixed ({', '.join(long)})")
    root.findings.details["shape"] = "long" if long and not short else "short"


def _tags(part: Part) -> set[str]:
    return {part.element.tag}.union(*(_tags(child) for child in part.children))


def _chosen(root: Part, allowed: tuple[str, ...], *paths: str) -> str:
    part = root.first(*paths)
    return root.findings.choice(part.body, allowed, part.path, part.line) if part else allowed[0]


def _progress(root: Part, tag: str) -> Part:
    return root.first(f"stage_assessment/progress/{tag}", f"//stage_progress/{tag}")


def _artifacts(root: Part) -> tuple[ArtifactJudged, ...]:
    listed = root.at("stage_assessment/stage_artifacts_status").many("artifact")
    if not listed:
        listed = root.everywhere("required_artifact")
        if not listed:
            root.first("stage_assessment/stage_artifacts_status", "//stage_artifacts_status")
    return judged(listed, "artifacts", STATUS)


def _step_artifacts(root: Part) -> str:
    part = root.first(
        "step_evaluation/artifacts_produced", "//step_summary/artifacts_produced", required=False
    )
    items = []
    for item in part.many("artifact"):
        name, status = item.attribute("name") or "", item.attribute("status")
        text = f"{name} ({status})" if status else name
        items.append(": ".join(filter(None, (text, item.body))))
    return "; ".join(items) if items else part.body


def _findings(root: Part) -> tuple[Finding, ...]:
    part = root.first("step_evaluation/key_findings", "//key_findings", required=False)
    found = []
    for item in part.many("finding"):
        priority: Any = item.chosen_attribute("priority", PRIORITY, required=False)
        if priority is None:
            root.findings.flag(f"missing: {item.path}/@priority")
        found.append(Finding(item.body, priority or "medium"))
    return tuple(found) if found or not part.body else (Finding(part.body),)


def _goal_review(root: Part) -> GoalReview | None:
    review = root.one("stage_goal_review")
    if review:
        needed = review.chosen_attribute("needs_update", TRUE_FALSE, required=False)
        if needed is None and (said := review.one("needs_update")):
            needed = root.findings.choice(said.body, TRUE_FALSE, said.path, said.line)
        reasoning = review.first("reasoning", "update_reasoning", required=False).body
        goal = review.first("new_goal", "proposed_goal", required=False).body
        return GoalReview(needed == "true", reasoning, goal)
    plan = root.at("//plan_new_steps")
    if plan:
        return GoalReview(
            plan.is_true("needs_more_steps"), plan.text("reasoning"), plan.text("what_should_do")
        )
    return None


def _experience(root: Part) -> tuple[str | None, str | None]:
    """The experience of a stage, and the stage it comes from."""
    short = root.one("stage_experience")
    if short:
        return short.body, _origin(short)
    long = root.at("//experience_summary")
    if not long:
        return None, None
    parts = [(words, long.one(tag)) for tag, words in EXPERIENCE_PARTS.items()]
    texts = [f"{words}{text}" for words, part in parts if part and (text := part.all_text())]
    return "\n".join(texts) or long.body, _origin(long.one("stage_experience_variable")) or _origin(long)


def _origin(part: Part) -> str | None:
    return (part.attribute("from") or "").strip() or None


def _next_focus(root: Part) -> str:
    part = root.first("decision/next_focus", "//next_step_focus", required=False)
    if part:
        return part.body
    for holder in (root.one("context_for_next"), root.one("decision"), root):
        if continuing := holder.one("if_continuing_stage"):
            return continuing.all_text()
    return ""
