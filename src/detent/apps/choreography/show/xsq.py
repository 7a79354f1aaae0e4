"""Writes a show as an xLights sequence, alone or into a base sequence whose other parts stay as they are.

A sequence of our own is a base with nothing in it: both go through the same merge, which replaces bytes of
ours and leaves all others untouched. Equal input gives equal bytes; merging into our own output changes none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath

import detent
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan, SectionPlan
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.show.curves import GRID, described
from detent.apps.choreography.show.fixtures import Rig
from detent.apps.choreography.show.render import MOVED, HeadTrack, Rendering, Span
from detent.apps.choreography.show.timing import FRAME_TIMES, Mark
from detent.apps.choreography.show.xml_tree import Node, element
from detent.apps.choreography.show.xsq_checker import check
from detent.apps.choreography.show.xsq_reader import (
    DMX_EFFECT,
    MADE_BY,
    OUR_TRACKS,
    SECTIONS,
    SequenceRefused,
    SequenceTree,
    layers,
    number,
)
from detent.authoring.problem import Problem
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import text_digest

XLIGHTS_VERSION = "2024.19"
PALETTE = "C_BUTTON_Palette1=#FFFFFF,C_CHECKBOX_Palette1=1"
LONGEST_EFFECT = GRID
"""Frames of an effect; a curve has no more points."""
HEAD = (
    "version", "author", "author-email", "author-website", "song", "artist", "album", "MusicURL", "comment",
    "sequenceTiming", "sequenceType", "mediaFile", "sequenceDuration", "imageDir",
)  # fmt: skip
"""Entries of a head, in order."""
CHOSEN = ("author", "author-email", "author-website", "song", "artist", "album", "MusicURL", "imageDir")
"""Entries of a head that the caller may choose."""
BASE_FRAME_TIMES = range(1, 1001)
"""Milliseconds a frame of a base may last."""
TRACKS = ("Detent Sections", "Detent Bars", "Detent Beats", "Detent Notes")
"""Timing tracks of a show."""
FAULTS_TOLD = 3
"""Most problems of a base that one warning lists."""
OUT_OF_RANGE = ("X11", "X12")
"""Codes of references to what the lists of a sequence do not hold."""


class Base:
    """A sequence that a show is written into."""

    def __init__(self, source: bytes) -> None:
        """Read a base.

        Raises:
            SequenceRefused: it is unsafe to read, compressed, or lacks what a show needs.
        """
        self.source = source
        self.tree = SequenceTree(source)
        compressed = next((node for node in self.tree.root.walk() if node.tag == "CompressedData"), None)
        if compressed:
            raise SequenceRefused(
                f"The base sequence holds compressed data on line {compressed.line}. Turn compression off in "
                f"the preferences of xLights, save it again and use that file."
            )
        head = self.tree.head
        missing = [key for key in ("version", "mediaFile") if not head.get(key)]
        frame_ms, duration_ms = self.tree.frame_ms, self.tree.duration_ms
        missing += [] if duration_ms and duration_ms >= (frame_ms or 0) else ["sequenceDuration"]
        missing += [] if frame_ms in BASE_FRAME_TIMES else ["sequenceTiming"]
        if missing:
            raise SequenceRefused(
                f"The head of the base sequence lacks a usable {', '.join(missing)}. Open it in xLights, "
                f"choose the media file in its settings, save it and use that file."
            )

    @property
    def frame_ms(self) -> int:
        """Its frame time, in which a show must be rendered."""
        return self.tree.frame_ms or 0

    @property
    def duration_ms(self) -> int:
        """Its length."""
        return self.tree.duration_ms or 0

    def check_names(self, rig: Rig) -> None:
        """Check that heads and tracks of a show can stand beside what the base has.

        Raises:
            SequenceRefused: a timing track is named like a head, or a model like a track of ours.
        """
        heads = {fixture.xlights_model_name for fixture in rig.fixtures}
        for node in (*self.tree.declared(), *self.tree.elements()):
            kind, name = _key(node)
            if kind == "timing" and name in heads:
                raise SequenceRefused(
                    f"The base sequence has a timing track named '{name}' on line {node.line}, and the rig a "
                    f"head. Rename the track in xLights."
                )
            if kind == "model" and name in TRACKS:
                raise SequenceRefused(
                    f"The base sequence has a model named '{name}' on line {node.line}, and the show a "
                    f"timing track. Rename the model in xLights."
                )

    def faults(self, content: bytes) -> list[Problem]:
        """Problems of the base itself that are still in `content`, which was merged of it."""
        left = {_fault(problem) for problem in check(content)}
        merged = SequenceTree(content)
        after = {content[node.start : node.end] for node in merged.elements()}
        kept = {
            f"'{node.attributes.get('name', '')}'"
            for node in self.tree.elements()
            if self.source[node.start : node.end] in after
        }

        def stays(problem: Problem) -> bool:
            # The lists are longer now, and the effect has what it had: nothing.
            if problem.code in OUT_OF_RANGE:
                return problem.message.partition(": ")[0] in kept
            return _fault(problem) in left

        return [problem for problem in check(self.source) if stays(problem)]

    def warnings(self, song: Song, content: bytes = b"") -> list[str]:
        """What does not fit the song, and what is wrong with the base and so with `content`, if given."""
        warnings: list[str] = []
        difference = self.duration_ms / 1000 - song.duration_s
        if abs(difference) > 1:
            warnings.append(
                f"The base sequence lasts {self.duration_ms / 1000:.1f} s, the song {song.duration_s:.1f} s: "
                f"{abs(difference):.1f} s {'more' if difference > 0 else 'less'}."
            )
        if faults := self.faults(content) if content else []:
            listed = "; ".join(
                f"line {fault.place.line}: {fault.message.rstrip('.')}" for fault in faults[:FAULTS_TOLD]
            )
            more = f"; and {len(faults) - FAULTS_TOLD} more" if len(faults) > FAULTS_TOLD else ""
            warnings.append(
                f"The base sequence breaks rules of xLights, and was left as it is: {listed}{more}. See: "
                f"detent choreography check FILE.xsq"
            )
        return warnings


def write(
    song: Song,
    plan: AgentPlan,
    implementation: AgentImplementation,
    rendering: Rendering,
    rig: Rig,
    *,
    media: str,
    base: Base | None = None,
    head: Mapping[str, str] | None = None,
    xlights_version: str = XLIGHTS_VERSION,
    notes: bool = True,
) -> bytes:
    """A show as the bytes of a sequence.

    `media` is the song's path as the show computer sees it; a base keeps its own.

    Raises:
        ConfigurationError: the arguments do not fit together.
        SequenceRefused: the result would break a rule of the loader; all of them are listed.
    """
    blank = base is None
    if base is None:
        if rendering.frame_ms not in FRAME_TIMES:
            raise ConfigurationError(f"A frame is 20, 25 or 50 ms, not {rendering.frame_ms}.")
        base = Base(_blank(song, implementation, rendering, media, head or {}, xlights_version))
    elif base.frame_ms != rendering.frame_ms:
        raise ConfigurationError(
            f"The base sequence has frames of {base.frame_ms} ms, the show was rendered in "
            f"{rendering.frame_ms} ms. Render it in {base.frame_ms} ms."
        )
    frames = min(rendering.frames, base.duration_ms // base.frame_ms)
    written = _Merge(base.tree, base.source, rendering.frame_ms, frames)
    for name, marks in _tracks(song, plan, rendering, notes):
        written.timing_track(name, marks)
    for fixture, track in zip(rig.fixtures, rendering.heads, strict=True):
        written.model(fixture.xlights_model_name, track, rendering.timing.cuts)
    result = written.result()
    known = set() if blank else {_fault(problem) for problem in check(base.source)}
    broken = [problem for problem in check(result) if _fault(problem) not in known]
    if broken:
        listed = "\n  ".join(map(str, broken))
        raise SequenceRefused(f"The sequence would break rules of xLights:\n  {listed}")
    return result


def _fault(problem: Problem) -> tuple[str, str]:
    """What is wrong, wherever it stands: a merge moves lines, and makes lists longer."""
    return problem.code, re.sub(r"\bline \d+|\d+ (?=entries|palettes)", "line", problem.message)


def _blank(
    song: Song,
    implementation: AgentImplementation,
    rendering: Rendering,
    media: str,
    chosen: Mapping[str, str],
    xlights_version: str,
) -> bytes:
    """A sequence with a head and nothing else."""
    if not media.strip():
        raise ConfigurationError("A sequence needs a media file: the song's path on the show computer.")
    for key in chosen:
        if key not in CHOSEN:
            raise ConfigurationError(f"'{key}' is no entry of a head to choose.{nearest(key, CHOSEN)}")
    plain = json.dumps(implementation.to_plain(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    entries = {
        "author": "Detent",
        "song": PurePath(media.replace("\\", "/")).stem,
        **chosen,
        "version": xlights_version,
        "comment": f"{MADE_BY}{detent.__version__}, {text_digest(plain, 12)}",
        "sequenceTiming": f"{rendering.frame_ms} ms",
        "sequenceType": "Media",
        "mediaFile": media,
        "sequenceDuration": f"{song.duration_s:.3f}",
    }
    rows = [element(key, text=entries.get(key, ""), depth=2) for key in HEAD]
    sections = [element(tag, depth=1) for tag in SECTIONS[1:-2]]
    root = element(
        "xsequence",
        [("BaseChannel", 0), ("ChanCtrlBasic", 0), ("ChanCtrlColor", 0), ("FixedPointTiming", 1),
         ("ModelBlending", "true")],
        [element("head", children=rows, depth=1), *sections, element("lastView", text="0", depth=1),
         element("TimingTags", depth=1)],
    )  # fmt: skip
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root}\n'.encode()


def _tracks(
    song: Song, plan: AgentPlan, rendering: Rendering, notes: bool
) -> Iterable[tuple[str, Sequence[Mark]]]:
    sections, bars, beats, reasons = TRACKS
    yield sections, _section_marks(song, plan, rendering, lambda section: section.name)
    yield bars, rendering.timing.bar_marks()
    yield beats, rendering.timing.beat_marks()
    if notes:
        yield reasons, _section_marks(song, plan, rendering, lambda section: section.reasoning)


def _section_marks(
    song: Song, plan: AgentPlan, rendering: Rendering, label: Callable[[SectionPlan], str]
) -> list[Mark]:
    """Marks from each section's start to the next; sections that start together share one."""
    starts: dict[int, list[str]] = {}
    end = 0
    for section in plan.sections:
        if section.start_bar <= song.bars:
            span = rendering.timing.span(section.start_bar, max(section.end_bar, section.start_bar))
            starts.setdefault(span[0], []).append(label(section))
            end = max(end, span[1])
    edges = [*sorted(starts), end]
    return [
        Mark(" + ".join(filter(None, starts[start])), start, following)
        for start, following in pairwise(edges)
        if start < following
    ]


