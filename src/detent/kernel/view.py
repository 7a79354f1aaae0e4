"""Read-only looks into plain values: what a step sees of a run's data, at no cost and with no way to change
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from detent.kernel.errors import nearest
from detent.kernel.plain import copied


def view(value: Any) -> Any:
    """`value` itself when it is a scalar, else a read-only look at it."""
    kind = type(value)
    if kind is dict:
        return View(value)
    if kind is list:
        return ListView(value)
    return value


class View(Mapping[str, Any]):
    """A mapping that can be read by key or by attribute and not be written."""

    __slots__ = ("_inner",)

    def __init__(self, inner: dict[str, Any]) -> None:
        object.__setattr__(self, "_inner", inner)

    def __getitem__(self, key: str) -> Any:
        return view(self._inner[key])

    def __getattr__(self, key: str) -> Any:
        try:
            return view(self._inner[key])
        except KeyError:
            keys = ", ".join(sorted(self._inner)) or "nothing"
            raise AttributeError(
                f"The data has no '{key}'.{nearest(key, self._inner)} It has: {keys}."
            ) from None

    def __setattr__(self, key: str, value: Any) -> None:
        raise TypeError("A run's data is read-only in a step. Return Outcome(set={...}) to change it.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    def __eq__(self, other: object) -> bool:
        if isinstance(other, View):
            return bool(self._inner == other._inner)
        return bool(self._inner == other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._inner)

    def get(self, key: str, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        return view(self._inner.get(key, default))

    def __plain__(self) -> dict[str, Any]:
        return copied(self._inner)  # type: ignore[no-any-return]


class ListView(Sequence[Any]):
    """A list that can be read and not be written."""

    __slots__ = ("_inner",)

    def __init__(self, inner: list[Any]) -> None:
        self._inner = inner

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [view(item) for item in self._inner[index]]
        return view(self._inner[index])

    def __len__(self) -> int:
        return len(self._inner)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListView):
            return self._inner == other._inner
        return self._inner == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._inner)

    def __plain__(self) -> list[Any]:
        return copied(self._inner)  # type: ignore[no-any-return]
