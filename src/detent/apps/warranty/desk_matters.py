"""What changes how the whole desk works, for the attention list: rolled back, a service left alone."""

from __future__ import annotations

from detent.apps.warranty.attention import Matter
from detent.apps.warranty.rollback import Rollback
from detent.apps.warranty.settings import WarrantySettings
from detent.engine.breaker import Breakers
from detent.engine.clock import SystemClock
from detent.engine.ports import Store
from detent.kernel.policy import BreakerPolicy

TOOLS = ("check_warranty", "create_ticket", "send_email")
"""The tools of the mailbox, each with a breaker."""


async def desk_matters(store: Store, settings: WarrantySettings) -> list[Matter]:
    """What concerns no single mail, the gravest first."""
    clock = SystemClock()
    rollback = Rollback(store, settings.orchestration, clock.now)
    matters: list[Matter] = []
    tripped = (await rollback.watch()).tripped
    if tripped is not None:
        paused = await rollback.paused()
        reason = await rollback.line()
        what = "paused" if paused else "rolled back"
        matters.append(Matter(None, what, reason, tripped.at, command=("warranty", "rollback", "status")))
    rules = settings.tools.breaker
    breakers = Breakers(store, clock)
    for tool in TOOLS:
        rest = await breakers.rest(f"tool/{tool}", BreakerPolicy(rules.failures, rules.probe_after_s))
        if rest is not None:
            matters.append(
                Matter(None, "left alone", f"'{tool}' failed {rest.failures} times in a row", rest.since,
                       again_at=rest.until)
            )  # fmt: skip
    return matters
