"""The state JSON: what is read, what is written, and what the schema demands."""

import copy
import json

import jsonschema
import pytest

from detent.flows.notebook.state.machine import NotebookEvent, NotebookState
from detent.flows.notebook.state.state_json import (
    LONGEST_EFFECT,
    export_state,
    json_schema,
    make_schema,
    read_state,
    write_state,
)
from detent.kernel.errors import ConfigurationError
from tests.flows.notebook.state.samples import (
    NAMES,
    all_steps_done,
    behaved,
    document_of,
    example,
    idle,
    in_behavior,
    in_step,
    move,
    reflection,
    second_step,
    started,
    step_done,
    verdict,
)

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
STATES = {
    "IDLE": idle,
    "STAGE_RUNNING": started,
    "STEP_RUNNING": in_step,
    "next STEP_RUNNING": second_step,
    "BEHAVIOR_RUNNING": in_behavior,
    "BEHAVIOR_COMPLETED": behaved,
    "STEP_COMPLETED": step_done,
    "last STEP_COMPLETED": all_steps_done,
}

REQUIRED = [
    "observation",
    "observation.location",
    *(
        f"observation.location.current.{name}"
        for name in ("stage_id", "step_id", "behavior_id", "behavior_iteration")
    ),
    *(f"observation.location.progress.{level}" for level in ("stages", "steps", "behaviors")),
    *(
        f"observation.location.progress.{level}.{name}"
        for level in ("stages", "steps")
        for name in ("completed", "current", "remaining", "focus", "current_outputs")
    ),
    *(
        f"observation.location.progress.behaviors.{name}"
        for name in ("completed", "current", "iteration", "focus", "current_outputs")
    ),
    *(
        f"observation.location.progress.stages.current_outputs.{name}"
        for name in ("expected", "produced", "in_progress")
    ),
    *(f"observation.location.progress.stages.current.{name}" for name in ("stage_id", "title", "goal")),
    *(f"observation.location.progress.steps.current.{name}" for name in ("step_id", "title", "goal")),
    "observation.location.progress.behaviors.current.behavior_id",
    "state",
    *(f"state.{name}" for name in ("variables", "effects", "notebook", "FSM")),
    *(f"state.effects.{name}" for name in ("current", "history")),
    *(
        f"state.notebook.{name}"
        for name in ("notebook_id", "title", "cell_count", "last_cell_type", "last_output")
    ),
    *(f"state.FSM.{name}" for name in ("state", "last_transition", "timestamp")),
]
"""Every required key of the shape in 2.1, written once more by hand."""


class TestTheSchema:
    """N-56."""

    def test_the_shipped_file_is_the_one_made_from_the_models(self):
        assert json_schema() == make_schema()

    def test_is_a_schema_of_draft_2020_12(self):
        assert json_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        VALIDATOR.check_schema(json_schema())

    @pytest.mark.parametrize("name", STATES)
    def test_accepts_what_is_written_in_each_state(self, name):
        VALIDATOR.validate(write_state(STATES[name]().document))

    @pytest.mark.parametrize("path", REQUIRED)
    def test_refuses_a_document_without_a_required_key(self, path):
        plain = write_state(in_behavior().document)
        *parents, key = path.split(".")
        holder = plain
        for parent in parents:
            holder = holder[parent]
        del holder[key]
        assert not VALIDATOR.is_valid(plain)

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("observation.location.current.stage_id", "Data Existence"),
            ("observation.location.current.behavior_id", "load"),
            ("observation.location.current.behavior_iteration", 0),
            ("observation.location.progress.stages.current.optional", None),
            ("observation.location.progress.stages.current.completion_status", "done"),
            ("observation.location.progress.stages.current_outputs.produced", None),
            ("state.notebook.cell_count", -1),
            ("state.notebook.last_cell_type", "raw"),
            ("state.FSM.state", "STAGE_COMPLETED"),
            ("state.FSM.last_transition", "NEXT_STEP"),
            ("state.FSM.timestamp", "2025-03-01T12:00:00"),
            ("state.FSM.timestamp", "yesterday"),
            ("state.effects.current", "one text"),
        ],
    )
    def test_refuses_a_wrong_value(self, path, value):
        plain = write_state(in_behavior().document)
        *parents, key = path.split(".")
        holder = plain
        for parent in parents:
            holder = holder[parent]
        holder[key] = value
        assert not VALIDATOR.is_valid(plain)

    def test_accepts_unknown_keys_at_every_level(self):
        def widened(value):
            if isinstance(value, dict):
                return {**{key: widened(item) for key, item in value.items()}, "remark": "kept"}
            return [widened(item) for item in value] if isinstance(value, list) else value

        plain = write_state(in_behavior().document)
        plain["state"].pop("variables")
        wide = widened(plain)
        wide["observation"]["location"]["progress"]["behaviors"]["current"]["outputs"] = {}
        wide["state"]["variables"] = {}
        VALIDATOR.validate(wide)


