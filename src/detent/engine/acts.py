"""Acts: the effects that a visit has asked for and that are settled, with what came of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.outcome import Effect
from detent.kernel.entries import EffectDone
from detent.kernel.plain import decode

if TYPE_CHECKING:
    from detent.engine.work import Work
    from detent.kernel.run import Run


class Act(NamedTuple):
    """One settled effect of a visit."""

    key: str
    effect: Effect
    """With the arguments it was performed with; none if those were purged."""
    settled: Mapping[str, Any]
    """`receipt`, or `code` and `message`; see `Run.settled`."""

    @property
    def happened(self) -> bool:
        """Whether it was performed: it neither failed for good nor was left out by a person."""
        return "receipt" in self.settled and not self.settled.get("skipped")

    @property
    def receipt(self) -> Any:
        """What performing it gave back; None for one that did not happen."""
        return self.settled.get("receipt")


async def acts_of(driver: Work, run: Run | None = None, by: str | None = None) -> list[Act]:
    """The acts of the current visit, in order, those not committed yet included."""
    run = driver.run if run is None else run
    settled = dict(run.settled)
    proposal = run.proposal
    for body in driver.log.withheld if run is driver.run else ():
        if isinstance(body, EffectDone) and proposal is not None:
            item = next(item for item in proposal.effects if item["key"] == body.key)
            settled[body.key] = {"receipt": body.receipt, **item, "by": proposal.by}
    acts: list[Act] = []
    for key, outcome in settled.items():
        if by is not None and outcome.get("by") != by:
            continue
        args = outcome.get("args") or {}
        if set(args) == {"$blob", "size"}:
            raw = await driver.log.blob(args["$blob"])
            args = {} if raw is None else decode(raw)
        acts.append(Act(key, Effect(str(outcome.get("tool") or "unknown"), args), outcome))
    return acts
