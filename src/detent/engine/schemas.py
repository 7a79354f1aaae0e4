"""JSON Schemas of types and calls, and what is wrong with a value under one.

A contract may be given as a class (dataclass, TypedDict, pydantic model) or as a JSON Schema; here both
become the same thing: a schema to show, a check, and a way to read a plain value into the declared types.
Messages name places and expectations, never the value that stood there: they reach logs.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from detent.kernel.errors import ConfigurationError

MOST_TOLD = 20
"""Problems told of one value."""


def schema_of(what: Any) -> Mapping[str, Any]:
    """The JSON Schema of a class, an annotation, or a JSON Schema itself."""
    if isinstance(what, Mapping):
        return what
    return _adapter_schema(what)


def misfits(value: Any, what: Any) -> list[str]:
    """What is wrong with a plain value under a schema or class: `/place: expectation`, at most so many."""
    if isinstance(what, Mapping):
        return _schema_misfits(value, what)
    return _read(value, what)[1]


def read(value: Any, what: Any) -> tuple[Any, list[str]]:
    """A plain value as the declared type, and what is wrong with it (then the value is None)."""
    if isinstance(what, Mapping):
        problems = _schema_misfits(value, what)
        return (None if problems else value), problems
    return _read(value, what)


def schema_of_call(function: Callable[..., Any], skip: int = 0) -> Mapping[str, Any]:
    """The JSON Schema of a function's keyword arguments."""
    try:
        return _call_schema(function, skip)
    except TypeError:  # not hashable
        return _call_schema.__wrapped__(function, skip)


@lru_cache(maxsize=1024)
def _call_schema(function: Callable[..., Any], skip: int) -> Mapping[str, Any]:
    import pydantic

    try:
        signature = inspect.signature(function)
    except ValueError:  # a built-in that tells nothing about itself
        return {"type": "object"}
    hints = hints_of(function)
    fields: dict[str, Any] = {}
    extra: typing.Literal["allow", "forbid"] = "forbid"
    for parameter in list(signature.parameters.values())[skip:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            continue
        hint = hints.get(parameter.name, Any)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"f_{len(fields)}"] = (hint, pydantic.Field(default, alias=parameter.name))
    config = pydantic.ConfigDict(extra=extra, arbitrary_types_allowed=True)
    model = pydantic.create_model("arguments", __config__=config, **fields)
    return _tidy(model.model_json_schema(by_alias=True))


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A function's annotations, those that cannot be resolved left out."""
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception:
        said = getattr(function, "__annotations__", {})
        return {name: hint for name, hint in said.items() if not isinstance(hint, str)}


def returns_of(function: Callable[..., Any]) -> Any:
    """What a function says it gives back; None when it says nothing."""
    hint = hints_of(function).get("return")
    if hint is None or hint is type(None) or hint is Any or isinstance(hint, str | types.NoneType):
        return None
    return hint


# -- classes ------------------------------------------------------------------------------------------------


def _adapter(what: Any) -> Any:
    try:
        return _cached_adapter(what)
    except TypeError:  # not hashable
        return _cached_adapter.__wrapped__(what)


@lru_cache(maxsize=1024)
def _cached_adapter(what: Any) -> Any:
    import pydantic

    try:
        return pydantic.TypeAdapter(what)
    except Exception as error:
        raise ConfigurationError(f"{what!r} cannot serve as a contract: {error}") from error


def _adapter_schema(what: Any) -> Mapping[str, Any]:
    return _tidy(_adapter(what).json_schema())


def _read(value: Any, what: Any) -> tuple[Any, list[str]]:
    import pydantic

    from detent.kernel.plain import encode

    try:
        # As JSON, and strictly: a text is no number, and a date may still be written as text.
        return _adapter(what).validate_json(encode(value), strict=True), []
    except pydantic.ValidationError as error:
        return None, [
            f"/{'/'.join(str(part) for part in one['loc'])}: {one['type'].replace('_', ' ')}"
            for one in error.errors(include_url=False, include_context=False, include_input=False)[:MOST_TOLD]
        ]


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles pydantic adds: they say what the names already say."""

    def without(node: Any, named: bool = False) -> Any:
        if isinstance(node, dict):
            return {
                key: without(value, named=not named and key in ("properties", "$defs"))
                for key, value in node.items()
                if named or key != "title" or not isinstance(value, str)
            }
        return [without(item) for item in node] if isinstance(node, list) else node

    tidy: dict[str, Any] = without(schema)
    return tidy


# -- JSON Schema --------------------------------------------------------------------------------------------


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` unless this is a JSON Schema."""
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path)
        raise ConfigurationError(f"This is no JSON Schema: {error.message} (at /{place}).") from None


def _schema_misfits(value: Any, schema: Mapping[str, Any]) -> list[str]:
    import jsonschema

    validator = jsonschema.Draft202012Validator(dict(schema))
    found = sorted(validator.iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path])
    return [_told(error) for error in found[:MOST_TOLD]]


def _told(error: Any) -> str:
    """One problem, without the value."""
    place = "/" + "/".join(str(part) for part in error.absolute_path)
    rule, wanted = str(error.validator), error.validator_value
    if rule == "required":
        missing = [name for name in wanted if name not in error.instance]
        return f"{place}: lacks {', '.join(missing)}"
    if rule == "additionalProperties":
        known = ", ".join(error.schema.get("properties", {})) or "none"
        return f"{place}: has keys nobody asked for (asked for: {known})"
    if rule == "type":
        return f"{place}: must be {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
    if rule in ("enum", "const"):
        choices = wanted if rule == "enum" else [wanted]
        return f"{place}: must be one of {', '.join(map(str, choices))}"
    if isinstance(wanted, str | int | float | bool):
        return f"{place}: breaks {rule} {wanted}"
    return f"{place}: fits no alternative" if rule in ("anyOf", "oneOf") else f"{place}: breaks {rule}"
