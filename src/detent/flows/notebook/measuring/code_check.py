"""Everything that is wrong with the code and text of a generator's round before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from detent.flows.notebook.measuring.code_policy import STRICT_IMPORTS, CodePolicy, check_policy
from detent.flows.notebook.measuring.code_problem import CodeProblem
from detent.flows.notebook.measuring.expressions import parse_cell
from detent.flows.notebook.measuring.random_calls import unseeded_calls
from detent.flows.notebook.measuring.undefined_names import undefined_names

HOLDOUT = frozenset({"X_test", "y_test"})
"""Names that no cell may use between the split and the hold-out's own step."""


def check_cells(
    sources: Sequence[str],
    *,
    known: Collection[str],
    imports: Sequence[str] = (),
    policy: CodePolicy = "guarded",
    allowed_imports: Collection[str] = STRICT_IMPORTS,
    holdout_is_closed: bool = False,
) -> tuple[CodeProblem, ...]:
    """What is wrong with the code cells of a round, in the order of the cells.

    `known` are the names that earlier cells, imports and bound inputs define; `imports` are the sources of
    earlier cells, whose imports tell what a name stands for.
    """
    problems = [
        problem
        for cell, source in enumerate(sources)
        for problem in check_policy(source, policy, cell=cell, allowed_imports=allowed_imports)
    ]
    problems.extend(undefined_names(sources, known))
    earlier = len(imports)
    problems.extend(
        problem._replace(cell=problem.cell - earlier)
        for problem in unseeded_calls([*imports, *sources])
        if problem.cell >= earlier
    )
    if holdout_is_closed:
        problems.extend(
            problem for cell, source in enumerate(sources) for problem in holdout_uses(source, cell)
        )
    return tuple(sorted(problems, key=lambda problem: (problem.cell, problem.line)))


def holdout_uses(source: str, cell: int = 0, names: Collection[str] = HOLDOUT) -> Iterator[CodeProblem]:
    """Where a cell names the hold-out, also as the text of a look-up such as `globals()["y_test"]`."""
    try:
        tree = parse_cell(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Constant(value=str() as name) if name in names:
                yield CodeProblem(
                    "holdout",
                    cell,
                    node.lineno,
                    name,
                    f"'{name}' is the hold-out, and its step is still to come",
                )
