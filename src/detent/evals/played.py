"""What a player gives back for a case, and what a player is.

A player turns a case into steps, calls, data and a status. How its steps may follow each other is in
`contracts`; the player that Detent ships is in `player`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from detent.evals.artifacts import Artifacts
from detent.evals.case import STEP, EvalTestCase
from detent.evals.contracts import Contracts, StepContract
from detent.insight.visits import FunctionCall
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import DetentError

# -- what happened ------------------------------------------------------------------------------------------


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
    calls: tuple[FunctionCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Intake:
    """What was decided about the input before any step ran."""

    decision: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a case."""

    steps: tuple[PlayedStep, ...] = ()
    calls: tuple[FunctionCall, ...] = ()
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

    May also have: `orchestrators` (modes it can play; only `step` when absent), `usual_orchestrator` (the
    mode that the project works in), `artifacts` (the kinds of artifacts its runs leave), `model` (id of the
    model it asks; None for none), `arms` (arms it knows) and `async close()`.
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


def usual_orchestrator_of(player: Player) -> str:
    """The mode a player plays in when none is asked for."""
    return str(getattr(player, "usual_orchestrator", None) or orchestrators_of(player)[0])


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
