"""An exhaustive model of the rounds of a visit: every interleaving of two workers, an agent and a person.

Real, as in the product: the entries of the journal, their fold (`Run.apply`; saved and read back after every
commit), the keys of effects, the placeholders of receipts, and the tokens of holds.

A picture of the product, because the engine is asynchronous and talks to ports:

- the driver and its effects (`engine.driver`, `engine.effects`): what a worker does next follows from the
  fold it has read and from what it has in hand and has not written yet;
- the passes of a handler (`ctx.perform`, `ctx.query`): from the top each time, which is what a handler kept
  in memory must be equal to;
- the dispatch of an agent: an answer is journaled as `agent/<round>/answer`, its effects are a round of their
  own, and a fallback is journaled before the handler's first effect;
- the store: a commit is written whole, or the worker finds that another has taken the run over;
- the world: the effects that happened, by key. An effect is performed right after the lease was confirmed.

A test compares the journals of engine and model, so that the picture stays true where no agent is asked.

Not in the model: a pause between that confirmation and the call, calls that go on after their worker is gone
(`effects._over` waits for them), failing stores, effects that are retried, cancellation, shadows. The entry
`claimed` is left out too, so that equal journals are equal states: nothing in a round depends on it.

There are two workers at most: the driver, and a stale one that was paused and goes on. A dead worker is one
that is never heard of again; whichever takes over starts with the journal alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from detent.kernel.effect_key import action_of, effect_key
from detent.kernel.entries import (
    Body,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Held,
    Moved,
    Proposed,
    Recorded,
    Released,
    Started,
    body_to_plain,
)
from detent.kernel.hold_token import HoldToken
from detent.kernel.placeholders import STAND_IN, fill
from detent.kernel.plain import decode, encode
from detent.kernel.run import SEEN, Run
from detent.kernel.status import Status
from tests.kernel.rounds_scenario import (
    FAILED,
    Answer,
    End,
    Finish,
    Look,
    Refused,
    Scenario,
    expected_end,
    go_on,
    receipt_of,
)

STEP = "work"
FALLBACK = "fallback"
DIVERGED = "diverged"
CLAIMED = 99
"""What an agent claims of an effect before it happened."""
MOST_COMMITS = 30
"""More than any run here needs, so that every search ends."""
BYTES_A_ROUND = 1000
BYTES_AN_EFFECT = 80


class Law(Enum):
    """What must hold in every state."""

    ONCE = "no effect happens twice under one key, unless it is idempotent"
    RECEIPT = "a receipt is what the world gave, and is written once"
    END = "every end follows from the journaled answers alone"
    FALLBACK = "a fallback repeats nothing and ends as the handler does, or not at all"
    CONSENT = "an effect that a person must confirm happens after a yes to this very effect"
    FENCE = "only the worker that holds the run writes"
    FOLD = "the fold accepts what workers write"
    WAY_OUT = "every state can reach an end"
    COMMITS = "undisturbed, a round costs one commit and one more for each effect, and the move one"
    BYTES = "a round writes the same number of bytes, however many came before"


class Flaw(Enum):
    """Errors planted in the model; each is plausible, and a friendly test would pass with it."""

    RECEIPT_FROM_ANSWER = "the receipt is what the agent claimed"
    ROUND_IN_MEMORY = "the number of the round is counted by the worker"
    FENCE_WITHOUT_EPOCH = "a commit is fenced by its sequence number alone"
    KEY_BY_POSITION = "an effect's key is its place among the effects of the visit"
    KEY_BY_ACTION = "an effect's key is its action alone"
    ACT_BEFORE_COMMIT = "an effect is performed before it is written down"
    NO_CONFIRMATION = "the lease is not confirmed before an effect"
    REPEAT_IN_DOUBT = "an effect in doubt is repeated"
    PROBE_BY_ARGUMENTS = "a probe by arguments is asked about the second of equal effects"
    FALLBACK_FROM_SCRATCH = "the handler does not find the agent's effects"
    HANDLER_OVER_FOREIGN_EFFECTS = "the handler goes on over effects that it would not perform"
    FALLBACK_IN_MEMORY = "the decision to fall back is not journaled"
    MEMO_OUTLIVES_EFFECTS = "a query is answered as before the effect"
    ANSWER_NOT_BOUND = "an answer is taken for whichever question is open"
    CONVERSATION_REWRITTEN = "every round writes the whole conversation"
    DIVERGENCE_CHECKED_ONCE = "the agent's effects are matched only when the handler takes over"
    LIVE_QUERIES = "a query is made again when the step is called again"
    REFUSAL_FORGOTTEN = "an effect that was refused is tried afresh when the step is called again"
    DOUBT_LEFT_ALONE = "an effect in doubt is left to the worker that began it"
    BEGUN_BY_ITSELF = "a proposal is committed before the beginning of its first effect"


class Broken(Exception):
    """A law does not hold."""

    def __init__(self, law: Law, detail: str) -> None:
        super().__init__(f"{law.value}: {detail}")
        self.law = law


# -- the journal --------------------------------------------------------------------------------------------


class Journal:
    """A journal, made of commits. Equal journals are the same object, so that states compare quickly."""

    __slots__ = ("_next", "_saved", "bodies", "commits", "receipts", "run")

    def __init__(self, run: Run, bodies: tuple[Body, ...], commits: int, receipts: dict[str, Any]) -> None:
        self._saved = encode(run.to_plain())
        self.run = Run.from_plain(decode(self._saved))
        self.bodies = bodies
        self.commits = commits
        self.receipts = receipts
        """Effects of the whole run that are settled, by key, as the ledger has them."""
        self._next: dict[str, Journal] = {}

    @classmethod
    def start(cls) -> Journal:
        """A run that has just been started."""
        run = Run("r")
        started = Started("flow", STEP, "flow", 1, "")
        run.apply(Entry(1, 0.0, 0, started))
        return cls(run, (started,), 0, {})

    def write(self, bodies: Sequence[Body]) -> Journal:
        """This journal with one more commit."""
        text = encode([[body.kind, body_to_plain(body)] for body in bodies])
        if (known := self._next.get(text)) is not None:
            return known
        run = Run.from_plain(decode(self._saved))
        receipts = dict(self.receipts)
        for body in bodies:
            try:
                run.apply(Entry(run.seq + 1, 0.0, 0, body))
            except ValueError as error:
                raise Broken(Law.FOLD, str(error)) from error
            if isinstance(body, EffectFailed) and body.retry_at is not None:
                continue
            if isinstance(body, EffectDone | EffectSkipped | EffectFailed):
                reused = isinstance(body, EffectDone) and body.how == "reused"
                if body.key in receipts and not reused:
                    raise Broken(Law.RECEIPT, f"{body.key} is settled twice")
                receipts[body.key] = body.receipt if isinstance(body, EffectDone) else None
            if isinstance(body, Recorded) and body.key.startswith("agent/") and body.key in self.run.records:
                raise Broken(Law.END, f"{body.key} is overwritten")
        if self.commits == MOST_COMMITS:
            raise Broken(Law.WAY_OUT, f"no end after {MOST_COMMITS} commits")
        proposed = [body for body in bodies if isinstance(body, Proposed)]
        effects = sum(len(body.effects) for body in proposed)
        if proposed and len(text) > BYTES_A_ROUND + BYTES_AN_EFFECT * effects:
            raise Broken(Law.BYTES, f"round {proposed[0].round} writes {len(text)} bytes")
        journal = Journal(run, (*self.bodies, *bodies), self.commits + 1, receipts)
        self._next[text] = journal
        return journal


# -- states -------------------------------------------------------------------------------------------------


World = tuple[tuple[str, str], ...]
"""Key and action of the effects that happened, in order."""


class Worker(NamedTuple):
    """A worker that drives the run, or believes it does: what it has read, and has not written yet."""

    view: Journal
    answer: Answer | None = None
    """The agent's answer."""
    seen: tuple[tuple[str, int], ...] = ()
    """Answers to queries, by the name of their record."""
    begun: str | None = None
    """Key of the effect that it is about to perform."""
    receipt: tuple[str, Any] | None = None
    """Key of the effect it has performed or found, and how many equal ones happened up to it; 0: refused."""
    rounds: int = 0
    fell_back: bool = False
    """Both only for the errors that keep them in memory."""


