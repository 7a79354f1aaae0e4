"""Texts with `${{ expression }}` in them.

A text that consists of one expression keeps the type of its value. White space around the expression counts
as text, so `" ${{ inputs.n }}"` gives a text. `$${{` writes a literal `${{`; to put a dollar sign before a
value, write `${{ '$' }}${{ inputs.price }}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from detent.flows.workflow.expressions.errors import EvaluationError, ExpressionError
from detent.flows.workflow.expressions.expression import Expression, parse_between
from detent.flows.workflow.expressions.scope import Scope
from detent.flows.workflow.expressions.tokens import closing
from detent.flows.workflow.expressions.tree import Reference
from detent.flows.workflow.expressions.values import as_text

OPENING, CLOSING = "${{", "}}"


@dataclass(frozen=True, slots=True)
class Template:
    """A text with its parsed and checked expressions."""

    text: str
    """As written."""
    pieces: tuple[str | Expression, ...]
    """Literal texts and expressions in order; no literal is empty, and no two are adjacent."""

    @classmethod
    def parse(cls, text: str) -> Template:
        """Parse a text.

        Raises:
            ExpressionError: one of its expressions is wrong; the error holds the offset.
        """
        if OPENING not in text:
            return cls(text, (text,) if text else ())
        pieces: list[str | Expression] = []
        for piece in _pieces(text):
            if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
                pieces[-1] += piece
            elif piece:
                pieces.append(piece)
        return cls(text, tuple(pieces))

    @property
    def is_plain(self) -> bool:
        """Whether it holds no expression."""
        return not any(isinstance(piece, Expression) for piece in self.pieces)

    @property
    def lone(self) -> Expression | None:
        """The expression, if the text consists of exactly one."""
        only = self.pieces[0] if len(self.pieces) == 1 else None
        return only if isinstance(only, Expression) else None

    @property
    def references(self) -> tuple[Reference, ...]:
        """Everything it may read, in order."""
        return tuple(
            reference
            for piece in self.pieces
            if isinstance(piece, Expression)
            for reference in piece.references
        )

    def evaluate(self, scope: Scope) -> Any:
        """Return the value of a lone expression, otherwise the text with all values inserted."""
        lone = self.lone
        if lone is not None:
            return lone.evaluate(scope)
        return "".join([piece if isinstance(piece, str) else _filled(piece, scope) for piece in self.pieces])


def _filled(expression: Expression, scope: Scope) -> str:
    value = expression.evaluate(scope)
    try:
        return as_text(value, expression.position)
    except EvaluationError as error:
        error.expression = expression.text
        raise


def _pieces(text: str) -> Iterator[str | Expression]:
    at = 0
    while (opening := text.find(OPENING, at)) >= 0:
        if opening > at and text[opening - 1] == "$":
            yield text[at : opening - 1] + OPENING
            at = opening + len(OPENING)
            continue
        yield text[at:opening]
        expression, at = expression_at(text, opening)
        yield expression
    yield text[at:]


def expression_at(text: str, at: int) -> tuple[Expression, int]:
    """Parse the expression whose `${{` is at an offset; return it and the offset after its `}}`."""
    start = at + len(OPENING)
    end = closing(text, start)
    if end is None:
        raise ExpressionError("'${{' is not closed: '}}' is missing. A literal '${{' is '$${{'.", at, text)
    return parse_between(text, start, end), end + len(CLOSING)
