"""The timeline of a journal: one readable line per entry, with time, duration, actor and text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from detent.insight.agent_text import VERDICT, fallback_words, further_key, reply_words, verdict_words
from detent.insight.effect_text import answer_text, call_text, is_confirmation, skipped_text
from detent.insight.formatting import columns, cost, count, short, span, value
from detent.insight.visits import AGENT, FALLBACK
from detent.insight.why import fallback_of
from detent.kernel.entries import (
    AT_END,
    AT_END_FAILED,
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
)
from detent.kernel.run import SEEN


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """One entry in words."""

    seq: int
    at: float
    """Seconds since the epoch."""
    offset: float
    """Seconds since the first entry."""
    kind: str
    who: str
    what: str
    duration: float | None = None
    """Duration of the visit, attempt, effect or wait that the line describes."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def timeline(entries: Iterable[Entry]) -> list[TimelineLine]:
    """One line per entry, in order."""
    journal = list(entries)
    if not journal:
        return []
    teller = _Teller(journal)
    began = journal[0].at
    lines = []
    for entry in journal:
        who, text, duration = teller.tell(entry)
        lines.append(TimelineLine(entry.seq, entry.at, entry.at - began, entry.kind, who, text, duration))
    return lines


def render(lines: Iterable[TimelineLine]) -> str:
    """The lines as text in aligned columns: number, time since the start, duration, who, what."""
    rows = [
        (
            str(line.seq),
            f"+{span(line.offset)}" if line.offset >= 0 else span(line.offset),
            span(line.duration) if line.duration is not None else "",
            line.who,
            line.what,
        )
        for line in lines
    ]
    return "\n".join(columns(rows, frozenset({0, 1, 2})))


Told = tuple[str, str, float | None]
"""Who, what, how long."""


class _Teller:
    """Describes entries with knowledge of the whole journal, such as which release answered a hold."""

    def __init__(self, journal: list[Entry]) -> None:
        self._answers = _answers(journal)
        self._done: dict[str, int] = {}
        self._acted = False
        """Whether the visit's agent has asked for effects."""
        self._talked = False
        """Whether the visit's handler acts where the agent only talked."""
        self._tell: dict[type[Body], Callable[[Any, Entry], Told]] = {
            Started: _started,
            Moved: self._moved,
            AttemptFailed: _attempt_failed,
            Proposed: self._proposed,
            EffectBegun: _effect_begun,
            EffectDone: self._effect_done,
            EffectFailed: _effect_failed,
            EffectSkipped: _effect_skipped,
            Recorded: self._recorded,
            ChildEnded: _child_ended,
            Held: self._held,
            Released: self._released,
            Claimed: _claimed,
            Noted: _noted,
            Tagged: _tagged,
            Migrated: _migrated,
            Forked: _forked,
            CalledOff: _called_off,
            Reopened: _reopened,
            Ended: _ended,
        }

    def tell(self, entry: Entry) -> Told:
        """Who, what and how long."""
        return self._tell[type(entry.body)](entry.body, entry)

    def _moved(self, body: Moved, entry: Entry) -> Told:
        told = _moved(body, entry, self._talked)
        self._acted = self._talked = False
        return told

    def _proposed(self, body: Proposed, entry: Entry) -> Told:
        self._acted = self._acted or body.by == "agent"
        return _proposed(body, entry)

    def _recorded(self, body: Recorded, entry: Entry) -> Told:
        if body.key == FALLBACK and isinstance(body.value, Mapping):
            self._talked = not self._acted
            return "engine", f"the agent is not asked any more: {_why_not(body.value, self._talked)}", None
        return _recorded(body, entry)

    def _effect_done(self, body: EffectDone, entry: Entry) -> Told:
        who, duration = "engine", body.duration or None
        if body.how == "reused":
            before = self._done.get(body.key)
            where = f" in entry {before}" if before is not None else ""
            text = f"{body.tool} not repeated: done before{where}"
        elif body.how == "probed":
            text = f"{body.tool} had happened: found by asking"
        elif body.how == "told":
            who, text = "person", f"{body.tool} had happened: confirmed by a person"
        else:
            text = f"{body.tool} {body.how}"
        self._done.setdefault(body.key, entry.seq)
        return who, text + (f" → {value(body.receipt)}" if body.receipt is not None else ""), duration

    def _held(self, body: Held, entry: Entry) -> Told:
        who = "engine" if body.why in ("attention", "breaker", "children") or body.name == "retry" else "step"
        text = f"waits for {_WAITS.get(body.why, body.why)}"
        if body.why == "children" and body.about.get("runs"):
            text += f": {', '.join(map(str, body.about['runs']))}"
        elif body.name not in ("hold", "retry", "breaker") and not is_confirmation(body):
            text += f" ('{short(body.name, 40)}')"
        if body.question:
            text += f": {short(body.question, 100)}"
        if is_confirmation(body):
            text += f" {call_text(str(body.about['tool']), body.about.get('args'))}"
        if body.choices:
            text += f" [{' / '.join(body.choices)}]"
        if body.wake_at is not None:
            text += f", at most {span(max(0.0, body.wake_at - entry.at))}"
        answer = self._answers.get(entry.seq)
        if answer is None:
            text += "; still waiting"
        elif answer.kind != Released.kind:
            text += "; never answered"
        return who, text, body.duration or None

    def _released(self, body: Released, entry: Entry) -> Told:
        held = self._answers.get(entry.seq)
        waited = entry.at - held.at if held is not None else None
        confirms = held is not None and isinstance(held.body, Held) and is_confirmation(held.body)
        name = "" if body.name == "hold" or confirms else f" '{short(body.name, 40)}'"
        if body.answer is None:
            text = f"wait{name} over"
        else:
            text = f"wait{name} answered: {answer_text(body.answer)}"
        if waited is not None:
            text += f", after {span(waited)}"
        return body.by, text, waited


