"""What each state demands of the document."""

import pytest

from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.state.state_checks import check_state
from detent.flows.notebook.state.state_json import read_state, write_state
from tests.flows.notebook.state.samples import (
    all_steps_done,
    behaved,
    idle,
    in_behavior,
    in_step,
    move,
    second_step,
    stage_reflection,
    started,
    step_done,
    verdict,
)

PROGRESS = "observation.location.progress"
WHERE = "observation.location.current"


def complete():
    run = move(all_steps_done(), "6b", stage_reflection(True), stage=verdict("frame", "report"))
    plain = write_state(run.document)
    stages = plain["observation"]["location"]["progress"]["stages"]
    stages["current"] = None
    stages["remaining"] = []
    plain["observation"]["location"]["current"]["stage_id"] = None
    plain["state"]["FSM"]["state"] = "WORKFLOW_COMPLETE"
    return plain


def spoiled(plain, path, value):
    *parents, key = path.split(".")
    holder = plain
    for parent in parents:
        holder = holder[parent]
    holder[key] = value
    return read_state(plain)


def outputs(*names):
    return {
        "expected": [{"name": name, "description": ""} for name in names],
        "produced": [],
        "in_progress": [],
    }


@pytest.mark.parametrize(
    "made", [idle, started, in_step, in_behavior, behaved, step_done, second_step, all_steps_done]
)
def test_what_the_law_writes_is_as_its_state_demands(made):
    """N-02, N-04, N-06, N-08, N-10, N-12."""
    assert check_state(made().document) == ()


@pytest.mark.parametrize(
    ("made", "path", "value"),
    [
        # N-02: nothing is active, and the variables are the user's inputs alone.
        (idle, f"{WHERE}.stage_id", "first"),
        (idle, "state.variables", {"user_problem": "x"}),
        (idle, "state.variables", {"user_problem": "x", "user_submit_files": [], "frame": 1}),
        (idle, "state.notebook.cell_count", 1),
        (idle, f"{PROGRESS}.stages.current", {"stage_id": "first"}),
        # N-04: a stage with its goal and expected artifacts; steps present and empty.
        (started, f"{PROGRESS}.stages.current", None),
        (started, f"{PROGRESS}.stages.current.goal", " "),
        (started, f"{PROGRESS}.stages.current_outputs", outputs()),
        (started, f"{PROGRESS}.stages.current_outputs", outputs("frame")),
        (started, f"{PROGRESS}.steps.remaining", [{"step_id": "load"}]),
        (started, f"{WHERE}.step_id", "load"),
        (started, f"{WHERE}.stage_id", "second"),
        (started, f"{WHERE}.stage_id", None),
        # N-06: a step with goal, artifacts and PCS; no behavior yet.
        (in_step, f"{PROGRESS}.steps.current", None),
        (in_step, f"{PROGRESS}.steps.current.goal", ""),
        (in_step, f"{PROGRESS}.steps.current.pcs_considerations", {"predictability": "x"}),
        (in_step, f"{PROGRESS}.steps.current_outputs", outputs("other")),
        (in_step, f"{PROGRESS}.behaviors.completed", [{"behavior_id": "load_b1"}]),
        (in_step, f"{WHERE}.behavior_id", "load_b1"),
        # N-08: a behavior with agent, task, bound inputs, outputs and acceptance.
        (in_behavior, f"{PROGRESS}.behaviors.current", None),
        *(
            (in_behavior, f"{PROGRESS}.behaviors.current.{name}", empty)
            for name, empty in (("agent", ""), ("task", ""), ("outputs", {}), ("acceptance", []))
        ),
        (in_behavior, f"{PROGRESS}.behaviors.current.inputs", {"nobody": 1}),
        (in_behavior, f"{WHERE}.behavior_iteration", None),
        (in_behavior, f"{WHERE}.behavior_iteration", 2),
        (in_behavior, f"{WHERE}.behavior_id", "load_b2"),
        (in_behavior, f"{PROGRESS}.behaviors.focus", "another task"),
        # N-10: nothing is judged yet.
        (behaved, f"{PROGRESS}.behaviors.current.completion_status", "success"),
        (behaved, f"{PROGRESS}.behaviors.current_outputs.produced", ["frame"]),
        # N-12: artifacts produced, or the step marked as escalated.
        (step_done, f"{PROGRESS}.steps.current_outputs.produced", []),
        (step_done, f"{PROGRESS}.behaviors.completed", []),
        (step_done, f"{PROGRESS}.behaviors.completed", [{"behavior_id": "load_b1"}]),
        (step_done, f"{PROGRESS}.behaviors.current", {"behavior_id": "load_b1"}),
        (step_done, f"{WHERE}.behavior_id", "describe_b1"),
        (step_done, f"{WHERE}.step_id", None),
    ],
)
def test_a_document_that_lacks_what_its_state_demands_is_told_where(made, path, value):
    document = spoiled(write_state(made().document), path, value)
    problems = check_state(document)
    assert problems
    level, name = path.split(".")[-2:]
    assert any(word in problem for problem in problems for word in (level, name))


def test_an_escalated_step_may_miss_its_artifacts():
    """N-12."""
    plain = write_state(step_done().document)
    progress = plain["observation"]["location"]["progress"]
    progress["steps"]["current_outputs"]["produced"] = []
    progress["steps"]["current"]["completion_status"] = "failed"
    assert check_state(read_state(plain)) == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{PROGRESS}.stages.remaining", [{"stage_id": "second"}]),
        (f"{PROGRESS}.stages.completed", []),
        (f"{WHERE}.stage_id", "first"),
    ],
)
def test_a_complete_workflow_has_no_stage_left(path, value):
    assert check_state(read_state(complete())) == ()
    assert check_state(spoiled(complete(), path, value))


@pytest.mark.parametrize("end", ["FAILED", "CANCELLED"])
def test_a_run_that_was_cut_short_keeps_what_it_had(end):
    plain = write_state(in_behavior().document)
    plain["state"]["FSM"]["state"] = end
    document = read_state(plain)
    assert document.fsm.state is NotebookState(end)
    assert check_state(document) == ()
