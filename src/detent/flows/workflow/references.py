"""References to values kept outside the journal, and the values that actions get in their place.

Rows of a table go from step to step as references. An action gets the rows themselves, as mappings of column
to value, unless its parameter is annotated `Reference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from detent.engine.context import StepContext
from detent.flows.workflow.registry import Action
from detent.kernel.plain import decode

BATCH = {"columns", "rows", "lines"}
TABLE = {"columns", "size", "batches", "bad"}
"""Keys of the values that the actions on tables keep."""


class Reference(dict[str, Any]):
    """In an annotation: the action takes the reference, `{"$blob": …, "size": …}`, and reads it itself."""


def is_reference(value: Any) -> bool:
    """Whether a value is a reference to one kept outside the journal."""
    return isinstance(value, Mapping) and value.keys() == {"$blob", "size"}


async def with_values(ctx: StepContext, action: Action, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with rows in the place of references to them, where a parameter does not take references.

    A value from outside that only looks like a reference stays what it is.
    """
    references = {name: value for name, value in kwargs.items() if is_reference(value)}
    if not references:
        return dict(kwargs)
    parameters = action.parameters
    rows = {
        name: await _rows(ctx, value)
        for name, value in references.items()
        if not _takes(parameters.get(name))
    }
    return {**kwargs, **rows}


def _takes(parameter: Parameter | None) -> bool:
    return parameter is not None and parameter.annotation in (Reference, Reference.__name__)


async def _rows(ctx: StepContext, reference: Mapping[str, Any]) -> Any:
    """The rows of a table or of a batch, as mappings; the reference where it leads to neither."""
    raw = await ctx.kept(reference)
    try:
        value = decode(raw) if raw is not None else None
    except ValueError:
        return reference
    if isinstance(value, Mapping) and value.keys() == BATCH:
        return [dict(zip(value["columns"], row, strict=True)) for row in value["rows"]]
    if isinstance(value, Mapping) and value.keys() == TABLE:
        return [row for batch in value["batches"] for row in await _rows(ctx, batch)]
    return reference
