"""What a step gives back: where to go, what changed, what it wants done.

Steps propose, the engine performs. An `Outcome` says nothing has happened yet; its effects are performed
after it is written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from detent.engine.step import StepFailed
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import name_of
from detent.kernel.plain import digest, to_plain
from detent.kernel.status import Status


@dataclass(frozen=True, slots=True)
class Effect:
    """A change to the outside world somebody wants made: a tool and its arguments."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    """Tells two otherwise equal effects of one step apart; equal ones are performed once."""

    @classmethod
    def of(cls, value: Any) -> Effect:
        """An effect from an `Effect`, or from a dataclass or model whose class names its tool."""
        if isinstance(value, cls):
            return value
        tool = getattr(value, "tool", None)
        if not isinstance(tool, str):
            raise TypeError(
                f"{type(value).__name__} is no effect: give Effect(tool, args), or a dataclass with a class "
                f"attribute 'tool'."
            )
        if is_dataclass(value) and not isinstance(value, type):
            args = {item.name: getattr(value, item.name) for item in fields(value)}
        else:
            args = dict(to_plain(value))
        key = args.pop("effect_key", None)
        return cls(tool, args, key)

    def identity(self, step: str) -> str:
        """What the action is, in hex: equal for equal actions of the same step, wherever they stand."""
        return digest([self.tool, to_plain(self.args), step, self.key], 24)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Stands for a value known only after an effect is performed; may be used in data and later effects."""

    key: str
    """Identity of the effect."""
    path: str = ""
    """Dotted way into its receipt; empty for the whole."""

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
    """A text with receipts in it, put together once they are known; may be used wherever a receipt may."""

    parts: tuple[str | Receipt, ...]

    def __plain__(self) -> dict[str, Any]:
        return {"$text": [part if isinstance(part, str) else part.__plain__() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class Hold:
    """A wait the step asks for. The run stays in its state; when answered, the step is asked again."""

    name: str = "hold"
    why: str = "person"
    question: str = ""
    choices: Sequence[str] = ()
    wake_at: float | None = None
    """When the clock answers, with `default`."""
    default: Any = None
    about: Mapping[str, Any] = field(default_factory=dict)


NO_CHANGE: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """What a step decided. Leave out `next` and the conditions on the table's edges choose."""

    next: Any = None
    """The state to go to; checked against the table and the conditions, whoever names it."""
    event: str | None = None
    set: Mapping[str, Any] = NO_CHANGE
    append: Mapping[str, Iterable[Any]] = NO_CHANGE
    effects: Sequence[Any] = ()
    reason: str | None = None
    spend: Spend = NOTHING
    hold: Hold | None = None
    """Wait instead of moving."""
    end: Status | None = None
    """Declare the run over, where the machine says a run may end in this state."""
    by: str = "handler"
    detail: Mapping[str, Any] = NO_CHANGE

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

    def to_plain(self) -> dict[str, Any]:
        """As plain values, effects left out (they are journaled beside it)."""
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


def additions(append: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """The items to append, per key, as plain values."""
    plain: dict[str, list[Any]] = {}
    for key, items in append.items():
        if isinstance(items, str | bytes | Mapping):
            raise TypeError(f"To '{key}' a list of items can be appended, not a {type(items).__name__}.")
        plain[key] = to_plain(list(items), key)
    return plain


_NOTHING = Outcome()
