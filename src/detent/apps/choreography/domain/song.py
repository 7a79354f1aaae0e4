"""A song as the choreography sees it: bars, sections, energy. Everything counts in bars, 1-based."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SECTION_LABELS = (
    "intro", "verse", "chorus", "bridge", "build", "drop", "breakdown", "outro", "full",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SongSection:
    """A part of the song. Its bars are inclusive at both ends."""

    section_id: str
    label: str
    start_bar: int
    end_bar: int
    energy: float
    """0 to 100, measured."""
    energy_rank: int = 1
    """1 is the loudest section."""


@dataclass(frozen=True, slots=True)
class Song:
    """Bars, beats, sections and measured energy of a song."""

    duration_s: float
    tempo_bpm: float
    bars_s: tuple[float, ...]
    """Start of each bar; the first is 0.0, the last bar ends with the song."""
    beats_s: tuple[float, ...]
    beats_per_bar: int
    energy_per_bar: tuple[float, ...]
    """0 to 100, one for each bar."""
    sections: tuple[SongSection, ...]
    key: str = "C major"

    @classmethod
    def of(cls, audio: Mapping[str, Any]) -> Song:
        """Read the analysis that is written as `audio.json`."""
        sections = tuple(
            SongSection(
                row["section_id"],
                row["label"],
                row["start_bar"],
                row["end_bar"],
                row["energy"],
                row["energy_rank"],
            )
            for row in audio["structure"]["sections"]
        )
        key = audio.get("harmonic", {}).get("key", {"key": "C", "mode": "major"})
        return cls(
            audio["duration_s"],
            audio["tempo_bpm"],
            tuple(audio["bars_s"]),
            tuple(audio["beats_s"]),
            int(audio["time_signature"]["time_signature"].partition("/")[0]),
            tuple(audio["energy"]["per_bar"]),
            sections,
            f"{key['key']} {key['mode']}",
        )

    @property
    def bars(self) -> int:
        """How many bars the song has."""
        return len(self.bars_s)

    @property
    def borders(self) -> tuple[int, ...]:
        """First bars of the sections but the first: the inner borders."""
        return tuple(section.start_bar for section in self.sections[1:])

    def starts_at(self, bar: int) -> float:
        """Second at which a bar starts; the bar after the last starts at the song's end."""
        return self.bars_s[bar - 1] if bar <= self.bars else self.duration_s

    def ends_at(self, bar: int) -> float:
        """Second at which a bar ends."""
        return self.starts_at(bar + 1)

    def second_of(self, position: float) -> float:
        """Second of a place in bars counted from 0.0, the start of bar 1; 2.5 is the middle of bar 3."""
        bar = min(max(int(position), 0), self.bars - 1)
        start, end = self.starts_at(bar + 1), self.ends_at(bar + 1)
        return min(start + (position - bar) * (end - start), self.duration_s)

    def energy(self, start_bar: int, end_bar: int) -> float:
        """Mean measured energy of some bars, those outside the song left out; 0 if none is inside."""
        inside = self.energy_per_bar[max(start_bar, 1) - 1 : max(end_bar, 0)]
        return sum(inside) / len(inside) if inside else 0.0

    def section_at(self, bar: int) -> SongSection | None:
        """The song's section that holds a bar."""
        return next((one for one in self.sections if one.start_bar <= bar <= one.end_bar), None)

    def __iter__(self) -> Iterator[SongSection]:
        return iter(self.sections)
