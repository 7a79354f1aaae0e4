"""The deterministic judge: eight scores by formula, what cost points and where, and what to do about it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from detent.apps.choreography.domain.arrangement import (
    LONGEST_COLOUR_PERCENT,
    bars_inside,
    colour_scenes,
    conflicts,
    dark_share,
    in_order,
    intensity_for,
    layered,
    pose_changes,
    strangers,
    uncovered,
)
from detent.apps.choreography.domain.plan import (
    AgentImplementation,
    AgentPlan,
    Channels,
    ImplementationSection,
    SectionPlan,
)
from detent.apps.choreography.domain.rubric import (
    ALIGNMENT,
    COLOR,
    COMPLEXITY,
    COVERAGE,
    ENERGY,
    GOBO,
    SHUTTER,
    VARIETY,
    rubric,
)
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.domain.template import Template
from detent.apps.choreography.domain.vocabulary import COLOURS, GOBOS, SHUTTERS, STROBES
from detent.flows.refine.evaluation import CATEGORY_PASS, CategoryScore, Evaluation, Weakness

WEAKNESSES = 4
"""Most weaknesses listed of one category."""
CONTRAST = 30
"""A section that is louder by more must not have calmer templates."""
CLEARLY = 10
"""Energy by which templates must be calmer, to count as such: their ranges overlap."""
AGAINST_THE_MUSIC = 25
"""Points it costs if there is such a pair of sections."""
UNKNOWN = 100
"""Distance from its energy range of a template that does not exist."""


class _Finding(NamedTuple):
    """Something that cost points."""

    cost: float
    text: str
    advice: str
    section: str | None = None
    template: str | None = None


class _Result(NamedTuple):
    score: float
    reasoning: str
    findings: list[_Finding]


@dataclass(frozen=True)
class _Section:
    """A plan section, measured."""

    plan: SectionPlan
    energy: float
    weight: float
    """Share of the plan's bars inside the song."""
    channels: Channels
    templates: tuple[Template | None, ...]

    @property
    def name(self) -> str:
        return self.plan.name


class _Show:
    """A plan and its implementation, measured against the song."""

    def __init__(
        self, song: Song, plan: AgentPlan, implementation: AgentImplementation, stage: Stage
    ) -> None:
        self.song, self.plan, self.implementation, self.stage = song, plan, implementation, stage

    @cached_property
    def sections(self) -> list[_Section]:
        ordered = in_order(self.plan.sections)
        total = sum(bars_inside(section, self.song) for section in ordered) or 1
        return [
            _Section(
                section,
                self.song.energy(section.start_bar, section.end_bar),
                bars_inside(section, self.song) / total,
                self.stage.channels(section),
                tuple(self.stage.library.get(template_id) for template_id in section.templates),
            )
            for section in ordered
        ]

    @cached_property
    def parts(self) -> list[ImplementationSection]:
        return in_order(self.implementation.sections)

    def mean(self, value: Callable[[_Section], float]) -> float:
        """W: the mean over the sections, weighted by bars."""
        return sum(section.weight * value(section) for section in self.sections)


def judge(song: Song, plan: AgentPlan, implementation: AgentImplementation, stage: Stage) -> Evaluation:
    """Judge a show by the rubric."""
    show = _Show(song, plan, implementation, stage)
    results = {name: _judged(name, show) for name in _FORMULAS}
    scores = tuple(
        CategoryScore(
            name,
            round(result.score, 1),
            result.reasoning,
            () if result.findings else (f"nothing to improve in {name}",),
            tuple(Weakness(finding.text, finding.section, finding.template) for finding in result.findings),
        )
        for name, result in results.items()
    )
    automatic = rubric(stage).failures_of(None, plan, implementation)
    lowest = min(scores, key=lambda score: score.score)
    failing = [score.category for score in scores if score.score < CATEGORY_PASS]
    return Evaluation(
        category_scores=scores,
        automatic_failures=automatic,
        summary=f"Lowest: {lowest.category} {lowest.score:g}."
        + (f" Below {CATEGORY_PASS}: {', '.join(failing)}." if failing else "")
        + (f" Fails automatically: {', '.join(automatic)}." if automatic else ""),
        story_overview=_story(show),
        actionable_feedback=tuple(
            f"{finding.section + ': ' if finding.section else ''}{finding.advice}"
            for result in results.values()
            for finding in result.findings
        ),
        channel_scoring={
            channel: {
                "score": round(max(1.0, results[name].score / 10), 1),
                "issues": [finding.text for finding in results[name].findings],
            }
            for channel, name in _CHANNELS.items()
        },
    )


