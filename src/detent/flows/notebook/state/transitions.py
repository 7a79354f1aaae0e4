"""What each transition writes: the one law by which a run and `apply-transition` change a state document.

Belongs here: the state after a move, from the state before it, the decision, the payload and the facts.
Nothing here measures, waits or asks the time. What T6 writes is in
`stage_transitions`, what the levels become in `levels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from detent.flows.notebook.payloads.values import (
    Actions,
    BehaviorPlan,
    BehaviorReflection,
    Payload,
    StagePlan,
    StageReflection,
    StepPlan,
)
from detent.flows.notebook.state import levels
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.document import (
    BehaviorLevel,
    Effects,
    Location,
    MachinePosition,
    StateDocument,
    StepLevel,
)
from detent.flows.notebook.state.facts import Facts
from detent.flows.notebook.state.ledger import Failure, RunState, split_behavior_id
from detent.flows.notebook.state.machine import NotebookState, check_move
from detent.flows.notebook.state.notebook_summary import with_actions, with_heading
from detent.flows.notebook.state.payload_errors import PayloadMismatch, PayloadMissing
from detent.flows.notebook.state.stage_transitions import (
    back_in_stage,
    back_to_stage,
    complete_stage,
    enter_step,
    next_step,
    revise,
    with_goal,
)
from detent.flows.notebook.state.variables import after_transition

P = TypeVar("P", StagePlan, StepPlan, BehaviorPlan, Actions, BehaviorReflection, StageReflection)

_ROWS_WITH_HEADINGS = {"1": 2, "2": 1, "6a": 1, "6b": 1, "6d": 1, "6e": 1}
"""Heading cells of the rows that write some."""


def apply(run: RunState, decision: Decision, facts: Facts, *payloads: Payload) -> RunState:
    """The state after a move.

    Rows 1 to 4 take their payload; 5a, 5c, 5d a T5; 5b a T5 and a T3; 6a to 6c a T6; 6d within the stage and
    6e a T6 and a T2, 6d to an earlier stage a T6. FAIL and CANCEL take none. A reflection may be left out
    where a plan says it all.

    Raises:
        InvalidTransitionError: the table does not list the move.
        PayloadMissing: the payload that the row needs is not given.
        PayloadMismatch: a payload does not fit the state.
    """
    document = run.document
    check_move(document.fsm.state, decision.event, decision.to)
    ledger = replace(run.ledger.judged(facts), row=decision.row)
    run = RunState(document, ledger)
    match decision.row:
        case "1":
            run = _start_workflow(run, _needed(decision, payloads, StagePlan))
        case "2":
            run = _start_step(run, _needed(decision, payloads, StepPlan))
        case "3":
            run = _start_behavior(run, _needed(decision, payloads, BehaviorPlan), facts)
        case "4":
            run = _complete_action(run, facts)
        case "5a" | "5d":
            run = _complete_behavior(run, decision, facts, _given(payloads, BehaviorReflection))
        case "5b":
            run = _complete_behavior(run, decision, facts, _given(payloads, BehaviorReflection))
            run = _start_behavior(run, _needed(decision, payloads, BehaviorPlan), facts)
        case "5c":
            run = _retry(run, facts, _given(payloads, BehaviorReflection))
        case "6a":
            run = _without_what_was_missed(run, decision, facts)
            run = next_step(run, facts, _given(payloads, StageReflection))
        case "6b" | "6c":
            run = _without_what_was_missed(run, decision, facts)
            run = complete_stage(run, decision, facts, _given(payloads, StageReflection))
        case "6d" if decision.to is NotebookState.STEP_RUNNING:
            steps = _needed(decision, payloads, StepPlan)
            run = back_in_stage(run, decision, steps, _given(payloads, StageReflection))
        case "6d":
            run = back_to_stage(run, decision)
        case "6e":
            steps = _needed(decision, payloads, StepPlan)
            run = revise(run, facts, steps, _given(payloads, StageReflection))
        case "6f":
            run = _without_what_was_missed(run, decision, facts)
        case _:
            pass  # FAIL and CANCEL leave everything as it is, to be looked at
    return RunState(_with_common_parts(document, run.document, decision, facts, payloads), run.ledger)


def _needed(decision: Decision, payloads: tuple[Payload, ...], kind: type[P]) -> P:
    payload = _given(payloads, kind)
    if payload is None:
        raise PayloadMissing(decision.row, kind)
    return payload


def _given(payloads: tuple[Payload, ...], kind: type[P]) -> P | None:
    return next((payload for payload in payloads if isinstance(payload, kind)), None)


def _with_common_parts(
    before: StateDocument,
    after: StateDocument,
    decision: Decision,
    facts: Facts,
    payloads: tuple[Payload, ...],
) -> StateDocument:
    """The document with what every transition writes: variables, the notebook's summary, the FSM."""
    summary = facts.notebook
    if summary is None:
        summary = before.state.notebook
        if decision.row in _ROWS_WITH_HEADINGS:
            plan = _given(payloads, StagePlan)
            summary = with_heading(summary, _ROWS_WITH_HEADINGS[decision.row], plan.title if plan else None)
        actions = _given(payloads, Actions)
        if actions is not None:
            summary = with_actions(summary, actions.actions, facts.outputs)
    return after.changed(
        variables=after_transition(before, after, facts, payloads),
        notebook=summary,
        fsm=MachinePosition(state=decision.to, last_transition=decision.event, timestamp=facts.at),
    )


# -- T1 to T4 -----------------------------------------------------------------------------------------------


