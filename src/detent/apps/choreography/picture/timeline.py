"""The timeline of a show: the song's energy, the sections, what each head does, and how it was judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from detent.apps.choreography.domain.plan import (
    AgentImplementation,
    AgentPlan,
    ImplementationSection,
    SectionPlan,
)
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.vocabulary import COLOURS, STROBES
from detent.apps.choreography.picture.drawing import (
    Area,
    Drawing,
    Lines,
    Point,
    Rectangle,
    Text,
    fitting,
    ink_on,
    text_width,
)
from detent.apps.choreography.show.fixtures import Rig
from detent.apps.choreography.show.render import ShowStage, ruling
from detent.flows.refine.evaluation import CATEGORY_PASS, PASS_THRESHOLD, Evaluation

WIDTH = 1600
LEFT, RIGHT = 118.0, 1232.0
"""Edges of the timeline."""
PANEL, PANEL_END = 1264.0, 1576.0
"""Edges of the judge's panel."""
INK, FAINT, GRID, PAPER = "#1B1F24", "#57606A", "#D8DEE4", "#F3F5F7"
CURVE, STEPS = "#B6C2CF", "#24292F"
DARK = "#2D333B"
"""A head that is dark, or closed."""


def timeline(
    audio: Mapping[str, Any] | Song,
    plan: AgentPlan | None,
    implementation: AgentImplementation | None,
    evaluation: Evaluation | None,
    stage: ShowStage,
    rig: Rig,
    *,
    status: str,
    title: str = "Light show",
    iterations: int = 0,
    tokens: int = 0,
    pass_threshold: float = PASS_THRESHOLD,
    category_pass: float = CATEGORY_PASS,
) -> Drawing:
    """The drawing. `audio` is the analysis; parts that a run did not reach may be None."""
    song = audio if isinstance(audio, Song) else Song.of(audio)
    sections = plan.sections if plan else ()
    score = f"{evaluation.overall_score:.1f} / 100" if evaluation else "not judged"
    drawing = Drawing(
        WIDTH, 0, f"{title}: {status}, {score}", _description(song, sections, rig, status, score)
    )
    shape = _Timeline(drawing, song)
    _heading(drawing, song, title, status, score)
    bottom = shape.energy(78, 150, audio if isinstance(audio, Mapping) else {})
    bottom = shape.ribbon(bottom + 20, sections)
    bottom = shape.heads(bottom + 16, sections, implementation, stage, rig)
    panel = _judgement(drawing, evaluation, status, iterations, tokens, pass_threshold, category_pass)
    bottom = shape.legend(bottom + 14)
    bottom = shape.key(max(bottom, panel) + 22, sections, stage)
    drawing.height = math.ceil(max(bottom, panel)) + 24
    return drawing


def _description(song: Song, sections: Sequence[SectionPlan], rig: Rig, status: str, score: str) -> str:
    parts = "; ".join(
        f"{section.name} ({section.section_role}), bars {section.start_bar} to {section.end_bar}, energy "
        f"{song.energy(section.start_bar, section.end_bar):.0f}, {', '.join(section.templates)}"
        for section in sections
    )
    heads = ", ".join(fixture.fixture_id for fixture in rig.fixtures)
    return f"Status {status}, score {score}. {song.bars} bars on {heads}. Sections: {parts or 'none'}."


def _heading(drawing: Drawing, song: Song, title: str, status: str, score: str) -> None:
    facts = (
        f"{_clock(song.duration_s)}  ·  {song.tempo_bpm:.0f} BPM  ·  {song.beats_per_bar} beats a bar  ·  "
        f"{song.bars} bars  ·  {song.key}"
    )
    room = RIGHT - LEFT - text_width(facts, 13) - 30
    drawing.add(
        Text(LEFT, 36, fitting(title, room, 20, bold=True), 20, INK, bold=True),
        Text(RIGHT, 36, facts, 13, FAINT, "end"),
    )


