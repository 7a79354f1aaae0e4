"""A JSON Schema rewritten so that llama.cpp can decode under it.

Its converter refuses some valid schemas (a reference to the root, `items: false`), widens others silently (a
required key without a description) and fails on a few (a pattern that lets a quote through). The rewritten
schema omits such details and closes open objects; the caller checks the answer against the original schema
in any case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from detent.dispatch.executor_errors import ExecutorError

MOST_REPEATS = 1000
"""The largest number of repetitions in a grammar; larger bounds are only checked afterwards."""

FORMATS = frozenset({"date", "date-time", "time", "uuid"})

TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_HINTS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keys that imply a type where none is given."""

_PLAIN_PATTERN = re.compile(
    r"""\^(?:
        \\[dw.\-\[\]()|*+?{}]                        # one escaped character
      | \[(?:[A-Za-z0-9_\x20.,:;@\#%+-]|\\[dw.\-])+\]  # a set, not a negated one
      | [A-Za-z0-9_\x20,:;@\#%=<>!~&/-]              # a character
      | \(\?: | \((?!\?) | [)|*+?]
      | \{[0-9]{1,3}(?:,(?:[0-9]{1,3})?)?\}
    )*\$""",
    re.VERBOSE,
)
"""Patterns that mean the same in a grammar and cannot break the JSON around them."""


