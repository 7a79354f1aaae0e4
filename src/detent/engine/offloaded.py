"""Values that lie beside the journals, such as those handed to child runs, kept once for however many runs.

A run's data says under one key which of its values these are; only flows whose data nobody outside writes
have such a key. Whoever reads the run's `whole` data sees them in their place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detent.engine.ports import Blob
from detent.kernel.errors import ConfigurationError
from detent.kernel.guards import dig
from detent.kernel.plain import copied, decode, encode

if TYPE_CHECKING:
    from detent.kernel.run import Run

SHORT = 1000
"""Characters up to which every run writes a value down itself."""

Fetch = Callable[[str], Awaitable[bytes | None]]
"""Gives what is kept under a hash."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Long values of some data, by their key in it and their name there."""

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    refs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How data refers to them."""
    blobs: tuple[Blob, ...] = ()

    def shown(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of some data that these belong to, whole."""
        return {key: {**(data.get(key) or {}), **names} for key, names in self.values.items()}


NOTHING = Beside()


def set_aside(data: Mapping[str, Any], *keys: str) -> tuple[dict[str, Any], Beside]:
    """Data without the long values in the mappings at some of its keys, and those."""
    short = dict(data)
    values: dict[str, dict[str, Any]] = {}
    refs: dict[str, dict[str, Any]] = {}
    blobs: dict[str, Blob] = {}
    for key in keys:
        for name, value in (data.get(key) or {}).items():
            if not _may_be_long(value) or len(text := encode(value)) <= SHORT:
                continue
            blob = blob_of(text)
            blobs[blob.hash] = blob
            values.setdefault(key, {})[name] = value
            refs.setdefault(key, {})[name] = kept_beside(blob.body)
        if key in values:
            short[key] = {name: value for name, value in data[key].items() if name not in values[key]}
    return (short, Beside(values, refs, tuple(blobs.values()))) if values else (short, NOTHING)


def _may_be_long(value: Any) -> bool:
    return len(value) > SHORT if isinstance(value, str) else isinstance(value, Mapping | list | tuple)


async def looked_beside(under: str | None, run: Run, fetch: Fetch) -> Mapping[str, Any]:
    """What of a run's data lies beside its journal, by key, as `Run.beside` has it.

    `under` is the key that says so, as its flow has it.
    """
    references: Mapping[str, Mapping[str, Any]] = run.data.get(under, {}) if under is not None else {}
    values: dict[str, dict[str, Any]] = {}
    for key, names in references.items():
        for name, reference in names.items():
            raw = await fetch(reference["$blob"])
            if raw is None:
                raise ConfigurationError(
                    f"Run {run.id} cannot go on: '{name}' of its {key} was purged. Start a new run."
                )
            values.setdefault(key, {})[name] = decode(raw)
    return Beside(values).shown(run.data)


def blob_of(body: bytes | str) -> Blob:
    """A value as it is kept beside a journal."""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return Blob(hashlib.sha256(raw).hexdigest(), raw)


def kept_beside(body: bytes) -> dict[str, Any]:
    """How data refers to a value kept beside the journal."""
    return {"$blob": hashlib.sha256(body).hexdigest(), "size": len(body)}


Kept = Callable[[Mapping[str, Any]], Awaitable[bytes | None]]
"""Gives the value that a reference in data stands for, or None when it was purged."""


async def unfolded(data: Mapping[str, Any], kept: Kept) -> dict[str, Any]:
    """Data with offloaded JSON values in their places; purged ones are null."""
    whole = dict(data)
    for key, value in data.items():
        if _is_reference(value):
            raw = await kept(value)
            try:
                whole[key] = None if raw is None else decode(raw)
            except ValueError:
                continue  # not JSON
    return whole


async def dug(data: Mapping[str, Any], dotted: str, default: Any, kept: Kept) -> Any:
    """A copy of the value at a dotted key, also inside offloaded JSON; `default` where there is none."""
    value: Any = data
    parts = dotted.split(".") if dotted else []
    while True:
        if _is_reference(value):
            raw = await kept(value)
            if raw is None:
                return default
            value = decode(raw)
        elif not parts:
            return copied(value)
        elif (value := dig(value, parts.pop(0), _ABSENT)) is _ABSENT:
            return default


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"$blob", "size"}


_ABSENT = object()
