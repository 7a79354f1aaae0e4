"""What a JSON Schema says about each place in a value, as far as it matters for comparing values.

Nothing is validated here. Every part of a schema that combines others or lists alternatives counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, cast

from detent.engine.patterns import InvalidPattern, PatternBudget, PatternTimeout


@lru_cache(maxsize=1024)
def path_of(pointer: str) -> tuple[str, ...]:
    """The keys and indices of an RFC 6901 pointer."""
    parts = pointer.split("/")[1:]
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


_Node: TypeAlias = tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...]]
"""A schema, and the schemas around it in which its references are looked up, outermost first."""


@dataclass(frozen=True, slots=True)
class SchemasAt:
    """All schemas that apply to one place, each alternative included."""

    nodes: tuple[_Node, ...]
    patterns: PatternBudget = field(default_factory=PatternBudget, compare=False)
    """The time left for patterns over the keys of one value, shared by all its places."""

    @classmethod
    def top(cls, schema: Mapping[str, Any] | None) -> SchemasAt:
        """The schemas that apply to the whole value."""
        return _NOWHERE if schema is None else cls(_flat([(schema, ())]))

    @property
    def say_number(self) -> bool:
        """Whether any number is allowed, so that 1 and 1.0 are the same there."""
        return any("number" in _types(node) for node, _ in self.nodes)

    def under(self, part: str | int) -> SchemasAt:
        """The schemas that apply to a key or index below."""
        if not self.nodes:
            return self
        if isinstance(part, str):
            return self._of(lambda node: _of_key(node, part, self.patterns))
        return self._of(lambda node: _of_index(node, part))

    def items(self) -> SchemasAt:
        """The schemas that apply to some item of a list, at any position."""
        return self._of(lambda node: [*_listed(node.get("prefixItems")), *_listed(node.get("items"))])

    def _of(self, inside: Callable[[Mapping[str, Any]], list[Any]]) -> SchemasAt:
        nodes = [(inner, around) for node, around in self.nodes for inner in inside(node)]
        return SchemasAt(_flat(nodes), self.patterns) if nodes else _NOWHERE


_NOWHERE = SchemasAt(())


def _types(node: Mapping[str, Any]) -> Sequence[str]:
    declared = node.get("type", ())
    return (declared,) if isinstance(declared, str) else declared


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] if value is not None else []


def _of_key(node: Mapping[str, Any], key: str, patterns: PatternBudget) -> list[Any]:
    named = node.get("properties", {})
    schemas = [named[key]] if key in named else []
    for pattern, schema in node.get("patternProperties", {}).items():
        with suppress(InvalidPattern, PatternTimeout):  # then it does not apply
            if patterns.fits(pattern, key):
                schemas.append(schema)
    return schemas or [node.get("additionalProperties")]


def _of_index(node: Mapping[str, Any], index: int) -> list[Any]:
    first, rest = _listed(node.get("prefixItems")), node.get("items")
    if isinstance(rest, (list, tuple)):  # the form of drafts before 2020-12
        first, rest = list(rest), node.get("additionalItems")
    return [first[index]] if index < len(first) else [rest]


def _flat(nodes: Iterable[tuple[Any, tuple[Mapping[str, Any], ...]]]) -> tuple[_Node, ...]:
    """These schemas, with those they refer to and those they combine."""
    by_id: dict[int, _Node] = {}
    todo = deque(nodes)
    while todo:
        node, around = todo.popleft()
        if not isinstance(node, Mapping) or id(node) in by_id:
            continue
        if not around or (around[-1] is not node and ("$defs" in node or "definitions" in node)):
            around = (*around, node)
        by_id[id(node)] = (node, around)
        for word in ("allOf", "anyOf", "oneOf"):
            todo.extend((part, around) for part in node.get(word, ()))
        todo.extend((node[word], around) for word in ("then", "else") if word in node)
        if isinstance(reference := node.get("$ref"), str):
            todo.extend(_referred(reference, around))
    return tuple(by_id.values())


def _referred(reference: str, around: tuple[Mapping[str, Any], ...]) -> list[_Node]:
    """The target of a reference within the schema; an embedded schema may have its own definitions."""
    if not reference.startswith("#"):
        return []
    for depth in range(len(around), 0, -1):
        node: Any = around[depth - 1]
        try:
            for part in path_of(reference[1:]):
                node = node[int(part)] if isinstance(node, (list, tuple)) else node[part]
        except (KeyError, IndexError, ValueError, TypeError):
            continue
        if isinstance(node, Mapping):
            return [(cast("Mapping[str, Any]", node), around[:depth])]
    return []
