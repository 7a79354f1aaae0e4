"""The samples and the shapes in words that prompts show."""

from __future__ import annotations

import re

import pytest

from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.kinds import EVENT_OF, KINDS, SAMPLE_FILES
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample, shape_of
from detent.flows.notebook.payloads.stage_reflection_reader import LONG_NAMES
from detent.flows.notebook.payloads.vocabulary import VOCABULARIES

ALTERNATIVES = {"workflow", "title", "description", "note"}
"""Elements that are read, and that no prompt asks for."""
LONG_ONLY = re.compile(
    "|".join(LONG_NAMES) + "|lesson|challenge|practice|pitfall|description|application|resolution|prevention"
    "|recommendation|next_step|safe_to_delete|used_by|value_summary|current_goal|what_should_do|needs_update"
    "|if_moving|carry_forward|context_for_next|outputs_tracking_update|stage_progress|experience|^type$|^status$"
    "|^replacement$"
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_canonical_and_needs_no_repair(kind):
    read = read_payload(sample(kind), expected=kind)
    assert read.repairs == ()
    assert canonical(read.value) == sample(kind)
    assert [flag for flag in read.flags if not flag.startswith("agent: ")] == []


def test_the_samples_have_the_names_that_the_specification_lists():
    assert list(SAMPLE_FILES.values()) == [
        "00_Transition_planning_START_WORKFLOW.xml",
        "01_Transition_planning_START_STEP.xml",
        "02_Transition_planning_START_BEHAVIOUR.xml",
        "03_START_ACTION.txt",
        "04_Transition_Complete_Step.xml",
        "05_Transition_Complete_Stage.xml",
    ]
    assert list(EVENT_OF) == list(SAMPLE_FILES) == list(KINDS)


def test_the_samples_continue_the_examples_of_the_state():
    """N-67, as far as payloads go: ids, titles, agent and names of the printed states."""
    plan = read_payload(sample("T1")).value
    assert plan.stages[0].id == "data_existence_establishment"
    assert plan.stages[0].title == "Data Existence Establishment"
    assert len(plan.stages[1:]) == 5
    steps = read_payload(sample("T2")).value.steps
    assert steps[0].id == "data_collection_inventory"
    assert steps[0].title == "Data Collection and Initial Inventory"
    assert len(steps[1:]) == 4
    behavior = read_payload(sample("T3")).value
    assert behavior.behavior_id == "data_collection_inventory_b1"
    assert behavior.agent == "behavior_2_initial_inventory_and_access_check"
    assert behavior.task.startswith("Perform initial inventory")
    actions = read_payload(sample("T4")).value.actions
    assert [action.kind for action in actions] == ["add_text", "add_code", "communicate"]
    reflection = read_payload(sample("T5")).value
    assert [artifact.name for artifact in reflection.artifacts] == ["data_inventory_checklist", "raw_dataset"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_shape_names_every_element_and_holds_a_whole_example(kind):
    text = shape_of(kind)
    vocabulary = VOCABULARIES[kind]
    for tag in vocabulary.tags - ALTERNATIVES:
        if kind == "T6" and LONG_ONLY.search(tag) and tag != "stage_experience":
            continue
        if tag == "remaining" and kind == "T2":
            continue
        if (
            tag in ("verified_artifacts", "required_variables", "key_findings", "background")
            and f"<{tag}>" not in text
        ):
            assert kind in ("T2", "T3", "T5")
            continue
        assert f"<{tag}" in text, tag
    example = text.split("An example:\n\n")[1]
    assert read_payload(example, expected=kind).repairs == ()


def test_the_example_of_a_prompt_names_a_working_agent():
    assert "<agent>Explore</agent>" in shape_of("T3")
