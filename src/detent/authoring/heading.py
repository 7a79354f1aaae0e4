"""Headings of settings that a pydantic model checks: the keys allowed there, and its errors as problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from detent.authoring.names import Nearest
from detent.authoring.problem import NOWHERE, Place, Problem

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_UNKNOWN = "extra_forbidden"
"""pydantic's code of a key that the model does not have."""
_IN_OUR_WORDS = {
    "string_type": "be text", "string_too_short": "not be empty", "list_type": "be a list",
    "int_type": "be a whole number", "int_from_float": "be a whole number", "float_type": "be a number",
    "bool_type": "be true or false", "dict_type": "have named values",
}  # fmt: skip
"""What a value should be, by pydantic's code of the problem."""
Placed = Callable[[Sequence[str]], Place]
"""The place of a key, given the keys that lead to it."""


def heading_keys(model: Any) -> dict[str, Any]:
    """The keys allowed under a heading, each with those below it."""
    keys: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        keys[field.alias or name] = heading_keys(kind) if _is_model(kind) else None
    return keys


def heading_problems(
    error: ValidationError,
    model: type[BaseModel],
    heading: str,
    place: Placed = lambda keys: NOWHERE,
    *,
    unknown: bool = True,
) -> Iterator[Problem]:
    """The problems of a heading; without `unknown`, only those with the values of known keys."""
    nearest = Nearest()
    for detail in error.errors(include_url=False, include_input=False):
        keys = (heading, *(str(part) for part in detail["loc"]))
        path = ".".join(keys)
        if detail["type"] != _UNKNOWN:
            message = _sentence(path, detail["type"], str(detail["msg"]))
            yield Problem("", message, place(keys), path)
        elif unknown:
            meant = nearest.of(keys[-1], _known_below(model, keys[1:-1]))
            yield Problem("", f"unknown key '{path}'.", place(keys), path, meant)


def _sentence(key: str, code: str, message: str) -> str:
    if code == "missing":
        return f"'{key}' is missing."
    if code in _IN_OUR_WORDS:
        return f"'{key}' should {_IN_OUR_WORDS[code]}."
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
