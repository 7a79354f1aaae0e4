"""Reflections that the measurement writes."""

import pytest

from detent.flows.notebook.measuring.execution import ExecutionQuality
from detent.flows.notebook.measuring.reflection import (
    StageFacts,
    StageProgress,
    feedback,
    goal_status,
    has_issues,
    reflect_on_behavior,
    reflect_on_stage,
)
from detent.flows.notebook.payloads.values import (
    Finding,
    GoalReview,
    PcsTexts,
    StagePlan,
    StepPlan,
    VariableManagement,
)
from detent.flows.notebook.state.decisions import Decision, decide
from detent.flows.notebook.state.facts import ArtifactFact, CriterionFact, Facts, GapFact, Verdict
from detent.flows.notebook.state.machine import NotebookState
from tests.flows.notebook.state.samples import (
    AT,
    behaved,
    behavior,
    idle,
    move,
    reflection,
    stage,
    step,
    verdict,
    with_row,
)

S = NotebookState
FINE = ExecutionQuality("success")
FAILED = ExecutionQuality("failed", ("KeyError: 'price'",), (), ("Traceback", "KeyError: 'price'"))
FAILURE = Verdict(
    (ArtifactFact("frame", "missing", "stale"), ArtifactFact("report", "incomplete", "empty")),
    (CriterionFact("len(frame) > 9", False, "3"), CriterionFact("len(report) > 0", True, "True")),
)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (verdict("frame", "report"), "achieved"),
        (verdict("frame", missing=("report",)), "partial"),
        (verdict("frame", failed={"len(frame) > 9": "False"}), "partial"),
        (
            Verdict(
                (ArtifactFact("frame", "missing"),), (CriterionFact("len(frame) > 0", False, "NameError"),)
            ),
            "not_achieved",
        ),
        (Verdict(), "not_achieved"),
    ],
)
def test_goal_achievement_follows_from_artifacts_and_criteria(found, status):
    """N-42."""
    assert goal_status(found) == status


class TestFeedback:
    """N-75: what failed is named."""

    def test_names_artifacts_values_and_the_end_of_the_traceback(self):
        text = feedback(Facts(AT, behavior=FAILURE), FAILED, 1)
        assert "frame was not assigned by this behavior" in text
        assert "report is empty" in text
        assert "len(frame) > 9 failed: 3" in text
        assert "len(report) > 0" not in text
        assert "KeyError: 'price'" in text.split("```")[1]
        assert "something different" not in text

    def test_from_iteration_two_it_asks_for_something_different(self):
        text = feedback(Facts(AT, behavior=FAILURE), FAILED, 2, ["a join by name"])
        assert "Do something different from: a join by name." in text


class TestT5:
    def reflect(self, run, facts, quality=FINE, **fields):
        return reflect_on_behavior(run, decide(run, facts), facts, quality, **fields)

    def test_a_complete_behavior_completes_the_step(self):
        """N-39 to N-43."""
        found = verdict("frame")
        payload = self.reflect(
            behaved(), Facts(AT, behavior=found, step=found), variables={"frame": "DataFrame 3 x 2"}
        )
        assert payload.step_is_complete
        assert payload.next_state == "STEP_COMPLETED"
        assert [(artifact.name, artifact.status) for artifact in payload.artifacts] == [("frame", "complete")]
        assert [(criterion.text, criterion.status) for criterion in payload.criteria] == [("1 < 2", "passed")]
        assert payload.goal_status == "achieved"
        assert payload.tracking.produced == ("frame",)
        assert [(named.name, named.text) for named in payload.variables_produced] == [
            ("frame", "DataFrame 3 x 2")
        ]
        assert payload.if_continuing == ""

    def test_a_failure_is_a_retry_with_feedback(self):
        """N-41, N-44, N-75."""
        payload = self.reflect(behaved(), Facts(AT, behavior=FAILURE, raised=True), FAILED)
        assert not payload.step_is_complete
        assert payload.next_state == "STEP_RUNNING"
        assert payload.goal_status == "partial"
        assert payload.code_execution == "failed"
        assert payload.errors_found == "1: KeyError: 'price'"
        assert payload.tracking == (type(payload.tracking))((), ("report",), ("frame", "report"))
        assert "len(frame) > 9 failed: 3" in payload.if_continuing

    def test_an_escalation_says_that_the_step_is_complete(self):
        """Section 6, on the wire: 5d is true, STEP_COMPLETED."""
        facts = Facts(
            AT, behavior=verdict("frame"), step=verdict("frame", failed={"len(frame) > 9": "False"})
        )
        payload = self.reflect(behaved(), facts)
        assert decide(behaved(), facts).row == "5d"
        assert (payload.step_is_complete, payload.next_state) == (True, "STEP_COMPLETED")


