"""Headings of settings that a pydantic model checks: the keys allowed there, and its errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from detent.kernel.errors import nearest

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

UNKNOWN = "extra_forbidden"
"""pydantic's code of a key that the model does not have."""


def heading_keys(model: Any) -> dict[str, Any]:
    """The keys allowed under a heading, each with those below it."""
    keys: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        keys[field.alias or name] = heading_keys(kind) if _is_model(kind) else None
    return keys


def heading_problems(
    error: ValidationError, model: type[BaseModel], heading: str
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The errors of a heading: the keys that lead to each, pydantic's code, and a sentence."""
    for detail in error.errors(include_url=False, include_input=False):
        keys = (heading, *(str(part) for part in detail["loc"]))
        yield keys, detail["type"], _sentence(keys, detail["type"], str(detail["msg"]), model)


def _sentence(keys: tuple[str, ...], code: str, message: str, model: type[BaseModel]) -> str:
    key = ".".join(keys)
    if code == UNKNOWN:
        return f"unknown key '{key}'.{nearest(keys[-1], _known_below(model, keys[1:-1]))}"
    if code == "missing":
        return f"'{key}' is missing."
    message = message.removeprefix("Value error, ")
    if message.startswith("Input should be "):
        return f"'{key}' should be {message.removeprefix('Input should be ')}."
    return f"'{key}': {message}."


def _known_below(model: Any, keys: tuple[str, ...]) -> list[str]:
    """The keys allowed below a key, items of lists and entries of mappings included."""
    kind: Any = model
    for key in keys:
        if _is_model(kind):
            fields = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
            kind = fields.get(key)
            if type(None) in get_args(kind):  # it may be left out
                kind = next(one for one in get_args(kind) if one is not type(None))
        else:
            kind = next((one for one in get_args(kind) if _is_model(one)), None)
    return list(heading_keys(kind)) if _is_model(kind) else []


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_fields")
