"""The values an expression can read: inputs, finished steps, and inside a loop the item and its index."""

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
"""Value of `item` and `index` outside a loop; null would be a real value."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The values at one point of a run."""

    inputs: Mapping[str, Any]
    steps: Mapping[str, Mapping[str, Any]]
    """`output` and `status` by step name. It may be lazy: only referenced names are looked up, and it is
    iterated only to list the names in an error."""
    item: Any = UNBOUND
    index: Any = UNBOUND
