"""A person's review of a draft: the hold in which it waits, and the decision that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.dispatch.draft import Draft, DraftVerdict, Review, with_texts
from detent.engine.calls import call
from detent.engine.journal_reader import read
from detent.engine.outcome import Hold
from detent.engine.placeholders import written
from detent.engine.trial_context import TrialContext
from detent.insight.effect_text import REVIEW
from detent.kernel.entries import Held
from detent.kernel.plain import decode, encode, to_plain

if TYPE_CHECKING:
    from detent.dispatch.gate import Side
    from detent.dispatch.plan import Plan
    from detent.engine.context import StepContext
    from detent.engine.ports import Store


class DraftReview:
    """The review of what an agent has written in one visit."""

    def __init__(self, plan: Plan, ctx: StepContext, draft: Draft) -> None:
        self.plan = plan
        self.ctx = ctx
        self.draft = draft
        self.shown = draft
        """The draft that waits: the agent's, or an edit of it that breaks the contract."""
        self.by: tuple[str, float] | None = None
        """Who has decided, and when."""
        self.until: float | None = None
        """When the time for the draft is over, if a person has already decided on it once."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        ctx: StepContext,
        written: Mapping[str, str],
        own: Mapping[str, str],
        inputs: Mapping[str, Any],
    ) -> DraftReview:
        """The review of an agent's text beside the handler's."""
        language, answers = ctx.data.get("language"), agent_side(plan.step).answers
        draft = Draft(
            written, own, to_plain(inputs), language if isinstance(language, str) else None,
            answers="" if answers is None else answers(ctx),
        )  # fmt: skip
        return cls(plan, ctx, draft)

    async def decision(self, side: Side, store: Store) -> Review | None:
        """What a person has decided; None while nobody has.

        An edit that breaks the hard contract is put before a person again.
        """
        step, ctx = self.plan.step, self.ctx
        effects = tuple({"tool": effect.tool, "args": written(dict(effect.args))} for effect in side.effects)
        self.draft = self.shown = replace(self.draft, effects=effects)
        while ctx.answered(self.shown.hold):
            answer: Any = ctx.answer(self.shown.hold)
            if isinstance(answer, Mapping) and "$blob" in answer:
                raw = await ctx.kept(answer)
                answer = None if raw is None else decode(raw)
            review = Review.of(self.shown, answer, self.draft.written)
            self.by = ctx.answer_by(self.shown.hold)
            contract = agent_side(step).text_contract
            edited = with_texts(self.plan, side, review.texts).outcome
            problems = () if contract is None else await call(contract, None, TrialContext(ctx), edited)
            problems = tuple(str(problem) for problem in problems)
            if not problems or review.verdict in (DraftVerdict.HANDLER, DraftVerdict.UNJUDGED):
                return review
            if not self.shown.edition:
                self.until = await self._until(store)
            edition = self.shown.edition + 1
            self.shown = replace(self.shown, written=review.texts, problems=problems, edition=edition)
        return None

    def hold(self, now: float) -> Hold:
        """The wait for a person, or until the time for it is over."""
        within = self.plan.config.review_within
        until = None if within is None else now + within if self.until is None else self.until
        return Hold(
            self.shown.hold, REVIEW, f"May this text of step '{self.plan.step.name}' be used?",
            wake_at=until,
            default="unjudged" if within is not None else None,
            about={"step": self.plan.qualified, "kept": self.kept(), "private": True},
        )  # fmt: skip

    async def _until(self, store: Store) -> float | None:
        """When the time for the agent's draft is over: an edit that is refused does not prolong it."""
        async for entry in read(store, self.ctx.run_id):
            if isinstance(entry.body, Held) and entry.body.name == self.draft.hold:
                return entry.body.wake_at
        return None

    def kept(self) -> Mapping[str, Any]:
        """The draft as it is kept beside the journal."""
        return self.ctx.keep(encode(self.shown.to_plain()))

    def record(self, review: Review) -> dict[str, Any]:
        """What the journal keeps of a decision."""
        kept = self.ctx.keep(encode(self.draft.to_plain()))
        record: dict[str, Any] = {"kept": kept, "verdict": review.verdict.value}
        if self.by is not None and review.verdict is not DraftVerdict.UNJUDGED:
            because = None if review.because is None else review.because.value
            more = {"by": self.by[0], "at": self.by[1], "because": because, "seconds": review.seconds}
            record |= {name: value for name, value in more.items() if value is not None}
        return record
