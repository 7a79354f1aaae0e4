"""T6 in its two shapes (N-54): equal values, and only the short one is written."""

from __future__ import annotations

import pytest

from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.payload_error import CONTRADICTION, MISSING, PayloadError
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from detent.flows.notebook.payloads.stage_reflection_reader import LONG_NAMES
from detent.flows.notebook.payloads.values import Finding, GoalReview, Retained

LONG = """
<stage_reflection stage_is_complete="false">
  <step_evaluation>
    <step_summary>
      <step_id>data_collection_inventory</step_id>
      <completion_status>complete</completion_status>
      <reasoning>Nothing is left to do in it.</reasoning>
    </step_summary>
    <artifacts_produced>data_inventory_checklist, raw_dataset</artifacts_produced>
    <key_findings>
      <finding priority="high">The table has 2930 rows and 82 columns.</finding>
      <finding priority="low">The file is read without a declared encoding.</finding>
    </key_findings>
  </step_evaluation>
  <stage_assessment>
    <stage_progress>
      <completed_steps>1</completed_steps>
      <remaining_steps>4</remaining_steps>
      <progress_percentage>20%</progress_percentage>
    </stage_progress>
    <stage_artifacts_status>
      <required_artifact name="raw_dataset" status="complete">read</required_artifact>
      <required_artifact name="data_structure_document" status="missing">next step</required_artifact>
      <required_artifact name="variable_analysis_report" status="missing"/>
      <required_artifact name="pcs_hypothesis_framework" status="missing"/>
      <required_artifact name="data_existence_report" status="missing"/>
    </stage_artifacts_status>
    <stage_goal_achievement>
      <status>partial</status>
      <reasoning>One of five steps.</reasoning>
    </stage_goal_achievement>
  </stage_assessment>
  <decision>
    <next_state>STEP_RUNNING</next_state>
    <reasoning>Four of five steps remain, and four of the stage's artifacts are missing.</reasoning>
  </decision>
  <context_for_next>
    <if_continuing_stage>
      <next_step_id>data_structure_discovery</next_step_id>
      <next_step_focus>
        data_structure_discovery: describe every column of raw_dataset, change none.
      </next_step_focus>
    </if_continuing_stage>
  </context_for_next>
  <outputs_tracking_update>
    <stage_level>
      <produced><artifact>raw_dataset</artifact></produced>
      <in_progress/>
      <remaining>
        <artifact>data_structure_document</artifact>
        <artifact>variable_analysis_report</artifact>
        <artifact>pcs_hypothesis_framework</artifact>
        <artifact>data_existence_report</artifact>
      </remaining>
    </stage_level>
  </outputs_tracking_update>
  <variable_management>
    <variables_extracted_from_notebook>
      <variable name="raw_dataset" source="cell 2">
        <type>DataFrame</type>
        <value_summary>2930 rows, 82 columns</value_summary>
        <quality>complete</quality>
      </variable>
      <variable name="data_file" source="cell 2">
        <description>Path of the submitted file</description>
        <type>Path</type>
        <quality>needs_validation</quality>
      </variable>
    </variables_extracted_from_notebook>
    <variables_to_retain>
      <variable name="raw_dataset" reason="the next step describes it">
        <used_by_next_step>true</used_by_next_step>
      </variable>
      <variable name="data_inventory_checklist"/>
    </variables_to_retain>
    <variables_to_deprecate>
      <variable name="data_file">
        <replacement>data_inventory_checklist</replacement>
        <safe_to_delete>true</safe_to_delete>
      </variable>
    </variables_to_deprecate>
    <variables_required_for_next>
      <if_continuing_stage>
        <variable name="raw_dataset" required_by="data_structure_discovery">to describe</variable>
      </if_continuing_stage>
      <variable name="data_inventory_checklist" required_by="pcs_hypothesis_formulation"/>
    </variables_required_for_next>
    <variable_gap_analysis>
      <missing name="data_structure_document" needed_for="data_integrity_assurance" urgency="important">
        <how_to_obtain>backtrack:data_structure_discovery</how_to_obtain>
      </missing>
    </variable_gap_analysis>
  </variable_management>
  <pcs_alignment_check>
    <predictability>The table as delivered is kept apart from every later change.</predictability>
    <computability>Size and SHA-256 of the file are recorded.</computability>
    <stability>Not measured yet: no model has been fitted.</stability>
  </pcs_alignment_check>
</stage_reflection>
""".strip()

EXPERIENCE = """
<experience_summary>
  <lessons_learned>
    <lesson category="technical"><description>Look at sizes first</description></lesson>
  </lessons_learned>
  <challenges_encountered>
    <description>An odd separator</description>
    <resolution>It was sniffed</resolution>
  </challenges_encountered>
  <best_practices_identified>
    <practice>Hash the file</practice>
  </best_practices_identified>
  <pitfalls_to_avoid>
    <pitfall>Trusting suffixes</pitfall>
  </pitfalls_to_avoid>
  <stage_experience_variable from="data_existence_establishment">
    The file was sound.
  </stage_experience_variable>
</experience_summary>
""".strip()


def finished(text: str) -> str:
    return text.replace('complete="false"', 'complete="true"').replace("STEP_RUNNING<", "STAGE_COMPLETED<")


def with_before(text: str, tag: str, addition: str) -> str:
    return text.replace(f"<{tag}>", f"{addition}<{tag}>", 1)


def test_both_shapes_read_into_equal_values_and_only_the_short_one_is_written():
    long, short = read_payload(LONG), read_payload(sample("T6"))
    assert long.value == short.value
    assert (long.details["shape"], short.details["shape"]) == ("long", "short")
    assert long.repairs == ()
    assert not any(flag.startswith("shape") for flag in (*long.flags, *short.flags))
    written = canonical(long.value)
    assert written == sample("T6")
    assert not any(f"<{name}" in written for name in LONG_NAMES)


