"""Results of a function, remembered by the identity of an argument that is shared and never changed.

A JSON Schema is such a value: it cannot be hashed, and comparing it takes as long as computing with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class IdentityMemo(Generic[T]):
    """Calls a function once for each object that it is given."""

    def __init__(self, function: Callable[[Any], T], most: int = 256) -> None:
        self._function = function
        self._most = most
        """Results that are kept."""
        self._results: dict[int, tuple[Any, T]] = {}
        """Each with its argument, which is thereby kept alive, so that its identity stays unique."""

    def __call__(self, value: Any) -> T:
        """The result for a value; shared, not to be changed."""
        known = self._results.get(id(value))
        if known is not None:
            return known[1]
        result = self._function(value)
        if len(self._results) >= self._most:
            self._results.clear()
        self._results[id(value)] = (value, result)
        return result
