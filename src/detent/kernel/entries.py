"""The lines of a journal: what can happen to a run, one frozen value for each kind.

An `Entry` is a numbered, dated line; its `body` says what happened. Bodies hold plain values only. Written
form: a mapping with the kind and every field that differs from its default, so a line costs what it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from detent.kernel.budget import NOTHING, Spend
from detent.kernel.status import Status

Plain = dict[str, Any]
NOTHING_SAID: Mapping[str, Any] = MappingProxyType({})
CONFIRM = "confirm"
"""Why a run waits for a person's word on an effect, and the beginning of such a hold's name."""
AT_END = "(end)"
"""Name of the step in the proposal of what a flow has performed before a run ends."""
AT_END_FAILED = "at_end.failed"
"""Topic of the note that a flow's `at_end` has raised, or asked for what cannot be performed; has `error`."""
DENIED, EDITED = "denied", "edited"
"""Beginning of why an effect was skipped: a person said no, or put another in its place."""


@dataclass(frozen=True, slots=True)
class Started:
    """The run came into being, with everything needed to understand it later."""

    kind: ClassVar[str] = "started"
    flow: str
    state: str
    machine: str
    version: int
    fingerprint: str
    data: Plain = field(default_factory=dict)
    parent: str | None = None
    budget: Plain | None = None
    config: Plain = field(default_factory=dict)
    """Settings of this run that must survive a resume, such as a forced deterministic mode."""
    tags: list[str] = field(default_factory=list)
    forked_from: Plain | None = None
    """`{run, seq}` of the journal this one was copied from."""


class Moved(NamedTuple):
    """A step was done and the machine moved.

    Duration and spend belong to the state being left and cover the whole visit: every attempt, every recorded
    answer, the performing of effects. (A named tuple, unlike its siblings: one is made at every step.)
    """

    frm: str
    to: str
    event: str | None = None
    reason: str | None = None
    set: Mapping[str, Any] = NOTHING_SAID
    append: Mapping[str, Any] = NOTHING_SAID
    """Per key, the items added to the list there."""
    duration: float = 0.0
    spend: Spend = NOTHING
    by: str = "handler"
    """Who decided: handler, agent, person, engine."""
    attempt: int = 1
    iteration: bool = False
    """True when the move starts a new iteration, as the flow counts them."""
    status: Status | None = None
    """Set when the move ends the run."""
    looked: Sequence[Plain] = ()
    """Queries asked while deciding: `{tool, args, answer}` with long answers as hashes."""
    detail: Mapping[str, Any] = NOTHING_SAID
    """What dispatch and gate have to say about the decision."""

    @property
    def kind(self) -> str:
        """Name of what happened."""
        return "moved"


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt at the current step failed; another may follow at `retry_at`."""

    kind: ClassVar[str] = "attempt_failed"
    step: str
    attempt: int
    error: str
    message: str
    transient: bool = False
    retry_at: float | None = None
    duration: float = 0.0
    spend: Spend = NOTHING


@dataclass(frozen=True, slots=True)
class Proposed:
    """Effects of a step, written down before they are performed.

    The proposal of the last round is the step's outcome. After any other round the step goes on with the
    receipts.
    """

    kind: ClassVar[str] = "proposed"
    step: str
    outcome: Plain
    effects: list[Plain]
    """`{key, tool, args}` in order of performance."""
    duration: float = 0.0
    spend: Spend = NOTHING
    by: str = "handler"
    attempt: int = 1
    looked: list[Plain] = field(default_factory=list)
    detail: Plain = field(default_factory=dict)
    round: int = 1
    """Number of the round within the visit."""
    final: bool = True
    """The outcome's move follows the effects; otherwise the step goes on with the receipts."""
    side: bool = False
    """Asked for in a task of its own, beside others, so that its place among them may vary."""