PCS = PcsTexts("hold-out", "seeds", "refits")
FINDINGS = (Finding("skewed"),)


def at_step(number: int, of: int, **ledger):
    """A run that has closed the given step of a stage; every step but the last produces no stage artifact."""
    plan = StagePlan((stage("only", *(f"a{at}" for at in range(of))), stage("then", "z")))
    run = move(idle(), "1", plan)
    run = move(run, "2", StepPlan(tuple(step(f"s{at}", f"a{at}") for at in range(of))))
    for at in range(number):
        run = move(run, "3", behavior(f"s{at}_b1", f"a{at}"))
        run = move(run, "4", variables={f"a{at}": 1})
        run = move(run, "5a", reflection(True), behavior=verdict(f"a{at}"), step=verdict(f"a{at}"))
        if at + 1 < number:
            run = move(run, "6a")
    return with_row(run, **ledger)


def stage_found(done: int, of: int, **fields) -> Facts:
    """The first artifacts of the stage are there; the criteria on the others cannot hold yet."""
    artifacts = [
        ArtifactFact(f"a{at}", "complete") if at < done else ArtifactFact(f"a{at}", "missing", "absent")
        for at in range(of)
    ]
    criteria = [
        CriterionFact(f"len(a{at}) > 0", at < done, "NameError" if at >= done else "True") for at in range(of)
    ]
    return Facts(AT, stage=Verdict(tuple(artifacts), tuple(criteria)), **fields)


def reflect(run, facts, row=None, **told):
    decision = Decision.of(row, S.STEP_COMPLETED) if row else decide(run, facts)
    return reflect_on_stage(run, decision, facts, StageFacts(VariableManagement(), PCS, FINDINGS, **told))


class TestT6:
    def test_progress_is_counted_after_this_step(self):
        """N-46."""
        payload = reflect(at_step(1, 4), stage_found(1, 4))
        assert (payload.completed_steps, payload.remaining_steps, payload.percentage) == (1, 3, 25.0)
        assert payload.step_id == "s0"
        assert payload.step_status == "complete"
        assert [artifact.status for artifact in payload.artifacts] == [
            "complete",
            "missing",
            "missing",
            "missing",
        ]
        assert payload.tracking.produced == ("a0",)
        assert payload.tracking.remaining == ("a1", "a2", "a3")

    def test_an_escalated_step_is_not_completed(self):
        payload = reflect(at_step(4, 4, escalated=True), stage_found(3, 4))
        assert (payload.completed_steps, payload.remaining_steps) == (3, 1)
        assert payload.step_status == "incomplete"
        assert StageProgress.of(at_step(4, 4)).share == 1.0

    def test_the_goal_is_achieved_only_by_a_complete_stage(self):
        """N-47."""
        assert reflect(at_step(4, 4), stage_found(4, 4)).goal_status == "achieved"
        assert reflect(at_step(4, 4), stage_found(3, 4)).goal_status == "partial"
        # All of it is there, but a step remains.
        assert reflect(at_step(3, 4), stage_found(4, 4)).goal_status == "partial"

    @pytest.mark.parametrize(
        ("row", "complete", "next_state"),
        [
            ("6a", False, "STEP_RUNNING"),
            ("6b", True, "STAGE_COMPLETED"),
            ("6c", True, "STAGE_COMPLETED"),
            ("6d", False, "STEP_RUNNING"),
            ("6e", False, "STEP_RUNNING"),
            ("6f", False, "STEP_RUNNING"),
        ],
    )
    def test_the_decision_is_on_the_wire(self, row, complete, next_state):
        """N-51, N-52; section 6."""
        payload = reflect(at_step(4, 4), stage_found(4, 4), row)
        assert (payload.stage_is_complete, payload.next_state) == (complete, next_state)
        assert (payload.experience is not None) is complete

    def test_what_is_managed_and_checked_is_passed_on(self):
        """N-50, N-53."""
        payload = reflect(at_step(1, 4), stage_found(1, 4), next_focus="Mind the gaps.")
        assert payload.pcs_check == PCS
        assert payload.next_focus == "Mind the gaps."


