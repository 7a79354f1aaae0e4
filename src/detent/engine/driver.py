"""Drives one run: read where it stands, have the step decide, append, tell, and again.

A step begins only after the one before it is committed. Whatever goes wrong, the journal says where to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine import effects
from detent.engine.children import ChildrenWaiting
from detent.engine.context import StepContext, brief
from detent.engine.outcome import Effect, Hold, Outcome, additions
from detent.engine.ports import Blob, Commit, EdgeCount, Lease, LedgerLine, RowState
from detent.engine.step import Step, Transient
from detent.kernel import log
from detent.kernel.budget import LIMITS, NOTHING, Spend
from detent.kernel.entries import (
    AttemptFailed,
    Body,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Held,
    Migrated,
    Moved,
    Proposed,
    Tagged,
)
from detent.kernel.errors import ConfigurationError, DetentError, Fenced, InvalidTransitionError, StoreUnavailable, name_of
from detent.kernel.plain import to_plain, writable
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow

FOLD_EVERY = 256
"""Entries between saved folds, while folds are small."""
FOLD_BYTES_PER_ENTRY = 1024
"""A large fold is saved so seldom that it costs at most this much per entry."""
BREATHE_EVERY = 32
"""Entries after which a driver lets others run, should the store never make it wait."""
LONGEST_REASON = 200


class EffectRefused(DetentError):
    """A step asked again for an effect that had just failed for good."""

    def __init__(self, tool: str, code: str) -> None:
        self.tool = tool
        self.code = code
        super().__init__(f"'{tool}' failed for good ({code}), and the step has no other way.")


class Driver:
    """One run under way in this process."""

    __slots__ = (
        "_blobs", "_next_fold", "_turns", "_waiters", "_writing", "asides", "budgeted", "cancelling", "clock", "door",
        "engine", "flow", "in_slot", "lease", "live", "parent", "run",
    )  # fmt: skip

    def __init__(self, engine: Engine, flow: Flow, run: Run, lease: Lease, parent: Driver | None = None) -> None:
        self.engine = engine
        self.flow = flow
        self.run = run
        self.lease = lease
        self.clock = engine.clock
        self.parent = parent
        """The driver of the parent run, when that is under way in this process too."""
        self.live: dict[str, float] = dict.fromkeys(LIMITS, 0)
        """What descendants under way have used that is not yet rolled up into this run."""
        self.budgeted: bool = run.budget is not None or (parent is not None and parent.budgeted)
        self._blobs: tuple[Blob, ...] = ()
        self._writing = False
        self._turns: list[asyncio.Future[None]] | None = None
        self._waiters: list[asyncio.Future[Run | None]] = []
        self.cancelling: tuple[str, str] | None = None
        """Reason and by whom, once the run is to be cancelled."""
        self.in_slot = False
        """True while this run counts against the engine's concurrency."""
        self.asides = 0
        """How many of the step's calls wait aside just now."""
        self.door: asyncio.Lock | None = None
        # At round numbers, so that a run which is taken over again and again is folded all the same.
        self._next_fold = run.seq - run.seq % FOLD_EVERY + FOLD_EVERY

    # -- the loop -------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Go on until the run ends, waits, or the engine is stopping."""
        run = self.run
        while run.status is Status.RUNNING:
            if self.engine.stopping:
                await self.engine.store.park(self.lease)
                return
            if run.retry_at is not None and not await self._wait_until(run.retry_at):
                continue
            if not self.in_slot:  # given up for a wait that was cut short
                await self.engine.back(self)
            if run.proposal is not None:
                await effects.perform(self)
            elif run.let_in or not (self.budgeted and await self._out_of_budget()):
                await self._visit()

    async def _visit(self) -> None:
        """One attempt at the step of the current state."""
        run = self.run
        step = self.flow.step_for(run.state)
        if step.breaker is not None and await self._left_alone(step):
            return
        attempt = run.attempts + 1
        ctx = StepContext(self, step, attempt)
        began = self.clock.elapsed()
        try:
            if step.timeout is None:
                value = await step.handler(ctx) if step.is_async else await step.call(ctx)
            else:
                async with asyncio.timeout(step.timeout):
                    value = await step.call(ctx)
            outcome = value if type(value) is Outcome else Outcome.of(value)
            bodies, proposes = self._decided(step, ctx, outcome, self.clock.elapsed() - began)
        except ChildrenWaiting as waiting:
            if self.engine.stopping:
                return  # they may just have been put down; whoever resumes this run asks them again
            await self._hold(
                Hold("children", "children", about={"runs": waiting.runs}), self.clock.elapsed() - began
            )
            return
        except (Fenced, StoreUnavailable):
            raise
        except Exception as error:
            await self._failed(step, error, attempt, self.clock.elapsed() - began)
            return
        if step.breaker is not None:
            await self.engine.breakers.succeeded(f"step/{self.flow.name}/{step.name}")
        if outcome.hold is not None:
            await self._hold(outcome.hold, self.clock.elapsed() - began, outcome.spend)
            return
        if not proposes:
            await self.commit(*bodies)
        else:
            await effects.perform(self, bodies)

    def _decided(
        self, step: Step, ctx: StepContext, outcome: Outcome, duration: float
    ) -> tuple[list[Body], bool]:
        """The entries an outcome amounts to, checked; and whether it has effects to perform first."""
        run = self.run
        if outcome.hold is not None:
            _check_hold(outcome, ctx)
            return [], False
        wanted = [*ctx.proposed, *outcome.effects] if (ctx.proposed or outcome.effects) else ()
        if not wanted:
            plain_set = to_plain(outcome.set) if outcome.set else {}
            plain_append = additions(outcome.append) if outcome.append else {}
            return [
                self.moving(
                    outcome.next, outcome.event, outcome.end, outcome.reason, plain_set, plain_append, duration,
                    outcome.spend, outcome.by, ctx.attempt, ctx.looked, outcome.detail,
                )
            ], False  # fmt: skip
        chosen: list[dict[str, Any]] = []
        for effect in wanted:
            item = Effect.of(effect)
            if step.effects is not None and item.tool not in step.effects:
                raise ConfigurationError(
                    f"Step '{step.name}' may not propose '{item.tool}'. "
                    f"Allowed: {', '.join(step.effects) or 'none'}."
                )
            self.flow.tools.get(item.tool, "effect")
            key = item.identity(step.name)
            if run.failure is not None and key in run.failure["failed"]:
                raise EffectRefused(item.tool, run.failure["code"])
            if all(key != other["key"] for other in chosen):  # equal effects are one effect
                args = to_plain(item.args)
                self._check_receipts(effects.receipts_in(args), chosen, f"'{item.tool}'")
                chosen.append({"key": key, "tool": item.tool, "args": args})
        proposal = Proposed(
            step.name, outcome.to_plain(), chosen, duration, outcome.spend, outcome.by, ctx.attempt,
            list(ctx.looked), to_plain(outcome.detail),
        )  # fmt: skip
        # Checked now, with what is known now, so that nothing is performed for a move that is not allowed.
        referred = effects.receipts_in(proposal.outcome)
        if not referred:
            self.moving_from(proposal, {})
            return [proposal], True
        self._check_receipts(referred, chosen, "The outcome")
        if proposal.outcome.get("next") is not None:
            to = self.flow.machine.state(proposal.outcome["next"])
            if not self.flow.machine.allows(self.flow.machine.state(run.state), to):
                raise InvalidTransitionError(
                    run.state, to, self.flow.machine.allowed(self.flow.machine.state(run.state))
                )
        return [proposal], True

    def moving_from(
        self, proposal: Proposed, receipts: dict[str, Any], seconds: float = 0.0, spend: Spend = NOTHING
    ) -> Body:
        """The entry that a performed proposal ends in.

        `seconds` and `spend` are what the entries committed along with it add to the visit. A move says the
        whole of the visit; an end says only what no other entry says.
        """
        said = effects.fill(proposal.outcome, receipts)
        end = Status(said["end"]) if "end" in said else None
        if end is not None:
            seconds, spend = 0.0, NOTHING
        return self.moving(
            said.get("next"), said.get("event"), end, said.get("reason"), said.get("set", {}),
            said.get("append", {}), seconds, spend, proposal.by, proposal.attempt, proposal.looked, proposal.detail,
        )  # fmt: skip

    @staticmethod
    def _check_receipts(referred: set[str], chosen: list[dict[str, Any]], what: str) -> None:
        unknown = referred - {other["key"] for other in chosen}
        if unknown:
            raise ConfigurationError(
                f"{what} refers to the receipt of an effect that is not performed before it: "
                f"{', '.join(sorted(unknown))}."
            )

    def moving(
        self,
        next_state: Any,
        event: str | None,
        end: Status | None,
        reason: str | None,
        changes: dict[str, Any],
        additions: dict[str, Any],
        duration: float,
        spend: Spend,
        by: str,
        attempt: int,
        looked: Sequence[dict[str, Any]],
        detail: Any,
    ) -> Moved | Ended:
        """The entry a decision amounts to; raises when the table or a condition forbids it."""
        run, machine = self.run, self.flow.machine
        for key in additions:
            there = changes.get(key, run.data.get(key))
            if there is not None and type(there) is not list:
                raise TypeError(f"'{key}' is no list, so nothing can be appended to it.")
        here = machine.state(run.state)
        if reason is not None:
            reason = writable(reason)
            if len(reason) > LONGEST_REASON:
                reason = reason[: LONGEST_REASON - 1] + "…"
        if end is not None:
            if here not in machine.may_end or not end.is_end:
                may = ", ".join(sorted(name_of(state) for state in machine.may_end)) or "no working state"
                raise InvalidTransitionError(
                    run.state, f"(end: {end.value})", machine.allowed(here), f"A run may end in: {may}."
                )
            return Ended(
                end, reason, None, changes, additions, duration, spend, by, attempt, list(looked),
                to_plain(detail) if detail else {},
            )  # fmt: skip
        to = None
        if next_state is not None:
            if isinstance(next_state, str) and not machine.has(next_state):
                raise InvalidTransitionError(run.state, next_state, machine.allowed(here))
            to = machine.state(next_state)
        data: Mapping[str, Any] = run.data
        if (changes or additions) and machine.conditional(here):
            data = _After(run.data, changes, additions)
        move = machine.choose(here, data, to=to, event=event)
        counts = self.flow.counts
        return Moved(
            run.state,
            machine.named(move.to),
            move.event,
            reason if reason is not None else move.reason,
            changes,
            additions,
            run.visit_seconds + duration,
            run.visit_spend + spend,
            by,
            attempt,
            counts is not None and counts(here, move.to),
            machine.ends.get(move.to),
            looked,
            to_plain(detail) if detail else {},
        )

    # -- things that do not go straight ---------------------------------------------------------------------

    async def _failed(self, step: Step, error: Exception, attempt: int, duration: float) -> None:
        """An attempt failed: try again later, or end the run as failed."""
        transient = isinstance(error, step.retry_on)
        if step.breaker is not None and transient:
            await self.engine.breakers.failed(f"step/{self.flow.name}/{step.name}", step.breaker)
        kind, message = type(error).__name__, writable(str(error))
        again = transient and attempt < step.retry.max_attempts
        wait = step.retry.wait_before(attempt + 1)
        if isinstance(error, Transient) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        log.warning(
            "step.failed", run_id=self.run.id, step=step.name, attempt=attempt, error=kind, will_retry=again
        )
        failed = AttemptFailed(
            step.name, attempt, kind, message[:2000], transient, self.clock.now() + wait if again else None,
            duration,
        )  # fmt: skip
        if again:
            await self.commit(failed)
        else:
            reason, said = f"{step.name} failed: {kind}", f"{kind}: {message}"[:2000]
            await self.commit(failed, self.failing(reason, said, seconds=duration))

    def failing(
        self,
        reason: str,
        error: str,
        status: Status = Status.FAILED,
        seconds: float = 0.0,
        spend: Spend = NOTHING,
    ) -> Body:
        """The entry that ends the run badly: a move into an end of that status if the table has one, else an end.

        `seconds` and `spend` are what the entries committed along with it add to the visit.
        """
        run, machine = self.run, self.flow.machine
        to = machine.route_to(machine.state(run.state), status, run.data)
        if to is None:
            return Ended(status, reason[:LONGEST_REASON], error or None)
        return Moved(
            run.state, machine.named(to), None, reason[:LONGEST_REASON], duration=run.visit_seconds + seconds,
            spend=run.visit_spend + spend, by="engine", attempt=max(1, run.attempts), status=status,
            detail={"error": error} if error else {},
        )  # fmt: skip

    async def _out_of_budget(self) -> bool:
        """End the run when a limit of it or of one of its ancestors is reached."""
        driver: Driver | None = self
        while driver is not None:
            budget = driver.run.budget
            if budget is not None and (limit := budget.exceeded(driver.used())) is not None:
                if budget.enforce:
                    await self._exhausted(limit, driver)
                    return True
                self.engine.tell_once(
                    "budget.passed", driver.run.id, limit=limit, spent=driver.used()[limit], run_id=driver.run.id
                )
            driver = driver.parent
        return False

    async def _exhausted(self, limit: str, driver: Driver) -> None:
        reason = f"{limit} budget used up"
        machine, here = self.flow.machine, self.flow.machine.state(self.run.state)
        to = self.flow.exhausted.get(limit)
        if to is not None and machine.allows(here, to):
            body: Body = Moved(
                self.run.state, machine.named(to), None, reason, duration=self.run.visit_seconds,
                spend=self.run.visit_spend, by="engine", status=machine.ends.get(to),
            )  # fmt: skip
        else:
            body = self.failing(reason, "", Status.BUDGET_EXHAUSTED)
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
        async with self.engine.aside(self):
            await self.engine.rest(wait)
        return not self.engine.stopping

    def put_down(self) -> asyncio.Future[Run | None]:
        """Done when the run is no longer under way here: the run, or None when another driver or a person has it."""
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

    # -- money ----------------------------------------------------------------------------------------------

    def used(self) -> dict[str, float]:
        """What counts against this run's budget, descendants under way included."""
        used = self.run.used()
        return {name: used[name] + self.live[name] for name in LIMITS}

    def _own(self) -> tuple[float, float, float, float]:
        run = self.run
        own = run.spend + run.visit_spend + run.side_spend
        return own.tokens, own.cost_usd, run.steps, run.seconds + run.visit_seconds

    def count_in(self, used: Mapping[str, float]) -> None:
        """Count what a child had already used when it came under way here, for this run and its ancestors."""
        driver: Driver | None = self
        while driver is not None:
            for name in LIMITS:
                driver.live[name] += used[name]
            driver = driver.parent

    def count_out(self, used: Mapping[str, float]) -> None:
        """Stop counting a child as under way: it is rolled up into this run now."""
        for name in LIMITS:
            self.live[name] -= used[name]

    # -- writing --------------------------------------------------------------------------------------------

    def keep(self, blob: Blob) -> None:
        """Write a blob with the next commit."""
        self._blobs = (*self._blobs, blob)

    async def blob(self, hash: str) -> bytes | None:
        """A blob of this run, written or about to be."""
        waiting = next((blob.body for blob in self._blobs if blob.hash == hash), None)
        return waiting if waiting is not None else await self.engine.store.blob(hash)

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
            await self._commit(bodies)
        finally:
            self._writing = False
            if self._turns:
                self._pass_turn()

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
            await asyncio.wait({commit})  # before anything else happens, the run stands where its journal does
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
            elif kind in _LEDGER_STATE:
                ledger = (*ledger, _ledger_line(entry))
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

    def _roll_up(self, before: tuple[float, float, float, float]) -> None:
        """Count what this commit used against the ancestors under way."""
        after = self._own()
        ancestor = self.parent
        while ancestor is not None:
            for index, name in enumerate(LIMITS):
                ancestor.live[name] += after[index] - before[index]
            ancestor = ancestor.parent