class State(NamedTuple):
    """Everything there is at one moment."""

    journal: Journal
    driver: Worker | None = None
    """Holds the run; None while it is parked."""
    stale: Worker | None = None
    """Was paused and does not know that the run was taken over."""
    world: World = ()
    click: tuple[str, str] | None = None
    """Token and answer that a person may send a second time."""
    consents: frozenset[str] = frozenset()
    """Keys of the effects that a person has said yes to."""
    takeovers: int = 0


class Know(NamedTuple):
    """A worker learns something, and writes nothing."""

    label: str
    worker: Worker


class Write(NamedTuple):
    """A worker commits entries."""

    bodies: Sequence[Body]
    begun: str | None = None
    """Key of the effect that it will perform next."""


class Act(NamedTuple):
    """A worker performs an effect, or tries to."""

    key: str
    action: str
    refused: bool = False


Move = Know | Write | Act


class Pass(NamedTuple):
    """How far a handler comes, called from its top."""

    effects: tuple[tuple[str, str], ...] = ()
    """Key and action of the effects it came to."""
    query: tuple[str, str] | None = None
    """Name of the record and action of a query that has to be made first."""
    missing: tuple[str, str] | None = None
    """Key and action of the first effect that is not settled."""
    finish: Finish | None = None
    changed: bool = False
    """It did not come to the effects it has performed before, or failed over one that was refused."""


