"""Which model `--model` means: an entry of `models:`, a provider, or a model of the default provider."""

from __future__ import annotations

from typing import Any

from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import KeyPath, Settings

PLACE = ("coding", "steps", "assistant")
"""Where the assistant's configuration is in the settings."""


def with_model(settings: Settings, name: str) -> Settings:
    """Settings in which a model of this name is the assistant.

    Raises:
        ConfigurationError: no model is configured, and this is not the name of a file that can be fetched.
    """
    from detent.runtime.executors import KINDS, ConfiguredExecutors

    if not name.strip():
        raise ConfigurationError("--model takes the name of a model.")
    executors = ConfiguredExecutors(settings)
    if name in settings.section("models"):
        return _chosen(settings, provider=name, model_id=None)
    if executors.default is not None:
        return _chosen(settings, provider=executors.default, model_id=name)
    if name in executors.names:
        return _chosen(settings, provider=name, model_id=None)
    if name in _files():
        return _chosen(settings, provider="local", model_id=name)
    entries = ", ".join(map(str, settings.section("models")))
    if entries:
        raise ConfigurationError(
            f"There is no model '{name}' in the settings, and none of these is the default one: {entries}. "
            f"Name one of them with --model, or set model.provider."
        )
    raise ConfigurationError(
        f"There is no model '{name}': the settings name none. Fetch one that needs no key with "
        f"`detent models pull {next(iter(_files()))}` and name it with --model, or write an entry under "
        f"`models:` in detent.yaml (see docs/models.md). Providers: {', '.join(KINDS)}."
    )


def own_steps(settings: Settings) -> dict[str, Any]:
    """The configuration that requests begun with these settings keep: the model `with_model` has chosen.

    Whoever goes on with such a request, in whichever process, has it done by the same model.
    """
    chosen = settings.get(*PLACE, default={})
    provider, model_id = chosen["provider"], chosen.get("model_id")
    if model_id is None:  # a run's own configuration hides none of the settings below it
        model_id = settings.get("models", provider, "model_id")
    own = {"mode": "agent", "provider": provider, "model_id": model_id}
    return {PLACE[-1]: {name: value for name, value in own.items() if value is not None}}


def _chosen(settings: Settings, *, provider: str, model_id: str | None) -> Settings:
    own = settings.get(*PLACE, default={})
    changes: dict[KeyPath, Any] = {(*PLACE, "mode"): "agent", (*PLACE, "provider"): provider}
    if model_id is not None or (isinstance(own, dict) and "model_id" in own):
        changes[*PLACE, "model_id"] = model_id
    return settings.over(changes)


def _files() -> list[str]:
    """Names of model files that can be fetched."""
    from detent.adapters.models.model_files import KNOWN

    return list(KNOWN)
