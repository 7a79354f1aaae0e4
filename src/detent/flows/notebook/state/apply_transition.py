"""The next state for a state file and a payload, with nothing executed and nothing measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from detent.flows.notebook.payloads.values import (
    Actions,
    BehaviorPlan,
    BehaviorReflection,
    Payload,
    StagePlan,
    StageReflection,
    StepPlan,
)
from detent.flows.notebook.state.decisions import Decision, Limits, decide
from detent.flows.notebook.state.facts import ArtifactFact, CriterionFact, Facts, Verdict
from detent.flows.notebook.state.ledger import RunState
from detent.flows.notebook.state.machine import NotebookEvent, NotebookState, check_move
from detent.flows.notebook.state.state_json import read_state, write_state
from detent.flows.notebook.state.transitions import apply
from detent.flows.notebook.state.variables import USER_INPUTS
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

MEASURED = "measured"
"""Key of the written state that says whether its last reflection was measured."""

_S = NotebookState


class Results(NamedTuple):
    """What executing the cells of a T4 payload gave."""

    outputs: tuple[tuple[str, ...], ...] = ()
    """Texts of each code cell."""
    variables: Mapping[str, Any] = {}


class Applied(NamedTuple):
    """What a transition made of a state."""

    state: dict[str, Any]
    row: str
    measured: bool
    """False where the move rests on claims."""


def read_results(plain: Any) -> Results:
    """Read a results file: `outputs`, one list for each code cell, and `variables`.

    An output is a text, or a mapping with a `text`.

    Raises:
        ConfigurationError: it has another shape.
    """
    if not isinstance(plain, Mapping) or not set(plain) <= {"outputs", "variables"}:
        raise ConfigurationError("A results file holds one JSON object with 'outputs' and 'variables'.")
    cells, variables = plain.get("outputs", []), plain.get("variables", {})
    if not isinstance(cells, Sequence) or isinstance(cells, str):
        raise ConfigurationError("'outputs' must be a list with one list for each code cell.")
    if not isinstance(variables, Mapping):
        raise ConfigurationError("'variables' must be an object of values by name.")
    return Results(tuple(_texts(cell, index) for index, cell in enumerate(cells)), to_plain(variables))


def _texts(cell: Any, index: int) -> tuple[str, ...]:
    outputs = [cell] if isinstance(cell, str) else cell
    if not isinstance(outputs, Sequence):
        raise ConfigurationError(f"'outputs[{index}]' must be a list of texts.")
    texts: list[str] = []
    for output in outputs:
        text = output.get("text") if isinstance(output, Mapping) else output
        if not isinstance(text, str):
            raise ConfigurationError(f"'outputs[{index}]' must be a list of texts.")
        texts.append(text)
    return tuple(texts)


def apply_transition(
    state: Any, payload: Payload, *, at: str, results: Results | None = None, limits: Limits | None = None
) -> Applied:
    """The state after a payload's transition.

    No kernel is asked: a reflection moves by its own claims, and the written state says `measured: false`.
    A T3 payload on a completed behavior begins the next one, a T2 payload on a completed step revises the
    stage.

    Raises:
        ConfigurationError: the state or the results cannot be read, or the payload does not fit the state.
        InvalidTransitionError: the state does not take the payload's event.
    """
    document = read_state(state)
    run = RunState.of_document(document)
    facts = _facts(run, payload, at, results or Results())
    decision = _decision(run, payload, facts, limits or Limits())
    after = apply(run, decision, facts, payload)
    written = write_state(after.document)
    written.pop(MEASURED, None)
    if not facts.measured:
        written[MEASURED] = False
    return Applied(written, decision.row, facts.measured)


def _decision(run: RunState, payload: Payload, facts: Facts, limits: Limits) -> Decision:
    state = run.document.fsm.state
    match payload:
        case StagePlan():
            check_move(state, NotebookEvent.START_WORKFLOW)
            return Decision.of("1", state)
        case StepPlan():
            check_move(state, NotebookEvent.START_STEP)
            return Decision.of("6e" if state is _S.STEP_COMPLETED else "2", state)
        case BehaviorPlan():
            check_move(state, NotebookEvent.START_BEHAVIOR)
            return Decision.of("5b" if state is _S.BEHAVIOR_COMPLETED else "3", state)
        case Actions():
            check_move(state, NotebookEvent.COMPLETE_ACTION)
            return Decision.of("4", state)
        case BehaviorReflection():
            check_move(state, NotebookEvent.TRANSITION_TO_COMPLETE_STEP)
            return _claimed_of_behavior(run, payload, facts, limits)
        case StageReflection():
            if state is not _S.STEP_COMPLETED:
                check_move(state, NotebookEvent.COMPLETE_STAGE)
            return _claimed_of_stage(run, payload)


def _claimed_of_behavior(
    run: RunState, payload: BehaviorReflection, facts: Facts, limits: Limits
) -> Decision:
    state = run.document.fsm.state
    if payload.step_is_complete:
        complete = facts.behavior.complete and not facts.raised
        return Decision.of("5a" if complete else "5d", state)
    decision = decide(run, facts, limits)
    if decision.row in ("5a", "5b"):
        raise ConfigurationError(
            "The reflection says that the behavior is complete and the step is not: the next behavior is "
            "needed. Apply its T3 payload to this state."
        )
    return decision


def _claimed_of_stage(run: RunState, payload: StageReflection) -> Decision:
    document = run.document
    if payload.stage_is_complete:
        return Decision.of("6b" if document.stages.remaining else "6c", document.fsm.state)
    if not document.steps.remaining:
        raise ConfigurationError(
            "The reflection says that the stage is not complete, but none of its steps is left: a revision "
            "is needed. Apply its T2 payload to this state."
        )
    return Decision.of("6a", document.fsm.state)


def _facts(run: RunState, payload: Payload, at: str, results: Results) -> Facts:
    """The facts of a payload: of a reflection its claims, of actions what the results say."""
    match payload:
        case Actions():
            return Facts(
                at,
                outputs=results.outputs,
                variables=results.variables,
            )
        case BehaviorReflection():
            claimed = _claims(payload)
            raised = payload.code_execution != "success"
            # Whether the step's artifacts are there is not told in so many words: `remaining` names the rest.
            step = Verdict(
                tuple(ArtifactFact(name, "missing", "absent") for name in payload.tracking.remaining)
            )
            return Facts(at, measured=False, behavior=claimed, step=step, raised=raised)
        case StageReflection():
            return Facts(at, measured=False, stage=_claims(payload))
        case BehaviorPlan() if run.document.fsm.state is _S.BEHAVIOR_COMPLETED:
            return Facts(at, measured=False, behavior=_seen(run))
        case BehaviorPlan() if not run.document.variables:
            # A state file that shows no variables at all has the user's inputs nevertheless.
            given = {named.name: named.text for named in payload.inputs if named.name in USER_INPUTS}
            return Facts(at, variables=given)
        case _:
            return Facts(at)


def _claims(payload: BehaviorReflection | StageReflection) -> Verdict:
    artifacts = tuple(
        ArtifactFact(artifact.name, artifact.status, "absent" if artifact.status == "missing" else "")
        for artifact in payload.artifacts
    )
    criteria: tuple[CriterionFact, ...] = ()
    if isinstance(payload, BehaviorReflection):
        criteria = tuple(CriterionFact(claim.text, claim.status == "passed") for claim in payload.criteria)
    return Verdict(artifacts, criteria)


def _seen(run: RunState) -> Verdict:
    """The outputs of the current behavior as the state's variables show them."""
    names = run.document.behaviors.current_outputs.expected_names
    return Verdict(
        tuple(
            ArtifactFact(name, "complete")
            if name in run.document.variables
            else ArtifactFact(name, "missing", "absent")
            for name in names
        )
    )