def decodable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema in the form llama.cpp accepts; `ExecutorError` when there is none."""
    shaper = _Shaper(schema)
    shaped = shaper.shape(schema)
    if shaped is None:
        raise ExecutorError("The output schema allows no value at all.")
    return {**shaped, "$defs": shaper.defs} if shaper.defs else shaped


class _Shaper:
    """Rewrites one schema; every target of a reference gets a plain name under `$defs`."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._names: dict[str, str] = {}
        self.defs: dict[str, Any] = {}

    def shape(self, node: Any) -> dict[str, Any] | None:
        """One schema; None for a schema that no value fits."""
        if node is True:
            return {}
        if node is False:
            return None
        if not isinstance(node, Mapping):
            raise ExecutorError(
                "The output schema is no JSON Schema: a part of it is neither an object nor true or false."
            )
        if "$ref" in node:
            return self._reference(node["$ref"])
        if "const" in node:
            return {"const": node["const"]}
        if "enum" in node:
            choices = list(node["enum"])
            return {"enum": choices} if choices else None
        if node.get("allOf"):
            return self._all_of(node)
        choice = "anyOf" if "anyOf" in node else "oneOf" if "oneOf" in node else None
        if choice and not node.get("properties"):
            return self._any_of([_typed(alternative, node.get("type")) for alternative in node[choice]])
        return self._plain(node)

    def _plain(self, node: Mapping[str, Any]) -> dict[str, Any] | None:
        types = node.get("type")
        if isinstance(types, list | tuple):
            return self._any_of([{**node, "type": type_} for type_ in types])
        type_ = types or next(
            (type_ for type_, keys in _HINTS.items() if any(key in node for key in keys)), None
        )
        if type_ is None:
            return {}
        if type_ not in TYPES:
            raise ExecutorError(
                f"The output schema names a type '{type_}'. There is: {', '.join(sorted(TYPES))}."
            )
        if type_ == "object":
            return self._object(node)
        if type_ == "array":
            return self._array(node)
        if type_ == "string":
            return _string(node)
        return _integer(node) if type_ == "integer" else {"type": type_}

    def _any_of(self, nodes: list[Any]) -> dict[str, Any] | None:
        shaped = [part for part in map(self.shape, nodes) if part is not None]
        return None if not shaped else shaped[0] if len(shaped) == 1 else {"anyOf": shaped}

    def _all_of(self, node: Mapping[str, Any]) -> dict[str, Any] | None:
        siblings = {key: value for key, value in node.items() if key != "allOf"}
        parts = [self.shape(part) for part in (*([siblings] if siblings else []), *node["allOf"])]
        if any(part is None for part in parts):
            return None
        constraints = [part for part in parts if part]
        return {} if not constraints else constraints[0] if len(constraints) == 1 else {"allOf": constraints}

    def _object(self, node: Mapping[str, Any]) -> dict[str, Any] | None:
        required = list(node.get("required", ()))
        properties: dict[str, Any] = {}
        for name, part in node.get("properties", {}).items():
            shaped = self.shape(part)
            if shaped is not None:
                properties[name] = shaped
            elif name in required:
                return None
        more = node.get("additionalProperties", True)
        for name in required:
            if name not in properties:
                shaped = self.shape(more)
                if shaped is None:
                    return None
                properties[name] = shaped
        if not properties and more is not False:
            values = self.shape(more)
            return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
        # Open objects are closed: given an open one, a small model keeps inventing keys.
        values = self.shape(more) if isinstance(more, Mapping) and more else None
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": values if values else False,
        }

    def _array(self, node: Mapping[str, Any]) -> dict[str, Any] | None:
        if prefix := node.get("prefixItems"):
            shaped = [self.shape(item) for item in prefix]
            return None if None in shaped else {"type": "array", "prefixItems": shaped}
        items = self.shape(node.get("items", True))
        if items is None:
            return {"const": []} if not node.get("minItems") else None
        return {"type": "array", "items": items, **_bounds(node, "minItems", "maxItems")}

    def _reference(self, reference: Any) -> dict[str, Any]:
        if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
            raise ExecutorError(
                f"The output schema refers to '{reference}'. Only places in the schema itself can be "
                f"referred to, such as #/$defs/name."
            )
        if reference not in self._names:
            target = self._at(reference)
            seen = {reference}
            while isinstance(target, Mapping) and "$ref" in target:  # a reference to a reference
                if target["$ref"] in seen:
                    raise ExecutorError(f"The output schema's '{reference}' refers to nothing but itself.")
                seen.add(target["$ref"])
                target = self._at(target["$ref"])
            name = self._names[reference] = f"d{len(self._names)}"
            self.defs[name] = {}  # reserves the name while parts of it may refer back
            shaped = self.shape(target)
            if shaped is None:
                raise ExecutorError(f"The output schema's '{reference}' allows no value at all.")
            self.defs[name] = shaped
        return {"$ref": f"#/$defs/{self._names[reference]}"}

    def _at(self, reference: str) -> Any:
        node: Any = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(key)] if isinstance(node, list | tuple) else node[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise ExecutorError(
                    f"The output schema refers to '{reference}', which it does not have."
                ) from None
        return node


def _typed(node: Any, type_: Any) -> Any:
    """An alternative, with the type given once for all of them."""
    if type_ is None or not isinstance(node, Mapping):
        return node
    has_type = any(key in node for key in ("type", "$ref", "const", "enum", "anyOf", "oneOf", "allOf"))
    return node if has_type else {**node, "type": type_}


def _string(node: Mapping[str, Any]) -> dict[str, Any]:
    pattern = _grammar_pattern(node.get("pattern"))
    if pattern is not None:
        return {"type": "string", "pattern": pattern}
    if node.get("format") in FORMATS:
        return {"type": "string", "format": node["format"]}
    return {"type": "string", **_bounds(node, "minLength", "maxLength")}


def _grammar_pattern(pattern: Any) -> str | None:
    """A pattern in the subset a grammar supports; None for any other."""
    if not isinstance(pattern, str) or not _PLAIN_PATTERN.fullmatch(pattern):
        return None
    try:
        re.compile(pattern)
    except re.error:
        return None
    parts = re.split(r"(\[(?:[^\]\\]|\\.)*\])", pattern)
    return "".join(
        part.replace(r"\d", "0-9").replace(r"\w", "A-Za-z0-9_")
        if part.startswith("[")
        else part.replace(r"\d", "[0-9]").replace(r"\w", "[A-Za-z0-9_]")
        for part in parts
    )


def _integer(node: Mapping[str, Any]) -> dict[str, Any]:
    least = [math.ceil(node["minimum"])] if "minimum" in node else []
    most = [math.floor(node["maximum"])] if "maximum" in node else []
    if "exclusiveMinimum" in node:
        least.append(math.floor(node["exclusiveMinimum"]) + 1)
    if "exclusiveMaximum" in node:
        most.append(math.ceil(node["exclusiveMaximum"]) - 1)
    shaped: dict[str, Any] = {"type": "integer"}
    if least:
        shaped["minimum"] = max(least)
    if most:
        shaped["maximum"] = min(most)
    return shaped


def _bounds(node: Mapping[str, Any], least: str, most: str) -> dict[str, int]:
    bounds = {key: node[key] for key in (least, most) if isinstance(node.get(key), int | float)}
    return {key: int(value) for key, value in bounds.items() if 0 <= value <= MOST_REPEATS}
