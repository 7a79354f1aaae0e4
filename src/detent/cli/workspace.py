"""The workspace of a command: settings, flows, store, and runs looked up by id or prefix."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from detent.kernel.errors import ConfigurationError, DetentError, FlowNotFound, RunNotFound
from detent.runtime.catalog import Catalog, Found, checked_name, is_path
from detent.runtime.plugs import RunStart
from detent.runtime.settings import Settings, read_settings
from detent.runtime.store_url import shown_url, store_url
from detent.runtime.wiring import store_for

if TYPE_CHECKING:
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.engine.ports import Store, Tape
    from detent.kernel.entries import Entry
    from detent.runtime.plugs import Definitions, Kind
    from detent.runtime.trust import Trust

T = TypeVar("T")

SOURCE = "source/"
"""Prefix of the marks that record the file or folder a flow was run from, so that it can be loaded again."""


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; wait for threads it leaves running, and say so."""
    from detent.engine.calls import in_threads

    try:
        return asyncio.run(work)
    finally:
        if left := in_threads().running:
            from detent.cli.output import warn
            from detent.insight.formatting import count

            warn(f"Waiting for {count(left, 'call')} that cannot be stopped; Ctrl-C ends the process.")


class Definition(NamedTuple):
    """A file or folder that a person wrote, and the definitions of its kind."""

    definitions: Definitions
    path: Path
    folder: Path
    """The working folder."""

    @property
    def place(self) -> str:
        """The path for display, relative to the working folder if it lies below it."""
        path = self.path.relative_to(self.folder) if self.path.is_relative_to(self.folder) else self.path
        return f"{path.as_posix()}/" if self.path.is_dir() else path.as_posix()


