"""Texts with `${{ expression }}` in them.

A text that is one expression from its first to its last character keeps the type of the value. White space
around it is text like any other, so `" ${{ inputs.n }}"` gives text. `$${{` writes a literal `${{`; to put a
dollar sign before a value, write `${{ '$' }}${{ inputs.price }}`.
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
    """A text, its expressions read and checked."""

    text: str
    """As written."""
    pieces: tuple[str | Expression, ...]
    """Literal texts and expressions in order; no literal is empty, no two stand side by side."""

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read a text; `ExpressionError` with the offset in it if one of its expressions is wrong."""
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
        """It holds no expression."""
        return not any(isinstance(piece, Expression) for piece in self.pieces)

    @property
    def lone(self) -> Expression | None:
        """The expression it is, if it is exactly one and nothing else."""
        only = self.pieces[0] if len(self.pieces) == 1 else None
        return only if isinstance(only, Expression) else None

    @property
    def references(self) -> tuple[Reference, ...]:
        """All it may read, in order."""
        return tuple(
            one for piece in self.pieces if isinstance(piece, Expression) for one in piece.references
        )

    def evaluate(self, scope: Scope) -> Any:
        """The value of a lone expression, else the text with all values put in, once."""
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
    here = 0
    while (found := text.find(OPENING, here)) >= 0:
        if found > here and text[found - 1] == "$":
            yield text[here : found - 1] + OPENING
            here = found + len(OPENING)
            continue
        yield text[here:found]
        expression, here = expression_at(text, found)
        yield expression
    yield text[here:]


def expression_at(text: str, found: int) -> tuple[Expression, int]:
    """The expression whose `${{` stands at an offset, and the offset after its `}}`."""
    start = found + len(OPENING)
    end = closing(text, start)
    if end is None:
        raise ExpressionError("'${{' is not closed: '}}' is missing. A literal '${{' is '$${{'.", found, text)
    return parse_between(text, start, end), end + len(CLOSING)
