"""Ids of stages, steps and behaviors; names of variables and artifacts."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from detent.flows.notebook.payloads.values import (
    ArtifactJudged,
    ContextFilter,
    Deprecated,
    Extracted,
    Gap,
    Named,
    Retained,
    Tracking,
)

ID = re.compile(r"[a-z][a-z0-9_]{0,79}")
"""Stages and steps."""

_BEHAVIOR = re.compile(r"(.+)_b([1-9][0-9]{0,8})")
_DRIVE = re.compile(r"[A-Za-z]:")
_NAMED = (Named, ArtifactJudged, Extracted, Retained, Deprecated, Gap)

Value = TypeVar("Value")


def is_id(text: str) -> bool:
    """Whether a text can be the id of a stage or step."""
    return ID.fullmatch(text) is not None


def behavior_number(behavior_id: str, step_id: str) -> int | None:
    """The number of a behavior of a step; None if the id is not one of that step."""
    match = _BEHAVIOR.fullmatch(behavior_id)
    return int(match[2]) if match and match[1] == step_id else None


def is_path(name: str) -> bool:
    """Whether an artifact's name is a file or folder, not a variable."""
    return "/" in name


def artifact_name(text: str) -> str | None:
    """The canonical form of a variable's or artifact's name; None if it can be neither.

    A variable is a Python identifier. A path has a `/`, is relative, stays in the work folder, and ends with
    `/` if it is a folder.
    """
    text = text.strip()
    if not is_path(text):
        return text if text.isidentifier() and not keyword.iskeyword(text) else None
    if text.startswith(("/", "~")) or _DRIVE.match(text) or "\\" in text or not text.isprintable():
        return None
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or ":" in parts[0]:
        return None
    path = "/".join(parts)
    if text.endswith(("/", "/.")):
        return f"{path}/"
    return path if is_path(path) else f"./{path}"


def with_canonical_names(value: Value) -> Value:
    """A payload in which every name that can be one has its canonical form."""
    if isinstance(value, tuple):
        changed = tuple(with_canonical_names(item) for item in value)
        return value if all(new is old for new, old in zip(changed, value, strict=True)) else changed  # type: ignore[return-value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes: dict[str, Any] = {}
    for one in fields(value):
        old = getattr(value, one.name)
        if isinstance(value, _NAMED) and one.name == "name":
            new: Any = _canonical(old)
        elif isinstance(value, Tracking) or (isinstance(value, ContextFilter) and one.name == "include"):
            new = tuple(_canonical(name) for name in old)
        elif isinstance(value, ContextFilter):
            new = tuple((_canonical(name), how) for name, how in old)
        elif one.name == "new_variables":
            new = tuple(_canonical(name) for name in old)
        else:
            new = with_canonical_names(old)
        if new != old:
            changes[one.name] = new
    return replace(value, **changes) if changes else value  # type: ignore[type-var]


def names_in(value: Any, part: str = "") -> Iterator[tuple[str, str]]:
    """Every name in a payload, with the part of the value that has it."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from names_in(item, f"{part}[{index}]")
    elif isinstance(value, _NAMED):
        yield part, value.name
    elif isinstance(value, Tracking):
        for one in fields(value):
            for name in getattr(value, one.name):
                yield f"{part}.{one.name}", name
    elif isinstance(value, ContextFilter):
        for name in (*value.include, *(name for name, _ in value.summarize)):
            yield part, name
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            inner = f"{part}.{one.name}" if part else one.name
            if one.name == "new_variables":
                for name in getattr(value, one.name):
                    yield inner, name
            else:
                yield from names_in(getattr(value, one.name), inner)


def _canonical(name: str) -> str:
    return artifact_name(name) or name