def test_what_the_short_shape_has_no_place_for_is_flagged():
    flags = read_payload(LONG).flags
    assert "unused: stage_reflection/step_evaluation/step_summary/reasoning" in flags
    assert any(flag.endswith("/@reason") for flag in flags)


def test_the_long_shape_is_repaired_as_the_short_one_is():
    text = "Here:\n```xml\n" + LONG.replace("2930 rows, 82 columns", "rows > 2900 & columns < 100") + "\n```"
    read = read_payload(text)
    assert read.value.variables.extracted[0].summary == "rows > 2900 & columns < 100"
    assert read.repairs == ("R1", "R2", "R3")


@pytest.mark.parametrize(
    "long",
    [
        "<stage_goal_review><current_goal>c</current_goal><needs_update>True</needs_update>"
        "<update_reasoning>r</update_reasoning><proposed_goal>g</proposed_goal></stage_goal_review>",
        '<plan_new_steps needs_more_steps="true"><reasoning>r</reasoning>'
        "<what_should_do>g</what_should_do></plan_new_steps>",
    ],
)
def test_goal_reviews_of_both_shapes(long):
    review = "<reasoning>r</reasoning><new_goal>g</new_goal>"
    short = f'<stage_goal_review needs_update="true">{review}</stage_goal_review>'
    short_value = read_payload(with_before(sample("T6"), "decision", short)).value
    assert read_payload(with_before(LONG, "decision", long)).value == short_value
    assert short_value.goal_review == GoalReview(True, "r", "g")


def test_experience_of_both_shapes():
    value = read_payload(finished(with_before(LONG, "decision", EXPERIENCE))).value
    assert value.experience_from == "data_existence_establishment"
    assert value.experience == (
        "Lessons learned: Look at sizes first\nChallenges encountered: An odd separator; It was sniffed\n"
        "Best practices: Hash the file\nPitfalls to avoid: Trusting suffixes\nThe file was sound."
    )
    inner = '<stage_experience_variable from="s">e</stage_experience_variable>'
    alone = f"<experience_summary>{inner}</experience_summary>"
    short = '<stage_experience from="s">e</stage_experience>'
    assert (
        read_payload(finished(with_before(LONG, "decision", alone))).value
        == read_payload(finished(with_before(sample("T6"), "decision", short))).value
    )


def test_all_of_what_is_advised_for_the_stage_is_the_focus_where_none_is_named():
    start = LONG.index("<next_step_focus>")
    end = LONG.index("</next_step_focus>") + len("</next_step_focus>")
    advice = "".join(f"<recommendation>{what}</recommendation>" for what in ("Count", "Plot"))
    value = read_payload(f"{LONG[:start]}<recommendations>{advice}</recommendations>{LONG[end:]}").value
    assert value.next_focus == "data_structure_discovery; Count; Plot"


def test_names_are_found_at_any_depth():
    moved = LONG.replace("<pcs_alignment_check>", "<assessment><pcs_alignment_check>").replace(
        "</pcs_alignment_check>", "</pcs_alignment_check></assessment>"
    )
    assert read_payload(moved).value == read_payload(LONG).value


def test_a_required_variable_that_nobody_retains_is_retained():
    text = LONG.replace('<variable name="data_inventory_checklist"/>', "")
    assert read_payload(text).value.variables.retain == (
        Retained("raw_dataset", "data_structure_discovery"),
        Retained("data_inventory_checklist", "pcs_hypothesis_formulation"),
    )


def test_where_both_shapes_are_mixed_the_short_one_wins_and_it_is_flagged():
    other = "<predictability>x</predictability><computability>x</computability><stability>x</stability>"
    additions = (
        f"<pcs_alignment_check>{other}</pcs_alignment_check>"
        "<experience_summary><lessons_learned>l</lessons_learned></experience_summary>"
        "<variables_to_retain><variable name='other'/></variables_to_retain>"
        "<stage_level><produced><artifact>other</artifact></produced></stage_level>"
        "<next_step_focus>other</next_step_focus><progress_percentage>99</progress_percentage>"
        "<step_summary><step_id>other</step_id><completion_status>incomplete</completion_status></step_summary>"
        "<stage_goal_achievement><status>achieved</status></stage_goal_achievement>"
    )
    read = read_payload(with_before(sample("T6"), "decision", additions))
    assert read.value == read_payload(sample("T6")).value
    assert any(flag.startswith("shape: both") for flag in read.flags)
    assert read.details["shape"] == "short"


def test_findings_and_artifacts_of_the_step_in_other_forms():
    text = sample("T6").replace(
        "data_inventory_checklist, raw_dataset</artifacts_produced>",
        '<artifact name="raw_dataset" status="complete">2930 rows</artifact></artifacts_produced>',
    )
    assert read_payload(text).value.step_artifacts == "raw_dataset (complete): 2930 rows"
    start, end = text.index("<finding "), text.rindex("</finding>") + len("</finding>")
    assert read_payload(f"{text[:start]}Rows enough.{text[end:]}").value.findings == (
        Finding("Rows enough."),
    )


def test_the_long_shape_is_checked_as_well():
    for text, code in (
        (LONG.replace('complete="false"', 'complete="true"'), CONTRADICTION),
        (LONG.replace("pcs_alignment_check", "pcs_words"), MISSING),
        (LONG.replace("progress_percentage", "share"), MISSING),
    ):
        with pytest.raises(PayloadError) as caught:
            read_payload(text)
        assert caught.value.problems[0].code == code
