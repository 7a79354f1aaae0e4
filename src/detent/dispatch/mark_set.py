"""Marks that are read once and changed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.engine.ports import MarkChange

if TYPE_CHECKING:
    from detent.engine.ports import Store


class MarkSet:
    """Changes to marks of a store, each against the version that was read."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._read: dict[str, tuple[Any, int]] = {}
        self._new: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        """A mark as it stands, with what was put so far."""
        if key not in self._read:
            self._read[key] = await self.store.mark(key)
        return self._new.get(key, self._read[key][0])

    def put(self, key: str, value: Any) -> None:
        """Give a mark that was read another value."""
        assert key in self._read, "a mark is read before it is changed"
        self._new[key] = value

    @property
    def changes(self) -> tuple[MarkChange, ...]:
        """The marks that have another value now, for a commit that sets all or none."""
        return tuple(
            MarkChange(key, value, self._read[key][1])
            for key, value in self._new.items()
            if value != self._read[key][0]
        )

    async def write(self) -> bool:
        """Set the marks one after another, in the order in which they were put; False if the first has moved.

        One of the others that has moved is left as it is: see `moved`.
        """
        for number, change in enumerate(self.changes):
            if await self.store.set_mark(change.key, change.value, change.expected):
                self._read[change.key] = (change.value, change.expected + 1)
            elif not number:
                return False
        return True

    @property
    def moved(self) -> bool:
        """After `write`: whether one of the marks was changed by others meanwhile, and so was not set."""
        return bool(self.changes)
