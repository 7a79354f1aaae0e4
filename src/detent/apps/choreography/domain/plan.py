"""Plans and implementations: what an agent or code decides about a show, in bars. No milliseconds, no DMX.

Read strictly: unknown keys and wrong types are refused with their place.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Energy = Annotated[float, Field(ge=0, le=100)]
MOST_BARS, MOST_SECTIONS = 100_000, 2_000
"""More than 90 minutes hold, so that nobody's plan can keep the machine busy for long."""
Bar = Annotated[int, Field(ge=1, le=MOST_BARS)]
LastBar = Annotated[int, Field(le=MOST_BARS)]
"""Inclusive. An end before the start is a validation error, not a schema violation."""


class Part(BaseModel):
    """A frozen value whose unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(mode="json")


class Params(Part):
    """How a template moves. The names are those of the vocabulary; unknown ones are validation errors."""

    intensity: str = "DRAMATIC"
    speed: str = "MODERATE"
    start_pose: str | None = None
    end_pose: str | None = None


class Channels(Part):
    """What the light looks like. Unknown names are warned of, and the default is used."""

    shutter: str = "open"
    color: str = "white"
    gobo: str = "open"


class SectionPlan(Part):
    """One section of the show. Sections may overlap."""

    name: str = Field(min_length=1)
    start_bar: Bar
    end_bar: LastBar
    section_role: Literal[
        "intro", "verse", "chorus", "bridge", "build", "drop", "breakdown", "transition", "outro"
    ]
    energy_level: Energy
    """The planner's claim; what counts is the measured energy."""
    templates: tuple[str, ...] = Field(min_length=1, max_length=4)
    params: Params = Params()
    base_pose: str = "AUDIENCE_CENTER"
    reasoning: str = ""
    channels: Channels = Channels()

    @property
    def bars(self) -> int:
        """How many bars it lasts; none if it ends before it starts."""
        return max(0, self.end_bar - self.start_bar + 1)


class AgentPlan(Part):
    """A whole show, section by section."""

    sections: tuple[SectionPlan, ...] = Field(max_length=MOST_SECTIONS)
    overall_strategy: str = ""
    template_variety_score: float = Field(5, ge=0, le=10)
    """Reported by the planner about itself; recorded, and decides nothing."""
    energy_alignment_score: float = Field(5, ge=0, le=10)

    def section(self, name: str) -> SectionPlan | None:
        """The section of this name."""
        return next((one for one in self.sections if one.name == name), None)


class EntryTransition(Part):
    """How heads get from the section before to the pose of this one."""

    mode: Literal["cut", "glide"] = "cut"
    duration_bars: float = Field(0.0, ge=0)


class ImplementationSection(Part):
    """One template on some heads for some bars."""

    name: str
    """`<plan section>__<template>_<first target>`, with a suffix where a section is divided."""
    plan_section_name: str
    start_bar: Bar
    end_bar: LastBar
    template_id: str
    params: Params = Params()
    base_pose: str = "AUDIENCE_CENTER"
    targets: tuple[str, ...] = Field(min_length=1)
    layer_priority: int = Field(0, ge=0)
    """0 is the base layer; higher wins."""
    entry_transition: EntryTransition = EntryTransition()
    reasoning: str = ""

    @property
    def bars(self) -> int:
        """How many bars it lasts."""
        return max(0, self.end_bar - self.start_bar + 1)


class AgentImplementation(Part):
    """The plan expanded onto heads."""

    sections: tuple[ImplementationSection, ...] = Field(max_length=4 * MOST_SECTIONS)
    total_duration_bars: Bar
    quantization_applied: bool = True
    timing_precision: Literal["beat_aligned", "bar_aligned", "raw"] = "bar_aligned"
    overall_strategy: str = ""
    implementation_approach: str = ""
