"""Builds the concrete objects: the store of a URL, and the engine for the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from detent.kernel.errors import ConfigurationError, IntegrationMissing, nearest
from detent.runtime.settings import Settings
from detent.runtime.store_url import postgres_address, store_url

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.engine.ports import Store, Tape

SCHEMES = ("sqlite", "postgresql", "postgres", "memory")
SYNCS = ("full", "normal")


def store_for(settings: Settings, *, create: bool = True) -> Store:
    """The store the settings name, not yet open. Without `create`, a missing store is an error.

    Raises:
        KeyRefused: A project's store would be sent the user's password.
    """
    from detent.runtime.key_hosts import KeyHosts, store_keys

    for use in store_keys(settings):
        KeyHosts(settings).check(use)
    declared = settings.get("store")
    options: dict[str, str] = {}
    if isinstance(declared, Mapping):
        options = {key: str(value) for key, value in declared.items() if key != "url" and value is not None}
    return make_store(store_url(settings), options, settings.base("store"), create=create)


def make_store(
    url: str, options: Mapping[str, str] | None = None, folder: Path | None = None, *, create: bool = True
) -> Store:
    """A store from a path or URL; relative paths start from `folder`."""
    scheme, colon, rest = url.partition(":")
    if not colon or len(scheme) == 1:  # a plain path, or a drive letter
        scheme, rest = "sqlite", url
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        raise ConfigurationError(
            f"There is no store of the kind '{scheme}:'.{nearest(scheme, SCHEMES)} "
            f"A store is a path, sqlite:PATH, postgresql://… or memory:."
        )
    if scheme == "memory":
        from detent.adapters.stores.memory import MemoryStore

        return MemoryStore()
    if scheme in ("postgresql", "postgres"):
        return _postgres(url, options or {})
    place, _, query = rest.partition("?")
    place = place.removeprefix("//") if place.startswith("///") else place
    return _sqlite(place, {**(options or {}), **dict(parse_qsl(query))}, folder or Path.cwd(), create)


def _sqlite(place: str, options: Mapping[str, str], folder: Path, create: bool) -> Store:
    from detent.adapters.stores.sqlite import SQLiteStore

    known = ("sync", "timeout")
    for name in options:
        if name not in known:
            raise ConfigurationError(f"A SQLite store has no option '{name}'.{nearest(name, known)}")
    if not place:
        raise ConfigurationError("A SQLite store needs a path: sqlite:PATH.")
    sync = options.get("sync", "full").lower()
    if sync not in SYNCS:
        raise ConfigurationError(
            f"A SQLite store's sync is full or normal, not '{sync}'.{nearest(sync, SYNCS)}"
        )
    try:
        timeout = float(options.get("timeout", "30"))
    except ValueError:
        raise ConfigurationError(
            f"A SQLite store's timeout is a number of seconds, not '{options['timeout']}'."
        ) from None
    path = Path(place).expanduser()
    if not path.is_absolute() and folder != Path.cwd():
        path = folder / path
    return SQLiteStore(
        path, sync="normal" if sync == "normal" else "full", create=create, busy_timeout=timeout
    )


def _postgres(url: str, options: Mapping[str, str]) -> Store:
    try:
        from detent.adapters.stores.postgres import PostgresStore
    except ImportError as error:
        raise IntegrationMissing(
            f"A PostgreSQL store needs the package '{error.name or 'psycopg'}', which is not installed. "
            f"Get it with: pip install 'detent[postgres]'"
        ) from error
    url, own = postgres_address(url)
    options = {**options, **own}
    known = ("schema",)
    for name in options:
        if name not in known:
            raise ConfigurationError(f"A PostgreSQL store has no option '{name}'.{nearest(name, known)}")
    schema = options.get("schema")
    return PostgresStore(url, schema=schema) if schema else PostgresStore(url)


def engine_for(
    settings: Settings,
    flows: Iterable[Flow] = (),
    *,
    observers: Iterable[Any] = (),
    concurrency: int | None = None,
    create: bool = True,
    deterministic: bool = False,
    complete: bool = False,
    known_steps: Iterable[str] = (),
    agents: Iterable[str] | None = (),
    max_turns: int | None = None,
    tape: Tape | None = None,
    store: Store | None = None,
) -> Engine:
    """The engine for these settings, not yet open; `store` replaces the one they name.

    With `deterministic`, no step is given to an agent. With `complete`, these are all known flows, and
    settings about steps that are neither in one of them nor in `known_steps` are refused. `agents` are those
    that settings may name besides the general one. `max_turns` limits how often a model is asked for one
    answer, tools in between.
    """
    from detent.dispatch.executor import DISPATCH_AGENT
    from detent.engine.engine import Engine
    from detent.runtime.dispatch_settings import dispatch_settings

    flows = list(flows)
    all_observers = [*observers]
    if settings.get("telemetry", "enabled"):
        from detent.adapters.telemetry.otel import from_environment

        all_observers.append(from_environment(reasons=bool(settings.get("telemetry", "reasons"))))
    limit = concurrency or settings.get("concurrency", default=1000)
    dispatch = dispatch_settings(
        settings, flows, deterministic=deterministic, complete=complete, known_steps=known_steps,
        agents=None if agents is None else [DISPATCH_AGENT, *agents], max_turns=max_turns,
    )  # fmt: skip
    return Engine(
        store or store_for(settings, create=create), flows, observers=all_observers, concurrency=limit,
        dispatch=dispatch, tape=tape,
    )  # fmt: skip