def number_of(world: World, key: str, action: str) -> int:
    """Which of the equal effects the one with this key is, from 1; 0 if it has not happened."""
    keys = list(dict.fromkeys(known for known, done in world if done == action))
    return keys.index(key) + 1 if key in keys else 0


# -- the model ----------------------------------------------------------------------------------------------


class Model:
    """The moves of one scenario, with an error planted or without."""

    def __init__(self, scenario: Scenario, takeovers: int, flaw: Flaw | None = None) -> None:
        self.scenario = scenario
        self.takeovers = takeovers
        self.flaw = flaw

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Every state that may come next, and what leads to it.

        Raises:
            Broken: a law does not hold.
        """
        run = state.journal.run
        if run.status is Status.RUNNING and state.driver is None:
            yield "resume", state._replace(driver=Worker(state.journal))
        if state.driver is not None:
            for move in self._moves(state.driver, state.world):
                label, driver, after = self._made(state, state.driver, move, holds=True)
                yield f"driver {label}", after._replace(driver=driver)
            if state.takeovers < self.takeovers:
                fresh = state._replace(driver=Worker(state.journal), takeovers=state.takeovers + 1)
                yield "driver dies", fresh
                yield "driver pauses", fresh._replace(stale=state.driver)
        if state.stale is not None:
            for move in self._moves(state.stale, state.world):
                label, stale, after = self._made(state, state.stale, move, holds=False)
                yield f"stale worker {label}", after._replace(stale=stale)
        yield from self._person(state)

    def _made(
        self, state: State, worker: Worker, move: Move, *, holds: bool
    ) -> tuple[str, Worker | None, State]:
        """What a worker's move leads to: the worker afterwards, or None if it gives up, and the state."""
        if isinstance(move, Know):
            return move.label, move.worker, state
        if isinstance(move, Act):
            if not holds and self.flaw is not Flaw.NO_CONFIRMATION:
                return "is fenced", None, state
            if move.refused:
                return f"is refused {move.key}", worker._replace(begun=None, receipt=(move.key, 0)), state
            state = self._happens(state, move.key, move.action)
            number = number_of(state.world, move.key, move.action)
            return f"performs {move.key}", worker._replace(begun=None, receipt=(move.key, number)), state
        fenced = not holds and self.flaw is not Flaw.FENCE_WITHOUT_EPOCH
        if fenced or state.journal is not worker.view:
            return "is fenced", None, state
        if not holds:
            raise Broken(Law.FENCE, f"{', '.join(body.kind for body in move.bodies)} by a stale worker")
        self._check_receipts(state, move.bodies)
        journal = state.journal.write(move.bodies)
        after = Worker(journal, begun=move.begun)
        if self.flaw is Flaw.ROUND_IN_MEMORY:
            proposes = any(isinstance(body, Proposed) for body in move.bodies)
            after = after._replace(rounds=worker.rounds + proposes)
        if self.flaw is Flaw.FALLBACK_IN_MEMORY:
            handled = any(isinstance(body, Proposed) and body.by == "handler" for body in move.bodies)
            after = after._replace(fell_back=worker.fell_back or handled)
        label = f"writes {', '.join(body.kind for body in move.bodies)}"
        going_on = journal.run.status is Status.RUNNING
        return label, after if going_on else None, state._replace(journal=journal)

    def _happens(self, state: State, key: str, action: str) -> State:
        """The world after an effect."""
        tool = self.scenario.tools[action]
        if any(key == known for known, _ in state.world):
            if not tool.idempotent:
                raise Broken(Law.ONCE, key)
            return state
        if tool.confirmed and key not in state.consents:
            raise Broken(Law.CONSENT, key)
        return state._replace(world=(*state.world, (key, action)))

    def _check_receipts(self, state: State, bodies: Sequence[Body]) -> None:
        """Receipts about to be written must be what the world gave."""
        for body in bodies:
            if isinstance(body, EffectDone):
                number = number_of(state.world, body.key, body.tool)
                if not number or body.receipt != receipt_of(body.tool, number):
                    raise Broken(Law.RECEIPT, f"{body.key}: {body.receipt}, but the world says {number}")

    # -- the driver -----------------------------------------------------------------------------------------

    def _moves(self, worker: Worker, world: World) -> list[Move]:
        """What a worker may do next: go on with a proposal, or have the agent or the handler decide."""
        run = worker.view.run
        if run.proposal is not None:
            return self._perform(worker, world, run.proposal)
        if not self.scenario.agent or FALLBACK in run.records or worker.fell_back:
            return self._handle(worker, world, [])
        name = f"agent/{self._round(worker)}/answer"
        answer = self._answer(worker)
        if answer is None:
            rounds = self.scenario.agent
            options = rounds[self._round(worker) - 1] if self._round(worker) <= len(rounds) else (FAILED,)
            return [Know(f"hears {_brief(option)}", worker._replace(answer=option)) for option in options]
        notes: list[Body] = []
        if name not in run.records:
            earlier: list[Any] = []
            if self.flaw is Flaw.CONVERSATION_REWRITTEN:
                earlier = [value for key, value in run.records.items() if key.startswith("agent/")]
            notes = [Recorded(name, answer.to_plain(earlier))]
            if self.scenario.answer_first:
                return [Write(notes)]
        return self._judge(worker, world, answer, notes)

    def _round(self, worker: Worker) -> int:
        """Number of the round to propose next."""
        return 1 + (worker.rounds if self.flaw is Flaw.ROUND_IN_MEMORY else worker.view.run.round)

    def _answer(self, worker: Worker) -> Answer | None:
        """The agent's answer for the next round, if it was given."""
        record = worker.view.run.records.get(f"agent/{self._round(worker)}/answer")
        return worker.answer if record is None else Answer.from_plain(record)

    def _judge(self, worker: Worker, world: World, answer: Answer, notes: list[Body]) -> list[Move]:
        """Take an agent's answer, or have the handler go on in its place."""
        run = worker.view.run
        settled = [action for action, _ in self._settled(worker)]
        accepted = answer != FAILED
        if accepted and self.scenario.compared:
            trial = self._follow(worker, trial=True)
            if trial.query is not None:
                return [self._look(worker, world, trial.query)]
            would = [action for _, action in trial.effects]
            if answer.calls:
                asked = [*settled, *answer.calls]
                accepted = would[: len(asked)] == asked
            else:
                accepted = would == settled and trial.finish == Finish(answer.facts)
        if not accepted:
            return self._handle(worker, world, [*notes, Recorded(FALLBACK, "rejected")])
        if not answer.calls:
            receipts = [result for _, result in self._settled(worker)]
            return [Write([*notes, self._moved(run, answer.facts, receipts, "agent")])]
        effects: list[tuple[str, str]] = []
        counts = Counter(settled)
        for action in answer.calls:
            effects.append((self._key(run, action, counts[action], len(settled) + len(effects)), action))
            counts[action] += 1
        proposal = self._proposed(worker, effects, "agent")
        return self._perform(worker, world, proposal, [proposal, *notes, *_seen(worker)])

    def _handle(self, worker: Worker, world: World, notes: list[Body]) -> list[Move]:
        """Have the handler go on."""
        run = worker.view.run
        falls_back = bool(notes) or FALLBACK in run.records
        unchecked = self.flaw in (Flaw.HANDLER_OVER_FOREIGN_EFFECTS, Flaw.FALLBACK_FROM_SCRATCH)
        if self.flaw is Flaw.DIVERGENCE_CHECKED_ONCE:
            unchecked = not notes
        if falls_back and not unchecked:
            trial = self._follow(worker, trial=True)
            if trial.query is not None:
                return [self._look(worker, world, trial.query)]
            if not run.settled.keys() <= {key for key, _ in trial.effects}:
                question = Held(DIVERGED, "attention", "The agent did what code would not do.", ["fail"])
                return [Write([*notes, question])]
        if self.flaw is Flaw.FALLBACK_IN_MEMORY:
            notes = [note for note in notes if not (isinstance(note, Recorded) and note.key == FALLBACK)]
        came = self._follow(worker)
        if came.query is not None:
            return [self._look(worker, world, came.query)]
        if came.changed:
            return [Write([*notes, Ended(Status.FAILED, "the step changed")])]
        if came.missing is not None:
            proposal = self._proposed(worker, [came.missing], "handler")
            return self._perform(worker, world, proposal, [proposal, *notes, *_seen(worker)])
        assert came.finish is not None
        receipts = [_result(run.settled[key]) for key, _ in came.effects]
        if not came.finish.effects:
            return [Write([*notes, self._moved(run, came.finish.facts, receipts, "handler")])]
        effects = [
            (self._key(run, action, 0, number), action) for number, action in enumerate(came.finish.effects)
        ]
        placeholders = [{STAND_IN: action_of(key)} for key, _ in effects]
        outcome = {"facts": came.finish.facts, "receipts": placeholders}
        proposal = self._proposed(worker, effects, "handler", outcome)
        return self._perform(worker, world, proposal, [proposal, *notes])

    def _follow(self, worker: Worker, *, trial: bool = False) -> Pass:
        """Call the handler from its top. A trial goes on over effects that are missing, for comparison."""
        run = worker.view.run
        records = {**run.records, **{name: {"answer": number} for name, number in worker.seen}}
        counts: Counter[str] = Counter()
        if self.flaw is Flaw.FALLBACK_FROM_SCRATCH and self.scenario.agent:
            counts.update(call for answer in _answers(run.records) for call in answer.calls)
        if self.flaw is Flaw.REFUSAL_FORGOTTEN:
            counts.update(action_of(key) for key, settled in run.settled.items() if "code" in settled)
        effects: list[tuple[str, str]] = []
        unknown = False
        handler, result = self.scenario.handler(), None
        while True:
            try:
                request = go_on(handler, result)
            except Refused:
                return Pass(tuple(effects), changed=True)
            except StopIteration as stop:
                changed = not trial and len(effects) < run.ordered
                return Pass(tuple(effects), finish=stop.value, changed=changed)
            if isinstance(request, Look):
                name = self._record(request.action, len(effects))
                if unknown:
                    return Pass(tuple(effects))
                fresh = dict(worker.seen) if self.flaw is Flaw.LIVE_QUERIES else records
                if name not in fresh:
                    return Pass(tuple(effects), query=(name, request.action))
                result = records[name]["answer"]
                continue
            key = self._key(run, request.action, counts[request.action], len(effects))
            counts[request.action] += 1
            if key not in run.settled:
                if not trial:
                    changed = len(effects) < run.ordered
                    return Pass(tuple(effects), missing=(key, request.action), changed=changed)
                unknown = True
            effects.append((key, request.action))
            result = _result(run.settled[key]) if key in run.settled else None

    def _look(self, worker: Worker, world: World, query: tuple[str, str]) -> Know:
        """Make a query."""
        name, action = query
        number = len({key for key, done in world if done == action})
        return Know(f"looks for {action}", worker._replace(seen=(*worker.seen, (name, number))))

    def _record(self, action: str, version: int) -> str:
        """Name of the record of a query, made after so many effects."""
        return f"{SEEN}{action}" if self.flaw is Flaw.MEMO_OUTLIVES_EFFECTS else f"{SEEN}{action}/{version}"

    def _key(self, run: Run, action: str, occurrence: int, position: int) -> str:
        """The key of an effect."""
        if self.flaw is Flaw.KEY_BY_ACTION:
            return action
        if self.flaw is Flaw.KEY_BY_POSITION:
            return effect_key(f"effect-{position}", run.visit, 0)
        return effect_key(action, run.visit, occurrence)

    def _settled(self, worker: Worker) -> list[tuple[str, Any]]:
        """The effects of the visit's rounds in order: the action, and what came of it."""
        run = worker.view.run
        tools = {
            item["key"]: item["tool"]
            for body in worker.view.bodies
            if isinstance(body, Proposed)
            for item in body.effects
        }
        return [(tools[key], _result(settled)) for key, settled in run.settled.items()]

    def _proposed(
        self,
        worker: Worker,
        effects: Sequence[tuple[str, str]],
        by: str,
        outcome: Mapping[str, Any] | None = None,
    ) -> Proposed:
        """A proposal; without an outcome, the step goes on after it."""
        return Proposed(
            STEP,
            dict(outcome or {}),
            [{"key": key, "tool": action, "args": {}} for key, action in effects],
            by=by,
            round=self._round(worker),
            final=outcome is not None,
            side=by == "agent",
        )

    def _moved(self, run: Run, facts: str, receipts: list[Any], by: str) -> Moved:
        """The move that ends a visit; its data are concluded from the receipts."""
        again = run.visits.get(STEP, 0) + 1 < self.scenario.visits
        ends = {"ends": [{"facts": facts, "receipts": receipts}]}
        if again:
            return Moved(STEP, STEP, append=ends, by=by)
        return Moved(STEP, "done", append=ends, by=by, status=Status.SUCCEEDED)

    # -- effects --------------------------------------------------------------------------------------------

    def _perform(
        self,
        worker: Worker,
        world: World,
        proposal: Proposed,
        opening: Sequence[Body] = (),
    ) -> list[Move]:
        """Perform the next effect of a proposal, or end its round. `opening`: it is not yet committed."""
        run = worker.view.run
        pending = list(opening)
        receipts: dict[str, Any] = {} if opening else dict(run.done)
        for item in proposal.effects:
            key, action = item["key"], item["tool"]
            tool = self.scenario.tools[action]
            if key in receipts or key in run.settled:
                continue
            if worker.receipt == (key, 0):
                receipts[key] = None
                pending.append(EffectFailed(key, action, "refused", "nothing was done"))
            elif worker.receipt is not None and worker.receipt[0] == key:
                number = CLAIMED if self.flaw is Flaw.RECEIPT_FROM_ANSWER else worker.receipt[1]
                receipts[key] = receipt_of(action, number)
                pending.append(EffectDone(key, action, receipts[key]))
            elif key in worker.view.receipts:
                receipts[key] = worker.view.receipts[key]
                pending.append(EffectDone(key, action, receipts[key], "reused"))
            elif run.begun == key and not opening:
                if worker.begun == key:
                    return self._act(key, action)
                return self._settle(worker, world, key, action)
            elif tool.confirmed and f"confirm:{key}" not in run.answers:
                question = Held(
                    f"confirm:{key}", "person", f"{action}?", ["yes", "no"], about={"effect": key}
                )
                return [Write([*pending, question])]
            elif self.flaw is Flaw.ACT_BEFORE_COMMIT:
                return self._act(key, action)
            elif self.flaw is Flaw.BEGUN_BY_ITSELF and opening:
                return [Write(pending)]
            else:
                return [Write([*pending, EffectBegun(key, action)], begun=key)]
        if not proposal.final:
            return [Write(pending)]
        by_action = {action_of(key): receipt for key, receipt in receipts.items()}
        filled = fill(proposal.outcome, by_action)
        return [Write([*pending, self._moved(run, filled["facts"], filled["receipts"], proposal.by)])]

    def _act(self, key: str, action: str) -> list[Move]:
        """Perform an effect; some may be refused instead."""
        acts: list[Move] = [Act(key, action)]
        return [*acts, Act(key, action, refused=True)] if self.scenario.tools[action].refuses else acts

    def _settle(self, worker: Worker, world: World, key: str, action: str) -> list[Move]:
        """Settle an effect that another worker has begun: probe it, repeat it, or ask a person."""
        tool = self.scenario.tools[action]
        if self.flaw is Flaw.DOUBT_LEFT_ALONE:
            return []
        if tool.probe and (tool.by_key or key == action_of(key) or self.flaw is Flaw.PROBE_BY_ARGUMENTS):
            found = key if tool.by_key else next((known for known, done in world if done == action), "")
            if number := number_of(world, found, action):
                return [Know(f"finds {key} done", worker._replace(receipt=(key, number)))]
            return [Know(f"finds {key} not done", worker._replace(begun=key))]
        if tool.idempotent or self.flaw is Flaw.REPEAT_IN_DOUBT:
            return self._act(key, action)
        about = {"effect": key, "tool": action}
        choices = ["happened", "again", "skip"]
        return [Write([Held(f"effect:{key}", "attention", f"Did {action} happen?", choices, about=about)])]

    # -- people ---------------------------------------------------------------------------------------------

    def _person(self, state: State) -> Iterator[tuple[str, State]]:
        """A person looks at the world and answers truthfully; each answer may arrive a second time."""
        run = state.journal.run
        if run.status is Status.WAITING:
            for hold in run.holds.values():
                for answer in self._truths(state, hold):
                    token = run.token(hold.name)
                    consents = state.consents | ({hold.about["effect"]} if answer == "yes" else set())
                    asked = state._replace(click=(token, answer), consents=consents)
                    yield f"person answers {answer} to {token}", self._answered(asked, token, answer)
        if state.click is not None:
            token, answer = state.click
            after = self._answered(state._replace(click=None), token, answer)
            yield f"person repeats {answer} to {token}", after

    def _truths(self, state: State, hold: Held) -> Sequence[str]:
        """The answers to a hold that are not false."""
        if not hold.name.startswith("effect:"):
            return hold.choices
        happened = any(key == hold.about["effect"] for key, _ in state.world)
        return ["happened"] if happened else ["again", "skip"]

    def _answered(self, state: State, token: str, answer: str) -> State:
        """The state after an answer: unchanged, unless its question is open."""
        run = state.journal.run
        asked = HoldToken.read(token)
        assert asked is not None
        hold = run.holds.get(asked.name)
        if self.flaw is Flaw.ANSWER_NOT_BOUND:
            hold = next(iter(run.holds.values()), None)
        elif hold is not None and run.held_at[hold.name] != asked.seq:
            hold = None
        if hold is None or answer not in hold.choices:
            return state
        bodies: list[Body] = [Released(hold.name, answer)]
        key = hold.about.get("effect", "")
        action = hold.about.get("tool") or action_of(key)
        if hold.name == DIVERGED:
            bodies.append(Ended(Status.FAILED, DIVERGED, by="person"))
        elif answer == "happened":
            receipt = receipt_of(action, number_of(state.world, key, action))
            bodies.append(EffectDone(key, action, receipt, "told"))
        elif answer == "again":
            bodies.append(EffectFailed(key, action, "told", "it did not happen", 0, 0.0))
        elif answer in ("skip", "no"):
            bodies.append(EffectSkipped(key, action))
        self._check_receipts(state, bodies)
        return state._replace(journal=state.journal.write(bodies), driver=None)

    # -- ends -----------------------------------------------------------------------------------------------

    def check_end(self, state: State) -> None:
        """An ended run must be what an undisturbed one is with the same answers.

        Raises:
            Broken: it is not.
        """
        journal = state.journal
        run = journal.run
        happened = Counter(action for _, action in state.world)
        last = journal.bodies[-1]
        by = last.by if isinstance(last, Moved | Ended) else ""
        reached = End(run.status, run.data.get("ends", []), happened, by)
        expected, fell_back = expected_end(self.scenario, _visits(journal), _not_done(journal))
        if reached != expected:
            raise Broken(Law.FALLBACK if fell_back else Law.END, f"{reached} instead of {expected}")
        if not state.takeovers:
            proposals = [body for body in journal.bodies if isinstance(body, Proposed)]
            holds = sum(isinstance(body, Held) for body in journal.bodies)
            answers = sum(len(visit) for visit in _visits(journal)) if self.scenario.answer_first else 0
            effects = sum(len(body.effects) for body in proposals)
            most = len(proposals) + effects + self.scenario.visits + 2 * holds + answers
            if journal.commits > most:
                raise Broken(Law.COMMITS, f"{journal.commits} commits, at most {most}")


