"""The suite every store must pass. It tries to break each promise of the `Store` port.

Subclass it in a test file and say how to open your store; any runner that collects `Test…` classes will do,
and pytest need not be installed:

```python
class TestMyStore(DurableStoreSuite):
    async def open_store(self) -> Store:
        self.place = fresh_place()
        return await self.open_again(None)

    async def open_again(self, store: Store | None) -> Store:
        store = MyStore(self.place)
        await store.open()
        return store
```

Every trial gets an event loop and a store of its own and closes the store afterwards. With pytest, call
`pytest.register_assert_rewrite("detent.testing.store_trials")` in `conftest.py` for detailed failures.
"""

from __future__ import annotations

from detent.testing.store_trials.claims import ClaimTrials
from detent.testing.store_trials.concurrency import ClosingTrials, CrowdTrials
from detent.testing.store_trials.derived import BesideTrials
from detent.testing.store_trials.durability import LastingTrials
from detent.testing.store_trials.fence import FenceTrials
from detent.testing.store_trials.reading import ReadingTrials

__all__ = ["DurableStoreSuite", "StoreSuite"]


class StoreSuite(FenceTrials, ClaimTrials, ReadingTrials, BesideTrials, CrowdTrials):
    """The promises of every store. Needs `open_store`."""


class DurableStoreSuite(StoreSuite, ClosingTrials, LastingTrials):
    """The promises of a store that outlives its process and may be shared. Also needs `open_again`."""
