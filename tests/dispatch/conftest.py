"""What every test of dispatch gets: ears, and engines that dispatch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from tests.dispatch.samples import Heard, capture
from tests.engine.conftest import Bench, Clock


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Everything said on the log during the test, DEBUG included."""
    with capture() as found:
        yield found


class DispatchBench(Bench):
    """A bench whose engines have a dispatcher, whatever they are told."""

    async def engine(self, *flows: Flow, **options: Any) -> Engine:
        """An open engine, stopped after the test."""
        options["dispatch"] = options.get("dispatch") or DispatchSettings()
        return await super().engine(*flows, **options)


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench on each kind of store."""
    made = DispatchBench(request.param, tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def durable(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench on a SQLite file."""
    made = DispatchBench("sqlite", tmp_path)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench in memory, where the store makes no difference."""
    made = DispatchBench("memory", tmp_path)
    yield made
    await made.close()


@pytest.fixture
def clock() -> Clock:
    """A clock turned by hand."""
    return Clock()
