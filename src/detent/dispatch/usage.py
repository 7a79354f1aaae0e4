"""The usage of an agent: tokens and, where the price is known, money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detent.kernel.budget import Spend


@dataclass(frozen=True, slots=True)
class UsageMetadata:
    """The usage of an execution."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_cost_usd: float | None = None
    """None when the price is not known."""

    def __add__(self, other: UsageMetadata) -> UsageMetadata:
        priced = self.total_cost_usd is not None and other.total_cost_usd is not None
        return UsageMetadata(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            (self.total_cost_usd or 0.0) + (other.total_cost_usd or 0.0) if priced else None,
        )

    @property
    def spend(self) -> Spend:
        """In the journal's form; an unknown price counts as nothing there."""
        return Spend(self.input_tokens, self.output_tokens, self.total_cost_usd or 0.0)

    def to_plain(self) -> dict[str, Any]:
        """As plain values, without zeros."""
        plain: dict[str, Any] = {
            name: value
            for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
            if (value := getattr(self, name))
        }
        if self.total_cost_usd is not None:
            plain["total_cost_usd"] = self.total_cost_usd
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> UsageMetadata | None:
        """Read back what `to_plain` wrote."""
        return None if plain is None else cls(**plain)