def _start_workflow(run: RunState, plan: StagePlan) -> RunState:
    stages = levels.stages_of(plan)
    return RunState(
        run.document.changed(
            location=Location(stage_id=plan.stages[0].id),
            stages=stages,
            steps=StepLevel(),
            behaviors=BehaviorLevel(),
        ),
        run.ledger,
    )


def _start_step(run: RunState, plan: StepPlan) -> RunState:
    document = run.document
    stage = document.stages.current
    if stage is None:
        raise PayloadMismatch("No stage is current, so its steps cannot be planned.")
    kept = run.ledger.closed_steps.get(stage.stage_id, ())
    return enter_step(with_goal(run, plan.goals), levels.steps_of(plan, kept))


def _start_behavior(run: RunState, plan: BehaviorPlan, facts: Facts) -> RunState:
    document, ledger = run.document, run.ledger
    step = document.steps.current
    if step is None or plan.step_id != step.step_id:
        here = "none" if step is None else f"'{step.step_id}'"
        raise PayloadMismatch(
            f"The behavior is for the step '{plan.step_id}', but the current one is {here}."
        )
    if plan.behavior_id != run.next_behavior_id:
        raise PayloadMismatch(
            f"The behavior is called '{plan.behavior_id}'; the next one of this step is "
            f"'{run.next_behavior_id}'."
        )
    known: Mapping[str, Any] = {**document.variables, **facts.variables}
    unbound = [given.name for given in plan.inputs if given.name not in known]
    if unbound:
        raise PayloadMismatch(f"Inputs that no variable holds: {', '.join(unbound)}.")
    behavior = levels.behavior_of(plan, {given.name: known[given.name] for given in plan.inputs})
    _, number = split_behavior_id(plan.behavior_id)
    document = document.changed(
        location=document.location.model_copy(
            update={"step_id": step.step_id, "behavior_id": plan.behavior_id, "behavior_iteration": 1}
        ),
        behaviors=levels.begun(document.behaviors, behavior),
        effects=_archived(document.state.effects),
    )
    ledger = replace(
        ledger,
        behavior_numbers={**ledger.behavior_numbers, step.step_id: number},
        behaviors_since_entry=ledger.behaviors_since_entry + 1,
        last_failure=None,
        kernel_deaths=0,
    )
    return RunState(document, ledger)


def _complete_action(run: RunState, facts: Facts) -> RunState:
    effects = run.document.state.effects
    texts = tuple(text for cell in facts.outputs for text in cell)
    added = effects.model_copy(update={"current": (*effects.current, *texts)})
    return RunState(run.document.changed(effects=added), run.ledger)


def _archived(effects: Effects) -> Effects:
    """Output of the iteration that is over joins the history."""
    return effects.model_copy(update={"current": (), "history": (*effects.history, *effects.current)})


# -- T5 -----------------------------------------------------------------------------------------------------


def _complete_behavior(
    run: RunState, decision: Decision, facts: Facts, reflection: BehaviorReflection | None
) -> RunState:
    document, ledger = run.document, run.ledger
    escalated = decision.row == "5d"
    behavior = document.behaviors.current
    if behavior is None:
        raise PayloadMismatch("No behavior is current, so none can be reflected on.")
    complete = facts.behavior.complete and not facts.raised
    behaviors = levels.completed(document.behaviors, behavior, facts.behavior, complete, reflection)
    steps = document.steps
    step = steps.current
    if escalated and step is not None:
        step = step.model_copy(update={"completion_status": "failed"})
    steps = steps.model_copy(
        update={
            "current": step,
            "current_outputs": levels.joined(steps.current_outputs, facts.behavior.produced, facts.step),
        }
    )
    ledger = replace(ledger, escalated=escalated, given_up=_given_up(facts) if escalated else {})
    return RunState(document.changed(behaviors=behaviors, steps=steps), ledger)


def _given_up(facts: Facts) -> dict[str, str]:
    """What a behavior is given up on, if that is all: its outputs are there, and a model is."""
    failed = [criterion for criterion in facts.behavior.failed if not criterion.locked]
    if facts.raised or not facts.behavior.all_there or not all(miss.bearable for miss in failed):
        return {}
    return {criterion.text: criterion.measured for criterion in failed}


def _without_what_was_missed(run: RunState, decision: Decision, facts: Facts) -> RunState:
    """The state that remembers on what the run does not insist any longer."""
    step = run.document.steps.current
    complete = decision.completes_stage and decision.closes_as == "success"
    insists = decision.row != "6f" and (complete or not run.ledger.escalated)
    if insists or step is None:
        return run
    return RunState(run.document, run.ledger.without(facts, step.step_id))


def _retry(run: RunState, facts: Facts, reflection: BehaviorReflection | None) -> RunState:
    document, ledger = run.document, run.ledger
    behavior = document.behaviors.current
    if behavior is None:
        raise PayloadMismatch("No behavior is current, so none can be retried.")
    iteration = (document.location.behavior_iteration or 1) + 1
    feedback = facts.feedback or (reflection.if_continuing if reflection else "")
    if feedback:
        told = {**(behavior.whathappened or {}), "if_continuing_behavior": feedback}
        behavior = behavior.model_copy(update={"whathappened": told})
    document = document.changed(
        location=document.location.model_copy(update={"behavior_iteration": iteration}),
        behaviors=levels.begun(document.behaviors, behavior, iteration),
        effects=_archived(document.state.effects),
    )
    deaths = ledger.kernel_deaths + (1 if facts.died else 0)
    return RunState(document, replace(ledger, last_failure=Failure.of(facts.behavior), kernel_deaths=deaths))