class _Timeline:
    """The parts that share the axis of time."""

    def __init__(self, drawing: Drawing, song: Song) -> None:
        self.drawing = drawing
        self.song = song

    def x(self, seconds: float) -> float:
        return LEFT + (RIGHT - LEFT) * min(max(seconds / self.song.duration_s, 0), 1)

    def box(self, first_bar: int, last_bar: int, y: float, height: float) -> Rectangle:
        """The place of some bars, a hair narrower so that neighbours can be told apart."""
        left = self.x(self.song.starts_at(first_bar))
        right = self.x(self.song.ends_at(min(last_bar, self.song.bars)))
        return Rectangle(left + 0.5, y, max(right - left - 1, 0.5), height)

    def label(self, y: float, text: str, size: float = 12, fill: str = FAINT) -> None:
        self.drawing.add(Text(LEFT - 12, y, fitting(text, LEFT - 20, size), size, fill, "end"))

    def grid(self, top: float, bottom: float) -> None:
        """Lines at bars; where they would be too dense, at every 2nd, 4th, …"""
        every = self.every(3)
        for strong in (False, True):
            segments = tuple(
                ((self.x(second), top), (self.x(second), bottom))
                for bar, second in enumerate(self.song.bars_s)
                if bar % every == 0 and (bar % (4 * every) == 0) == strong
            )
            self.drawing.add(Lines(segments, GRID if not strong else "#AEB8C2", 0.7 if not strong else 1.0))

    def every(self, room: float) -> int:
        """How many bars, a power of two, take at least some pixels."""
        bar = (RIGHT - LEFT) / max(self.song.bars, 1)
        return 1 << max(0, math.ceil(math.log2(room / bar)))

    # -- energy ---------------------------------------------------------------------------------------------

    def energy(self, top: float, height: float, audio: Mapping[str, Any]) -> float:
        drawing, song, bottom = self.drawing, self.song, top + height
        drawing.add(Rectangle(LEFT, top, RIGHT - LEFT, height, PAPER))

        def y(value: float) -> float:
            return bottom - height * min(max(value, 0), 100) / 100

        measured = audio.get("energy", {})
        curve = list(zip(measured.get("times_s", ()), measured.get("rms_norm", ()), strict=False))
        if len(curve) > 1:
            points: list[Point] = [(self.x(second), y(100 * value)) for second, value in curve]
            drawing.add(Area(((points[0][0], bottom), *points, (points[-1][0], bottom)), CURVE))
        self.grid(top, bottom)
        steps: list[Point] = []
        for bar, value in enumerate(song.energy_per_bar[: song.bars], 1):
            steps += [(self.x(song.starts_at(bar)), y(value)), (self.x(song.ends_at(bar)), y(value))]
        drawing.polyline(steps, STEPS, 1.6)
        self.label(top + 30, "Energy", 13, INK)
        for value in (0, 50, 100):
            drawing.add(Text(LEFT - 6, min(max(y(value) + 4, top + 9), bottom), str(value), 10, FAINT, "end"))
        self.bar_numbers(top - 6)
        self.song_sections(top, bottom)
        self.beats(bottom)
        self.clock(bottom + 22)
        return bottom + 22

    def bar_numbers(self, y: float) -> None:
        every = max(4, self.every(34))
        self.label(y, "Bar", 10)
        for bar in range(1, self.song.bars + 1, every):
            x = self.x(self.song.starts_at(bar))
            if x + text_width(str(bar), 10) < RIGHT:
                self.drawing.add(Text(x, y, str(bar), 10, FAINT))

    def song_sections(self, top: float, bottom: float) -> None:
        """What was heard: borders and labels, on plates so that the curve does not hide them."""
        for section in self.song:
            box = self.box(section.start_bar, section.end_bar, top, bottom - top)
            left = box.x - 0.5
            self.drawing.add(Lines((((left, top), (left, bottom)),), FAINT, 1.2))
            text = fitting(section.label, box.width - 10, 11, least=4)
            if text:
                plate = Rectangle(left + 2, top + 3, text_width(text, 11) + 6, 16, "#FFFFFF")
                self.drawing.add(plate, Text(left + 5, top + 15, text, 11, INK))

    def beats(self, bottom: float) -> None:
        """Ticks at beats, longer at bars; no beats where they would run together."""
        beats, bars = self.song.beats_s, self.song.bars_s
        if len(beats) * 2.0 > RIGHT - LEFT:
            beats = ()
        every = self.every(2)
        for seconds, length in ((beats, 4.0), (bars[::every], 8.0)):
            segments = tuple(
                ((self.x(second), bottom), (self.x(second), bottom + length)) for second in seconds
            )
            if segments:
                self.drawing.add(Lines(segments, FAINT, 0.8))

    def clock(self, y: float) -> None:
        steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200)
        step = next((step for step in steps if self.song.duration_s / step <= 14), 3600)
        for second in range(0, int(self.song.duration_s) + 1, step):
            x = self.x(second)
            if x + text_width("00:00", 10) < RIGHT + 8:
                self.drawing.add(Text(x, y, _clock(second), 10, FAINT))

    # -- sections -------------------------------------------------------------------------------------------

    def ribbon(self, top: float, sections: Sequence[SectionPlan]) -> float:
        """Sections in lanes, so that those that overlap can all be seen."""
        self.label(top + 18, "Sections", 13, INK)
        lanes: list[int] = []
        height = 46.0
        for number, section in enumerate(sections, 1):
            if section.start_bar > self.song.bars or not section.bars:
                continue
            lane = next((lane for lane, end in enumerate(lanes) if end < section.start_bar), len(lanes))
            lanes[lane : lane + 1] = [section.end_bar]
            box = self.box(section.start_bar, section.end_bar, top + lane * (height + 3), height)
            energy = self.song.energy(section.start_bar, section.end_bar)
            shade = _grey(energy)
            self.drawing.add(Rectangle(box.x, box.y, box.width, box.height, shade, "#6E7781", 0.8))
            ink = ink_on(shade)
            rows: tuple[tuple[str, int, bool], ...] = (
                (f"{number} {section.name}", 12, True), (section.section_role, 10, False),
                (f"energy {energy:.0f}", 10, False),
            )  # fmt: skip
            name = fitting(rows[0][0], box.width - 8, 12, least=5, bold=True)
            if not name:
                rows = ((str(number), 11, True), ("", 10, False), ("", 10, False))
                if text_width(str(number), 11, True) > box.width:
                    rows = ((str(number), 8, True), *rows[1:])
            for (text, size, bold), y in zip(rows, (16, 28, 40), strict=True):
                shown = fitting(text, box.width - 8, size, 4, bold) if name else text
                # A number too wide even for one bar of a long song is left to the key below.
                if shown and text_width(shown, size) <= box.width + 1:
                    x = box.x + 4 if name else box.x + box.width / 2
                    anchor = "start" if name else "middle"
                    self.drawing.add(Text(x, box.y + y, shown, size, ink, anchor, bold))  # type: ignore[arg-type]
        return top + max(len(lanes), 1) * (height + 3) - 3

    # -- heads ----------------------------------------------------------------------------------------------

    def heads(
        self,
        top: float,
        sections: Sequence[SectionPlan],
        implementation: AgentImplementation | None,
        stage: ShowStage,
        rig: Rig,
    ) -> float:
        height = min(58.0, max(30.0, 260.0 / len(rig)))
        planned = {section.name: section for section in sections}
        layered = _layered(sections)
        rulers = ruling(self.song, implementation, len(rig)) if implementation else []
        for place, fixture in enumerate(rig.fixtures):
            y = top + place * (height + 5)
            self.label(y + height / 2 + 4, fixture.fixture_id, 13, INK)
            self.drawing.add(Rectangle(LEFT, y, RIGHT - LEFT, height, PAPER))
            self.grid(y, y + height)
            bar = 1
            for section, bars in groupby(rulers[place] if rulers else ()):
                length = len(list(bars))
                if section is not None:
                    box = self.box(bar, bar + length - 1, y, height)
                    plan_section = planned.get(section.plan_section_name)
                    self.block(box, section, plan_section, stage, section.plan_section_name in layered)
                bar += length
        return top + len(rig) * (height + 5) - 5

    def block(
        self,
        box: Rectangle,
        section: ImplementationSection,
        planned: SectionPlan | None,
        stage: ShowStage,
        layered: bool,
    ) -> None:
        """What a head does in some bars."""
        look = stage.channels(planned) if planned else None
        closed = look is not None and look.shutter == "closed"
        fill = DARK if closed or look is None else COLOURS[look.color].hex
        ink = ink_on(fill)
        gobo = look is not None and look.gobo != "open"
        self.drawing.add(Rectangle(box.x, box.y, box.width, box.height, fill, "#6E7781", 0.6))
        if look is not None and look.shutter in STROBES:
            # Grey halfway to the ink: seen on any colour, and texts stay on plates of the colour.
            self.drawing.hatch(box, "#FFFFFF" if ink == "#FFFFFF" else "#000000")
        mark = 12.0 if gobo and box.width >= 8 else 0.0
        if mark:
            self.gobo(box, fill, ink)
        if layered:
            width, height = max(box.width - 3, 1), box.height - 3
            self.drawing.add(Rectangle(box.x + 1.5, box.y + 1.5, width, height, None, INK, 3))
        # In a high block the corner with the gobo is above the texts, but for the first of three.
        room = box.width - 12 - (mark if mark and box.height < 50 else 0)
        details = "" if look is None else " · ".join(
            [look.color, *([look.shutter] if look.shutter != "open" else []), *([look.gobo] if gobo else [])]
        )  # fmt: skip
        rows = [(text, 12.0) for text in _template_rows(section.template_id, room, mark, box.height)]
        if box.height >= 34:
            rows.append((fitting(details, room, 10, least=5), 10.0))
        rows = [row for row in rows if row[0]]
        y = box.y + box.height / 2 + 4 - 7 * (len(rows) - 1)
        for text, size in rows:
            plate = Rectangle(box.x + 4, y - size, text_width(text, size, size > 11) + 4, size + 4, fill)
            self.drawing.add(plate, Text(box.x + 6, y, text, size, ink, bold=size > 11))
            y += 14

    def gobo(self, box: Rectangle, fill: str, ink: str) -> None:
        """A diamond in the upper right corner."""
        half = min(5.0, box.width / 2 - 2)
        x, y = box.x + box.width - half - 4 if box.width > 20 else box.x + box.width / 2, box.y + half + 4
        for size, colour in ((half + 1.5, fill), (half, ink), (half - 2.5, fill)):
            if size > 0:
                self.drawing.add(Area(((x - size, y), (x, y - size), (x + size, y), (x, y + size)), colour))

    # -- keys -----------------------------------------------------------------------------------------------

    def legend(self, top: float) -> float:
        """What the marks of the blocks mean."""
        x, y = LEFT, top
        for text in ("strobe", "gobo", "layered", "closed", "no section: dark"):
            box = Rectangle(x, y, 30, 14, DARK if text == "closed" else PAPER, "#6E7781", 0.6)
            self.drawing.add(box)
            if text == "strobe":
                self.drawing.hatch(box, INK, 6)
            elif text == "gobo":
                self.gobo(Rectangle(x, y - 2, 30, 14), PAPER, INK)
            elif text == "layered":
                self.drawing.add(Rectangle(x + 1.5, y + 1.5, 27, 11, None, INK, 3))
            self.drawing.add(Text(x + 38, y + 11, text, 11, FAINT))
            x += 38 + text_width(text, 11) + 26
        return y + 14

    def key(self, top: float, sections: Sequence[SectionPlan], stage: ShowStage) -> float:
        """Each section in a line, for those too short for their names."""
        lines = [_key_line(self.song, section, stage) for section in sections]
        names = [f"{number}  {section.name}" for number, section in enumerate(sections, 1)]
        indent = min(40 + max((text_width(name, 11, True) for name in names), default=0), 240)
        width = (PANEL_END - LEFT) / 2
        columns = 2
        if len(lines) <= 4 or max(text_width(line, 10) for line in lines) > width - indent - 10:
            width, columns = PANEL_END - LEFT, 1
        rows = math.ceil(len(sections) / columns)
        for number, (section, name, line) in enumerate(zip(sections, names, lines, strict=True)):
            column, row = divmod(number, rows)
            x, y = LEFT + column * width, top + 18 * row + 12
            look = stage.channels(section)
            self.drawing.add(Rectangle(x, y - 10, 12, 12, COLOURS[look.color].hex, "#6E7781", 0.8))
            self.drawing.add(
                Text(x + 18, y, fitting(name, indent - 26, 11, bold=True), 11, INK, bold=True),
                Text(x + indent, y, fitting(line, width - indent - 10, 10), 10, FAINT),
            )
        return top + 18 * rows


