"""Reads xLights sequences: what stands in one, and the DMX values that its DMX effects give.

Light to import: numpy is only loaded once DMX values are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.apps.choreography.show.xml_tree import Node, Tree, XmlRefused, parse_xml
from detent.authoring.document import file_bytes
from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SECTIONS = (
    "head", "ColorPalettes", "EffectDB", "DataLayers",
    "DisplayElements", "ElementEffects", "lastView", "TimingTags",
)  # fmt: skip
"""Children of the root, in the order xLights reads them."""
OUR_TRACKS = "Detent "
"""Beginning of the names of timing tracks of ours."""
MADE_BY = "Made with Detent "
"""Beginning of the comment in a sequence of ours."""
DMX_EFFECT = "DMX"


MAX_BYTES = 200_000_000
"""Bytes of a sequence; read, it takes ten times as many."""


class SequenceRefused(ConfigurationError):
    """A file is not a sequence, or not one that can be read. The message says what to do."""


def sequence_bytes(path: Path) -> bytes:
    """The bytes of a sequence.

    Raises:
        OSError: it cannot be read, or is a pipe or device.
        SequenceRefused: it is too large.
    """
    content = file_bytes(path, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise SequenceRefused(f"{path} is larger than {MAX_BYTES // 10**6} MB, the most that is read.")
    return content


@dataclass(frozen=True, slots=True)
class TimingMark:
    """A labelled stretch of time, in milliseconds."""

    label: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect on a model."""

    name: str
    start_ms: int
    end_ms: int
    ref: int
    palette: int
    settings: str
    """Empty if the reference is out of range."""


@dataclass(frozen=True)
class Sequence:
    """A sequence, read."""

    head: Mapping[str, str]
    frame_ms: int
    duration_ms: int
    timing_tracks: Mapping[str, tuple[TimingMark, ...]]
    models: Mapping[str, tuple[tuple[Effect, ...], ...]]
    """Layers of effects, by model."""
    palettes: tuple[str, ...]
    effect_db: tuple[str, ...]

    @property
    def frames(self) -> int:
        """Whole frames in the sequence."""
        return self.duration_ms // self.frame_ms

    def dmx(self, model: str) -> NDArray[np.uint8]:
        """DMX values of each channel and frame, as xLights evaluates the model's effects.

        Where no effect is, channels are 0. Upper layers are the first; they win.

        Raises:
            ConfigurationError: there is no such model.
            ValueError: an effect has settings that we do not write.
        """
        import numpy as np

        if model not in self.models:
            raise ConfigurationError(f"The sequence has no effects on a model '{model}'.")
        effects = [
            effect for layer in reversed(self.models[model]) for effect in layer if effect.name == DMX_EFFECT
        ]
        settings = {effect.settings: Settings.of(effect.settings) for effect in effects}
        channels = max((len(one.sliders) for one in settings.values()), default=0)
        values = np.zeros((channels, self.frames), dtype=np.uint8)
        cache: dict[tuple[str, int], NDArray[np.uint8]] = {}
        for effect in effects:
            start, end = effect.start_ms // self.frame_ms, min(effect.end_ms // self.frame_ms, self.frames)
            frames = effect.end_ms // self.frame_ms - start
            key = (effect.settings, frames)
            if key not in cache:
                cache[key] = settings[effect.settings].dmx(frames)
            block = cache[key]
            values[: block.shape[0], start:end] = block[:, : end - start]
        return values