@dataclass(frozen=True, slots=True)
class EffectBegun:
    """The effect of this key is about to be performed: from here on it is in doubt until settled."""

    kind: ClassVar[str] = "effect_begun"
    key: str
    tool: str
    worker: str = ""
    """Who performs it, where it cannot be stopped once begun."""
    seconds: float = 0.0
    """How long it may go on in that worker, should nobody hear of it any more."""
    facts: Plain = field(default_factory=dict)
    """What its tool has said about it since, such as the process it has started."""


@dataclass(frozen=True, slots=True)
class EffectDone:
    """The effect happened; the receipt is what its tool gave back."""

    kind: ClassVar[str] = "effect_done"
    key: str
    tool: str
    receipt: Any = None
    how: str = "performed"
    """performed, probed, told (a person said so), reused (equal effect done earlier in this run)."""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """The effect is known not to have happened."""

    kind: ClassVar[str] = "effect_failed"
    key: str
    tool: str
    code: str
    message: str
    attempts: int = 1
    retry_at: float | None = None
    """Set when it will be tried again."""


@dataclass(frozen=True, slots=True)
class EffectSkipped:
    """The effect is not to be performed: a person decided so, or one before it in its round failed."""

    kind: ClassVar[str] = "effect_skipped"
    key: str
    tool: str
    by: str = "person"
    why: str = ""
    """Why it is left out, as the step that asked for it is told."""
    instead: str | None = None
    """Key of the effect that a person has put in its place."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer that must not be asked for twice (a model's, say), kept for this visit of the step."""

    kind: ClassVar[str] = "recorded"
    key: str
    value: Any = None
    spend: Spend = NOTHING


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A child run reached its end; its spend is rolled up here."""

    kind: ClassVar[str] = "child_ended"
    run: str
    status: Status
    spend: Spend = NOTHING
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """The run waits: for a person, a time, children, or somebody to settle an effect in doubt."""

    kind: ClassVar[str] = "held"
    name: str
    why: str
    """person, timer, children, attention, breaker."""
    question: str = ""
    choices: list[str] = field(default_factory=list)
    wake_at: float | None = None
    """When the clock answers in a person's place."""
    default: Any = None
    """The answer the clock gives."""
    about: Plain = field(default_factory=dict)
    duration: float = 0.0
    spend: Spend = NOTHING


@dataclass(frozen=True, slots=True)
class Released:
    """A hold got its answer."""

    kind: ClassVar[str] = "released"
    name: str
    answer: Any = None
    by: str = "person"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A driver took the run over from one that died."""

    kind: ClassVar[str] = "claimed"
    worker: str
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """A remark for those who read the journal: a message, a comparison, an event of a flow."""

    kind: ClassVar[str] = "noted"
    topic: str
    body: Plain = field(default_factory=dict)
    spend: Spend = NOTHING
    aside: bool = False
    """Made between steps, or after the end: no part of an attempt."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """Tags put on or taken off."""

    kind: ClassVar[str] = "tagged"
    add: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Migrated:
    """The run was carried over to a changed definition."""

    kind: ClassVar[str] = "migrated"
    version: int
    fingerprint: str
    state: str
    set: Plain = field(default_factory=dict)
    reason: str = ""
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class Forked:
    """The copied part ends here; from here on this run goes its own way."""

    kind: ClassVar[str] = "forked"
    set: Plain = field(default_factory=dict)
    config: Plain = field(default_factory=dict)
    budget: Plain | None = None
    by: str = "person"


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The run is to undo what it did and end as cancelled, as soon as what its step has begun is settled."""

    kind: ClassVar[str] = "called_off"
    reason: str
    by: str = "person"


