"""What a run has spent, and what it may spend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from detent.kernel.errors import BudgetExceededError, ConfigurationError


@dataclass(frozen=True, slots=True)
class Spend:
    """Tokens and money used by one piece of work. Adds up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __post_init__(self) -> None:
        if self.input_tokens < 0 or self.output_tokens < 0:
            raise ValueError("Tokens spent cannot be negative.")
        if not (math.isfinite(self.cost_usd) and self.cost_usd >= 0):
            raise ValueError(f"A cost of {self.cost_usd} is no amount of money.")

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Spend) -> Spend:
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        return Spend(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
        )

    def __bool__(self) -> bool:
        return bool(self.input_tokens or self.output_tokens or self.cost_usd)

    def to_plain(self) -> dict[str, Any]:
        """As plain values, zeros left out."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Spend:
        """Read back what `to_plain` wrote."""
        return cls(**plain) if plain else NOTHING


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
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigurationError(f"Budget {name} is {value}; it must be above 0, or left out.")

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