class TestBands:
    """N-48, N-74: 0 to 50, 50 to 80, 80 to 100, complete."""

    @pytest.mark.parametrize(
        ("number", "of", "review", "findings", "experience"),
        [
            (1, 4, False, False, False),
            (2, 4, False, False, False),  # exactly half only tracks
            (3, 5, False, False, False),  # nothing lags: what is to come does not count
            (4, 5, False, False, False),  # exactly 80 %
            (5, 6, True, True, False),
            (4, 4, True, True, True),
        ],
    )
    def test_the_parts_follow_the_progress(self, number, of, review, findings, experience):
        payload = reflect(at_step(number, of), stage_found(number, of))
        assert (payload.goal_review is not None) is review
        assert bool(payload.findings) is findings
        assert (payload.experience is not None) is experience

    def test_an_artifact_that_lags_brings_the_review_in_the_middle_band_alone(self):
        # The first step's artifact is gone.
        def missing_first(done, of):
            facts = stage_found(done, of)
            artifacts = (ArtifactFact("a0", "missing", "stale"), *facts.stage.artifacts[1:])
            return Facts(AT, stage=Verdict(artifacts, facts.stage.criteria))

        assert reflect(at_step(3, 5), missing_first(3, 5)).goal_review.reasoning == "a0 is not complete."
        assert reflect(at_step(2, 4), missing_first(2, 4)).goal_review is None  # exactly half
        assert reflect(at_step(4, 5), missing_first(4, 5)).goal_review is not None

    @pytest.mark.parametrize(
        ("facts", "ledger"),
        [
            ({"gaps": (GapFact("lost", "next", False),)}, {}),
            ({"step": verdict("a0", failed={"len(a0) > 9": "False"})}, {}),
            ({"behavior": verdict("a0", failed={"len(a0) > 9": "False"})}, {}),
            ({}, {"escalated": True}),
        ],
    )
    def test_issues_bring_the_review_in_at_any_progress(self, facts, ledger):
        run = at_step(1, 4, **ledger)
        payload = reflect(run, stage_found(1, 4, **facts))
        assert payload.goal_review is not None
        assert not payload.goal_review.needs_update
        assert payload.findings == ()
        assert payload.experience is None

    def test_a_failed_criterion_of_the_stage_is_an_issue_once_it_is_due(self):
        facts = stage_found(1, 4)
        assert not has_issues(at_step(1, 4), facts)
        due = Facts(AT, stage=Verdict(facts.stage.artifacts, (CriterionFact("len(a0) > 9", False, "False"),)))
        assert has_issues(at_step(1, 4), due)
        assert "len(a0) > 9 failed: False" in reflect(at_step(1, 4), due).goal_review.reasoning

    def test_a_revision_that_is_offered_stands_in_the_review(self):
        revision = GoalReview(True, "too much", "Do half.")
        run = at_step(4, 4, escalated=True)
        assert (
            reflect(run, stage_found(3, 4, revision_offered=True), revision=revision).goal_review == revision
        )


class TestExperience:
    """N-49."""

    def test_it_names_the_stage_it_comes_from_and_what_it_took(self):
        payload = reflect(at_step(4, 4), stage_found(4, 4))
        assert payload.experience_from == "only"
        assert "a0, a1, a2, a3" in payload.experience
        assert "4 steps in 4 behaviors" in payload.experience

    def test_it_reaches_the_completed_stage(self):
        run = at_step(4, 4)
        after = move(run, "6b", reflect(run, stage_found(4, 4)))
        assert "4 steps" in after.document.stages.completed[0].experience

    def test_a_stage_closed_as_partial_says_what_was_missed(self):
        run = at_step(4, 4, escalated=True)
        missed = CriterionFact('cv_metrics["rmse"] < 25000', False, "31000", locked=True)
        found = Verdict(tuple(ArtifactFact(f"a{at}", "complete") for at in range(4)), (missed,))
        payload = reflect(run, Facts(AT, step=found, stage=found))
        assert payload.stage_is_complete
        assert 'cv_metrics["rmse"] < 25000 (31000)' in payload.experience
