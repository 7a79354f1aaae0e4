"""Checks a sequence against what xLights' loader demands; all problems at once, with their lines.

Codes: X01 unreadable, X02 FixedPointTiming, X03 order of sections, X04 undeclared, X05 repeated,
X06 a timing track named like a model, X07 off the frame grid, X08 start not before end, X09 overlap,
X10 past the end, X11 reference out of range, X12 palette out of range, X13 unknown effect,
X14 slider not 0 beside a curve, X15 head, X16 settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import pairwise

from detent.apps.choreography.show.xml_tree import Node
from detent.apps.choreography.show.xsq_reader import (
    DMX_EFFECT,
    SECTIONS,
    SequenceRefused,
    SequenceTree,
    Settings,
    layers,
)
from detent.authoring.problem import Place, Problem, in_order

EFFECT_NAMES = frozenset({
    "Adjust", "Bars", "Butterfly", "Candle", "Circles", "Color Wash", "Coro Faces", "Curtain", "DMX",
    "Duplicate", "Faces", "Fan", "Fill", "Fire", "Fireworks", "Galaxy", "Garlands", "Glediator", "Guitar",
    "Kaleidoscope", "Life", "Lightning", "Lines", "Liquid", "Marquee", "Meteors", "Morph", "Moving Head",
    "Music", "Off", "On", "Piano", "Pictures", "Pinwheel", "Plasma", "Ripple", "Rotary", "Servo", "Shader",
    "Shape", "Shimmer", "Shockwave", "Single Strand", "SingleStrand", "Sketch", "Snowflakes", "Snowstorm",
    "Spirals", "Spirograph", "State", "Strobe", "Tendril", "Text", "Tree", "Twinkle", "VU Meter", "Video",
    "Warp", "Wave",
})  # fmt: skip
"""Effects of xLights; it drops those it does not know."""


def check(source: bytes, file: str = "") -> list[Problem]:
    """Check a sequence; an empty list if xLights loads it as it is."""
    try:
        tree = SequenceTree(source)
    except SequenceRefused as error:
        line = re.search(r"line (\d+)", str(error))
        return [Problem("X01", str(error), Place(file, int(line[1]) if line else 1))]
    checker = _Checker(tree, file)
    checker.check()
    return in_order(checker.problems)


class _Checker:
    def __init__(self, tree: SequenceTree, file: str) -> None:
        self.tree = tree
        self.file = file
        self.problems: list[Problem] = []

    def wrong(self, code: str, node: Node, message: str, suggestions: Iterable[str] = ()) -> None:
        self.problems.append(
            Problem(code, message, Place(self.file, node.line), suggestions=tuple(suggestions))
        )

    def check(self) -> None:
        root = self.tree.root
        if root.attributes.get("FixedPointTiming") != "1":
            self.wrong("X02", root, 'The root needs FixedPointTiming="1", or times are read as seconds.')
        self.sections()
        self.head()
        self.names()
        self.palettes = len(self.tree.texts("ColorPalettes", "ColorPalette"))
        self.effect_db = self.tree.texts("EffectDB", "Effect")
        for element in self.tree.elements():
            for _, effects in layers(element):
                self.layer(element, effects)
        self.settings()

    def sections(self) -> None:
        children = [child for child in self.tree.root.children if child.tag in SECTIONS]
        tags = [child.tag for child in children]
        for before, child in pairwise(children):
            if SECTIONS.index(before.tag) > SECTIONS.index(child.tag):
                self.wrong("X03", child, f"<{child.tag}> must come before <{before.tag}>.")
        for tag in SECTIONS:
            if tags.count(tag) > 1:
                self.wrong("X03", self.tree.root.all(tag)[1], f"<{tag}> is there {tags.count(tag)} times.")
            elif tag not in tags:
                self.wrong("X03", self.tree.root, f"<{tag}> is missing.")

    def head(self) -> None:
        node = self.tree.section("head") or self.tree.root
        for key in ("version", "mediaFile"):
            if not self.tree.head.get(key):
                self.wrong("X15", node, f"The head lacks <{key}>.")
        if self.tree.frame_ms is None:
            self.wrong("X15", node, "<sequenceTiming> must be milliseconds, such as '25 ms'.")
        if not self.tree.duration_ms:
            self.wrong("X15", node, "<sequenceDuration> must be seconds above 0, such as 192.480.")

    def names(self) -> None:
        declared: dict[str, Node] = {}
        for section, elements in (
            ("DisplayElements", self.tree.declared()),
            ("ElementEffects", self.tree.elements()),
        ):
            seen: dict[str, Node] = {}
            for node in elements:
                name, kind = node.attributes.get("name", ""), node.attributes.get("type", "")
                if kind not in ("timing", "model"):
                    self.wrong("X04", node, f"'{name}' must be of type 'timing' or 'model', not '{kind}'.")
                    continue
                if name in seen and seen[name].attributes.get("type") == kind:
                    self.wrong(
                        "X05",
                        node,
                        f"'{name}' is in {section} twice, first on line {seen[name].line}.",
                    )
                elif name in seen:
                    self.wrong("X06", node, f"A timing track and a model are both named '{name}'.")
                seen.setdefault(name, node)
                if section == "ElementEffects" and name not in declared:
                    self.wrong(
                        "X04", node, f"'{name}' is not declared in DisplayElements, so xLights drops it.",
                        get_close_matches(name, declared, n=3),
                    )  # fmt: skip
                elif section == "ElementEffects" and declared[name].attributes.get("type") != kind:
                    self.wrong("X06", node, f"'{name}' is declared with another type, on line "
                        f"{declared[name].line}.")  # fmt: skip
            declared = declared or seen

    def layer(self, element: Node, effects: list[Node]) -> None:
        name, timing = element.attributes.get("name", ""), element.attributes.get("type") == "timing"
        frame, duration = self.tree.frame_ms or 1, self.tree.duration_ms
        spans: list[tuple[int, int, Node]] = []
        for node in effects:
            times = [node.attributes.get(key, "") for key in ("startTime", "endTime")]
            if not all(re.fullmatch(r"[0-9]{1,12}", time) for time in times):
                self.wrong("X07", node, f"'{name}': startTime and endTime must be whole milliseconds.")
                continue
            start, end = map(int, times)
            for time in (start, end):
                if time % frame:
                    self.wrong("X07", node, f"'{name}': {time} ms is not a multiple of the {frame} ms frame.")
            if start >= end:
                self.wrong("X08", node, f"'{name}': the effect starts at {start} ms and ends at {end} ms.")
            if duration is not None and end > duration:
                self.wrong("X10", node, f"'{name}': {end} ms is past the end of the sequence, {duration} ms.")
            spans.append((start, end, node))
            if not timing:
                self.effect(name, node)
        latest, latest_line = -1, 0
        for start, end, node in sorted(spans, key=lambda span: span[:2]):
            if start < latest:
                self.wrong("X09", node, f"'{name}': overlaps the effect on line {latest_line} in its layer.")
            if end > latest:
                latest, latest_line = end, node.line

    def effect(self, model: str, node: Node) -> None:
        name = node.attributes.get("name", "")
        if name not in EFFECT_NAMES:
            self.wrong(
                "X13", node, f"'{model}': xLights has no effect '{name}'.",
                get_close_matches(name, EFFECT_NAMES, n=3),
            )  # fmt: skip
        for code, key, length, what in (
            ("X11", "ref", len(self.effect_db), "entries in EffectDB"),
            ("X12", "palette", self.palettes, "palettes"),
        ):
            text = node.attributes.get(key)
            if text is None and (key == "palette" or name != DMX_EFFECT):
                continue  # files of xLights leave out what an effect does not use
            if text is None or not re.fullmatch(r"[0-9]{1,9}", text) or int(text) >= length:
                self.wrong(code, node, f"'{model}': {key} {text!r} is out of range: {length} {what}.")

    def settings(self) -> None:
        section = self.tree.section("EffectDB")
        for node in section.all("Effect") if section else ():
            if "E_VALUECURVE_DMX" not in node.text and "E_SLIDER_DMX" not in node.text:
                continue
            try:
                settings = Settings.of(node.text)
            except ValueError as error:
                self.wrong("X16", node, f"The settings cannot be used: {error}.")
                continue
            for channel, value in enumerate(settings.sliders, 1):
                if channel in settings.curves and value:
                    self.wrong(
                        "X14", node, f"Channel {channel} has a curve, but its slider is {value}, not 0."
                    )
                if value > 255:
                    self.wrong("X16", node, f"The slider of channel {channel} is {value}, above 255.")
