"""The result of playing a case, and the interface of a player.

A player turns a case into steps, calls, data and a status. How its steps may follow each other is in
`contracts`; the player that Detent ships is in `player`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from detent.dispatch.result import NEVER_CALLED
from detent.evals.answers import AnswerRecord, Fate
from detent.evals.artifacts import Artifacts
from detent.evals.case import STEP, EvalTestCase
from detent.evals.contracts import Contracts, StepContract
from detent.insight.visits import FunctionCall
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import DetentError

AGENT = "agent"
"""The mode of a step that an agent performed."""
SKIPPED = "skipped"
"""The mode of a step that routing skipped."""
_NEVER_CALLED = frozenset(reason.value for reason in NEVER_CALLED)

# -- what happened ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One step that ran."""

    step_name: str
    input_data: Mapping[str, Any] = field(default_factory=dict)
    output_text: str = ""
    """Its output, in canonical form."""
    data_after: Mapping[str, Any] | None = None
    """The context after the step, with everything conditions and needs read; None: unknown."""
    next_step: str | None = None
    """The next step or end; None when the run ended in this step."""
    reason: str | None = None
    mode: str = "deterministic"
    fallback: str | None = None
    """Why the handler decided instead of the agent."""
    calls: tuple[FunctionCall, ...] = ()
    answers: tuple[AnswerRecord, ...] | None = None
    """What became of agents' answers; None: what `mode` and `fallback` say."""

    def all_answers(self) -> tuple[AnswerRecord, ...]:
        """The answers of the step; none for a step that is the handler's."""
        if self.answers is not None:
            return self.answers
        if self.mode == AGENT:
            return (AnswerRecord(self.step_name, Fate.KEPT),)
        if self.fallback is None:
            return ()
        fate = Fate.NOT_ASKED if self.fallback in _NEVER_CALLED else Fate.REPLACED
        return (AnswerRecord(self.step_name, fate, self.fallback),)


@dataclass(frozen=True, slots=True)
class Intake:
    """What was decided about the input before any step ran."""

    decision: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """The result of playing a case."""

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
    """The data at the first step; None: unknown, and its needs are not checked."""
    intake: Intake | None = None
    artifacts: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """The artifacts of the run, by kind; see `artifacts`."""
    scenario_used: str | None = None
    ms: float | None = None
    """How long it took; None has the runner measure it."""
    spend: Spend = NOTHING
    run_id: str | None = None
    error: str | None = None
    """Why the case could not be played as it is written. A failure, whatever the outcome of the run."""
    skipped: tuple[PlayedStep, ...] = ()
    """Steps that routing skipped before the first one: the data and the move they would have come to."""
    questions: tuple[AnswerRecord, ...] = ()
    """Answers that agents were asked for outside the steps, such as where to start."""

    @property
    def answers(self) -> tuple[AnswerRecord, ...]:
        """What became of every answer agents were, or were to be, asked for."""
        return (*self.questions, *(answer for step in self.steps for answer in step.all_answers()))


class PlayFailed(DetentError):
    """Raised by a player that cannot play a case as it is written, for example with a stale recording."""

    def __init__(self, message: str, *, step_name: str | None = None, hint: str = "") -> None:
        self.step_name = step_name
        self.hint = hint
        super().__init__(message)


# -- the player ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """How cases are played, from the command line; the player carries it out."""

    record: Path | None = None
    """Folder for recordings of every model answer, one `<scenario_id>.jsonl` per case."""
    replay: Path | None = None
    """Folder of recordings that replace every model answer; no model is called."""
    arm: str | None = None
    """Arm of an experiment to play in."""
    repeat: int = 1
    """Which repetition this is, from 1."""


class Player(Protocol):
    """Plays cases.

    May also have: `orchestrators` (modes it can play; only `step` when absent), `usual_orchestrator` (the
    mode the project uses), `artifacts` (the kinds of artifacts its runs leave), `model` (id of the
    model it asks; None for none), `arms` (arms it knows) and `async close()`.
    """

    @property
    def input_keys(self) -> Collection[str]:
        """Keys of a case's `input` it understands; in a mapping, each with its type."""
        ...

    def contracts(self, case: EvalTestCase) -> Contracts | Mapping[str, StepContract] | None:
        """How the steps of this case may follow each other; None when there are no steps."""
        ...

    async def play(self, case: EvalTestCase, *, orchestrator: str, options: PlayOptions) -> Played:
        """Play the case once, without side effects on other plays."""
        ...


def orchestrators_of(player: Player) -> tuple[str, ...]:
    """The modes a player can play."""
    return tuple(getattr(player, "orchestrators", (STEP,)))


def usual_orchestrator_of(player: Player) -> str:
    """The mode a player uses when none is requested."""
    return str(getattr(player, "usual_orchestrator", None) or orchestrators_of(player)[0])


def artifacts_of(player: Player) -> Sequence[Artifacts]:
    """The kinds of artifacts a player's runs leave."""
    return tuple(getattr(player, "artifacts", ()))


def model_of(player: Player) -> str | None:
    """Id of the model a player asks."""
    model = getattr(player, "model", None)
    return model if isinstance(model, str) else None


def arms_of(player: Player) -> Sequence[str] | None:
    """The arms a player declares; None when it declares none."""
    return getattr(player, "arms", None)


async def close(player: Player) -> None:
    """Close a player."""
    closing = getattr(player, "close", None)
    if closing is not None:
        await closing()
