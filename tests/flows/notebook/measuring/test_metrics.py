"""The figures of a run."""

import json
from random import Random

import pytest

from detent.flows.notebook.measuring.claims import ClaimReport, Mismatch
from detent.flows.notebook.measuring.metrics import (
    Metrics,
    fold,
    overall_progress,
    ratio,
    stage_progress,
    transition_record,
)
from detent.flows.notebook.payloads.values import StagePlan, StepPlan
from detent.flows.notebook.state.decisions import Decision
from detent.flows.notebook.state.facts import Facts, GapFact
from detent.flows.notebook.state.machine import NotebookState
from detent.flows.notebook.state.transitions import apply
from tests.flows.notebook.state.samples import (
    AT,
    behavior,
    idle,
    reflection,
    stage,
    stage_reflection,
    step,
    verdict,
)
from tests.flows.notebook.state.walks import walk


class Script:
    """A run, move by move, with the records of its transitions."""

    def __init__(self):
        self.run = idle()
        self.records = []

    def move(self, row, *payloads, to=None, gap=None, claims=None, **facts):
        decision = Decision.of(row, self.run.document.fsm.state, to=to, gap=gap)
        before, facts = self.run, Facts(AT, **facts)
        self.run = apply(before, decision, facts, *payloads)
        record = transition_record(before, self.run, decision, facts, claims)
        self.records.append(json.loads(json.dumps(record)))  # plain, as a journal keeps it
        return self

    @property
    def metrics(self):
        return fold(self.records)

    def behave(self, behavior_id, *outputs, closing="5a", **facts):
        """A behavior that produces its outputs and is reflected on."""
        if self.run.document.fsm.state is NotebookState.STEP_RUNNING:
            self.move("3", behavior(behavior_id, *outputs))
        self.move("4", variables=dict.fromkeys(outputs, 1))
        found = facts.get("behavior", verdict(*outputs))
        return self.move(
            closing, reflection(), behavior=found, step=facts.get("step", found), claims=facts.get("claims")
        )


def begun():
    plan = StagePlan(
        (stage("one", "a", "b", needs=("user_problem",)), stage("two", "c", needs=("a", "lost")))
    )
    return Script().move("1", plan).move("2", StepPlan((step("x", "a"), step("y", "b", needs=("a",)))))


class TestProgress:
    """N-82: the quotients of the seed, at every transition."""

    def test_progress_is_completed_of_all(self):
        script = begun()
        assert (script.metrics.stage_progress, script.metrics.overall_progress) == (0, 0)
        script.behave("x_b1", "a")
        assert script.metrics.stage_progress == 0  # the step is still current
        script.move("6a", stage_reflection(), stage=verdict("a", missing=("b",)))
        assert script.metrics.stage_progress == 0.5
        script.behave("y_b1", "b")
        script.move("6b", stage_reflection(True), stage=verdict("a", "b"))
        assert script.metrics.stage_progress is None  # no steps are planned yet
        assert script.metrics.overall_progress == 0.5

    def test_artifacts_are_counted_once_by_name_over_what_was_entered(self):
        script = begun()
        assert (script.metrics.produced, script.metrics.expected) == (0, 2)
        script.behave("x_b1", "a")
        assert (script.metrics.produced, script.metrics.expected) == (1, 2)
        script.move("6a", stage_reflection()).behave("y_b1", "b").move("6b", stage_reflection(True))
        # The second stage expects one more; the first one's do not leave.
        assert (script.metrics.produced, script.metrics.expected) == (2, 3)
        assert script.metrics.artifact_completion == pytest.approx(2 / 3)

    def test_what_a_backtrack_undoes_is_not_produced(self):
        script = begun().behave("x_b1", "a").move("6a", stage_reflection()).behave("y_b1", "b")
        assert script.metrics.produced == 2
        again = StepPlan((step("x", "a"), step("y", "b")))
        gap = GapFact("a", "y", True, "one", "x")
        script.move("6d", stage_reflection(), again, to=NotebookState.STEP_RUNNING, gap=gap)
        assert (script.metrics.produced, script.metrics.expected) == (0, 2)

    def test_a_name_that_a_later_step_expects_again_stays_until_it_is_measured(self):
        plan = StagePlan((stage("one", "a"), stage("two", "c")))
        script = Script().move("1", plan).move("2", StepPlan((step("x", "a"), step("y", "a"))))
        script.behave("x_b1", "a").move("6a", stage_reflection())
        assert (script.metrics.produced, script.metrics.expected) == (1, 1)
        missing = verdict(missing=("a",))
        script.behave("y_b1", "a", closing="5d", behavior=missing, step=missing)
        assert script.metrics.produced == 0

    def test_an_artifact_that_is_found_missing_later_is_not_produced(self):
        script = begun().behave("x_b1", "a")
        script.move("6a", stage_reflection(), stage=verdict(missing=("a", "b")))
        assert script.metrics.produced == 0

    def test_each_record_holds_the_quotients_of_its_document(self):
        for seed in range(20):
            before = idle()
            for decision, facts, _, after in walk(Random(seed)):
                record = transition_record(before, after, decision, facts)
                steps, stages = after.document.steps, after.document.stages
                total = len(steps.completed) + len(steps.remaining) + (steps.current is not None)
                assert record["stage_progress"] == (len(steps.completed) / total if total else None)
                assert record["stage_progress"] == stage_progress(after.document)
                total = len(stages.completed) + len(stages.remaining) + (stages.current is not None)
                assert record["overall_progress"] == len(stages.completed) / total
                assert record["overall_progress"] == overall_progress(after.document)
                before = after