def _answers(journal: list[Entry]) -> dict[int, Entry]:
    """For every hold the entry that ended it, and for every release the hold it answers."""
    pairs: dict[int, Entry] = {}
    held: dict[str, Entry] = {}
    for entry in journal:
        body = entry.body
        if isinstance(body, Held):
            held[body.name] = entry
        elif isinstance(body, Released):
            if (before := held.pop(body.name, None)) is not None:
                pairs[before.seq], pairs[entry.seq] = entry, before
        elif isinstance(body, Moved | Ended | Forked | Reopened | Migrated):
            for before in held.values():
                pairs[before.seq] = entry
            held.clear()
    return pairs


_WAITS = {
    "person": "a person",
    "confirm": "a person's word",
    "timer": "the clock",
    "children": "children",
    "attention": "attention",
    "breaker": "a breaker to close",
}


def _extra(*parts: str) -> str:
    """Remarks in parentheses, the empty ones left out."""
    remarks = [part for part in parts if part]
    return f" ({'; '.join(remarks)})" if remarks else ""


def _started(body: Started, entry: Entry) -> Told:
    text = f"started {body.flow} v{body.version} in '{body.state}'"
    if body.forked_from:
        text += f", a fork of {body.forked_from.get('run')} after entry {body.forked_from.get('seq')}"
    tags = f"tags {', '.join(body.tags)}" if body.tags else ""
    return "engine", text + _extra(f"child of {body.parent}" if body.parent else "", tags), None


def _moved(body: Moved, entry: Entry, talked: bool) -> Told:
    text = f"{body.frm} → {body.to}"
    if body.event:
        text += f" on {body.event}"
    if body.reason:
        text += f": {short(body.reason, 120)}"
    return (
        body.by,
        text
        + _extra(
            f"attempt {body.attempt}" if body.attempt > 1 else "",
            "new iteration" if body.iteration else "",
            _looked(body.looked),
            _replaced(body.detail, talked),
            *(_further(record) for record in body.detail.get("then", ())),
            cost(body.spend),
            f"run {body.status.value}" if body.status is not None else "",
        ),
        body.duration,
    )


def _looked(looked: Iterable[Any]) -> str:
    """The queries that were asked, each once."""
    tools = dict.fromkeys(str(line.get("tool")) for line in looked)
    return f"looked at {', '.join(tools)}" if tools else ""


def _further(record: Mapping[str, Any]) -> str:
    """A further step of the visit, where an agent performed it or was replaced."""
    name = str(record.get("step")).rpartition("/")[2]
    if record.get("mode_used") == "agent":
        return f"then {name} by the agent"
    return f"then {name} {_replaced(record)}" if record.get("fallback_used") else ""


def _replaced(detail: Mapping[str, Any], talked: bool = False) -> str:
    """The agent that the handler has replaced, why, and where the two differed."""
    fallback = fallback_of(detail)
    if fallback is None:
        return ""
    model = (fallback.get("series") or {}).get("model_id")
    text = f"in place of agent {model}" if model else "in place of the agent"
    return f"{text}: {_why_not(fallback, talked)}"


def _why_not(fallback: Mapping[str, Any], talked: bool = False) -> str:
    """Why an agent was replaced; `talked` if it did not act and the handler does."""
    text = fallback_words(fallback)
    error = fallback.get("agent_error") or fallback.get("error")
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("type")
    if error:
        text += f", {short(str(error), 160)}"
    places = [str(place.get("pointer") or "the whole") for place in fallback.get("validation_details") or ()]
    if places == ["the whole"] and talked:
        return f"{text} in that it did not act"
    return text + (f" at {', '.join(places[:3])}{' …' if len(places) > 3 else ''}" if places else "")


def _again(retry_at: float | None, at: float) -> str:
    return "no further attempt" if retry_at is None else f"again in {span(max(0.0, retry_at - at))}"


def _attempt_failed(body: AttemptFailed, entry: Entry) -> Told:
    text = f"attempt {body.attempt} at '{body.step}' failed: {body.error}"
    if body.message:
        text += f": {short(body.message, 120)}"
    text += f"; {_again(body.retry_at, entry.at)}"
    return "engine", text + _extra(cost(body.spend)), body.duration


