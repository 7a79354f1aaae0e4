"""A song's samples, block by block: mono, at one sampling rate, whatever the file holds."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from math import ceil, gcd
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from detent.apps.choreography.audio.problem import AudioProblem, library

Samples = NDArray[np.float32]

RATE = 22_050
"""Samples per second of everything that is analysed."""
MAX_BYTES = 2 * 1024**3
MAX_SECONDS = 90 * 60
RATES = range(2_000, 768_001)
"""Sampling rates that a file may have."""
CONTAINERS = {
    "WAV": "wav",
    "WAVEX": "wav",
    "RF64": "wav",
    "W64": "wav",
    "FLAC": "flac",
    "OGG": "ogg",
    "MP3": "mp3",
}
"""What soundfile calls a container, and what people do. Others that it could read are not offered."""
BLOCK_SECONDS = 10
SHORTFALL = 0.02
"""Share of the promised samples that may be missing without a warning."""
TAIL = 0.1
"""Share of a file's bytes that may be left unread without a warning: tags and pictures follow the music."""
LOUDEST = 1e4
"""Samples are -1 to 1, and in files of floating-point numbers somewhat beyond; such a one is damage."""
UNKNOWN_BYTES = 0x7FFF_0000
"""Programs that write a wav file into a pipe do not know its length, and claim this or more."""
OGG_PAGE = 65_307
"""Most bytes of a page of an ogg file."""
OGG_LAST = 4
"""The flag, in byte 5 of a page, of the last one."""
_CLAIMED = re.compile(r"^\s*data : (\d+) \(should be (\d+)\)", re.MULTILINE)


