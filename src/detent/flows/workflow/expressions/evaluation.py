"""Compiles a tree into closures: built once, called with a scope for each value.

Every part is evaluated at most once; `and`, `or`, `if` and `default` evaluate only the parts they need.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from detent.flows.workflow.expressions.errors import EvaluationError
from detent.flows.workflow.expressions.functions import OF_ONE
from detent.flows.workflow.expressions.limits import MAX_NAMES
from detent.flows.workflow.expressions.scope import UNBOUND, Scope
from detent.flows.workflow.expressions.tree import (
    Call,
    Chain,
    Choice,
    Comparison,
    Constant,
    Items,
    Key,
    Node,
    Not,
    Path,
    Root,
    accessor,
    written,
)
from detent.flows.workflow.expressions.values import (
    ABSENT,
    contains,
    described,
    field_of,
    kind_of,
    names_in,
    ordered,
    same,
    true,
)
from detent.kernel.errors import nearest

Run = Callable[[Scope], Any]

_LONGEST_NAME = 60
_MOST_COMPARED = 500


class Absent(Exception):
    """A referenced value is missing. `default` catches it; otherwise `error` describes it, at some cost."""

    def __init__(self, node: Root | Path, at: int, inside: Any) -> None:
        super().__init__()
        self.node = node
        self.at = at
        """Number of the missing key in its path."""
        self.inside = inside
        """The value that lacks it."""

    def error(self, expression: str) -> EvaluationError:
        """The error with a message."""
        if isinstance(self.node, Root):
            message, names = _missing_root(self.node, self.inside)
            return EvaluationError(message, self.node.position, names, expression)
        message, names = _missing_key(self.node, self.at, self.inside)
        return EvaluationError(message, self.node.positions[self.at], names, expression)


def compiled(node: Node) -> Run:
    """Return the closure that computes a tree's value in a scope."""
    if isinstance(node, Path):
        return _path(node)
    if isinstance(node, Root):
        return _root(node)
    if isinstance(node, Constant):
        value = node.value
        return lambda scope: value
    if isinstance(node, Items):
        items = [compiled(item) for item in node.items]
        return lambda scope: [item(scope) for item in items]
    if isinstance(node, Comparison):
        return _comparison(node)
    if isinstance(node, Chain):
        return _chain(node)
    if isinstance(node, Not):
        operand = compiled(node.operand)
        return lambda scope: not true(operand(scope))
    if isinstance(node, Choice):
        value_of, condition, otherwise = map(compiled, (node.value, node.condition, node.otherwise))
        return lambda scope: value_of(scope) if true(condition(scope)) else otherwise(scope)
    return _call(node)


def _root(node: Root) -> Run:
    if node.root == "inputs":
        return _input(node, node.name)
    if node.root == "steps":
        return _step(node, node.name, node.part)

    def item(scope: Scope) -> Any:
        value = scope.item
        if value is UNBOUND:
            raise Absent(node, 0, None)
        return value

    def index(scope: Scope) -> Any:
        value = scope.index
        if value is UNBOUND:
            raise Absent(node, 0, None)
        return value

    return item if node.root == "item" else index


def _input(node: Root, name: Any) -> Run:
    def run(scope: Scope) -> Any:
        try:
            return scope.inputs[name]
        except KeyError:
            raise Absent(node, 0, scope.inputs) from None

    return run


def _step(node: Root, name: Any, part: Any) -> Run:
    def run(scope: Scope) -> Any:
        try:
            return scope.steps[name][part]
        except KeyError:
            raise Absent(node, 0, scope.steps) from None

    return run


def _path(node: Path) -> Run:
    base = compiled(node.base)
    keys = tuple(enumerate(node.keys))

    def run(scope: Scope) -> Any:
        value = base(scope)
        for at, key in keys:
            if type(value) is dict and type(key) is str:
                inner = value.get(key, ABSENT)
            else:
                inner = _read(node, at, value, key)
            if inner is ABSENT:
                raise Absent(node, at, value)
            value = inner
        return value

    return run


