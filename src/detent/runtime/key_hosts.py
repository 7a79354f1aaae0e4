"""Hosts that the user's keys may be sent to: for each key, those that the user's own settings allow.

A project may name an address and the variable of a key, but the key is sent there only if the user allows
it, under `keys` in their own settings or with `detent trust --allow-key NAME=HOST`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from detent.kernel.errors import ConfigurationError
from detent.runtime.plugs import KeyUse
from detent.runtime.settings import Settings
from detent.runtime.store_url import postgres_address, store_url
from detent.runtime.trust import Trust, TrustFile

if TYPE_CHECKING:
    from detent.engine.tools import Tool

BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "OPENAI_API_KEY": ("api.openai.com",),
    "ANTHROPIC_API_KEY": ("api.anthropic.com",),
}
"""Hosts that the well-known keys belong to."""
HERE = frozenset({"localhost", "127.0.0.1", "::1"})
"""This machine: servers on it are the user's own, as far as the project is trusted."""
DEFAULTS: Mapping[str, tuple[str, str]] = {
    "openai": ("OPENAI_API_KEY", "api.openai.com"),
    "claude": ("ANTHROPIC_API_KEY", "api.anthropic.com"),
}
"""Key and host of each kind of model, unless settings name others."""
OWN_SETTINGS, REMEMBERED = "your own settings", "detent trust"
"""Where the user allows a host for a key."""
SECRET_INPUTS = "DETENT_INPUT_"
PASSWORD = "PGPASSWORD"
"""Variable that PostgreSQL's own library sends to any server that asks for a password."""
SHORTEST = 4
"""Shortest secret input that is searched for in requests, in characters."""


class KeyRefused(ConfigurationError):
    """A key would be sent to a host that the user has not allowed for it."""

    def __init__(self, variable: str, host: str, where: str) -> None:
        self.variable, self.host = variable, host
        self.reason = (
            f"{variable} would be sent to {host}, which your own settings do not allow. "
            f"If it is right: detent trust --allow-key {variable}={host}"
        )
        """The sentence without the setting that sends the key."""
        super().__init__(f"{where}: {self.reason}")


class KeyHosts:
    """The hosts each key may be sent to."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._settings = settings

    def allowed(self, variable: str, host: str) -> bool:
        """Whether the user allows this key to be sent to this host."""
        host = host.lower().rstrip(".")
        if (
            host in HERE
            or host in BUILT_IN.get(variable, ())
            or Trust.of(self._settings, self._environ).everything
        ):
            return True
        own = _hosts(self._settings.get("keys", variable))
        remembered = TrustFile(self._environ).read().get("keys")
        listed = remembered.get(variable) if isinstance(remembered, Mapping) else None
        return host in own or host in _hosts(listed)

    def check(self, use: KeyUse) -> None:
        """Raise `KeyRefused` if a key that is set would be sent to a host that is not allowed."""
        is_set = bool(self._environ.get(use.variable))
        is_set = is_set or (use.variable == PASSWORD and _password_file(self._environ))
        if use.project and is_set and not self.allowed(use.variable, use.host):
            raise KeyRefused(use.variable, use.host, use.where)


def allow_key(variable: str, host: str, environ: Mapping[str, str] | None = None) -> None:
    """Record that a key may be sent to a host."""
    with TrustFile(environ).changing() as record:
        keys = record.setdefault("keys", {})
        keys[variable] = sorted({*keys.get(variable, ()), host.lower().rstrip(".")})


def disallow_key(variable: str, host: str, environ: Mapping[str, str] | None = None) -> bool:
    """Remove the record that a key may be sent to a host; False if there was none."""
    with TrustFile(environ).changing() as record:
        keys = mapping_of(record.get("keys"))
        remembered = _hosts(keys.get(variable))
        left = sorted(remembered - {host.lower().rstrip(".")})
        others = {name: hosts for name, hosts in keys.items() if name != variable}
        record["keys"] = others | ({variable: left} if left else {})
        return len(left) < len(remembered)


class AllowedKey(NamedTuple):
    """A host that the user allows for a key, in every project."""

    variable: str
    host: str
    by: str
    """Where the user allows it."""


def allowed_keys(settings: Settings, environ: Mapping[str, str] | None = None) -> list[AllowedKey]:
    """The hosts that the user allows, in their own settings and with `detent trust`."""
    sources = ((OWN_SETTINGS, settings.get("keys")), (REMEMBERED, TrustFile(environ).read().get("keys")))
    return sorted(
        AllowedKey(str(variable), host, by)
        for by, keys in sources
        for variable, hosts in mapping_of(keys).items()
        for host in _hosts(hosts)
    )


def provider_key(settings: Settings, name: str, kind: str, options: Mapping[str, Any]) -> KeyUse | None:
    """The key of a model's provider and the host it is sent to; None if the provider takes no key."""
    usual = DEFAULTS.get(kind, ("", "localhost"))
    variable = str(options.get("api_key_env") or usual[0])
    base_url = options.get("base_url")
    host = host_of(str(base_url)) if base_url else usual[1]
    if not variable or not host:
        return None
    paths = [(top, *rest) for top, *rest in (("models", name), ("model",))]
    by_project = any(settings.of_project(*path, key) for path in paths for key in ("base_url", "api_key_env"))
    return KeyUse(variable, host, f"models.{name}", by_project)