def _judged(name: str, show: _Show) -> _Result:
    """The score of a category, clamped, and the findings that cost most."""
    channel = _FEATURES.get(name)
    if channel is not None and not show.stage.features.enabled(channel):
        return _Result(100, f"{channel} is not in use", [])
    score, reasoning, findings = _FORMULAS[name](show)
    worst = sorted((finding for finding in findings if finding.cost > 0), key=lambda item: -item.cost)
    return _Result(_clamped(score), reasoning, worst[:WEAKNESSES])


def _clamped(score: float) -> float:
    return min(100.0, max(0.0, score))


def _story(show: _Show) -> str:
    return " → ".join(f"{section.name} ({section.energy:.0f})" for section in show.sections[:24])


def _alignment(show: _Show) -> _Result:
    song, parts = show.song, show.parts
    begun = {section.start_bar for section in song.sections}
    starts = {part.start_bar for part in parts}
    findings = []
    hits = 0.0
    for border in song.borders:
        near = 1.0 if border in starts else 0.5 if starts & {border - 1, border + 1} else 0.0
        hits += near
        if near < 1:
            nearest_bar = min(starts, key=lambda bar: (abs(bar - border), bar), default=border)
            part = next((part for part in parts if part.start_bar == nearest_bar), None)
            findings.append(
                _Finding(
                    60 * (1 - near) / len(song.borders),
                    f"the song changes at bar {border}, but nothing starts there",
                    f"start a section at bar {border}, where the song changes",
                    part.plan_section_name if part else None,
                )
            )
    share = hits / len(song.borders) if song.borders else 1.0
    clean = 0
    for part in parts:
        home = song.section_at(part.start_bar)
        on_grid = home is not None and (part.start_bar - home.start_bar) % 4 == 0
        finished = part.end_bar + 1 in begun or part.end_bar == song.bars or part.bars % 2 == 0
        clean += on_grid and finished
        if not (on_grid and finished):
            bars = f"bars {part.start_bar}–{part.end_bar}"
            findings.append(
                _Finding(
                    40 / len(parts),
                    f"{bars} of {part.template_id} do not lie on the song's 4-bar grid",
                    f"move {bars} to the nearest border of the song",
                    part.plan_section_name,
                )
            )
    grid = clean / len(parts) if parts else 0.0
    reasoning = f"{hits:g} of {len(song.borders)} borders met, {clean} of {len(parts)} parts on the grid"
    return _Result(60 * share + 40 * grid, reasoning, findings)


def _energy(show: _Show) -> _Result:
    findings = []
    for section in show.sections:
        for template_id, template in zip(section.plan.templates, section.templates, strict=True):
            distance = template.fits(section.energy) if template else UNKNOWN
            low, high = template.metadata.energy_range if template and template.metadata else (0, 100)
            findings.append(
                _Finding(
                    4 * section.weight * distance / len(section.templates),
                    f"{template_id} ({low:g}–{high:g}) at energy {section.energy:.0f}",
                    f"replace {template_id} by a template for energy {section.energy:.0f}",
                    section.name,
                    template_id,
                )
            )
        wanted = intensity_for(section.energy)
        if section.plan.params.intensity != wanted:
            findings.append(
                _Finding(
                    80 * section.weight,
                    f"{section.plan.params.intensity} at energy {section.energy:.0f}",
                    f"set the intensity to {wanted}",
                    section.name,
                )
            )
    distance = show.mean(_distance)
    wrong = show.mean(lambda section: section.plan.params.intensity != intensity_for(section.energy))
    reasoning = (
        f"templates {distance:.1f} from their ranges, {100 * wrong:.0f} % of bars in another intensity"
    )
    against = 0
    if pair := _most_against(show.sections):
        quiet, loud = pair
        against = AGAINST_THE_MUSIC
        text = f"calmer templates than {quiet.name}, {loud.energy - quiet.energy:.0f} below it in energy"
        advice = f"choose livelier templates than those of {quiet.name}"
        findings.append(_Finding(against, text, advice, loud.name, next(iter(loud.plan.templates), None)))
        reasoning += f", {loud.name} calmer than {quiet.name}"
    return _Result(100 - 4 * distance - 80 * wrong - against, reasoning, findings)


