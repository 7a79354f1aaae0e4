"""From what a step gave, whoever performed it, to the outcome that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.engine.step import Step, StepFailed, refused


async def concluded(step: Step, ctx: StepContext, value: Any) -> Outcome:
    """The outcome of an output, whoever gave it; an output that says it did not succeed fails the step."""
    if isinstance(value, Outcome):
        return value
    if (why := refused(value)) is not None:
        raise StepFailed(why)
    if step.conclude is not None:
        return Outcome.of(await call(step.conclude, None, ctx, value))
    if step.into is not None:
        outcome = Outcome.of(value) if isinstance(value, Mapping) or value is None else Outcome()
        return outcome if outcome.hold is not None else Outcome(set={step.into: value})
    return Outcome.of(value)
