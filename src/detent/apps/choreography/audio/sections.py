"""The parts of a song: where its sound changes, which parts are alike, and what to call them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.audio.energy import STEP, per_bar
from detent.apps.choreography.audio.rhythm import Curve
from detent.apps.choreography.audio.spectra import Spectra

Rows = NDArray[np.float64]

KERNEL = 8
"""Bars on each side of a border that are compared."""
APART = 4
"""Bars between two borders at least."""
MOST = 12
RESTLESS = 4.0
"""Standard deviations of a bar's energy above which a jump is none of chance."""
CHANCE = 1.65
"""Median of the second differences of noise, in its standard deviations."""
ALIKE = 0.55
"""Mean similarity from which two sections belong to one group."""
BUILD, DROP = 15.0, 25.0


@dataclass(frozen=True, slots=True)
class Part:
    """Bars of a section, the first counted from 0, the last left out."""

    start: int
    end: int
    group: int
    similarity: float
    """Mean similarity of its bars to those of its group's other sections; 1 if it is alone."""


def bar_rows(spectra: Spectra, loudness: Curve, bars_s: Curve) -> Rows:
    """Harmony, timbre and loudness of each bar, each column standardised."""
    columns = np.column_stack((spectra.chroma, spectra.mfcc, loudness))
    rows = np.column_stack([per_bar(column, bars_s, spectra.duration_s) for column in columns.T])
    spread = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0)) / np.where(spread > 1e-6, spread, 1.0))


def similarity(rows: Rows) -> Rows:
    """Cosine of every bar with every other."""
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(norm > 1e-9, norm, 1.0)
    return np.asarray(unit @ unit.T)


def novelty(alike: Rows) -> Curve:
    """How much the bars after each bar line differ from those before: a checkerboard on the diagonal."""
    count = len(alike)
    half = KERNEL
    taper = np.exp(-0.5 * ((np.arange(-half, half) + 0.5) / (half / 2)) ** 2)
    sign = np.sign(np.arange(-half, half) + 0.5)
    kernel = np.outer(taper * sign, taper * sign)
    curve = np.zeros(count)
    for bar in range(1, count):
        low, high = max(0, bar - half), min(count, bar + half)
        inside = slice(low - bar + half, high - bar + half)
        board = kernel[inside, inside]
        curve[bar] = float((board * alike[low:high, low:high]).sum() / np.abs(board).sum())
    return np.maximum(curve, 0.0)


def jumps(energies: Curve) -> Curve:
    """How much the energy differs on both sides of each bar line: 0 amid a steady rise or fall.

    Straight lines through the `APART` bars before and after are continued to the bar line: means would put
    the border of a build into its middle.
    """
    bars = np.arange(APART) + 0.5
    spread = bars - bars.mean()
    after = 1 / APART - bars.mean() * spread / (spread @ spread)  # weights of the bars in the line's value
    kernel = np.concatenate((-after[::-1], after))
    curve = np.zeros(len(energies))
    curve[APART : len(energies) - APART + 1] = np.abs(np.correlate(energies, kernel, "valid"))
    return curve


def borders(novel: Curve, energies: Curve) -> list[int]:
    """Bars at which a section begins, but the first.

    These are jumps of the energy, and peaks of novelty well above its mean; the strongest are kept. Novelty
    alone joins parts that differ in loudness only, and it is blurred: near a jump it yields.
    """
    count = len(energies)
    if count < 2 * APART:
        return []
    # In a song whose bars differ by chance, a jump must stand out from that.
    restless = float(np.median(np.abs(np.diff(energies, 2)))) / CHANCE
    kept: list[int] = []
    for curve, least in (
        (jumps(energies), max(STEP, RESTLESS * restless)),
        (novel, novel[1:].mean() + 0.5 * novel[1:].std()),
    ):
        peaks = [
            bar
            for bar in range(APART, count - APART + 1)
            if curve[bar] > least
            and curve[bar] >= curve[bar - 1]
            and (bar + 1 == count or curve[bar] > curve[bar + 1])
        ]
        for bar in sorted(peaks, key=lambda bar: (-curve[bar], bar)):
            if all(abs(bar - other) >= APART for other in kept):
                kept.append(bar)
    return sorted(kept[: MOST - 1])


