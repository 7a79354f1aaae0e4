"""What every test of dispatch gets: ears."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.dispatching.samples import Heard, capture


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Everything said on the log during the test, DEBUG included."""
    with capture() as found:
        yield found
