"""A template: movements, geometries and dimmers for a cycle of bars, and what the template is good for.

Time. The steps lie in a cycle of `default_duration_bars`; where steps of one cycle overlap on a head, the
later in the list wins. A looped step comes back every cycle, counted from the first bar of the plan
section; steps that do not loop are stretched together, so that one cycle is the whole section. Speed is a
factor on the length of looped cycles and of `cycle_bars`; what is counted in beats stays on the beats. A
head that no step names holds on the pose at the light of the first step.

Poses. `sway`, `tilt_wave`, `circle`, `figure8` and `snap` are added to the section's pose. The poses of
`steps` and `ramp` are absolute; a ramp goes from the section's `start_pose` to its `end_pose` where it
has them, else from the first to the last of `poses`, and a single pose is where it ends, begun at the
section's pose. `mirror` negates the pan of the right half: of the movement where that is added, of the
pose where that is absolute.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from detent.apps.choreography.domain.plan import EntryTransition, Part

Movement = Literal["hold", "sway", "tilt_wave", "circle", "figure8", "steps", "ramp", "snap"]
Geometry = Literal["together", "fan", "cross", "chevron", "mirror", "alternate"]
Dimmer = Literal["level", "breathe", "beat_pulse", "fade_in", "fade_out", "chase", "doubling"]


class Timing(Part):
    """The length of a template's cycle."""

    default_duration_bars: float = Field(gt=0)


class TemplateStep(Part):
    """A part of the cycle: what some of the template's heads do from an offset on, for some bars."""

    step_id: str
    target: str = "ALL"
    """A target set, counted among the heads that the template is given."""
    start_offset_bars: float = Field(0.0, ge=0)
    duration_bars: float = Field(gt=0)
    loop: bool = True
    """Begin anew when its bars are over; otherwise it stretches over the whole section."""
    phase_offset: float = 0.0
    """Share of a cycle by which each head is behind the one before."""
    movement_id: Movement = "hold"
    movement_params: dict[str, Any] = Field(default_factory=dict)
    """`amplitude` in degrees, and `amplitude_to` where it grows or shrinks over the step; `poses` for
    `steps` and `ramp`; `cycle_bars` or `cycle_beats` where a cycle is not the step's bars; `rung_beats` of a
    ramp that climbs in rungs, the beats each of them is held."""
    geometry_id: Geometry = "together"
    geometry_params: dict[str, Any] = Field(default_factory=dict)
    """`spread` in degrees; `from` and `to` where it opens or closes over the step."""
    dimmer_id: Dimmer = "level"
    dimmer_params: dict[str, Any] = Field(default_factory=dict)
    """`level`, or `lo` and `hi`, from 0 to 1; `order` of a chase: `left` to right, or `outward`."""
    entry_transition: EntryTransition = EntryTransition()
    exit_transition: EntryTransition = EntryTransition()


class Metadata(Part):
    """What a template is good for."""

    description: str = ""
    recommended_sections: tuple[str, ...] = ()
    energy_range: tuple[float, float] = (0, 100)
    tags: tuple[str, ...] = ()


class Template(Part):
    """One file of the library."""

    template_id: str = Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")
    name: str
    category: Literal["low_energy", "medium_energy", "high_energy"]
    layer_role: Literal["base", "accent"]
    timing: Timing
    steps: tuple[TemplateStep, ...] = Field(min_length=1)
    metadata: Metadata | None = None

    def fits(self, energy: float) -> float:
        """Distance of an energy from the template's range; 0 inside."""
        low, high = self.metadata.energy_range if self.metadata else (0, 100)
        return max(low - energy, 0, energy - high)

    @property
    def movements(self) -> frozenset[str]:
        """The movements of its steps."""
        return frozenset(step.movement_id for step in self.steps)