@dataclass(frozen=True, slots=True)
class Reopened:
    """A run that had ended is sent on again."""

    kind: ClassVar[str] = "reopened"
    state: str
    by: str = "person"
    reason: str = ""
    budget: Plain | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over without a move into an end state."""

    kind: ClassVar[str] = "ended"
    status: Status
    reason: str | None = None
    error: str | None = None
    """Type and message of what went wrong."""
    set: Plain = field(default_factory=dict)
    append: Plain = field(default_factory=dict)
    duration: float = 0.0
    spend: Spend = NOTHING
    by: str = "engine"
    attempt: int = 1
    looked: list[Plain] = field(default_factory=list)
    detail: Plain = field(default_factory=dict)


Body = (
    Started | Moved | AttemptFailed | Proposed | EffectBegun | EffectDone | EffectFailed | EffectSkipped
    | Recorded | ChildEnded | Held | Released | Claimed | Noted | Tagged | Migrated | Forked | CalledOff
    | Reopened | Ended
)  # fmt: skip


class Entry(NamedTuple):
    """One line of a journal."""

    seq: int
    """1 for the first line; no gaps."""
    at: float
    """Seconds since the epoch."""
    epoch: int
    """The take-over under which it was written."""
    body: Body

    @property
    def kind(self) -> str:
        """Name of what happened."""
        return self.body.kind


KINDS: Mapping[str, type[Body]] = {
    "moved": Moved,
    **{
        cls.kind: cls
        for cls in (
            Started, AttemptFailed, Proposed, EffectBegun, EffectDone, EffectFailed, EffectSkipped, Recorded,
            ChildEnded, Held, Released, Claimed, Noted, Tagged, Migrated, Forked, CalledOff, Reopened, Ended,
        )
    },
}  # fmt: skip


def _layout(cls: type[Body]) -> tuple[tuple[str, Any], ...]:
    """Field names with what counts as "not said"."""
    if cls is Moved:
        return tuple((name, Moved._field_defaults.get(name, MISSING)) for name in Moved._fields)
    rows: list[tuple[str, Any]] = []
    for item in fields(cls):  # type: ignore[arg-type]
        if item.default is not MISSING:
            rows.append((item.name, item.default))
        elif item.default_factory is not MISSING:
            rows.append((item.name, item.default_factory()))
        else:
            rows.append((item.name, MISSING))
    return tuple(rows)


_LAYOUT = {cls: _layout(cls) for cls in KINDS.values()}


def body_to_plain(body: Body) -> Plain:
    """The written form of a body, without its kind."""
    plain: Plain = {}
    for name, default in _LAYOUT[type(body)]:
        value = getattr(body, name)
        if value is default or value == default:
            continue
        if type(value) is Spend:
            value = value.to_plain()
        elif type(value) is Status:
            value = value.value
        plain[name] = value
    return plain


def body_from_plain(kind: str, plain: Mapping[str, Any]) -> Body:
    """Read a body back; an unknown kind or field raises ValueError, for a newer version wrote the journal."""
    cls = KINDS.get(kind)
    if cls is None:
        raise ValueError(f"Unknown kind of journal entry: '{kind}'. A newer version wrote it.")
    values = dict(plain)
    try:
        if "spend" in values:
            values["spend"] = Spend.from_plain(values["spend"])
        if values.get("status") is not None:
            values["status"] = Status(values["status"])
        if values.get("wake_at") is not None and type(values["wake_at"]) not in (int, float):
            # Version 0.1 took any value for a time. Nobody is woken by this one; those who look see it.
            values["about"] = {**values.get("about", {}), "wake_at": values.pop("wake_at")}
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"A '{kind}' entry cannot be read: {error}") from error


def to_plain(entry: Entry) -> Plain:
    """The written form of a line, as exported in JSON lines."""
    return {
        "seq": entry.seq,
        "at": entry.at,
        "epoch": entry.epoch,
        "kind": entry.kind,
        **body_to_plain(entry.body),
    }


def from_plain(plain: Mapping[str, Any]) -> Entry:
    """Read a line back."""
    rest = dict(plain)
    seq, at, epoch, kind = rest.pop("seq"), rest.pop("at"), rest.pop("epoch"), rest.pop("kind")
    return Entry(seq, at, epoch, body_from_plain(kind, rest))
