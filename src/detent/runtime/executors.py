"""Makes the executors that settings name: from an entry under `models`, or from a kind's own name.

Nothing of a provider is imported before the first executor of it is made.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from detent.authoring.names import Nearest
from detent.authoring.problem import Problem, problems_of
from detent.dispatch.executor import NO_MODEL, NO_MODEL_ID
from detent.engine import logger
from detent.kernel.errors import ConfigurationError, IntegrationMissing, nearest
from detent.runtime.settings import Settings, SettingsError

if TYPE_CHECKING:
    from detent.adapters.models.model import Model
    from detent.adapters.models.prices import PriceTable
    from detent.dispatch.executor import StepExecutor
    from detent.runtime.entry_points import EntryPoint

GROUP = "detent.executors"
"""Entry points named after a kind; the value is called `(options, *, folder)` and gives a `StepExecutor`."""
NOBODY = "none"
"""Provider name that stands for no provider: agent steps are performed by their handlers."""


class Kind(NamedTuple):
    """How models of one kind are reached."""

    connect: str
    """`module:function`, called `(options, *, kind, folder, prices)`, that gives a `Model`."""
    extra: str
    """The extra of Detent that must be installed for it."""


KINDS: Mapping[str, Kind] = {
    "openai": Kind("detent.adapters.models.openai:connect", "models"),
    "ollama": Kind("detent.adapters.models.openai:connect", "models"),
    "vllm": Kind("detent.adapters.models.openai:connect", "models"),
    "llamacpp": Kind("detent.adapters.models.openai:connect", "models"),
    "claude": Kind("detent.adapters.models.claude:connect", "providers"),
    "pydantic-ai": Kind("detent.adapters.models.pydantic_ai:connect", "providers"),
    "local": Kind("detent.adapters.models.local:connect", "local"),
}
"""Kinds of models that ship; each kind is also a provider of that name that needs no configuration."""

CONNECTION = ("base_url", "api_key_env", "timeout")
"""Keys of `model` that are options of the default provider, not of steps."""


class Provider(NamedTuple):
    """The settings of one provider."""

    name: str
    kind: str
    options: Mapping[str, Any]
    model_id: str | None
    """The model asked when a step names none."""
    folder: Path
    """The folder that relative paths among the options start from."""


class ConfiguredExecutors:
    """Executors by the names that settings give them. Models are shared; executors are made anew."""

    def __init__(self, settings: Settings, *, max_turns: int | None = None) -> None:
        self._settings = settings
        self._limits: dict[str, Any] = {} if max_turns is None else {"max_turns": max_turns}
        self._models: dict[str, Model] = {}
        self._providers: dict[str, Provider] = {}
        """By name, once read: settings do not change, and every visit of an agent step asks for one."""
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()

    # -- what there is --------------------------------------------------------------------------------------

    @cached_property
    def default(self) -> str | None:
        """`model.provider`, else the only entry under `models`."""
        provider = self._settings.get("model", "provider")
        if provider is not None:
            return None if provider == NOBODY else str(provider)
        entries = list(self._settings.section("models"))
        return str(entries[0]) if len(entries) == 1 else None

    @property
    def names(self) -> tuple[str, ...]:
        """Every provider that can be named."""
        return tuple(dict.fromkeys([*map(str, self._settings.section("models")), *KINDS, *self._points]))

    def server_of(self, name: str | None) -> tuple[str, str] | None:
        """Kind and address of a provider as the settings name them; None where they name neither.

        Another server may answer with another model of the same name, so both are part of a series.
        """
        name = name or self.default
        if name is None or (name not in self._providers and self.unknown(name) is not None):
            return None
        provider = self.provider(name)
        address = str(provider.options.get("base_url", ""))
        return (provider.kind, address) if address or provider.kind != name else None

    def unknown(self, provider: str) -> str | None:
        """The problem with a provider's name; None if the provider exists."""
        if provider in self._settings.section("models") or provider in KINDS or provider in self._points:
            return None
        known = ", ".join(self.names)
        return f"there is no provider '{provider}'.{nearest(provider, self.names)} Providers: {known}."

    def problems(self) -> list[Problem]:
        """Problems of entries under `models` that make no model."""
        problems: list[Problem] = []
        for name in self._settings.section("models"):
            try:
                self.provider(str(name))
            except ConfigurationError as error:
                problems += problems_of(error)
        connection_keys = [key for key in CONNECTION if self._settings.get("model", key) is not None]
        if connection_keys and self.default is None:
            key = connection_keys[0]
            message = f"'model.{key}' belongs to a provider; name it with model.provider."
            problems.append(self._settings.problem(("model", key), message))
        return problems

    def provider(self, name: str) -> Provider:
        """The settings of a provider.

        Raises:
            ConfigurationError: the provider is unknown, or its settings contradict each other.
        """
        if name not in self._providers:
            self._providers[name] = self._read(name)
        return self._providers[name]

    def _read(self, name: str) -> Provider:
        if (wrong := self.unknown(name)) is not None:
            raise ConfigurationError(wrong[0].upper() + wrong[1:])
        entry = self._settings.section("models").get(name)
        if not isinstance(entry, Mapping | None):
            raise self._wrong(name, f"'models.{name}' takes named values, such as `kind: openai`.")
        options = {str(key): value for key, value in (entry or {}).items() if value is not None}
        kinds = (*KINDS, *self._points)
        kind = options.pop("kind", name if name in kinds else None)
        if kind is None:
            raise self._wrong(name, f"'models.{name}' needs a kind: {', '.join(kinds)}.")
        if kind not in kinds:
            message = f"'models.{name}.kind' is not a kind of model. Kinds: {', '.join(kinds)}."
            raise self._wrong(name, message, "kind", Nearest().of(str(kind), kinds))
        if "id" in options:
            if "model_id" in options:
                message = f"'models.{name}' has id and model_id, which mean the same; keep one of them."
                raise self._wrong(name, message)
            options["model_id"] = options.pop("id")
        if name == self.default:
            model = self._settings.section("model")
            usual = {key: model.get(key) for key in CONNECTION}
            usual["model_id"] = model.get("model_id", model.get("id"))
            for key, value in usual.items():
                if value is not None:
                    options.setdefault(key, value)
        if kind == "pydantic-ai" and "model_id" in options:  # its `model` names provider and model
            options.setdefault("model", options.pop("model_id"))
        model_id = options.get("model" if kind == "pydantic-ai" else "model_id")
        if not isinstance(model_id, str | None):
            raise self._wrong(name, f"'models.{name}.model_id' takes the name of a model.", "model_id")
        return Provider(name, str(kind), options, model_id, self._settings.base("models", name))

    def _wrong(
        self, name: str, message: str, key: str | None = None, suggestions: tuple[str, ...] = ()
    ) -> SettingsError:
        keys = ("models", name) if key is None else ("models", name, key)
        return SettingsError("The settings", [self._settings.problem(keys, message, suggestions)])

    def refused(self, name: str) -> Problem | None:
        """Why a provider's options make no model; None when they do, or when a package is missing for it."""
        entry = self.provider(name)
        if entry.kind not in KINDS:
            return None
        try:
            self._model(entry)
        except ConfigurationError as error:
            from detent.runtime.key_hosts import KeyRefused

            why = error.reason if isinstance(error, KeyRefused) else error
            if ("models", name) in self._settings.places:
                return self._settings.problem(("models", name), f"models.{name}: {why}")
            return Problem("", f"provider '{name}': {why}")
        except IntegrationMissing as error:
            logger.debug("executor.missing", provider=name, error=str(error))
        return None

    def absent(self, provider: str | None = None, model_id: str | None = None) -> str | None:
        """Why a provider, or the default one, cannot be asked: none is there, or a package, a key or the name
        of a model is missing.

        None where it can be, and where its settings are wrong, which is reported with them.
        """
        name = provider or self.default
        if name is None:
            return NO_MODEL
        try:
            entry = self.provider(name)
            if entry.kind not in KINDS:
                return None
            model = self._model(entry)
            if not (available := model.available()).ok:
                return available.why_not
            if (model_id or entry.model_id) is None and getattr(model, "needs_model_id", False):
                return NO_MODEL_ID
        except ConfigurationError as error:
            logger.debug("executor.refused", provider=name, error=str(error))
        except IntegrationMissing as error:
            return str(error)
        return None

    # -- making ---------------------------------------------------------------------------------------------

    def make(self, provider: str) -> StepExecutor:
        """A fresh executor of a provider."""
        entry = self.provider(provider)
        point = self._points.get(entry.kind)
        if point is not None and entry.kind not in KINDS:
            executor = self._plugged(entry, point)
            try:
                self._others.add(executor)
            except TypeError:  # it takes no weak reference, so it has to close itself
                logger.debug("executor.unwatched", provider=provider)
            return executor
        model = self._model(entry)
        try:
            from detent.adapters.models.executor import ModelStepExecutor
        except ImportError as error:
            raise _missing(entry, error) from error
        return ModelStepExecutor(model, default_model_id=entry.model_id, **self._limits)

    async def close(self) -> None:
        """Close every model and executor; a failure does not keep the others open."""
        resources = {
            **self._models,
            **{str(number): executor for number, executor in enumerate(self._others)},
        }
        self._models = {}
        self._others.clear()
        for name, resource in resources.items():
            close = getattr(resource, "close", None)
            if close is None:
                continue
            try:
                await close()
            except Exception as error:
                logger.warning("executor.close_failed", provider=name, error_type=type(error).__name__)

    def _model(self, provider: Provider) -> Model:
        """The one model of a provider."""
        if provider.name not in self._models:
            self._check_key(provider)
            module, _, function = KINDS[provider.kind].connect.partition(":")
            try:
                connect = getattr(importlib.import_module(module), function)
                model = connect(
                    provider.options, kind=provider.kind, folder=provider.folder, prices=self._prices
                )
            except ImportError as error:
                raise _missing(provider, error) from error
            self._models[provider.name] = model
        return self._models[provider.name]

    def _check_key(self, provider: Provider) -> None:
        """Raise `KeyRefused` when the provider's key would go where the user has not allowed it to."""
        from detent.runtime.key_hosts import KeyHosts, provider_key

        use = provider_key(self._settings, provider.name, provider.kind, provider.options)
        if use is not None:
            KeyHosts(self._settings).check(use)

    def _plugged(self, provider: Provider, point: EntryPoint) -> StepExecutor:
        self._check_key(provider)
        try:
            factory: Callable[..., Any] = point.load()
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise ConfigurationError(
                f"The executor '{point.name}' ({point.value}) cannot be loaded: {cause}"
            ) from error
        return cast("StepExecutor", factory(dict(provider.options), folder=provider.folder))

    @cached_property
    def _prices(self) -> PriceTable:
        from detent.adapters.models.prices import PriceTable

        entries = self._settings.section("prices")
        return PriceTable(
            {
                str(model): {name: price for name, price in prices.items() if price is not None}
                for model, prices in entries.items()
                if prices is not None
            }
        )

    @cached_property
    def _points(self) -> Mapping[str, EntryPoint]:
        from detent.runtime.entry_points import offered

        points: dict[str, EntryPoint] = {}
        for point in offered(GROUP):
            other = points.setdefault(point.name, point)
            if other.value != point.value or point.name in KINDS:
                owner = "Detent's own" if point.name in KINDS else other.value
                raise ConfigurationError(
                    f"Two executors are named '{point.name}': {owner} and {point.value}."
                )
        return points


def _missing(provider: Provider, error: ImportError) -> IntegrationMissing:
    package = (error.name or "").partition(".")[0]
    requirement = (
        f"the package '{package}', which is not installed" if package else "a package that is missing"
    )
    kind = "" if provider.kind == provider.name else f" (kind {provider.kind})"
    return IntegrationMissing(
        f"The provider '{provider.name}'{kind} needs {requirement}. "
        f"Get it with: pip install 'detent[{KINDS[provider.kind].extra}]'"
    )
