"""The declaration of an MCP server, and the problems in one. Nothing here connects.

The same rules hold for a server declared in Python and for one under `mcp:` in the settings; the caller adds
the place of a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from detent.kernel.errors import nearest

Way = tuple[str, ...]
"""The keys that lead to a value."""

KEYS = ("command", "url", "env", "headers", "queries", "effects", "timeout")
RULES = ("idempotent", "timeout")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
"""Small letters are refused: a secret written here by mistake must not be taken for a name and shown."""


@dataclass(frozen=True, slots=True)
class EffectRules:
    """How to treat a tool that changes something."""

    idempotent: bool = False
    """Calling it twice is the same as calling it once, so it may be repeated when in doubt."""
    timeout: float | None = None
    """Seconds to wait for its answer; None for the server's timeout."""


def problems(name: str, declaration: Mapping[str, Any]) -> list[tuple[Way, str]]:
    """Everything that keeps a declaration from being used: the keys below the server, and a message."""
    return list(_problems(name, declaration))


def rules_of(effects: Any) -> dict[str, EffectRules]:
    """Rules by tool, from a list of names or a mapping of names to rules, in which no problem was found."""
    if not isinstance(effects, Mapping):
        return {tool: EffectRules() for tool in effects or ()}
    return {
        tool: rules if isinstance(rules, EffectRules) else EffectRules(**(rules or {}))
        for tool, rules in effects.items()
    }


def _problems(name: str, declaration: Mapping[str, Any]) -> Iterator[tuple[Way, str]]:
    if not _NAME.fullmatch(name):
        yield (), "is no name for a server; use letters, digits, - and _, a letter first."
    for key in declaration:
        if key not in KEYS:
            hint = nearest(str(key), KEYS) or f" Known here: {', '.join(KEYS)}."
            yield (str(key),), f"is unknown.{hint}"
    yield from _transport(declaration)
    yield from _variables(declaration)
    yield from _tools(declaration)
    timeout = declaration.get("timeout")
    if timeout is not None and not _seconds(timeout):
        yield ("timeout",), "takes a number of seconds above 0."


def _transport(declaration: Mapping[str, Any]) -> Iterator[tuple[Way, str]]:
    command, url = declaration.get("command"), declaration.get("url")
    if (command is None) == (url is None):
        yield (), "needs a command to start it, or a url to reach it, and not both."
    if command is not None and not (_names(command) and command):
        yield ("command",), "takes a list: the program, then its arguments."
    if url is not None and not _web(url):
        yield ("url",), "takes an http or https address."


def _variables(declaration: Mapping[str, Any]) -> Iterator[tuple[Way, str]]:
    for key, transport in (("env", "command"), ("headers", "url")):
        value = declaration.get(key)
        if value is None:
            continue
        if (
            declaration.get(transport) is None
            and declaration.get("command" if transport == "url" else "url") is not None
        ):
            yield (key,), f"goes with a {transport} only."
        if not isinstance(value, Mapping):
            yield (key,), "takes names, each with the environment variable that holds its value."
            continue
        for inner, variable in value.items():
            if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
                yield (
                    (key, str(inner)),
                    "takes the name of an environment variable, in capital letters, never the value itself.",
                )


def _tools(declaration: Mapping[str, Any]) -> Iterator[tuple[Way, str]]:
    queries, effects = declaration.get("queries"), declaration.get("effects")
    if queries is not None and not _names(queries):
        yield ("queries",), "takes a list of the server's tools."
        queries = None
    if effects is not None and not (_names(effects) or isinstance(effects, Mapping)):
        yield ("effects",), "takes a list of the server's tools, or their names with rules."
        effects = None
    if not (declaration.get("queries") or declaration.get("effects")):
        yield (), "declares no tools, so nothing could use it; name them under queries or effects."
    for tool in queries or ():
        if tool in (effects or ()):
            yield ("effects",), f"names '{tool}', which is a query already; it can only be one of them."
    for tool, rules in effects.items() if isinstance(effects, Mapping) else ():
        keys = ("effects", str(tool))
        if rules is None or isinstance(rules, EffectRules):
            continue
        if not isinstance(rules, Mapping):
            yield keys, f"takes rules: {', '.join(RULES)}."
            continue
        for key, value in rules.items():
            if key not in RULES:
                hint = nearest(str(key), RULES) or f" Known here: {', '.join(RULES)}."
                yield (*keys, str(key)), f"is unknown.{hint}"
            elif key == "idempotent" and not isinstance(value, bool):
                yield (*keys, key), "takes true or false."
            elif key == "timeout" and value is not None and not _seconds(value):
                yield (*keys, key), "takes a number of seconds above 0."


def _names(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(item, str) and item for item in value)
    )


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _web(value: Any) -> bool:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