def fingerprint(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a song's bytes.

    Raises:
        AudioProblem: the file cannot be opened.
    """
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opened(path: str | os.PathLike[str]) -> Any:
    try:
        # Before it is opened: a pipe waits for its other end, and a device may never end.
        if not stat.S_ISREG(os.stat(path).st_mode) and not Path(path).is_dir():
            raise AudioProblem("unreadable", f"{path}: is no file but a pipe, socket or device.")
        return Path(path).open("rb")
    except FileNotFoundError as error:
        raise AudioProblem("missing", f"{path}: there is no such file.") from error
    except OSError as error:
        raise AudioProblem("unreadable", f"{path}: cannot be opened: {error.strerror}.") from error


class SongFile:
    """An opened song. Its format is told by its content; the name of the file plays no part."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a song.

        Raises:
            AudioProblem: nothing can be read from the file, or it is beyond the limits.
            IntegrationMissing: the libraries are not installed.
        """
        self.path = str(path)
        self.warnings: list[str] = []
        soundfile = library("soundfile")
        self._errors: tuple[type[Exception], ...] = (soundfile.LibsndfileError, RuntimeError, OSError)
        self._file = _opened(path)
        try:
            self._sound = self._understood(soundfile)
        except BaseException:
            self._file.close()
            raise

    def _understood(self, soundfile: Any) -> Any:
        size = os.fstat(self._file.fileno()).st_size
        if size == 0:
            raise AudioProblem("empty", f"{self.path}: the file is empty.")
        if size > MAX_BYTES:
            raise AudioProblem("too_large", f"{self.path}: {size / 1024**3:.1f} GB; at most 2 GB are read.")
        try:
            # Without its name, whose ending would be believed.
            sound = soundfile.SoundFile(self._file.fileno(), closefd=False)
        except self._errors as error:
            raise AudioProblem(
                "format", f"{self.path}: not a song that can be read. It must be wav, flac, ogg or mp3."
            ) from error
        if sound.format not in CONTAINERS:
            raise AudioProblem(
                "format", f"{self.path}: holds {sound.format_info}. It must be wav, flac, ogg or mp3."
            )
        if sound.samplerate not in RATES:
            raise AudioProblem(
                "unreadable", f"{self.path}: claims {sound.samplerate} samples a second; convert it to 44100."
            )
        self._refuse_long(sound.frames, sound.samplerate)
        return sound

    def _refuse_long(self, frames: int, rate: int) -> None:
        # A stream of unknown length counts as 2**63 - 1 frames; it is measured while it is read.
        if frames < 2**62 and frames > MAX_SECONDS * rate:
            raise AudioProblem(
                "too_long", f"{self.path}: {frames / rate / 60:.0f} minutes; a song may have 90. Cut it."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sound.close()
        self._file.close()

    @property
    def promised_s(self) -> float:
        """Length in seconds as the file's header has it; what is decoded may differ. 0 if unknown."""
        return float(self._sound.frames / self._sound.samplerate) if self._sound.frames < 2**62 else 0.0

    @property
    def _claimed_s(self) -> float:
        """The length that the file was to have; of a wav file the library reports what is there."""
        found = _CLAIMED.search(self._sound.extra_info)
        claimed, there = map(int, found.groups()) if found else (0, 0)
        if 0 < there < claimed < UNKNOWN_BYTES:
            return self.promised_s * claimed / there
        return self.promised_s

    def blocks(self, progress: Callable[[float], None] = lambda seconds: None) -> Iterator[Samples]:
        """Decode the song, in mono at `RATE`, calling `progress` with the seconds decoded.

        Raises:
            AudioProblem: the song is damaged, empty or too long.
        """
        return resampled(self._decoded(progress), self._sound.samplerate)

    def _decoded(self, progress: Callable[[float], None]) -> Iterator[Samples]:
        sound, frames = self._sound, 0
        while True:
            try:
                block = sound.read(BLOCK_SECONDS * sound.samplerate, dtype="float32", always_2d=True)
            except self._errors as error:
                raise AudioProblem(
                    "unreadable",
                    f"{self.path}: damaged after {frames / sound.samplerate:.1f} s ({error}).",
                ) from error
            if not len(block):
                break
            if not np.isfinite(block).all() or np.abs(block).max() > LOUDEST:
                raise AudioProblem(
                    "unreadable",
                    f"{self.path}: damaged after {frames / sound.samplerate:.1f} s: samples are not numbers, "
                    f"or beyond all loudness.",
                )
            frames += len(block)
            self._refuse_long(frames, sound.samplerate)
            yield block.mean(axis=1, dtype=np.float32)
            progress(frames / sound.samplerate)
        if not frames:
            raise AudioProblem("empty", f"{self.path}: holds no samples.")
        seconds, claimed = frames / sound.samplerate, self._claimed_s
        if seconds < claimed * (1 - SHORTFALL):
            self.warnings.append(f"the file ends after {seconds:.1f} of {claimed:.1f} s; is it cut off?")
            return
        fd = self._file.fileno()
        read, size = os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size
        if sound.format == "OGG" and not self._ogg_ends(fd, size):
            self.warnings.append(
                f"the file ends after {seconds:.1f} s without the end of its music; is it cut off?"
            )
        elif read < size * (1 - TAIL):
            share = f"{100 * read / size:.0f} % of the file"
            self.warnings.append(f"the music ends after {seconds:.1f} s, at {share}; is it damaged?")

    @staticmethod
    def _ogg_ends(fd: int, size: int) -> bool:
        """Whether the last page of an ogg file says that it is the last: its length is written nowhere."""
        end = os.pread(fd, OGG_PAGE, max(size - OGG_PAGE, 0))
        page = end.rfind(b"OggS")
        return page < 0 or not end[page + 5 : page + 6] or bool(end[page + 5] & OGG_LAST)


def resampled(blocks: Iterator[Samples], rate: int, target: int = RATE) -> Iterator[Samples]:
    """Change the sampling rate of a stream: the same samples as if it were one block, without seams."""
    if rate == target:
        yield from blocks
        return
    resample_poly = library("scipy.signal").resample_poly
    common = gcd(rate, target)
    up, down = target // common, rate // common
    # A block begins and ends on a multiple of `down`, where an output sample falls on an input sample; it
    # is filtered together with as much of its neighbours as the filter (20 periods long) reaches.
    margin = ceil(10 * max(up, down) / up / down) * down
    context = np.zeros(margin, np.float32)
    pending = np.zeros(0, np.float32)

    def step(body: Samples, after: Samples) -> Samples:
        filtered = resample_poly(np.concatenate((context, body, after)), up, down)
        first = margin * up // down
        count = -(-len(body) * up // down)
        return np.asarray(filtered[first : first + count], np.float32)

    for block in blocks:
        pending = np.concatenate((pending, block))
        ready = (len(pending) - margin) // down * down
        if ready >= max(down, margin):
            yield step(pending[:ready], pending[ready : ready + margin])
            context, pending = pending[ready - margin : ready], pending[ready:]
    if len(pending):
        yield step(pending, np.zeros(margin, np.float32))
