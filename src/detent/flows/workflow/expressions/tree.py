"""Expressions as trees, and the text of a tree."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

Name = Literal["inputs", "steps", "item", "index"]
Key = str | int
"""A name or an index to read."""

_IDENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"})


class Reference(NamedTuple):
    """A value that an expression reads from its scope."""

    root: Name
    name: str | None
    """Name of the input or step; None for `item` and `index`."""
    guarded: bool
    """Whether it is in the first argument of a `default(…)` and may be missing."""
    position: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a text, true, false or null."""

    value: Any
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Items:
    """`[a, b]`."""

    items: tuple[Node, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Root:
    """`inputs.name`, `steps.name.output`, `item`, `index`."""

    root: Name
    name: str | None = None
    part: str | None = None
    """`output` or `status` of a step."""
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Path:
    """A value, and the keys to a value inside it."""

    base: Node
    keys: tuple[Key, ...]
    positions: tuple[int, ...] = field(default=(), compare=False)
    """Position of each key."""

    @property
    def position(self) -> int:
        """Position of its base."""
        return self.base.position


@dataclass(frozen=True, slots=True)
class Call:
    """`len(x)`."""

    function: str
    arguments: tuple[Node, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """`not x`."""

    operand: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Chain:
    """`a and b and c`, `a or b`."""

    word: Literal["and", "or"]
    operands: tuple[Node, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`a == b`, `a not in b`."""

    sign: str
    left: Node
    right: Node
    position: int = field(default=0, compare=False)
    """Position of the sign."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`a if b else c`."""

    value: Node
    condition: Node
    otherwise: Node
    position: int = field(default=0, compare=False)


Node = Constant | Items | Root | Path | Call | Not | Chain | Comparison | Choice

# Precedence of each kind of node; a node of lower precedence than its place requires gets parentheses.
_CHOICE, _OR, _AND, _NOT, _COMPARISON, _VALUE = range(6)


def written(node: Node) -> str:
    """Return the text of a tree; parsing it gives the same tree."""
    return _written(node, _CHOICE)


def _written(node: Node, place: int) -> str:
    text, strength = _text(node)
    return text if strength >= place else f"({text})"


def _text(node: Node) -> tuple[str, int]:
    if isinstance(node, Constant):
        return _literal(node.value), _VALUE
    if isinstance(node, Root):
        return _root(node), _VALUE
    if isinstance(node, Path):
        return _written(node.base, _VALUE) + "".join(map(accessor, node.keys)), _VALUE
    if isinstance(node, Items):
        return f"[{_listed(node.items)}]", _VALUE
    if isinstance(node, Call):
        return f"{node.function}({_listed(node.arguments)})", _VALUE
    if isinstance(node, Comparison):
        return f"{_written(node.left, _VALUE)} {node.sign} {_written(node.right, _VALUE)}", _COMPARISON
    if isinstance(node, Not):
        return f"not {_written(node.operand, _NOT)}", _NOT
    if isinstance(node, Chain):
        strength = _AND if node.word == "and" else _OR
        return f" {node.word} ".join(_written(operand, strength + 1) for operand in node.operands), strength
    value, condition = _written(node.value, _OR), _written(node.condition, _OR)
    return f"{value} if {condition} else {_written(node.otherwise, _CHOICE)}", _CHOICE


def accessor(key: Key) -> str:
    """`.name`, `['other name']`, `[0]`."""
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if _IDENT.fullmatch(key) else f"[{_literal(key)}]"


def _root(node: Root) -> str:
    name = "" if node.name is None else accessor(node.name)
    return f"{node.root}{name}{f'.{node.part}' if node.part else ''}"


def _listed(nodes: tuple[Node, ...]) -> str:
    return ", ".join(_written(node, _CHOICE) for node in nodes)


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value.translate(_QUOTED)}'"
    if isinstance(value, float):
        digits = format(Decimal(repr(value)), "f")  # never with an exponent
        return digits if "." in digits else f"{digits}.0"
    return str(value)