class _Merge:
    """Puts timing tracks and effects into a sequence, as changes of its bytes."""

    def __init__(self, tree: SequenceTree, source: bytes, frame_ms: int, frames: int) -> None:
        self.tree = tree
        self.source = source
        self.frame_ms = frame_ms
        self.frames = frames
        """Frames that may be written: of the song, and of the base."""
        self.elements: dict[tuple[str, str], str] = {}
        """What is written, by type and name."""
        self.waiting: list[tuple[str, list[tuple[str, int, int]]]] = []

    def timing_track(self, name: str, marks: Iterable[Mark]) -> None:
        rows = [
            element("Effect", [("label", mark.label), *self.times(mark.start, end)], depth=4)
            for mark in marks
            if mark.start < (end := min(mark.end, self.frames))
        ]
        layer = element("EffectLayer", children=rows, depth=3)
        self.elements["timing", name] = self.whole("timing", name, layer)

    def model(
        self, name: str, track: HeadTrack, cuts: Callable[[int, int, int], list[tuple[int, int]]]
    ) -> None:
        effects = [
            (_settings(track, span, start, end), start, end)
            for span in track.spans
            for start, end in cuts(span.start, min(span.end, self.frames), LONGEST_EFFECT)
            if start < end
        ]
        self.elements["model", name] = ""
        self.waiting.append((name, effects))

    def times(self, start: int, end: int) -> list[tuple[str, object]]:
        return [("startTime", start * self.frame_ms), ("endTime", end * self.frame_ms)]

    def whole(self, kind: str, name: str, layer: str) -> str:
        return element("Element", [("type", kind), ("name", name)], [layer], depth=2).lstrip()

    def ours(self, node: Node) -> bool:
        kind, name = node.attributes.get("type", ""), node.attributes.get("name", "")
        return (kind, name) in self.elements or (kind == "timing" and name.startswith(OUR_TRACKS))

    def result(self) -> bytes:
        """The bytes of the merged sequence."""
        palette, palettes = self.palettes()
        kept, added = self.effect_db(palette)
        edits = _Edits(self.tree, self.source)
        edits.list("ColorPalettes", add=[_row("ColorPalette", text) for text in palettes])
        edits.list("EffectDB", drop=kept, add=[_row("Effect", text) for text in added])
        edits.list("DataLayers")
        self.declare(edits)
        self.replace(edits)
        return edits.applied()

    def kept_numbers(self, attribute: str) -> set[int]:
        """The values that a reference has in the effects that stay."""
        return {
            number(effect, attribute, -1)
            for node in self.tree.elements()
            if not self.ours(node)
            for _, effects in layers(node)
            for effect in effects
        }

    def palettes(self) -> tuple[int, list[str]]:
        """The position of our palette, and the palettes to add."""
        palettes = self.tree.texts("ColorPalettes", "ColorPalette")
        if PALETTE in palettes:
            return palettes.index(PALETTE), []
        added: list[str] = []
        _leave_free(added, len(palettes), self.kept_numbers("palette"))
        return len(palettes) + len(added), [*added, PALETTE]

    def effect_db(self, palette: int) -> tuple[list[Node], list[str]]:
        """The entries to drop, those at the end that no kept effect refers to, and the texts to add."""
        section = self.tree.section("EffectDB")
        entries = section.all("Effect") if section else []
        used = self.kept_numbers("ref")
        length = max((ref for ref in used if 0 <= ref < len(entries)), default=-1) + 1
        positions: dict[str, int] = {}
        for position, entry in enumerate(entries[:length]):
            positions.setdefault(entry.text, position)
        added: list[str] = []
        for name, effects in self.waiting:
            rows: list[str] = []
            for settings, start, end in effects:
                if settings not in positions:
                    _leave_free(added, length, used)
                    positions[settings] = length + len(added)
                    added.append(settings)
                pairs = [("ref", positions[settings]), ("name", DMX_EFFECT), *self.times(start, end)]
                rows.append(element("Effect", [*pairs, ("palette", palette)], depth=4))
            layer = element("EffectLayer", children=rows, depth=3)
            self.elements["model", name] = self.whole("model", name, layer)
        return entries[length:], added

    def declare(self, edits: _Edits) -> None:
        """Declare what is new; what is declared keeps its place."""
        declared = self.tree.declared()
        stale = [node for node in declared if self.ours(node) and _key(node) not in self.elements]
        known = {_key(node) for node in declared}
        active = any(
            node.attributes.get("active") == "1" and node.attributes.get("type") == "timing"
            for node in declared
            if node not in stale
        )
        new: dict[str, list[str]] = {"timing": [], "model": []}
        for kind, name in self.elements:
            if (kind, name) not in known:
                pairs: list[tuple[str, object]] = [
                    ("collapsed", 0), ("type", kind), ("name", name), ("visible", 1),
                ]  # fmt: skip
                if kind == "timing":
                    pairs += [("views", ""), ("active", 0 if active else 1)]
                    active = True
                new[kind].append(element("Element", pairs))
        edits.list("DisplayElements", drop=stale, add=new["model"], add_timing=new["timing"])

    def replace(self, edits: _Edits) -> None:
        """Put our elements in the place of those of their name, or behind the others."""
        drop: list[Node] = []
        done: set[tuple[str, str]] = set()
        for node in self.tree.elements():
            if self.ours(node):
                if (key := _key(node)) in self.elements and key not in done:
                    edits.put(node.start, node.end, self.elements[key])
                    done.add(key)
                else:
                    drop.append(node)
        new = {
            kind: [text for key, text in self.elements.items() if key[0] == kind and key not in done]
            for kind in ("timing", "model")
        }
        edits.list("ElementEffects", drop=drop, add=new["model"], add_timing=new["timing"])


