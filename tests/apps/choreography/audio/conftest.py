"""Generated songs, each written and measured once, when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from detent.apps.choreography.audio.analysis import analyse
from detent.apps.choreography.audio.synthetic import SUITE, Truth, write_song

Heard = tuple[Truth, dict[str, Any]]


@pytest.fixture(scope="session")
def song_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Truth]]:
    """The file of a shipped song by its name, and what is known of it."""
    folder = tmp_path_factory.mktemp("songs")
    specs = {spec.name: spec for spec in SUITE}

    @cache
    def written(name: str) -> tuple[Path, Truth]:
        path = folder / f"{name}.wav"
        return path, write_song(specs[name], path)

    return written


@pytest.fixture(scope="session")
def hear(song_file: Callable[[str], tuple[Path, Truth]]) -> Callable[..., Heard]:
    """What is known of a shipped song, and what an analyser hears in it."""

    @cache
    def heard(name: str, analyser: str = "builtin") -> Heard:
        path, truth = song_file(name)
        return truth, analyse(path, analyser=analyser)

    return heard