def _read(node: Path, at: int, value: Any, key: Key) -> Any:
    """The value at a key, or `ABSENT`; an error if values of this kind have no such keys."""
    kind = kind_of(value)
    if kind == "null":
        return ABSENT
    if isinstance(key, str):
        if kind == "mapping":
            return value.get(key, ABSENT)
        if kind == "record":
            return field_of(value, key)
    elif kind == "list":
        return value[key] if -len(value) <= key < len(value) else ABSENT
    hints = {"list": " Read its items as [0].", "mapping": " Read it by name.", "record": " Read it by name."}
    hint = hints.get(kind, "")
    raise EvaluationError(
        f"{_path_before(node, at)} is {described(value)}, of which {accessor(key)} cannot be read.{hint}",
        node.positions[at],
    )


def _comparison(node: Comparison) -> Run:
    left, right, sign, position = compiled(node.left), compiled(node.right), node.sign, node.position
    if sign == "==":
        return lambda scope: same(left(scope), right(scope))
    if sign == "!=":
        return lambda scope: not same(left(scope), right(scope))

    # The left operand first, as written.
    def inside(scope: Scope) -> bool:
        item = left(scope)
        return contains(right(scope), item, position)

    if sign == "in":
        return inside
    if sign == "not in":
        return lambda scope: not inside(scope)
    return lambda scope: ordered(sign, left(scope), right(scope), position)


def _chain(node: Chain) -> Run:
    operands = tuple(map(compiled, node.operands))
    first, last, ends_on = operands[:-1], operands[-1], node.word == "or"

    def run(scope: Scope) -> Any:
        for operand in first:
            value = operand(scope)
            if true(value) is ends_on:
                return value
        return last(scope)

    return run


def _call(node: Call) -> Run:
    first = compiled(node.arguments[0])
    if node.function != "default":
        function, position = OF_ONE[node.function], node.position
        return lambda scope: function(first(scope), position)
    second = compiled(node.arguments[1])

    def default(scope: Scope) -> Any:
        try:
            value = first(scope)
        except Absent:
            value = None
        return second(scope) if value is None else value

    return default


# --- messages about missing values ---------------------------------------------------------------------


def _missing_root(node: Root, inside: Any) -> tuple[str, tuple[str, ...]]:
    if node.name is None:
        return f"'{node.root}' has a value only inside a loop.", ()
    names = tuple(sorted(str(name) for name in inside))
    if node.root == "inputs":
        return f"There is no input '{node.name}'.{_near(node.name, names)} {_listed('Inputs', names)}", names
    return (
        f"There is no '{node.part}' of a step '{node.name}' to be read here.{_near(node.name, names)} "
        f"{_listed('Steps so far', names)}"
    ), names


def _missing_key(node: Path, at: int, inside: Any) -> tuple[str, tuple[str, ...]]:
    key, where, kind = node.keys[at], _path_before(node, at), kind_of(inside)
    if kind == "null":
        why = (
            " (a skipped step has no output)"
            if isinstance(node.base, Root) and node.base.root == "steps"
            else ""
        )
        return f"{where} is null{why}, so there is no {accessor(key)}. If it may be, write default(…, …).", ()
    if kind == "list":
        count = len(inside)
        items = f"{count} item{'s' if count != 1 else ''}"
        valid = f": [0] to [{count - 1}], or from its end [-1] to [-{count}]" if count else ""
        return f"{where} has {items}{valid}. There is no [{key}].", ()
    names = names_in(inside)
    return f"{where} has no '{key}'.{_near(str(key), names)} {_listed('It has', names)}", names


def _path_before(node: Path, at: int) -> str:
    """The part of a path before a key, as an expression."""
    text = written(Path(node.base, node.keys[:at]) if at else node.base)
    return f"'{text}'" if len(text) <= _LONGEST_NAME else f"'…{text[-_LONGEST_NAME:]}'"


def _near(name: str, names: tuple[str, ...]) -> str:
    return nearest(name, islice((known for known in names if len(known) <= _LONGEST_NAME), _MOST_COMPARED))


def _listed(label: str, names: tuple[str, ...]) -> str:
    shown = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names[:MAX_NAMES]]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{label}: {', '.join(shown) or 'none'}{more}."
