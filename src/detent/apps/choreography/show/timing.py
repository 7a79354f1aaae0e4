"""Bars and beats as frames: where each begins, and how far into it a frame is. No tempo is multiplied."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.domain.song import Song
from detent.kernel.errors import ConfigurationError

FRAME_TIMES = (20, 25, 50)
"""Milliseconds a frame may last in a sequence of our own; a base file may have another."""


class Mark(NamedTuple):
    """A labelled stretch of a timing track, in frames; the end is not part of it."""

    label: str
    start: int
    end: int


class Timing:
    """A song on a grid of frames."""

    def __init__(self, song: Song, frame_ms: int) -> None:
        if not 1 <= frame_ms <= 1000:
            raise ConfigurationError(f"A frame of {frame_ms} ms is none; use 20, 25 or 50.")
        self.song = song
        self.frame_ms = frame_ms
        self.frames = int(round(song.duration_s * 1000) // frame_ms)
        """Whole frames in the song."""
        if self.frames < 1:
            raise ConfigurationError(f"The song is shorter than one frame of {frame_ms} ms.")

    def frame_at(self, seconds: float) -> int:
        """The nearest frame, inside the song."""
        return min(max(int(np.floor(seconds * 1000 / self.frame_ms + 0.5)), 0), self.frames)

    @cached_property
    def bars(self) -> NDArray[np.int64]:
        """First frame of each bar, and the end of the last."""
        starts = [self.frame_at(second) for second in self.song.bars_s]
        return np.maximum.accumulate(np.array([*starts, self.frames]))

    def span(self, start_bar: int, end_bar: int) -> tuple[int, int]:
        """First frame of some bars, and the end of the last; those outside the song left out."""
        first, last = max(start_bar, 1), min(end_bar, self.song.bars)
        return (int(self.bars[first - 1]), int(self.bars[last])) if first <= last else (0, 0)

    @cached_property
    def bar_positions(self) -> NDArray[np.float64]:
        """For each frame, bars since the start of bar 1."""
        # Bars of no frame would make the position ambiguous.
        starts, first = np.unique(self.bars, return_index=True)
        return np.interp(np.arange(self.frames), starts, first.astype(np.float64))

    @cached_property
    def beats(self) -> NDArray[np.int64]:
        """Frames on which a beat falls; spread evenly over the bars where the song has none."""
        frames = {self.frame_at(second) for second in self.song.beats_s if second < self.song.duration_s}
        if len(frames) < 2:
            spread = np.arange(self.song.bars * self.song.beats_per_bar) / self.song.beats_per_bar
            frames = {self.frame_at(self.song.second_of(position)) for position in spread}
        return np.array(sorted(frame for frame in frames if frame < self.frames))

    @cached_property
    def beat_positions(self) -> NDArray[np.float64]:
        """For each frame, beats since the first one; before it, less than 0."""
        beats = self.beats.astype(np.float64)
        if len(beats) < 2:
            return self.bar_positions * self.song.beats_per_bar
        first, last = beats[1] - beats[0], beats[-1] - beats[-2]
        if last < (rest := self.frames - beats[-1]) < 1.5 * last:
            last = rest  # the song ends with its last beat: no new one begins in its last frames
        before = np.arange(np.ceil(beats[0] / first), 0, -1)
        after = np.arange(1, np.ceil((self.frames - beats[-1]) / last) + 1)
        known = np.concatenate([beats[0] - before * first, beats, beats[-1] + after * last])
        return np.interp(np.arange(self.frames), known, np.arange(len(known)) - len(before))

    def cuts(self, start: int, end: int, longest: int) -> list[tuple[int, int]]:
        """Frames from start to end in pieces: bars, and where a bar is longer than allowed, its beats."""
        inner = {int(bar) for bar in self.bars if start < bar < end}
        pieces: list[tuple[int, int]] = []
        for piece in pairwise([start, *sorted(inner), end]):
            if piece[1] - piece[0] <= longest:
                pieces.append(piece)
                continue
            beats = [int(beat) for beat in self.beats if piece[0] < beat < piece[1]]
            for first, last in pairwise([piece[0], *beats, piece[1]]):
                edges = [*range(first, last, longest), last]
                pieces += pairwise(edges)
        return pieces

    # -- marks ----------------------------------------------------------------------------------------------

    def bar_marks(self) -> list[Mark]:
        """Bars, by number."""
        edges = pairwise(map(int, self.bars))
        return [Mark(str(bar), start, end) for bar, (start, end) in enumerate(edges, 1) if start < end]

    def beat_marks(self) -> list[Mark]:
        """Beats, numbered within their bars. Those before the first downbeat count towards it."""
        per_bar = self.song.beats_per_bar
        bars = np.searchsorted(self.bars, self.beats, side="right") - 1
        first = np.searchsorted(bars, bars, side="left")
        numbers = (np.arange(len(bars)) - first) % per_bar
        pickup = bars == 0
        if self.song.bars > 1 and pickup.any():
            numbers[pickup] = (np.arange(-pickup.sum(), 0)) % per_bar
        edges = [*map(int, self.beats), self.frames]
        return [
            Mark(str(number + 1), start, end)
            for number, (start, end) in zip(numbers, pairwise(edges), strict=True)
        ]