def _result(settled: Mapping[str, Any]) -> Any:
    """What came of an effect of an earlier round, as a visit's data hold it."""
    return {"code": settled["code"]} if "code" in settled else settled["receipt"]


def _brief(answer: Answer) -> str:
    """An answer in a few words."""
    return answer.facts or ", ".join(answer.calls) or "no answer"


def _seen(worker: Worker) -> list[Body]:
    """The query answers in a worker's hand, as entries."""
    return [Recorded(name, {"answer": number}) for name, number in worker.seen]


def _answers(records: Mapping[str, Any]) -> list[Answer]:
    """The journaled answers of the agent, in order."""
    return [Answer.from_plain(value) for key, value in records.items() if key.startswith("agent/")]


def _visits(journal: Journal) -> list[list[Answer]]:
    """The journaled answers of the agent, by visit."""
    visits: list[list[Answer]] = [[]]
    for body in journal.bodies:
        if isinstance(body, Moved):
            visits.append([])
        elif isinstance(body, Recorded):
            visits[-1] += _answers({body.key: body.value})
    return visits


def _not_done(journal: Journal) -> dict[tuple[str, int], Any]:
    """What came of effects that were skipped or refused, by action and which of the equal ones it was."""
    counts: Counter[str] = Counter()
    numbers: dict[str, tuple[str, int]] = {}
    results: dict[tuple[str, int], Any] = {}
    for body in journal.bodies:
        if isinstance(body, Proposed):
            for item in body.effects:
                counts[item["tool"]] += 1
                numbers[item["key"]] = item["tool"], counts[item["tool"]]
        elif isinstance(body, EffectSkipped):
            results[numbers[body.key]] = None
        elif isinstance(body, EffectFailed) and body.retry_at is None:
            results[numbers[body.key]] = {"code": body.code}
    return results


