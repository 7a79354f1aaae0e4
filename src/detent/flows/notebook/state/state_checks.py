"""What each state demands of the document, checked after every transition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from detent.flows.notebook.state.document import StateDocument
from detent.flows.notebook.state.ledger import split_behavior_id
from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.state.variables import USER_INPUTS

_S = NotebookState
PCS = ("predictability", "computability", "stability")


def check_state(document: StateDocument) -> tuple[str, ...]:
    """What the document lacks of what its state demands; empty when it is as it should be."""
    return tuple(_ROWS[document.fsm.state](document))


def _idle(document: StateDocument) -> Iterator[str]:
    yield from _location(document, depth=0)
    if document.stages.current is not None or document.stages.completed or document.stages.remaining:
        yield "stages: there must be none before the workflow starts"
    if set(document.variables) != set(USER_INPUTS):
        yield f"variables: must be exactly {' and '.join(USER_INPUTS)}"
    if document.state.notebook.cell_count:
        yield "notebook.cell_count: must be 0"


def _stage_running(document: StateDocument) -> Iterator[str]:
    yield from _location(document, depth=1)
    yield from _stage(document)
    steps = document.steps
    if steps.current is not None or steps.completed or steps.remaining:
        yield "steps: must be empty until START_STEP fills them"


def _step_running(document: StateDocument) -> Iterator[str]:
    yield from _location(document, depth=2)
    yield from _stage(document)
    yield from _step(document)
    if document.behaviors.current is not None or document.behaviors.completed:
        yield "behaviors: must be empty"


def _behavior_running(document: StateDocument) -> Iterator[str]:
    yield from _location(document, depth=3)
    yield from _stage(document)
    yield from _step(document)
    yield from _behavior(document)


def _behavior_completed(document: StateDocument) -> Iterator[str]:
    yield from _behavior_running(document)
    behavior = document.behaviors.current
    if behavior is not None and behavior.completion_status is not None:
        yield "behaviors.current.completion_status: no acceptance is judged yet"
    if document.behaviors.current_outputs.produced:
        yield "behaviors.current_outputs.produced: nothing is measured yet"


def _step_completed(document: StateDocument) -> Iterator[str]:
    yield from _location(document, depth=3)
    yield from _stage(document)
    yield from _step(document)
    if document.behaviors.current is not None:
        yield "behaviors.current: must be null"
    if not document.behaviors.completed or document.behaviors.completed[-1].completion_status is None:
        yield "behaviors.completed: the last behavior must be there with its completion_status"
    step = document.steps.current
    if step is not None and step.completion_status != "failed":
        outputs = document.steps.current_outputs
        missing = [name for name in outputs.expected_names if name not in outputs.produced]
        if missing:
            yield f"steps.current_outputs: not produced, and the step is not escalated: {', '.join(missing)}"


def _workflow_complete(document: StateDocument) -> Iterator[str]:
    yield from _location(document, depth=0)
    if document.stages.current is not None or document.stages.remaining:
        yield "stages: none may be left"
    if not document.stages.completed:
        yield "stages.completed: must hold the stages of the run"


def _anything(document: StateDocument) -> Iterator[str]:
    """A run that failed or was cancelled keeps what it had."""
    yield from ()


def _location(document: StateDocument, depth: int) -> Iterator[str]:
    """The ids down to a depth are those of the current items, the deeper ones null."""
    location = document.location
    stage, step, behavior = document.stages.current, document.steps.current, document.behaviors.current
    levels = (
        ("stage_id", location.stage_id, stage and stage.stage_id),
        ("step_id", location.step_id, step and step.step_id),
        # Between its completion and the next step a behavior is not current, and its id stays.
        ("behavior_id", location.behavior_id, behavior.behavior_id if behavior else location.behavior_id),
    )
    for at, (name, shown, current) in enumerate(levels):
        if at >= depth and shown is not None:
            yield f"location.{name}: must be null"
        if at < depth and shown is None:
            yield f"location.{name}: must be set"
        elif at < depth and shown != current:
            yield f"location.{name}: is '{shown}', but the current one is '{current}'"
    if (location.behavior_iteration is None) is not (location.behavior_id is None):
        yield "location.behavior_iteration: belongs to a behavior_id, and a behavior_id has one"
    if location.behavior_id is not None and location.step_id is not None:
        step_id, _ = split_behavior_id(location.behavior_id)
        if step_id != location.step_id:
            yield f"location.behavior_id: does not belong to the step '{location.step_id}'"


def _stage(document: StateDocument) -> Iterator[str]:
    stage, outputs = document.stages.current, document.stages.current_outputs
    if stage is None:
        yield "stages.current: must be set"
        return
    if not stage.goal.strip():
        yield "stages.current.goal: must be set"
    if not stage.verified_artifacts or set(outputs.expected_names) != set(stage.verified_artifacts):
        yield "stages.current_outputs.expected: must hold the artifacts of the current stage"


def _step(document: StateDocument) -> Iterator[str]:
    step, outputs = document.steps.current, document.steps.current_outputs
    if step is None:
        yield "steps.current: must be set"
        return
    if not step.goal.strip():
        yield "steps.current.goal: must be set, with the acceptance"
    if not step.verified_artifacts or set(outputs.expected_names) != set(step.verified_artifacts):
        yield "steps.current_outputs.expected: must hold the artifacts of the current step"
    for name in PCS:
        if not (step.pcs_considerations or {}).get(name, "").strip():
            yield f"steps.current.pcs_considerations.{name}: must be set"


def _behavior(document: StateDocument) -> Iterator[str]:
    behavior, outputs = document.behaviors.current, document.behaviors.current_outputs
    if behavior is None:
        yield "behaviors.current: must be set"
        return
    for name in ("agent", "task", "outputs", "acceptance"):
        if not getattr(behavior, name):
            yield f"behaviors.current.{name}: must be set"
    if set(outputs.expected_names) != set(behavior.outputs or ()):
        yield "behaviors.current_outputs.expected: must hold the outputs of the current behavior"
    for name in behavior.inputs or {}:
        if name not in document.variables:
            yield f"behaviors.current.inputs.{name}: is not bound to a variable"
    if document.behaviors.iteration != document.location.behavior_iteration:
        yield "behaviors.iteration: must equal location.behavior_iteration"
    if document.behaviors.focus != (behavior.task or ""):
        yield "behaviors.focus: must be the task"


_ROWS: dict[NotebookState, Callable[[StateDocument], Iterator[str]]] = {
    _S.IDLE: _idle,
    _S.STAGE_RUNNING: _stage_running,
    _S.STEP_RUNNING: _step_running,
    _S.BEHAVIOR_RUNNING: _behavior_running,
    _S.BEHAVIOR_COMPLETED: _behavior_completed,
    _S.STEP_COMPLETED: _step_completed,
    _S.WORKFLOW_COMPLETE: _workflow_complete,
    _S.FAILED: _anything,
    _S.CANCELLED: _anything,
}
