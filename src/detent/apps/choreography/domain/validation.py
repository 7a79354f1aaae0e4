"""The heuristic validator: what is wrong with a plan, all at once, each with section, value and remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

from detent.apps.choreography.domain.arrangement import in_order, layered
from detent.apps.choreography.domain.plan import AgentPlan, SectionPlan
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import CHANNEL_NAMES, Stage
from detent.apps.choreography.domain.vocabulary import COLOURS, GOBOS, INTENSITIES, SHUTTERS, SPEEDS
from detent.authoring.names import Nearest
from detent.flows.refine.evaluation import Issue, Severity, ValidationReport

ERRORS = (
    "Section names are unique, and the templates of one section differ.",
    "There is at least one section, and the first starts at bar 1.",
    "No section ends before it starts.",
    "There is no gap: every section starts at most one bar after the furthest end so far.",
    "Templates, poses, intensities and speeds are named exactly as listed.",
)
"""The rules whose breach is an error, in words; models read them in the schema of a plan."""


def validate(song: Song, plan: AgentPlan, stage: Stage) -> ValidationReport:
    """Check a plan. Energy is measured, whatever the plan claims."""
    return ValidationReport(tuple(_Checks(song, plan, stage).issues()))


class _Checks:
    def __init__(self, song: Song, plan: AgentPlan, stage: Stage) -> None:
        self.song, self.plan, self.stage = song, plan, stage
        self.nearest = Nearest()

    @cached_property
    def sections(self) -> list[SectionPlan]:
        """The sections that last at least a bar, in the order of time."""
        return in_order(self.plan.sections)

    def issues(self) -> Iterator[Issue]:
        yield from self.timing()
        for section in self.plan.sections:
            yield from self.names(section)
            yield from self.channels(section)
            yield from self.energy(section)
        yield from self.coverage()
        yield from self.variety()
        yield from self.complexity()

    def valid(self, name: str, names: Collection[str]) -> str:
        """What would be valid in place of an unknown name."""
        close = self.nearest.of(name, names)
        return f"Nearest: {', '.join(map(repr, close))}." if close else f"Valid: {', '.join(names)}."

    # -- time -----------------------------------------------------------------------------------------------

    def timing(self) -> Iterator[Issue]:
        if not self.plan.sections:
            yield Issue(
                "error", "timing", f"the plan has no sections; it must cover bars 1–{self.song.bars}."
            )
            return
        names: set[str] = set()
        for section in self.plan.sections:
            if section.name in names:
                message = f"two sections are named '{section.name}'; names must be unique."
                yield Issue("error", "timing", message, section.name)
            names.add(section.name)
            if section.end_bar < section.start_bar:
                message = (
                    f"end_bar {section.end_bar} is before start_bar {section.start_bar}; it must be "
                    f"{section.start_bar} or more."
                )
                yield Issue("error", "timing", message, section.name)
        end, last = 0, ""
        for section in self.sections:
            if not end and section.start_bar != 1:
                message = f"the first section starts at bar {section.start_bar}; it must start at bar 1."
                yield Issue("error", "timing", message, section.name)
            elif end and section.start_bar > end + 1:
                message = (
                    f"bars {end + 1}–{section.start_bar - 1} after '{last}' have no section; start at bar "
                    f"{end + 1}, or end '{last}' at bar {section.start_bar - 1}."
                )
                yield Issue("error", "timing", message, section.name)
            elif end and section.start_bar <= end:
                shared = min(end, section.end_bar)
                message = f"bars {section.start_bar}–{shared} overlap '{last}'; they share the heads."
                yield Issue("info", "timing", message, section.name)
            if section.end_bar > end:
                end, last = section.end_bar, section.name

    def coverage(self) -> Iterator[Issue]:
        bars = self.song.bars
        if not self.sections:
            yield Issue("error", "coverage", f"no bar is covered; sections must cover bars 1–{bars}.")
            return
        end = max(section.end_bar for section in self.sections)
        if end < bars:
            yield Issue("warning", "coverage", f"the plan ends at bar {end}, but the song has {bars} bars.")
        for section in self.sections:
            if section.end_bar > bars:
                message = f"bar {section.end_bar} is past the song's end; the last bar is {bars}."
                yield Issue("warning", "coverage", message, section.name)

    # -- names ----------------------------------------------------------------------------------------------

    def names(self, section: SectionPlan) -> Iterator[Issue]:
        library = self.stage.library
        for index, template_id in enumerate(section.templates):
            if template_id not in library:
                message = f"unknown template '{template_id}'. {self.valid(template_id, library)}"
                yield Issue("error", "template", message, section.name)
            elif template_id in section.templates[:index]:
                message = f"template '{template_id}' is listed twice; templates of a section must differ."
                yield Issue("error", "template", message, section.name)
            elif library[template_id].metadata is None:
                message = f"template '{template_id}' has no metadata; its energy range counts as 0–100."
                yield Issue("warning", "template", message, section.name)
        params = section.params
        poses = {
            "base_pose": section.base_pose,
            "start_pose": params.start_pose,
            "end_pose": params.end_pose,
        }
        for key, pose in poses.items():
            if pose is not None and pose not in self.stage.poses:
                message = f"unknown {key} '{pose}'. {self.valid(pose, self.stage.poses)}"
                yield Issue("error", "pose", message, section.name)
        for key, name, names in (
            ("intensity", params.intensity, INTENSITIES),
            ("speed", params.speed, SPEEDS),
        ):
            if name not in names:
                message = f"unknown {key} '{name}'. {self.valid(name, names)}"
                yield Issue("error", "parameters", message, section.name)

    # -- light ----------------------------------------------------------------------------------------------

    def channels(self, section: SectionPlan) -> Iterator[Issue]:
        def warning(message: str) -> Issue:
            return Issue("warning", "channels", message, section.name)

        enabled = self.stage.features.enabled
        for channel, names in CHANNEL_NAMES.items():
            name = getattr(section.channels, channel)
            if enabled(channel) and name not in names:
                default = self.stage.default(channel)
                yield warning(
                    f"unknown {channel} '{name}', so '{default}' is used. {self.valid(name, names)}"
                )
        if not section.bars:
            return
        energy = self.song.energy(section.start_bar, section.end_bar)
        shown = self.stage.channels(section)
        shutter = SHUTTERS[shown.shutter].energy
        measured = f"the section's measured energy is {energy:.0f}"
        if enabled("shutter") and energy > 70 and shutter < 7:
            calm = _names(name for name, value in SHUTTERS.items() if value.energy >= 7)
            yield warning(f"shutter '{shown.shutter}' is weak, as {measured}. Stronger: {calm}.")
        if enabled("shutter") and energy < 40 and shutter > 6:
            calm = _names(name for name, value in SHUTTERS.items() if 1 < value.energy <= 6)
            yield warning(f"shutter '{shown.shutter}' is hard, as {measured}. Calmer: {calm}.")
        if enabled("color") and energy > 70 and COLOURS[shown.color].mood == "cool":
            warm = _names(name for name, value in COLOURS.items() if value.mood == "warm")
            yield warning(f"color '{shown.color}' is cool, as {measured}. Warm: {warm}.")
        if enabled("gobo") and energy > 80 and GOBOS[shown.gobo].density < 5:
            dense = _names(name for name, value in GOBOS.items() if value.density >= 5)
            yield warning(f"gobo '{shown.gobo}' is thin, as {measured}. Denser: {dense}.")
        if (enabled("shutter") or enabled("gobo")) and shown.shutter == "closed" and shown.gobo != "open":
            yield warning(f"gobo '{shown.gobo}' cannot be seen behind a closed shutter; use 'open'.")

    def energy(self, section: SectionPlan) -> Iterator[Issue]:
        if not section.bars:
            return
        energy = self.song.energy(section.start_bar, section.end_bar)
        for template_id in section.templates:
            template = self.stage.library.get(template_id)
            if template is not None and template.metadata is not None and template.fits(energy):
                low, high = template.metadata.energy_range
                fitting = _names(name for name, other in self.stage.library.items() if not other.fits(energy))
                message = (
                    f"template '{template_id}' is for energy {low:g}–{high:g}, but the measured energy is "
                    f"{energy:.0f}. For this energy: {fitting or 'none'}."
                )
                yield Issue("warning", "energy", message, section.name)

    # -- the whole ------------------------------------------------------------------------------------------

    def variety(self) -> Iterator[Issue]:
        for before, section in zip(self.sections, self.sections[1:], strict=False):
            for template_id in section.templates:
                if template_id in before.templates:
                    message = f"template '{template_id}' is in '{before.name}', the section before, too."
                    yield Issue("warning", "variety", message, section.name)
        used = [template_id for section in self.sections for template_id in section.templates]
        if used and len(set(used)) / len(used) < 0.5:
            message = (
                f"{len(set(used))} different templates in {len(used)} uses; at least half should differ."
            )
            yield Issue("warning", "variety", message)

    def complexity(self) -> Iterator[Issue]:
        total, count = len(self.sections), len(layered(self.plan))
        if not total or self.stage.heads == 1:
            return
        least = -(-total // 5)
        severity: Severity = "warning"
        if not count:
            message = f"no section is layered; give {least} of {total} sections another template."
            yield Issue(severity, "complexity", message)
        elif count / total < 0.2:
            message = f"{count} of {total} sections are layered; at least {least} should be."
            yield Issue(severity, "complexity", message)


def _names(names: Iterator[str]) -> str:
    return ", ".join(names)
