"""What every test of playbooks gets: an empty memory for step files, a world, and ears."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.flows.playbook.step_file_cache import clear_instruction_cache
from tests.dispatch.samples import Heard, capture
from tests.flows.playbook.bench import World


@pytest.fixture(autouse=True)
def nothing_read_yet() -> Iterator[None]:
    """Files written by one test are not remembered in the next."""
    clear_instruction_cache()
    yield
    clear_instruction_cache()


@pytest.fixture
def world() -> World:
    """An outside of one's own."""
    return World()


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Everything said on the log during the test."""
    with capture() as found:
        yield found
