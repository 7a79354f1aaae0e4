"""A URL means a store, and settings mean an engine."""

import sys
from pathlib import Path

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.kernel.errors import ConfigurationError, IntegrationMissing
from detent.runtime.settings import Settings
from detent.runtime.store_url import shown_url
from detent.runtime.wiring import engine_for, make_store, store_for


@pytest.mark.parametrize(
    ("url", "path", "sync"),
    [
        ("runs.db", "runs.db", "full"),
        ("/var/x/runs.db", "/var/x/runs.db", "full"),
        ("sqlite:runs.db", "runs.db", "full"),
        ("sqlite:runs.db?sync=normal", "runs.db", "normal"),
        ("sqlite:///var/x/runs.db", "/var/x/runs.db", "full"),
    ],
)
def test_a_path_or_sqlite_url_is_a_sqlite_store(url, path, sync):
    store = make_store(url)
    assert isinstance(store, SQLiteStore)
    assert (str(store.path), store.sync) == (path, sync)


def test_the_default_store_lies_in_the_working_folder():
    store = store_for(Settings(Path.cwd()))
    assert isinstance(store, SQLiteStore)
    assert store.path == Path(".detent/detent.db")


def test_memory_is_a_store_as_well():
    assert isinstance(make_store("memory:"), MemoryStore)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlit:x.db", "Did you mean 'sqlite'"),
        ("mysql://host/db", "no store of the kind 'mysql:'"),
        ("sqlite:", "needs a path"),
        ("sqlite:x.db?sync=ful", "full or normal, not 'ful'. Did you mean 'full'"),
        ("sqlite:x.db?snyc=full", "no option 'snyc'. Did you mean 'sync'"),
        ("sqlite:x.db?timeout=soon", "a number of seconds, not 'soon'"),
    ],
)
def test_what_is_no_store_says_so(url, said):
    with pytest.raises(ConfigurationError, match=said):
        make_store(url)


def test_postgresql_without_its_driver_is_a_missing_integration(monkeypatch):
    monkeypatch.setitem(sys.modules, "detent.adapters.stores.postgres", None)
    with pytest.raises(IntegrationMissing, match=r"detent\[postgres\]") as caught:
        make_store("postgresql://host/db")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pass@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:x.db", "sqlite:x.db"),
    ],
)
def test_a_password_is_not_shown(url, shown):
    assert shown_url(url) == shown


def test_a_store_may_be_said_with_its_options():
    store = store_for(Settings(Path.cwd(), values={"store": {"url": "x.db", "sync": "normal"}}))
    assert isinstance(store, SQLiteStore)
    assert (store.path, store.sync) == (Path("x.db"), "normal")


async def test_telemetry_is_told_when_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    settings = Settings(Path.cwd(), values={"store": "memory:", "telemetry": {"enabled": True}})
    async with engine_for(settings) as engine:
        assert engine.active.observers
    async with engine_for(Settings(Path.cwd(), values={"store": "memory:"})) as engine:
        assert not engine.active.observers


async def test_an_engine_goes_with_the_settings():
    async with engine_for(Settings(Path.cwd(), values={"store": "memory:", "concurrency": 2})) as engine:
        assert isinstance(engine.store, MemoryStore)
