"""Branch steps: the first option whose condition holds is performed in the branch's own state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.expressions import condition
from detent.flows.workflow.run_data import finished, key_of, scope_of
from detent.flows.workflow.spec import BranchStep, StepSpec
from detent.flows.workflow.steps.common import control, gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEPT = "branch/"
"""Prefix of the key under which a visit records the option that a branch chose."""


def chosen(spec: StepSpec | None, records: Mapping[str, Any]) -> str | None:
    """Return the step that a branch chose, from the recorded choice; None for other steps."""
    name: str | None = None
    while isinstance(spec, BranchStep) and (index := records.get(f"{KEPT}{spec.name}")) is not None:
        spec = spec.options[index].step
        name = spec.name
    return name


def branch_step(
    position: Position, home: CompileContext, make: Callable[[Position, CompileContext], Step]
) -> Step:
    """Return the flow's step for a branch; `make` makes the steps of its options."""
    spec = position.spec
    assert isinstance(spec, BranchStep)
    conditions = [None if option.when is None else condition(option.when) for option in spec.options]
    options = tuple(make(position.below(option.step), home) for option in spec.options)
    passed_over = gate(position)

    def choose(ctx: StepContext) -> int | None:
        scope = scope_of(ctx.values)
        for index, when in enumerate(conditions):
            if when is None or when.resolve(scope):
                return index
        return None

    async def before(ctx: StepContext) -> Any:
        if passed_over is not None and (outcome := passed_over(ctx)) is not None:
            return outcome
        # Recorded, so that the same option is used after a crash.
        index = await ctx.once(f"{KEPT}{spec.name}", lambda: choose(ctx))
        if index is None:
            return Outcome(
                set={key_of(position.owner): finished(None, position.ran)}, reason="no option holds"
            )
        return options[index]

    async def handler(ctx: StepContext) -> Any:
        raise AssertionError("one of its options is performed in its place")

    return control(position, home, handler, before=before, conclude=None, instead=options)