def _most_against(sections: Sequence[_Section]) -> tuple[_Section, _Section] | None:
    """A quiet section that is clearly livelier than a much louder one: the pair with the largest difference.

    Two sections of many weigh little in a mean over bars, but nothing is heard sooner.
    """
    ranked = sorted(sections, key=lambda section: section.energy)
    waiting = deque(ranked)
    liveliest: _Section | None = None
    worst: tuple[float, tuple[_Section, _Section] | None] = (CLEARLY, None)
    for loud in ranked:
        while loud.energy - waiting[0].energy > CONTRAST:
            quiet = waiting.popleft()
            liveliest = quiet if liveliest is None else max(liveliest, quiet, key=_aim)
        if liveliest is not None and (difference := _aim(liveliest) - _aim(loud)) > worst[0]:
            worst = difference, (liveliest, loud)
    return worst[1]


def _aim(section: _Section) -> float:
    """The energy that a section's templates are made for: the mean middle of their ranges."""
    ranges = [
        template.metadata.energy_range for template in section.templates if template and template.metadata
    ]
    return sum(low + high for low, high in ranges) / (2 * len(ranges)) if ranges else section.energy


def _distance(section: _Section) -> float:
    """Mean distance of a section's energy from the ranges of its templates."""
    distances = [template.fits(section.energy) if template else UNKNOWN for template in section.templates]
    return sum(distances) / len(distances)


def _variety(show: _Show) -> _Result:
    sections, findings = show.sections, []
    used = [template_id for section in sections for template_id in section.plan.templates]
    total = len(sections)
    variety = 100 * min(1.0, len(set(used)) / len(used) / 0.5) if used else 0.0
    if variety < 100:
        often, times = Counter(used).most_common(1)[0] if used else ("", 0)
        findings.append(
            _Finding(
                (100 - variety) / 2,
                f"{len(set(used))} templates in {len(used)} uses, {often} {times} times",
                f"use more different templates in place of {often}",
            )
        )
    if total > 3:
        shares = defaultdict[str, float](float)
        for section in sections:
            for template_id in set(section.plan.templates):
                shares[template_id] += section.weight
        top, share = max(shares.items(), key=lambda item: item[1])
        excess = 100 * share - max(40.0, 100 * max(section.weight for section in sections))
        if excess > 1e-9:
            variety -= 2 * excess
            text = f"{top} runs in {100 * share:.0f} % of the bars"
            findings.append(_Finding(excess, text, f"replace {top} in some sections"))
    for before, section in pairwise(sections):
        shared = [name for name in section.plan.templates if name in before.plan.templates]
        if shared:
            variety -= 10
            findings.append(
                _Finding(
                    5,
                    f"{shared[0]} again, after {before.name}",
                    f"replace {shared[0]}, which {before.name} has too",
                    section.name,
                    shared[0],
                )
            )
    layers = layered(show.plan)
    share = len(layers) / total if total else 0.0
    if total == 1:
        variety, layering = 100.0, 100.0 if layers else 0.0
    elif share < 0.4:
        layering = 250 * share
    else:
        layering = 100 - 100 * max(0.0, share - 0.6)
    if show.stage.heads == 1:
        layering = 100.0
    if layering < 100:
        more = share < 0.4
        text = f"{len(layers)} of {total} sections are layered"
        advice = f"{'add' if more else 'remove'} a template in some sections: 40 to 60 % are right"
        findings.append(_Finding((100 - layering) / 2, text, advice))
    reasoning = f"{len(set(used))} templates in {len(used)} uses, {len(layers)} of {total} sections layered"
    return _Result(_clamped(variety) / 2 + _clamped(layering) / 2, reasoning, findings)


def _coverage(show: _Show) -> _Result:
    song, parts, findings = show.song, show.parts, []
    foreign = strangers(show.plan, show.implementation)  # not what was planned, and so no section of it
    own = [part for part in parts if part not in foreign]
    missing = uncovered(own, song)
    percent = 100 * len(missing) / song.bars if song.bars else 0.0
    dark = 100 * dark_share(own, song, show.stage.heads)
    findings += [
        _Finding(
            100 / len(parts),
            f"{part.template_id} for '{part.plan_section_name}' is not what was planned",
            "make one section for each template of a section of the plan",
        )
        for part in foreign
    ]
    if missing:
        runs = _runs(missing)
        before = [part for part in parts if part.end_bar < missing[0]]
        neighbour = max(before, key=lambda part: part.end_bar).plan_section_name if before else None
        findings.append(_Finding(3 * percent, f"no section in bars {runs}", f"cover bars {runs}", neighbour))
    if dark - percent > 1e-9:
        text = f"heads have no section in {dark:.0f} % of their bars"
        findings.append(_Finding(3 * (dark - percent), text, "give every head a section in every bar"))
    pairs = conflicts(show.implementation, show.stage.heads)
    findings += [
        _Finding(
            25,
            f"{first.name} and {second.name} use the same heads",
            f"give {second.template_id} heads that {first.template_id} does not use",
            second.plan_section_name,
        )
        for first, second in pairs
    ]
    unknown = [
        (part, target) for part in parts for target in part.targets if target not in show.stage.targets
    ]
    findings += [
        _Finding(
            10,
            f"{part.name} is on {target}, which does not exist",
            f"choose targets among {', '.join(show.stage.targets)}",
            part.plan_section_name,
        )
        for part, target in unknown
    ]
    end = max((part.end_bar for part in parts), default=0)
    past = max(0, end - song.bars)
    if past:
        last = max(parts, key=lambda part: part.end_bar).plan_section_name
        text = f"{past} bars past the song's end, bar {song.bars}"
        findings.append(_Finding(5 * past, text, f"end at bar {song.bars}", last))
    reasoning = f"{percent:.0f} % of bars without a section, {len(pairs)} conflicts"
    return _Result(100 - 3 * dark - 25 * len(pairs) - 10 * len(unknown) - 5 * past, reasoning, findings)