def _judgement(
    drawing: Drawing,
    evaluation: Evaluation | None,
    status: str,
    iterations: int,
    tokens: int,
    pass_threshold: float,
    category_pass: float,
) -> float:
    """The panel of the judge: scores as bars, with the lines they must reach."""
    width = PANEL_END - PANEL
    effort = f"{iterations} iteration{'' if iterations == 1 else 's'}  ·  {tokens:,} tokens"
    drawing.add(
        Text(PANEL, 36, fitting(status, width, 20, bold=True), 20, INK, bold=True),
        Text(PANEL, 56, effort, 12, FAINT),
    )
    if evaluation is None:
        drawing.add(Text(PANEL, 96, "not judged", 15, INK))
        return 110
    passed = evaluation.passes(pass_threshold, category_pass)
    score, verdict = f"{evaluation.overall_score:.1f}", "passes" if passed else "does not pass"
    drawing.add(
        Text(PANEL, 104, score, 40, INK, bold=True),
        Text(PANEL + text_width(score, 40) + 8, 104, f"/ 100, {verdict}", 13, FAINT),
    )
    y = 132.0
    lines = [(category_pass, f"{category_pass:.0f}"), (pass_threshold, f"{pass_threshold:.0f}")]
    for value, label in lines:
        drawing.add(Text(PANEL + width * value / 100, y, label, 10, FAINT, "middle"))
    for category in evaluation.category_scores:
        y += 16
        fails = category.score < category_pass
        text = f"{category.score:.1f}" + (" fails" if fails else "")
        drawing.add(
            Text(PANEL, y, fitting(category.category, width - 76, 12), 12, INK, bold=fails),
            Text(PANEL_END, y, text, 12, INK, "end", bold=fails),
        )
        y += 6
        bar = Rectangle(PANEL, y, max(width * category.score / 100, 0.5), 12, "#57606A")
        drawing.add(Rectangle(PANEL, y, width, 12, PAPER, GRID, 0.8))
        drawing.add(Rectangle(bar.x, bar.y, bar.width, bar.height, "#E8EAED" if fails else "#57606A"))
        if fails:
            drawing.hatch(bar, INK, 6)
        segments = tuple(
            ((PANEL + width * value / 100, y - 2), (PANEL + width * value / 100, y + 14))
            for value, _ in lines
        )
        drawing.add(Lines(segments[:1], "#CF222E", 1.4), Lines(segments[1:], INK, 1.4))
        y += 20
    for code in evaluation.automatic_failures:
        y += 18
        drawing.add(Text(PANEL, y, fitting(f"automatic failure: {code}", width, 12), 12, INK, bold=True))
    return y + 8