class TestReading:
    @pytest.mark.parametrize("name", NAMES)
    def test_each_example_loads_with_its_missing_parts_empty(self, name):
        """N-56, N-62 to N-66."""
        document = read_state(example(name))
        VALIDATOR.validate(write_state(document))
        state = example(name)["state"]["FSM"]["state"]
        assert document.fsm.state is NotebookState(state)

    @pytest.mark.parametrize("name", STATES)
    def test_what_is_written_reads_back_equal(self, name):
        document = STATES[name]().document
        assert read_state(json.loads(json.dumps(write_state(document)))) == document

    def test_nothing_at_all_is_an_idle_state(self):
        document = read_state({})
        assert document.fsm.state is NotebookState.IDLE
        assert document.location.model_dump() == {
            "stage_id": None,
            "step_id": None,
            "behavior_id": None,
            "behavior_iteration": None,
        }

    def test_location_has_exactly_its_four_keys(self):
        """N-55."""
        written = write_state(in_behavior().document)["observation"]["location"]["current"]
        assert written == {
            "stage_id": "first",
            "step_id": "load",
            "behavior_id": "load_b1",
            "behavior_iteration": 1,
        }

    def test_progress_is_read_from_the_observation_and_written_under_the_location(self):
        """N-61."""
        written = write_state(read_state(example("x2_stage_running")))
        assert "progress" not in written["observation"]
        stages = written["observation"]["location"]["progress"]["stages"]
        assert stages["current"]["stage_id"] == "data_existence_establishment"

    def test_progress_under_the_location_wins_level_by_level(self):
        plain = {
            "observation": {
                "location": {"progress": {"stages": {"focus": "the new place"}}},
                "progress": {"stages": {"focus": "the old place"}, "steps": {"focus": "only here"}},
            }
        }
        document = read_state(plain)
        assert (document.stages.focus, document.steps.focus) == ("the new place", "only here")

    def test_unknown_keys_are_kept_at_every_level(self):
        plain = write_state(in_behavior().document)
        plain["run"] = "r1"
        plain["observation"]["weather"] = {"rain": True}
        plain["observation"]["location"]["progress"]["steps"]["colour"] = "blue"
        plain["observation"]["location"]["progress"]["stages"]["current"]["owner"] = "me"
        plain["state"]["FSM"]["note"] = [1, 2]
        expected = copy.deepcopy(plain)
        assert write_state(read_state(plain)) == expected

    def test_a_misspelt_transition_is_written_with_its_canonical_name(self):
        """N-66."""
        misspelt = example("x6_step_completed")["state"]["FSM"]["last_transition"]
        assert misspelt == "TRANSITION_TO_COMPELETE_STEP"
        document = read_state(example("x6_step_completed"))
        assert document.fsm.last_transition is NotebookEvent.TRANSITION_TO_COMPLETE_STEP
        assert write_state(document)["state"]["FSM"]["last_transition"] == "TRANSITION_TO_COMPLETE_STEP"

    def test_null_in_place_of_a_list_or_text_is_its_empty_value(self):
        document = read_state(
            {
                "observation": {"location": {"progress": {"stages": {"completed": None, "focus": None}}}},
                "state": {"effects": None, "variables": {"nothing": None}},
            }
        )
        assert document.stages.completed == ()
        assert document.stages.focus == ""
        assert document.variables == {"nothing": None}

    def test_artifacts_may_be_a_list_of_names(self):
        document = read_state(
            {
                "observation": {
                    "progress": {
                        "stages": {
                            "current": {"stage_id": "a", "verified_artifacts": ["frame", {"name": "report"}]},
                            "current_outputs": {"expected": ["frame", {"name": "report"}]},
                        }
                    }
                }
            }
        )
        assert document.stages.current.verified_artifacts == {"frame": "", "report": ""}
        assert document.stages.current_outputs.expected_names == ("frame", "report")

    def test_a_timestamp_without_a_zone_is_utc(self):
        document = read_state({"state": {"FSM": {"timestamp": "2025-03-01T12:00:00"}}})
        assert document.fsm.timestamp == "2025-03-01T12:00:00Z"

    def test_every_wrong_part_is_named_by_its_path(self):
        with pytest.raises(ConfigurationError) as refused:
            read_state(
                {
                    "observation": {"location": {"current": {"stage_id": "No Id"}}},
                    "state": {"FSM": {"state": "STAGE_RUNING", "timestamp": "2025-13-01T00:00:00Z"}},
                }
            )
        text = str(refused.value)
        assert "observation.location.current.stage_id" in text
        assert "Did you mean 'STAGE_RUNNING'" in text
        assert "state.FSM.timestamp" in text

    @pytest.mark.parametrize("plain", [None, [], "state", 3])
    def test_what_is_no_object_is_refused(self, plain):
        with pytest.raises(ConfigurationError):
            read_state(plain)


class TestExport:
    def test_outputs_are_shortened_and_their_length_is_told(self):
        """N-58."""
        long = "x" * 5000
        run = move(behaved(long, "short"), "5c", reflection(False), behavior=verdict(missing=("frame",)))
        exported = export_state(run.document)["state"]["effects"]
        assert [len(text) for text in exported["history"]] == [LONGEST_EFFECT, 5]
        assert exported["history"][0].endswith("[5000 characters]")
        assert write_state(run.document)["state"]["effects"]["history"] == [long, "short"]
        assert len(export_state(behaved(long).document)["state"]["notebook"]["last_output"]) == LONGEST_EFFECT

    def test_text_in_any_script_is_kept(self):
        """N-64."""
        assert "数据集成功加载" in document_of(*NAMES).state.effects.current[0]
