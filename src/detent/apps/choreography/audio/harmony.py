"""The key of a song."""

from __future__ import annotations

from typing import Any

import numpy as np

from detent.apps.choreography.audio.rhythm import Curve

NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
PROFILES = {
    "major": (6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88),
    "minor": (6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17),
}
"""How well each pitch class fits a key, from its tonic (Krumhansl and Kessler's listeners)."""
UNKNOWN = {"key": "C", "mode": "major", "confidence": 0.0}


def key(chroma_mean: Curve) -> dict[str, Any]:
    """The best of the 24 keys; the confidence is its lead in correlation over the second."""
    if np.ptp(chroma_mean) < 1e-6:
        return dict(UNKNOWN)
    fits = sorted(
        (
            (float(np.corrcoef(np.roll(profile, tonic), chroma_mean)[0, 1]), NAMES[tonic], mode)
            for mode, profile in PROFILES.items()
            for tonic in range(12)
        ),
        key=lambda fit: -fit[0],
    )
    return {"key": fits[0][1], "mode": fits[0][2], "confidence": min(1.0, max(0.0, fits[0][0] - fits[1][0]))}