class _After(Mapping[str, Any]):
    """Data as it will be after the step, for conditions to look at; only what is asked for is put together."""

    __slots__ = ("_additions", "_changes", "_data")

    def __init__(self, data: dict[str, Any], changes: dict[str, Any], additions: dict[str, Any]) -> None:
        self._data = data
        self._changes = changes
        self._additions = additions

    def __getitem__(self, key: str) -> Any:
        value = self._changes[key] if key in self._changes else self._data.get(key, _ABSENT)
        if key in self._additions:
            return [*(value if isinstance(value, list) else []), *self._additions[key]]
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._data, *self._changes, *self._additions]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _check_hold(outcome: Outcome, ctx: StepContext) -> None:
    """A step that waits changes nothing yet, and its wait is not mistaken for one of the engine's."""
    hold = outcome.hold
    assert hold is not None
    if hold.name in _OUR_HOLDS or hold.name.startswith("effect:"):
        raise ConfigurationError(
            f"A hold of step '{ctx.step.name}' may not be named '{hold.name}': the engine uses it."
        )
    if (
        outcome.set or outcome.append or outcome.effects or ctx.proposed
        or outcome.next is not None or outcome.event is not None or outcome.end is not None
    ):  # fmt: skip
        raise ConfigurationError(
            f"Step '{ctx.step.name}' asks for the hold '{hold.name}' and for a change at once. "
            f"Ask for the hold alone; the step is done again when it is answered."
        )


