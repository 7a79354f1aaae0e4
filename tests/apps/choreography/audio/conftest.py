"""Generated songs, written and measured once for all tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.apps.choreography.audio.analysis import analyse
from detent.apps.choreography.audio.synthetic import SUITE, Truth, write_song


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Truth, dict[str, Any]]]:
    """Each shipped song: its file, what is known of it, what `builtin` heard."""
    folder = tmp_path_factory.mktemp("songs")
    songs = {}
    for spec in SUITE:
        path = folder / f"{spec.name}.wav"
        truth = write_song(spec, path)
        songs[spec.name] = path, truth, analyse(path, analyser="builtin")
    return songs
