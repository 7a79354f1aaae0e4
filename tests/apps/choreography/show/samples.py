"""Songs, plans and shows with known truth, made without audio, planner or engine."""

from __future__ import annotations

from detent.apps.choreography.domain.plan import (
    AgentImplementation,
    AgentPlan,
    EntryTransition,
    ImplementationSection,
    Params,
    SectionPlan,
)
from detent.apps.choreography.domain.song import Song, SongSection
from detent.apps.choreography.domain.stage import Stage
from detent.apps.choreography.show.fixtures import DEFAULT_RIG, Rig
from detent.apps.choreography.show.render import Rendering, render

MEDIA = "/songs/winter lights.mp3"


def song(
    bars: int = 24, bpm: float = 120.0, beats_per_bar: int = 4, drift: float = 0.0, downbeat: float = 0.0
) -> Song:
    """A song whose beats are `drift` of their length longer at its end than at its start."""
    count = bars * beats_per_bar
    lengths = [60 / bpm * (1 + drift * place / max(count - 1, 1)) for place in range(count)]
    beats = [downbeat]
    for length in lengths:
        beats.append(beats[-1] + length)
    duration = beats.pop()
    starts = (0.0, *beats[beats_per_bar::beats_per_bar])
    third = max(bars // 3, 1)
    sections = tuple(
        SongSection(f"S{number + 1}", label, first, last, energy)
        for number, (label, first, last, energy) in enumerate(
            [
                ("intro", 1, third, 25.0),
                ("verse", third + 1, 2 * third, 60.0),
                ("chorus", 2 * third + 1, bars, 90.0),
            ]
        )
        if first <= last
    )
    energies = tuple(
        next((one.energy for one in sections if one.start_bar <= bar <= one.end_bar), 50.0)
        for bar in range(1, bars + 1)
    )
    return Song(duration, bpm, starts, tuple(beats), beats_per_bar, energies, sections)


def planned(
    name: str,
    start_bar: int,
    end_bar: int,
    *templates: str,
    role: str = "verse",
    energy: float = 50,
    channels: tuple[str, str, str] = ("open", "white", "open"),
    **facts: object,
) -> SectionPlan:
    """A section of a plan."""
    shutter, color, gobo = channels
    return SectionPlan.model_validate(
        {
            "name": name, "start_bar": start_bar, "end_bar": end_bar, "templates": templates,
            "section_role": role, "energy_level": energy,
            "channels": {"shutter": shutter, "color": color, "gobo": gobo}, **facts,
        }
    )  # fmt: skip


def part(
    section: SectionPlan, template: str, *targets: str, glide: float = 0, **facts: object
) -> ImplementationSection:
    """A template of a planned section on some heads."""
    entry = EntryTransition(mode="glide", duration_bars=glide) if glide else EntryTransition()
    return ImplementationSection(
        name=f"{section.name}__{template}_{targets[0]}",
        plan_section_name=section.name,
        template_id=template,
        targets=targets,
        entry_transition=entry,
        **{
            "start_bar": section.start_bar, "end_bar": section.end_bar, "params": section.params,
            "base_pose": section.base_pose, **facts,
        },
    )  # fmt: skip


def implemented(*sections: ImplementationSection, bars: int = 24) -> AgentImplementation:
    """An implementation."""
    return AgentImplementation(sections=sections, total_duration_bars=bars)


def show_of(plan: AgentPlan, bars: int) -> AgentImplementation:
    """A plan on heads: one template on all of them, two on the odd and even ones."""
    sections = [
        part(section, template, targets)
        for section in plan.sections
        for template, targets in zip(
            section.templates, ["ALL"] if len(section.templates) == 1 else ["ODD", "EVEN"], strict=False
        )
    ]
    return implemented(*sections, bars=bars)


def three_sections() -> AgentPlan:
    """An intro, a layered verse and a chorus on 24 bars."""
    return AgentPlan(
        sections=(
            planned("Intro", 1, 8, "harbor_drift", role="intro", energy=25, channels=("open", "blue", "open"),
                    base_pose="SOFT_HOME", reasoning="Calm, to begin with."),
            planned("Verse 1", 9, 16, "call_answer", "pulse_steps", energy=60,
                    channels=("pulse", "magenta", "circles")),
            planned("Chorus 1", 17, 24, "chevron_sweep", role="chorus", energy=90,
                    channels=("strobe_fast", "red", "prism"), base_pose="UP",
                    params=Params(intensity="INTENSE", speed="FAST").model_dump(),
                    reasoning="<Loud> & bright, \"wide\""),
        )
    )  # fmt: skip


def rendered(
    song: Song,
    plan: AgentPlan,
    implementation: AgentImplementation | None = None,
    rig: Rig = DEFAULT_RIG,
    frame_ms: int = 25,
) -> Rendering:
    """A show, rendered."""
    return render(
        song, plan, implementation or show_of(plan, song.bars), rig, Stage(heads=len(rig)), frame_ms
    )
