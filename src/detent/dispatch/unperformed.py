"""The wait of a step that nobody can perform: it has no handler, and its agent may not or cannot be asked.

An agent that was asked and gave a wrong answer, raised or took too long has failed, and so has the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AgentRole, FallbackReason
from detent.dispatch.evidence import MISCONFIGURED
from detent.dispatch.failure import Failure
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
        self.retries = 0
        """How often a person has said that the agent is to be asked anew."""
        self.given_up = False
        """The step is to end as its flow ends it without an answer."""
        while ctx.answered(self._name):
            self.given_up = ctx.answer(self._name) == FAIL
            self.retries += not self.given_up
            self._number += 1

    @property
    def _name(self) -> str:
        return f"unperformed-{self._number}"

    def holds(self, failure: Failure | None) -> bool:
        """Whether a person is to be asked before the step ends without an answer."""
        side = agent_side(self.ctx.step)
        handled = side.handled and side.role is not AgentRole.REQUIRED
        return failure is not None and _is_nobody(failure) and not handled and not self.given_up

    def hold(self, failure: Failure) -> Hold:
        """The wait for a person."""
        why = failure.message
        question = (
            f"Nobody can perform '{self.ctx.step.name}', which has no handler: {why.rstrip('.')}. Retry?"
        )
        return Hold(self._name, "attention", question[:500], [RETRY, FAIL], about={"reason": why[:500]})


def _is_nobody(failure: Failure) -> bool:
    """Whether there was no agent: none may be asked, its settings are wrong, or its server is away."""
    if failure.reason in NOBODY or failure.type in MISCONFIGURED:
        return True
    return failure.reason is FallbackReason.EXCEPTION and failure.transient