def mail_keys(settings: Settings, model: str) -> Iterator[KeyUse]:
    """User names and passwords of mail servers.

    `model`, as `module:name`, is the model of the heading, which has the default variables. It is loaded only
    if a server is configured.
    """
    for part, chosen in (("smtp", settings.get("mail", "sink")), ("imap", settings.get("mail", "source"))):
        server = mapping_of(settings.get("mail", part))
        host = server.get("host")
        for key in ("user", "password") if isinstance(host, str) and host and chosen == part else ():
            default = getattr(resolve_name(model).model_fields[part].default, f"{key}_env")
            variable = str(server.get(f"{key}_env") or default)
            yield KeyUse(variable, str(host), f"mail.{part}", settings.of_project("mail", part))


def store_keys(settings: Settings) -> Iterator[KeyUse]:
    """The password that a PostgreSQL store without one in its URL takes from the user's environment.

    The URL is parsed by the library that connects, so that both see the same host.
    """
    url = store_url(settings)
    if url.partition(":")[0].lower() not in ("postgresql", "postgres"):
        return
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return
    try:
        address = conninfo_to_dict(postgres_address(url)[0])
    except ProgrammingError:
        return
    listed = [name for key in ("host", "hostaddr") for name in str(address.get(key) or "").split(",")]
    for host in dict.fromkeys(listed) if not address.get("password") else ():
        if host and not host.startswith(("/", "@")):  # a socket of this machine
            yield KeyUse(PASSWORD, host, "store", settings.of_project("store"))


def _password_file(environ: Mapping[str, str]) -> bool:
    """Whether the user's file of PostgreSQL passwords has an entry for every host."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    place = environ.get("PGPASSFILE") or (f"{home}/.pgpass" if home else "")
    try:
        lines = Path(place).read_text(encoding="utf-8", errors="replace").splitlines() if place else []
    except OSError:
        return False
    return any(line.startswith("*:") for line in lines)


def guarded_fetch(tool: Tool, hosts: KeyHosts, environ: Mapping[str, str]) -> Tool:
    """A tool that makes web requests, restricted to send secret inputs to allowed hosts only."""
    perform = tool.perform

    async def checked(**args: Any) -> Any:
        host = host_of(str(args.get("url") or ""))
        sent = [str(args.get("url") or ""), *map(str, mapping_of(args.get("headers")).values())]
        for variable, value in environ.items():
            secret = variable.startswith(SECRET_INPUTS) and len(value) >= SHORTEST
            if secret and any(value in text for text in sent):
                _checked(hosts, KeyUse(variable, host, f"The tool '{tool.name}'", True))
        return await perform(**args)

    return replace(tool, perform=checked, in_front_of=tool.in_front_of or perform)


def _checked(hosts: KeyHosts, use: KeyUse) -> None:
    from detent.engine.tools import ToolError

    try:
        hosts.check(use)
    except KeyRefused as error:
        raise ToolError("key_refused", str(error)) from None


def host_of(address: str) -> str:
    """The host of an address; empty if it has none."""
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _hosts(value: Any) -> frozenset[str]:
    listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(str(host).lower().rstrip(".") for host in listed)


def mapping_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
