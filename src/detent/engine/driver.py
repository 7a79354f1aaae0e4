"""Drives one run: read where it stands, have the step decide, append, tell, and again.

A step begins only after the one before it is committed. Whatever goes wrong, the journal says where to go on.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from detent.engine import effects, moves
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.journals import load
from detent.engine.outcome import Hold, Outcome
from detent.engine.performer import Assignment, called, concluded
from detent.engine.ports import Blob, Commit, EdgeCount, Lease, LedgerLine
from detent.engine.raised import ChildrenWaiting, failure, located, message_of
from detent.engine.standing import LEDGER_STATE, edge_of, ledger_line, row_of
from detent.engine.step import Step, Transient
from detent.engine.tools import EffectCall
from detent.kernel import log
from detent.kernel.budget import NOTHING, SHARED, Budget, Spend
from detent.kernel.entries import (
    AttemptFailed,
    Body,
    CalledOff,
    Entry,
    Held,
    Migrated,
    Moved,
    Tagged,
)
from detent.kernel.errors import (
    BudgetExceededError,
    DetentError,
    Fenced,
    InvalidValue,
    StoreError,
    StoreUnavailable,
)
from detent.kernel.ids import ROOT, guessed_root
from detent.kernel.plain import to_plain, writable
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.kernel.run_config import ORIGIN
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow

FOLD_EVERY = 256
"""Entries between saved folds, while folds are small."""
FOLD_BYTES_PER_ENTRY = 1024
"""A large fold is saved so seldom that it costs at most this much per entry."""
SPENT = ("tokens", "cost_usd")
"""Limits that asking agents uses up."""
BREATHE_EVERY = 32
"""Entries after which a driver lets others run, should the store never make it wait."""


class Driver:
    """One run under way in this process."""

    __slots__ = (
        "_after", "_assignments", "_began", "_blobs", "_lapses", "_next_fold", "_turns",
        "_waiters", "_writing", "asides", "budgeted", "calls", "cancelling", "clock", "door", "engine",
        "family", "flow", "halting", "in_slot", "lease", "live", "parent", "performing", "run", "telling",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, flow: Flow, run: Run, lease: Lease, parent: Driver | None = None
    ) -> None:
        self.engine = engine
        self.flow = flow
        self.run = run
        self.lease = lease
        self.clock = engine.clock
        self.parent = parent
        """The driver of the parent run, when that is under way in this process too."""
        self.live: dict[str, float] = dict.fromkeys(SHARED, 0)
        """What descendants under way have used that is not yet rolled up into this run."""
        self._lapses = engine.leases.lapses
        self._began: float | None = None
        """When the step under way began."""
        self.budgeted: bool = run.budget is not None or (parent is not None and parent.budgeted)
        self._blobs: tuple[Blob, ...] = ()
        self._writing = False
        self._turns: list[asyncio.Future[None]] | None = None
        self._waiters: list[asyncio.Future[Run | None]] = []
        self.cancelling: tuple[str, str, bool] | None = None
        """Reason, by whom and whether to undo, once the run is to be cancelled."""
        self.halting: str | None = None
        """Why the run is to end once the step under way is done."""
        self.performing = False
        """Effects are being performed: the run must not be cut off now."""
        self.calls: Sequence[Future[Any]] = ()
        """What the effect under way has running in threads."""
        self.in_slot = False
        """True while this run counts against the engine's concurrency."""
        self.asides = 0
        """How many of the step's calls wait aside just now."""
        self.door: asyncio.Lock | None = None
        self.family: dict[str, Any] = {} if parent is None else parent.family
        """What the performer keeps for this run and its children while they are under way."""
        self.telling = True
        """Somebody may listen to what is told of every step; asked once a visit."""
        self._after: tuple[int, Callable[[], Awaitable[None]]] | None = None
        """Steps done when the step was performed, and what is left to do once its move is committed."""
        self._assignments: dict[str, Assignment] = {}
        # At round numbers, so that a run which is taken over again and again is folded all the same.
        self._next_fold = run.seq - run.seq % FOLD_EVERY + FOLD_EVERY

    # -- the loop -------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Go on until the run ends, waits, or the engine is stopping."""
        run = self.run
        if self.flow.beside in run.data and not run.beside:
            from detent.engine.offloaded import looked_beside

            run.beside = await looked_beside(self.flow.beside, run, self.engine.store.blob)
        while run.status is Status.RUNNING:
            if self.engine.stopping:
                await self.engine.store.park(self.lease)
                return
            if (self.halting is not None or run.called_off is not None) and await self._cut_short():
                continue
            if run.retry_at is not None and not await self._wait_until(run.retry_at):
                continue
            if self.halting is not None and not moves.unsettled(self.flow, run):
                continue  # it was told to end while it waited
            if not self.in_slot:  # given up for a wait that was cut short
                await self.engine.slots.back(self)
            if run.proposal is not None:
                await effects.perform(self)
            elif run.let_in or not (self.budgeted and await self._out_of_budget()):
                await self._visit()
            if self._after is not None and (run.steps > self._after[0] or run.status.is_end):
                (_, after), self._after = self._after, None
                await after()

    async def _cut_short(self) -> bool:
        """End the run or have it undo what it did, where that is asked for and nothing is left to settle."""
        flow, run = self.flow, self.run
        if moves.unsettled(flow, run):
            return False
        if self.halting is not None:
            await self.commit(moves.cancelled(flow, run, self.halting, "engine"))
            return True
        if flow.undoing is None or moves.undoing_now(flow, run):
            return False
        assert run.called_off is not None
        await self.commit(
            moves.cancelled(flow, run, run.called_off["reason"], run.called_off["by"], undo=True)
        )
        return True

    async def _visit(self) -> None:
        """One attempt at the step of the current state."""
        run = self.run
        performer = self.engine.performer
        assignment = self._assignments.get(run.state)
        if assignment is None:
            assignment = self._assignments[run.state] = performer.assign(self.flow, run)
        step = assignment.step
        self.telling = telling = log.wants(log.INFO)
        if step.breaker is not None and await self._left_alone(step):
            return
        attempt = run.attempts + 1
        ctx = StepContext(self, step, attempt)
        self._began = began = self.clock.elapsed()
        try:
            instead: Outcome | None = None
            while step.before is not None and (said := await call(step.before, False, ctx)) is not None:
                if not isinstance(said, Step):
                    instead = Outcome.of(said)
                    break
                performer.replaced(assignment, run, self.clock.now())
                assignment = self.assignment(said)
                step, ctx = said, StepContext(self, said, attempt)
            if instead is not None:
                outcome = instead
            elif not assignment.plain:
                outcome, after = await performer.perform(self, assignment, ctx)
                if after is not None:
                    self._after = run.steps, after
            else:
                if telling:
                    performer.started(assignment, run, self.clock.now())
                value = await called(step, ctx, assignment.timeout)
                if not step.straight:
                    outcome = await concluded(step, ctx, value)
                else:
                    outcome = value if type(value) is Outcome else Outcome.of(value)
                if telling:
                    performer.completed(assignment, run, self.clock.now(), self.clock.elapsed() - began)
            bodies, proposes = moves.decided(self.flow, run, step, ctx, outcome, self.clock.elapsed() - began)
        except ChildrenWaiting as waiting:
            self._began = None
            if self.engine.stopping:
                return  # they may just have been put down; whoever resumes this run asks them again
            await self._hold(
                Hold("children", "children", about={"runs": waiting.runs}), self.clock.elapsed() - began
            )
            return
        except (Fenced, StoreUnavailable):
            raise
        except BudgetExceededError as error:
            self._began = None
            await self._exhausted(error.limit, self, self.clock.elapsed() - began)
            return
        except BaseException as raised:
            self._began = None
            failed = failure(raised)
            if failed is None:
                raise
            if (after := getattr(failed, "after", None)) is not None:
                self._after = run.steps, after
            await self._failed(ctx, failed, self.clock.elapsed() - began, assignment.retry)
            return
        self._began = None
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

    def assignment(self, step: Step) -> Assignment:
        """How a step is performed that the current state has, or that is performed in its place."""
        own = self.flow.step_for(self.run.state) is step
        place = self.run.state if own else f"{self.run.state}/{step.name}"
        assignment = self._assignments.get(place)
        if assignment is None:
            assignment = self.engine.performer.assign(self.flow, self.run, None if own else step)
            self._assignments[place] = assignment
        return assignment

    # -- things that do not go straight ---------------------------------------------------------------------

    async def _failed(self, ctx: StepContext, error: Exception, duration: float, retry: RetryPolicy) -> None:
        """An attempt failed: try again later, or end the run as failed."""
        step, attempt = ctx.step, ctx.attempt
        transient = isinstance(error, step.retry_on)
        if step.breaker is not None and transient:
            await self.engine.breakers.failed(f"step/{self.flow.name}/{step.name}", step.breaker)
        if isinstance(error, InvalidValue):
            error = located(error, step.handler)
        kind, message = type(error).__name__, writable(message_of(error))
        again = transient and attempt < retry.max_attempts
        wait = retry.wait_before(attempt + 1)
        if isinstance(error, Transient) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        log.warning(
            "step.failed", run_id=self.run.id, step=step.name, attempt=attempt, error=kind, will_retry=again
        )
        if log.wants(log.DEBUG):
            where = "".join(traceback.format_exception(error))
            log.debug("step.raised", run_id=self.run.id, step=step.name, exception=where)
        failed = AttemptFailed(
            step.name, attempt, kind, message[:2000], transient, self.clock.now() + wait if again else None,
            duration,
        )  # fmt: skip
        if again:
            await self.commit(failed)
        else:
            reason, said = f"{step.name} failed: {kind}", f"{kind}: {message}"[:2000]
            detail = getattr(error, "detail", None) if isinstance(error, DetentError) else None
            ending = moves.failing(self.flow, self.run, reason, said, seconds=duration, detail=detail)
            await self.commit(*ctx.emitted, failed, ending)

    async def _out_of_budget(self) -> bool:
        """End the run when a limit of it or of one of its ancestors is reached.

        Where agents are asked, running out of tokens or money ends no run by itself: the steps go on by code.
        """
        driver: Driver | None = self
        while driver is not None:
            budget = driver.run.budget
            if budget is not None and (limit := budget.exceeded(driver.used())) is not None:
                if budget.enforce:
                    if self._goes_on_by_code(limit):
                        limit = budget.exceeded(_without_spend(driver.used()))
                    if limit is not None:
                        await self._exhausted(limit, driver)
                        return True
                    driver = driver.parent
                    continue
                self.engine.tell_once(
                    "budget.passed",
                    driver.run.id,
                    limit=limit,
                    spent=driver.used()[limit],
                    run_id=driver.run.id,
                )
            driver = driver.parent
        return False

    def _goes_on_by_code(self, limit: str) -> bool:
        return (
            limit in SPENT
            and limit not in self.flow.exhausted
            and (self.flow.by_code or self.engine.performer.may_spend(self.flow, self.run))
        )

    def short_of(self, cap: Budget | None = None) -> tuple[str, float, float] | None:
        """The limit that leaves nothing for asking an agent: its name, what is used, what it is.

        `cap` is the step's own; what the visit has used counts against it.
        """
        if cap is not None:
            run = self.run
            seconds = run.visit_seconds
            if self._began is not None:
                seconds += self.clock.elapsed() - self._began
            used = {
                "tokens": run.visit_spend.tokens, "cost_usd": run.visit_spend.cost_usd, "seconds": seconds
            }  # fmt: skip
            if (limit := cap.exceeded(used)) is not None:
                return limit, used[limit], getattr(cap, limit)
        driver: Driver | None = self
        while driver is not None:
            budget = driver.run.budget
            if budget is not None and budget.enforce:
                total = driver.used()
                if (limit := budget.exceeded(total)) is not None:
                    return limit, total[limit], getattr(budget, limit)
            driver = driver.parent
        return None

    def afford(self, cap: Budget | None = None) -> None:
        """Raise `BudgetExceededError` before something is paid for that no budget covers any more.

        `cap` limits the step's visit, inside the run's budget.
        """
        if cap is None and not (self.budgeted and self.engine.performer.may_spend(self.flow, self.run)):
            return  # a step passed the budget when it began, and may finish
        if (short := self.short_of(cap)) is not None:
            limit, used, of = short
            raise BudgetExceededError(limit, of, used)

    def money_is_limited(self, cap: Budget | None = None) -> bool:
        """True when some budget limits money."""
        if cap is not None and cap.cost_usd is not None:
            return True
        driver: Driver | None = self
        while driver is not None:
            if driver.run.budget is not None and driver.run.budget.cost_usd is not None:
                return True
            driver = driver.parent
        return False

    @property
    def origin(self) -> str:
        """The root of the runs that a fork, or what is below it, came from; empty where it came from none."""
        return str(self.run.config.get(ORIGIN, ""))

    def effect_call(self, key: str, attempt: int) -> EffectCall:
        """What a tool may know about a call of this run."""
        proposal = self.run.proposal
        by = proposal.by if proposal is not None else "handler"
        return EffectCall(self.run.id, key, attempt, self.origin, by, str(self.run.config.get(ROOT, "")))

    @property
    def root(self) -> str:
        """The run at the top of this one's tree."""
        if self.run.parent is None:
            return self.run.id
        return str(self.run.config.get(ROOT) or guessed_root(self.run.id))

    @property
    def where(self) -> str:
        """Which run of its tree this is: the id without the root's."""
        return self.run.id[len(self.root) :]

    async def _exhausted(self, limit: str, driver: Driver, seconds: float = 0.0) -> None:
        reason = self.flow.exhausted_reasons.get(limit, f"{limit} budget used up")
        machine, here = self.flow.machine, self.flow.machine.state(self.run.state)
        to = self.flow.exhausted.get(limit)
        if to is not None and machine.allows(here, to):
            body: Body = Moved(
                self.run.state, machine.named(to), None, reason, duration=self.run.visit_seconds + seconds,
                spend=self.run.visit_spend, by="engine", status=machine.ends.get(to),
            )  # fmt: skip
        else:
            body = moves.failing(self.flow, self.run, reason, "", Status.BUDGET_EXHAUSTED, seconds=seconds)
        log.warning(
            "budget.exhausted", run_id=self.run.id, limit=limit, spent=driver.used()[limit], of=driver.run.id
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
        """Commit the wait and let the run go; nothing in this process waits for it."""
        held = Held(
            hold.name, hold.why, hold.question, list(hold.choices), hold.wake_at, to_plain(hold.default),
            to_plain(hold.about), duration, spend,
        )  # fmt: skip
        await self.commit(held)

    async def _wait_until(self, when: float) -> bool:
        """Wait for a retry without holding a slot; False when the run is to be put down instead."""
        wait = when - self.clock.now()
        if wait <= 0:
            return True
        if wait > self.engine.park_after:
            await self.commit(Held("retry", "timer", wake_at=when))
            return False
        async with self.engine.slots.aside(self):
            await self.engine.slots.rest(wait)
        return not self.engine.stopping

    def put_down(self) -> asyncio.Future[Run | None]:
        """Done when the run is not under way here any more: the run, or None when somebody else has it."""
        waiter: asyncio.Future[Run | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def tell_waiters(self, result: Run | Exception | None) -> None:
        """Tell those who waited for the run to be put down."""
        for waiter in self._waiters:
            if waiter.done():
                continue
            if isinstance(result, Exception):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)
        self._waiters.clear()

    async def confirm(self) -> None:
        """Before what cannot be undone: raise `Fenced` if the run may have been taken over, and was."""
        self._lapses = await self.engine.leases.confirm(self.lease, self._lapses)

    @property
    def unstopped(self) -> bool:
        """True while a thread still performs an effect of this run, whether or not it is under way."""
        return any(not call.done() for call in self.calls)

    # -- money ----------------------------------------------------------------------------------------------

    def used(self) -> dict[str, float]:
        """What counts against this run's budget, descendants under way included."""
        used = self.run.used()
        for name, more in self.live.items():
            used[name] += more
        if self._began is not None:
            used["seconds"] += self.clock.elapsed() - self._began
        return used

    def _own(self) -> tuple[float, float, float]:
        run = self.run
        own = run.spend + run.visit_spend + run.side_spend
        return own.tokens, own.cost_usd, run.steps

    def count_in(self, used: Mapping[str, float]) -> None:
        """Count what a child had already used when it came under way here, for this run and its ancestors."""
        driver: Driver | None = self
        while driver is not None:
            for name in SHARED:
                driver.live[name] += used[name]
            driver = driver.parent

    def count_out(self, used: Mapping[str, float]) -> None:
        """Stop counting a child as under way: it is rolled up into this run now."""
        for name in SHARED:
            self.live[name] -= used[name]

    # -- writing --------------------------------------------------------------------------------------------

    def keep(self, blob: Blob) -> None:
        """Write a blob with the next commit."""
        self._blobs = (*self._blobs, blob)

    async def blob(self, hash: str) -> bytes | None:
        """A blob of this run, written or about to be."""
        waiting = next((blob.body for blob in self._blobs if blob.hash == hash), None)
        return waiting if waiting is not None else await self.engine.store.blob(hash)

    async def call_off(self, reason: str, by: str) -> None:
        """Write down that the run is to undo what it did, once; not if it has ended or does so already."""
        await self.commit_whole(CalledOff(reason, by))

    async def commit(self, *bodies: Body) -> None:
        """Append entries, then take them in and tell. Raises `Fenced` when the run was taken over."""
        while self._writing:  # commits of one run go one after another
            turn = asyncio.get_running_loop().create_future()
            self._turns = [*(self._turns or ()), turn]
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled() and not self._writing:  # stopped just as the turn was ours
                    self._pass_turn()
                raise
        self._writing = True
        try:
            if type(bodies[0]) is CalledOff and not self._can_be_called_off():
                return  # what was written while this waited for its turn has made it needless
            if self.run.called_off is not None:
                bodies = tuple(moves.diverted(self.flow, self.run, bodies))
            await self._commit(bodies)
        except StoreError:
            raise  # another drives the run, or the store is away: nothing more is written here
        except Exception:
            await self.stand_again()
            raise
        finally:
            self._writing = False
            if self._turns:
                self._pass_turn()

    async def stand_again(self) -> None:
        """Have the run stand where its journal does, after entries that could not be written."""
        run = await load(self.engine.store, self.run.id)
        run.beside = self.run.beside
        for name in Run.__slots__:
            setattr(self.run, name, getattr(run, name))

    def _can_be_called_off(self) -> bool:
        run = self.run
        return not run.status.is_end and run.called_off is None and not moves.undoing_now(self.flow, run)

    def _pass_turn(self) -> None:
        """Let the next in the queue commit."""
        while self._turns:
            turn = self._turns.pop(0)
            if not turn.done():
                turn.set_result(None)
                return

    async def commit_whole(self, *bodies: Body) -> None:
        """Commit, and see it through even when whoever asked is stopped meanwhile."""
        commit = asyncio.ensure_future(self.commit(*bodies))
        try:
            await asyncio.shield(commit)
        except asyncio.CancelledError:
            # Before anything else happens, the run stands where its journal does. An error is nobody's now.
            await asyncio.gather(commit, return_exceptions=True)
            raise

    async def _commit(self, bodies: tuple[Body, ...]) -> None:
        run, lease = self.run, self.lease
        now = self.clock.now()
        after = run.seq
        before = self._own() if self.parent is not None else None
        edges: tuple[EdgeCount, ...] = ()
        ledger: tuple[LedgerLine, ...] = ()
        tags: tuple[tuple[str, bool], ...] = ()
        definition = None
        committed: list[Entry] = []
        for body in bodies:
            entry = Entry(run.seq + 1, now, lease.epoch, body)
            committed.append(entry)
            run.apply(entry)
            kind = type(body)
            if kind is Moved:
                edges = (edge_of(run.flow, now, body),)  # type: ignore[arg-type]
            elif kind in LEDGER_STATE:
                ledger = (*ledger, ledger_line(entry))
            elif kind is Tagged:
                tags = (*((tag, True) for tag in body.add), *((tag, False) for tag in body.remove))  # type: ignore[union-attr]
            elif kind is Migrated:
                definition = self.flow.definition
        fold = None
        if run.seq >= self._next_fold:
            fold = run.to_plain()
            self._next_fold = run.seq + FOLD_EVERY
        blobs = self._blobs
        size = await self.engine.store.append(
            Commit(
                lease, after, committed, row_of(run), run.status is not Status.RUNNING, ledger, edges, tags,
                fold, blobs, definition, self.engine.alone,
            )
        )  # fmt: skip
        if not run.seq % BREATHE_EVERY:  # a store may answer without ever letting others run
            await asyncio.sleep(0)
        if blobs:
            self._blobs = self._blobs[len(blobs) :]
        if size:
            self._next_fold = run.seq + max(FOLD_EVERY, size // FOLD_BYTES_PER_ENTRY)
        if before is not None:
            self._roll_up(before)
        self.engine.committed(self, committed)

    def _roll_up(self, before: tuple[float, float, float]) -> None:
        """Count what this commit used against the ancestors under way."""
        after = self._own()
        ancestor = self.parent
        while ancestor is not None:
            for index, name in enumerate(SHARED):
                ancestor.live[name] += after[index] - before[index]
            ancestor = ancestor.parent


def _without_spend(used: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in used.items() if name not in SPENT}
