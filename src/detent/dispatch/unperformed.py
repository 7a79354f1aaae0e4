"""The wait of a step that nobody can perform: it has no handler, and its agent may not or cannot be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import FallbackReason
from detent.engine.outcome import Hold

if TYPE_CHECKING:
    from detent.engine.context import StepContext

NOBODY = frozenset({FallbackReason.OPERATOR, FallbackReason.NO_EXECUTOR})
"""Reasons for which no agent is asked, and which a person can remove."""
RETRY, FAIL = "retry", "fail"


class Unperformed:
    """What a person has said about a step that nobody can perform."""

    def __init__(self, ctx: StepContext) -> None:
        self.ctx = ctx
        self._number = 1
        self.given_up = False
        """The step is to end as its flow ends it without an answer."""
        while ctx.answered(self._name):
            self.given_up = ctx.answer(self._name) == FAIL
            self._number += 1

    @property
    def _name(self) -> str:
        return f"unperformed-{self._number}"

    def holds(self, reason: FallbackReason) -> bool:
        """Whether a person is to be asked before the step ends without an answer."""
        return reason in NOBODY and not agent_side(self.ctx.step).handled and not self.given_up

    def hold(self, why: str) -> Hold:
        """The wait for a person."""
        question = (
            f"Nobody can perform '{self.ctx.step.name}', which has no handler: {why.rstrip('.')}. Retry?"
        )
        return Hold(self._name, "attention", question[:500], [RETRY, FAIL], about={"reason": why[:500]})