# -- the search ---------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """What a search has found."""

    states: int
    ends: int
    broken: Broken | None = None
    trail: tuple[str, ...] = ()
    """What led to the broken law."""


def search(model: Model) -> Found:
    """Visit every state that can be reached, and stop at the first in which a law does not hold."""
    first = State(Journal.start())
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    leads_to: dict[State, list[State]] = {}
    queue = deque([first])
    ends: list[State] = []
    while queue:
        state = queue.popleft()
        try:
            if state.journal.run.status.is_end:
                model.check_end(state)
                ends.append(state)
            for label, after in model.successors(state):
                leads_to.setdefault(after, []).append(state)
                if after not in came_from:
                    came_from[after] = state, label
                    queue.append(after)
        except Broken as broken:
            return Found(len(came_from), len(ends), broken, _trail(came_from, state))
    way_out = set(ends)
    queue.extend(ends)
    while queue:
        for before in leads_to.get(queue.popleft(), ()):
            if before not in way_out:
                way_out.add(before)
                queue.append(before)
    if stuck := next((state for state in came_from if state not in way_out), None):
        return Found(len(came_from), len(ends), Broken(Law.WAY_OUT, "stuck"), _trail(came_from, stuck))
    return Found(len(came_from), len(ends))


def undisturbed(model: Model) -> Journal:
    """The journal of a run whose handler decides, driven by one worker without a take-over."""
    state = State(Journal.start())
    while not state.journal.run.status.is_end:
        _, state = next(model.successors(state))
    return state.journal


def _trail(came_from: Mapping[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    """What happened until a state was reached."""
    labels: list[str] = []
    while (step := came_from[state]) is not None:
        state, label = step
        labels.append(label)
    return tuple(reversed(labels))
