"""Faults planted in good shows, to measure the power of checks: what each does, and what must catch it.

A fault changes a plan and its implementation alike, as if whoever made the show had made it so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from detent.apps.choreography.domain.arrangement import in_order
from detent.apps.choreography.domain.implementer import implement
from detent.apps.choreography.domain.plan import (
    AgentImplementation,
    AgentPlan,
    Channels,
    ImplementationSection,
    Params,
    SectionPlan,
)
from detent.apps.choreography.domain.rubric import (
    ALIGNMENT,
    COLOR,
    COVERAGE,
    ENERGY,
    GOBO,
    NO_LAYERING,
    SHUTTER,
    STROBE,
    TARGET_CONFLICT,
    VARIETY,
)
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.vocabulary import COLOURS, GOBOS, INTENSITIES, SHUTTERS, SPEEDS

Show = tuple[AgentPlan, AgentImplementation]
Planting = Callable[[Song, AgentPlan, AgentImplementation, Stage], Show]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and the category or automatic failure that must name it."""

    name: str
    expected: str
    plant: Planting
    """From song, plan, implementation and stage to the faulty plan and implementation."""


def _replanned(change: Callable[[Song, list[SectionPlan]], list[SectionPlan]]) -> Planting:
    """A fault of the plan, implemented as planned."""

    def plant(song: Song, plan: AgentPlan, implementation: AgentImplementation, stage: Stage) -> Show:
        faulty = plan.model_copy(update={"sections": tuple(change(song, in_order(plan.sections)))})
        return faulty, implement(song, faulty, stage)[0]

    return plant


def _with(section: SectionPlan, **channels: str) -> SectionPlan:
    """A section with other channels."""
    return section.model_copy(update={"channels": section.channels.model_copy(update=channels)})


def late(bars: int) -> Planting:
    """Every inner border some bars late, in plan and implementation."""

    def shifted(section: SectionPlan, song: Song) -> SectionPlan:
        end = section.end_bar + bars if section.end_bar < song.bars else section.end_bar
        end = min(end, song.bars)
        start = section.start_bar if section.start_bar == 1 else min(section.start_bar + bars, end)
        return section.model_copy(update={"start_bar": start, "end_bar": end})

    return _replanned(lambda song, sections: [shifted(section, song) for section in sections])


def exchanged(pairs: int | None = None) -> Planting:
    """Templates and intensities of the loudest and the quietest section exchanged, then of the next loudest
    and quietest, for some pairs or for all."""

    def change(song: Song, sections: list[SectionPlan]) -> list[SectionPlan]:
        ranked = sorted(sections, key=lambda section: song.energy(section.start_bar, section.end_bar))
        half = len(ranked) // 2 if pairs is None else min(pairs, len(ranked) // 2)
        opposite = {id(section): section for section in ranked}
        for quiet, loud in zip(ranked[:half], reversed(ranked), strict=False):
            opposite[id(quiet)], opposite[id(loud)] = loud, quiet
        return [_in_the_manner_of(opposite[id(section)], section) for section in sections]

    return _replanned(change)


def _in_the_manner_of(other: SectionPlan, section: SectionPlan) -> SectionPlan:
    params = section.params.model_copy(update={"intensity": other.params.intensity})
    return section.model_copy(update={"templates": other.templates, "params": params})


def _one_pair(song: Song, sections: list[SectionPlan]) -> list[SectionPlan]:
    pair = max((section.templates for section in sections), key=len)
    if len(pair) == 1:
        others = [name for section in sections for name in section.templates if name not in pair]
        pair = (*pair, *others[:1])
    return [section.model_copy(update={"templates": pair}) for section in sections]


def _last_third_missing(song: Song, sections: list[SectionPlan]) -> list[SectionPlan]:
    end = 2 * song.bars // 3
    return [
        section.model_copy(update={"end_bar": min(section.end_bar, end)})
        for section in sections
        if section.start_bar <= end
    ]


def _every_second(shutter: str) -> Planting:
    """The first, third and every second section after it."""
    return _replanned(
        lambda song, sections: [
            section if number % 2 else _with(section, shutter=shutter)
            for number, section in enumerate(sections)
        ]
    )


def _everywhere(**channels: str) -> Planting:
    return _replanned(lambda song, sections: [_with(section, **channels) for section in sections])


def _heads_shared(song: Song, plan: AgentPlan, implementation: AgentImplementation, stage: Stage) -> Show:
    """Every template on all heads, whatever else runs."""

    def on_all(section: ImplementationSection) -> ImplementationSection:
        return section.model_copy(update={"targets": ("ALL",)})

    sections = tuple(on_all(section) for section in implementation.sections)
    return plan, implementation.model_copy(update={"sections": sections})


def _no_layers(song: Song, sections: list[SectionPlan]) -> list[SectionPlan]:
    return [section.model_copy(update={"templates": section.templates[:1]}) for section in sections]


FAULTS = (
    Fault("borders one bar late", ALIGNMENT, late(1)),
    Fault("borders two bars late", ALIGNMENT, late(2)),
    Fault("loudest and quietest exchanged", ENERGY, exchanged(1)),
    Fault("energy against the music", ENERGY, exchanged()),
    Fault("one pair of templates throughout", VARIETY, _replanned(_one_pair)),
    Fault("last third without sections", COVERAGE, _replanned(_last_third_missing)),
    Fault("every second section strobes fast", SHUTTER, _every_second("strobe_fast")),
    Fault("all shutters closed", SHUTTER, _everywhere(shutter="closed")),
    Fault("blue throughout", COLOR, _everywhere(color="blue")),
    Fault("shatter throughout", GOBO, _everywhere(gobo="shatter")),
    Fault("shared heads", TARGET_CONFLICT, _heads_shared),
    Fault("no layers", NO_LAYERING, _replanned(_no_layers)),
    Fault("all strobe", STROBE, _everywhere(shutter="strobe_fast")),
)
"""The faults of every category that a plan can have alone, and of the automatic failures."""


def random_plan(song: Song, stage: Stage, dice: random.Random) -> AgentPlan:
    """A valid plan along the song's sections whose choices are all drawn at random."""

    def drawn(number: int, start: int, end: int) -> SectionPlan:
        ids = list(stage.library)
        return SectionPlan(
            name=f"Part {number}",
            start_bar=start,
            end_bar=end,
            section_role=dice.choice(("intro", "verse", "chorus", "bridge", "drop", "outro")),
            energy_level=dice.randint(0, 100),
            templates=tuple(dice.sample(ids, min(len(ids), dice.choice((1, 1, 2))))),
            params=Params(intensity=_one_of(INTENSITIES, dice), speed=_one_of(SPEEDS, dice)),
            base_pose=_one_of(stage.poses, dice),
            channels=Channels(
                shutter=_one_of(SHUTTERS, dice), color=_one_of(COLOURS, dice), gobo=_one_of(GOBOS, dice)
            ),
        )

    return AgentPlan(
        sections=tuple(
            drawn(number, section.start_bar, section.end_bar)
            for number, section in enumerate(song.sections, start=1)
        )
    )


def _one_of(names: Mapping[str, object], dice: random.Random) -> str:
    return dice.choice(list(names))
