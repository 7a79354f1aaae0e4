"""What plans and implementations amount to in bars: order, layers, conflicts, changes of pose, scenes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple, TypeVar

from detent.apps.choreography.domain.plan import (
    AgentImplementation,
    AgentPlan,
    ImplementationSection,
    SectionPlan,
)
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.targets import heads_of
from detent.apps.choreography.domain.vocabulary import STROBES

S = TypeVar("S", SectionPlan, ImplementationSection)
LONGEST_COLOUR_PERCENT = 50
"""Most of a song that one colour should last, or as long as its longest section."""
FAR = 60
"""Degrees in pan or tilt above which heads must glide to a new pose."""


def named_roles(song: Song) -> list[tuple[str, str]]:
    """For each section of a song, the name and the role that a plan gives it; no name comes twice."""
    roles = ["verse" if section.label == "full" else section.label for section in song.sections]
    totals, seen = Counter(roles), Counter[str]()
    names = []
    for role in roles:
        seen[role] += 1
        single = role in ("intro", "outro") and totals[role] == 1
        names.append((role.capitalize() if single else f"{role.capitalize()} {seen[role]}", role))
    return names


def in_order(sections: Iterable[S]) -> list[S]:
    """Sections as they begin; those that end before they start, which last no bar, are left out."""
    return sorted((section for section in sections if section.bars), key=lambda section: section.start_bar)


def layered(plan: AgentPlan) -> list[SectionPlan]:
    """The sections with two or more templates, or that share a bar with another section."""
    sections, end, layers = in_order(plan.sections), 0, []
    for section, following in zip_longest(sections, sections[1:]):
        shared = section.start_bar <= end or (following and following.start_bar <= section.end_bar)
        if shared or len(section.templates) > 1:
            layers.append(section)
        end = max(end, section.end_bar)
    return layers


def bars_inside(section: SectionPlan | ImplementationSection, song: Song) -> int:
    """How many bars of the song a section lasts."""
    return max(0, min(section.end_bar, song.bars) - section.start_bar + 1)


def uncovered(sections: Sequence[SectionPlan] | Sequence[ImplementationSection], song: Song) -> list[int]:
    """The bars of the song without a section."""
    covered: set[int] = set()
    for section in sections:
        covered.update(range(section.start_bar, min(section.end_bar, song.bars) + 1))
    return [bar for bar in range(1, song.bars + 1) if bar not in covered]


def dark_share(sections: Sequence[ImplementationSection], song: Song, heads: int) -> float:
    """Share of the bars of all heads in which a head has no section."""
    lit = [set[int]() for _ in range(heads)]
    for section in sections:
        bars = range(section.start_bar, min(section.end_bar, song.bars) + 1)
        for head in heads_of(section.targets, heads):
            lit[head].update(bars)
    return 1 - sum(map(len, lit)) / (heads * song.bars) if song.bars else 0.0


def strangers(plan: AgentPlan, implementation: AgentImplementation) -> list[ImplementationSection]:
    """Sections that carry out no section of the plan, or a template that their section does not have."""
    planned = {(section.name, template) for section in plan.sections for template in section.templates}
    return [
        section
        for section in implementation.sections
        if (section.plan_section_name, section.template_id) not in planned
    ]


def conflicts(
    implementation: AgentImplementation, heads: int
) -> list[tuple[ImplementationSection, ImplementationSection]]:
    """Pairs of sections that use one head in one bar."""
    sections = in_order(implementation.sections)
    used = [heads_of(section.targets, heads) for section in sections]
    pairs = []
    for index, first in enumerate(sections):
        for later in range(index + 1, len(sections)):
            if sections[later].start_bar > first.end_bar:
                break
            if used[index] & used[later]:
                pairs.append((first, sections[later]))
    return pairs


class PoseChange(NamedTuple):
    """A head that goes from one plan section to the next."""

    head: int
    before: ImplementationSection
    after: ImplementationSection
    jump: float
    """Degrees."""

    @property
    def smooth(self) -> bool:
        """True if the jump is short, or the head glides."""
        return self.jump <= FAR or self.after.entry_transition.mode == "glide"


def pose_changes(sections: Iterable[ImplementationSection], stage: Stage) -> Iterator[PoseChange]:
    """The changes of plan section of every head, in the order of time."""
    last: dict[int, ImplementationSection] = {}
    for section in in_order(sections):
        for head in sorted(heads_of(section.targets, stage.heads)):
            before = last.get(head)
            if before is not None and before.plan_section_name != section.plan_section_name:
                yield PoseChange(head, before, section, stage.jump(before.base_pose, section.base_pose))
            last[head] = section


def colour_scenes(plan: AgentPlan, stage: Stage) -> list[tuple[str, list[SectionPlan]]]:
    """Runs of consecutive sections of one colour."""
    runs = groupby(in_order(plan.sections), key=lambda section: stage.channels(section).color)
    return [(colour, list(sections)) for colour, sections in runs]


def strobed_percent(plan: AgentPlan, stage: Stage) -> float:
    """Share of the plan's bars that strobe."""
    total = sum(section.bars for section in plan.sections)
    strobed = sum(section.bars for section in plan.sections if stage.channels(section).shutter in STROBES)
    return 100 * strobed / total if total else 0.0


def intensity_for(energy: float) -> str:
    """The intensity that a measured energy asks for."""
    return "SMOOTH" if energy < 40 else "DRAMATIC" if energy <= 75 else "INTENSE"


def speed_for(energy: float) -> str:
    """The speed that a measured energy asks for."""
    return "SLOW" if energy < 35 else "MODERATE" if energy < 75 else "FAST"
