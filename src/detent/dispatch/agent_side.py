"""What a kind of workflow declares about a step for agents, beyond what every step can say on `Step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detent.dispatch.autonomy import AutonomyLevel, StepType
from detent.dispatch.config import StepConfig

if TYPE_CHECKING:
    from detent.engine.step import Step
    from detent.engine.tools import Tool


@dataclass(frozen=True, slots=True)
class AgentSide:
    """The agent's side of a step."""

    step_type: StepType = StepType.PYTHON
    private: bool = False
    """What an agent answers is kept outside the journal, where it can be purged."""
    returns: Any = None
    """The soft contract; None reads the handler's return annotation."""
    lands: tuple[str, ...] = ()
    """Where in the data `conclude` puts the output just as it is, so that it can be held to the contract once
    receipts are filled in."""
    names_next: bool | None = None
    """Whether an agent names the next state; None: where the conditions on the table do not choose alone."""
    dialect: Any = None
    """The `Dialect` in which an agent is asked and understood; None asks for JSON."""
    hints: StepConfig | None = None
    """How the step is performed unless someone says otherwise: weaker than what settings say about it."""
    effects: tuple[str, ...] | None = None
    """Effects that agents are offered; None: those the step declares."""
    queries: tuple[str, ...] | None = None
    """Queries that agents are offered; None: those the step declares."""
    offers: Mapping[str, Tool] = field(default_factory=dict)
    """Tools in other words, or under a narrower schema, than the flow has them, as agents are told about
    them here. What is performed is the flow's."""


_USUAL = AgentSide()


def agent_side(step: Step) -> AgentSide:
    """The agent's side of any step."""
    return step.agent if isinstance(step.agent, AgentSide) else _USUAL


def own_config(step: Step) -> StepConfig | None:
    """A step's own layer of configuration, read."""
    if step.config is None or isinstance(step.config, StepConfig):
        return step.config
    return StepConfig.read(step.config, where=f"step '{step.name}'")


def highest_level(step: Step) -> AutonomyLevel | None:
    """The level a step advises at most."""
    return None if step.max_autonomy is None else AutonomyLevel(step.max_autonomy)


def offered(step: Step) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Queries and effects that agents are offered on a step."""
    side = agent_side(step)
    queries = step.queries if side.queries is None else side.queries
    effects = step.effects if side.effects is None else side.effects
    return queries, effects


def is_straight(step: Step) -> bool:
    """True when what performs the step gives the outcome itself, with nothing in between."""
    return step.straight and agent_side(step).step_type is not StepType.AGENT
