"""Declarations about a step for agents, beyond the fields of `Step`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from detent.dispatch.autonomy import AgentRole, AutonomyLevel
from detent.dispatch.config import StepConfig

if TYPE_CHECKING:
    from detent.dispatch.sentence_bank import SentenceBank
    from detent.engine.acts import Act
    from detent.engine.outcome import Effect, Outcome
    from detent.engine.step import Step
    from detent.engine.tools import Tool


Lookup: TypeAlias = tuple[str, Mapping[str, Any], Any]
"""A query of an agent: tool, arguments, answer."""
Abstaining: TypeAlias = Callable[[Mapping[str, Any], Sequence[Lookup]], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class AgentSide:
    """The agent's side of a step."""

    role: AgentRole = AgentRole.OPTIONAL
    private: bool = False
    """The agent's answers are kept outside the journal, where they can be purged."""
    returns: Any = None
    """The soft contract; None reads the handler's return annotation."""
    rounds: int | None = None
    """How often an agent may act in one visit. After the last time, the output is concluded from the receipts
    and the agent is asked only for what they do not hold. None: until each effect it is offered was
    performed, and as often as there are effects. With 0, and a dialect of its own, its effects are carried
    out together with its answer, once that is accepted."""
    acted_out: Callable[[Sequence[Act]], bool] | None = None
    """Whether an agent that has performed these effects may not act again in this visit, however many rounds
    are left; None: the rounds alone decide."""
    stands: bool = False
    """What an agent has done before it failed stands, where its acts settle the answer: nothing is compared,
    undone or asked, because the step after this one judges it."""
    from_receipts: Callable[[Sequence[Act]], Mapping[str, Any]] | None = None
    """The fields of the output that performed effects settle; None: those of the same name in receipts, then
    in arguments."""
    may_abstain: bool | Abstaining = False
    """Whether an agent that is trusted (consultant, approver) may end a step with effects without acting. A
    function is given the inputs and the answers of its queries, and gives the output if nothing is to be
    done; None: something is. At collaborator the comparison decides."""
    confirm: Callable[[Effect], str | None] | None = None
    """The question that a person answers before an agent's effect is performed, at whatever level; None: no
    question. What the person says, no or other arguments, reaches the agent."""
    level_for: Callable[[Any], Any] | None = None
    """Lowers the level in force for one visit: takes the step's context, and gives a level, a level and the
    reason, None, or a function from the level in force to one of these. It cannot raise it. What it gives may
    depend on the run's data, visits and iterations."""
    kind: Callable[[Mapping[str, Any]], str] | None = None
    """The kind of the inputs, 16 at most: evidence is gathered, and levels are earned, by kind. It is a
    function of the inputs alone, never of the agent's answer."""
    validated: bool = False
    """The step's validator is part of its contract: it is asked at every level."""
    by_contract: bool = False
    """Nothing can be compared with its answers, and no validator tells more than their form: at every level
    the hard contract is the check. That is no evidence; later verdicts and people give it."""
    stands_alone: bool = False
    """No code can stand in for the agent: refused calls do not end its visit, its own limits do."""
    handled: bool = True
    """Code can stand in for the agent. A step without a handler is never lowered to operator, where nobody
    would perform it, and no audit compares it."""
    names_next: bool | None = None
    """Whether an agent names the next state; None: only if the conditions in the table do not decide."""
    dialect: Any = None
    """The `Dialect` of prompt and answer; None asks for JSON."""
    hints: StepConfig | None = None
    """Suggested configuration of the step, weaker than the settings."""
    effects: tuple[str, ...] | None = None
    """Effects that agents are offered; None: those the step declares."""
    queries: tuple[str, ...] | None = None
    """Queries that agents are offered; None: those the step declares."""
    prose: tuple[str, ...] | None = None
    """Where the step writes text for people: an argument of an effect (`send_email.body`) or a pointer to a
    field of the output (`/summary`). No comparison and no validator judges it: a person reads it, or the
    handler's text is used. None: the arguments that its effects declare as prose. With (), code writes the
    text, from whatever facts an agent gives."""
    answers: Callable[[Any], str] | None = None
    """The message that the step's prose answers, for the person who reviews it: takes the step's context."""
    text_contract: Callable[[Any, Outcome], Any] | None = None
    """The hard contract of an outcome whose text a person has edited: takes the step's context and the
    outcome, and gives the problems."""
    bank: SentenceBank | None = None
    """The approved sentences of which its text may be composed."""
    offers: Mapping[str, Tool] = field(default_factory=dict)
    """Tools with another description or a narrower schema than the flow's, as agents see them. The flow's own
    tools are performed."""


_USUAL = AgentSide()


def agent_side(step: Step) -> AgentSide:
    """The agent's side of any step."""
    return step.agent if isinstance(step.agent, AgentSide) else _USUAL


def own_config(step: Step) -> StepConfig | None:
    """A step's own layer of configuration."""
    if step.config is None or isinstance(step.config, StepConfig):
        return step.config
    return StepConfig.read(step.config, where=f"step '{step.name}'")


def highest_level(step: Step) -> AutonomyLevel | None:
    """The highest level that a step advises."""
    return None if step.max_autonomy is None else AutonomyLevel(step.max_autonomy)


def offered(step: Step) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Queries and effects that agents are offered on a step."""
    side = agent_side(step)
    queries = step.queries if side.queries is None else side.queries
    effects = step.effects if side.effects is None else side.effects
    return queries, effects


def is_straight(step: Step) -> bool:
    """True when the step's output is its outcome, without `conclude` or other processing."""
    return step.straight and agent_side(step).role is not AgentRole.REQUIRED
