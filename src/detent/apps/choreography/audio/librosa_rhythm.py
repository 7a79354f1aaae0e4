"""Beats and harmony by librosa. Its first use in an environment compiles for up to a minute."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np

from detent.apps.choreography.audio.decoding import RATE
from detent.apps.choreography.audio.problem import library
from detent.apps.choreography.audio.rhythm import Rhythm, confidence, onsets, period_tempo, tempo
from detent.apps.choreography.audio.spectra import FRAME, HOP, Banks, Spectra

LATE_S = 0.025
"""How much later than the sound librosa puts a beat."""


def track(spectra: Spectra, bpm: float | None = None) -> Rhythm | None:
    """Find tempo and beats, as `rhythm.track` does."""
    librosa = library("librosa", "librosa")
    # Its onset curve is made from our bands, so that nothing but frames is kept of an hour of music.
    envelope = librosa.onset.onset_strength(S=spectra.mel_db.T, sr=RATE, hop_length=HOP)
    envelope = np.asarray(envelope, np.float64)
    if not np.isfinite(envelope).all() or envelope.max(initial=0.0) <= 0:
        return None
    own = onsets(spectra.mel_db)
    heard = tempo(own)
    # Left alone, its tempo is two thirds of the right one in every fourth song.
    bpm = bpm or (heard[0] if heard else None)
    _, beats = librosa.beat.beat_track(
        onset_envelope=envelope, sr=RATE, hop_length=HOP, trim=False, units="time", bpm=bpm
    )
    beats_s = np.asarray(beats, np.float64) - LATE_S
    beats_s = beats_s[(beats_s >= 0) & (beats_s < spectra.duration_s)]
    if len(beats_s) < 2:
        return None
    return Rhythm(period_tempo(beats_s), beats_s, confidence(own, beats_s), heard[1] if heard else ())


def banks() -> Banks:
    """Its mel bands and pitch classes, for `spectra`: what its chroma, MFCC and onsets are made of."""
    filters = library("librosa", "librosa").filters
    return Banks(
        np.asarray(filters.mel(sr=RATE, n_fft=FRAME).T, np.float32),
        np.asarray(filters.chroma(sr=RATE, n_fft=FRAME).T, np.float32),
    )


def compiled() -> bool:
    """Whether librosa need not compile; where it keeps what it compiles elsewhere, this is assumed."""
    spec = importlib.util.find_spec("librosa")
    if spec is None or spec.origin is None:
        return True
    folder = Path(spec.origin).parent
    cached = any((folder / "__pycache__").glob("*.nbi"))
    return cached or "NUMBA_CACHE_DIR" in os.environ or not os.access(folder, os.W_OK)
