"""Names in Python source: which ones an expression or a cell needs, and which ones a cell assigns."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator
from functools import lru_cache

_MAGIC = re.compile(r"^(\s*)(?:[%!?]|.*[^\s?]\?+\s*$)")
_ASSIGNED_MAGIC = re.compile(r"^(\s*[A-Za-z_][\w, ]*=\s*)[%!]")


def parse_cell(source: str) -> ast.Module:
    """The syntax tree of a cell; lines of magic and shell commands count as doing nothing.

    Raises:
        SyntaxError: the rest is not Python.
    """
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.parse(without_magics(source))


def without_magics(source: str) -> str:
    """The Python of a cell: lines of magic and shell commands are replaced by lines that do nothing."""
    if source.lstrip().startswith("%%"):
        return ""
    lines = []
    for line in source.split("\n"):
        assigned = _ASSIGNED_MAGIC.match(line)
        magic = _MAGIC.match(line)
        if assigned is not None:
            line = f"{assigned[1]}None"
        elif magic is not None:
            line = f"{magic[1]}pass"
        lines.append(line)
    return "\n".join(lines)


def free_names(expression: str) -> frozenset[str]:
    """The names that an expression takes from outside itself, builtins included.

    Raises:
        SyntaxError: it is not an expression.
    """

    def names(table: symtable.SymbolTable) -> Iterator[str]:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
                yield symbol.get_name()
        for child in table.get_children():
            yield from names(child)

    return frozenset(names(symtable.symtable(expression, "<expression>", "eval")))


@lru_cache(maxsize=4096)
def assigned_names(source: str) -> frozenset[str]:
    """The names that a cell binds at its top level, wherever in it; empty if it is not Python.

    Changing a part of a value, as `frame["x"] = 1` does, binds nothing. A name that the cell's last mention
    deletes is not bound.
    """
    try:
        tree = parse_cell(source)
    except SyntaxError:
        return frozenset()
    collector = _Bindings()
    for statement in tree.body:
        collector.visit(statement)
    return frozenset(collector.bound)


class _Bindings(ast.NodeVisitor):
    """Collects what is bound in the scope of a module."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self._globals: set[str] = set()
        self._nested = 0

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        elif isinstance(node.ctx, ast.Del) and not self._nested:
            self.bound.discard(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)  # the value comes first, as in the program
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name != "*":
                self._bind(alias.asname or alias.name.split(".")[0])

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name)
        self._in_scope(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        self._in_scope(node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._in_scope([node.body])

    def visit_Global(self, node: ast.Global) -> None:
        self._globals.update(node.names)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        # The target is the comprehension's own; a walrus in it binds outside.
        self.visit(node.iter)
        for condition in node.ifs:
            self.visit(condition)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target.id)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        # The name of the exception is gone at the end of its block.
        for statement in node.body:
            self.visit(statement)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name is not None:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name is not None:
            self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest is not None:
            self._bind(node.rest)
        self.generic_visit(node)

    def _bind(self, name: str) -> None:
        if not self._nested or name in self._globals:
            self.bound.add(name)

    def _in_scope(self, body: list[ast.stmt] | list[ast.expr]) -> None:
        outer, self._globals = self._globals, set()
        self._nested += 1
        for node in body:
            self.visit(node)
        self._nested -= 1
        self._globals = outer
