"""The deterministic planner: one plan section for each section of the song, chosen by measured energy."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle, pairwise

from detent.apps.choreography.domain.arrangement import (
    LONGEST_COLOUR_PERCENT,
    intensity_for,
    named_roles,
    speed_for,
)
from detent.apps.choreography.domain.plan import AgentPlan, Channels, Params, SectionPlan
from detent.apps.choreography.domain.song import Song, SongSection
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.template import Template
from detent.apps.choreography.domain.vocabulary import COLOURS, GOBOS
from detent.flows.refine.feedback import Feedback

STROBED_PERCENT = 30
"""Most of the song that strobes."""
WARM = ("red", "orange", "amber", "yellow", "warm_white")
MIDDLE = ("magenta", "white", "purple", "green", "lime")
CALM = ("blue", "cyan", "uv", "cool_white", "purple")
DENSE_GOBOS = ("prism", "stars", "shatter", "abstract")
LIGHT_GOBOS = ("circles", "clouds", "water", "dots")
_POSES = {
    "intro": "SOFT_HOME",
    "outro": "SOFT_HOME",
    "breakdown": "CEILING",
    "build": "FORWARD",
    "drop": "UP",
}


@dataclass(slots=True)
class _Draft:
    """A section while it is planned."""

    section: SongSection
    name: str
    role: str
    energy: float
    percent: float
    """Of the song's bars."""
    templates: list[str] = field(default_factory=list)
    shutter: str = "open"
    color: str = "white"
    gobo: str = "open"


def plan_show(song: Song, stage: Stage, feedback: Sequence[Feedback] = (), iteration: int = 1) -> AgentPlan:
    """Plan a show.

    Equal input gives an equal plan. Templates that feedback names in a section are avoided there, and ties
    are decided otherwise at every iteration.
    """
    drafts = _drafts(song)
    _choose_templates(drafts, stage, _blamed(feedback), iteration)
    _choose_shutters(drafts)
    _choose_colours(drafts, stage)
    _choose_gobos(drafts, stage)
    sides = cycle(("AUDIENCE_LEFT", "AUDIENCE_RIGHT"))
    sections = tuple(
        _planned(draft, next(sides) if draft.role == "chorus" else _POSES.get(draft.role, "AUDIENCE_CENTER"))
        for draft in drafts
    )
    used = [template for draft in drafts for template in draft.templates]
    return AgentPlan(
        sections=sections,
        overall_strategy=_strategy(drafts),
        template_variety_score=round(10 * len(set(used)) / len(used), 1) if used else 0,
        energy_alignment_score=10,
    )


def _drafts(song: Song) -> list[_Draft]:
    drafts = []
    for section, (name, role) in zip(song.sections, named_roles(song), strict=True):
        bars = section.end_bar - section.start_bar + 1
        energy = song.energy(section.start_bar, section.end_bar)
        drafts.append(_Draft(section, name, role, energy, 100 * bars / song.bars))
    return drafts


def _loudest(drafts: Iterable[_Draft]) -> list[_Draft]:
    """Drafts by energy, the loudest first; of equals, the earlier."""
    return sorted(drafts, key=lambda draft: -draft.energy)


def _blamed(feedback: Iterable[Feedback]) -> set[tuple[str, str]]:
    """The templates that feedback names in sections."""
    return {
        (weakness["section"], weakness["template"])
        for entry in feedback
        for failing in entry.metadata.get("failing", ())
        for weakness in failing.get("weaknesses", ())
        if weakness.get("section") and weakness.get("template")
    }


def _choose_templates(
    drafts: list[_Draft], stage: Stage, blamed: set[tuple[str, str]], iteration: int
) -> None:
    ids = list(stage.library)
    turn = (iteration - 1) % len(ids)
    candidates = ids[turn:] + ids[:turn]
    layers = max(1, math.floor(len(drafts) / 2 + 0.5)) if stage.heads > 1 else 0
    rich = {draft.name for draft in _loudest(drafts)[:layers]}
    uses, percents = Counter[str](), defaultdict[str, float](float)
    # The judge allows a template as much as the longest section needs, and so do its costs.
    most = max([40.0, *(draft.percent for draft in drafts)])
    before: list[str] = []
    for draft in drafts:
        for role in ("base", "accent") if draft.name in rich else ("base",):
            costs = {
                template_id: _cost(stage.library[template_id], draft, role)
                + 8 * uses[template_id]
                + 40 * (template_id in before)
                + 30 * (percents[template_id] + draft.percent > most)
                + 30 * ((draft.name, template_id) in blamed)
                for template_id in candidates
                if template_id not in draft.templates
            }
            if costs:
                draft.templates.append(min(costs, key=costs.__getitem__))
        for template_id in draft.templates:
            uses[template_id] += 1
            percents[template_id] += draft.percent
        before = draft.templates


def _cost(template: Template, draft: _Draft, role: str) -> float:
    """How badly a template fits a section, whatever else the plan uses."""
    low, high = template.metadata.energy_range if template.metadata else (0, 100)
    recommended = template.metadata.recommended_sections if template.metadata else ()
    return (
        4 * template.fits(draft.energy)
        + 12 * (draft.role not in recommended)
        + 15 * (template.layer_role != role)
        + 0.1 * abs(draft.energy - (low + high) / 2)
    )


