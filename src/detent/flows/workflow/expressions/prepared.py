"""Values of a workflow file with expressions inside, parsed once and resolved for each step.

Texts in nested mappings and lists are templates; keys are not. The value of an expression is data: it is not
resolved again, and not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from detent.flows.workflow.expressions.errors import EvaluationError, ExpressionError
from detent.flows.workflow.expressions.expression import Expression, parse
from detent.flows.workflow.expressions.limits import MAX_VALUE_DEPTH
from detent.flows.workflow.expressions.scope import Scope
from detent.flows.workflow.expressions.templates import OPENING, Template, expression_at
from detent.flows.workflow.expressions.tree import Reference

Make = Callable[[Scope], Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A value whose expressions are parsed and checked."""

    value: Any
    """As written."""
    references: tuple[Reference, ...]
    """Everything it may read; positions are offsets in the text of each reference."""
    constant: bool
    """Whether it holds no expression and resolves to the same value in every scope."""
    make: Make = field(repr=False, compare=False)

    def resolve(self, scope: Scope) -> Any:
        """Return the value in a scope, in new lists and mappings.

        Raises:
            EvaluationError: an expression has no value; the error holds its path.
        """
        return self.make(scope)


def prepared(value: Any) -> Prepared:
    """Parse every text in a nested value as a template.

    Raises:
        ExpressionError: a template is wrong; the error holds its path.
    """
    references: list[Reference] = []
    make, constant = _maker(value, references, 0)
    return Prepared(value, tuple(references), constant, make)


def condition(value: Any) -> Prepared:
    """Parse the value of a key that takes an expression: a text, with or without `${{ }}`.

    White space around it is ignored. Other values are literal; texts in a list or a mapping are templates.
    """
    if not isinstance(value, str):
        return prepared(value)
    expression = _whole(value)
    return Prepared(value, expression.references, False, expression.evaluate)


def _whole(text: str) -> Expression:
    lead = len(text) - len(text.lstrip())
    if not text.startswith(OPENING, lead):
        return parse(text)
    expression, after = expression_at(text, lead)
    if text[after:].strip():
        raise ExpressionError(
            "Here stands one expression: put all of it into one pair of '${{' and '}}', or leave them out.",
            lead,
            text,
        )
    return expression


def _maker(value: Any, references: list[Reference], depth: int) -> tuple[Make, bool]:
    if isinstance(value, str):
        template = Template.parse(value)
        references.extend(template.references)
        if template.is_plain:
            text = "".join(str(piece) for piece in template.pieces)
            return (lambda scope: text), True
        lone = template.lone
        return (template.evaluate if lone is None else lone.evaluate), False
    if isinstance(value, Mapping):
        return _mapping(value, references, depth + 1)
    if isinstance(value, list | tuple):
        return _list(value, references, depth + 1)
    return (lambda scope: value), True


def _mapping(value: Mapping[Any, Any], references: list[Reference], depth: int) -> tuple[Make, bool]:
    makers = [(key, *_inside(key, item, references, depth)) for key, item in value.items()]

    def make(scope: Scope) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, make_item, _ in makers:
            try:
                result[key] = make_item(scope)
            except EvaluationError as error:
                error.path = (key, *error.path)
                raise
        return result

    return make, all(constant for _, _, constant in makers)


def _list(value: Any, references: list[Reference], depth: int) -> tuple[Make, bool]:
    makers = [_inside(at, item, references, depth) for at, item in enumerate(value)]

    def make(scope: Scope) -> list[Any]:
        result: list[Any] = []
        for make_item, _ in makers:
            try:
                result.append(make_item(scope))
            except EvaluationError as error:
                error.path = (len(result), *error.path)
                raise
        return result

    return make, all(constant for _, constant in makers)


def _inside(key: Any, item: Any, references: list[Reference], depth: int) -> tuple[Make, bool]:
    try:
        if depth > MAX_VALUE_DEPTH:
            raise ExpressionError(f"Values are nested at most {MAX_VALUE_DEPTH} deep.", 0)
        return _maker(item, references, depth)
    except ExpressionError as error:
        error.path = (key if isinstance(key, int) else str(key), *error.path)
        raise
