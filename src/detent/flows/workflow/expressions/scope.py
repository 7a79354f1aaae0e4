"""What an expression can see: the inputs, the steps so far, and inside a loop the item and its index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class _Unbound(Enum):
    UNBOUND = "unbound"

    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND = _Unbound.UNBOUND
"""Stands for `item` and `index` outside of a loop, where null would be a value."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The values of one moment."""

    inputs: Mapping[str, Any]
    steps: Mapping[str, Mapping[str, Any]]
    """`output` and `status` by step name. It may be lazy: only names that are asked for are looked up, and it
    is gone through only to list its names in an error."""
    item: Any = UNBOUND
    index: Any = UNBOUND
