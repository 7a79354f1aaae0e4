"""What every test gets: a quiet log to begin with, and a PostgreSQL server for those that ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests import examples  # loading it says how many examples properties are tried with
from tests.postgres import postgres_schema, postgres_server

__all__ = ["examples", "postgres_schema", "postgres_server"]


@pytest.fixture(autouse=True)
def no_settings_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What whoever runs the tests has configured for themselves does not reach them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-settings"))
    for name in ("DETENT_USER_CONFIG", "DETENT_FORCE_DETERMINISTIC", "DETENT_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    # Projects that tests make are their own; tests about trust take this back.
    monkeypatch.setenv("DETENT_TRUST", "all")


@pytest.fixture(autouse=True)
def unconfigured_log() -> Iterator[None]:
    """Whatever a test did to the process's logging is undone, so that the next one hears what it should."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
