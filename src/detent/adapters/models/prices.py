"""What tokens cost: the user's own prices first, then a public price list from an installed library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from detent.dispatch.usage import UsageMetadata
from detent.kernel.errors import DefinitionError, nearest

KINDS = ("input", "output", "cache_read", "cache_write")
"""The prices an entry may name, in USD per million tokens; a missing cache price is the input price."""

MILLION = 1_000_000


class PriceTable:
    """Prices by model id. No price is ever fetched over the network."""

    def __init__(self, extra: Mapping[str, Mapping[str, float]] = {}) -> None:
        problems = [problem for model_id, entry in extra.items() for problem in _problems(model_id, entry)]
        if problems:
            raise DefinitionError("The price table", problems)
        self._exact = {key: dict(entry) for key, entry in extra.items() if not key.endswith("*")}
        starred = ((key[:-1], dict(entry)) for key, entry in extra.items() if key.endswith("*"))
        self._starting = sorted(starred, key=lambda pair: -len(pair[0]))

    def given(self, model_id: str | None) -> bool:
        """Whether the user set a price for this model."""
        return self._own(model_id) is not None

    def known(self, model_id: str | None) -> bool:
        """Whether the cost of asking this model is known beforehand."""
        return self.cost(model_id, UsageMetadata()) is not None

    def cost(self, model_id: str | None, usage: UsageMetadata) -> float | None:
        """USD for a usage whose `input_tokens` include the cached ones; None when no price is known."""
        if model_id is None:
            return None
        prices = self._own(model_id)
        if prices is None:
            return _listed(model_id, usage)
        fresh = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
        return (
            fresh * prices["input"]
            + usage.cache_read_tokens * prices.get("cache_read", prices["input"])
            + usage.cache_write_tokens * prices.get("cache_write", prices["input"])
            + usage.output_tokens * prices["output"]
        ) / MILLION

    def _own(self, model_id: str | None) -> dict[str, float] | None:
        if model_id is None:
            return None
        if (exact := self._exact.get(model_id)) is not None:
            return exact
        return next((entry for start, entry in self._starting if model_id.startswith(start)), None)


def _problems(model_id: Any, entry: Any) -> list[str]:
    """The problems of one entry."""
    where = f"{model_id}: "
    if not isinstance(model_id, str) or not model_id or "*" in model_id[:-1]:
        return [f"{where}a model id, or the start of one followed by '*', was expected."]
    if not isinstance(entry, Mapping):
        return [f"{where}prices are named: {', '.join(KINDS)}."]
    problems = [f"{where}lacks {kind}." for kind in ("input", "output") if kind not in entry]
    for kind, price in entry.items():
        if kind not in KINDS:
            hint = nearest(str(kind), KINDS) or f" Known: {', '.join(KINDS)}."
            problems.append(f"{where}'{kind}' is no price.{hint}")
        elif isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price):
            problems.append(f"{where}{kind} must be a number of USD per million tokens.")
        elif price < 0:
            problems.append(f"{where}{kind} must not be negative.")
    return problems


def _listed(model_id: str, usage: UsageMetadata) -> float | None:
    """The cost by the public list of the installed genai-prices."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    used = Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    provider, colon, name = model_id.partition(":")
    tries = [(name, provider)] if colon and name else []
    for name, provider_id in (*tries, (model_id, None)):
        try:
            return float(calc_price(used, name, provider_id=provider_id).total_price)
        except (LookupError, ValueError):
            continue
    return None
