"""Names that files use for items defined in code: shelves of such items, and suggestions of similar names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from detent.kernel.errors import SIMILAR, ConfigurationError, nearest

SUGGESTED = 5
_COMPARISONS = 40_000
_LONGEST = 100

T = TypeVar("T", bound="Named")


@dataclass(frozen=True, slots=True)
class Named:
    """One item that files may name."""

    name: str
    origin: str = ""
    """Where it is defined, such as `shop/actions.py:12`."""
    instead_of: str = field(default="", kw_only=True)
    """Origin of the built-in item that it replaces."""
    left_out: bool = field(default=False, kw_only=True)
    """Whether it is a placeholder: the item may be in a plugin that is not loaded."""


class Shelf(Generic[T]):
    """Items of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._named: dict[str, T] = {}
        self.absent: Callable[[str], T] | None = None
        """Makes a placeholder for an unknown name, if a plugin that may define it is left out."""

    def add(self, item: T) -> None:
        """Add an item.

        Raises:
            ConfigurationError: another item has the name; the message names both places.
        """
        existing = self._named.get(item.name)
        if existing is not None and existing is not item and existing != item:
            raise ConfigurationError(
                f"Two {self.kind}s are named '{item.name}': {existing.origin or 'one'} and "
                f"{item.origin or 'another'}. Rename one of them."
            )
        self._named[item.name] = item

    def put(self, item: T) -> None:
        """Add an item, replacing the item of the same name."""
        self._named[item.name] = item

    def get(self, name: str) -> T:
        """Return the item of a name.

        Raises:
            ConfigurationError: there is no such item; the message suggests the nearest name.
        """
        item = self.find(name)
        if item is None:
            raise ConfigurationError(f"There is no {self.kind} '{name}'.{nearest(name, self._named)}")
        return item

    def find(self, name: str) -> T | None:
        """Return the item of a name, if there is one."""
        item = self._named.get(name)
        return self.absent(name) if item is None and self.absent is not None and name else item

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
    """Finds similar names to suggest; the number of comparisons per file is bounded."""

    def __init__(self) -> None:
        self.left = _COMPARISONS

    def of(self, name: Any, names: Iterable[str]) -> tuple[str, ...]:
        """Return the nearest of `names`, at most five, best first."""
        if not isinstance(name, str) or not name or len(name) > _LONGEST or self.left <= 0:
            return ()
        known = sorted({candidate for candidate in names if candidate and len(candidate) <= _LONGEST})
        self.left -= len(known)
        return tuple(get_close_matches(name, known, n=SUGGESTED, cutoff=SIMILAR))


def unique_match(reference: str, names: Iterable[str]) -> str | None:
    """The name itself, or else the only one that begins with the reference, whatever the case."""
    known = list(names)
    if reference in known:
        return reference
    matches = [name for name in known if reference and name.casefold().startswith(reference.casefold())]
    return matches[0] if len(matches) == 1 else None
