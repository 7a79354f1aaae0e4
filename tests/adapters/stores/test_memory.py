"""The memory store keeps every promise that does not need a disk."""

from __future__ import annotations

from detent.adapters.stores.memory import MemoryStore
from detent.engine.ports import Store
from detent.testing.store_suite import StoreSuite


class TestMemoryStore(StoreSuite):
    async def open_store(self) -> Store:
        store = MemoryStore()
        await store.open()
        return store
