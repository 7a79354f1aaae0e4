"""Claims against the measurement."""

from dataclasses import replace

import pytest

from detent.flows.notebook.measuring.claims import Mismatch, compare_behavior, compare_stage
from detent.flows.notebook.payloads.values import (
    ArtifactJudged,
    BehaviorReflection,
    CriterionJudged,
    Deprecated,
    Named,
    PcsTexts,
    Retained,
    StageReflection,
    Tracking,
    VariableManagement,
)
from detent.flows.notebook.state.facts import CriterionFact

TRUTH = BehaviorReflection(
    step_is_complete=False,
    artifacts=(ArtifactJudged("frame", "complete"), ArtifactJudged("report", "missing")),
    criteria=(),
    code_execution="success",
    goal_status="partial",
    next_state="STEP_RUNNING",
    reasoning="measured",
    tracking=Tracking(),
)
CRITERIA = (
    CriterionFact("len(frame) > 0", True, "True"),
    CriterionFact('report["a"] == 1', False, "KeyError"),
)
VARIABLES = {"frame": "DataFrame 3 x 2", "rows": 2930}


def claimed(**changes):
    honest = replace(
        TRUTH,
        criteria=(CriterionJudged("len(frame) > 0", "passed"), CriterionJudged("report['a']==1", "failed")),
    )
    return compare_behavior(replace(honest, **changes), TRUTH, CRITERIA, VARIABLES)


class TestBehaviors:
    """N-45."""

    def test_the_truth_is_no_mismatch(self):
        report = claimed()
        assert report.mismatches == ()
        assert report.unmatched == ()
        assert report.correct == report.claims == 7

    @pytest.mark.parametrize(
        ("changes", "mismatch"),
        [
            (
                {"artifacts": (ArtifactJudged("report", "complete"),)},
                Mismatch("artifact", "report", "complete", "missing"),
            ),
            ({"step_is_complete": True}, Mismatch("decision", "current_step_is_complete", "true", "false")),
            ({"code_execution": "failed"}, Mismatch("execution", "code_execution", "failed", "success")),
            ({"goal_status": "achieved"}, Mismatch("goal", "goal_achievement", "achieved", "partial")),
            ({"variables_produced": (Named("ghost"),)}, Mismatch("variable", "ghost", "there", "missing")),
            ({"variables_produced": (Named("rows", "1460"),)}, Mismatch("variable", "rows", "1460", "2930")),
        ],
    )
    def test_a_claim_that_differs_is_recorded_with_both_sides(self, changes, mismatch):
        assert claimed(**changes).mismatches == (mismatch,)

    def test_a_value_is_compared_as_a_number_and_a_description_not_at_all(self):
        report = claimed(variables_produced=(Named("rows", "2,930"), Named("frame", "a frame of houses")))
        assert report.mismatches == ()

    def test_criteria_are_matched_by_their_trees_in_any_order(self):
        report = claimed(
            criteria=(
                CriterionJudged("report['a'] == 1", "passed"),
                CriterionJudged("len( frame )>0", "passed"),
            )
        )
        assert report.mismatches == (Mismatch("criterion", 'report["a"] == 1', "passed", "failed"),)

    def test_paraphrased_criteria_are_matched_by_position_if_their_counts_are_equal(self):
        report = claimed(
            criteria=(
                CriterionJudged("the frame has rows", "passed"),
                CriterionJudged("the report is good", "passed"),
            )
        )
        assert report.mismatches == (Mismatch("criterion", 'report["a"] == 1', "passed", "failed"),)
        assert report.unmatched == ()

    def test_with_other_counts_they_are_unmatched_and_count_neither_way(self):
        report = claimed(criteria=(CriterionJudged("all is well", "passed"),))
        assert report.unmatched == ("all is well",)
        assert report.mismatches == ()
        assert report.claims == 5

    def test_one_criterion_cannot_be_claimed_twice(self):
        report = claimed(criteria=(CriterionJudged("len(frame) > 0", "passed"),) * 3)
        assert report.unmatched == ("len(frame) > 0",) * 2

    def test_an_artifact_that_was_not_expected_is_unmatched(self):
        report = claimed(artifacts=(*TRUTH.artifacts, ArtifactJudged("extra", "complete")))
        assert report.unmatched == ("extra",)


STAGE_TRUTH = StageReflection(
    stage_is_complete=False,
    step_id="load",
    step_status="complete",
    completed_steps=1,
    remaining_steps=2,
    percentage=33.3,
    artifacts=(ArtifactJudged("frame", "complete"),),
    goal_status="partial",
    next_state="STEP_RUNNING",
    reasoning="measured",
    variables=VariableManagement(),
    tracking=Tracking(),
    pcs_check=PcsTexts("a", "b", "c"),
)


class TestStages:
    """N-45, N-46, N-47."""

    def compared(self, **changes):
        payload = replace(STAGE_TRUTH, **changes)
        return compare_stage(payload, STAGE_TRUTH, {"frame"}, {"user_problem", "frame"})

    def test_the_truth_is_no_mismatch(self):
        assert self.compared().mismatches == ()
        assert self.compared(percentage=33.0).mismatches == ()

    @pytest.mark.parametrize(
        ("changes", "item"),
        [
            ({"stage_is_complete": True}, "stage_is_complete"),
            ({"completed_steps": 3}, "completed_steps"),
            ({"remaining_steps": 0}, "remaining_steps"),
            ({"percentage": 100.0}, "percentage"),
            ({"goal_status": "achieved"}, "goal_status"),
            ({"step_status": "incomplete"}, "step_status"),
            ({"artifacts": (ArtifactJudged("frame", "missing"),)}, "frame"),
            ({"variables": VariableManagement(retain=(Retained("ghost"),))}, "ghost"),
            ({"variables": VariableManagement(deprecate=(Deprecated("user_problem"),))}, "user_problem"),
            ({"variables": VariableManagement(deprecate=(Deprecated("frame"),))}, "frame"),
        ],
    )
    def test_a_claim_that_differs_is_recorded(self, changes, item):
        assert [mismatch.item for mismatch in self.compared(**changes).mismatches] == [item]

    def test_what_is_not_needed_may_be_deprecated(self):
        assert self.compared(variables=VariableManagement(deprecate=(Deprecated("draft"),))).mismatches == ()