_SLIDER = re.compile(r"E_SLIDER_DMX(\d+)=(\d+)", re.ASCII)
_CURVE = re.compile(r"E_VALUECURVE_DMX(\d+)=(.*)", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """The settings of a DMX effect."""

    sliders: tuple[int, ...]
    """Values of channels 1, 2, …"""
    curves: Mapping[int, str]
    """Curves by channel."""

    @classmethod
    def of(cls, text: str) -> Settings:
        """Read a settings string."""
        sliders: dict[int, int] = {}
        curves: dict[int, str] = {}
        for part in text.split(","):
            if slider := _SLIDER.fullmatch(part):
                sliders[int(slider[1])] = int(slider[2])
            elif (curve := _CURVE.fullmatch(part)) and "Active=TRUE" in curve[2].split("|"):
                curves[int(curve[1])] = curve[2]
        channels = max([*sliders, *curves], default=0)
        if channels > 512:
            raise ValueError(f"a DMX effect has no channel {channels}")
        return cls(tuple(sliders.get(channel, 0) for channel in range(1, channels + 1)), curves)

    def dmx(self, frames: int) -> NDArray[np.uint8]:
        """Whole values for each channel and frame."""
        import numpy as np

        from detent.apps.choreography.show.curves import evaluated

        values = np.repeat(np.array(self.sliders, dtype=np.uint8)[:, None], frames, axis=1)
        for channel, curve in self.curves.items():
            values[channel - 1] = np.rint(np.clip(evaluated(curve, frames), 0, 255))
        return values


class SequenceTree:
    """The elements of a sequence, with their places in the file."""

    def __init__(self, source: bytes) -> None:
        """Raises SequenceRefused: it is no sequence, or unsafe to read."""
        try:
            self.tree: Tree = parse_xml(source)
        except XmlRefused as error:
            raise SequenceRefused(f"The sequence cannot be read: {error}") from error
        self.root = self.tree.root
        if self.root.tag != "xsequence":
            raise SequenceRefused(
                f"This is no xLights sequence: its root is <{self.root.tag}>, not <xsequence>."
            )

    def section(self, tag: str) -> Node | None:
        """A child of the root."""
        return self.root.first(tag)

    @cached_property
    def head(self) -> dict[str, str]:
        """The head's entries."""
        head = self.section("head")
        return {child.tag: child.text.strip() for child in head.children} if head else {}

    @property
    def frame_ms(self) -> int | None:
        """Milliseconds of a frame, if the head says it."""
        match = re.fullmatch(r"([0-9]{1,4}) ?ms", self.head.get("sequenceTiming", ""))
        return int(match[1]) or None if match else None

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds of the sequence, if the head says it."""
        text = self.head.get("sequenceDuration", "")
        return round(float(text) * 1000) if re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,9})?", text) else None

    def declared(self) -> list[Node]:
        """Elements that are declared."""
        section = self.section("DisplayElements")
        return section.all("Element") if section else []

    def elements(self) -> list[Node]:
        """Elements with their effects."""
        section = self.section("ElementEffects")
        return section.all("Element") if section else []

    def texts(self, section: str, tag: str) -> list[str]:
        """The texts of a list: palettes, or the EffectDB."""
        node = self.section(section)
        return [child.text for child in node.all(tag)] if node else []


def layers(element: Node) -> Iterator[tuple[Node, list[Node]]]:
    """The layers of an element, those of strands and submodels included, and their effects."""
    for node in element.walk():
        if node is not element and (effects := node.all("Effect")):
            yield node, effects


def number(node: Node, name: str, default: int = 0) -> int:
    """A whole number of an attribute."""
    text = node.attributes.get(name, "")
    return int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else default


def read(source: bytes) -> Sequence:
    """Read a sequence.

    Raises:
        SequenceRefused: it cannot be read.
    """
    tree = SequenceTree(source)
    frame_ms, duration_ms = tree.frame_ms, tree.duration_ms
    if frame_ms is None or duration_ms is None:
        raise SequenceRefused("The sequence's head lacks a usable sequenceTiming or sequenceDuration.")
    effect_db = tuple(tree.texts("EffectDB", "Effect"))
    tracks: dict[str, tuple[TimingMark, ...]] = {}
    models: dict[str, tuple[tuple[Effect, ...], ...]] = {}
    for element in tree.elements():
        name = element.attributes.get("name", "")
        if element.attributes.get("type") == "timing":
            tracks[name] = tuple(
                TimingMark(
                    node.attributes.get("label", ""), number(node, "startTime"), number(node, "endTime")
                )
                for layer in element.all("EffectLayer")
                for node in layer.all("Effect")
            )
        else:
            models[name] = tuple(
                tuple(_effect(node, effect_db) for node in layer.all("Effect"))
                for layer in element.all("EffectLayer")
            )
    palettes = tuple(tree.texts("ColorPalettes", "ColorPalette"))
    return Sequence(tree.head, frame_ms, duration_ms, tracks, models, palettes, effect_db)


def _effect(node: Node, effect_db: tuple[str, ...]) -> Effect:
    ref = number(node, "ref", -1)
    return Effect(
        node.attributes.get("name", ""),
        number(node, "startTime"),
        number(node, "endTime"),
        ref,
        number(node, "palette", -1),
        effect_db[ref] if 0 <= ref < len(effect_db) else "",
    )


def is_ours(source: bytes) -> bool:
    """Whether a file is a sequence that Detent made from nothing, and nobody has added to since.

    The comment in its head says the one; other tracks than ours, and other effects than DMX, say the other.
    """
    try:
        sequence = read(source)
    except SequenceRefused:
        return False
    added = any(not name.startswith(OUR_TRACKS) for name in sequence.timing_tracks) or any(
        effect.name != DMX_EFFECT
        for layers_of_model in sequence.models.values()
        for layer in layers_of_model
        for effect in layer
    )
    return sequence.head.get("comment", "").startswith(MADE_BY) and not added


def fingerprint(source: bytes, path: str) -> dict[str, Any]:
    """What a run records about a base sequence: `activity_proxy` counts running effects in each second."""
    sequence = read(source)
    effects = [effect for found in sequence.models.values() for layer in found for effect in layer]
    histogram: dict[str, int] = {}
    bins = [0] * -(-sequence.duration_ms // 1000)
    changes = [0] * (len(bins) + 1)
    for effect in effects:
        histogram[effect.name] = histogram.get(effect.name, 0) + 1
        first, last = effect.start_ms // 1000, -(-effect.end_ms // 1000)
        if 0 <= first < last and first < len(bins):
            changes[first] += 1
            changes[min(last, len(bins))] -= 1
    running = 0
    for second in range(len(bins)):
        running += changes[second]
        bins[second] = running
    notes = [f"{len(sequence.models)} models, {len(effects)} effects"]
    if is_ours(source):
        notes.append("made by Detent")
    return {
        "xsq_path": path,
        "xlights_version": sequence.head.get("version", ""),
        "duration_s": sequence.duration_ms / 1000,
        "timing_tracks": list(sequence.timing_tracks),
        "timing_track_events": {name: len(marks) for name, marks in sequence.timing_tracks.items()},
        "effect_type_histogram": dict(sorted(histogram.items())),
        "activity_proxy": {"bin_s": 1.0, "bins": bins},
        "notes": notes,
    }
