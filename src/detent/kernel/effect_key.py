"""Keys of effects in the ledger: the action, the visit of the state, and how many equal actions came before.

A resumed step comes to the same keys again, so that nothing is done twice; a later visit, or a second equal
action of one visit, has a key of its own, so that a command asked for again runs again.
"""

from __future__ import annotations

_SEPARATOR = "~"


def effect_key(action: str, visit: int, occurrence: int) -> str:
    """Return the key of an effect; `visit` and `occurrence` count from 0.

    The first effect of a first visit has the action's own digest as its key, as all effects once had.
    """
    return f"{action}{_SEPARATOR}{visit}{_SEPARATOR}{occurrence}" if visit or occurrence else action


def occurrence_of(key: str) -> int:
    """Return how many equal effects came before it in its visit."""
    return int(key.rpartition(_SEPARATOR)[2]) if _SEPARATOR in key else 0


def action_of(key: str) -> str:
    """Return the action's digest, by which the receipts of one proposal are named."""
    return key.partition(_SEPARATOR)[0]
