"""Where runs are kept. Nothing is loaded before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.front_door import opened

_WHERE = {
    "MemoryStore": "detent.adapters.stores.memory",
    "PostgresStore": "detent.adapters.stores.postgres",
    "SQLiteStore": "detent.adapters.stores.sqlite",
}

if TYPE_CHECKING:
    from detent.adapters.stores.memory import MemoryStore as MemoryStore
    from detent.adapters.stores.postgres import PostgresStore as PostgresStore
    from detent.adapters.stores.sqlite import SQLiteStore as SQLiteStore

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return opened(__name__, name, _WHERE)
