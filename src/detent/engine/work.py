"""A run in hand: its flow, its journal, its budget, and what its process offers.

This is what contexts, effects, performers and child runs know of a run under way; the loop that drives it is
`driver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol

from detent.engine.breaker import Breakers
from detent.engine.concurrency import Slots
from detent.engine.flow import Flow
from detent.engine.leases import Leases
from detent.engine.log import Log
from detent.engine.moves import uncommitted
from detent.engine.observers import Observers, Progress
from detent.engine.ports import Cancellation, Clock, Lease, Store, Tape
from detent.engine.run_resources import RunResources
from detent.engine.spending import Spending
from detent.engine.tools import EffectCall
from detent.kernel.budget import Budget
from detent.kernel.entries import EffectBegun, Entry
from detent.kernel.ids import ROOT, guessed_root
from detent.kernel.plain import to_plain
from detent.kernel.run import Run
from detent.kernel.run_config import ORIGIN


class Process(Protocol):
    """What a run in hand uses of the process it is under way in."""

    store: Store
    clock: Clock
    leases: Leases
    breakers: Breakers
    slots: Slots
    observers: Observers
    tape: Tape | None
    stopping: bool

    @property
    def alone(self) -> bool:
        """True while at most one run is under way in this process."""

    def flow(self, name: str) -> Flow:
        """A flow by name, checked."""

    def committed(self, work: Any, entries: Sequence[Entry]) -> None:
        """Called after every commit of a run under way."""

    def may_spend(self, flow: Flow, run: Run) -> bool:
        """True when performing steps of a run may cost tokens or money."""

    def halts(self, run: Run) -> bool:
        """Whether a run is to be put down here, as it stands."""

    def tell_once(self, event: str, about: str, **facts: Any) -> None:
        """Log a warning once per subject in this process."""

    async def run_children(self, work: Any, *args: Any, **options: Any) -> list[Any]:
        """Run children to their ends."""

    async def cancel_descendants(self, work: Any, runs: Sequence[str], reason: str) -> None:
        """Cancel runs below a run under way."""


class Work:
    """One run under way in this process."""

    __slots__ = (
        "_lapses", "_waiters", "calls", "cancellation", "clock", "commit", "commit_whole", "engine", "family",
        "flow", "in_slot", "keep", "lease", "log", "parent", "performing", "resources", "run",
        "slot_lock", "spending", "task", "telling", "waiting_calls",
    )  # fmt: skip

    def __init__(
        self, engine: Process, flow: Flow, run: Run, lease: Lease, parent: Work | None = None
    ) -> None:
        self.engine = engine
        self.flow = flow
        self.run = run
        self.lease = lease
        self.clock = engine.clock
        self.parent = parent
        """The parent run, when that is under way in this process too."""
        above: Spending | None = None if parent is None else parent.spending
        self.spending: Spending = Spending(engine.clock, run, above)
        self.log = Log(engine.store, engine.clock, flow, run, lease, self.spending, engine, self)
        self.commit = self.log.commit
        self.commit_whole = self.log.commit_whole
        self.keep = self.log.keep
        self._lapses = engine.leases.lapses
        self._waiters: list[asyncio.Future[Run | None]] = []
        self.cancellation: Cancellation | None = None
        """Set once the run is to be cancelled; with `undo`, once its effects are settled."""
        self.task: asyncio.Task[Any] | None = None
        """The task that drives the run."""
        self.performing = False
        """Effects are being performed: the run must not be cut off now."""
        self.calls: Sequence[Future[Any]] = ()
        """What the effect under way has running in threads."""
        self.in_slot = False
        """True while this run counts against the engine's concurrency."""
        self.waiting_calls = 0
        """How many of the step's calls wait aside just now."""
        self.slot_lock: asyncio.Lock | None = None
        self.family: dict[str, Any] = {} if parent is None else parent.family
        """What the performer keeps for this run and its children while they are under way."""
        self.resources = RunResources(self)
        """What is open for the run's tools while it is under way here."""
        self.telling = True
        """Somebody may listen to what is told of every step; asked once a visit."""

    def used(self) -> dict[str, float]:
        """What counts against the run's budget, with what is paid already and waits for the next commit."""
        used = self.spending.used()
        _, spend = uncommitted(self.log.withheld)
        used["tokens"] += spend.tokens
        used["cost_usd"] += spend.cost_usd
        return used

    async def act(
        self,
        ctx: Any,
        round_effects: Sequence[tuple[str, Any]],
        *,
        side: bool = False,
        by: str = "handler",
        withhold: bool = False,
        confirm: str | None = None,
    ) -> None:
        """Perform effects that a step asks for before it goes on; a driver does."""
        raise NotImplementedError

    @property
    def origin(self) -> str:
        """The root of the runs that a fork, or what is below it, came from; empty where it came from none."""
        return str(self.run.config.get(ORIGIN, ""))

    def show_progress(self, step: str, done: float | None, of: float | None, text: str) -> None:
        """Show how far the work has come to those who watch; from any thread, and in no journal."""
        if self.task is not None:
            progress = Progress(done, of, text)
            self.engine.observers.progress(self.task.get_loop(), self.run, step, progress)

    async def _begun(self, key: str, facts: Mapping[str, Any]) -> None:
        """Journal facts about the effect that is being performed."""
        if self.run.begun != key or self.run.proposal is None:
            return  # a call inside an opaque step, which is no effect of its own
        line = await self.engine.store.effect(self.run.id, key)
        assert line is not None
        (entry,) = await self.engine.store.entries(self.run.id, after=line.seq - 1, limit=1)
        assert isinstance(entry.body, EffectBegun)
        await self.commit_whole(replace(entry.body, facts={**entry.body.facts, **to_plain(dict(facts))}))

    def effect_call(self, key: str, attempt: int, intent: Mapping[str, Any] | None = None) -> EffectCall:
        """What a tool may know about a call of this run."""
        proposal = self.run.proposal
        by = proposal.by if proposal is not None else "handler"
        step = proposal.step if proposal is not None else self.run.state
        return EffectCall(
            self.run.id, key, attempt, self.origin, by, str(self.run.config.get(ROOT, "")),
            lambda done=None, of=None, text="": self.show_progress(step, done, of, text),
            lambda **facts: self._begun(key, facts), intent or {},
        )  # fmt: skip

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

    def afford(self, cap: Budget | None = None) -> None:
        """Raise `BudgetExceededError` before something is paid for that no budget covers any more."""
        self.spending.afford(cap, lambda: self.engine.may_spend(self.flow, self.run))

    async def confirm(self) -> None:
        """Before what cannot be undone: raise `Fenced` if the run may have been taken over, and was."""
        self._lapses = await self.engine.leases.confirm(self.lease, self._lapses)

    @property
    def unstopped(self) -> bool:
        """True while a thread still performs an effect of this run, whether or not it is under way."""
        return any(not call.done() for call in self.calls)