class _Edits:
    """Changes of bytes, made all at once."""

    def __init__(self, tree: SequenceTree, source: bytes) -> None:
        self.tree = tree
        self.source = source
        self.changes: list[tuple[int, int, bytes]] = []

    def put(self, start: int, end: int, text: str) -> None:
        self.changes.append((start, end, text.encode()))

    def list(
        self, tag: str, drop: Sequence[Node] = (), add: Sequence[str] = (), add_timing: Sequence[str] = ()
    ) -> None:
        """Drop and add children of a section; timing tracks are added behind the others of theirs."""
        section = self.tree.section(tag)
        if section is None:
            rows = [f"    {child}" for child in (*add_timing, *add)]
            self.before_following(tag, element(tag, children=rows, depth=1))
            return
        if section.close == section.inner and self.source[section.inner - 2 : section.inner] == b"/>":
            if rows := [*add_timing, *add]:
                inside = "".join(f"\n    {row}" for row in rows)
                self.put(section.inner - 2, section.inner, f">{inside}\n  </{tag}>")
            return
        for node in drop:
            start = node.start
            while self.source[start - 1 : start].isspace():
                start -= 1
            self.put(start, node.end, "")
        gone = {id(node) for node in drop}
        kept = [node for node in section.children if id(node) not in gone]
        timing = [node for node in kept if node.attributes.get("type") == "timing"]
        first = timing[-1].end if timing else section.inner
        last = kept[-1].end if kept else section.inner
        inside = "".join(f"\n    {row}" for row in add_timing)
        closing = ""
        if not kept and b"\n" not in self.source[section.inner : section.close]:
            closing = "\n  " if add or add_timing else ""
        rest = "".join(f"\n    {row}" for row in add) + closing
        if first == last:
            self.put(first, first, inside + rest)
        else:
            self.put(first, first, inside)
            self.put(last, last, rest)

    def before_following(self, tag: str, text: str) -> None:
        """Insert a section where the order of sections wants it."""
        later = SECTIONS[SECTIONS.index(tag) + 1 :]
        following = next((node for node in self.tree.root.children if node.tag in later), None)
        if following is None:
            self.put(self.tree.root.close, self.tree.root.close, f"{text}\n")
        else:
            self.put(following.start, following.start, f"{text.lstrip()}\n  ")

    def applied(self) -> bytes:
        """The source with all changes made."""
        parts: list[bytes] = []
        at = 0
        # Insertions at one place keep the order in which they were asked for.
        for start, end, text in sorted(self.changes, key=lambda change: change[:2]):
            parts += [self.source[at:start], text]
            at = end
        return b"".join([*parts, self.source[at:]])


