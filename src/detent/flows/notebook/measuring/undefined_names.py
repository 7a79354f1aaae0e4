"""Names that a cell uses and nothing has defined: found by reading, before anything runs."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Sequence

from detent.flows.notebook.measuring.code_problem import CodeProblem
from detent.flows.notebook.measuring.expressions import parse_cell
from detent.kernel.errors import nearest

_ALWAYS = frozenset(dir(builtins)) | {"display", "get_ipython", "In", "Out", "_", "__", "___"}


def undefined_names(sources: Sequence[str], known: Collection[str]) -> tuple[CodeProblem, ...]:
    """Names that cells use before they are defined, by themselves, an earlier cell or `known`.

    A cell that is not Python defines and uses nothing here. What a branch defines counts as defined: whether
    it is taken is not known.
    """
    reader = _Reader(known)
    for cell, source in enumerate(sources):
        try:
            tree = parse_cell(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        reader.read(tree, cell)
    return reader.problems()


class _Reader(ast.NodeVisitor):
    """Reads cells in order. Bodies of functions are looked at last: they run when all is defined."""

    def __init__(self, known: Collection[str]) -> None:
        self._defined = {*known, *_ALWAYS}
        self._scopes: list[set[str]] = []
        """Names of the scopes inside the module that are open, innermost last."""
        self._deferred: list[tuple[list[ast.AST], list[set[str]], int]] = []
        self._missing: list[tuple[int, int, str]] = []
        self._everything = False
        """A star import may have defined any name."""
        self._cell = 0
        self._depth = 0
        """Blocks around the statement, in which a deletion may not happen."""

    def read(self, tree: ast.Module, cell: int) -> None:
        self._cell = cell
        for statement in tree.body:
            self.visit(statement)

    def problems(self) -> tuple[CodeProblem, ...]:
        while self._deferred:
            body, self._scopes, self._cell = self._deferred.pop(0)
            for node in body:
                self.visit(node)
        self._scopes = []
        found = dict.fromkeys(sorted(self._missing))
        return tuple(
            CodeProblem(
                "undefined_name", cell, line, name, f"'{name}' is not defined.{nearest(name, self._defined)}"
            )
            for cell, line, name in found
        )

    # -- names ----------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(node.id, node.lineno)
        elif isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        elif not self._scopes and not self._depth:
            self._use(node.id, node.lineno)
            self._defined.discard(node.id)

    def _use(self, name: str, line: int) -> None:
        if self._everything or name in self._defined or any(name in scope for scope in self._scopes):
            return
        self._missing.append((self._cell, line, name))

    def _bind(self, name: str) -> None:
        (self._scopes[-1] if self._scopes else self._defined).add(name)

    # -- statements in the order in which they run ----------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._use(node.target.id, node.target.lineno)
        self.visit(node.value)
        self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target.id)
        self._defined.add(node.target.id)  # one in a comprehension binds outside of it

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        self._block([*node.body, *node.orelse])

    visit_AsyncFor = visit_For

    def visit_If(self, node: ast.If | ast.While) -> None:
        self.visit(node.test)
        self._block([*node.body, *node.orelse])

    visit_While = visit_If

    def visit_Try(self, node: ast.Try) -> None:
        self._block([*node.body, *node.handlers, *node.orelse, *node.finalbody])

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self._block([*node.body, *node.handlers, *node.orelse, *node.finalbody])

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name is not None:
            self._bind(node.name)
        self._block(node.body)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.generic_visit(node)
        if node.name is not None:
            self._bind(node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name is not None:
            self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest is not None:
            self._bind(node.rest)

    def _block(self, body: Iterable[ast.AST]) -> None:
        self._depth += 1
        for statement in body:
            self.visit(statement)
        self._depth -= 1

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.split(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self._everything = True
            else:
                self._bind(alias.asname or alias.name)

    # -- scopes ---------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._signature(node.args)
        if node.returns is not None:
            self.visit(node.returns)
        self._bind(node.name)
        self._defer(node.args, list(node.body))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._signature(node.args)
        self._defer(node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for outside in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(outside)
        self._scopes = [*self._scopes, set()]
        for statement in node.body:
            self.visit(statement)
        self._scopes = self._scopes[:-1]
        self._bind(node.name)

    def _signature(self, arguments: ast.arguments) -> None:
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self.visit(default)
        for argument in _all_arguments(arguments):
            if argument.annotation is not None:
                self.visit(argument.annotation)

    def _defer(self, arguments: ast.arguments, body: list[ast.AST]) -> None:
        local = {argument.arg for argument in _all_arguments(arguments)}
        for node in body:
            local |= _bound_in_function(node)
            for inner in ast.walk(node):
                if isinstance(inner, ast.Global):  # when it is called is not known
                    self._defined.update(inner.names)
        # What a function's own body binds may be used in it in any order, as far as can be seen from here.
        self._deferred.append((body, [*self._scopes, local], self._cell))

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
        self._comprehension(node.generators, [node.elt])

    visit_SetComp = visit_ListComp
    visit_GeneratorExp = visit_ListComp

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node.generators, [node.key, node.value])

    def _comprehension(self, generators: list[ast.comprehension], results: list[ast.expr]) -> None:
        first, *others = generators
        self.visit(first.iter)
        self._scopes = [*self._scopes, set()]
        self.visit(first.target)
        for condition in first.ifs:
            self.visit(condition)
        for generator in others:
            self.visit(generator.iter)
            self.visit(generator.target)
            for condition in generator.ifs:
                self.visit(condition)
        for result in results:
            self.visit(result)
        self._scopes = self._scopes[:-1]


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*listed, *(argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None)]


def _bound_in_function(body: ast.AST) -> set[str]:
    """All names that a function's body binds, those of functions inside it too."""
    bound: set[str] = set()
    for node in ast.walk(body):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound.update(alias.asname or alias.name.split(".")[0] for alias in aliases)
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                bound.add(name)
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                bound.add(name)
    return bound
