"""Further steps of a visit: an outcome names one (`Outcome.then`), and its outcome completes the first.

Each is performed in its own name, by code or an agent as its own settings say, on what the steps before it
have decided to set. None of them acts. They are journaled with the one move they lead to.
"""

from __future__ import annotations

from typing import Any

from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.flow import Flow
from detent.engine.outcome import Outcome, additions
from detent.engine.step import Step
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import copied, to_plain
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run

MOST_FURTHER = 10
"""Further steps of one visit."""


class FurtherContext(StepContext):
    """The context of a further step: it sees what those before it have decided to set, and may not act."""

    def __init__(
        self, home: StepContext, step: Step, base: Outcome, scope: str, run: Run, retry: RetryPolicy | None
    ) -> None:
        super().__init__(home._driver, step, home.attempt, run, retry)
        self.scope, self.base = scope, base
        self._settled = home._settled

    def then(self, run: Run) -> StepContext:
        """The same step on an earlier state of the run."""
        assert self.base is not None
        ctx = FurtherContext(self, self.step, self.base, self.scope, run, self._retry)
        ctx._memo = self._memo
        return ctx

    async def acts(self, by: str | None = None) -> list[Act]:
        """None: what was performed in the visit is the first step's."""
        return []

    async def perform(self, tool: str, /, **args: Any) -> Any:
        """Refused."""
        raise ConfigurationError(_may_not_act(self.step))


def further_step(flow: Flow, outcome: Outcome, before: int) -> Step:
    """The step that an outcome names as the next one of its visit, after `before` others.

    Raises:
        ConfigurationError: the flow has no such step, or it cannot be performed here.
    """
    names = {step.name: step for step in flow.every_step()}
    step = names.get(outcome.then or "")
    if step is None:
        raise ConfigurationError(f"There is no step '{outcome.then}'.{nearest(str(outcome.then), names)}")
    if outcome.effects:
        raise ConfigurationError(
            f"An outcome that goes on with '{step.name}' proposes effects. Perform them before, with "
            f"`await ctx.perform(…)`."
        )
    if step.effects or step.opaque:
        raise ConfigurationError(_may_not_act(step))
    if before >= MOST_FURTHER:
        raise ConfigurationError(f"More than {MOST_FURTHER} further steps in one visit; '{step.name}' next.")
    return step


def further_context(
    home: StepContext, step: Step, base: Outcome, number: int, retry: RetryPolicy
) -> FurtherContext:
    """The context of the further step of this number, on the run as it will be after the steps before."""
    run = Run.from_plain(copied(home.run.to_plain()))
    run.beside = home.run.beside
    run.data = {**run.data, **to_plain(dict(base.set))}
    for key, items in additions(base.append).items():
        run.data[key] = [*run.data.get(key, ()), *items]
    return FurtherContext(home, step, base, f"then/{number}/{step.name}/", run, retry)


def completed(flow: Flow, base: Outcome, step: Step, further: Outcome) -> Outcome:
    """An outcome together with that of the further step it names, whose dispatch record it keeps."""
    if further.effects:
        raise ConfigurationError(_may_not_act(step))
    if further.hold is not None:  # the visit begins again with the answer
        return Outcome(hold=further.hold, spend=base.spend + further.spend)
    record = {"step": flow.qualified(step), **further.detail}
    earlier = base.detail.get("then", ())
    return base.completed(further)._replace(detail={**base.detail, "then": [*earlier, record]})


def _may_not_act(step: Step) -> str:
    return f"'{step.name}' is performed as a further step of a visit, and such steps have no effects."
