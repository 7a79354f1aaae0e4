"""What an `audio.json` that people give back must hold: all that a show is made of, and nothing absurd."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detent.apps.choreography.domain.plan import MOST_BARS, MOST_SECTIONS, Energy
from detent.apps.choreography.domain.violations import parsed

LONGEST_S = 6_000
"""Seconds: somewhat more than the 90 minutes that a song may last."""

Text = Annotated[str, Field(min_length=1, max_length=5_000)]
Second = Annotated[float, Field(ge=0, le=LONGEST_S)]
Label = Literal["intro", "verse", "chorus", "bridge", "build", "drop", "breakdown", "outro", "full"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Meter(_Part):
    time_signature: Annotated[str, Field(pattern=r"^([2-9]|1[0-2])/4$")]


class _Loudness(_Part):
    times_s: list[Second]
    rms_norm: list[Annotated[float, Field(ge=0, le=1)]]
    per_bar: list[Energy]


class _Section(_Part):
    section_id: Text
    label: Label
    start_bar: Annotated[int, Field(ge=1)]
    end_bar: Annotated[int, Field(le=MOST_BARS)]
    energy: Energy
    energy_rank: Annotated[int, Field(ge=1)]


class _Structure(_Part):
    sections: list[_Section] = Field(max_length=MOST_SECTIONS)


class _Key(_Part):
    key: Annotated[str, Field(max_length=20)]
    mode: Annotated[str, Field(max_length=20)]


class _Harmony(_Part):
    key: _Key


class _Analysis(_Part):
    audio_path: Text
    audio_sha256: Text
    duration_s: Annotated[float, Field(gt=0, le=LONGEST_S)]
    tempo_bpm: Annotated[float, Field(gt=0, le=1_000)]
    beats_s: list[Second] = Field(max_length=MOST_BARS)
    bars_s: list[Second] = Field(min_length=1, max_length=MOST_BARS)
    time_signature: _Meter
    energy: _Loudness
    harmonic: _Harmony | None = None
    structure: _Structure
    warnings: list[str] = []

    @model_validator(mode="after")
    def _fits(self) -> Self:
        bars = len(self.bars_s)
        for what, seconds in (("bars_s", self.bars_s), ("beats_s", self.beats_s)):
            if any(after <= before for before, after in pairwise(seconds)):
                raise ValueError(f"{what} must rise")
        if self.bars_s[0] != 0:
            raise ValueError("bars_s must begin with 0, where the song does")
        if self.bars_s[-1] >= self.duration_s:
            raise ValueError("the last bar must start before the song's end")
        if len(self.energy.per_bar) != bars:
            raise ValueError(f"energy.per_bar must have {bars} numbers, one for each bar")
        end = 0
        for section in self.structure.sections:
            if section.start_bar != end + 1 or section.end_bar < section.start_bar:
                raise ValueError(f"section {section.section_id} must start at bar {end + 1} and end after it")
            end = section.end_bar
        if end != bars:
            raise ValueError(f"the last section must end with the song, at bar {bars}")
        return self


def check_song(audio: Any) -> None:
    """Check an analysis that may have been changed by hand.

    Raises:
        SchemaViolation: everything that is wrong with it.
    """
    parsed(_Analysis, audio, "analysis")
