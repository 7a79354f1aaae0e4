"""A small song, and a working folder with it in which the program can be called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import detent

__all__ = ["detent"]

FORM = (("intro", 4), ("verse", 8), ("chorus", 8), ("breakdown", 4), ("drop", 8), ("outro", 4))
BARS = 36


@pytest.fixture(scope="session")
def song(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A song of 58 s and six sections, quiet ones and loud ones."""
    from detent.apps.choreography.audio.synthetic import SongSpec, write_song

    path = tmp_path_factory.mktemp("songs") / "song.wav"
    write_song(SongSpec("small", bpm=150, form=FORM, channels=1), path)
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of analyses, in which the song is after the first test."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def studio(tmp_path: Path, song: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the song and a clean environment."""
    for name in list(os.environ):
        if name.startswith("DETENT"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DETENT_TRUST", "all")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "song.wav").write_bytes(song.read_bytes())
    return tmp_path
