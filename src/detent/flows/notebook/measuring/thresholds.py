"""Thresholds of the user's: locked, so that no plan and no revision removes or loosens one."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from detent.flows.notebook.domain.problem import Comparison, Threshold
from detent.flows.notebook.measuring.criteria import CriterionRefused, parse_criterion

SCORES = ("cv_metrics", "test_performance")
"""Variables that hold scores."""

_COMPARISONS: dict[type[ast.cmpop], Comparison] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_TURNED: dict[Comparison, Comparison] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def is_looser(other: Threshold, locked: Threshold) -> bool:
    """Whether a limit on the same metric lets scores through that the locked one does not."""
    if other.metric != locked.metric:
        return False
    if other.comparison[0] != locked.comparison[0]:
        return True
    if other.value == locked.value:
        return len(other.comparison) > len(locked.comparison)
    below = locked.comparison[0] == "<"
    return other.value > locked.value if below else other.value < locked.value


def threshold_problems(
    locked: Iterable[Threshold],
    after: Collection[Threshold],
    before: Collection[Threshold] | None = None,
) -> tuple[str, ...]:
    """Which locked thresholds a text or plan loosens or removes, one sentence each.

    `after` are the thresholds read from it, `before` those of the text it takes the place of. Without
    `before` it must state every locked threshold.
    """
    problems = []
    for threshold in locked:
        same = [other for other in after if other.metric == threshold.metric]
        looser = [other for other in same if is_looser(other, threshold)]
        if looser and len(looser) == len(same):
            problems.append(f"The user's threshold {threshold} is loosened to {looser[0]}.")
        elif not same and (before is None or any(other.metric == threshold.metric for other in before)):
            problems.append(f"The user's threshold {threshold} is removed.")
    return tuple(problems)


def thresholds_in(criteria: Iterable[str]) -> tuple[Threshold, ...]:
    """The limits on scores in criteria such as `test_performance["rmse"] < 25000`, either way round."""
    found: list[Threshold] = []
    for text in criteria:
        try:
            criterion = parse_criterion(text)
        except CriterionRefused:
            continue
        for node in ast.walk(ast.parse(criterion.text, mode="eval")):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                found.extend(_threshold(node.left, node.ops[0], node.comparators[0], text))
    return tuple(found)


def _threshold(left: ast.expr, op: ast.cmpop, right: ast.expr, text: str) -> Iterable[Threshold]:
    comparison = _COMPARISONS.get(type(op))
    if comparison is None:
        return
    for score, bound, turned in ((left, right, comparison), (right, left, _TURNED[comparison])):
        match score, bound:
            case (
                ast.Subscript(value=ast.Name(id=holder), slice=ast.Constant(value=str() as metric)),
                ast.Constant(value=int() | float() as value),
            ) if holder in SCORES:
                yield Threshold(metric, turned, float(value), text)  # type: ignore[arg-type]  # a score's key
