"""One expression, read and checked, ready to be evaluated any number of times."""

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
    """All it may read, in the order in which it stands there."""
    tree: Node = field(repr=False)
    position: int = field(repr=False, compare=False)
    """Where it begins in the text it was read from."""
    run: Run = field(repr=False, compare=False)

    def evaluate(self, scope: Scope) -> Any:
        """Its value; `EvaluationError` where it has none."""
        try:
            return self.run(scope)
        except Absent as absent:
            raise absent.told(self.text) from None
        except EvaluationError as error:
            error.expression = error.expression or self.text
            raise
        except RecursionError:
            raise EvaluationError("A value is nested too deeply.", self.position, (), self.text) from None


def parse(text: str) -> Expression:
    """A bare expression, without `${{ }}`; `ExpressionError` if the text is none."""
    return parse_between(text, 0, len(text))


def parse_between(text: str, start: int, end: int) -> Expression:
    """The expression that stands in a part of a text; positions are offsets in the whole."""
    tree, references = parsed(text, start, end)
    inner = text[start:end]
    position = start + len(inner) - len(inner.lstrip())
    return Expression(inner.strip(), references, tree, position, compiled(tree))
