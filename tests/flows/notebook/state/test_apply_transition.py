"""The next state for a state file and a payload."""

import pytest

from detent.flows.notebook.payloads.values import Action, Actions, StepPlan
from detent.flows.notebook.state.apply_transition import MEASURED, Results, apply_transition, read_results
from detent.flows.notebook.state.payload_errors import PayloadMismatch
from detent.flows.notebook.state.state_checks import check_state
from detent.flows.notebook.state.state_json import read_state, write_state
from detent.kernel.errors import ConfigurationError, InvalidTransitionError
from tests.flows.notebook.state.samples import (
    AT,
    NAMES,
    STAGES,
    STEPS,
    all_steps_done,
    behaved,
    behavior,
    example,
    idle,
    in_step,
    overlaid,
    reflection,
    second_behaved,
    stage_reflection,
    started,
    step,
    step_done,
)
from tests.flows.notebook.state.seed_payloads import PAYLOADS, RESULTS

LATER = "2025-03-01T13:00:00Z"


def shows(state: dict, part: dict, path: str = "") -> list[str]:
    """The places where a state does not show what a print of it shows."""
    if path == ".observation" and "progress" in part:
        part = {**part, "location": {**part.get("location", {}), "progress": part["progress"]}}
        part.pop("progress")
    wrong = []
    for key, value in part.items():
        here = f"{path}.{key}"
        if key == "last_transition" and value == "TRANSITION_TO_COMPELETE_STEP":
            value = "TRANSITION_TO_COMPLETE_STEP"
        if isinstance(value, dict):
            wrong += shows(state.get(key) or {}, value, here)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            items = state.get(key, [])
            wrong += [here] if len(items) != len(value) else []
            for index, (shown, item) in enumerate(zip(items, value, strict=False)):
                wrong += shows(shown, item, f"{here}[{index}]")
        elif key not in ("goal", "task", "cell_count", "remaining") and state.get(key) != value:
            wrong.append(here)
    return wrong


class TestTheExamples:
    """N-62 to N-67."""

    @pytest.mark.parametrize("at", range(5))
    def test_each_example_leads_to_the_next(self, at):
        # A print shows what has changed; what an earlier one shows still holds.
        state = overlaid(*(example(name) for name in NAMES[: at + 1]))
        applied = apply_transition(state, PAYLOADS[at], at=LATER, results=RESULTS if at == 3 else None)
        wanted = example(NAMES[at + 1])
        if at == 3:
            wanted["state"]["variables"]["user_problem"] = state["state"]["variables"]["user_problem"]
        assert shows(applied.state, wanted) == []
        assert applied.state["state"]["FSM"]["timestamp"] == LATER

    def test_one_after_another_they_lead_through_all_states(self):
        state = example("x1_idle")
        cells = []
        for at, payload in enumerate(PAYLOADS):
            applied = apply_transition(state, payload, at=LATER, results=RESULTS if at == 3 else None)
            state = applied.state
            assert check_state(read_state(state)) == ()
            wanted = example(NAMES[at + 1])
            wanted["state"].get("variables", {}).pop("user_problem", None)
            assert shows(state, wanted) == []
            cells.append(state["state"]["notebook"]["cell_count"])
        # The example's two cells; our title and headings stand before them.
        assert cells == [2, 3, 3, 5, 5]
        assert state["observation"]["location"]["current"] == {
            "stage_id": "data_existence_establishment",
            "step_id": "data_collection_inventory",
            "behavior_id": "data_collection_inventory_b1",
            "behavior_iteration": 1,
        }

    @pytest.mark.parametrize("at", range(4))
    def test_each_example_alone_is_enough_for_its_transition(self, at):
        results = RESULTS if at == 3 else None
        applied = apply_transition(example(NAMES[at]), PAYLOADS[at], at=LATER, results=results)
        wanted = example(NAMES[at + 1])
        wanted["state"].pop("variables", None)
        assert shows(applied.state, wanted) == []

    def test_the_fifth_example_alone_names_no_behavior_to_complete(self):
        with pytest.raises(PayloadMismatch, match="No behavior is current"):
            apply_transition(example("x5_behavior_completed"), PAYLOADS[4], at=LATER)


class TestT4:
    def test_outputs_and_variables_come_from_the_results(self):
        running = write_state(_running())
        actions = Actions((Action("add_code", "frame = 1"), Action("add_code", "frame")))
        results = read_results({"outputs": [[], [{"text": "1"}, "2"]], "variables": {"frame": 1}})
        state = apply_transition(running, actions, at=AT, results=results).state["state"]
        assert state["effects"]["current"] == ["1", "2"]
        assert state["variables"]["frame"] == 1
        assert state["notebook"]["last_output"] == "12"
        assert state["notebook"]["cell_count"] == 5

    def test_without_results_the_cells_are_added_unrun(self):
        running = write_state(_running())
        state = apply_transition(running, Actions((Action("add_code", "frame = 1"),)), at=AT).state["state"]
        assert state["effects"]["current"] == []
        assert "frame" not in state["variables"]
        assert (state["notebook"]["cell_count"], state["notebook"]["last_cell_type"]) == (4, "code")
        assert state["FSM"]["state"] == "BEHAVIOR_COMPLETED"

    @pytest.mark.parametrize(
        "plain",
        [[], {"outputs": "text"}, {"outputs": [[1]]}, {"variables": []}, {"output": []}, {"outputs": [3]}],
    )
    def test_results_of_another_shape_are_refused(self, plain):
        with pytest.raises(ConfigurationError):
            read_results(plain)


