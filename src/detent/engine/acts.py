"""Acts: the effects that a visit has asked for and that are settled, with what came of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from detent.engine.outcome import Effect
from detent.kernel.entries import Body, EffectDone
from detent.kernel.plain import decode
from detent.kernel.run import Run

Blob: TypeAlias = Callable[[str], Awaitable[bytes | None]]
"""Gives what is kept outside the journal, by hash."""


class Act(NamedTuple):
    """One settled effect of a visit."""

    key: str
    effect: Effect
    """With the arguments it was performed with; none if those were purged."""
    settled: Mapping[str, Any]
    """`receipt`, or `code` and `message`; see `Run.settled`."""
    asked: Effect | None = None
    """What was asked for, if a person has put this effect in its place."""

    @property
    def happened(self) -> bool:
        """Whether it was performed: it neither failed for good nor was left out by a person."""
        return "receipt" in self.settled and not self.settled.get("skipped")

    @property
    def receipt(self) -> Any:
        """What performing it gave back; None for one that did not happen."""
        return self.settled.get("receipt")


async def acts_of(run: Run, withheld: Sequence[Body], blob: Blob, by: str | None = None) -> list[Act]:
    """The acts of a run's current visit, in order; `withheld` are entries that are not committed yet."""
    settled = dict(run.settled)
    for body in withheld:
        if isinstance(body, EffectDone) and run.proposal is not None:
            item = next(item for item in run.proposal.effects if item["key"] == body.key)
            settled[body.key] = {"receipt": body.receipt, **item, "by": run.proposal.by}
    acts: list[Act] = []
    replacing = {outcome["instead"] for outcome in settled.values() if "instead" in outcome}
    for key, outcome in settled.items():
        if key in replacing or (by is not None and outcome.get("by") != by):
            continue
        effect = await effect_of(outcome, blob)
        if "instead" in outcome:  # what a person has put in its place
            performed = settled[outcome["instead"]]
            acts.append(Act(key, await effect_of(performed, blob), performed, asked=effect))
        else:
            acts.append(Act(key, effect, outcome))
    return acts


async def effect_of(outcome: Mapping[str, Any], blob: Blob) -> Effect:
    """The effect of a settled line: its tool, and its arguments unless they were purged."""
    args = outcome.get("args") or {}
    if set(args) == {"$blob", "size"}:
        raw = await blob(args["$blob"])
        args = {} if raw is None else decode(raw)
    return Effect(str(outcome.get("tool") or "unknown"), args)
