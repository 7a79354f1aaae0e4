"""Drives one run: read its state, have the step decide, commit the entries, notify, repeat.

A step begins only after the previous one is committed. After any failure the journal says where to continue.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from detent.engine import effects, further, logger, moves
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.performer import Assignment, Performer, called, concluded
from detent.engine.ports import Cancellation, Lease
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.user_errors import Acting, ChildrenWaiting, failure, located, message_of
from detent.engine.work import Process, Work
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import (
    AttemptFailed,
    Body,
    Held,
    Moved,
)
from detent.kernel.errors import (
    BudgetExceededError,
    DetentError,
    Fenced,
    InvalidValue,
    StoreUnavailable,
)
from detent.kernel.plain import to_plain, writable
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.flow import Flow

SPENT = ("tokens", "cost_usd")
"""Limits that agents use up."""


class Home(Process, Protocol):
    """What a driver uses of the process it works in."""

    performer: Performer
    park_after: float
    """Seconds until a retry above which the run is parked instead of kept in memory."""

    def patience(self, driver: Any) -> float | None:
        """Seconds for which a run may queue for a slot; None: as long as it takes."""


class Driver(Work):
    """Drives one run."""

    __slots__ = ("_acting", "_after", "_assignments", "resumed", "verdicts")

    def __init__(
        self, engine: Home, flow: Flow, run: Run, lease: Lease, parent: Driver | None = None
    ) -> None:
        super().__init__(engine, flow, run, lease, parent)
        self.engine: Home = engine
        self.parent: Driver | None = parent
        self._after: tuple[int, Callable[[], Awaitable[None]]] | None = None
        """Number of steps done when the step was performed, and the work to do once its move is committed."""
        self._assignments: dict[str, Assignment] = {}
        self._acting: asyncio.Future[None] | None = None
        """The effect under way that a step has asked for."""
        self.resumed = False
        """The run was under way before, in this process or another."""
        self.verdicts: list[Mapping[str, Any]] = []
        """Committed verdicts on earlier visits that the performer is not told of yet."""

    # -- the loop -------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Drive the run until it ends or waits, or the engine stops."""
        run = self.run
        self.task = asyncio.current_task()
        if self.flow.beside in run.data and not run.beside:
            from detent.engine.offloaded import looked_beside

            run.beside = await looked_beside(self.flow.beside, run, self.engine.store.blob)
        while run.status is Status.RUNNING:
            if self.engine.halts(run):
                await self.engine.store.park(self.lease)
                return
            if (self.cancellation is not None or run.called_off is not None) and await self._cancelled():
                continue
            if run.retry_at is not None and not await self._wait_until(run.retry_at):
                continue
            if self.cancellation is not None and not moves.unsettled(self.flow, run):
                continue  # it was cancelled while it waited
            if not self.in_slot and not await self.engine.slots.acquire(self, self.engine.patience(self)):
                await self.engine.store.park(self.lease)  # another worker may have a free slot
                return
            if run.proposal is not None:
                await effects.perform(self)
            elif run.let_in or not (self.spending.budgeted and await self._out_of_budget()):
                await self._visit()
            if self._after is not None and (run.steps > self._after[0] or run.status.is_end):
                (_, after), self._after = self._after, None
                await after()
            if self.verdicts:
                verdicts, self.verdicts = self.verdicts, []
                await self.engine.performer.judged(self, verdicts)

    async def _cancelled(self) -> bool:
        """End the run or start its rollback, as its cancellation asks, unless an effect is unsettled."""
        flow, run = self.flow, self.run
        if moves.unsettled(flow, run):
            return False
        cancellation, self.cancellation = self.cancellation, None
        if cancellation is None:
            if flow.undoing is None or run.called_off is None:
                return False
            cancellation = Cancellation(run.called_off["reason"], run.called_off["by"], undo=True)
        rolls_back = cancellation.undo and run.parent is None and flow.undoing is not None
        if rolls_back and moves.undoing_now(flow, run):
            return False
        await self.commit(moves.cancelled(flow, run, cancellation._replace(undo=rolls_back)))
        return True

    async def _visit(self) -> None:
        """One attempt at the step of the current state."""
        run = self.run
        performer = self.engine.performer
        assignment = self._assignments.get(run.state)
        if assignment is None:
            assignment = self._assignments[run.state] = performer.assign(self.flow, run)
        step = assignment.step
        self.telling = telling = logger.wants(logger.INFO)
        if step.breaker is not None and await self._left_alone(step):
            return
        attempt = run.attempts + 1
        ctx = StepContext(self, step, attempt, None, assignment.retry)
        self.spending.began = began = self.clock.elapsed()
        try:
            instead: Outcome | None = None
            while (
                step.before is not None and (replacement := await call(step.before, False, ctx)) is not None
            ):
                if not isinstance(replacement, Step):
                    instead = Outcome.of(replacement)
                    break
                performer.replaced(assignment, run, self.clock.now())
                assignment = self._assigned(replacement)
                step = replacement
                ctx = StepContext(self, step, attempt, None, assignment.retry)
            if instead is not None:
                outcome = instead
            elif not assignment.plain:
                outcome, after = await performer.perform(self, assignment, ctx)
                if after is not None:
                    self._after = run.steps, after
            else:
                if telling:
                    performer.started(assignment, run, self.clock.now())
                if assignment.timeout is None and step.is_async:  # the usual case, without an extra frame
                    value = await step.handler(ctx)
                else:
                    value = await called(step, ctx, assignment.timeout)
                if not step.straight:
                    outcome = await concluded(step, ctx, value)
                else:
                    outcome = value if type(value) is Outcome else Outcome.of(value)
                if telling:
                    performer.completed(assignment, run, self.clock.now(), self.clock.elapsed() - began)
            if outcome.then is not None:
                outcome = await self._go_further(ctx, outcome)
            withheld = self.log.withheld
            if run.round or self._acting is not None:
                await self._check_rounds(ctx)
                began = began if ctx.since is None else ctx.since
            duration = self.clock.elapsed() - began
            bodies, proposes = moves.decided(self.flow, run, step, ctx, outcome, duration, withheld=withheld)
        except ChildrenWaiting as waiting:
            self.spending.began = None
            await self.log.flush()
            if self._acting is not None and await self._unwound(ctx, waiting):
                return
            if self.engine.halts(run):
                return  # they may just have been parked; resuming this run resumes them
            await self._hold(
                Hold("children", "children", about={"runs": waiting.runs}), self.clock.elapsed() - began
            )
            return
        except (Fenced, StoreUnavailable):
            raise
        except BudgetExceededError as error:
            self.spending.began = None
            await self.log.flush()
            await self._exhausted(error.limit, self, self.clock.elapsed() - began)
            return
        except BaseException as raised:
            self.spending.began = None
            await self.log.flush()
            if (run.round or self._acting is not None) and await self._unwound(ctx, raised):
                return
            began = began if ctx.since is None else ctx.since
            if (failed := failure(raised)) is None:
                raise
            if (after := getattr(failed, "after", None)) is not None:
                self._after = run.steps, after
            await self._failed(ctx, failed, self.clock.elapsed() - began, assignment.retry)
            return
        self.spending.began = None
        if step.breaker is not None:
            await self.engine.breakers.succeeded(f"step/{self.flow.name}/{step.name}")
        if outcome.hold is not None:
            await self._hold(outcome.hold, self.clock.elapsed() - began, outcome.spend)
            return
        if not proposes:
            await self.commit(*ctx.emitted, *bodies)
            return
        if ctx.emitted:
            await self.commit(*ctx.emitted)
        await effects.perform(self, bodies)

    async def _go_further(self, ctx: StepContext, outcome: Outcome) -> Outcome:
        """Perform the further steps of a visit, one after another; each is named by the one before it."""
        number = 0
        while outcome.then is not None and outcome.hold is None:
            step = further.further_step(
                self.flow, outcome._replace(effects=(*ctx.proposed, *outcome.effects)), number
            )
            assignment, number = self._assigned(step), number + 1
            inner = further.further_context(ctx, step, outcome, number, assignment.retry)
            if assignment.plain:
                result = await concluded(step, inner, await called(step, inner, assignment.timeout))
            else:
                result, after = await self.engine.performer.perform(self, assignment, inner)
                if after is not None:
                    self._after = self.run.steps, _both(self._after, after)
            result = result._replace(effects=(*inner.proposed, *result.effects))
            outcome = further.completed(self.flow, outcome, step, result)
            ctx.looked, ctx.emitted = [*ctx.looked, *inner.looked], [*ctx.emitted, *inner.emitted]
        return outcome

    # -- rounds ---------------------------------------------------------------------------------------------

    async def act(
        self,
        ctx: StepContext,
        round_effects: Sequence[tuple[str, Effect]],
        *,
        side: bool = False,
        by: str = "handler",
        withhold: bool = False,
        confirm: str | None = None,
    ) -> None:
        """Perform effects, with their keys, that a step asks for before it goes on.

        They are performed in a task of their own: a time limit of the step must not leave one in doubt. With
        `withhold`, the last receipt is left for the next commit.
        """
        began = self.spending.began if ctx.since is None else ctx.since
        duration = 0.0 if began is None else self.clock.elapsed() - began
        proposal = moves.acting(
            self.flow, self.run, ctx.step, ctx, round_effects, duration, side=side, by=by, confirm=confirm
        )
        opening = [proposal, *ctx.seen(), *ctx.emitted, *ctx.with_round]
        self._acting = acting = asyncio.ensure_future(effects.perform(self, opening, withhold=withhold))
        try:
            await asyncio.shield(acting)
        finally:
            if acting.done():
                self._acting = None
        ctx.since = self.clock.elapsed()
        if self.spending.began is not None:
            self.spending.began = ctx.since

    async def _acted(self) -> None:
        """Wait for an effect that a step has asked for and no longer waits for itself."""
        acting, self._acting = self._acting, None
        if acting is None:
            return
        try:
            await asyncio.shield(acting)
        except asyncio.CancelledError:
            acting.cancel()
            await asyncio.wait({acting})
            raise

    async def _check_rounds(self, ctx: StepContext) -> None:
        """After a step has returned: it must not be waiting for an effect, nor have left one out."""
        ctx.close()
        await self._acted()
        if ctx.suspended or (self.run.proposal is not None and not self.log.withheld):
            raise Acting  # the step swallowed it, or did not wait for its effect
        ctx.check_complete()

    async def _unwound(self, ctx: StepContext, raised: BaseException) -> bool:
        """Whether a step that raised is only to be called again, once its effect is settled."""
        ctx.close()
        task = asyncio.current_task()
        if isinstance(raised, asyncio.CancelledError) and task is not None and task.cancelling():
            if self._acting is not None:
                self._acting.cancel()
                await asyncio.wait({self._acting})
            return False
        await self._acted()
        return ctx.suspended or self.run.proposal is not None

    def _assigned(self, step: Step) -> Assignment:
        """The assignment of a step that is performed instead of the state's own."""
        place = f"{self.run.state}/{step.name}"
        assignment = self._assignments.get(place)
        if assignment is None:
            assignment = self.engine.performer.assign(self.flow, self.run, step)
            self._assignments[place] = assignment
        return assignment

    # -- failures, budgets and waits ------------------------------------------------------------------------

    async def _failed(self, ctx: StepContext, error: Exception, duration: float, retry: RetryPolicy) -> None:
        """Record a failed attempt: retry later, or end the run as failed."""
        step, attempt = ctx.step, ctx.attempt
        transient = isinstance(error, step.retry_on)
        if step.breaker is not None and transient:
            await self.engine.breakers.failed(f"step/{self.flow.name}/{step.name}", step.breaker)
        if isinstance(error, InvalidValue):
            error = located(error, step.handler)
        kind, message = type(error).__name__, writable(message_of(error))
        again = transient and attempt < retry.max_attempts
        wait = retry.wait_before(attempt + 1, self.run.id)
        if isinstance(error, Transient) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        logger.warning(
            "step.failed", run_id=self.run.id, step=step.name, attempt=attempt, error=kind, will_retry=again
        )
        if logger.wants(logger.DEBUG):
            stack = "".join(traceback.format_exception(error))
            logger.debug("step.raised", run_id=self.run.id, step=step.name, exception=stack)
        failed = AttemptFailed(
            step.name, attempt, kind, message[:2000], transient, self.clock.now() + wait if again else None,
            duration,
        )  # fmt: skip
        if again:
            await self.commit(failed)
        else:
            reason, message_kept = f"{step.name} failed: {kind}", f"{kind}: {message}"[:2000]
            detail = getattr(error, "detail", None) if isinstance(error, DetentError) else None
            ending = moves.failing(self.flow, self.run, reason, message_kept, seconds=duration, detail=detail)
            await self.commit(*ctx.emitted, failed, ending)

    async def _out_of_budget(self) -> bool:
        """End the run when a limit of its budget, or of an ancestor's, is reached.

        Running out of tokens or money does not end a run whose steps use agents: their handlers take over.
        """
        driver: Driver | None = self
        while driver is not None:
            budget = driver.run.budget
            if budget is not None and (limit := budget.exceeded(driver.spending.used())) is not None:
                if budget.enforce:
                    if self._goes_on_by_code(limit):
                        limit = budget.exceeded(_without_spend(driver.spending.used()))
                    if limit is not None and not self._acted_on_next(limit):
                        await self._exhausted(limit, driver)
                        return True
                    driver = driver.parent
                    continue
                self.engine.tell_once(
                    "budget.passed",
                    driver.run.id,
                    limit=limit,
                    spent=driver.spending.used()[limit],
                    run_id=driver.run.id,
                )
            driver = driver.parent
        return False

    def _goes_on_by_code(self, limit: str) -> bool:
        return (
            limit in SPENT
            and limit not in self.flow.exhausted
            and (self.flow.by_code or self.engine.may_spend(self.flow, self.run))
        )

    def _acted_on_next(self, limit: str) -> bool:
        """Whether a limit is acted on in the next state, because only from there a move leads to its end."""
        to, machine = self.flow.exhausted.get(limit), self.flow.machine
        state = machine.state(self.run.state)
        if to is None or machine.allows(state, to):
            return False
        following = [next_state for next_state in machine.allowed(state) if not machine.is_end(next_state)]
        return bool(following) and all(machine.allows(next_state, to) for next_state in following)

    async def _exhausted(self, limit: str, driver: Driver, seconds: float = 0.0) -> None:
        reason = self.flow.exhausted_reasons.get(limit, f"{limit} budget used up")
        machine, state = self.flow.machine, self.flow.machine.state(self.run.state)
        to = self.flow.exhausted.get(limit)
        if to is not None and machine.allows(state, to):
            body: Body = Moved(
                self.run.state, machine.named(to), None, reason, duration=self.run.visit_seconds + seconds,
                spend=self.run.visit_spend, by="engine", status=machine.ends.get(to),
            )  # fmt: skip
        else:
            body = moves.failing(self.flow, self.run, reason, "", Status.BUDGET_EXHAUSTED, seconds=seconds)
        logger.warning(
            "budget.exhausted",
            run_id=self.run.id,
            limit=limit,
            spent=driver.spending.used()[limit],
            of=driver.run.id,
        )
        await self.commit(body)

    async def _left_alone(self, step: Step) -> bool:
        """Hold the run while the step's breaker is open."""
        assert step.breaker is not None
        until = await self.engine.breakers.open_until(f"step/{self.flow.name}/{step.name}", step.breaker)
        if until is None:
            return False
        await self._hold(Hold("breaker", "breaker", f"'{step.name}' fails too often", wake_at=until), 0.0)
        return True

    async def _hold(self, hold: Hold, duration: float, spend: Spend = NOTHING) -> None:
        """Commit the hold; the run then takes up nothing in this process."""
        entry = Held(
            hold.name, hold.why, hold.question, list(hold.choices), hold.wake_at, to_plain(hold.default),
            to_plain(hold.about), duration, spend,
        )  # fmt: skip
        await self.commit(entry)

    async def _wait_until(self, when: float) -> bool:
        """Wait for a retry without holding a slot; False when the run is held or parked instead."""
        wait = when - self.clock.now()
        if wait <= 0:
            return True
        if wait > self.engine.park_after:
            await self.commit(Held("retry", "timer", wake_at=when))
            return False
        self.waiting_calls += 1
        self.engine.slots.release(self)
        try:
            await self.engine.slots.sleep(wait)
        finally:
            self.waiting_calls -= 1
        return not self.engine.halts(self.run)


def _without_spend(used: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in used.items() if name not in SPENT}


def _both(
    earlier: tuple[int, Callable[[], Awaitable[None]]] | None, later: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    """The work of several steps of one visit after their move is committed."""
    if earlier is None:
        return later
    first = earlier[1]

    async def both() -> None:
        await first()
        await later()

    return both