def _choose_shutters(drafts: list[_Draft]) -> None:
    strobed = 0.0
    for draft in _loudest(drafts):
        draft.shutter = "open" if draft.energy <= 55 else "pulse"
        if draft.energy > 70 and strobed + draft.percent <= STROBED_PERCENT:
            draft.shutter = "strobe_fast" if draft.energy > 85 else "strobe_medium"
            strobed += draft.percent


def _choose_colours(drafts: list[_Draft], stage: Stage) -> None:
    """Colour scenes: contiguous groups, cut where the energy changes most."""
    wanted = min(len(drafts), max(3, min(5, math.ceil(len(drafts) / 2))))
    wheel = _Wheel(stage.names("color"))
    wanted = min(wanted, max(3, wheel.bold))  # a colour that must come back soon lasts too long
    for start, end in pairwise(_scene_cuts(drafts, wanted)):
        group = drafts[start:end]
        percent = sum(draft.percent for draft in group)
        mean = sum(draft.energy * draft.percent for draft in group) / percent
        loud = any(draft.energy > 70 for draft in group)
        colour = wheel.turn(WARM if loud else MIDDLE if mean >= 40 else CALM, percent, loud)
        for draft in group:
            draft.color = colour


class _Wheel:
    """The colours that there are, and how long each has been shown."""

    def __init__(self, known: Sequence[str]) -> None:
        self.known = known
        self.bold = sum(COLOURS[name].mood != "cool" for name in known)
        """How many of them fit loud music."""
        self.last = ""
        self.uses = Counter[str]()
        self.percents = defaultdict[str, float](float)

    def turn(self, palette: Sequence[str], percent: float, loud: bool) -> str:
        """The next colour of a palette, or where the wheel lacks it, another; never cool when loud."""
        fitting = [name for name in self.known if not (loud and COLOURS[name].mood == "cool")] or self.known
        preferred = [name for name in palette if name in fitting]
        new = [name for name in (*preferred, *fitting) if name != self.last]
        short = [name for name in new if self.percents[name] + percent <= LONGEST_COLOUR_PERCENT]
        choices = next(
            (
                names
                for names in (
                    [name for name in short if name in preferred],
                    short,
                    [name for name in new if name in preferred],
                    new,
                )
                if names
            ),
            fitting,
        )
        self.last = min(choices, key=self.uses.__getitem__)
        self.uses[self.last] += 1
        self.percents[self.last] += percent
        return self.last


def _scene_cuts(drafts: list[_Draft], scenes: int) -> list[int]:
    """Where scenes begin, and the end: at the largest steps of energy, unless one colour would last too long.

    Then of all divisions into as many scenes, none of them too long, the one with the largest steps in all.
    """
    steps = [0.0, *(abs(after.energy - before.energy) for before, after in pairwise(drafts)), 0.0]
    by_step = sorted(range(1, len(drafts)), key=lambda k: -steps[k])
    cuts = [0, *sorted(by_step[: scenes - 1]), len(drafts)]
    most = max([LONGEST_COLOUR_PERCENT, *(draft.percent for draft in drafts)]) + 1e-9
    ends = [0.0, *accumulate(draft.percent for draft in drafts)]
    if all(ends[end] - ends[start] <= most for start, end in pairwise(cuts)):
        return cuts
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [0])}
    for _ in range(scenes):
        longer: dict[int, tuple[float, list[int]]] = {}
        for start, (total, before) in best.items():
            for end in range(start + 1, len(drafts) + 1):
                if ends[end] - ends[start] > most:
                    break
                if end not in longer or total + steps[end] > longer[end][0]:
                    longer[end] = total + steps[end], [*before, end]
        best = longer
    return best[len(drafts)][1]  # there is one: any two neighbours are longer than half of the song


def _choose_gobos(drafts: list[_Draft], stage: Stage) -> None:
    known = stage.names("gobo")
    patterns = [name for name in known if name != "open"]
    thick = [name for name in patterns if GOBOS[name].density >= 5]
    dense = cycle([name for name in DENSE_GOBOS if name in known] or thick or patterns or known)
    light = cycle([name for name in LIGHT_GOBOS if name in known] or patterns or known)
    open_percent = 100.0
    for draft in _loudest(drafts):
        if draft.energy > 80:
            draft.gobo = next(dense)
        elif open_percent > 60 and open_percent - draft.percent >= 40:
            draft.gobo = next(light)
        else:
            continue
        open_percent -= draft.percent


def _planned(draft: _Draft, pose: str) -> SectionPlan:
    return SectionPlan(
        name=draft.name,
        start_bar=draft.section.start_bar,
        end_bar=draft.section.end_bar,
        section_role=draft.role,
        energy_level=round(draft.energy, 1),
        templates=tuple(draft.templates),
        params=Params(intensity=intensity_for(draft.energy), speed=speed_for(draft.energy)),
        base_pose=pose,
        reasoning=f"measured energy {draft.energy:.0f}: {' with '.join(draft.templates)}",
        channels=Channels(shutter=draft.shutter, color=draft.color, gobo=draft.gobo),
    )


def _strategy(drafts: list[_Draft]) -> str:
    if not drafts:
        return "the song has no sections"
    loudest = _loudest(drafts)
    low, high = loudest[-1], loudest[0]
    return f"from {low.name} at energy {low.energy:.0f} up to {high.name} at {high.energy:.0f}"
