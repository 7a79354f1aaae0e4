"""References to values kept outside the journal, and the values that actions get in their place.

Rows of a table go from step to step as references. An action gets the rows themselves, as mappings of column
to value, unless its parameter is annotated `Reference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from detent.engine.context import StepContext
from detent.engine.step_failures import StepFailed
from detent.kernel.plain import decode


class Reference(dict[str, Any]):
    """In an annotation: the action takes the reference, `{"$blob": …, "size": …}`, and reads it itself."""


def is_reference(value: Any) -> bool:
    """Whether a value is a reference to one kept outside the journal."""
    return isinstance(value, Mapping) and value.keys() == {"$blob", "size"}


async def with_values(
    ctx: StepContext, parameters: Mapping[str, Parameter], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments with the values that references stand for, where a parameter does not take references."""
    return {
        name: await value_of(ctx, value)
        if is_reference(value) and not _takes(parameters.get(name))
        else value
        for name, value in kwargs.items()
    }


def _takes(parameter: Parameter | None) -> bool:
    return parameter is not None and parameter.annotation in (Reference, Reference.__name__)


async def value_of(ctx: StepContext, reference: Mapping[str, Any]) -> Any:
    """The value of a reference: the rows of a table or of a batch, as mappings, or the value as it is.

    Raises:
        StepFailed: the value was purged.
    """
    raw = await ctx.kept(reference)
    if raw is None:
        raise StepFailed("The value is no longer kept; run the step that made it again.")
    try:
        value = decode(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")  # a text
    if isinstance(value, Mapping) and value.keys() == {"columns", "rows", "lines"}:
        return [dict(zip(value["columns"], row, strict=True)) for row in value["rows"]]
    if isinstance(value, Mapping) and value.keys() == {"columns", "size", "batches", "bad"}:
        return [row for batch in value["batches"] for row in await value_of(ctx, batch)]
    return value
