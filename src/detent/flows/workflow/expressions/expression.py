"""One parsed and checked expression, which can be evaluated any number of times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from detent.flows.workflow.expressions.errors import EvaluationError
from detent.flows.workflow.expressions.evaluation import Absent, Run, compiled
from detent.flows.workflow.expressions.parser import parsed
from detent.flows.workflow.expressions.scope import Scope
from detent.flows.workflow.expressions.tree import Node, Reference


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression."""

    text: str
    """As written, without the white space around it."""
    references: tuple[Reference, ...] = field(compare=False)
    """Everything it may read, in the order of the text."""
    tree: Node = field(repr=False)
    position: int = field(repr=False, compare=False)
    """Its offset in the text around it."""
    run: Run = field(repr=False, compare=False)

    def evaluate(self, scope: Scope) -> Any:
        """Return its value.

        Raises:
            EvaluationError: it has none in this scope.
        """
        try:
            return self.run(scope)
        except Absent as absent:
            raise absent.error(self.text) from None
        except EvaluationError as error:
            error.expression = error.expression or self.text
            raise
        except RecursionError:
            raise EvaluationError("A value is nested too deeply.", self.position, (), self.text) from None


def parse(text: str) -> Expression:
    """Parse a bare expression, without `${{ }}`.

    Raises:
        ExpressionError: the text is no expression.
    """
    return parse_between(text, 0, len(text))


def parse_between(text: str, start: int, end: int) -> Expression:
    """Parse the expression in a part of a text; positions are offsets in the whole text."""
    tree, references = parsed(text, start, end)
    inner = text[start:end]
    position = start + len(inner) - len(inner.lstrip())
    return Expression(inner.strip(), references, tree, position, compiled(tree))
