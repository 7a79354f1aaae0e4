"""Statements of earlier recipes that a cell counts on, for notebooks whose earlier cells another author wrote."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from detent.flows.notebook.recipes.code_text import cell
from detent.flows.notebook.recipes.recipe import Recipe

_BUILTINS = frozenset(dir(builtins))
_GIVEN_INSTEAD = {"features": "features = list(X_train.columns)"}
"""Names that follow from what another author's split has left, where that is there."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A top-level statement of a recipe's code."""

    source: str
    binds: frozenset[str]
    changes: frozenset[str]
    """Names whose value it fills, as `found[key] = value` does."""
    uses: frozenset[str]


def with_preparation(recipe: Recipe, earlier: Sequence[str], defined: Collection[str]) -> Recipe:
    """Put before a recipe's code the statements of `earlier` codes that make what the notebook lacks.

    What the notebook has is not made again: another author's split and model stay as they are.
    """
    there = {*defined, *_BUILTINS}
    needed = set(missing_names(recipe, defined))
    if not needed:
        return recipe
    given = [*_given(there)]
    derived = {name for statement in given for name in statement.binds}
    statements = [
        *given,
        *(
            statement
            for code in earlier
            for statement in statements_of(code)
            if not statement.binds & derived
        ),
    ]
    chosen: set[int] = set()
    while added := {
        number for number, statement in enumerate(statements)
        if number not in chosen and needed & (statement.binds | statement.changes)
        and not statement.binds & there
    }:  # fmt: skip
        chosen |= added
        needed |= {name for number in added for name in statements[number].uses} - there
    sources = [statements[number].source for number in sorted(chosen)]
    return replace(recipe, code=cell("\n".join(sources), recipe.code)) if sources else recipe


def missing_names(recipe: Recipe, defined: Collection[str]) -> frozenset[str]:
    """Names that a recipe takes from the notebook and that the notebook lacks."""
    used = _uses(recipe.code) | (_uses(f"_ = {recipe.result.strip()}") if recipe.result else frozenset())
    own = _bound(recipe.code)
    return used - own - {*defined} - _BUILTINS


@lru_cache(maxsize=256)
def statements_of(code: str) -> tuple[Statement, ...]:
    """The top-level statements of code that bind or change something."""
    found = []
    for node in _single_imports(ast.parse(code).body):
        source = ast.get_source_segment(code, node) if hasattr(node, "lineno") else ast.unparse(node)
        source = source or ""
        # What a loop binds is its variables; what it is for is what it fills.
        binds = frozenset[str]() if isinstance(node, ast.For) else _bound(source)
        changes = frozenset(_changed(node)) if not isinstance(node, ast.FunctionDef) else frozenset()
        if binds or changes:
            found.append(Statement(source, binds, changes - binds, _uses(source) - binds))
    return tuple(found)


def _single_imports(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, an import of several names as one of each: another author may have imported some."""
    for node in body:
        match node:
            case ast.ImportFrom(module=module, names=aliases, level=level):
                yield from (ast.ImportFrom(module, [alias], level) for alias in aliases)
            case ast.Import(names=aliases):
                yield from (ast.Import([alias]) for alias in aliases)
            case _:
                yield node


def _given(there: Collection[str]) -> Iterator[Statement]:
    for name, source in _GIVEN_INSTEAD.items():
        if _uses(source) <= {*there}:
            yield Statement(source, frozenset({name}), frozenset(), _uses(source))


def _uses(code: str) -> frozenset[str]:
    """Names that code reads from outside itself, functions within it included."""

    def names(table: symtable.SymbolTable) -> Iterator[str]:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from names(child)

    return frozenset(names(symtable.symtable(code, "<recipe>", "exec"))) - _BUILTINS


def _bound(code: str) -> frozenset[str]:
    """Names that code binds in the notebook."""
    symbols = symtable.symtable(code, "<recipe>", "exec").get_symbols()
    return frozenset(
        symbol.get_name() for symbol in symbols
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    )  # fmt: skip


def _changed(node: ast.stmt) -> Iterator[str]:
    """Names whose value a statement fills or extends."""
    for part in ast.walk(node):
        match part:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "update")):
                yield name
