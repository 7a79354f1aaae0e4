"""Songs measured once: the analysis of a song is kept by its content, the analyser and what was assumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from detent.apps.choreography.audio.problem import AudioProblem
from detent.apps.choreography.domain.song_file import check_song
from detent.apps.choreography.output import write_file

Progress = Callable[..., None]


def analysed(request: Mapping[str, Any], *, progress: Progress | None = None) -> dict[str, Any]:
    """The analysis of a request's song, from the cache if it was measured before.

    Raises:
        AudioProblem: the song cannot be measured, or is another one than the run has begun with.
    """
    from detent.apps.choreography.audio.analysis import ANALYSER_VERSION, analyse, chosen

    path = Path(request["audio_path"])
    sha256 = unchanged(request)
    analyser = chosen(request["analyser"])
    assumed = [sha256, analyser, ANALYSER_VERSION, request["bpm"], request["beats_per_bar"]]
    name = hashlib.sha256(json.dumps(assumed).encode()).hexdigest()[:32]
    kept = cache_folder() / f"{name}.json"
    audio = _read(kept)
    if audio is None:
        audio = analyse(
            path, analyser=analyser, bpm=request["bpm"], beats_per_bar=request["beats_per_bar"],
            progress=progress,
        )  # fmt: skip
        with suppress(OSError):  # a cache that cannot be written costs time, not the show
            write_file(kept, json.dumps(audio, ensure_ascii=False, allow_nan=False).encode())
    return {**audio, "audio_path": str(path)}


def unchanged(request: Mapping[str, Any]) -> str:
    """The SHA-256 of a request's song.

    Raises:
        AudioProblem: it cannot be read, or is another one than the run has begun with.
    """
    from detent.apps.choreography.audio.analysis import fingerprint

    sha256 = fingerprint(request["audio_path"])
    begun_with = request.get("audio_sha256")
    if begun_with is not None and begun_with != sha256:
        raise AudioProblem(
            "song_changed",
            f"{request['audio_path']} has changed: its SHA-256 was {begun_with} when the run began, and is "
            f"{sha256} now. Put the song back, or start a new run.",
        )
    return sha256


def cache_folder() -> Path:
    """The folder of analyses: below `$XDG_CACHE_HOME`, else below `~/.cache`."""
    place = os.environ.get("XDG_CACHE_HOME")
    return (Path(place) if place else Path.home() / ".cache") / "detent" / "songs"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        audio = json.loads(path.read_bytes())
        check_song(audio)  # a damaged one is measured anew
    except (OSError, ValueError, RecursionError):
        return None
    return dict(audio)
