"""Stand-ins for receipts: values known only after an effect is performed, in data and in later effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.kernel.guards import dig


def receipts_in(value: Any) -> set[str]:
    """Keys of the effects whose receipts a plain value refers to."""
    if isinstance(value, dict):
        if "$receipt" in value:
            return {str(value["$receipt"]).partition(".")[0]}
        return set().union(*(receipts_in(item) for item in value.values()))
    return set().union(*(receipts_in(item) for item in value)) if isinstance(value, list) else set()


def fill(value: Any, receipts: Mapping[str, Any]) -> Any:
    """A plain value with its stand-ins replaced by what the receipts say."""
    if isinstance(value, dict):
        if "$receipt" in value:
            key, _, path = str(value["$receipt"]).partition(".")
            if key not in receipts:
                raise KeyError(
                    f"No effect with the key {key} has been performed, so its receipt is not known."
                )
            receipt = receipts[key]
            return dig(receipt, path) if path else receipt
        return {name: fill(item, receipts) for name, item in value.items()}
    if isinstance(value, list):
        return [fill(item, receipts) for item in value]
    return value