_OUR_HOLDS = frozenset({"children", "takeovers", "driver", "retry", "breaker"})
_ABSENT = object()
_LEDGER_STATE: dict[type, str] = {
    EffectBegun: "begun",
    EffectDone: "done",
    EffectFailed: "failed",
    EffectSkipped: "skipped",
}


def _ledger_line(entry: Entry) -> LedgerLine:
    body: Any = entry.body
    return LedgerLine(body.key, body.tool, _LEDGER_STATE[type(body)], entry.seq)


def edge_of(flow: str, at: float, body: Moved) -> EdgeCount:
    """One move, ready to be added up."""
    return EdgeCount(
        flow, int(at // 86400), body.frm, body.to, 1, body.duration, body.duration, body.duration,
        body.spend.tokens, body.spend.cost_usd,
    )  # fmt: skip


def row_of(run: Run) -> RowState:
    """What lists show of a run."""
    waits = None
    wake_at = None
    if run.holds:
        waits = [
            {
                "name": hold.name,
                "why": hold.why,
                "question": brief(hold.question),
                "choices": hold.choices,
                "wake_at": hold.wake_at,
            }
            for hold in run.holds.values()
        ]
        wake_at = min((hold.wake_at for hold in run.holds.values() if hold.wake_at is not None), default=None)
    total = run.total_spend
    return RowState(
        run.status, run.state, run.updated_at, wake_at, run.steps, total.tokens, total.cost_usd, run.reason,
        run.error, waits, run.version, run.fingerprint,
    )  # fmt: skip
