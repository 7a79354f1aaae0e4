"""The deterministic implementer: a plan's templates on heads, and repairs that feedback asks for.

Without an implementation to go on from, or where its targets are at fault, every template gets heads anew.
Feedback is then applied literally: borders move to the song's, uncovered bars are filled, far jumps glide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from typing import Any

from detent.apps.choreography.domain.arrangement import FAR, conflicts, in_order, pose_changes, uncovered
from detent.apps.choreography.domain.plan import (
    AgentImplementation,
    AgentPlan,
    EntryTransition,
    ImplementationSection,
    SectionPlan,
)
from detent.apps.choreography.domain.rubric import ALIGNMENT, COVERAGE, TARGET_CONFLICT
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import Stage
from detent.flows.refine.feedback import Feedback

GLIDE = EntryTransition(mode="glide", duration_bars=0.5)
CUT = EntryTransition()


def implement(
    song: Song,
    plan: AgentPlan,
    stage: Stage,
    feedback: Sequence[Feedback] = (),
    previous: AgentImplementation | None = None,
) -> tuple[AgentImplementation, list[str]]:
    """Put a plan on heads; also give warnings of what was left out.

    `previous` is the implementation that the feedback is about, kept but for what the feedback names.
    """
    failing, automatic = _findings(feedback)
    usable = previous is not None and _fits(previous, plan, stage)
    if previous is not None and usable and TARGET_CONFLICT not in automatic:
        sections, warnings = list(previous.sections), list[str]()
    else:
        sections, warnings = _expanded(plan, stage)
    if ALIGNMENT in failing:
        sections = _aligned(sections, song)
    if COVERAGE in failing:
        sections = _covering(sections, song)
    sections = _entered(sections, stage)
    return (
        AgentImplementation(
            sections=tuple(sections),
            total_duration_bars=max((section.end_bar for section in sections), default=1),
            overall_strategy=plan.overall_strategy,
            implementation_approach=_approach(failing, automatic),
        ),
        warnings,
    )


def _findings(feedback: Iterable[Feedback]) -> tuple[set[str], set[str]]:
    """The failing categories and automatic failures that feedback names."""
    metadata: list[Mapping[str, Any]] = [entry.metadata for entry in feedback]
    failing = {row["category"] for entry in metadata for row in entry.get("failing", ())}
    return failing, {code for entry in metadata for code in entry.get("automatic_failures", ())}


def _approach(failing: set[str], automatic: set[str]) -> str:
    causes = ", ".join(sorted(failing | automatic))
    return f"Repaired after feedback: {causes}" if causes else "One template on all heads, several share them"


def _fits(implementation: AgentImplementation, plan: AgentPlan, stage: Stage) -> bool:
    """True if an implementation is one of this plan, on heads that exist and that no two sections share."""
    sections = implementation.sections
    planned = {(section.name, template) for section in plan.sections for template in section.templates}
    made = {(section.plan_section_name, section.template_id) for section in sections}
    return (
        made <= planned
        and {name for name, _ in made} == {name for name, _ in planned}
        and all(section.bars for section in sections)
        and all(target in stage.targets for section in sections for target in section.targets)
        and not conflicts(implementation, stage.heads)
    )


# -- heads ----------------------------------------------------------------------------------------------


def _expanded(plan: AgentPlan, stage: Stage) -> tuple[list[ImplementationSection], list[str]]:
    """Every template of every section on heads, anew wherever sections begin or end to overlap."""
    plan_sections = in_order(plan.sections)
    numbers = {id(section): number for number, section in enumerate(plan_sections)}
    edges = {section.start_bar for section in plan_sections} | {s.end_bar + 1 for s in plan_sections}
    pieces: dict[tuple[str, str], list[ImplementationSection]] = {}
    warnings: dict[str, None] = {}
    for start, following in pairwise(sorted(edges)):
        active = [s for s in plan_sections if s.start_bar <= start <= s.end_bar]
        layers = [
            (section, template_id)
            for section in active
            for template_id in dict.fromkeys(section.templates)
            if template_id in stage.library
        ]
        layers.sort(key=lambda layer: stage.library[layer[1]].layer_role != "base")
        for section, template_id in layers[stage.heads :]:
            heads = f"{stage.heads} head{'s' if stage.heads > 1 else ''}"
            warnings[f"'{template_id}' of '{section.name}' is left out: there are only {heads}."] = None
        layers = layers[: stage.heads]
        for priority, ((section, template_id), targets) in enumerate(
            zip(layers, _shares(len(layers), numbers[id(active[0])] if active else 0, stage), strict=True)
        ):
            made = pieces.setdefault((section.name, template_id), [])
            if made and made[-1].end_bar == start - 1 and made[-1].targets == targets:
                made[-1] = made[-1].model_copy(update={"end_bar": following - 1})
            else:
                made.append(_piece(section, template_id, targets, priority, start, following - 1))
    by_start = in_order(piece for made in pieces.values() for piece in made)
    return list(_named(by_start)), list(warnings)


def _shares(layers: int, number: int, stage: Stage) -> list[tuple[str, ...]]:
    """The targets of each of some layers; `number` counts the sections."""
    if layers <= 1:
        return [("ALL",)] * layers
    if layers == 2:
        pairs = [("LEFT", "RIGHT"), ("ODD", "EVEN"), ("CENTER", "OUTER")][: 3 if stage.heads >= 4 else 2]
        return [(target,) for target in pairs[number % len(pairs)]]
    heads = range(stage.heads)
    return [tuple(f"MH{k + 1}" for k in heads if k % layers == layer) for layer in range(layers)]


def _piece(
    section: SectionPlan, template_id: str, targets: tuple[str, ...], priority: int, start: int, end: int
) -> ImplementationSection:
    return ImplementationSection(
        name=f"{section.name}__{template_id}_{targets[0]}",
        plan_section_name=section.name,
        start_bar=start,
        end_bar=end,
        template_id=template_id,
        params=section.params,
        base_pose=section.base_pose,
        targets=targets,
        layer_priority=priority,
        reasoning=f"{'base' if priority == 0 else 'layer'} on {', '.join(targets)}",
    )


def _named(sections: Iterable[ImplementationSection]) -> Iterator[ImplementationSection]:
    """Sections with names of their own: from the second of a template on, with its number."""
    pieces = Counter[tuple[str, str]]()
    for section in sections:
        key = (section.plan_section_name, section.template_id)
        pieces[key] += 1
        suffix = f"_{pieces[key]}" if pieces[key] > 1 else ""
        yield section.model_copy(update={"name": section.name + suffix})


# -- repairs --------------------------------------------------------------------------------------------


def _aligned(sections: list[ImplementationSection], song: Song) -> list[ImplementationSection]:
    """Sections whose borders are moved to the nearest borders of the song, in order and none onto another."""
    moved = _moves(sections, song)

    def border(bar: int) -> int:
        return moved.get(bar, bar)

    return [
        section.model_copy(
            update={"start_bar": border(section.start_bar), "end_bar": border(section.end_bar + 1) - 1}
        )
        for section in sections
    ]


def _moves(sections: Iterable[ImplementationSection], song: Song) -> dict[int, int]:
    """Where each border that is not on one of the song's goes."""
    song_borders = [1, *song.borders, song.bars + 1]
    places = sorted({bar for section in sections for bar in (section.start_bar, section.end_bar + 1)})
    moves = {bar: bar for bar in places}

    def room(bar: int, to: int) -> bool:
        index = places.index(bar)
        below = moves[places[index - 1]] if index else 0
        above = moves[places[index + 1]] if index + 1 < len(places) else song.bars + 2
        return below < to < above

    astray = [bar for bar in places if bar not in song_borders]
    candidates = sorted((abs(bar - to), bar, to) for bar in astray for to in song_borders)
    for _, bar, to in candidates:
        if moves[bar] == bar and room(bar, to):
            moves[bar] = to
    for bar in astray:
        if moves[bar] == bar:
            start = max((place for place in song_borders if place <= bar), default=1)
            below = start + (bar - start) // 4 * 4
            grid = sorted((below, below + 4), key=lambda to: abs(bar - to))
            moves[bar] = next((to for to in grid if room(bar, to)), bar)
    return moves


def _covering(sections: list[ImplementationSection], song: Song) -> list[ImplementationSection]:
    """Sections cut at the song's end; those beside bars without a section are extended over them."""
    inside = [
        section.model_copy(update={"end_bar": min(section.end_bar, song.bars)})
        for section in sections
        if section.start_bar <= song.bars
    ]
    while inside and (missing := uncovered(inside, song)):
        first = missing[0]
        last = next(bar for bar in count(first) if bar + 1 not in missing)
        before = any(section.end_bar == first - 1 for section in inside)
        inside = [
            section.model_copy(update={"end_bar": last})
            if before and section.end_bar == first - 1
            else section.model_copy(update={"start_bar": first})
            if not before and section.start_bar == last + 1
            else section
            for section in inside
        ]
    return inside


def _entered(sections: list[ImplementationSection], stage: Stage) -> list[ImplementationSection]:
    """Sections that are entered by a glide where a head of theirs has far to go."""
    far = {id(change.after) for change in pose_changes(sections, stage) if change.jump > FAR}
    return [
        section
        if section.entry_transition.mode == "glide"
        else section.model_copy(update={"entry_transition": GLIDE if id(section) in far else CUT})
        for section in sections
    ]
