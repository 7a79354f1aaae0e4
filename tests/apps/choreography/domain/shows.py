"""Shows written by hand, and feedback as the flow makes it of an evaluation."""

from __future__ import annotations

from typing import Any

from detent.apps.choreography.domain.brief import parse_implementation, parse_plan
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
from detent.flows.refine.evaluation import CATEGORY_PASS, Evaluation
from detent.flows.refine.feedback import Feedback, FeedbackType

Row = tuple[str, str, int, int, str, str, str, str]
"""Name, role, first and last bar, templates, intensity, pose, and shutter/color/gobo."""


def plan_of(*rows: Row, energy: float = 50) -> AgentPlan:
    """A plan from rows of words."""
    sections: list[dict[str, Any]] = []
    for name, role, start, end, templates, intensity, pose, channels in rows:
        shutter, color, gobo = channels.split()
        sections.append(
            {
                "name": name,
                "start_bar": start,
                "end_bar": end,
                "section_role": role,
                "energy_level": energy,
                "templates": templates.split(),
                "params": {"intensity": intensity},
                "base_pose": pose,
                "channels": {"shutter": shutter, "color": color, "gobo": gobo},
            }
        )
    return parse_plan({"sections": sections})


def implementation_of(plan: AgentPlan, *rows: tuple[str, str, str, int, int, str]) -> AgentImplementation:
    """An implementation from plan section, template, targets, first and last bar, and entry."""
    sections = []
    for section, template, targets, start, end, mode in rows:
        planned = plan.section(section)
        assert planned is not None
        sections.append(
            {
                "name": f"{section}__{template}_{targets.split()[0]}",
                "plan_section_name": section,
                "start_bar": start,
                "end_bar": end,
                "template_id": template,
                "params": planned.params.to_plain(),
                "base_pose": planned.base_pose,
                "targets": targets.split(),
                "entry_transition": {"mode": mode, "duration_bars": 0},
            }
        )
    return parse_implementation({"sections": sections, "total_duration_bars": max(row[4] for row in rows)})


VERSE: Row = (
    "Verse 1",
    "verse",
    9,
    16,
    "call_answer pulse_steps",
    "DRAMATIC",
    "AUDIENCE_CENTER",
    "pulse magenta open",
)
WORKED_PLAN = plan_of(
    ("Intro", "intro", 1, 8, "harbor_drift", "SMOOTH", "SOFT_HOME", "open blue open"),
    VERSE,
    ("Chorus 1", "chorus", 17, 24, "tide_tilt", "SMOOTH", "UP", "strobe_fast blue circles"),
)  # fmt: skip
"""The plan of the specification's worked example."""
WORKED_IMPLEMENTATION = implementation_of(
    WORKED_PLAN,
    ("Intro", "harbor_drift", "ALL", 1, 8, "cut"),
    ("Verse 1", "call_answer", "ODD", 9, 16, "cut"),
    ("Verse 1", "pulse_steps", "EVEN", 9, 16, "cut"),
    ("Chorus 1", "tide_tilt", "ALL", 17, 24, "cut"),
)

CLEAN_PLAN = plan_of(
    ("Intro", "intro", 1, 8, "harbor_drift", "SMOOTH", "SOFT_HOME", "open blue open"),
    VERSE,
    ("Chorus 1", "chorus", 17, 24, "hammer_hits spark_relay", "INTENSE", "UP", "strobe_fast red prism"),
)  # fmt: skip
"""A plan of the same song about which the validator has nothing to say."""


def feedback_of(evaluation: Evaluation, kind: FeedbackType, iteration: int = 1) -> Feedback:
    """Feedback as the flow makes it."""
    failing = [
        {
            "category": score.category,
            "score": score.score,
            "weaknesses": [
                {"text": item.text, "section": item.section, "template": item.template}
                for item in score.weaknesses
            ],
        }
        for score in evaluation.category_scores
        if score.score < CATEGORY_PASS
    ]
    metadata = {
        "failing": failing,
        "automatic_failures": list(evaluation.automatic_failures),
        "escalated": False,
    }
    text = "\n".join(evaluation.actionable_feedback)
    return Feedback(kind, text, iteration, metadata=metadata)