def _runs(bars: list[int]) -> str:
    """Bars as text, at most five runs of them."""
    known = set(bars)
    starts = [bar for bar in bars if bar - 1 not in known][:5]
    ends = [bar for bar in bars if bar + 1 not in known][:5]
    return ", ".join(f"{start}–{end}" for start, end in zip(starts, ends, strict=True))


def _shutter_fit(section: _Section) -> float:
    energy, strength = section.energy, SHUTTERS[section.channels.shutter].energy
    if section.channels.shutter == "closed":
        return 0.0
    if energy > 70:
        return 1.0 if strength >= 7 else 0.7 if strength == 6 else 0.3
    if energy < 40:
        return 1.0 if strength <= 5 else 0.7 if strength == 6 else 0.0
    return 1.0 if strength <= 7 else 0.3


def _shutter(show: _Show) -> _Result:
    percent = 100 * show.mean(lambda section: section.channels.shutter in STROBES)
    findings = []
    for section in show.sections:
        fit = _shutter_fit(section)
        harder = section.energy > 70 or section.channels.shutter == "closed"
        findings.append(
            _Finding(
                100 * section.weight * (1 - fit),
                f"shutter {section.channels.shutter} at energy {section.energy:.0f}",
                f"choose a {'livelier' if harder else 'calmer'} shutter than {section.channels.shutter}",
                section.name,
            )
        )
    if percent > 30:
        strobed = [section for section in show.sections if section.channels.shutter in STROBES]
        quietest = min(strobed, key=lambda section: section.energy).name if strobed else None
        text = f"{percent:.0f} % of the bars strobe"
        findings.append(_Finding(2 * (percent - 30), text, "strobe at most 30 % of the bars", quietest))
    score = 100 * show.mean(_shutter_fit) - 2 * max(0.0, percent - 30)
    return _Result(score, f"{percent:.0f} % of the bars strobe", findings)


def _color(show: _Show) -> _Result:
    scenes, total = len(colour_scenes(show.plan, show.stage)), len(show.sections)
    names = show.stage.names("color")
    bold = [name for name in names if COLOURS[name].mood != "cool"]
    avoidable = bool(bold)
    choices = len(bold or names)
    least = min(3, total) if choices > 1 else 1  # nothing is asked that the wheels cannot do

    def cool(section: _Section) -> bool:
        return avoidable and section.energy > 70 and COLOURS[section.channels.color].mood == "cool"

    findings = [
        _Finding(
            60 * section.weight,
            f"{section.channels.color} is cool at energy {section.energy:.0f}",
            f"choose a warm colour in place of {section.channels.color}",
            section.name,
        )
        for section in show.sections
        if cool(section)
    ]
    if scenes < least:
        text = f"{scenes} colour scenes in {total} sections"
        findings.append(_Finding(20 * (least - scenes), text, f"use at least {least} colour scenes"))
    if scenes > 5:
        text = f"{scenes} colour scenes"
        findings.append(
            _Finding(15 * (scenes - 5), text, "keep a colour over several sections: 5 scenes at most")
        )
    score = 100 - 20 * max(0, least - scenes) - 15 * max(0, scenes - 5) - 60 * show.mean(cool)
    reasoning = f"{scenes} colour scenes in {total} sections"
    if total > 3 and choices > 2:  # scenes do not say how long one lasts
        shares = defaultdict[str, float](float)
        for section in show.sections:
            shares[section.channels.color] += 100 * section.weight
        top, share = max(shares.items(), key=lambda item: item[1])
        longest = max(100 * section.weight for section in show.sections)
        excess = share - max(LONGEST_COLOUR_PERCENT, longest)
        reasoning += f", {top} in {share:.0f} % of the bars"
        if excess > 1e-9:
            score -= 2 * excess
            text = f"{top} lasts {share:.0f} % of the bars"
            findings.append(_Finding(2 * excess, text, f"choose other colours for some sections in {top}"))
    return _Result(score if total else 0, reasoning, findings)


