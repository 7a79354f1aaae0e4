"""Schema checks of a payload's value, in XML and in plain JSON alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.checks import Known
from detent.flows.notebook.payloads.names import artifact_name, behavior_number, is_id, is_path
from detent.flows.notebook.payloads.payload_error import (
    CONTRADICTION,
    COUNT,
    MISSING,
    NAME,
    REPEATED,
    UNKNOWN,
    VALUE,
    PayloadError,
)
from detent.flows.notebook.payloads.plain import from_plain, to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from detent.flows.notebook.payloads.values import (
    Action,
    Actions,
    Gap,
    Named,
    StagePlan,
    Tracking,
    VariableManagement,
)


def value_of(kind) -> Any:
    return read_payload(sample(kind)).value


def problem_of_text(kind, text, **known) -> str:
    with pytest.raises(PayloadError) as caught:
        read_payload(text, expected=kind, known=Known(**known))
    return caught.value.problems[0].code


def problem_of_plain(kind, value, **known) -> str:
    with pytest.raises(PayloadError) as caught:
        from_plain(kind, to_plain(value), known=Known(**known))
    return caught.value.problems[0].code


def first_stage(**changes) -> Callable:
    return lambda plan: replace(plan, stages=(replace(plan.stages[0], **changes), *plan.stages[1:]))


def first_step(**changes) -> Callable:
    return lambda plan: replace(plan, steps=(replace(plan.steps[0], **changes), *plan.steps[1:]))


def changed(**changes) -> Callable:
    return lambda value: replace(value, **changes)


def many_stages(count: int) -> Callable:
    return lambda plan: replace(
        plan, stages=tuple(replace(plan.stages[0], id=f"stage_{number}") for number in range(count))
    )


PCS = value_of("T2").steps[0].pcs_considerations
NO_WAY = Gap("x", "some_step", "critical", " ")
WRONG = [
    ("T1", first_stage(id=""), NAME),
    ("T1", first_stage(id="Data"), NAME),
    ("T1", first_stage(id="1st"), NAME),
    ("T1", first_stage(id="a-b"), NAME),
    ("T1", first_stage(id="é"), NAME),
    ("T1", first_stage(id="a" * 81), NAME),
    ("T1", first_stage(id="stability_assessment"), REPEATED),
    ("T1", first_stage(title=" "), MISSING),
    ("T1", first_stage(goal="\n"), MISSING),
    ("T1", first_stage(verified_artifacts=()), COUNT),
    ("T1", first_stage(verified_artifacts=(Named("raw dataset"),)), NAME),
    ("T1", first_stage(required_variables=(Named(""),)), NAME),
    ("T1", many_stages(13), COUNT),
    ("T1", many_stages(0), MISSING),
    ("T1", first_stage(insert_before="nowhere"), UNKNOWN),
    ("T1", first_stage(insert_after="data_existence_establishment"), UNKNOWN),
    ("T1", first_stage(insert_before="stability_assessment", replaces="stability_assessment"), CONTRADICTION),
    ("T2", first_step(id="X"), NAME),
    ("T2", first_step(verified_artifacts=()), COUNT),
    ("T2", first_step(pcs_considerations=replace(PCS, stability=" ")), MISSING),
    ("T3", changed(behavior_id="data_collection_inventory_1"), NAME),
    ("T3", changed(behavior_id="data_collection_inventory_b0"), NAME),
    ("T3", changed(behavior_id="data_collection_inventory_b01"), NAME),
    ("T3", changed(behavior_id="other_step_b1"), NAME),
    ("T3", changed(step_id="Data"), NAME),
    ("T3", changed(agent=""), MISSING),
    ("T3", changed(task=""), MISSING),
    ("T3", changed(outputs=()), COUNT),
    ("T3", changed(acceptance=()), COUNT),
    ("T3", changed(acceptance=("True", " ")), MISSING),
    ("T3", changed(inputs=(Named("a b"),)), NAME),
    ("T4", changed(actions=()), COUNT),
    ("T4", changed(actions=(Action("add_text", "t"),) * 41), COUNT),
    ("T4", changed(actions=(Action("communicate", "m", to="boss"),)), VALUE),
    ("T4", changed(actions=(Action("communicate", "m"),)), VALUE),
    ("T5", changed(step_is_complete=False), CONTRADICTION),
    ("T5", changed(next_state="STEP_RUNNING"), CONTRADICTION),
    ("T5", changed(tracking=Tracking(produced=("a b",))), NAME),
    ("T5", changed(new_variables=("1x",)), NAME),
    ("T6", changed(stage_is_complete=True), CONTRADICTION),
    ("T6", changed(next_state="STAGE_COMPLETED"), CONTRADICTION),
    ("T6", changed(step_id="Step 1"), NAME),
    ("T6", changed(completed_steps=-1), VALUE),
    ("T6", changed(percentage=101.0), VALUE),
    ("T6", changed(percentage=-1.0), VALUE),
    ("T6", changed(pcs_check=replace(PCS, predictability="")), MISSING),
    ("T6", lambda value: replace(value, variables=VariableManagement(gaps=(NO_WAY,))), MISSING),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spoil", "code"), WRONG)
def test_what_breaks_the_schema_is_refused_in_xml_and_in_json(kind, spoil, code):
    value = spoil(value_of(kind))
    assert problem_of_text(kind, canonical(value)) == code
    assert problem_of_plain(kind, value) in (code, COUNT if code == MISSING else code)


MISSING_PARTS = [
    ("T1", "<goal>", "</goal>"),
    ("T2", "<pcs_considerations>", "</pcs_considerations>"),
    ("T2", "<stability>", "</stability>"),
    ("T3", "<agent>", "</agent>"),
    ("T5", "<evaluation>", "</evaluation>"),
    ("T5", "<artifacts_produced>", "</artifacts_produced>"),
    ("T5", "<acceptance_validation>", "</acceptance_validation>"),
    ("T5", "<execution_quality>", "</execution_quality>"),
    ("T5", "<code_execution>", "</code_execution>"),
    ("T5", "<goal_achievement>", "</goal_achievement>"),
    ("T5", "<status>", "</status>"),
    ("T5", "<decision>", "</decision>"),
    ("T5", "<next_state>", "</next_state>"),
    ("T5", "<outputs_tracking_update>", "</outputs_tracking_update>"),
    ("T6", "<completion_status>", "</completion_status>"),
    ("T6", "<progress>", "</progress>"),
    ("T6", "<percentage>", "</percentage>"),
    ("T6", "<stage_artifacts_status>", "</stage_artifacts_status>"),
    ("T6", "<goal_status>", "</goal_status>"),
    ("T6", "<decision>", "</decision>"),
    ("T6", "<variable_management>", "</variable_management>"),
    ("T6", "<outputs_update>", "</outputs_update>"),
    ("T6", "<how_to_obtain>", "</how_to_obtain>"),
    ("T6", "<pcs_check>", "</pcs_check>"),
    ("T3", "<outputs>", "</outputs>"),
    ("T3", "<acceptance>", "</acceptance>"),
    ("T1", "<verified_artifacts>", "</verified_artifacts>"),
    ("T6", "<step_evaluation>", "</step_evaluation>"),
]


@pytest.mark.parametrize(("kind", "start", "end"), MISSING_PARTS)
def test_each_mandatory_part_is_missed(kind, start, end):
    text = sample(kind)
    first = text.index(start)
    without = text[:first] + text[text.index(end, first) + len(end) :]
    assert problem_of_text(kind, without) in (MISSING, COUNT)


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [
        ("T1", ' id="data_existence_establishment"'),
        ("T1", ' title="Data Existence Establishment"'),
        ("T1", ' name="raw_dataset"'),
        ("T3", ' step_id="data_collection_inventory"'),
        ("T3", ' name="user_submit_files"'),
        ("T4", ' to="pcs"'),
        ("T5", ' current_step_is_complete="true"'),
        ("T5", ' status="complete"'),
        ("T5", ' status="passed"'),
        ("T6", ' stage_is_complete="false"'),
        ("T6", ' needed_for="data_integrity_assurance"'),
        ("T6", ' urgency="important"'),
    ],
)
def test_each_mandatory_attribute_is_missed(kind, attribute):
    assert attribute in sample(kind)
    assert problem_of_text(kind, sample(kind).replace(attribute, "", 1)) in (MISSING, NAME, VALUE)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("T1", 'title="Data Existence Establishment"', 'title="t" optional="maybe"'),
        ("T3", "<effects>False", "<effects>sometimes"),
        ("T5", 'status="complete"', 'status="done"'),
        ("T5", 'status="passed"', 'status="ok"'),
        ("T5", "<code_execution>success", "<code_execution>fine"),
        ("T5", "<next_state>STEP_COMPLETED", "<next_state>STAGE_COMPLETED"),
        ("T5", "<next_state>STEP_COMPLETED", "<next_state>BEHAVIOR_RUNNING"),
        ("T6", "<completed_steps>1", "<completed_steps>one"),
        ("T6", "<completed_steps>1", "<completed_steps>-1"),
        ("T6", "<completed_steps>1", "<completed_steps>1.5"),
        ("T6", "<percentage>20", "<percentage>nan"),
        ("T6", "<percentage>20", "<percentage>1e3"),
        ("T6", "<percentage>20", "<percentage>"),
        ("T6", "<quality>complete", "<quality>good"),
        ("T6", 'priority="high"', 'priority="urgent"'),
        ("T6", 'safe="true"', 'safe="perhaps"'),
        ("T6", 'urgency="important"', 'urgency="low"'),
        ("T6", "<next_state>STEP_RUNNING", "<next_state>STEP_COMPLETED"),
    ],
)
def test_a_text_that_is_none_of_those_allowed_is_refused(kind, old, new):
    assert old in sample(kind)
    assert problem_of_text(kind, sample(kind).replace(old, new, 1)) == VALUE


class TestNames:
    @pytest.mark.parametrize("name", ["x", "_private", "X_train", "été", "数据", "df2"])
    def test_variables(self, name):
        assert artifact_name(name) == name
        assert not is_path(name)

    @pytest.mark.parametrize(
        ("written", "name"),
        [
            ("./models/model.pkl", "models/model.pkl"),
            ("models/model.pkl", "models/model.pkl"),
            ("outputs/eda/", "outputs/eda/"),
            ("outputs//./eda/.", "outputs/eda/"),
            ("./top.csv", "./top.csv"),
            (" outputs/a b.png ", "outputs/a b.png"),
            ("outputs/", "outputs/"),
        ],
    )
    def test_paths(self, written, name):
        assert artifact_name(written) == name
        assert artifact_name(name) == name
        assert is_path(name)

    @pytest.mark.parametrize(
        "name",
        ["", " ", "a b", "a.b", "1x", "class", "a-b", "model.pkl", "/etc/passwd", "../x", "a/../b", "~/x",
         "C:/x", "http://host/x", "a\\b/c", ".", "./", "/", "a/\x00b", "a\n/b", "x[0]", "f()"],
    )  # fmt: skip
    def test_neither(self, name):
        assert artifact_name(name) is None

    def test_names_are_read_in_their_canonical_form(self):
        text = sample("T1").replace('name="models/model.pkl"', 'name="./models//model.pkl"')
        assert read_payload(text).value == value_of("T1")

    def test_ids(self):
        assert is_id("a" * 80)
        assert not any(map(is_id, ("a" * 81, "a\n", "_a", "")))
        assert behavior_number("load_b2_b3", "load_b2") == 3
        assert behavior_number("load_b2", "load_b2") is None


class TestBehavior:
    """N-28 to N-30, as far as a payload shows them."""

    def test_the_step_must_be_the_current_one(self):
        assert problem_of_text("T3", sample("T3"), step_id="other") == UNKNOWN
        read_payload(sample("T3"), known=Known(step_id="data_collection_inventory"))

    def test_an_input_that_is_no_variable_is_refused(self):
        """N-29."""
        known = {"user_problem": "p"}
        assert problem_of_text("T3", sample("T3"), variables=known) == UNKNOWN
        assert problem_of_plain("T3", value_of("T3"), variables=frozenset(known)) == UNKNOWN
        read_payload(sample("T3"), known=Known(variables={"user_submit_files": []}))

    def test_the_text_of_an_input_is_kept_for_the_record_only(self):
        """N-28: a room above replaces it by the real value."""
        (given,) = value_of("T3").inputs
        assert given == Named("user_submit_files", '["./assets/housing.csv"]')

    def test_ids_count_from_one(self):
        """N-30."""
        assert behavior_number(value_of("T3").behavior_id, "data_collection_inventory") == 1

    def test_an_output_must_still_be_missing(self):
        assert problem_of_text("T3", sample("T3"), missing_artifacts=frozenset({"other"})) == UNKNOWN
        read = read_payload(sample("T3"), known=Known(missing_artifacts=frozenset({"raw_dataset"})))
        assert [flag for flag in read.flags if flag.startswith("temporary: ")] != []

    def test_the_task_may_repeat_the_id_of_its_behavior_alone(self):
        text = sample("T3").replace('behavior_id="data_collection_inventory_b1"', 'behavior_id="x_b1"')
        assert problem_of_text("T3", text) == CONTRADICTION

    def test_an_agent_that_is_no_working_agent_is_kept_and_flagged(self):
        read = read_payload(sample("T3"))
        assert read.value.agent == "behavior_2_initial_inventory_and_access_check"
        assert any(flag.startswith("agent: ") for flag in read.flags)
        text = sample("T3").replace("behavior_2_initial_inventory_and_access_check", "Define")
        assert not any(flag.startswith("agent: ") for flag in read_payload(text).flags)

    def test_criteria_that_name_no_output_are_flagged(self):
        value = replace(value_of("T3"), acceptance=("1 == 1", "len(raw_dataset_2) > 0"))
        assert "acceptance: no criterion names an output" in read_payload(canonical(value)).flags
        assert "acceptance: no criterion names an output" not in read_payload(sample("T3")).flags


class TestPlacement:
    """`insert_before`, `insert_after` and `replaces`, in document order."""

    def order(self, *stages: str, **known) -> list[str]:
        each = (
            "<stage {0} title='t'><goal>g</goal>"
            "<verified_artifacts><variable name='v'/></verified_artifacts></stage>"
        )
        text = f"<stages><remaining>{''.join(map(each.format, stages))}</remaining></stages>"
        read = read_payload(text, known=Known(**known))
        again = read_payload(canonical(read.value), known=Known(**known))
        assert again.value == read.value
        assert isinstance(read.value, StagePlan)
        return [stage.id for stage in read.value.stages]

    def test_before_after_and_in_place(self):
        assert self.order("id='a'", "id='b'", "id='c' insert_before='a'") == ["c", "a", "b"]
        assert self.order("id='a' insert_after='c'", "id='b'", "id='c'") == ["b", "c", "a"]
        assert self.order("id='a'", "id='b'", "id='c' replaces='a'") == ["c", "b"]

    def test_one_after_another(self):
        assert self.order("id='a' insert_after='b'", "id='b' insert_after='c'", "id='c'") == ["a", "c", "b"]
        assert self.order("id='x'", "id='a' insert_after='x'", "id='b' insert_after='x'") == ["x", "b", "a"]

    def test_a_stage_that_was_replaced_can_no_longer_be_named(self):
        with pytest.raises(PayloadError) as caught:
            self.order("id='a'", "id='b' replaces='a'", "id='c' insert_after='a'")
        assert caught.value.problems[0].code == UNKNOWN

    def test_relative_to_a_remaining_stage_it_stays_on_the_stage(self):
        known = Known(remaining_stages=("stability",))
        text = sample("T1").replace(
            'id="stability_assessment"', 'id="stability_assessment" insert_after="stability"'
        )
        assert read_payload(text, known=known).value.stages[-1].insert_after == "stability"
        assert problem_of_text("T1", text) == UNKNOWN

    def test_what_was_moved_is_told(self):
        text = sample("T1").replace(
            'id="stability_assessment"', 'id="stability_assessment" insert_before="exploratory_data_analysis"'
        )
        read = read_payload(text)
        assert read.value.stages[2].id == "stability_assessment"
        assert read.details["placed"] == "stability_assessment insert_before exploratory_data_analysis"


class TestReflections:
    def test_decision_and_attribute_that_disagree_are_refused(self):
        """N-43."""
        for old, new in (('complete="true"', 'complete="false"'), ("STEP_COMPLETED<", "STEP_RUNNING<")):
            assert problem_of_text("T5", sample("T5").replace(old, new)) == CONTRADICTION
        both = (
            sample("T5")
            .replace('complete="true"', 'complete="false"')
            .replace("STEP_COMPLETED<", "STEP_RUNNING<")
        )
        assert read_payload(both).value.step_is_complete is False

    def test_names_may_be_text_attribute_or_a_list(self):
        for produced in (
            '<artifact name="a"/><artifact name="b"/>',
            "<artifact>a</artifact><artifact> b </artifact>",
            "a, b",
        ):
            text = f"<produced>{produced}</produced><in_progress/>"
            start, end = sample("T5").index("<produced>"), sample("T5").index("<in_progress/>") + 14
            read = read_payload(sample("T5")[:start] + text + sample("T5")[end:])
            assert read.value.tracking.produced == ("a", "b")

    def test_each_reflection_understands_the_others_word_for_unfinished(self):
        for kind, word in (("T5", "in_progress"), ("T6", "incomplete")):
            text = sample(kind).replace('status="complete"', f'status="{word}"', 1)
            read = read_payload(text)
            assert read.value.artifacts[0].status == "incomplete"
            assert read.repairs == ("R8",)

    def test_several_names_for_the_output(self):
        text = sample("T5").replace(
            "<save_current_effect", '<save_current_effect name="first"/><save_current_effect'
        )
        assert read_payload(text).value.new_variables == ("first", "inventory_output")

    def test_a_percentage_that_differs_from_the_steps_is_flagged(self):
        read = read_payload(sample("T6").replace("<percentage>20", "<percentage>80%"))
        assert read.value.percentage == 80
        assert any(flag.startswith("percentage: ") for flag in read.flags)

    def test_experience_belongs_to_a_complete_stage(self):
        text = sample("T6").replace(
            "  <decision>", '  <stage_experience from="a">e</stage_experience><decision>'
        )
        read = read_payload(text)
        assert (read.value.experience, read.value.experience_from) == (None, None)
        assert any(flag.startswith("unused: stage_experience") for flag in read.flags)
        done = text.replace('complete="false"', 'complete="true"').replace(
            "STEP_RUNNING<", "STAGE_COMPLETED<"
        )
        read = read_payload(done)
        assert (read.value.experience, read.value.experience_from) == ("e", "a")
        missing = read_payload(done.replace('<stage_experience from="a">e</stage_experience>', ""))
        assert any(flag.startswith("missing: stage_experience") for flag in missing.flags)


class TestPlain:
    def test_types_are_checked(self):
        with pytest.raises(PayloadError) as caught:
            from_plain("T3", {**to_plain(value_of("T3")), "effects": "sometimes"})
        assert (caught.value.problems[0].code, caught.value.problems[0].path) == (VALUE, "/effects")
        with pytest.raises(PayloadError) as caught:
            from_plain("T3", {})
        assert {problem.code for problem in caught.value.problems} == {MISSING}

    def test_a_payload_without_actions_is_refused(self):
        assert problem_of_plain("T4", Actions(())) == COUNT