def gridded(places: list[int], count: int) -> list[int]:
    """Borders on a multiple of four bars, counted from the start most of them suit, if within one bar."""
    if not places:
        return []
    # A song may begin with an upbeat, or with a few bars of noise: its phrases need not start at bar 1.
    offset = max(range(APART), key=lambda o: (sum((bar - o) % APART == 0 for bar in places), -o))
    moved: list[int] = []
    for bar in places:
        away = (bar - offset + 1) % APART - 1
        bar = bar - away if abs(away) <= 1 else bar
        if bar >= APART and count - bar >= APART and (not moved or bar - moved[-1] >= APART):
            moved.append(bar)
    return moved


def parts(rows: Rows, energies: Curve) -> list[Part]:
    """Cut a song into sections, given rows and energies of its bars, and group those that are alike."""
    count = len(rows)
    alike = similarity(rows)
    edges = [0, *gridded(borders(novelty(alike), energies), count), count]
    spans = list(pairwise(edges))
    # Sections are compared by their mean bars: the bars of one differ by their place in the phrase.
    mean = np.array([rows[start:end].mean(axis=0) for start, end in spans])
    between = similarity(mean)
    groups: list[list[int]] = []
    for index in range(len(spans)):
        fits = [float(np.mean([between[index, other] for other in group])) for group in groups]
        if fits and max(fits) >= ALIKE:
            groups[int(np.argmax(fits))].append(index)
        else:
            groups.append([index])
    return [
        Part(start, end, number, _likeness(between, index, group))
        for index, (start, end) in enumerate(spans)
        for number, group in enumerate(groups)
        if index in group
    ]


def _likeness(between: Rows, index: int, group: list[int]) -> float:
    others = [other for other in group if other != index]
    return float(np.clip(np.mean([between[index, other] for other in others]), 0, 1)) if others else 1.0


def labels(cut: list[Part], energies: Curve, bars: Curve) -> list[str]:
    """What to call each section; the first rule that fits decides."""
    count = len(cut)
    if count == 1:
        return ["full"]
    median = float(np.median(energies))
    upper = float(np.percentile(energies, 75))
    sizes = {part.group: sum(other.group == part.group for other in cut) for part in cut}
    loudness = {
        group: float(np.mean([energies[i] for i in range(count) if cut[i].group == group])) for group in sizes
    }
    repeated = {group for group, size in sizes.items() if size > 1}
    loudest = max(repeated or set(sizes), key=lambda group: loudness[group])
    # Repeated groups are preferred, but a verse that returns is no chorus: it must be among the louder ones.
    if loudness[loudest] < median:
        loudest = max(sizes, key=lambda group: loudness[group])

    def label(i: int) -> str:
        part, energy = cut[i], energies[i]
        if i == 0 and energy < median:
            return "intro"
        if i == count - 1 and energy < median:
            return "outro"
        quarter = max(1, (part.end - part.start) // 4)
        rise = bars[part.end - quarter : part.end].mean() - bars[part.start : part.start + quarter].mean()
        if i + 1 < count and rise >= BUILD and energies[i + 1] - energy >= BUILD:
            return "build"
        if i and energy - energies[i - 1] >= DROP and energy >= upper:
            return "drop"
        if i and energies[i - 1] - energy >= DROP:
            return "breakdown"
        if part.group == loudest:
            return "chorus"
        if sizes[part.group] == 1 and 0 < i < count - 1:
            return "bridge"
        return "verse"

    return [label(i) for i in range(count)]


def described(cut: list[Part], bars: Curve, bars_s: Curve, duration_s: float) -> list[dict[str, Any]]:
    """The sections as `audio.json` has them."""
    edges = np.append(bars_s, duration_s)
    lengths = np.diff(edges)
    spans = [slice(part.start, part.end) for part in cut]
    energies = np.array([float(np.average(bars[span], weights=lengths[span])) for span in spans])
    ranks = np.argsort(np.argsort(-energies, kind="stable"), kind="stable") + 1
    names = labels(cut, energies, bars)
    return [
        {
            "section_id": f"S{i + 1}",
            "start_s": float(edges[part.start]),
            "end_s": float(edges[part.end]),
            "duration_s": float(edges[part.end] - edges[part.start]),
            "start_bar": part.start + 1,
            "end_bar": part.end,
            "label": names[i],
            "similarity": part.similarity,
            "repeat_count": sum(other.group == part.group for other in cut),
            "energy": float(energies[i]),
            "energy_rank": int(ranks[i]),
        }
        for i, part in enumerate(cut)
    ]
