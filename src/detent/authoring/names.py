"""Names that files use for things made in code: shelves of them, and the names that may have been meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from detent.kernel.errors import ConfigurationError, nearest

SUGGESTED = 5
_COMPARISONS = 40_000
_LONGEST = 100

T = TypeVar("T", bound="Named")


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that files may name."""

    name: str
    origin: str = ""
    """Where it was made, such as `shop/actions.py:12`."""
    instead_of: str = field(default="", kw_only=True)
    """Where the thing of the same name was made that ships with Detent and that it stands in for."""
    left_out: bool = field(default=False, kw_only=True)
    """Nothing but its name is known: it may be in a plugin that is not loaded."""


class Shelf(Generic[T]):
    """Things of one kind by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._named: dict[str, T] = {}
        self.absent: Callable[[str], T] | None = None
        """Makes a placeholder for a name that is not here, where a plugin that may have it is left out."""

    def add(self, item: T) -> None:
        """Put one on the shelf; a name that stands for two things is an error that names both places."""
        there = self._named.get(item.name)
        if there is not None and there is not item and there != item:
            raise ConfigurationError(
                f"Two {self.kind}s are named '{item.name}': {there.origin or 'one'} and "
                f"{item.origin or 'another'}. Rename one of them."
            )
        self._named[item.name] = item

    def put(self, item: T) -> None:
        """Put one on the shelf, in place of one of its name."""
        self._named[item.name] = item

    def get(self, name: str) -> T:
        """The one of a name, or a `ConfigurationError` with the nearest."""
        found = self.find(name)
        if found is None:
            raise ConfigurationError(f"There is no {self.kind} '{name}'.{nearest(name, self._named)}")
        return found

    def find(self, name: str) -> T | None:
        """The one of a name, if there is one."""
        found = self._named.get(name)
        return self.absent(name) if found is None and self.absent is not None and name else found

    def __contains__(self, name: object) -> bool:
        return name in self._named or (self.absent is not None and isinstance(name, str) and bool(name))

    def __iter__(self) -> Iterator[T]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._named)


class Nearest:
    """Finds the names that may have been meant; a file full of mistakes gets a bounded amount of help."""

    def __init__(self) -> None:
        self.left = _COMPARISONS

    def of(self, name: Any, names: Iterable[str]) -> tuple[str, ...]:
        """The nearest of `names`, at most five, best first."""
        if not isinstance(name, str) or not name or len(name) > _LONGEST or self.left <= 0:
            return ()
        known = sorted({one for one in names if one and len(one) <= _LONGEST})
        self.left -= len(known)
        return tuple(get_close_matches(name, known, n=SUGGESTED, cutoff=0.6))
