"""JSON Schemas of types and calls, and the problems of a value under one.

A contract is a class (dataclass, TypedDict, pydantic model) or a JSON Schema. This module gives both the same
operations: a schema to show, a check, and reading a plain value into the declared types. Messages name places
and expectations, never the values themselves, because they reach logs.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from detent.engine.field_docs import described
from detent.engine.patterns import InvalidPattern, PatternTimeout, compiled
from detent.engine.schema_keywords import TooMuchWork, bounded, errors_of, format_checker
from detent.engine.typed_dicts import readable
from detent.kernel.errors import ConfigurationError, NestedTooDeeply
from detent.kernel.plain import encode, pointer_to, to_plain

MOST_TOLD = 20
"""Problems reported per value, and choices listed per problem."""
MOST_LISTED = 1_000
"""Problems per value that pydantic is asked to list."""


def schema_of(contract: Any) -> Mapping[str, Any]:
    """The JSON Schema of a class, an annotation, or a JSON Schema itself. Shared: not to be changed."""
    if isinstance(contract, Mapping):
        return contract
    try:
        return _type_schema(contract)
    except TypeError:  # not hashable
        return _type_schema.__wrapped__(contract)


def misfits(value: Any, contract: Any, most: int = MOST_TOLD) -> list[str]:
    """Problems of a plain value under a schema or class, at most `most`, each as `/place: expectation`."""
    return read(value, contract, most)[1]


def read(value: Any, contract: Any, most: int = MOST_TOLD) -> tuple[Any, list[str]]:
    """A plain value as the declared type, and its problems (the value is None if there are any).

    A class accepts additional keys; a JSON Schema decides that itself.
    """
    try:
        plain = to_plain(value)
    except (NestedTooDeeply, RecursionError):
        return None, ["/: is nested too deeply"]
    except (TypeError, ValueError):
        return None, ["/: holds something that is not a JSON value, such as NaN"]
    if isinstance(contract, Mapping):
        problems = _schema_misfits(plain, contract, most)
        return (None if problems else value), problems
    return _read(plain, contract)


def schema_of_call(function: Callable[..., Any], skip: int = 0) -> Mapping[str, Any]:
    """The JSON Schema of a function's keyword arguments.

    Raises:
        ConfigurationError: an annotation has no JSON Schema.
    """
    try:
        return _call_schema(function, skip)
    except TypeError:  # not hashable
        return _call_schema.__wrapped__(function, skip)


@lru_cache(maxsize=1024)
def _call_schema(function: Callable[..., Any], skip: int) -> Mapping[str, Any]:
    import pydantic

    try:
        signature = inspect.signature(function)
    except ValueError:  # a built-in without a signature
        return {"type": "object"}
    hints = hints_of(function)
    fields: dict[str, Any] = {}
    extra: typing.Literal["allow", "forbid"] = "forbid"
    for parameter in list(signature.parameters.values())[skip:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            continue
        hint = readable(hints.get(parameter.name, Any))
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"f_{len(fields)}"] = (hint, pydantic.Field(default, alias=parameter.name))
    config = pydantic.ConfigDict(extra=extra, arbitrary_types_allowed=True)
    try:
        model = pydantic.create_model("arguments", __config__=config, **fields)
        return _tidy(model.model_json_schema(by_alias=True, schema_generator=_generator()))
    except (pydantic.PydanticUserError, pydantic.PydanticUndefinedAnnotation) as error:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise ConfigurationError(
            f"The arguments of {name} have no JSON Schema: {_first_line(error)}. "
            f"Annotate them with types JSON can hold, or give their schema in words of your own."
        ) from error


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A function's annotations, without those that cannot be resolved."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__annotations__"):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        return dict(_resolvable(function))


def _resolvable(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Annotations resolved one at a time, so that an invalid one does not hide the others."""
    for name, hint in getattr(function, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: hint})
        try:
            yield from typing.get_type_hints(
                alone, globalns=getattr(function, "__globals__", {}), include_extras=True
            ).items()
        except Exception:
            continue


def returns_of(function: Callable[..., Any]) -> Any:
    """A function's return annotation; None without a useful one."""
    hint = hints_of(function).get("return")
    return None if hint is None or hint is type(None) or hint is Any or isinstance(hint, str) else hint


