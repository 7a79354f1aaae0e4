"""After an agent has acted and failed: the handler does the rest, or a person decides, or the step fails.

Never on as if nothing had happened. If all that was done is what the handler would do too, it does the rest
and repeats nothing. Otherwise a flow that can undo fails the step, and any other flow asks a person.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.gate import Side
from detent.dispatch.matching import match
from detent.dispatch.own_code import OwnCode, beyond, failed_before
from detent.engine.acts import Act
from detent.engine.outcome import Hold, Outcome
from detent.engine.performer import concluded
from detent.engine.step_failures import Diverged
from detent.engine.trial_context import CannotCheck, TrialContext
from detent.kernel.entries import Body
from detent.kernel.plain import brief

if TYPE_CHECKING:
    from detent.dispatch.proposal import Proposal
    from detent.engine.context import StepContext
    from detent.engine.work import Work

DIVERGED = "diverged"
"""Name of the hold of a run whose agent did what the handler would not have done."""
BY_CODE, ACCEPT, FAIL = "code", "accept", "fail"
"""The answers a person may give to it."""


@dataclass
class AfterEffects:
    """The end of a visit in which an agent has acted and failed."""

    driver: Work
    own_code: OwnCode
    inputs: Mapping[str, Any]
    handle: Callable[[StepContext], Awaitable[Side]]
    """Runs the handler."""

    async def go_on(self, acts: Sequence[Act]) -> tuple[Side, tuple[Body, ...]]:
        """The handler's side: it does the rest, and repeats nothing; or a question to a person.

        Raises:
            Diverged: the agent did what the handler would not have done.
        """
        own, ctx, run = self.own_code, self.own_code.ctx, self.driver.run
        if agent_side(own.step).stands and (known := self._known(acts)) is not None:
            return await self._accepted(known), ()
        try:
            rehearsed, found = await own.matched(acts)
        except CannotCheck:
            return await self._diverged(acts, acts, comparable=False), ()
        if found.foreign and ctx.answer(DIVERGED) != BY_CODE:
            return await self._diverged(acts, found.foreign, comparable=True), ()
        remarks: tuple[Body, ...] = ()
        if rehearsed.side is not None and not rehearsed.ctx.came_to:
            side, remarks = rehearsed.side, tuple(rehearsed.ctx.said)
        else:
            ctx.begin_again(failed_before(run))
            side = await self.handle(ctx)
            found = match(ctx, own.step, side.effects, beyond(rehearsed.ctx, acts))
        outcome = found.filled(own.step, side.outcome)
        ctx.proposed = ()
        own.account_for(run)
        return replace(side, outcome=outcome, output=found.value(side.output)), remarks

    async def _diverged(self, acts: Sequence[Act], foreign: Sequence[Act], *, comparable: bool) -> Side:
        """Where the agent did what the handler would not, or what cannot be compared with it any more."""
        ctx = self.own_code.ctx
        done = ", ".join(f"'{tool}'" for tool in dict.fromkeys(act.effect.tool for act in foreign))
        what = (
            "what the step's own code would not do" if comparable else "what cannot be compared with code now"
        )
        text = f"The agent failed after it had done {what}: {done}."
        answer, known = ctx.answer(DIVERGED), self._known(acts)
        if answer is None and not self._can_undo():
            choices = {ACCEPT: known is not None, BY_CODE: comparable, FAIL: True}
            offered = [choice for choice, open_ in choices.items() if open_]
            question = f"{text} {_asked(offered)}"
            hold = Hold(
                DIVERGED, "attention", question, offered,
                about={"done": [self._told(act) for act in acts]},
            )  # fmt: skip
            return Side(Outcome(hold=hold), None, None, ())
        if answer == ACCEPT and known is not None:
            return await self._accepted(known)
        raise Diverged(text)

    async def _accepted(self, known: Proposal) -> Side:
        """The side of an agent whose acts settle its answer."""
        own = self.own_code
        outcome = await concluded(own.step, TrialContext(own.ctx), known.output)
        return Side.of(own.step, known.output, outcome._replace(by="agent"), None, ())

    def _told(self, act: Act) -> dict[str, Any]:
        tools, tool = self.own_code.ctx.tools, act.effect.tool
        private = tool not in tools or tools[tool].private
        return {"tool": tool, "args": brief(dict(act.effect.args), private)}

    def _can_undo(self) -> bool:
        """Whether the run, or one that it is part of, rolls back what was done when a step fails."""
        work: Work | None = self.driver
        while work is not None:
            if work.flow.undoing is not None:
                return True
            work = work.parent
        return False

    def _known(self, acts: Sequence[Act]) -> Proposal | None:
        """What the receipts alone say of the output; None if they do not settle all of it."""
        plan = self.own_code.plan
        if not plan.dialect.settled(plan, acts):
            return None
        try:
            return plan.dialect.read(plan, None, (), self.inputs, acts)
        except OutputSchemaValidationError:
            return None


def _asked(choices: Sequence[str]) -> str:
    words = {ACCEPT: "accept it", BY_CODE: "go on by code from here", FAIL: "fail"}
    *first, last = [words[choice] for choice in choices]
    question = f"{', '.join(first)} or {last}?" if first else f"{last}?"
    return question[0].upper() + question[1:]
