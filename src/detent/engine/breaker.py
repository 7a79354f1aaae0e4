"""Circuit breakers on steps and tools, kept in the store: a restart forgets no failing service."""

from __future__ import annotations

from typing import NamedTuple

from detent.engine import logger
from detent.engine.ports import Clock, Store
from detent.engine.tools import ToolError
from detent.kernel.policy import BreakerPolicy


class Rest(NamedTuple):
    """Why and how long something is left alone."""

    failures: int
    """In a row."""
    since: float
    until: float


class Breakers:
    """Counts failures in a row per name; open breakers say how long to leave it alone."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def open_until(self, name: str, policy: BreakerPolicy) -> float | None:
        """When the next try may be made, or None when one may be made now.

        After the cooldown exactly one caller gets through; the others wait for its result.
        """
        while True:
            value, version = await self._store.mark(_key(name))
            if not value or value["failures"] < policy.failures:
                return None
            now = self._clock.now()
            if now < value["until"]:
                return float(value["until"])
            trial = {**value, "until": now + policy.cooldown}
            if await self._store.set_mark(_key(name), trial, version):
                return None

    async def rest(self, name: str, policy: BreakerPolicy) -> Rest | None:
        """How long a tool or step is left alone, for people; None if it is not. Changes nothing."""
        value, _ = await self._store.mark(_key(name))
        if not value or value["failures"] < policy.failures or value["until"] <= self._clock.now():
            return None
        return Rest(value["failures"], value["until"] - policy.cooldown, value["until"])

    async def failed(self, name: str, policy: BreakerPolicy) -> None:
        """Count a failure; the one that fills the count opens the breaker."""
        while True:
            value, version = await self._store.mark(_key(name))
            failures = (value["failures"] if value else 0) + 1
            until = self._clock.now() + policy.cooldown if failures >= policy.failures else 0.0
            if await self._store.set_mark(_key(name), {"failures": failures, "until": until}, version):
                if failures == policy.failures:
                    logger.warning("breaker.opened", name=name, failures=failures, cooldown_s=policy.cooldown)
                return

    async def raised(self, name: str, policy: BreakerPolicy | None, error: Exception) -> None:
        """Count the error of a tool, unless the tool itself works: it refused for good, or only this call.

        A tool without a policy has no breaker.
        """
        if policy is None:
            return
        if isinstance(error, ToolError) and error.of_call:
            await self.succeeded(name)
        elif not isinstance(error, ToolError) or error.transient:
            await self.failed(name, policy)

    async def succeeded(self, name: str) -> None:
        """Forget failures."""
        while True:
            value, version = await self._store.mark(_key(name))
            if not value or not value["failures"]:
                return
            if await self._store.set_mark(_key(name), {"failures": 0, "until": 0.0}, version):
                logger.info("breaker.closed", name=name)
                return


def _key(name: str) -> str:
    return f"breaker:{name}"