def _gobo(show: _Show) -> _Result:
    open_percent = 100 * show.mean(lambda section: section.channels.gobo == "open")
    loud = 100 * show.mean(lambda section: section.energy > 80)
    findings = []
    thickest = max(GOBOS[name].density for name in show.stage.names("gobo"))

    def dense(section: _Section) -> bool:
        return GOBOS[section.channels.gobo].density >= min(5, thickest)

    least, most = min(50.0, 100 - loud), 60.0
    astray = max(0.0, open_percent - most, least - open_percent)
    openness = 100.0 if len(show.sections) <= 3 else _clamped(100 - 2.5 * astray)
    if openness < 100:
        few = open_percent < least
        text = f"{open_percent:.0f} % of the bars have an open beam"
        advice = f"{'open the beam' if few else 'choose a gobo'} in more sections: {least:.0f} to 60 % open"
        findings.append(_Finding(0.6 * (100 - openness), text, advice))
    impact = 100.0
    if loud > 1e-9:
        impact = 100 * show.mean(lambda section: section.energy > 80 and dense(section)) / (loud / 100)
    findings += [
        _Finding(
            40 * section.weight * 100 / loud,
            f"gobo {section.channels.gobo} is thin at energy {section.energy:.0f}",
            f"choose a denser gobo than {section.channels.gobo}",
            section.name,
        )
        for section in show.sections
        if section.energy > 80 and section.weight and not dense(section)
    ]
    hidden = [s for s in show.sections if s.channels.shutter == "closed" and s.channels.gobo != "open"]
    findings += [
        _Finding(10, f"gobo {s.channels.gobo} behind a closed shutter", "open the shutter", s.name)
        for s in hidden
    ]
    score = 0.6 * openness + 0.4 * _clamped(impact) - 10 * len(hidden)
    return _Result(score if show.sections else 0, f"{open_percent:.0f} % of the bars open", findings)


def _complexity(show: _Show) -> _Result:
    sections, findings = show.sections, []
    depth = min(100.0, 100 * show.mean(lambda section: len(section.templates)) / 1.5)
    if depth < 100 and show.stage.heads > 1:
        text = f"{depth * 1.5 / 100:.1f} templates per section on average"
        findings.append(_Finding(0.4 * (100 - depth), text, "add another template to long sections"))
    changes = list(pose_changes(show.parts, show.stage))
    rough = [change for change in changes if not change.smooth]
    smooth = 100 * (1 - len(rough) / len(changes)) if changes else 100.0
    for name, heads in Counter(change.after.plan_section_name for change in rough).items():
        jump = max(change.jump for change in rough if change.after.plan_section_name == name)
        cost = 30 * heads / len(changes)
        text = f"heads jump {jump:.0f}° into the section"
        findings.append(_Finding(cost, text, "glide in, or choose a nearer pose", name))
    movements = {
        movement
        for section in sections
        for template in section.templates
        if template is not None
        for movement in template.movements
    }
    wanted = min(5, len(sections))
    rich = min(1.0, len(movements) / wanted) if wanted else 0.0
    if rich < 1:
        text = f"{len(movements)} different movements"
        advice = f"use templates of at least {wanted} different movements"
        findings.append(_Finding(30 * (1 - rich), text, advice))
    reasoning = f"{len(movements)} movements, {len(rough)} of {len(changes)} changes jump"
    return _Result(0.4 * depth + 0.3 * smooth + 30 * rich, reasoning, findings)


_FORMULAS: dict[str, Callable[[_Show], _Result]] = {
    ALIGNMENT: _alignment,
    ENERGY: _energy,
    VARIETY: _variety,
    COVERAGE: _coverage,
    SHUTTER: _shutter,
    COLOR: _color,
    GOBO: _gobo,
    COMPLEXITY: _complexity,
}
_FEATURES = {SHUTTER: "shutter", COLOR: "color", GOBO: "gobo"}
_CHANNELS = {"shutter": SHUTTER, "color": COLOR, "gobo": GOBO, "visual_impact": GOBO}