def _template_rows(template_id: str, room: float, mark: float, height: float) -> list[str]:
    """A template's id in the room of a block: whole, in two rows, shortened, or its initials."""
    if text_width(template_id, 12, True) <= room:
        return [template_id]
    first, _, second = template_id.rpartition("_")
    rows = [f"{first}_", second]
    if height >= 50 and first and all(text_width(row, 12, True) <= room - mark for row in rows):
        return rows
    initials = "".join(word[0] for word in template_id.split("_"))
    shorter = fitting(template_id, room, 12, least=5, bold=True)
    return [shorter or (initials if text_width(initials, 12, True) <= room + 6 else "")]


def _key_line(song: Song, section: SectionPlan, stage: ShowStage) -> str:
    look = stage.channels(section)
    energy = song.energy(section.start_bar, section.end_bar)
    return (
        f"{section.section_role}, bars {section.start_bar}-{section.end_bar}, energy {energy:.0f}: "
        f"{' + '.join(section.templates)}, {look.color}, {look.shutter}, gobo {look.gobo}"
    )


def _layered(sections: Sequence[SectionPlan]) -> set[str]:
    """Sections with several templates, or that share a bar with another."""
    return {
        section.name
        for section in sections
        if len(section.templates) > 1
        or any(
            other is not section and other.start_bar <= section.end_bar and section.start_bar <= other.end_bar
            for other in sections
        )
    }


def _grey(energy: float) -> str:
    """Darker the louder, so that the form of the song is seen at a glance."""
    level = round(245 - 165 * min(max(energy, 0), 100) / 100)
    return f"#{level:02X}{level:02X}{level:02X}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
