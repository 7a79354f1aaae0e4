"""What a run has spent, and what it may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import index
from typing import Any

from detent.kernel import checks
from detent.kernel.errors import BudgetExceededError, ConfigurationError, InvalidValue


@dataclass(frozen=True, slots=True)
class Spend:
    """Tokens and money used by one piece of work. Adds up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __post_init__(self) -> None:
        sent, got, cost = self.input_tokens, self.output_tokens, self.cost_usd
        if (
            type(sent) is int and type(got) is int and type(cost) is float
            and 0 <= sent <= MOST_TOKENS and 0 <= got <= MOST_TOKENS and 0.0 <= cost <= MOST_USD
        ):  # fmt: skip
            return
        put = object.__setattr__
        put(self, "input_tokens", _tokens("Spend.input_tokens", sent))
        put(self, "output_tokens", _tokens("Spend.output_tokens", got))
        put(self, "cost_usd", _usd("Spend.cost_usd", cost))

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Spend) -> Spend:
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        if type(other) is not Spend:
            return NotImplemented
        return _written(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
        )

    def __bool__(self) -> bool:
        return bool(self.input_tokens or self.output_tokens or self.cost_usd)

    def to_plain(self) -> dict[str, Any]:
        """As plain values, zeros left out."""
        return {name: value for name in _SPEND if (value := getattr(self, name))}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Spend:
        """Read back what `to_plain` wrote; an unknown field raises TypeError.

        What earlier versions took is read as it stands.
        """
        if not plain:
            return NOTHING
        spend = _written(**plain)
        if min(spend.input_tokens, spend.output_tokens, spend.cost_usd) < 0:
            raise ValueError(f"{dict(plain)} is not a spend: no part of it may be below 0.")
        return spend


_SPEND = tuple(field.name for field in fields(Spend))


def _written(input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> Spend:
    """A sum, or a spend from a journal: made of checked ones, so that reading never refuses."""
    spend = object.__new__(Spend)
    put = object.__setattr__
    put(spend, "input_tokens", input_tokens)
    put(spend, "output_tokens", output_tokens)
    put(spend, "cost_usd", cost_usd)
    return spend


def _tokens(field: str, value: Any) -> int:
    try:
        number = -1 if isinstance(value, bool) else index(value)  # a number of numpy's is one, too
    except TypeError:
        number = -1
    if not 0 <= number <= MOST_TOKENS:
        raise checks.refuse(field, value, f"a whole number from 0 to {MOST_TOKENS:,}")
    return number


def _usd(field: str, value: Any) -> float:
    amount = float(value) if checks.is_number(value) or type(value).__name__ == "Decimal" else -1.0
    if not 0 <= amount <= MOST_USD:
        raise checks.refuse(field, value, f"a number of US dollars from 0 to {MOST_USD:,.0f}")
    return amount


MOST_TOKENS = 10**12
MOST_USD = 1e12
"""More than any piece of work uses, and little enough that sums of them stay numbers databases can hold."""
NOTHING = Spend()


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run, with everything it starts, may use up. None means unlimited."""

    tokens: int | None = None
    cost_usd: float | None = None
    steps: int | None = None
    """Moves out of working states; retries are not steps."""
    seconds: float | None = None
    """Time at work: the durations of its steps. Waiting does not count."""
    enforce: bool = True
    """False makes the budget advisory: passing it is told once and stops nothing."""

    def __post_init__(self) -> None:
        for name in LIMITS:
            value = getattr(self, name)
            if value is not None and not (checks.is_number(value) and value > 0):
                text = f"Budget {name} is {checks.shown(value)}; it must be above 0, or left out."
                raise InvalidValue(text)
        if type(self.enforce) is not bool:
            raise checks.refuse("Budget.enforce", self.enforce, "true or false")

    def exceeded(self, used: Mapping[str, float]) -> str | None:
        """The first limit that `used` has reached, or None."""
        for name in LIMITS:
            limit = getattr(self, name)
            if limit is not None and used.get(name, 0) >= limit:
                return name
        return None

    def check(self, used: Mapping[str, float]) -> None:
        """Raise `BudgetExceededError` when an enforced limit is reached."""
        name = self.exceeded(used)
        if name is not None and self.enforce:
            raise BudgetExceededError(name, getattr(self, name), used[name])

    def remaining(self, used: Mapping[str, float]) -> dict[str, float]:
        """What is left of each stated limit; may be negative."""
        return {
            name: limit - used.get(name, 0) for name in LIMITS if (limit := getattr(self, name)) is not None
        }

    def to_plain(self) -> dict[str, Any]:
        """As plain values, unlimited ones left out."""
        plain = {name: value for name in LIMITS if (value := getattr(self, name)) is not None}
        return plain if self.enforce else {**plain, "enforce": False}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Budget | None:
        """Read back what `to_plain` wrote; unknown limits are refused."""
        if not plain:
            return None
        unknown = set(plain) - {field.name for field in fields(cls)}
        if unknown:
            raise ConfigurationError(
                f"Unknown budget limit: {', '.join(sorted(unknown))}. Limits: {', '.join(LIMITS)}."
            )
        return cls(**plain)


LIMITS = ("tokens", "cost_usd", "steps", "seconds")
SHARED = ("tokens", "cost_usd", "steps")
"""Limits to which children add. Time does not add up: a step is at work while it waits for its children."""
