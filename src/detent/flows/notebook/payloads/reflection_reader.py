"""T5 from elements: what a behavior produced, and whether its step is complete."""

from __future__ import annotations

import re
from typing import Any

from detent.flows.notebook.payloads.aliases import decision_name
from detent.flows.notebook.payloads.part import Part
from detent.flows.notebook.payloads.plan_reader import what_happened
from detent.flows.notebook.payloads.values import (
    ArtifactJudged,
    BehaviorReflection,
    CriterionJudged,
    Named,
    Tracking,
)

ARTIFACT = ("complete", "incomplete", "missing")
CRITERION = ("passed", "failed", "partial")
EXECUTION = ("success", "failed", "partial")
GOAL = ("achieved", "partial", "not_achieved")
NEXT_STATE = ("STEP_RUNNING", "STEP_COMPLETED")

_LISTED = re.compile(r"[,;\n]")


def behavior_reflection(root: Part) -> BehaviorReflection:
    """T5."""
    evaluation = root.one("evaluation", required=True)
    quality = evaluation.one("execution_quality", required=True)
    goal = evaluation.one("goal_achievement", required=True)
    choice = root.one("decision", required=True)
    context = root.one("context_for_next")
    advice = context.one("recommendations_for_next")
    complete: Any = root.is_true("current_step_is_complete", required=True)
    values: dict[str, Any] = {
        "code_execution": quality.chosen("code_execution", EXECUTION),
        "goal_status": goal.chosen("status", GOAL),
        "next_state": decision(choice, NEXT_STATE),
    }
    return BehaviorReflection(
        step_is_complete=complete,
        artifacts=judged(
            evaluation.one("artifacts_produced", required=True).many("artifact"), "artifacts", ARTIFACT
        ),
        criteria=_criteria(evaluation.one("acceptance_validation", required=True)),
        reasoning=choice.text("reasoning", required=True),
        tracking=tracking(root.one("outputs_tracking_update", required=True)),
        errors_found=quality.text("errors_found"),
        warnings_found=quality.text("warnings_found"),
        goal_reasoning=goal.text("reasoning"),
        new_variables=tuple(
            (part.attribute("name", required=True) or "").strip()
            for part in root.one("new_variable").many("save_current_effect")
        ),
        variables_produced=_produced(context.one("variables_produced")),
        whathappened=what_happened(context.one("whathappened")),
        if_continuing=advice.text("if_continuing_behavior"),
        if_moving_forward=advice.text("if_moving_forward"),
        **values,
    )


def decision(part: Part, allowed: tuple[str, ...]) -> str:
    """The next state of a decision, aliases (R8) and other cases (R10) included."""
    state = part.one("next_state", required=True)
    if not state:
        return allowed[0]
    state.is_at("next_state")
    name = decision_name(state.body)
    if name in allowed and name != state.body:
        part.findings.rules.add("R10" if name == state.body.upper() else "R8")
        return name
    return part.findings.choice(state.body, allowed, state.path, state.line)


def judged(parts: list[Part], place: str, allowed: tuple[str, ...]) -> tuple[ArtifactJudged, ...]:
    """Artifacts with their statuses; T6 says in_progress where T5 says incomplete, both are read (R8)."""
    found = []
    for index, part in enumerate(parts):
        part.is_at(f"{place}[{index}]")
        name = (part.attribute("name", required=True) or "").strip()
        status: Any = (part.attribute("status", required=True) or allowed[0]).strip()
        plain = status.lower().replace(" ", "_").replace("-", "_")
        if plain not in allowed and plain in ("incomplete", "in_progress"):
            part.findings.rules.add("R8")
            status = "incomplete"
        else:
            status = part.findings.choice(status, allowed, f"{part.path}/@status", part.line)
        found.append(ArtifactJudged(name, "incomplete" if status == "in_progress" else status))
    return tuple(found)


def tracking(part: Part) -> Tracking:
    """Names of what is produced, in progress and remaining."""
    return Tracking(*(_names(part.one(tag), tag) for tag in ("produced", "in_progress", "remaining")))


def _names(part: Part, tag: str) -> tuple[str, ...]:
    part.is_at(f"tracking.{tag}")
    parts = part.many("artifact")
    if not parts:  # names with commas between
        return tuple(name.strip() for name in _LISTED.split(part.body) if name.strip())
    return tuple((item.attribute("name") or item.body).strip() for item in parts)


def _criteria(part: Part) -> tuple[CriterionJudged, ...]:
    found = []
    for criterion in part.many("criterion"):
        status: Any = criterion.chosen_attribute("status", CRITERION)
        found.append(CriterionJudged(criterion.body, status))
    return tuple(found)


def _produced(part: Part) -> tuple[Named, ...]:
    found = []
    for index, variable in enumerate(part.many("variable")):
        variable.is_at(f"variables_produced[{index}]")
        value = variable.attribute("value")
        text = variable.body if value is None else value
        found.append(Named((variable.attribute("name", required=True) or "").strip(), text))
    return tuple(found)
