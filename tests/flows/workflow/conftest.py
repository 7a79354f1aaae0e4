"""A workshop for tests that run workflow files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.workflow.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)