class TestQuality:
    """N-83."""

    def test_criteria_count_in_the_last_iteration_and_beside_it_in_the_first(self):
        script = begun().move("3", behavior("x_b1", "a"))
        failing = verdict(missing=("a",), failed={"len(a) > 0": "NameError"})
        script.behave("x_b1", closing="5c", behavior=failing, step=failing)
        assert script.metrics.acceptance_pass_rate == 0.5
        script.behave("x_b1", "a")
        # The last iteration had one criterion, which passed; the first one had two.
        assert script.metrics.acceptance_pass_rate == 1.0
        assert script.metrics.first_pass_rate == 0.5
        assert (script.metrics.passed, script.metrics.criteria) == (1, 1)

    def test_retries_are_iterations_for_each_step_begun(self):
        script = begun().move("3", behavior("x_b1", "a"))
        script.behave("x_b1", closing="5c", behavior=verdict(missing=("a",)))
        script.behave("x_b1", "a")
        assert (script.metrics.iterations, script.metrics.steps_begun, script.metrics.retries) == (2, 1, 1)
        script.move("6a", stage_reflection()).behave("y_b1", "b")
        assert script.metrics.retry_rate == 1.5
        assert script.metrics.retries == 1

    def test_a_run_without_a_retry_has_an_iteration_for_each_behavior(self):
        """42 behaviors in 34 steps are 1.24, with 8 steps of two behaviors each."""
        metrics = Metrics(iterations=42, steps_begun=34)
        assert round(metrics.retry_rate, 2) == 1.24

    def test_required_variables_are_covered_if_they_were_there_on_entry(self):
        script = begun()
        assert (script.metrics.available, script.metrics.required) == (1, 1)
        script.behave("x_b1", "a").move("6a", stage_reflection()).behave("y_b1", "b")
        assert (script.metrics.available, script.metrics.required) == (2, 2)
        script.move("6b", stage_reflection(True))
        assert script.metrics.variable_coverage == pytest.approx(2 / 3)

    def test_claims_count_by_role(self):
        lie = ClaimReport(4, (Mismatch("artifact", "a", "complete", "missing"),), ("unmatched",))
        script = begun().behave("x_b1", "a", claims={"notebook/behavior_reflector": lie})
        script.move("6a", stage_reflection()).behave("y_b1", "b", claims={"notebook/behavior_reflector": lie})
        assert script.metrics.claim_accuracy("notebook/behavior_reflector") == 0.75
        assert script.metrics.claim_accuracy("notebook/stage_reflector") is None


def test_a_zero_denominator_gives_nothing():
    assert ratio(1, 0) is None
    metrics = fold([])
    assert metrics.to_plain() == {
        "stage_progress": None,
        "overall_progress": None,
        "artifact_completion": None,
        "artifacts": [0, 0],
        "acceptance_pass_rate": None,
        "first_pass_rate": None,
        "criteria": [0, 0],
        "retry_rate": None,
        "retries": 0,
        "variable_coverage": None,
        "variables": [0, 0],
        "claim_accuracy": {},
    }
