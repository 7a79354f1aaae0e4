"""What every test gets: a quiet log to begin with, and a PostgreSQL server for those that ask."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tests import examples  # loading it says how many examples properties are tried with
from tests.postgres import postgres_schema, postgres_server

__all__ = ["examples", "postgres_schema", "postgres_server"]

LEFT = pytest.StashKey[int]()
"""How many exhaustive cases were left out; in a run of several workers each says so to the one in charge."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach this process and those it starts: what a shell runs in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with files of slow tests, so that none is left at the end; leave out what is exhaustive."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if examples.ALL:
        return
    left = [item for item in items if item.get_closest_marker("exhaustive")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    config.stash[LEFT] = len(left) + examples.left_out
    if hasattr(config, "workeroutput"):
        config.workeroutput["exhaustive"] = config.stash[LEFT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Hear from a worker how much it left out: all of them collect the same."""
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("exhaustive", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was not tried."""
    if left := config.stash.get(LEFT, 0):
        terminalreporter.line(f"{left} exhaustive cases left to `make test-all`")


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
def own_import_path() -> Iterator[None]:
    """A project that a test imported from is forgotten: every look at the path grew longer by it."""
    path, known = sys.path.copy(), set(sys.path_importer_cache)
    yield
    if sys.path != path:
        sys.path[:] = path
    for place in sys.path_importer_cache.keys() - known:
        if not place.startswith(sys.prefix):
            del sys.path_importer_cache[place]


@pytest.fixture(autouse=True)
def unconfigured_log() -> Iterator[None]:
    """Whatever a test did to the process's logging is undone, so that the next one hears what it should."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