class Workspace:
    """Settings, flows and store as one command sees them."""

    def __init__(
        self,
        store: str | None,
        config: str | None,
        plugins: list[str] | None = None,
        *,
        looks: bool = False,
    ) -> None:
        """A command that only `looks` works in an untrusted project, without the project's code; any other
        raises `Untrusted` there."""
        self._store, self._config, self._plugins = store, config, list(plugins or ())
        self._catalog: Catalog | None = None
        self._trust: Trust | None = None
        self.settings: Settings = read_settings(config, {"store": store}, headings=self._headings)
        if not looks:
            self.trust.require()
        elif (line := self.trust.left_out) is not None:
            from detent.cli.output import clean, warn

            warn(clean(line))

    def _headings(self, settings: Settings) -> Any:
        from detent.runtime.trust import Trust

        self._trust = Trust.of(settings)
        self._catalog = Catalog(settings, self._plugins, self._trust)
        return self._catalog.headings()

    @property
    def trust(self) -> Trust:
        """The state of trust in the project."""
        if self._trust is None:
            from detent.runtime.trust import Trust

            self._trust = Trust.of(self.settings)
        return self._trust

    @property
    def catalog(self) -> Catalog:
        """The flows that can be run here."""
        if self._catalog is None:
            self._catalog = Catalog(self.settings, self._plugins, self.trust)
        return self._catalog

    def definition(self, target: str, kind: Kind | None = None) -> Definition | None:
        """The definition that a command line names by path or name, of any kind or of one.

        None where it means a flow that code makes, or nothing; of one kind, that is an error.
        """
        if kind is not None:
            definitions = self.catalog.definitions(kind)
            definition = Definition(definitions, definitions.find(checked_name(target)), self.settings.folder)
            if not definitions.claims(definition.path):
                raise ConfigurationError(f"{definition.place} holds no {kind.name}.")
            return definition
        by_name = not is_path(checked_name(target))
        if by_name and (source := self.catalog.made_by_code(target)) is not None:
            if self.catalog.kind_of(target) is None:
                return None
            target = source.place  # a plugin that is a definition
        for definitions in self.catalog.every_definitions():
            path = (self.settings.folder / target).resolve()
            if by_name:
                with suppress(ConfigurationError):
                    path = definitions.find(target)
            if definitions.claims(path):
                return Definition(definitions, path, self.settings.folder)
        return None

    def pick(self, target: str, definition: Definition | None) -> Found:
        """The flow that a command line names: the definition's, if it names a definition."""
        if definition is None:
            return self.catalog.pick(target)
        # Found by its name, a definition is found again by it, on another machine too.
        if not is_path(target) and (source := self.catalog.look(target)) is not None:
            return source
        return next(iter(self.catalog.add_file(definition.place).values()))

    def nothing_found(self, target: str, error: DetentError) -> FlowNotFound:
        """The error that a word means neither a run nor a flow nor a definition; `error` says why no run."""
        hint = "" if isinstance(error, RunNotFound) else f" {error}"
        return self.catalog.unknown(target, "run", hint=hint)

    async def run_start(self, flow: Flow, given: Mapping[str, Any]) -> RunStart:
        """What a run of a flow starts with; its kind makes it of the data given."""
        kind = self.catalog.kind_of(flow.name)
        return RunStart(given) if kind is None else await self.catalog.definitions(kind).start(flow, given)

    def keep_runs_in(self, store: str) -> None:
        """Use this store instead of the one from the settings."""
        self._store = store
        self.settings = read_settings(self._config, {"store": store}, headings=self._headings)

    @property
    def forgets(self) -> bool:
        """Whether runs are kept in memory, and so are gone when the command ends."""
        return store_url(self.settings).lower().startswith("memory:")

    def require_within(self, place: Path) -> None:
        """Raise `Untrusted` if an untrusted project names a store outside its folder."""
        if not self.trust.ok and not place.resolve().is_relative_to(self.trust.root):
            self.trust.require()

    def command(self, *words: str) -> str:
        """A command to show to people, with the options it needs to find the same store."""
        options: list[str] = []
        if self._store:
            options += ["--store", shown_url(self._store)]
        if self._config:
            options += ["--config", self._config]
        return "detent " + " ".join(shlex.quote(word) for word in [*words, *options])

    def log(self, verbose: int = 0, level: str | None = None, default: str | None = None) -> None:
        """Configure logging from the command line and the settings; silent without either or a default."""
        from detent.runtime import logging

        if not self.trust.ok and self.settings.of_project("logging"):
            return  # an untrusted project does not choose where logs are written
        if verbose:
            level = level or ("debug" if verbose > 1 else "info")
        if level or logging.wanted(self.settings):
            logging.configure(self.settings, level)
        elif default is not None:
            logging.configure(self.settings, default)

    def dispatch(self, flows: Iterable[Flow] | None = None) -> DispatchSettings:
        """Who performs which step, by the settings; of these flows or of all that are loaded.

        Raises:
            SettingsError: the settings are wrong, or say something about steps or agents that are not there.
        """
        from detent.dispatch.executor import DISPATCH_AGENT
        from detent.runtime.dispatch_settings import dispatch_settings

        catalog, agents = self.catalog, self.catalog.agents()
        section = self.settings.section("steps")
        return dispatch_settings(
            self.settings, [source.flow for source in catalog.all().values()] if flows is None else flows,
            known_steps=catalog.step_names(section) if section else (), complete=not catalog.left_out,
            agents=None if agents is None else [DISPATCH_AGENT, *agents], connect=self.trust.ok,
        )  # fmt: skip

    # -- stores and engines ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """The open store, for reading."""
        store = self.closed_store()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def closed_store(self) -> Store:
        """The store, not yet open, for read-only use.

        Raises:
            StoreOutside: an untrusted project chose a store outside its folder. To open a file may change it
                and its rights; to ask a server shows it the user's credentials.
        """
        from detent.runtime.trust import StoreOutside

        chosen = self.settings.of_project("store")
        if self.trust.ok or not (chosen or self.settings.get("store") is None):
            return store_for(self.settings, create=False)
        if "://" in store_url(self.settings):
            raise StoreOutside(shown_url(store_url(self.settings)), self.trust)
        store = store_for(self.settings, create=False)
        folder = self.trust.root if chosen else self.settings.folder.resolve()
        place = getattr(store, "path", None)
        if isinstance(place, Path) and place.resolve().is_relative_to(folder):
            return store
        shown = str(place.resolve()) if isinstance(place, Path) else shown_url(store_url(self.settings))
        raise StoreOutside(shown, self.trust)

    @asynccontextmanager
    async def engine(
        self,
        *,
        observers: Iterable[Any] = (),
        concurrency: int | None = None,
        create: bool = False,
        deterministic: bool = False,
        complete: bool = False,
        tape: Tape | None = None,
        store: Store | None = None,
    ) -> AsyncIterator[Engine]:
        """The open engine with every flow known by name; `complete` when no further flow will be added."""
        from detent.cli import unused_agents
        from detent.runtime.wiring import engine_for

        flows = [source.flow for source in self.catalog.all().values()]
        step_settings = self.settings.section("steps") if complete else {}
        engine = engine_for(
            self.settings, flows, observers=observers, concurrency=concurrency, create=create,
            deterministic=deterministic, complete=complete, tape=tape, store=store,
            known_steps=self.catalog.step_names(step_settings) if step_settings else (),
            agents=self.catalog.agents() if self.settings.section("agents") else (),
        )  # fmt: skip
        self.catalog.store = engine.store
        with unused_agents.telling(self.command, engine):
            async with engine:
                yield engine

    async def remember(self, store: Store, source: Found) -> None:
        """Record the file or folder a flow was run from, if it came from one."""
        if not is_path(source.place):
            return
        file = (self.settings.folder / source.place).resolve()
        self.trust.name(file)
        if not file.is_relative_to(self.settings.folder.resolve()):
            return
        place = str(file.relative_to(self.settings.folder.resolve()))
        await self.remember_place(store, source.flow.name, place)

    async def remember_place(self, store: Store, name: str, place: str) -> None:
        """Record the place from which a flow can be loaded again."""
        remembered, version = await store.mark(SOURCE + name)
        if remembered != place:
            await store.set_mark(SOURCE + name, place, version)

    async def recall(self, engine: Engine, names: Iterable[str]) -> list[str]:
        """Load flows into the engine by name; return the names that cannot be found."""
        missing: list[str] = []
        for name in names:
            if name in engine.flows:
                continue
            sources = await self._recalled(engine.store, name)
            if name not in sources:
                missing.append(name)
                continue
            for neighbour in sources.values():  # a run may start others of the same file
                engine.add_flow(neighbour.flow)
        return missing

    async def know(self, engine: Engine, name: str) -> None:
        """Load one flow into the engine, or raise if it cannot be found."""
        if await self.recall(engine, [name]):
            place = await self._place(engine.store, name)
            if place is not None and not (self.settings.folder / place).exists():
                raise ConfigurationError(
                    f"Flow '{name}' was run from {place}, which is not there any more. "
                    f"Put it back, or name the file it is in now with --plugin."
                )
            if place is not None and not self._may_load((self.settings.folder / place).resolve()):
                raise ConfigurationError(
                    f"Flow '{name}' was run from {place}, which you have not run or trusted on this machine. "
                    f"Look at it, then name it: --plugin {place}"
                )
            known = FlowNotFound(name, {"flow": engine.flows})
            raise ConfigurationError(f"{known} Name the file or module it is in with --plugin.")

    async def known(self, store: Store) -> dict[str, Flow]:
        """Every flow known here: by name, and those of the files that runs in the store were started from."""
        flows = {name: source.flow for name, source in self.catalog.all().items()}
        for name in dict.fromkeys(name for name, _, _ in await store.flows()):
            if name not in flows:
                flows.update(
                    {
                        flow_name: source.flow
                        for flow_name, source in (await self._recalled(store, name)).items()
                    }
                )
        return flows

    async def _recalled(self, store: Store, name: str) -> dict[str, Found]:
        """The flows of the file one was run from.

        Code must lie in the working folder; data may lie anywhere, for a run goes on only with the file
        it was begun with. A store may come from elsewhere, so what it names is loaded only where a person
        named it before, or trusts it.
        """
        place = await self._place(store, name)
        folder = self.settings.folder.resolve()
        if place is None:
            return self.catalog.family(name)  # an application's flow is made on demand
        file = (folder / place).resolve()
        if not file.exists() or not (file.is_relative_to(folder) or self.catalog.is_data(file)):
            return {}
        if not self._may_load(file):
            return {}
        return self.catalog.add_file(place, name)

    def _may_load(self, file: Path) -> bool:
        """Whether the file or folder that a run was started from is loaded again: a person named
        it, now or before."""
        named = [(self.settings.folder / plugin).resolve() for plugin in self._plugins if is_path(plugin)]
        return file in named or self.trust.was_named(file)

    async def _place(self, store: Store, name: str) -> str | None:
        """The file or folder a flow was run from, if known."""
        place, _ = await store.mark(SOURCE + name)
        if place is None and "." in name:  # a part of a definition, which was run from a file
            place, _ = await store.mark(SOURCE + name.partition(".")[0])
        return place if isinstance(place, str) else None

    # -- runs -----------------------------------------------------------------------------------------------

    async def run_id(self, store: Store, prefix: str) -> str:
        """Resolve a run's id or unique prefix to the id."""
        try:
            return (await store.row(prefix)).id
        except RunNotFound:
            matches = await store.find(prefix, 11) if prefix else []
        from detent.engine.family import ancestors

        if not matches:
            raise RunNotFound(prefix, f" See: {self.command('runs')}")
        first = matches[0]
        # A run's children begin with its own id; the run itself is meant.
        if all([first in await ancestors(store, other) for other in matches[1:]]):
            return first
        shown = ", ".join(matches[:10]) + (", …" if len(matches) > 10 else "")
        raise ConfigurationError(f"'{prefix}' is the beginning of several runs: {shown}.")


async def journal(store: Store, run_id: str) -> list[Entry]:
    """Every entry of a run."""
    from detent.engine.journal_reader import read

    return [entry async for entry in read(store, run_id)]


async def definition(store: Store, run_id: str) -> dict[str, Any]:
    """The description of the table a run follows."""
    row = await store.row(run_id)
    described = await store.definition(row.now.fingerprint)
    if described is None:
        raise ConfigurationError(f"The definition of run {run_id} is not in the store.")
    return described
