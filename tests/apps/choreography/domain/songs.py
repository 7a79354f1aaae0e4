"""Songs made of sections with known energy, and songs drawn at random."""

from __future__ import annotations

import random
from collections.abc import Sequence

from detent.apps.choreography.domain.song import Song, SongSection

Row = tuple[str, int, float]
"""Label, bars and energy of a section."""


def song_of(*rows: Row, bar_s: float = 2.0, wobble: float = 0.0, seed: int = 0) -> Song:
    """A song whose sections follow one another; `wobble` varies the energy of single bars, not the mean."""
    dice = random.Random(seed)
    loudness = sorted((row[2] for row in rows), reverse=True)
    sections: list[SongSection] = []
    energies: list[float] = []
    for label, bars, energy in rows:
        start = len(energies) + 1
        offset = min(wobble, energy, 100 - energy) * dice.random()
        energies += [energy + (offset if k % 2 else -offset) for k in range(bars - bars % 2)]
        energies += [energy] * (bars % 2)
        rank = loudness.index(energy) + 1
        sections.append(SongSection(f"S{len(sections) + 1}", label, start, len(energies), energy, rank))
    bars_s = tuple(bar_s * k for k in range(len(energies)))
    beats_s = tuple(bar_s / 4 * k for k in range(4 * len(energies)))
    return Song(bar_s * len(energies), 240 / bar_s, bars_s, beats_s, 4, tuple(energies), tuple(sections))


WORKED = song_of(("intro", 8, 25), ("verse", 8, 60), ("chorus", 8, 90))
"""The song of the specification's worked example."""

CURVES = {"loud": (70, 100), "quiet": (0, 40), "flat": (45, 55), "mixed": (0, 100)}
LENGTHS = (4, 4, 8, 8, 8, 8, 12, 16, 16)


def label_of(energies: Sequence[float], index: int) -> str:
    """The label that analysis would give a section, roughly."""
    energy, median = energies[index], sorted(energies)[len(energies) // 2]
    if len(energies) == 1:
        return "full"
    if index == 0 and energy < median:
        return "intro"
    if index == len(energies) - 1 and energy < median:
        return "outro"
    if index and energy >= energies[index - 1] + 25 and energy > 75:
        return "drop"
    if index and energy <= energies[index - 1] - 25:
        return "breakdown"
    if index + 1 < len(energies) and energies[index + 1] >= energy + 15:
        return "build"
    return "chorus" if energy > max(energies) - 10 else "bridge" if index % 5 == 4 else "verse"


def drawn_song(
    dice: random.Random, curve: str = "mixed", fewest: int = 1, most: int = 12, odd: bool = False
) -> Song:
    """A song drawn at random along an energy curve; with `odd`, of sections of any length."""
    low, high = CURVES[curve]
    energies = [dice.uniform(low, high) for _ in range(dice.randint(fewest, most))]
    lengths = [dice.randint(1, 24) if odd else dice.choice(LENGTHS) for _ in energies]
    rows = [
        (label_of(energies, k), length, energy)
        for k, (length, energy) in enumerate(zip(lengths, energies, strict=True))
    ]
    return song_of(*rows, wobble=8, seed=dice.randrange(1000))


def varied_song(dice: random.Random) -> Song:
    """A song of 5 to 12 sections, some below 40 and some above 70."""
    while True:
        song = drawn_song(dice, fewest=5)
        energies = [section.energy for section in song]
        if min(energies) < 40 and max(energies) > 70:
            return song
