"""A run: what its journal adds up to.

`Run.apply` is the only place where a journal line changes anything. Folding all lines, folding the lines
after a saved fold, and the object a driver holds while it works are the same thing, and tests keep it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from detent.kernel.budget import NOTHING, Budget, Spend
from detent.kernel.effect_key import action_of
from detent.kernel.entries import (
    AttemptFailed,
    Body,
    CalledOff,
    ChildEnded,
    Claimed,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Forked,
    Held,
    Migrated,
    Moved,
    Noted,
    Proposed,
    Recorded,
    Released,
    Reopened,
    Started,
    Tagged,
    body_from_plain,
    body_to_plain,
)
from detent.kernel.errors import HoldNotOpen
from detent.kernel.hold_token import HoldToken
from detent.kernel.plain import copied
from detent.kernel.status import Status

SEEN = "seen/"
"""Prefix of the records that hold query answers on which a round rests."""


class Run:
    """Current standing of a run, folded from its journal."""

    __slots__ = (
        "answered_by", "answers", "attempts", "begun", "beside", "budget", "called_off", "children",
        "children_spend", "children_steps", "config", "created_at", "data", "done", "effect_attempts",
        "entered_at", "epoch", "error", "failure", "fingerprint", "flow", "forked_from", "held_at",
        "holds", "id", "iterations", "let_in", "machine", "ordered", "parent", "proposal", "reason",
        "records", "retry_at", "returns", "round", "seconds", "seq", "settled", "side_spend", "spend",
        "state", "status", "steps", "tags", "takeovers", "touched", "updated_at", "version",
        "visit_seconds", "visit_spend", "visits",
    )  # fmt: skip

    def __init__(self, run_id: str) -> None:
        self.id = run_id
        self.flow = ""
        self.machine = ""
        self.version = 0
        self.fingerprint = ""
        self.parent: str | None = None
        self.forked_from: dict[str, Any] | None = None
        self.config: dict[str, Any] = {}
        self.budget: Budget | None = None
        self.tags: list[str] = []
        self.state = ""
        self.status = Status.RUNNING
        self.reason: str | None = None
        self.error: str | None = None
        self.data: dict[str, Any] = {}
        self.beside: Mapping[str, Any] = {}
        """Values that stand in `data` as references only, once somebody has looked them up; in no fold."""
        self.seq = 0
        self.epoch = 0
        self.created_at = 0.0
        self.updated_at = 0.0
        self.entered_at = 0.0
        self.spend = NOTHING
        """Spend of the visits that are over: what the moves say."""
        self.side_spend = NOTHING
        """Spend beside the moves: comparisons, visits that led nowhere."""
        self.steps = 0
        self.seconds = 0.0
        self.visits: dict[str, int] = {}
        """Times each state was left."""
        self.returns: dict[str, int] = {}
        """Times a state was entered again by reopening the run: the visit it had left goes on."""
        self.iterations = 0
        self.children_spend = NOTHING
        self.children_steps = 0
        self.takeovers = 0
        """Take-overs since the run last made progress."""
        # What belongs to the visit of the current state and is forgotten when it is left:
        self.visit_spend = NOTHING
        """Spent so far in this visit; the move out of it will say the whole."""
        self.visit_seconds = 0.0
        self.attempts = 0
        """Failed attempts."""
        self.retry_at: float | None = None
        self.proposal: Proposed | None = None
        self.done: dict[str, Any] = {}
        """Receipts of the proposal's effects, by key; a skipped one has None."""
        self.begun: str | None = None
        """Key of the effect that is in doubt until settled."""
        self.effect_attempts = 0
        self.failure: dict[str, Any] | None = None
        """The effect that failed for good, for the step to look at when it is asked once more."""
        self.holds: dict[str, Held] = {}
        self.held_at: dict[str, int] = {}
        """Number of the entry that asked, by the name of the hold; with the name it is the hold's token."""
        self.answers: dict[str, Any] = {}
        self.answered_by: dict[str, list[Any]] = {}
        """Who answered, and when."""
        self.records: dict[str, Any] = {}
        self.round = 0
        """Rounds proposed after which the step goes on."""
        self.settled: dict[str, dict[str, Any]] = {}
        """Effects of the rounds that are over, by key, in order: `tool`, `args`, who asked (`by`), and the
        `receipt` (with `skipped` if a person left it out), or `code` and `message` of one that failed for
        good."""
        self.ordered = 0
        """How many of them the step asked for one after another."""
        self.let_in = False
        """An attempt at the step has written something: it passed the budget when it began, and need not
        again.
        """
        self.touched = True
        """Something of the above may be set."""
        self.called_off: dict[str, str] | None = None
        """Reason and by whom, once the run is to undo what it did as soon as its step is settled."""
        self.children: dict[str, str] = {}
        """Ended children, id to status: whoever asks for one again gets it as it is, and pays for it once."""

    def __repr__(self) -> str:
        return f"Run({self.id}: {self.flow} in {self.state!r}, {self.status.value}, {self.seq} entries)"

    @property
    def whole(self) -> dict[str, Any]:
        """The data with what lies beside the journal in its place, as far as that was looked up."""
        return {**self.data, **self.beside} if self.beside else self.data

    # -- holds ----------------------------------------------------------------------------------------------

    def token(self, name: str | None = None) -> str:
        """The token of an open hold, which names this very question; `release` and `resolve` take it.

        Without a name, that of the only hold that can be answered.

        Raises: HoldNotOpen where there is none, or no name and several.
        """
        if name is None:
            names = [hold.name for hold in self.holds.values() if hold.why != "children"]
            if len(names) > 1:
                raise self.not_open("", f"Run {self.id} has {len(names)} open holds; name one of them.")
            if not names:
                raise self.not_open("", f"Run {self.id} has no open hold.")
            name = names[0]
        elif name not in self.held_at:
            raise self.not_open(name, f"Run {self.id} has no open hold '{name}'.")
        return str(HoldToken(name, self.held_at[name]))

    def not_open(self, hold: str, why: str) -> HoldNotOpen:
        """The error that a hold is not open: `why`, and what the run asks now."""
        tokens = [self.token(name) for name, held in self.holds.items() if held.why != "children"]
        if self.status is Status.WAITING and self.holds:
            questions = [
                f"'{self.token(name)}'" + (f" ({held.question[:200]})" if held.question else "")
                for name, held in self.holds.items()
            ]
            return HoldNotOpen(self.id, hold, why, f"Open now: {', '.join(questions)}.", tokens)
        how = f"has ended as {self.status.value}" if self.status.is_end else f"is {self.status.value}"
        return HoldNotOpen(
            self.id, hold, why, f"Run {self.id} {how} and does not wait for an answer.", tokens
        )

    @property
    def visit(self) -> int:
        """Number of the visit of the current state, from 0; reopening continues the visit it had left."""
        return self.visits.get(self.state, 0) - self.returns.get(self.state, 0)

    # -- totals ---------------------------------------------------------------------------------------------

    @property
    def total_spend(self) -> Spend:
        """Everything spent so far, ended children included."""
        if self.children_spend is NOTHING and self.side_spend is NOTHING and self.visit_spend is NOTHING:
            return self.spend
        return self.spend + self.visit_spend + self.side_spend + self.children_spend

    def used(self) -> dict[str, float]:
        """What counts against a budget."""
        total = self.total_spend
        return {
            "tokens": total.tokens,
            "cost_usd": total.cost_usd,
            "steps": self.steps + self.children_steps,
            "seconds": self.seconds + self.visit_seconds,
        }

    def total_metrics(self) -> dict[str, Any]:
        """The six figures metric observers get after every move."""
        return {
            "total_duration_seconds": self.seconds,
            "total_tokens": self.spend.tokens,
            "total_transitions": self.steps,
            "iteration_count": self.iterations,
            "state_visits": dict(self.visits),
            "current_state": self.state,
        }

    # -- folding --------------------------------------------------------------------------------------------

    @classmethod
    def fold(cls, run_id: str, entries: Iterable[Entry]) -> Run:
        """The run a whole journal adds up to."""
        run = cls(run_id)
        for entry in entries:
            run.apply(entry)
        return run

    def apply(self, entry: Entry) -> None:
        """Take in the next line."""
        if entry.seq != self.seq + 1:
            raise ValueError(f"Journal of {self.id}: entry {entry.seq} cannot follow entry {self.seq}.")
        body = entry.body
        if type(body) is Moved:
            self._moved(body, entry.at)
        else:
            self.touched = True
            _APPLY[type(body)](self, body, entry.at)
        self.seq = entry.seq
        self.epoch = entry.epoch
        self.updated_at = entry.at

    def _started(self, body: Started, at: float) -> None:
        self.flow = body.flow
        self.machine = body.machine
        self.version = body.version
        self.fingerprint = body.fingerprint
        self.state = body.state
        self.data = copied(body.data)
        self.parent = body.parent
        self.budget = Budget.from_plain(body.budget)
        self.config = copied(body.config)
        self.tags = list(body.tags)
        self.forked_from = body.forked_from
        self.created_at = at
        self.entered_at = at

    def _moved(self, body: Moved, at: float) -> None:
        if body.set or body.append:
            self._change(body.set, body.append)
        self.state = body.to
        self.steps += 1
        self.seconds += body.duration
        if body.spend is not NOTHING:
            self.spend += body.spend
        self.visits[body.frm] = self.visits.get(body.frm, 0) + 1
        if body.iteration:
            self.iterations += 1
        self.entered_at = at
        if self.touched:  # an undisturbed visit leaves nothing to forget
            self.takeovers = 0
            self._leave(ending=body.status is not None)
            self.touched = False
            if self.status is Status.WAITING:  # cancelled while it waited, and about to undo what it did
                self.status = Status.RUNNING
        self.reason = body.reason
        if body.status is not None:
            self.status = body.status
            if body.detail and "error" in body.detail:
                self.error = body.detail["error"]

    def _change(self, changes: Mapping[str, Any], additions: Mapping[str, Any]) -> None:
        data = self.data
        for key, value in changes.items():
            data[key] = copied(value)
        for key, items in additions.items():
            current = data.get(key)
            if type(current) is list:
                current.extend(copied(items))
            elif current is None:
                data[key] = copied(items)
            else:
                raise ValueError(f"'{key}' is not a list, so nothing can be appended to it.")

    def _leave(self, ending: bool = False) -> None:
        self.attempts = 0
        self.retry_at = None
        self.failure = None
        self.visit_spend = NOTHING
        self.visit_seconds = 0.0
        self._settle()
        if self.holds:
            self._drop_holds()
        if self.answers:
            self.answers = {}
            self.answered_by = {}
        if self.round and ending:  # a reopened run goes on with the same visit
            return
        if self.records:
            self.records = {}
        if self.round:
            self.round = 0
            self.settled = {}
            self.ordered = 0

    def _settle(self) -> None:
        self.let_in = False
        self.proposal = None
        self.begun = None
        self.effect_attempts = 0
        if self.done:
            self.done = {}

    def _attempt_failed(self, body: AttemptFailed, at: float) -> None:
        self.let_in = False
        self.attempts = body.attempt
        self.retry_at = body.retry_at
        self._spent(body.spend, body.duration)

    def _spent(self, spend: Spend, seconds: float) -> None:
        self.visit_spend += spend
        self.visit_seconds += seconds

    def _proposed(self, body: Proposed, at: float) -> None:
        if body.round != self.round + 1:
            raise ValueError(f"Journal of {self.id}: round {body.round} cannot follow round {self.round}.")
        if not body.final:
            self.round = body.round
        self.proposal = body
        self.done = {}
        self.begun = None
        self.effect_attempts = 0
        self._spent(body.spend, body.duration)

    def _effect_begun(self, body: EffectBegun, at: float) -> None:
        self.begun = body.key

    def _effect_done(self, body: EffectDone, at: float) -> None:
        self.done[body.key] = copied(body.receipt)
        self.begun = None
        self.effect_attempts = 0
        self.retry_at = None
        self.takeovers = 0
        self.visit_seconds += body.duration
        told = {"told": True} if body.how == "told" else {}
        # Who drives the run later may want to know that the receipt is from before.
        self._round_over(body.key, {"receipt": copied(body.receipt), "epoch": self.epoch, **told})

    def _round_over(self, key: str, settled: dict[str, Any]) -> None:
        """Keep how an effect was settled, if its step goes on; the last one ends the round."""
        proposal = self.proposal
        if proposal is None or proposal.final:
            return
        item = next((item for item in proposal.effects if item["key"] == key), None)
        if item is not None:
            settled |= {"tool": item["tool"], "args": copied(item["args"]), "by": proposal.by}
        self.settled[key] = settled
        if all(item["key"] in self.settled for item in proposal.effects):
            self.ordered += 0 if proposal.side else len(proposal.effects)
            self._settle()

    def _effect_failed(self, body: EffectFailed, at: float) -> None:
        self.begun = None
        self.effect_attempts = body.attempts
        self.retry_at = body.retry_at
        if body.retry_at is None and self.proposal is not None and not self.proposal.final:
            self.effect_attempts = 0
            self._round_over(body.key, {"code": body.code, "message": body.message})
        elif body.retry_at is None:
            # The proposal did not come about: the step is asked once more and told why.
            performed = sorted(self.done)
            failed = self.failure["failed"] if self.failure else []
            proposal = self.proposal
            self._settle()
            self.failure = {
                "function": body.tool,
                "code": body.code,
                "message": body.message,
                "attempts": body.attempts,
                "key": action_of(body.key),
                "performed": performed,
                "failed": [*failed, action_of(body.key)],
                "by": proposal.by if proposal is not None else "handler",
                "detail": copied(proposal.detail) if proposal is not None else {},
            }

    def _effect_skipped(self, body: EffectSkipped, at: float) -> None:
        self.done[body.key] = None
        self.begun = None
        self.effect_attempts = 0
        more = {"why": body.why, "instead": body.instead}
        skipped = {"receipt": None, "skipped": True, **{name: text for name, text in more.items() if text}}
        self._round_over(body.key, skipped)

    def _recorded(self, body: Recorded, at: float) -> None:
        self.records[body.key] = copied(body.value)
        self.let_in = True
        self.visit_spend += body.spend

    def _child_ended(self, body: ChildEnded, at: float) -> None:
        if body.run not in self.children:
            self.children_spend += body.spend
            self.children_steps += body.steps
        self.children[body.run] = body.status.value
        self.let_in = True
        self.takeovers = 0

    def _held(self, body: Held, at: float) -> None:
        self.holds[body.name] = body
        self.held_at[body.name] = self.seq + 1
        self.status = Status.WAITING
        self.retry_at = None
        self.let_in = False
        self._spent(body.spend, body.duration)

    def _released(self, body: Released, at: float) -> None:
        self.holds.pop(body.name, None)
        self.held_at.pop(body.name, None)
        self.let_in = False
        self.answers[body.name] = copied(body.answer)
        self.answered_by[body.name] = [body.by, at]
        self.takeovers = 0
        if not self.holds:
            self.status = Status.RUNNING

    def _drop_holds(self) -> None:
        self.holds = {}
        self.held_at = {}

    def _claimed(self, body: Claimed, at: float) -> None:
        self.takeovers += 1

    def _noted(self, body: Noted, at: float) -> None:
        self.side_spend += body.spend
        if not body.aside:
            self.let_in = True

    def _tagged(self, body: Tagged, at: float) -> None:
        remaining = [tag for tag in self.tags if tag not in body.remove]
        self.tags = list(dict.fromkeys([*remaining, *body.add]))

    def _migrated(self, body: Migrated, at: float) -> None:
        self.version = body.version
        self.fingerprint = body.fingerprint
        if body.machine is not None:
            self.machine = body.machine
        self._change(body.set, {})
        if body.state != self.state:
            self.state = body.state
            self.entered_at = at
            self.side_spend += self.visit_spend
            self._leave()
            if self.status is Status.WAITING:
                self.status = Status.RUNNING

    def _forked(self, body: Forked, at: float) -> None:
        self._change(body.set, {})
        self.config.update(copied(body.config))
        if body.budget is not None:
            self.budget = Budget.from_plain(body.budget)
        self._settle()
        self.called_off = None
        self.retry_at = None
        self.attempts = 0
        self.takeovers = 0
        self._drop_holds()
        self.status = Status.RUNNING
        self.reason = None
        self.error = None

    def _called_off(self, body: CalledOff, at: float) -> None:
        self.called_off = {"reason": body.reason, "by": body.by}

    def _reopened(self, body: Reopened, at: float) -> None:
        self.let_in = False
        self.called_off = None
        self.status = Status.RUNNING
        self.reason = None
        self.error = None
        self.retry_at = None
        self.attempts = 0
        self.takeovers = 0
        self.failure = None
        while self.settled and not {"code", "why"}.isdisjoint(self.settled[next(reversed(self.settled))]):
            self.settled.popitem()  # what failed last, and was left out because of it, is tried again
            self.ordered = max(0, self.ordered - 1)
        if body.budget is not None:
            self.budget = Budget.from_plain(body.budget)
        if body.state != self.state:
            self.state = body.state
            self.entered_at = at
            self.side_spend += self.visit_spend
            self.returns[body.state] = self.returns.get(body.state, 0) + 1
            self._leave(ending=True)
        elif self.begun is None:
            self._settle()  # the step decides anew; an effect in doubt is settled first

    def _ended(self, body: Ended, at: float) -> None:
        self._change(body.set, body.append)
        self.status = body.status
        self.reason = body.reason
        self.error = body.error
        self.spend += self.visit_spend + body.spend
        self.seconds += self.visit_seconds + body.duration
        self.visit_spend = NOTHING
        self.visit_seconds = 0.0
        self.retry_at = None
        self._drop_holds()

    # -- saved folds ----------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """The whole standing as plain values, to be saved and read back. Not copied: encode it at once."""
        return {
            "id": self.id,
            "flow": self.flow,
            "machine": self.machine,
            "version": self.version,
            "fingerprint": self.fingerprint,
            "parent": self.parent,
            "forked_from": self.forked_from,
            "config": self.config,
            "budget": self.budget.to_plain() if self.budget else None,
            "tags": self.tags,
            "state": self.state,
            "status": self.status.value,
            "reason": self.reason,
            "error": self.error,
            "data": self.data,
            "seq": self.seq,
            "epoch": self.epoch,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "entered_at": self.entered_at,
            "spend": self.spend.to_plain(),
            "side_spend": self.side_spend.to_plain(),
            "visit_spend": self.visit_spend.to_plain(),
            "visit_seconds": self.visit_seconds,
            "steps": self.steps,
            "seconds": self.seconds,
            "visits": self.visits,
            "iterations": self.iterations,
            "children_spend": self.children_spend.to_plain(),
            "children_steps": self.children_steps,
            "takeovers": self.takeovers,
            "attempts": self.attempts,
            "retry_at": self.retry_at,
            "proposal": body_to_plain(self.proposal) if self.proposal else None,
            "done": self.done,
            "begun": self.begun,
            "effect_attempts": self.effect_attempts,
            "failure": self.failure,
            "holds": [body_to_plain(hold) for hold in self.holds.values()],
            "held_at": self.held_at,
            "answers": self.answers,
            "answered_by": self.answered_by,
            "records": self.records,
            "let_in": self.let_in,
            "called_off": self.called_off,
            "children": self.children,
            "round": self.round,
            "settled": self.settled,
            "ordered": self.ordered,
            "returns": self.returns,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Run:
        """Read back what `to_plain` wrote. Takes `plain` over: the caller must not keep it."""
        run = cls(plain["id"])
        for name in _AS_IS:
            setattr(run, name, plain[name])
        run.answered_by = plain.get("answered_by", {})  # folds of version 0.1 have none
        run.called_off = plain.get("called_off")
        run.held_at = plain.get("held_at", {})
        run.round = plain.get("round", 0)  # folds of version 0.2 have no rounds
        run.settled = plain.get("settled", {})
        run.ordered = plain.get("ordered", 0)
        run.returns = plain.get("returns", {})
        run.status = Status(plain["status"])
        run.budget = Budget.from_plain(plain["budget"])
        run.spend = Spend.from_plain(plain["spend"])
        run.side_spend = Spend.from_plain(plain["side_spend"])
        run.visit_spend = Spend.from_plain(plain["visit_spend"])
        run.children_spend = Spend.from_plain(plain["children_spend"])
        if plain["proposal"] is not None:
            proposal = body_from_plain("proposed", plain["proposal"])
            assert isinstance(proposal, Proposed)
            run.proposal = proposal
        for hold in plain["holds"]:
            held = body_from_plain("held", hold)
            assert isinstance(held, Held)
            run.holds[held.name] = held
        return run


_AS_IS = (
    "flow", "machine", "version", "fingerprint", "parent", "forked_from", "config", "tags", "state", "reason",
    "error", "data", "seq", "epoch", "created_at", "updated_at", "entered_at", "steps", "seconds", "visits",
    "iterations", "children_steps", "takeovers", "attempts", "retry_at", "done", "begun",
    "effect_attempts", "failure", "answers", "records", "let_in", "children", "visit_seconds",
)  # fmt: skip

_APPLY: dict[type[Body], Callable[[Run, Any, float], None]] = {
    Started: Run._started,
    Moved: Run._moved,
    AttemptFailed: Run._attempt_failed,
    Proposed: Run._proposed,
    EffectBegun: Run._effect_begun,
    EffectDone: Run._effect_done,
    EffectFailed: Run._effect_failed,
    EffectSkipped: Run._effect_skipped,
    Recorded: Run._recorded,
    ChildEnded: Run._child_ended,
    Held: Run._held,
    Released: Run._released,
    Claimed: Run._claimed,
    Noted: Run._noted,
    Tagged: Run._tagged,
    Migrated: Run._migrated,
    Forked: Run._forked,
    CalledOff: Run._called_off,
    Reopened: Run._reopened,
    Ended: Run._ended,
}
