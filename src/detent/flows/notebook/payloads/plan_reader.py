"""T1 to T3 from elements: plans of stages, of steps and of a behavior."""

from __future__ import annotations

from detent.flows.notebook.payloads.part import Part
from detent.flows.notebook.payloads.payload_error import CONTRADICTION, MISSING
from detent.flows.notebook.payloads.values import (
    BehaviorPlan,
    ContextFilter,
    Named,
    PcsTexts,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StepPlan,
    WhatHappened,
)

USUAL_SUMMARY = "shape_only"
"""How a variable is shown in short where the payload does not say."""


def stage_plan(root: Part) -> StagePlan:
    """T1, in a root of its own or inside a workflow."""
    title = description = ""
    stages = root
    if root.element.tag == "workflow":
        title, description = root.text("title"), root.text("description")
        stages = root.one("stages", required=True)
    return StagePlan(
        tuple(_stage(part, f"stages[{index}]") for index, part in enumerate(_items(stages, "stage"))),
        focus=stages.text("focus"),
        goals=stages.text("goals"),
        title=title,
        description=description,
    )


def step_plan(root: Part) -> StepPlan:
    """T2."""
    return StepPlan(
        tuple(_step(part, f"steps[{index}]") for index, part in enumerate(_items(root, "step"))),
        focus=root.text("focus"),
        goals=root.text("goals"),
        whathappened=what_happened(root.one("whathappened")),
        context_filter=_context_filter(root.one("context_filter")),
    )


def behavior_plan(root: Part) -> BehaviorPlan:
    """T3."""
    behavior_id = (root.attribute("id") or "").strip()
    task = root.one("task")
    task.is_at("task")
    repeated = task.attribute("behavior_id")
    if repeated is not None and repeated.strip() != behavior_id:
        why = "behavior_id of <task> is not the id of <behavior>"
        root.findings.refuse(CONTRADICTION, why, task.path, task.line)
    root.is_at("behavior_id")
    root.is_at("step_id")
    effects = root.one("effects")
    acceptance = root.one("acceptance")
    acceptance.is_at("acceptance")
    criteria = acceptance.many("criterion")
    for index, criterion in enumerate(criteria):
        criterion.is_at(f"acceptance[{index}]")
    return BehaviorPlan(
        behavior_id=behavior_id,
        step_id=(root.attribute("step_id") or "").strip(),
        agent=root.text("agent"),
        task=task.body,
        inputs=named(root.one("inputs"), "variable", "inputs"),
        effects=bool(effects)
        and root.findings.choice(effects.body, ("True", "False"), effects.path, effects.line) == "True",
        outputs=named(root.one("outputs"), "artifact", "outputs"),
        acceptance=tuple(criterion.body for criterion in criteria),
        whathappened=what_happened(root.one("whathappened")),
        context_filter=_context_filter(root.one("context_filter")),
    )


def named(part: Part, tag: str, place: str) -> tuple[Named, ...]:
    """Variables or artifacts with their texts."""
    part.is_at(place)
    found = part.many(tag)
    for index, item in enumerate(found):
        item.is_at(f"{place}[{index}]")
    return tuple(Named((item.attribute("name") or "").strip(), item.body) for item in found)


def what_happened(part: Part) -> WhatHappened | None:
    """The account for the next prompt; None if there is none."""
    if not part:
        return None
    return WhatHappened(part.text("overview"), part.text("background"), part.text("key_findings"))


def pcs_texts(part: Part) -> PcsTexts:
    """The three texts."""
    return PcsTexts(part.text("predictability"), part.text("computability"), part.text("stability"))


def _items(parent: Part, tag: str) -> list[Part]:
    """The stages or steps, in a list of their own or directly in the root.

    Stages belong into `remaining`, steps do not; the other form is an alias (R8).
    """
    inner, direct = parent.one("remaining"), parent.many(tag)
    listed = inner.many(tag)
    if bool(listed if tag == "step" else direct):
        parent.findings.rules.add("R8")
    if listed and direct:
        why = f"<{tag}> stands both in <remaining> and beside it"
        parent.findings.refuse(CONTRADICTION, why, parent.path, parent.line)
    if parent and not (listed or direct):
        parent.findings.refuse(MISSING, f"<{tag}> is missing", parent.path, parent.line)
    (inner if listed else parent).is_at(f"{tag}s")
    return listed or direct


def _stage(part: Part, place: str) -> PlannedStage:
    part.is_at(place)
    return PlannedStage(
        id=(part.attribute("id") or "").strip(),
        title=part.attribute("title") or "",
        goal=part.text("goal"),
        verified_artifacts=named(part.one("verified_artifacts"), "variable", f"{place}.verified_artifacts"),
        required_variables=named(part.one("required_variables"), "variable", f"{place}.required_variables"),
        optional=part.is_true("optional"),
        insert_before=_reference(part, "insert_before"),
        insert_after=_reference(part, "insert_after"),
        replaces=_reference(part, "replaces"),
    )


def _reference(part: Part, name: str) -> str | None:
    return (part.attribute(name) or "").strip() or None


def _step(part: Part, place: str) -> PlannedStep:
    part.is_at(place)
    return PlannedStep(
        id=(part.attribute("id") or "").strip(),
        title=part.attribute("title") or "",
        goal=part.text("goal"),
        verified_artifacts=named(part.one("verified_artifacts"), "variable", f"{place}.verified_artifacts"),
        pcs_considerations=pcs_texts(part.one("pcs_considerations")),
        required_variables=named(part.one("required_variables"), "variable", f"{place}.required_variables"),
    )


def _context_filter(part: Part) -> ContextFilter | None:
    if not part:
        return None
    part.is_at("context_filter")
    short = part.one("variables_to_summarize").many("variable")
    return ContextFilter(
        include=tuple(item.name for item in named(part.one("variables_to_include"), "variable", "include")),
        summarize=tuple(
            ((item.attribute("name") or "").strip(), (item.attribute("how") or "").strip() or USUAL_SUMMARY)
            for item in short
        ),
    )
