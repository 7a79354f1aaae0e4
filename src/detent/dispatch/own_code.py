"""What the step's own code would do in a visit in which an agent acts: the measure of every comparison.

The handler is run in a trial: it sees the answers that queries had and the receipts of what was performed,
and performs nothing itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_tools import FATAL
from detent.dispatch.equivalence import Discrepancy
from detent.dispatch.gate import Side
from detent.dispatch.matching import Match, effect_differences, match, normal, placed_rules
from detent.engine import moves
from detent.engine.acts import Act
from detent.engine.confirmation import DENIED
from detent.engine.effects import AFTER_FAILURE
from detent.engine.outcome import Effect
from detent.engine.step_failures import StepFailed
from detent.engine.trial_context import CannotCheck, TrialContext, TrialPaused
from detent.kernel.effect_key import action_of, effect_key, occurrence_of

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.engine.context import StepContext
    from detent.kernel.run import Run


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A trial of the handler."""

    ctx: TrialContext
    side: Side | None
    """None if it has come to an effect that is not performed yet."""

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects it makes, in order, as far as the trial went."""
        settled = self.ctx.run.settled
        first = tuple(effect for key, effect in self.ctx.came_to if not _left_out(settled.get(key)))
        return first if self.side is None else (*first, *self.proposals)

    @property
    def proposals(self) -> tuple[Effect, ...]:
        """The effects of its outcome; equal ones are performed once."""
        effects = () if self.side is None else self.side.effects
        distinct: dict[str, Effect] = {}
        for effect in effects:
            distinct.setdefault(effect.identity(self.ctx.step.name), effect)
        return tuple(distinct.values())


class OwnCode:
    """The handler of a step, beside an agent."""

    def __init__(
        self, plan: Plan, ctx: StepContext, handle: Callable[[StepContext], Awaitable[Side]]
    ) -> None:
        self.plan = plan
        self.step = plan.step
        self.ctx = ctx
        self._handle = handle
        self.rehearsed: Rehearsed | None = None
        """The last trial."""

    @property
    def ready(self) -> bool:
        """What the handler does is known to its end."""
        return self.rehearsed is not None and self.rehearsed.side is not None

    async def prepare(self) -> None:
        """Run the handler in a trial in advance; if it fails now, it is run again when it is needed."""
        if self.rehearsed is None:
            try:
                await self.rehearse()
            except CannotCheck:
                return
            except FATAL:
                raise
            except Exception:
                return

    async def rehearse(self) -> Rehearsed:
        """Run the handler in a trial; once, if it does not wait for receipts."""
        if not self.ready:
            ctx = TrialContext(self.ctx)
            ctx.occurrences = failed_before(self.ctx.run)
            side: Side | None = None
            try:
                side = await self._handle(ctx)
            except TrialPaused:
                side = None
            if ctx.paused:  # even if the handler has swallowed it
                side = None
            self.rehearsed = Rehearsed(ctx, side)
        assert self.rehearsed is not None
        return self.rehearsed

    # -- comparing ------------------------------------------------------------------------------------------

    async def departures(
        self, acts: Sequence[Act], coming: Sequence[Effect]
    ) -> tuple[tuple[Discrepancy, ...], int]:
        """Where an agent's effects depart from the handler's, and how many of the coming ones were compared.

        What was performed and what is coming must be the beginning of what the handler does; in any order, if
        the step's rules say so.
        """
        rehearsed = await self.rehearse()
        performed = [normal(self.ctx, act.asked or act.effect) for act in acts if act.happened]
        kept = self._not_left_out(coming)
        proposed = [normal(self.ctx, coming[place]) for place in kept]
        if "/effects" in placed_rules(self.step).unordered:
            as_acts = [*acts, *(Act("", coming[place], {"receipt": None}) for place in kept)]
            foreign = match(self.ctx, self.step, rehearsed.effects, as_acts).foreign
            return tuple(Discrepancy("/effects", "extra") for _ in foreign), len(coming)
        found = match(self.ctx, self.step, rehearsed.effects, acts, ordered=True)
        expected = [normal(self.ctx, effect, found.receipts) for effect in rehearsed.effects]
        mine = [*performed, *proposed]
        # What the handler does from receipts that are not there yet can only be compared once they are.
        known = expected.index(None) if None in expected else len(expected)
        open_ended = rehearsed.side is None or None in expected
        if open_ended and known > len(performed):
            mine = mine[:known]
        details = effect_differences(self.step, expected[: len(mine)], mine)
        compared = len(mine) - len(performed)
        return details, kept[compared] if compared < len(kept) else len(coming)

    def _not_left_out(self, coming: Sequence[Effect]) -> list[int]:
        """Places of the coming effects that had not failed and were not denied when they were come to."""
        counts = dict(self.ctx.occurrences)
        places: list[int] = []
        for place, effect in enumerate(coming):
            action = effect.identity(self.step.name)
            key = effect_key(action, self.ctx.run.visit, counts.get(action, 0))
            counts[action] = counts.get(action, 0) + 1
            if not _left_out(self.ctx.run.settled.get(key)):
                places.append(place)
        return places

    async def side_after(self, acts: Sequence[Act]) -> Side:
        """The handler's side, with the receipts of what was performed filled in.

        Raises:
            TrialPaused: it would make further effects before it concludes.
        """
        rehearsed = await self.rehearse()
        if rehearsed.side is None:
            raise TrialPaused
        return self.filled(replace(rehearsed.side, effects=rehearsed.effects), acts)

    def filled(self, side: Side, acts: Sequence[Act]) -> Side:
        """A side with the receipts of what was performed filled in, to be compared with another."""
        if not acts:
            return side
        found = match(self.ctx, self.step, side.effects, acts)
        outcome = found.filled(self.step, side.outcome)
        to = side.to if side.to is not None else moves.destination(self.plan.flow, self.ctx.run, outcome)
        effects = tuple(normal(self.ctx, effect, found.receipts) or effect for effect in side.effects)
        return replace(side, outcome=outcome, output=found.value(side.output), to=to, effects=effects)

    # -- going on -------------------------------------------------------------------------------------------

    async def matched(self, acts: Sequence[Act]) -> tuple[Rehearsed, Match]:
        """The handler's effects beside those performed, which are foreign until they are seen there."""
        rehearsed = await self.rehearse()
        return rehearsed, match(self.ctx, self.step, rehearsed.proposals, beyond(rehearsed.ctx, acts))

    def question(self, key: str, effect: Effect) -> str | None:
        """What the handler has a person asked before it performs an effect, as far as it was rehearsed.

        An effect that the step's rules take for the handler's, though it is not the very same, is asked about
        like that.
        """
        if self.rehearsed is None:
            return None
        trial, settled = self.rehearsed.ctx, self.ctx.run.settled
        if key in trial.questions:
            return trial.questions[key]
        wanted = normal(self.ctx, effect)
        for own_key, own in trial.came_to:
            asked_for = own_key in trial.questions and own_key not in settled
            if asked_for and not effect_differences(self.step, [normal(self.ctx, own)], [wanted]):
                return trial.questions[own_key]
        return None

    def check_denied(self, effects: Sequence[Effect], acts: Sequence[Act]) -> None:
        """Raise `StepFailed` if a person has denied one of the handler's effects in this visit."""
        for act in acts:
            if not str(act.settled.get("why") or "").startswith(DENIED):
                continue
            for effect in effects:
                pair = normal(self.ctx, effect), normal(self.ctx, act.effect)
                if pair[0] is not None and not effect_differences(self.step, [pair[0]], [pair[1]]):
                    raise StepFailed(f"A person has denied '{effect.tool}' ({act.settled['why']}).")

    def account_for(self, run: Run) -> None:
        """Give the handler's coming proposals keys that no settled effect of the visit has."""
        counts: dict[str, int] = dict(self.ctx.occurrences)
        for key in run.settled:
            action = action_of(key)
            counts[action] = max(counts.get(action, 0), occurrence_of(key) + 1)
        self.ctx.occurrences = counts


def _left_out(settled: Mapping[str, Any] | None) -> bool:
    """Whether an effect failed, or a person has decided that it is not done."""
    if settled is None:
        return False
    return "code" in settled or (bool(settled.get("skipped")) and settled.get("instead") is None)


def beyond(trial: TrialContext, acts: Sequence[Act]) -> list[Act]:
    """The acts that a trial of the handler has not come to while it went on."""
    settled = {key for key, _ in trial.came_to}
    return [act for act in acts if act.key not in settled]


def failed_before(run: Run) -> Mapping[str, int]:
    """How many equal effects of the agent failed, or were left out because of one that did, before any that
    happened: the handler tries those afresh.
    """
    counts: dict[str, int] = {}
    for key, settled in run.settled.items():
        action = action_of(key)
        number = counts.get(action, 0)
        undone = "code" in settled or settled.get("why") == AFTER_FAILURE
        failed = undone and settled.get("by") == "agent"
        if failed and key == effect_key(action, run.visit, number):
            counts[action] = number + 1
    return counts
