"""A step's outcome: the next state, changes to the data, and proposed effects.

Steps propose, the engine performs. An `Outcome` says nothing has happened yet; its effects are performed
after it is written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from detent.engine.step_failures import StepFailed
from detent.kernel import checks
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import InvalidValue, name_of
from detent.kernel.plain import digest, to_plain
from detent.kernel.status import Status


@dataclass(frozen=True, slots=True)
class Effect:
    """A proposed change to the outside world: a tool and its arguments."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    """Tells two otherwise equal effects of one step apart; equal ones are performed once."""

    def __post_init__(self) -> None:
        checks.name("Effect.tool", self.tool)
        if not isinstance(self.args, Mapping) or not all(isinstance(name, str) for name in self.args):
            raise checks.refuse("Effect.args", self.args, "a mapping of argument names to values")
        if self.key is not None:
            checks.text("Effect.key", self.key)

    @classmethod
    def of(cls, value: Any) -> Effect:
        """An effect from an `Effect`, or from a dataclass or model whose class names its tool."""
        if isinstance(value, cls):
            return value
        tool = getattr(value, "tool", None)
        if not isinstance(tool, str):
            raise TypeError(
                f"{type(value).__name__} is not an effect: give Effect(tool, args), or a dataclass with a "
                f"class attribute 'tool'."
            )
        if is_dataclass(value) and not isinstance(value, type):
            args = {item.name: getattr(value, item.name) for item in fields(value)}
        else:
            args = dict(to_plain(value))
        key = args.pop("effect_key", None)
        return cls(tool, args, key)

    def identity(self, step: str) -> str:
        """Digest of the action, in hex: the same for equal effects of the same step."""
        return digest([self.tool, to_plain(self.args), step, self.key], 24)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Placeholder for a value known only after an effect is performed; usable in data and later effects."""

    key: str
    """Identity of the effect."""
    path: str = ""
    """Dotted path into its receipt; empty for the whole receipt."""

    def __getattr__(self, name: str) -> Receipt:
        if name.startswith("_"):
            raise AttributeError(name)
        return Receipt(self.key, f"{self.path}.{name}" if self.path else name)

    def __getitem__(self, name: str) -> Receipt:
        return Receipt(self.key, f"{self.path}.{name}" if self.path else name)

    def __plain__(self) -> dict[str, str]:
        return {"$receipt": f"{self.key}.{self.path}" if self.path else self.key}


