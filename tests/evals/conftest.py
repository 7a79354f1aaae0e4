"""A folder of cases of the lending desk, read and ready."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detent.evals.case import EvalTestCase
from detent.evals.reading import Cases, read_cases
from tests.evals.lending import LendingPlayer, write_cases


@pytest.fixture
def player() -> LendingPlayer:
    """The desk as it should be."""
    return LendingPlayer()


@pytest.fixture
def cases(tmp_path: Path, player: LendingPlayer) -> Callable[..., list[EvalTestCase]]:
    """The desk's cases, with further ones by name."""

    def made(**more: str) -> list[EvalTestCase]:
        folder = write_cases(tmp_path / "cases", **more)
        return list(found(folder, player).check().cases)

    return made


def found(folder: Path, player: Any) -> Cases:
    """What a folder holds, read for a player."""
    return read_cases(folder, player)