def _running():
    plain = write_state(in_step().document)
    return read_state(apply_transition(plain, behavior("load_b1", "frame"), at=AT).state)


class TestReflections:
    def test_claims_move_the_state_and_it_says_so(self):
        applied = apply_transition(write_state(behaved().document), reflection(True, "frame"), at=AT)
        assert (applied.row, applied.measured) == ("5a", False)
        assert applied.state[MEASURED] is False
        assert applied.state["state"]["FSM"]["state"] == "STEP_COMPLETED"

    def test_a_transition_that_claims_nothing_says_nothing(self):
        reflected = apply_transition(write_state(behaved().document), reflection(True, "frame"), at=AT).state
        moved = apply_transition(reflected, stage_reflection(), at=AT).state
        assert moved[MEASURED] is False
        assert MEASURED not in apply_transition(moved, behavior("describe_b1", "report"), at=AT).state

    def test_a_claim_of_completion_over_failures_escalates(self):
        payload = reflection(True, failing=("frame",))
        applied = apply_transition(write_state(behaved().document), payload, at=AT)
        assert applied.row == "5d"
        progress = applied.state["observation"]["location"]["progress"]
        assert progress["steps"]["current"]["completion_status"] == "failed"
        assert progress["behaviors"]["completed"][0]["completion_status"] == "failed"

    def test_a_claim_of_failure_is_a_retry(self):
        payload = reflection(False, failing=("frame",), if_continuing="Assign it.")
        applied = apply_transition(write_state(behaved().document), payload, at=AT)
        assert applied.row == "5c"
        assert applied.state["observation"]["location"]["current"]["behavior_iteration"] == 2

    def test_retries_are_limited(self):
        state = write_state(behaved().document)
        state["observation"]["location"]["current"]["behavior_iteration"] = 3
        assert apply_transition(state, reflection(False, failing=("frame",)), at=AT).row == "5d"

    def test_a_complete_behavior_of_an_open_step_needs_the_next_plan(self):
        state = write_state(behaved().document)
        with pytest.raises(ConfigurationError, match="T3"):
            apply_transition(state, reflection(False, "frame"), at=AT)
        applied = apply_transition(state, behavior("load_b2", "frame"), at=AT)
        assert applied.row == "5b"
        behaviors = applied.state["observation"]["location"]["progress"]["behaviors"]
        assert behaviors["completed"][0]["artifacts_produced"] == ["frame"]

    def test_a_stage_that_is_not_complete_goes_on_with_its_next_step(self):
        applied = apply_transition(write_state(step_done().document), stage_reflection(), at=AT)
        assert applied.row == "6a"

    def test_a_stage_that_is_complete_is_followed_by_the_next(self):
        state = write_state(all_steps_done().document)
        payload = stage_reflection(True, experience="x", experience_from="first")
        applied = apply_transition(state, payload, at=AT)
        assert applied.row == "6b"
        stages = applied.state["observation"]["location"]["progress"]["stages"]
        assert stages["completed"][0]["experience"] == "x"

    def test_a_stage_without_steps_that_is_not_complete_needs_a_revision(self):
        state = write_state(all_steps_done().document)
        with pytest.raises(ConfigurationError, match="T2"):
            apply_transition(state, stage_reflection(), at=AT)
        assert apply_transition(state, StepPlan((step("more", "report"),)), at=AT).row == "6e"


@pytest.mark.parametrize(
    ("made", "payload", "valid"),
    [
        (idle, STEPS, "START_WORKFLOW"),
        (started, STAGES, "START_STEP"),
        (in_step, stage_reflection(), "START_BEHAVIOR"),
        (second_behaved, STAGES, "TRANSITION_TO_COMPLETE_STEP"),
        (step_done, reflection(True), "COMPLETE_STAGE"),
        (step_done, behavior("load_b2", "frame"), "START_STEP"),
    ],
)
def test_a_payload_of_another_transition_is_refused_with_the_valid_events(made, payload, valid):
    """N-14."""
    with pytest.raises(InvalidTransitionError) as refused:
        apply_transition(write_state(made().document), payload, at=AT)
    assert valid in [event.value for event in refused.value.valid]


def test_results_may_be_empty():
    assert read_results({}) == Results()
