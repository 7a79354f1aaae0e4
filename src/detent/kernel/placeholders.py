"""Stand-ins for receipts as proposals hold them: which receipts a value refers to, and filling them in.

How a value with `Receipt` objects is written down is the engine's business (`engine.placeholders`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.kernel.effect_key import action_of
from detent.kernel.entries import Proposed
from detent.kernel.guards import dig

STAND_IN = "$receipt"
TEXT = "$text"
"""Pieces of a text, some of them stand-ins."""
LITERAL = "$literal"
"""Wraps a mapping that must not be read as a stand-in or as one of these."""
MARKS = frozenset({STAND_IN, TEXT, LITERAL})


def receipts_in(value: Any) -> set[str]:
    """Keys of the effects whose receipts a written value refers to."""
    if isinstance(value, dict):
        if LITERAL in value:
            return receipts_in(list(value[LITERAL].values()))
        if STAND_IN in value:
            return {str(value[STAND_IN]).partition(".")[0]}
        if TEXT in value:
            return receipts_in(value[TEXT])
        return set().union(*(receipts_in(item) for item in value.values()))
    return set().union(*(receipts_in(item) for item in value)) if isinstance(value, list) else set()


def uses_receipt(proposal: Proposed | None, key: str) -> bool:
    """Whether a proposal's outcome, or another of its effects, is made from the receipt of an effect."""
    if proposal is None:
        return False
    others = [effect["args"] for effect in proposal.effects if effect["key"] != key]
    return action_of(key) in receipts_in([proposal.outcome, others])


def fill(value: Any, receipts: Mapping[str, Any]) -> Any:
    """A written value with its stand-ins replaced by what the receipts say."""
    if isinstance(value, dict):
        if LITERAL in value:
            return {name: fill(item, receipts) for name, item in value[LITERAL].items()}
        if STAND_IN in value:
            key, _, path = str(value[STAND_IN]).partition(".")
            if key not in receipts:
                raise KeyError(
                    f"No effect with the key {key} has been performed, so its receipt is not known."
                )
            receipt = receipts[key]
            return dig(receipt, path) if path else receipt
        if TEXT in value:
            return "".join(_said(fill(part, receipts)) for part in value[TEXT])
        return {name: fill(item, receipts) for name, item in value.items()}
    if isinstance(value, list):
        return [fill(item, receipts) for item in value]
    return value


def _said(part: Any) -> str:
    """A piece of a text; what the receipt of a skipped effect does not say is a dash."""
    return "–" if part is None else str(part)
