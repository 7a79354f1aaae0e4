"""Judges what an agent asks for and answers in one visit: hard checks against the run, then the gate.

How the gate decides at each level is in `gate`; what follows from its judgement is in `execution`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from detent.dispatch import gate
from detent.dispatch.agent import AgentVisit, Judges
from detent.dispatch.agent_side import agent_side, is_straight
from detent.dispatch.autonomy import AutonomyLevel, Check
from detent.dispatch.equivalence import Discrepancy
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.gate import HandlerFailed, Judgement, Rejected, Side
from detent.dispatch.matching import normal
from detent.dispatch.proposal import Proposal
from detent.dispatch.text_policy import is_free
from detent.dispatch.unread_text import QUESTION, InOwnWords, UnreadText, in_own_words
from detent.engine import logger, moves
from detent.engine.outcome import Effect, Outcome
from detent.engine.performer import concluded
from detent.engine.rehearsal import Rehearsals
from detent.engine.trial_context import CannotCheck, TrialContext, TrialPaused
from detent.kernel.errors import DetentError, InvalidTransitionError, name_of

if TYPE_CHECKING:
    from detent.dispatch.own_code import OwnCode
    from detent.dispatch.plan import Plan
    from detent.engine.acts import Act
    from detent.engine.context import StepContext
    from detent.engine.work import Work
    from detent.kernel.entries import Body


class Judged(Protocol):
    """The execution of a step whose agent is judged."""

    plan: Plan
    ctx: StepContext
    driver: Work
    own_code: OwnCode
    level: AutonomyLevel
    visit: AgentVisit | None
    agent_side: Side | None
    agent_remarks: tuple[Body, ...]

    @property
    def inputs(self) -> dict[str, Any]:
        """The step's inputs."""

    def say(self, level: Callable[..., None], event: str, **more: Any) -> None:
        """Log an event about the step."""