def fields_returned(function: Callable[..., Any]) -> frozenset[str]:
    """The fields of the classes that a function is declared to return, those in lists and in fields of other
    classes included; none of anything else."""
    return frozenset(_fields_declared(returns_of(function)))


def _fields_declared(hint: Any) -> Iterator[str]:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        yield from _fields_declared(typing.get_args(hint)[0])
    elif origin is not None and origin is not typing.Literal:  # a union, list, tuple or mapping
        for part in typing.get_args(hint):
            yield from _fields_declared(part)
    elif typing.is_typeddict(hint) or (isinstance(hint, type) and not issubclass(hint, Mapping)):
        try:
            schema = schema_of(hint)
        except ConfigurationError:  # a class without a JSON Schema
            return
        for part in (schema, *schema.get("$defs", {}).values()):
            properties = part.get("properties")
            yield from properties if isinstance(properties, Mapping) else ()


# -- classes ------------------------------------------------------------------------------------------------


def _adapter(contract: Any) -> Any:
    try:
        return _cached_adapter(contract)
    except TypeError:  # not hashable
        return _cached_adapter.__wrapped__(contract)


@lru_cache(maxsize=1024)
def _cached_adapter(contract: Any) -> Any:
    import pydantic

    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(readable(contract))
        adapter.rebuild()  # does nothing unless a name is unresolved, and then names it in an error
    except Exception as error:
        raise _no_contract(contract, error) from error
    return adapter


@lru_cache(maxsize=1024)
def _type_schema(contract: Any) -> Mapping[str, Any]:
    adapter = _adapter(contract)
    try:
        return described(_tidy(adapter.json_schema(schema_generator=_generator())), contract)
    except Exception as error:
        raise _no_contract(contract, error) from error


def _no_contract(contract: Any, error: Exception) -> ConfigurationError:
    name = getattr(contract, "__qualname__", None) or repr(contract)
    return ConfigurationError(
        f"{name} cannot serve as a contract: {_first_line(error)}. "
        f"Use a dataclass, TypedDict or pydantic model of types JSON can hold, or a JSON Schema."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


@lru_cache(maxsize=1)
def _generator() -> Any:
    """A generator class that does not warn about defaults JSON cannot hold: those are for Python callers."""
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        ignored_warning_kinds = GenerateJsonSchema.ignored_warning_kinds | {"non-serializable-default"}

    return Quiet


def _read(plain: Any, contract: Any) -> tuple[Any, list[str]]:
    import pydantic

    adapter = _adapter(contract)
    try:
        # As strict JSON: a string is not a number, but a date may be written as a string.
        return adapter.validate_json(encode(plain), strict=True), []
    except pydantic.ValidationError as error:
        if error.error_count() > MOST_LISTED:
            # pydantic lists all errors or none; a check under the class's schema stops after the first few.
            problems = _schema_misfits(plain, schema_of(contract), MOST_TOLD)
            return None, problems or [f"/: breaks its type in {error.error_count():,} places"]
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        return None, _merged(
            _expected(problem["type"], problem["msg"], problem["loc"], plain) for problem in errors
        )


_SAYS_EXPECTED = frozenset({
    "bool_type", "bytes_type", "bytes_too_long", "bytes_too_short", "dataclass_type", "date_future",
    "date_past", "date_type", "datetime_future", "datetime_past", "datetime_type", "decimal_max_digits",
    "decimal_max_places", "decimal_parsing", "decimal_type", "decimal_whole_digits", "dict_type", "enum",
    "finite_number", "float_type", "frozen_set_type", "greater_than", "greater_than_equal",
    "int_from_float", "int_type", "less_than", "less_than_equal", "list_type", "literal_error",
    "model_type", "multiple_of", "none_required", "set_type", "string_pattern_mismatch", "string_too_long",
    "string_too_short", "string_type", "time_delta_type", "time_type", "timezone_aware", "timezone_naive",
    "too_long", "too_short", "tuple_type", "url_scheme", "url_type", "uuid_type", "uuid_version",
})  # fmt: skip
"""Kinds of problem whose message states the expectation without the value."""
_SAYS_MORE_AFTER_COMMA = frozenset({
    "date_from_datetime_parsing", "date_parsing", "datetime_from_date_parsing", "datetime_parsing",
    "time_delta_parsing", "time_parsing", "url_parsing", "uuid_parsing",
})  # fmt: skip
"""Kinds of problem whose message quotes the value after a comma."""


def _expected(kind: str, message: str, path: tuple[str | int, ...], plain: Any) -> tuple[str, str]:
    """A place and its expectation. Messages of other kinds may quote values, so only the kind is reported."""
    place = _place(path, plain)
    if kind == "missing":
        return place, f"missing: {path[-1]}"
    if kind == "extra_forbidden":
        return _place(path[:-1], plain), "has unexpected keys"
    if kind in _SAYS_MORE_AFTER_COMMA:
        message = message.partition(", ")[0]
    elif kind not in _SAYS_EXPECTED:
        return place, f"breaks {kind.replace('_', ' ')}"
    return place, message.replace("Input should be ", "must be ", 1)


def _place(path: Iterable[str | int], plain: Any) -> str:
    """The pointer of a path, without parts that name alternatives of a type rather than places."""
    parts: list[str | int] = []
    for part in path:
        index = isinstance(plain, list) and isinstance(part, int) and part < len(plain)
        if index or (isinstance(plain, dict) and part in plain):
            plain = plain[part]
            parts.append(part)
    return pointer_to(parts) or "/"


def _merged(problems: Iterable[tuple[str, str]]) -> list[str]:
    """Problems as lines. The expectations of several alternatives at one place become one line."""
    lines: dict[tuple[str, str], dict[str, None]] = {}
    for place, words in problems:
        start, _, rest = words.partition("must be ")
        key = (place, "must be ") if rest and not start else (place, words)
        lines.setdefault(key, {})[rest if rest and not start else ""] = None
    return [f"{place}: {start}{' or '.join(rest)}" for (place, start), rest in lines.items()][:MOST_TOLD]


# -- JSON Schema --------------------------------------------------------------------------------------------

_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that hold schemas by name."""
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords that hold values, which contain no schemas."""


def _rewritten(schema: Any, change: Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]]) -> Any:
    """A copy of a schema, with `change(copy, original)` applied to each schema in it."""
    if isinstance(schema, Mapping):
        copy = {}
        for word, content in schema.items():
            if word in _VALUES:
                copy[word] = content
            elif word in _BY_NAME and isinstance(content, Mapping):
                copy[word] = {name: _rewritten(inner, change) for name, inner in content.items()}
            else:
                copy[word] = _rewritten(content, change)
        return change(copy, schema)
    return [_rewritten(item, change) for item in schema] if isinstance(schema, list) else schema


