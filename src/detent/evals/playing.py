"""What the harness is handed: a player, and what it gives back for a case.

A player turns a case into steps, calls, data and a status, in whatever way its kind of workflow is run. What
it says about the steps themselves (which may follow which, under what condition) are contracts, so that moves
can be checked which no case spells out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from detent.evals.case import STEP, EvalTestCase
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import DetentError, nearest
from detent.kernel.guards import Guard, when

if TYPE_CHECKING:
    from detent.evals.artifacts import Artifacts

# -- what happened ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlayedCall:
    """One function that was called: a query asked, or an effect performed."""

    function_name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    success: bool = True
    error_message: str | None = None
    step_name: str | None = None
    """The step that called it; None where there are no steps."""
    kind: str = "query"
    """query or effect."""


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One step that ran."""

    step_name: str
    input_data: Mapping[str, Any] = field(default_factory=dict)
    output_text: str = ""
    """Canonical rendering of what it said."""
    data_after: Mapping[str, Any] | None = None
    """The context after the step, with everything conditions and needs look at; None: not known."""
    next_step: str | None = None
    """Where it led; None when the run ended in it."""
    reason: str | None = None
    mode: str = "deterministic"
    fallback: str | None = None
    """Why the handler decided in the agent's place."""
    calls: tuple[PlayedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Intake:
    """What was decided about the input before any step ran."""

    decision: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a case."""

    steps: tuple[PlayedStep, ...] = ()
    calls: tuple[PlayedCall, ...] = ()
    """All calls in order, those of the steps included."""
    status: str | None = None
    end: str | None = None
    reason: str | None = None
    flags: tuple[str, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    """The data at the end."""
    start_data: Mapping[str, Any] | None = None
    """The data the first step found; None: not known, and its needs are not checked."""
    intake: Intake | None = None
    artifacts: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """What the run left behind, by kind; see `artifacts`."""
    scenario_used: str | None = None
    ms: float | None = None
    """How long it took; None has the runner measure it."""
    spend: Spend = NOTHING
    run_id: str | None = None
    error: str | None = None
    """What kept the case from being played as it is written. Always a failure, whatever the run came to."""


class PlayFailed(DetentError):
    """Raised by a player that cannot play a case as it is written: a recording that does not fit, say."""

    def __init__(self, message: str, *, step_name: str | None = None, hint: str = "") -> None:
        self.step_name = step_name
        self.hint = hint
        super().__init__(message)


# -- how steps may follow each other ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepEdge:
    """One declared way out of a step."""

    to: str
    when: Mapping[str, Any] | Guard | None = None
    """Condition on the data after the step."""
    reason: str | None = None

    def holds(self, data: Mapping[str, Any]) -> bool:
        """True when it may be taken on this data."""
        if self.when is None:
            return True
        return (self.when if isinstance(self.when, Guard) else when(self.when))(data)

    @property
    def keys(self) -> tuple[str, ...]:
        """The dotted keys its condition looks at, where it is written as data."""
        return () if self.when is None or isinstance(self.when, Guard) else tuple(self.when)


@dataclass(frozen=True, slots=True)
class StepContract:
    """What one step may do."""

    name: str
    edges: tuple[StepEdge, ...] = ()
    needs: tuple[str, ...] = ()
    """Dotted keys it is given."""
    functions: tuple[str, ...] | None = None
    """Functions it may call; None: any."""
    aliases: tuple[str, ...] = ()


class DeclaredEdge(Protocol):
    """An edge as a definition has it."""

    @property
    def to(self) -> str: ...
    @property
    def when(self) -> Mapping[str, Any] | Guard | None: ...
    @property
    def reason(self) -> str | None: ...


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


class DeclaredStep(Protocol):
    """A step as a definition has it."""

    @property
    def needs(self) -> Sequence[str]: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def available_functions(self) -> Sequence[Named]: ...


class UnknownStep(DetentError):
    """A reference means no step, or several."""


@dataclass(frozen=True, slots=True)
class Contracts:
    """The steps of one definition and how they may follow each other."""

    steps: Mapping[str, StepContract]
    ends: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    """Ends that may follow every step undeclared: a run that fails does so wherever it is."""
    max_steps: int | None = 10

    @classmethod
    def of(cls, rules: Contracts | Mapping[str, StepContract]) -> Contracts:
        """Contracts from a bare mapping: whatever is led to and is no step is an end."""
        if isinstance(rules, Contracts):
            return rules
        targets = {edge.to for contract in rules.values() for edge in contract.edges}
        return cls(rules, frozenset(targets - set(rules)))

    @classmethod
    def declared(
        cls,
        steps: Mapping[str, DeclaredStep],
        edges: Mapping[str, Sequence[DeclaredEdge]],
        *,
        ends: Collection[str],
        always: Collection[str] = (),
        max_steps: int | None = 10,
        given: Collection[str] = (),
    ) -> Contracts:
        """Contracts from a definition's own steps and edges. `given` are needs that are always met."""
        return cls(
            {
                name: StepContract(
                    name,
                    tuple(StepEdge(edge.to, edge.when, edge.reason) for edge in edges[name]),
                    tuple(key for key in step.needs if key not in given),
                    tuple(function.name for function in step.available_functions),
                    tuple(step.names),
                )
                for name, step in steps.items()
            },
            frozenset(ends),
            frozenset(always),
            max_steps,
        )

    def resolve(self, reference: str) -> str:
        """The step or end a reference means: its id, an alias, or a beginning that only one step has."""
        wanted = reference.casefold()
        ends = sorted(self.ends | self.always)
        for name in [*self.steps, *ends]:
            if name.casefold() == wanted:
                return name
        named = [
            name for name, one in self.steps.items() if wanted in (alias.casefold() for alias in one.aliases)
        ]
        begun = [name for name in self.steps if wanted and name.casefold().startswith(wanted)]
        found = named or begun
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownStep(f"'{reference}' may mean {' or '.join(found)}; write more of it.")
        aliases = [alias for one in self.steps.values() for alias in one.aliases]
        there = ", ".join(self.steps) or "none"
        raise UnknownStep(
            f"there is no step '{reference}'.{nearest(reference, [*self.steps, *aliases, *ends])} "
            f"Steps: {there}."
        )


# -- the player ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """What the command line says about how cases are played; carrying it out is the player's business."""

    record: Path | None = None
    """Folder that takes every answer of a model, one `<scenario_id>.jsonl` a case."""
    replay: Path | None = None
    """Folder every answer of a model is taken from; nobody is asked."""
    arm: str | None = None
    """Arm of an experiment to play in."""
    repeat: int = 1
    """Which repetition this is, from 1."""


class Player(Protocol):
    """Turns a case into what happened.

    May also have: `orchestrators` (modes it can play; only `step` when absent), `artifacts` (the kinds of
    artifacts its runs leave), `model` (id of the model it asks; None for none), `arms` (arms it knows) and
    `async close()`.
    """

    @property
    def input_keys(self) -> Collection[str]:
        """Keys of a case's `input` it understands; in a mapping, each with the type it takes."""
        ...

    def contracts(self, case: EvalTestCase) -> Contracts | Mapping[str, StepContract] | None:
        """How the steps of this case may follow each other; None when there are no steps."""
        ...

    async def play(self, case: EvalTestCase, *, orchestrator: str, options: PlayOptions) -> Played:
        """Play the case once, leaving nothing behind that another play could notice."""
        ...


def orchestrators_of(player: Player) -> tuple[str, ...]:
    """The modes a player can play."""
    return tuple(getattr(player, "orchestrators", (STEP,)))


def artifacts_of(player: Player) -> Sequence[Artifacts]:
    """The kinds of artifacts a player's runs leave."""
    return tuple(getattr(player, "artifacts", ()))


def model_of(player: Player) -> str | None:
    """Id of the model a player asks."""
    model = getattr(player, "model", None)
    return model if isinstance(model, str) else None


def arms_of(player: Player) -> Sequence[str] | None:
    """The arms a player knows; None when it does not say."""
    return getattr(player, "arms", None)


async def close(player: Player) -> None:
    """Let go of what a player holds."""
    closing = getattr(player, "close", None)
    if closing is not None:
        await closing()
