"""Workshops that are put away after the test, and web sites."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.flows.workflow.actions.workshop import Site, Workshop


@pytest_asyncio.fixture
async def workshops(tmp_path: Path) -> AsyncIterator[Callable[..., Workshop]]:
    """Makes workshops, each with a project of its own."""
    made: list[Workshop] = []

    def make(**options: Any) -> Workshop:
        made.append(Workshop(tmp_path / f"w{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def shop(workshops: Callable[..., Workshop]) -> Workshop:
    """One workshop."""
    return workshops()


@pytest.fixture
def sites() -> Iterator[Callable[..., Site]]:
    """Makes web sites of pages."""
    made: list[Site] = []

    def make(pages: Any) -> Site:
        made.append(Site(pages))
        return made[-1]

    yield make
    for one in made:
        one.close()