def _tidy(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the titles pydantic adds, which only repeat names."""

    def untitled(copy: dict[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
        copy.pop("title", None)
        return copy

    tidy: dict[str, Any] = _rewritten(schema, untitled)
    return tidy


def strictly(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in which an object with `properties` accepts no others, unless it allows them explicitly.

    Objects composed of several schemas stay open: no part knows the properties of the others.
    """
    parts = _parts(schema)

    def closed(copy: dict[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
        if "properties" in original and id(original) not in parts:
            copy.setdefault("additionalProperties", False)
        return copy

    strict: dict[str, Any] = _rewritten(schema, closed)
    return strict


def _parts(schema: Mapping[str, Any]) -> set[int]:
    """Identities of the schemas that describe an object only in part."""
    parts: set[int] = set()

    def mark(node: Any) -> None:
        if isinstance(node, Mapping) and id(node) not in parts:
            parts.add(id(node))
            for part in _put_together(node, schema):
                mark(part)

    def look(copy: dict[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
        sources = [word for word in ("properties", "$ref", "anyOf", "oneOf", "if") if word in node]
        if len(sources) + len(node.get("allOf", ())) > 1:
            mark(node)
        for part in (node.get("not"), *node.get("dependentSchemas", {}).values()):
            mark(part)
        return copy

    _rewritten(schema, look)
    return parts


def _put_together(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """Schemas that apply to the same value as `node`."""
    for word in ("allOf", "anyOf", "oneOf"):
        yield from node.get(word, ())
    for word in ("if", "then", "else"):
        yield node.get(word)
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        target: Any = root
        for part in reference.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = target.get(part) if isinstance(target, Mapping) else None
        yield target


def check_schema(schema: Mapping[str, Any]) -> None:
    """Check that this is a JSON Schema whose references can be resolved.

    Raises:
        ConfigurationError: it is not.
    """
    import jsonschema
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    kind = _validator_class(schema)
    try:
        plain = to_plain(dict(schema))
        kind.check_schema(plain, format_checker=format_checker())
    except RecursionError:
        raise ConfigurationError("This JSON Schema is nested too deeply to be used.") from None
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"This is no JSON Schema: {error}") from None
    except jsonschema.SchemaError as error:
        place = pointer_to(error.absolute_path) or "/"
        if isinstance(error.cause, InvalidPattern):
            raise ConfigurationError(f"The pattern at {place} cannot be used: {error.cause}.") from None
        raise ConfigurationError(f"This is no JSON Schema: {error.message} (at {place}).") from None
    resource = _specification(kind).create_resource(plain)
    resolver = REGISTRY.with_resource("", resource).resolver_with_root(resource)
    _follow(resource, resolver)


def _follow(resource: Any, resolver: Any) -> None:
    """Check every reference and pattern."""
    from referencing.exceptions import Unresolvable

    contents = resource.contents
    if isinstance(contents, Mapping) and isinstance(ref := contents.get("$ref"), str):
        try:
            _refuse_circle(contents, resolver)
        except Unresolvable:
            raise ConfigurationError(
                f"This JSON Schema refers to '{ref}', which is not in it. Put what it refers to under $defs."
            ) from None
    if isinstance(contents, Mapping):
        for pattern in contents.get("patternProperties", ()):
            try:
                compiled(pattern)
            except InvalidPattern as error:
                raise ConfigurationError(f"The pattern '{pattern[:60]}' cannot be used: {error}.") from None
    for inner in resource.subresources():
        _follow(inner, resolver.in_subresource(inner))


def _refuse_circle(schema: Mapping[str, Any], resolver: Any) -> None:
    """Raise if references that apply to the same value form a cycle."""
    seen: set[int] = set()

    def follow(node: Any, resolver: Any, path: frozenset[int]) -> None:
        if not isinstance(node, Mapping) or id(node) in seen:
            return
        if id(node) in path:
            raise ConfigurationError(
                f"This JSON Schema refers to '{schema['$ref']}', which refers back to it for the same value, "
                f"without end."
            )
        path |= {id(node)}
        if isinstance(reference := node.get("$ref"), str):
            target = resolver.lookup(reference)
            follow(target.contents, target.resolver, path)
        for word in ("allOf", "anyOf", "oneOf"):
            for part in node.get(word, ()):
                follow(part, resolver, path)
        for word in ("if", "then", "else", "not"):
            follow(node.get(word), resolver, path)
        seen.add(id(node))

    follow(schema, resolver, frozenset())


def _validator_class(schema: Mapping[str, Any]) -> Any:
    from jsonschema.validators import Draft202012Validator, validator_for

    return (
        validator_for(schema, default=Draft202012Validator) if "$schema" in schema else Draft202012Validator
    )


def _specification(kind: Any) -> Any:
    from referencing.jsonschema import specification_with

    return specification_with(kind.META_SCHEMA["$schema"])


_validators: dict[int, tuple[Mapping[str, Any], Any]] = {}
"""Validators by the identity of their schema, kept alive so that its identity stays unique."""
_MOST_VALIDATORS = 512
_validators_lock = threading.Lock()


def _validator(schema: Mapping[str, Any]) -> Any:
    """The cached validator of a schema: making one takes as long as checking a small value."""
    cached = _validators.get(id(schema))
    if cached is not None and cached[0] is schema:
        return cached[1]
    from jsonschema_specifications import REGISTRY

    # With an explicit registry, references to URLs are not fetched.
    validator = bounded(_validator_class(schema))(to_plain(dict(schema)), registry=REGISTRY)
    with _validators_lock:
        while len(_validators) >= _MOST_VALIDATORS:
            _validators.pop(next(iter(_validators)), None)
        _validators[id(schema)] = (schema, validator)
    return validator


_SIMPLE: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
_ANNOTATIONS = frozenset({"title", "description", "default", "examples"})
_UNDERSTOOD = _ANNOTATIONS | {"type", "enum", "properties", "required", "additionalProperties", "items"}


def _surely_fits(plain: Any, schema: Any) -> bool:
    """Whether a plain value fits a schema of a few common keywords; False if only a validator can tell.

    Most arguments of tools fit such a schema, and a validator takes ten times as long to find nothing.
    """
    if type(schema) is not dict or not schema.keys() <= _UNDERSTOOD:
        return False
    kind = schema.get("type")
    if kind is None or type(kind) is not str:
        return schema.keys() <= _ANNOTATIONS
    if "enum" in schema:  # of texts alone: whether other values are equal is a question of its own
        choices = schema["enum"]
        if type(plain) is not str or type(choices) is not list or plain not in choices:
            return False
    if kind == "object":
        parts, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        required = schema.get("required", [])
        if type(plain) is not dict or type(parts) is not dict or type(required) is not list:
            return False
        return all(name in plain for name in required) and all(
            _surely_fits(item, parts[name]) if name in parts else others is True
            for name, item in plain.items()
        )
    if kind == "array":
        items = schema.get("items")
        return type(plain) is list and (items is None or all(_surely_fits(item, items) for item in plain))
    return type(plain) in _SIMPLE.get(kind, ())


def _schema_misfits(plain: Any, schema: Mapping[str, Any], most: int) -> list[str]:
    if _surely_fits(plain, schema):
        return []
    import referencing.exceptions

    try:
        lines: dict[str, Any] = {}
        for error in errors_of(_validator(schema), plain):
            lines.setdefault(f"{pointer_to(error.absolute_path) or '/'}: {_expectation(error)}", error)
            if len(lines) >= most:
                break  # further problems are neither reported nor computed
    except (InvalidPattern, PatternTimeout, TooMuchWork) as error:
        return [f"/: {error}"]
    except referencing.exceptions.Unresolvable:
        check_schema(schema)  # names the reference in its error
        raise
    return sorted(lines, key=lambda line: _in_order(lines[line]))


def _in_order(error: Any) -> list[tuple[int, int, str]]:
    return [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in error.absolute_path]


def _expectation(error: Any) -> str:
    """The expectation an error is about, without the value."""
    rule, expected = error.validator, error.validator_value
    if rule is None:  # the schema `false`
        return "holds something that must not be there"
    if rule == "required":
        return f"missing: {', '.join(name for name in expected if name not in error.instance)}"
    if rule in ("additionalProperties", "unevaluatedProperties") and isinstance(error.schema, Mapping):
        properties = ", ".join(error.schema.get("properties", {})) or "none"
        return f"has unexpected keys (expected: {properties})"
    if rule == "type":
        kinds = [expected] if isinstance(expected, str) else expected
        return f"must be {' or '.join(_KINDS.get(kind, kind) for kind in kinds)}"
    if rule in ("enum", "const"):
        return f"must be {_choices(expected if rule == 'enum' else [expected])}"
    if rule in ("anyOf", "oneOf"):
        return _alternatives(error)
    if isinstance(expected, str | int | float | bool):
        return f"breaks {rule} {expected}"
    return f"breaks {rule}"


_KINDS = {
    "integer": "an integer", "number": "a number", "string": "a string", "boolean": "a boolean",
    "object": "an object", "array": "an array",
}  # fmt: skip
"""Types of JSON Schema as they stand in a sentence."""


def _choices(values: list[Any]) -> str:
    more = f" and {len(values) - MOST_TOLD} more" if len(values) > MOST_TOLD else ""
    return f"one of {', '.join(map(str, values[:MOST_TOLD]))}{more}"


def _alternatives(error: Any) -> str:
    """The expectations of the alternatives, in one line."""
    if not error.context:
        return "fits more than one alternative"
    place = error.absolute_path
    if all(problem.validator == "type" and problem.absolute_path == place for problem in error.context):
        expected = dict.fromkeys(_expectation(problem).removeprefix("must be ") for problem in error.context)
        return f"must be {' or '.join(expected)}"
    alternatives: dict[Any, list[Any]] = {}
    for problem in error.context:
        alternatives.setdefault(problem.relative_schema_path[0], []).append(problem)

    def distance(problems: list[Any]) -> tuple[bool, int]:
        return any(
            problem.validator == "type" and problem.absolute_path == place for problem in problems
        ), len(problems)

    nearest = min(alternatives.values(), key=distance)[0]
    return (
        f"fits no alternative (nearest: {pointer_to(nearest.absolute_path) or '/'}: {_expectation(nearest)})"
    )
