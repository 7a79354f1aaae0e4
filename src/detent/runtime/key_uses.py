"""Every key that is sent somewhere because of the settings, with its host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from detent.kernel.errors import ConfigurationError
from detent.runtime.executors import ConfiguredExecutors
from detent.runtime.key_hosts import KeyHosts, host_of, mapping_of, provider_key, store_keys
from detent.runtime.plugs import KeyUse, plugs
from detent.runtime.settings import Settings


def key_uses(settings: Settings) -> list[KeyUse]:
    """Every key that is sent to a host because of the settings, as far as the settings show."""
    return list(
        dict.fromkeys(
            [
                *_models(settings),
                *_mcp(settings),
                *(use for plug in plugs() for use in plug.keys(settings)),
                *store_keys(settings),
            ]
        )
    )


def _models(settings: Settings) -> Iterator[KeyUse]:
    executors = ConfiguredExecutors(settings)
    names = [*map(str, settings.section("models")), *([executors.default] if executors.default else [])]
    for name in dict.fromkeys(names):
        try:
            provider = executors.provider(name)
            use = provider_key(settings, provider.name, provider.kind, provider.options)
        except ConfigurationError:
            continue  # it makes no model, so it sends nothing
        if use is not None:
            yield use


def _mcp(settings: Settings) -> Iterator[KeyUse]:
    for name, entry in mapping_of(settings.get("mcp")).items():
        server = mapping_of(entry)
        host = host_of(str(server.get("url") or ""))
        for variable in mapping_of(server.get("headers")).values():
            if host:
                yield KeyUse(str(variable), host, f"mcp.{name}", settings.of_project("mcp", str(name)))


def check_keys(settings: Settings, *headings: str, environ: Mapping[str, str] | None = None) -> None:
    """Raise `KeyRefused` when a use of a key under these headings is not allowed."""
    hosts = KeyHosts(settings, environ)
    for use in key_uses(settings):
        if use.where.partition(".")[0] in headings:
            hosts.check(use)


def refused_uses(settings: Settings) -> list[KeyUse]:
    """Uses of keys that are not allowed yet, whether or not the keys are set."""
    hosts = KeyHosts(settings)
    return [use for use in key_uses(settings) if use.project and not hosts.allowed(use.variable, use.host)]