def _proposed(body: Proposed, entry: Entry) -> Told:
    tools = ", ".join(str(effect.get("tool")) for effect in body.effects)
    if body.step == AT_END:
        return "engine", f"to do before the run ends{_end_status(body)}: {tools}", None
    if body.by not in ("handler", "agent", "engine"):  # a person has put it in the place of another
        calls = ", ".join(call_text(str(item.get("tool")), item.get("args")) for item in body.effects)
        return body.by, f"changed it to {calls}", None
    asked = "proposed" if body.final else f"asked in round {body.round} for"
    text = f"'{body.step}' {asked} {count(len(body.effects), 'effect')}: {tools}"
    # What belongs to the outcome is told with its move.
    looked = "" if body.final else _looked(body.looked)
    remarks = _extra(looked, "" if body.final else _replaced(body.detail), cost(body.spend))
    return body.by, text + remarks, body.duration


def _end_status(body: Proposed) -> str:
    """The status that a run is about to end with."""
    ends = [end.get("body") for end in body.outcome.values() if isinstance(end, Mapping)]
    return next((f" {end['status']}" for end in ends if isinstance(end, Mapping) and "status" in end), "")


def _effect_begun(body: EffectBegun, entry: Entry) -> Told:
    return "engine", f"{body.tool} begun", None


def _effect_failed(body: EffectFailed, entry: Entry) -> Told:
    if body.code == "told":
        return "person", f"{body.tool} did not happen: {short(body.message, 120)}; to be tried again", None
    text = f"{body.tool} failed, attempt {body.attempts}: {body.code}"
    if body.message and body.message != body.code:
        text += f": {short(body.message, 120)}"
    return "engine", f"{text}; {_again(body.retry_at, entry.at)}", None


def _effect_skipped(body: EffectSkipped, entry: Entry) -> Told:
    return body.by, f"{body.tool} {skipped_text(body, name=False)}", None


def _recorded(body: Recorded, entry: Entry) -> Told:
    if body.key.startswith(SEEN):
        return "step", "a query's answer kept for the rounds to come", None
    if body.key.startswith(AGENT) and isinstance(body.value, Mapping):
        return "agent", reply_words(body.value) + _extra(cost(body.spend)), None
    if (further := further_key(body.key)) and isinstance(body.value, Mapping):
        reply = f"{reply_words(body.value)} in the further step '{further[1]}'"
        return "agent", reply + _extra(cost(body.spend)), None
    return "step", f"answer '{short(body.key, 60)}' kept" + _extra(cost(body.spend)), None


def _child_ended(body: ChildEnded, entry: Entry) -> Told:
    text = f"child {body.run} ended {body.status.value}"
    return "child", text + _extra(count(body.steps, "step"), cost(body.spend)), body.seconds


def _claimed(body: Claimed, entry: Entry) -> Told:
    return "engine", f"worker {body.worker} took over" + (f" from {body.lost}" if body.lost else ""), None


def _noted(body: Noted, entry: Entry) -> Told:
    if body.topic == VERDICT:
        return str(body.body.get("by")), short(verdict_words(body.body), 300), None
    if body.topic == AT_END_FAILED:
        return "engine", f"nothing was performed at its end: {short(str(body.body['error']), 200)}", None
    body_text = f": {value(body.body, 120)}" if body.body else ""
    return "step", f"note {body.topic}{body_text}" + _extra(cost(body.spend)), None


def _tagged(body: Tagged, entry: Entry) -> Told:
    marks = [*(f"+{tag}" for tag in body.add), *(f"-{tag}" for tag in body.remove)]
    return "step", f"tags {' '.join(marks)}", None


def _migrated(body: Migrated, entry: Entry) -> Told:
    text = f"carried over to version {body.version} in '{body.state}'"
    return "engine", text + (f": {short(body.reason, 120)}" if body.reason else ""), None


def _forked(body: Forked, entry: Entry) -> Told:
    changed = ", ".join(body.set)
    return (
        body.by,
        "is a fork from here on"
        + _extra(
            f"changed data: {changed}" if changed else "",
            f"changed settings: {', '.join(body.config)}" if body.config else "",
            "another budget" if body.budget is not None else "",
        ),
        None,
    )


def _called_off(body: CalledOff, entry: Entry) -> Told:
    return body.by, f"called off, to be undone once its step is settled: {short(body.reason, 120)}", None


def _reopened(body: Reopened, entry: Entry) -> Told:
    text = f"reopened in '{body.state}'" + (f": {short(body.reason, 120)}" if body.reason else "")
    return body.by, text + _extra("another budget" if body.budget is not None else ""), None


def _ended(body: Ended, entry: Entry) -> Told:
    told = body.reason and body.reason != body.status.value
    text = f"ended {body.status.value}" + (f": {short(str(body.reason), 120)}" if told else "")
    error = short(body.error, 120) if body.error else ""
    return body.by, text + _extra(error, cost(body.spend)), body.duration or None
