"""The port through which a step is performed. The engine's own performer calls the handler and nothing else.

`detent.dispatch` plugs in here to let agents perform steps. Belongs here: what the driver must know about
that. Does not: agents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from detent.engine.calls import TimeLimit, call
from detent.engine.outcome import Effect, Outcome, Receipt
from detent.engine.step import Step
from detent.engine.step_failures import StepFailed, refused
from detent.engine.tools import CALL
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain
from detent.kernel.policy import RetryPolicy

if TYPE_CHECKING:
    from detent.engine.context import StepContext
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.engine.work import Work
    from detent.kernel.budget import Budget
    from detent.kernel.run import Run


Below = Callable[["Flow"], "Sequence[Flow]"]
"""The flows that a flow's runs may start, and those they may start in turn."""


class PerformerSource(Protocol):
    """What brings a performer: settings handed to an engine, or what a step declares for agents."""

    def performer(self) -> Performer:
        """A new performer."""


class Assignment(Protocol):
    """How one step of a run is performed."""

    @property
    def step(self) -> Step:
        """The step."""

    @property
    def plain(self) -> bool:
        """The driver calls the handler itself: nothing else is asked for."""

    @property
    def retry(self) -> RetryPolicy:
        """Attempts at transient failures of the handler."""

    @property
    def timeout(self) -> float | None:
        """Seconds for one call of the handler."""


class Performed(NamedTuple):
    """What came of performing a step."""

    outcome: Outcome
    after: Callable[[], Awaitable[None]] | None = None
    """Called once the step's move is committed. It cannot change the run's outcome."""


class Performer(Protocol):
    """Has steps performed."""

    def run_config(self) -> Mapping[str, Any]:
        """What is added to the configuration of every run started here."""

    def check(self, flow: Flow, config: Mapping[str, Any], budget: Budget | None, below: Below) -> None:
        """Raise before a run begins that could never work."""

    def assign(self, flow: Flow, run: Run, step: Step | None = None) -> Assignment:
        """Who performs the step of the run's state, or `step`, which is performed in its place."""

    def replaced(self, assignment: Assignment, run: Run, now: float) -> None:
        """Another step is performed in the place of this one."""

    def may_spend(self, flow: Flow, run: Run) -> bool:
        """True when performing steps of this run may cost tokens or money."""

    def started(self, assignment: Assignment, run: Run, now: float) -> None:
        """The driver calls a plain step's handler now; told while someone listens."""

    def completed(self, assignment: Assignment, run: Run, now: float, seconds: float) -> None:
        """A plain step's handler is done; told while someone listens."""

    async def perform(self, driver: Work, assignment: Assignment, ctx: StepContext) -> Performed:
        """The outcome of a step that is not plain. An error may bring an `after` as well."""

    async def judged(self, driver: Work, verdicts: Sequence[Mapping[str, Any]]) -> None:
        """Verdicts on earlier visits of a run are committed. They cannot change the run's outcome."""

    async def unfinished(self, store: Store) -> Sequence[str]:
        """Runs for which `catch_up` has something to do."""

    async def catch_up(self, driver: Work) -> None:
        """Do for a resumed run what a crash has prevented after a commit. It cannot change the outcome."""

    async def close(self) -> None:
        """Finish what is under way; the store is still open."""


class HandlerAssignment(NamedTuple):
    """A step performed by its handler."""

    step: Step
    plain: bool
    retry: RetryPolicy
    timeout: float | None


class HandlerPerformer:
    """Every step is performed by its handler."""

    def __init__(self) -> None:
        self._checked: set[Flow] = set()

    def run_config(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}

    def check(self, flow: Flow, config: Mapping[str, Any], budget: Budget | None, below: Below) -> None:
        """Refuse a step that is configured for an agent: nobody here would ask one."""
        for step in flow.every_step() if flow not in self._checked else ():
            if step.config is not None:
                raise ConfigurationError(
                    f"Step '{step.name}' of flow '{flow.name}' is configured for agents, but this engine "
                    f"only calls handlers. Give it `dispatch=DispatchSettings(…)`."
                )
        self._checked.add(flow)

    def assign(self, flow: Flow, run: Run, step: Step | None = None) -> HandlerAssignment:
        """The handler."""
        step = step or flow.step_for(run.state)
        return HandlerAssignment(step, not step.opaque, step.retry, step.timeout)

    def replaced(self, assignment: Assignment, run: Run, now: float) -> None:
        """Of no interest."""

    def may_spend(self, flow: Flow, run: Run) -> bool:
        """Handlers that pay for something declare it in their outcomes."""
        return False

    def started(self, assignment: Assignment, run: Run, now: float) -> None:
        """Of no interest."""

    def completed(self, assignment: Assignment, run: Run, now: float, seconds: float) -> None:
        """Of no interest."""

    async def perform(self, driver: Work, assignment: Assignment, ctx: StepContext) -> Performed:
        """Have an opaque step's handler called through the ledger."""
        outcome, _ = await called_through_ledger(assignment.step, ctx, await ctx.inputs())
        return Performed(outcome)

    async def judged(self, driver: Work, verdicts: Sequence[Mapping[str, Any]]) -> None:
        """Of no interest."""

    async def unfinished(self, store: Store) -> Sequence[str]:
        """None."""
        return ()

    async def catch_up(self, driver: Work) -> None:
        """Nothing is done after a commit."""

    async def close(self) -> None:
        """Nothing is under way."""


async def called_through_ledger(
    step: Step, ctx: StepContext, inputs: Mapping[str, Any]
) -> tuple[Outcome, Receipt]:
    """An opaque step's outcome: that its handler be called, once, and its receipt be the output."""
    effect = Effect(f"{CALL}{step.name}", to_plain(inputs))
    key = effect.identity(step.name)
    if (failure := ctx.failure) is not None and failure["key"] == key:
        raise StepFailed(f"{failure['code']}: {failure['message']}")
    receipt = Receipt(key)
    if step.conclude is not None:
        outcome = await concluded(step, ctx, receipt)
    else:
        assert step.into is not None
        outcome = Outcome(set={step.into: receipt})
    return outcome._replace(effects=(effect,)), receipt


async def called(step: Step, ctx: StepContext, timeout: float | None) -> Any:
    """What the handler gives back."""
    if timeout is None:
        return await step.handler(ctx) if step.is_async else await step.call(ctx)
    async with TimeLimit(timeout) as limit:
        ctx.limit = limit
        return await step.call(ctx)


async def concluded(step: Step, ctx: StepContext, value: Any) -> Outcome:
    """The outcome that follows from an output; an output that says it did not succeed fails the step."""
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