class AnswerJudge:
    """Judges the agent of one execution, round by round and at its end."""

    def __init__(self, execution: Judged) -> None:
        self.execution = execution
        self.plan = execution.plan
        self.step = execution.plan.step
        self.ctx = execution.ctx
        self._rehearse = Rehearsals(execution.plan.flow, execution.ctx)
        self._to_read: tuple[Effect, ...] = ()
        """Effects of the current round with text that a person reads before they are performed."""
        self.of_round: Judgement | None = None
        """The judgement of the current round, until it is logged."""

    @property
    def _reads(self) -> bool:
        """Whether text for people in the agent's effects is held against the handler's."""
        return bool(self.plan.prose) and not is_free(self.plan, self.execution.level)

    def judges(self, durable: bool) -> Judges:
        """The judges of a visit; in a trial, which is not durable, effects are not judged."""
        execution = self.execution
        trusted = execution.level in (AutonomyLevel.CONSULTANT, AutonomyLevel.APPROVER)
        trusted = trusted and not agent_side(self.step).validated
        trusted = trusted or agent_side(self.step).by_contract
        code, compared = execution.own_code, trusted or self.step.validator is None
        return Judges(
            self.round if durable else gate.no_judge, self.round_over, self.check_proposal, trusted,
            lambda: (trusted and not self._reads) or (compared and code.ready),
            self.prepare,
            lambda key, effect: QUESTION if effect in self._to_read else code.question(key, effect),
        )  # fmt: skip

    async def prepare(self) -> None:
        """Run the handler for the comparison before the agent acts: its replies then need not be committed
        before each judgement.
        """
        compared = self.execution.level is AutonomyLevel.COLLABORATOR and self.step.validator is None
        compared = compared and not agent_side(self.step).by_contract
        if (compared or self._reads) and agent_side(self.step).dialect is None:
            await self.execution.driver.log.flush()
            await self.execution.own_code.prepare()

    async def round(self, effects: Sequence[Effect], number: int) -> int:
        """Judge effects that the agent asks for; gives how many may be performed before asking again."""
        assert self.execution.visit is not None
        acts: Sequence[Act] = self.execution.visit.acts
        words = await self._in_own_words(acts, effects)
        judgement, compared = await self.effects(words.acts, words.effects, number)
        if not judgement.accepted:
            raise Rejected(judgement)
        if words.unread and not self.plan.reviewed:
            raise UnreadText(words.written, words.own)
        self._to_read = words.unread
        self.of_round = judgement
        return compared

    async def _in_own_words(self, acts: Sequence[Act], effects: Sequence[Effect]) -> InOwnWords:
        """The agent's effects as they are judged: no comparison judges text for people."""
        if not self._reads:
            return InOwnWords(tuple(acts), tuple(effects), (), {}, {})
        return await in_own_words(self.plan, self.execution.own_code, acts, effects)

    async def effects(
        self, acts: Sequence[Act], effects: Sequence[Effect], number: int
    ) -> tuple[Judgement, int]:
        """The gate's judgement on effects asked for after others, and how many of them it has compared."""
        compared = len(effects)
        proposal = Proposal(
            None, None, tuple(effects), acts=tuple(acts), round=number, final=False, rehearse=self._rehearse
        )

        async def departures() -> tuple[Discrepancy, ...]:
            nonlocal compared
            try:
                details, compared = await self.execution.own_code.departures(acts, effects)
            except CannotCheck:
                return (Discrepancy("/effects", "value"),)
            except Exception as error:
                raise HandlerFailed(error) from error
            return details

        return await gate.judge_round(
            self.execution.level, self.step, self.execution.inputs, proposal, departures
        ), compared

    async def answer(self, proposal: Proposal, side: Side) -> Judgement:
        """The gate's judgement on a proposal that kept the hard contract; `check_proposal` comes first."""
        acts = (await self._in_own_words(proposal.acts, ())).acts
        performed = [normal(self.ctx, act.effect) or act.effect for act in acts if act.happened]
        side = replace(side, effects=(*performed, *side.effects[len(performed) :]))
        try:
            return await gate.judge(
                self.execution.level, self.step, self.plan.contract, self.execution.inputs,
                proposal._replace(rehearse=self._rehearse), side,
                lambda: self.execution.own_code.side_after(acts),
            )  # fmt: skip
        except (CannotCheck, TrialPaused):
            return Judgement(False, Check.COMPARE, (Discrepancy("", "value"),))

    def round_over(self) -> None:
        """Tell the judgement of a round after which the agent is asked again."""
        if self.of_round is not None:
            self.log(self.of_round)
            self.of_round = None

    async def check_proposal(self, proposal: Proposal) -> None:
        """Check a proposal against the run: the conditions in its transition table, and its ledger."""
        ctx, flow, run = TrialContext(self.ctx), self.plan.flow, self.ctx.run
        broken = self.plan.contract.broken
        try:
            outcome = await concluded(self.step, ctx, proposal.output)
        except OutputSchemaValidationError:
            raise
        except Exception as error:
            raise broken([f"/: nothing can be concluded from it ({type(error).__name__})"]) from error
        if is_straight(self.step):
            answered = proposal.output if isinstance(proposal.output, Mapping) else proposal.plain
            outcome = Outcome(set=answered or {})
        if proposal.next is not None:
            if outcome.next is not None and name_of(outcome.next) != proposal.next:
                raise broken(["/next_state: the facts lead elsewhere"])
            if self.plan.contract.names_next:
                outcome = outcome._replace(next=proposal.next)
        declared = self.step.next
        undecided = all(part is None for part in (outcome.next, outcome.event, outcome.hold, outcome.end))
        if declared is not None and len(declared) == 1 and undecided:
            outcome = outcome._replace(next=declared[0])  # the only declared next state
        if proposal.reason is not None and outcome.reason is None:
            outcome = outcome._replace(reason=proposal.reason)
        effects = (*proposal.effects, *ctx.proposed, *outcome.effects)
        outcome = outcome._replace(effects=effects, by="agent")
        try:
            if outcome.then is None:
                moves.decided(flow, run, self.step, self.ctx, whole(self.ctx, outcome), 0.0, dry=True)
            to = moves.destination(flow, run, whole(self.ctx, outcome))
        except InvalidTransitionError as error:
            raise broken(["/next_state: the conditions on the table do not allow it"]) from error
        except (DetentError, TypeError, ValueError, KeyError) as error:
            raise broken([f"/: cannot be carried out ({type(error).__name__})"]) from error
        is_move = to is not None and outcome.end is None and outcome.then is None
        if declared is not None and is_move and to not in declared:
            raise broken(["/next_state: the facts lead to a state the step does not declare"])
        if proposal.next is not None and is_move and to != proposal.next:
            # The conditions in the table choose the next state, and an answer cannot override them.
            raise broken(["/next_state: the conditions on the table lead elsewhere"])
        side = Side.of(self.step, proposal.output, outcome, to, effects)
        if proposal.acts:
            asked = [act.asked or act.effect for act in proposal.acts if act.happened]
            acted = [normal(self.ctx, effect) or effect for effect in asked]
            side = replace(side, effects=(*acted, *side.effects))
        self.execution.agent_side = side
        self.execution.agent_remarks = tuple(ctx.said)

    def log(self, judgement: Judgement) -> None:
        count = len(judgement.details) + judgement.more
        outcome = (
            "verified"
            if judgement.check is Check.CONTRACT
            else "accepted"
            if judgement.accepted
            else "rejected"
        )
        level: Callable[..., None] = logger.warning if count or not judgement.accepted else logger.info
        self.execution.say(
            level, "dispatch.autonomy_validation", autonomy=self.execution.level.value,
            check=judgement.check.value, outcome=outcome, discrepancies=count,
            pointers=gate.loggable(detail.pointer for detail in judgement.details[:10]),
        )  # fmt: skip


def whole(ctx: StepContext, outcome: Outcome) -> Outcome:
    """An outcome with the move that the steps before it have decided on in the same visit."""
    base = ctx.base
    if base is None or outcome.hold is not None:
        return outcome
    event = base.event if outcome.event is None else outcome.event
    return outcome._replace(next=outcome.next or base.next, event=event, end=outcome.end or base.end)
