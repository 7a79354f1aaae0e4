"""Expressions of workflow files: `${{ … }}` in values, or bare in `when`, `until`, `for_each`, `stages`.

The language is small and closed: it reads inputs, finished steps and the current item, compares, chooses and
knows five functions. Text is read once (`parse`, `Template.parse`, `prepared`, `condition`) into a checked
tree of closures. Nothing reaches Python's own evaluation; only mapping keys, dataclass fields and list items
can be read.
"""

from detent.flows.workflow.expressions.errors import EvaluationError, ExpressionError
from detent.flows.workflow.expressions.expression import Expression, parse
from detent.flows.workflow.expressions.limits import MAX_CHARACTERS, MAX_DEPTH
from detent.flows.workflow.expressions.prepared import Prepared, condition, prepared
from detent.flows.workflow.expressions.scope import UNBOUND, Scope
from detent.flows.workflow.expressions.templates import Template
from detent.flows.workflow.expressions.tree import Reference

__all__ = [
    "MAX_CHARACTERS", "MAX_DEPTH", "UNBOUND", "EvaluationError", "Expression", "ExpressionError", "Prepared",
    "Reference", "Scope", "Template", "condition", "parse", "prepared",
]  # fmt: skip
