"""What a show is judged by: eight categories and four automatic failures, each with its owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detent.apps.choreography.domain.arrangement import (
    colour_scenes,
    conflicts,
    in_order,
    layered,
    strobed_percent,
)
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.violations import parsed
from detent.flows.refine.evaluation import AutomaticFailure, Category, Rubric

ALIGNMENT = "Musical Alignment"
ENERGY = "Energy Matching"
VARIETY = "Template Variety & Layering"
COVERAGE = "Timing Coverage & Target Validity"
SHUTTER = "Shutter"
COLOR = "Color"
GOBO = "Gobo & Visual Impact"
COMPLEXITY = "Choreography Complexity"

CATEGORIES = (
    Category(ALIGNMENT, "implementation"),
    Category(ENERGY, "plan"),
    Category(VARIETY, "plan"),
    Category(COVERAGE, "implementation"),
    Category(SHUTTER, "plan"),
    Category(COLOR, "plan"),
    Category(GOBO, "plan"),
    Category(COMPLEXITY, "plan"),
)

TARGET_CONFLICT = "target_conflict"
NO_LAYERING = "no_layering"
STROBE = "strobe_over_60_percent"
COLOUR_SCENES = "more_than_15_colour_scenes"
AUTOMATIC = (TARGET_CONFLICT, NO_LAYERING, STROBE, COLOUR_SCENES)


def rubric(stage: Stage) -> Rubric:
    """The rubric of a stage. Its checks take plans and implementations as JSON values too."""

    def of_plan(check: Callable[[AgentPlan, Stage], str | None]) -> Callable[[Any, Any, Any], str | None]:
        return lambda request, plan, implementation: check(parsed(AgentPlan, plan, "plan"), stage)

    def target_conflict(request: Any, plan: Any, implementation: Any) -> str | None:
        return shared_heads(parsed(AgentImplementation, implementation, "implementation"), stage)

    return Rubric(
        CATEGORIES,
        (
            AutomaticFailure(TARGET_CONFLICT, "implementation", target_conflict),
            AutomaticFailure(NO_LAYERING, "plan", of_plan(no_layers)),
            AutomaticFailure(STROBE, "plan", of_plan(too_much_strobe)),
            AutomaticFailure(COLOUR_SCENES, "plan", of_plan(too_many_scenes)),
        ),
    )


def shared_heads(implementation: AgentImplementation, stage: Stage) -> str | None:
    """Sections that use one head in one bar."""
    for first, second in conflicts(implementation, stage.heads):
        start = max(first.start_bar, second.start_bar)
        return f"'{first.name}' and '{second.name}' use the same heads from bar {start}"
    return None


def no_layers(plan: AgentPlan, stage: Stage) -> str | None:
    """No section with two templates, on a stage with heads to share."""
    if stage.heads < 2 or layered(plan) or not in_order(plan.sections):
        return None
    return "no section has a second template"


def too_much_strobe(plan: AgentPlan, stage: Stage) -> str | None:
    """More than 60 % of the bars strobe."""
    percent = strobed_percent(plan, stage) if stage.features.enable_shutter else 0.0
    return f"{percent:.0f} % of the bars strobe" if percent > 60 else None


def too_many_scenes(plan: AgentPlan, stage: Stage) -> str | None:
    """More than 15 colour scenes."""
    scenes = len(colour_scenes(plan, stage))
    return f"there are {scenes} colour scenes" if scenes > 15 else None