def _key(node: Node) -> tuple[str, str]:
    return node.attributes.get("type", ""), node.attributes.get("name", "")


def _leave_free(added: list[str], length: int, used: Collection[int]) -> None:
    """Add empty entries where kept effects refer past the end, so that they do not come to refer to ours."""
    while length + len(added) in used:
        added.append("")


def _row(tag: str, text: str) -> str:
    return element(tag, text=text)


def _settings(track: HeadTrack, span: Span, start: int, end: int) -> str:
    """The settings string of one effect."""
    channels = range(1, track.fixture.written_channels + 1)
    sliders = {channel: span.constants.get(channel, 0) for channel in channels}
    curves: dict[int, str] = {}
    for row, role in enumerate(MOVED):
        channel = track.fixture.dmx_mapping[role]
        sliders[channel], curve = described(track.moved[row, start:end], channel)
        if curve:
            curves[channel] = curve
    return ",".join(
        [
            "B_CHOICE_BufferStyle=Per Model Default",
            *(f"E_CHECKBOX_INVDMX{channel}=0" for channel in channels),
            "E_NOTEBOOK1=Channels 1-16",
            *(f"E_SLIDER_DMX{channel}={value}" for channel, value in sliders.items()),
            *(f"E_VALUECURVE_DMX{channel}={curves[channel]}" for channel in sorted(curves)),
        ]
    )