@dataclass(frozen=True, slots=True)
class Text:
    """A text that contains receipts, filled in once they are known; usable wherever a receipt is."""

    parts: tuple[str | Receipt, ...]

    def __plain__(self) -> dict[str, Any]:
        return {"$text": [part if isinstance(part, str) else part.__plain__() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class Hold:
    """A wait that a step requests. The run stays in its state; once answered, the step is performed again."""

    name: str = "hold"
    why: str = "person"
    question: str = ""
    choices: Sequence[str] = ()
    wake_at: float | None = None
    """When the clock answers, with `default`."""
    default: Any = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.name("Hold.name", self.name)
        checks.name("Hold.why", self.why)
        checks.text("Hold.question", self.question)
        checks.texts("Hold.choices", self.choices)
        put = object.__setattr__
        if self.wake_at is not None:
            put(self, "wake_at", checks.moment("Hold.wake_at", self.wake_at))
        put(self, "default", to_plain(self.default, "Hold.default"))
        if not isinstance(self.about, Mapping):
            raise checks.refuse("Hold.about", self.about, "a mapping of texts to plain values")
        put(self, "about", to_plain(dict(self.about), "Hold.about"))


NO_CHANGE: Mapping[str, Any] = MappingProxyType({})


class _Fields(NamedTuple):
    """The fields of an outcome."""

    next: Any = None
    """The next state; always checked against the table and its conditions."""
    event: str | None = None
    set: Mapping[str, Any] = NO_CHANGE
    append: Mapping[str, Iterable[Any]] = NO_CHANGE
    effects: Sequence[Any] = ()
    reason: str | None = None
    spend: Spend = NOTHING
    hold: Hold | None = None
    """Wait instead of moving."""
    end: Status | None = None
    """End the run; only in states where the machine allows it."""
    by: str = "handler"
    detail: Mapping[str, Any] = NO_CHANGE
    then: str | None = None
    """A further step of the flow, performed in the same visit by its own performer. It sees what is set here,
    and its outcome completes this one."""


class Outcome(_Fields):
    """A step's decision. Without `next`, the conditions in the transition table choose the next state."""

    __slots__ = ()

    def __new__(
        cls,
        next: Any = None,
        event: str | None = None,
        set: Mapping[str, Any] = NO_CHANGE,
        append: Mapping[str, Iterable[Any]] = NO_CHANGE,
        effects: Sequence[Any] = (),
        reason: str | None = None,
        spend: Spend = NOTHING,
        hold: Hold | None = None,
        end: Status | None = None,
        by: str = "handler",
        detail: Mapping[str, Any] = NO_CHANGE,
        then: str | None = None,
    ) -> Outcome:
        """Check the kinds of the fields; what stands in `set` and `append` is checked when it is written.

        Raises `InvalidValue`.
        """
        # Made at every step, so the usual cases are told by the cheapest tests there are.
        if (
            (spend is not NOTHING and type(spend) is not Spend)
            or (set is not NO_CHANGE and type(set) is not dict)
            or (append is not NO_CHANGE and type(append) is not dict)
            or (detail is not NO_CHANGE and type(detail) is not dict)
            or (effects and type(effects) is not list)
            or (reason is not None and type(reason) is not str)
            or event is not None or hold is not None or end is not None or type(by) is not str
            or then is not None
        ):  # fmt: skip
            _check_fields(event, set, append, effects, reason, spend, hold, end, by, detail, then)
        return _new(cls, (next, event, set, append, effects, reason, spend, hold, end, by, detail, then))

    @classmethod
    def of(cls, value: Any) -> Outcome:
        """An outcome from what handlers may return: an Outcome, a Hold, a state, data to set, or nothing."""
        if isinstance(value, cls):
            return value
        if value is None:
            return _NOTHING
        if isinstance(value, Hold):
            return cls(hold=value)
        if isinstance(value, Mapping):
            if value.get("success") is False:
                raise StepFailed(str(value.get("error") or "its output says so"))
            return cls(set=value)
        if (is_dataclass(value) and not isinstance(value, type | Enum)) or hasattr(value, "model_dump"):
            return cls.of(to_plain(value))
        return cls(next=value)

    def completed(self, further: Outcome) -> Outcome:
        """This outcome together with that of the further step it names."""
        append = {key: [*items] for key, items in self.append.items()}
        for key, items in further.append.items():
            append[key] = [*append.get(key, ()), *items]
        return self._replace(
            next=self.next if further.next is None else further.next,
            event=self.event if further.event is None else further.event,
            set={**self.set, **further.set},
            append=append,
            reason=self.reason if further.reason is None else further.reason,
            spend=self.spend + further.spend,
            hold=further.hold,
            end=self.end if further.end is None else further.end,
            then=further.then,
        )

    def to_plain(self) -> dict[str, Any]:
        """As plain values, without effects, which are journaled separately."""
        plain: dict[str, Any] = {}
        if self.next is not None:
            plain["next"] = name_of(self.next)
        for name in ("event", "reason"):
            value = getattr(self, name)
            if value is not None:
                plain[name] = value
        if self.set:
            plain["set"] = to_plain(self.set)
        if self.append:
            plain["append"] = additions(self.append)
        if self.end is not None:
            plain["end"] = self.end.value
        return plain


_new = tuple.__new__


def _check_fields(
    event: Any, set: Any, append: Any, effects: Any, reason: Any, spend: Any, hold: Any, end: Any, by: Any,
    detail: Any, then: Any,
) -> None:  # fmt: skip
    """Raise `InvalidValue` for the first field of an outcome with a wrong type."""
    for name, value in (("set", set), ("append", append), ("detail", detail)):
        if not isinstance(value, Mapping):
            raise checks.refuse(f"Outcome.{name}", value, "a mapping of texts to plain values")
    for name, value in (("event", event), ("reason", reason), ("then", then)):
        if value is not None and not isinstance(value, str):
            raise checks.refuse(f"Outcome.{name}", value, "text, or None")
    if isinstance(effects, str | bytes | Mapping) or not isinstance(effects, Sequence):
        raise checks.refuse("Outcome.effects", effects, "a list of effects")
    if not isinstance(spend, Spend):
        raise checks.refuse("Outcome.spend", spend, "a Spend, such as Spend(input_tokens=5)")
    if hold is not None and not isinstance(hold, Hold):
        raise checks.refuse("Outcome.hold", hold, "a Hold, or None")
    if end is not None and not isinstance(end, Status):
        raise checks.refuse("Outcome.end", end, "a Status, or None")
    checks.text("Outcome.by", by)


def additions(append: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """The items to append, per key, as plain values."""
    plain: dict[str, list[Any]] = {}
    for key, items in append.items():
        if isinstance(items, str | bytes | Mapping):
            raise InvalidValue(f"Only a list can be appended to '{key}', not a {type(items).__name__}.")
        if type(key) is not str:
            raise checks.refuse("A key of Outcome.append", key, "text")
        plain[key] = to_plain(list(items), key)
    return plain


_NOTHING = Outcome()
