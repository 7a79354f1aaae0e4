"""The decisions of a run, each with its reason, its grounds, who made it and what it cost.

A decision is a move, an end, a hold, a fallback from agent to handler, an effect that was settled, a
later verdict on a visit, or a change from outside (cancellation, migration, fork, reopening).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from detent.insight.agent_text import VERDICT, further_key, last_word
from detent.insight.decisions import Alternative, Change, Decision, DecisionKind, Look, Performed
from detent.insight.effect_text import how_skipped
from detent.insight.table import Source, Table
from detent.insight.visits import AGENT, FALLBACK
from detent.insight.why_text import UNASKED, error_text
from detent.insight.why_text import render as render
from detent.kernel.budget import Spend
from detent.kernel.effect_key import action_of
from detent.kernel.entries import (
    AttemptFailed,
    CalledOff,
    ChildEnded,
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
)
from detent.kernel.machine import Machine
from detent.kernel.placeholders import fill
from detent.kernel.plain import copied
from detent.kernel.run import Run

DIVERGED = "diverged"
"""Name of the hold in which a person decides about an agent that did what the handler would not."""


def why(entries: Iterable[Entry], machine: Source | None = None) -> list[Decision]:
    """Every decision of a run from its whole journal.

    With its machine (or the description of it) each comes with the alternatives the table allowed; only a
    machine, whose conditions can be asked, says which of them held.
    """
    reader = _Reader(machine)
    for entry in entries:
        reader.read(entry)
    return reader.decisions


class _Reader:
    """Reads a journal entry by entry, folding the run alongside."""

    def __init__(self, source: Source | None) -> None:
        self._table = Table.of(source) if source is not None else None
        self._machine = source if isinstance(source, Machine) else None
        self._run = Run("")
        self.decisions: list[Decision] = []
        self._proposed: Entry | None = None
        self._effects: dict[str, Performed] = {}
        """Effects of the visit, by key."""
        self._looked: list[Look] = []
        """Queries asked in the rounds of the visit."""
        self._agent: Mapping[str, Any] = {}
        """The agent's last reply in the visit."""
        self._further: dict[int, Mapping[str, Any]] = {}
        """The agents' last replies in further steps of the visit, by number."""
        self._fell_back: int | None = None
        """Index of the visit's fallback in the decisions."""
        self._failures: list[str] = []
        self._children: dict[str, str] = {}
        self._waits: dict[str, int] = {}
        """Open holds: name to index in the decisions."""

    def read(self, entry: Entry) -> None:
        """Read the next entry."""
        body = entry.body
        state, changes = self._run.state, self._changes(body)
        spent, seconds = self._run.visit_spend, self._run.visit_seconds
        self._run.apply(entry)
        if isinstance(body, Moved):
            self._moved(entry, body, changes)
        elif isinstance(body, Ended):
            self._ended(entry, body, state, changes, spent + body.spend, seconds + body.duration)
        elif isinstance(body, AttemptFailed):
            self._failures.append(_line(body.error, body.message))
            self._not_by_handler()
        elif isinstance(body, Proposed):
            self._propose(entry, body)
        elif isinstance(body, Recorded):
            self._recorded(entry, body, state)
        elif isinstance(body, EffectBegun | EffectDone | EffectFailed | EffectSkipped):
            self._effect(entry, body, state)
        elif isinstance(body, Noted):
            self._noted(entry, body)
        elif isinstance(body, ChildEnded):
            self._children[body.run] = body.status.value
        elif isinstance(body, Held):
            self._held(entry, body)
        elif isinstance(body, Released):
            self._released(entry, body)
        elif isinstance(body, CalledOff):
            self._add(
                Decision(entry.seq, entry.at, "cancellation", state, by=body.by, reason=body.reason or None)
            )
        elif isinstance(body, Migrated | Forked | Reopened):
            self._from_outside(entry, body, state, changes)

    # -- kinds ----------------------------------------------------------------------------------------------

    def _moved(self, entry: Entry, body: Moved, changes: tuple[Change, ...]) -> None:
        self._fallback(entry, body.detail, body.frm)
        status = body.status.value if body.status is not None else None
        self._add(
            Decision(
                entry.seq, entry.at, "move" if status is None else "end", body.frm, body.to, body.by,
                body.reason, body.event, status, body.attempt, tuple(self._failures), body.duration,
                body.spend, changes, self._looks(body.looked),
                self._alternatives(body.frm, body.to, body.event), self._performed(), self._ended_children(),
                detail=self._with_replies(body.detail) or None,
            )
        )  # fmt: skip
        self._leave()

    def _ended(
        self, entry: Entry, body: Ended, state: str, changes: tuple[Change, ...], spent: Spend, seconds: float
    ) -> None:
        proposal = self._proposed.body if self._proposed is not None else None
        detail = dict(proposal.detail) if isinstance(proposal, Proposed) else {}
        self._fallback(entry, body.detail, state)
        if body.error:
            detail["error"] = body.error
        self._add(
            Decision(
                entry.seq, entry.at, "end", state, None, body.by, body.reason, None, body.status.value,
                body.attempt, tuple(self._failures), seconds, spent, changes, self._looks(body.looked),
                self._alternatives(state, None, None), self._performed(), self._ended_children(),
                detail=detail or None,
            )
        )  # fmt: skip
        self._leave()

    def _propose(self, entry: Entry, body: Proposed) -> None:
        self._proposed = entry
        self._looked += [look for look in _looks(body.looked) if look not in self._looked]
        for effect in body.effects:
            key = effect["key"]
            known = self._effects.get(key, Performed(key, effect["tool"], proposed_by=body.by))
            self._effects[key] = replace(known, args=effect.get("args"))
        self._fallback(entry, body.detail, self._run.state)

    def _recorded(self, entry: Entry, body: Recorded, state: str) -> None:
        if not isinstance(body.value, Mapping):
            return
        if body.key.startswith(AGENT):
            self._agent = body.value
        elif further := further_key(body.key):
            self._further[further[0]] = body.value
        elif body.key == FALLBACK:
            acted = any(effect.proposed_by == "agent" for effect in self._effects.values())
            # Kept in a visit in which the handler acts, or an agent has: this one only talked.
            self._fallback(entry, {**body.value, **({} if acted else {"did_not_act": True})}, state)

    def _noted(self, entry: Entry, body: Noted) -> None:
        if body.topic == VERDICT:
            note = body.body
            verdict = "right" if note.get("right") else "wrong"
            self._add(
                Decision(
                    entry.seq, entry.at, "verdict", str(note.get("state")), verdict, str(note.get("by")),
                    note.get("why"), detail=note,
                )
            )  # fmt: skip

    def _effect(
        self, entry: Entry, body: EffectBegun | EffectDone | EffectFailed | EffectSkipped, state: str
    ) -> None:
        known = self._effects.get(body.key, Performed(body.key, body.tool))
        proposal = self._proposed.body if self._proposed is not None else None
        by, reason, settled = "engine", None, True
        if isinstance(body, EffectBegun):
            now, settled = replace(known, how="in doubt"), False
        elif isinstance(body, EffectDone):
            by = "person" if body.how == "told" else "engine"
            args = self._filled(known.args)
            now = replace(known, args=args, how=body.how, receipt=body.receipt, duration=body.duration)
        elif isinstance(body, EffectSkipped):
            by = body.by
            how, why_not = how_skipped(body)
            now = replace(known, how=how, by=body.by, reason=why_not or None)
            if body.instead is not None:  # shown with the effect that a person has put in its place
                self._effects.pop(body.key, None)
                self._effects[body.instead] = replace(
                    known, key=body.instead, args=None, by=body.by, asked=known.args
                )
                return
        else:
            by = "person" if body.code == "told" else "engine"
            reason, settled = _line(body.code, body.message), body.retry_at is None
            how = "failed" if settled else "pending"
            now = replace(known, how=how, failures=(*known.failures, reason))
        self._effects[body.key] = now
        if settled:
            self._add(
                Decision(
                    entry.seq, entry.at, "effect", state, body.tool, by,
                    reason or (_reason(proposal) if isinstance(proposal, Proposed) else None),
                    attempts=len(now.failures) + (now.how in ("performed", "probed")),
                    failures=now.failures, duration=now.duration, effects=(now,),
                )
            )  # fmt: skip
        if isinstance(body, EffectFailed) and settled:  # the step is asked once more
            self._proposed = None

    def _filled(self, args: Any) -> Any:
        """Arguments with what the receipts of earlier effects gave."""
        receipts = {action_of(key): effect.receipt for key, effect in self._effects.items()}
        try:
            return fill(args, receipts)
        except KeyError:  # the receipt of an effect in an earlier visit
            return args

    def _held(self, entry: Entry, body: Held) -> None:
        if body.name == DIVERGED:
            self._not_by_handler()
        self._waits[body.name] = len(self.decisions)
        self._add(
            Decision(
                entry.seq, entry.at, "hold", self._run.state, body.name,
                "engine" if body.why in ("attention", "breaker", "children") else "handler",
                f"waits for {body.why}", question=body.question or None, answered=False,
                alternatives=tuple(Alternative(choice) for choice in body.choices), spend=body.spend,
                detail=body.about or None,
            )
        )  # fmt: skip

    def _released(self, entry: Entry, body: Released) -> None:
        place = self._waits.pop(body.name, None)
        if place is None:
            return
        held = self.decisions[place]
        self.decisions[place] = replace(
            held, by=body.by, answered=True, answer=body.answer, duration=max(0.0, entry.at - held.at),
            alternatives=tuple(other for other in held.alternatives if other.to != body.answer),
        )  # fmt: skip

    def _from_outside(
        self, entry: Entry, body: Migrated | Forked | Reopened, state: str, changes: tuple[Change, ...]
    ) -> None:
        kind: DecisionKind = "fork"
        by, reason = "", None
        if isinstance(body, Migrated):
            kind, by, reason = "migration", "engine", body.reason or f"version {body.version}"
        elif isinstance(body, Reopened):
            kind, by, reason = "reopening", body.by, body.reason or None
        else:
            by = body.by
        now = self._run.state
        self._add(
            Decision(
                entry.seq, entry.at, kind, state, now if now != state else None, by, reason, changed=changes
            )
        )
        self._leave()

    def _fallback(self, entry: Entry, detail: Mapping[str, Any], state: str) -> None:
        """Add a decision for a fallback, when the agent's answer was not used."""
        fallback = fallback_of(detail)
        if fallback is None or self._fell_back is not None:
            return
        self._fell_back = len(self.decisions)
        error = fallback.get("agent_error") or fallback.get("error")
        reason = str(fallback.get("fallback_reason") or fallback.get("reason") or "fallback")
        if reason in UNASKED and isinstance(error, Mapping):
            error = error.get("message")  # its type is no error of an agent
        self._add(
            Decision(
                entry.seq, entry.at, "fallback", state, "handler", "engine", reason,
                failures=(error_text(error),) if error else (),
                detail={**fallback, **self._agents_word(fallback)},
            )
        )  # fmt: skip

    def _agents_word(self, fallback: Mapping[str, Any]) -> dict[str, Any]:
        """The model that was asked, and its last reply: the calls, or the answer."""
        if not fallback.get("attempts") or not self._agent:
            return {}
        return {"agent": last_word(self._agent)}

    def _not_by_handler(self) -> None:
        """The visit's fallback has led to a person or a failure, because the agent had already acted."""
        if self._fell_back is not None and any(
            effect.proposed_by == "agent" and effect.how not in ("denied", "skipped", "failed")
            for effect in self._effects.values()
        ):
            self.decisions[self._fell_back] = replace(self.decisions[self._fell_back], to=None)

    def _with_replies(self, detail: Mapping[str, Any]) -> Mapping[str, Any]:
        """A move's detail, with what the agents answered in further steps."""
        if not self._further or "then" not in detail:
            return detail
        records = [
            {**record, "agent": last_word(self._further[number])} if number in self._further else record
            for number, record in enumerate(detail["then"], 1)
        ]
        return {**detail, "then": records}

    # -- parts ----------------------------------------------------------------------------------------------

    def _looks(self, looked: Iterable[Mapping[str, Any]]) -> tuple[Look, ...]:
        """Queries of all rounds, then those asked since the last one."""
        return (*self._looked, *(look for look in _looks(looked) if look not in self._looked))

    def _add(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def _leave(self) -> None:
        self._proposed, self._effects, self._failures, self._children = None, {}, [], {}
        self._looked, self._agent, self._fell_back, self._waits = [], {}, None, {}
        self._further = {}

    def _performed(self) -> tuple[Performed, ...]:
        return tuple(self._effects.values())

    def _ended_children(self) -> tuple[str, ...]:
        return tuple(f"{run}: {status}" for run, status in self._children.items())

    def _changes(self, body: Any) -> tuple[Change, ...]:
        """The changes an entry is about to make, with the old values."""
        data = self._run.data
        changed = [Change(key, new, copied(data.get(key))) for key, new in getattr(body, "set", {}).items()]
        added = [
            Change(key, items, added=True) for key, items in getattr(body, "append", {}).items() if items
        ]
        return (*changed, *added)

    def _alternatives(self, state: str, to: str | None, event: str | None) -> tuple[Alternative, ...]:
        if self._table is None:
            return ()
        rows = self._table.out_of(state)
        taken = next((row for row in rows if row.to == to and row.event == event), None)
        if taken is None:
            taken = next((row for row in rows if row.to == to), None)
        others = []
        for number, row in enumerate(rows):
            if row is not taken:
                held = self._held_then(state, number)
                others.append(Alternative(row.to, row.event, row.condition, row.reason, held))
        return tuple(others)

    def _held_then(self, state: str, number: int) -> bool | None:
        """Whether the condition on a move of the table holds on the data after the step."""
        if self._machine is None:
            return None
        guard = self._machine.moves[self._machine.state(state)][number].when
        if guard is None:
            return True
        try:
            return guard(self._run.data)
        except Exception:  # a condition is the user's code and may not expect this data
            return None


def fallback_of(detail: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fallback recorded in a decision's detail, at its top or one level down."""
    for record in (detail, *(inner for inner in detail.values() if isinstance(inner, Mapping))):
        if record.get("fallback_used") is True or (
            record.get("fallback_reason") and "fallback_used" not in record
        ):
            return record
    return None


def _looks(looked: Iterable[Mapping[str, Any]]) -> tuple[Look, ...]:
    return tuple(Look(str(line.get("tool")), line.get("args"), line.get("answer")) for line in looked)


def _reason(proposal: Proposed) -> str | None:
    reason = proposal.outcome.get("reason")
    return reason if isinstance(reason, str) else None


def _line(kind: str, message: str) -> str:
    return f"{kind}: {message}" if message and message != kind else kind
