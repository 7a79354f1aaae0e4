"""The guards, tried from top to bottom on measured facts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.notebook.payloads.values import StagePlan, StepPlan
from detent.flows.notebook.state.decisions import Decision, Limits, decide
from detent.flows.notebook.state.facts import ArtifactFact, CriterionFact, Facts, GapFact, Verdict
from detent.flows.notebook.state.ledger import Failure, RunState
from detent.flows.notebook.state.machine import NotebookState
from detent.kernel.errors import InvalidTransitionError
from tests.flows.notebook.state.samples import (
    AT,
    all_steps_done,
    behaved,
    behavior,
    idle,
    in_behavior,
    move,
    reflection,
    stage,
    stage_reflection,
    started,
    step,
    step_done,
    verdict,
    with_row,
)

S = NotebookState
DONE = verdict("frame")
LOCKED = CriterionFact('cv_metrics["rmse"] < 25000', False, "31000.0", locked=True)


def row(run: RunState, **facts) -> str:
    return decide(run, Facts(AT, **facts)).row


def at_iteration(number: int, **ledger) -> RunState:
    run = behaved()
    document = run.document
    location = document.location.model_copy(update={"behavior_iteration": number})
    behaviors = document.behaviors.model_copy(update={"iteration": number})
    return with_row(RunState(document.changed(location=location, behaviors=behaviors), run.ledger), **ledger)


class TestAfterABehavior:
    def test_a_complete_behavior_of_a_complete_step_completes_the_step(self):
        assert row(behaved(), behavior=DONE, step=DONE) == "5a"

    @pytest.mark.parametrize(
        ("facts", "expected"),
        [
            # N-68: an artifact is missing, a criterion failed, a cell raised, or none was evaluated.
            ({"behavior": verdict(missing=("frame",)), "step": DONE}, "5c"),
            ({"behavior": verdict("frame", failed={"len(frame) > 9": "False"}), "step": DONE}, "5c"),
            ({"behavior": DONE, "step": DONE, "raised": True}, "5c"),
            ({"behavior": Verdict((ArtifactFact("frame", "complete"),)), "step": DONE}, "5c"),
            # The behavior is complete, and the step is not.
            ({"behavior": DONE, "step": verdict("frame", missing=("report",))}, "5b"),
            ({"behavior": DONE, "step": verdict("frame", failed={"len(frame) > 9": "False"})}, "5d"),
        ],
    )
    def test_what_is_not_complete_never_completes_the_step(self, facts, expected):
        assert row(behaved(), **facts) == expected

    def test_an_artifact_on_which_a_criterion_failed_leaves_nothing_to_produce(self):
        found = Verdict(
            (ArtifactFact("frame", "incomplete", "criterion"),),
            (CriterionFact("len(frame) > 9", False, "False"),),
        )
        assert row(behaved(), behavior=DONE, step=found) == "5d"

    @pytest.mark.parametrize("shortcoming", ["stale", "none", "empty", "absent"])
    def test_an_artifact_that_is_not_really_there_is_still_to_be_produced(self, shortcoming):
        found = Verdict((ArtifactFact("report", "missing", shortcoming),))
        assert row(behaved(), behavior=DONE, step=found) == "5b"

    def test_behaviors_of_a_step_are_limited(self):
        """N-107: 5b cannot loop."""
        facts = {"behavior": DONE, "step": verdict(missing=("report",))}
        assert row(with_row(behaved(), behaviors_since_entry=5), **facts) == "5b"
        assert row(with_row(behaved(), behaviors_since_entry=6), **facts) == "5d"
        limited = decide(behaved(), Facts(AT, **facts), Limits(max_behaviors=1))
        assert limited.row == "5d"


FAILING = {"behavior": verdict(missing=("frame",)), "step": verdict(missing=("frame",))}


class TestRetries:
    @pytest.mark.parametrize(("iteration", "expected"), [(1, "5c"), (2, "5c"), (3, "5d"), (4, "5d")])
    def test_a_behavior_runs_at_most_three_times(self, iteration, expected):
        """N-76: the guard is `behavior_iteration < max_retries`, not `<=`."""
        assert row(at_iteration(iteration), **FAILING) == expected

    def test_the_limit_is_a_setting(self):
        facts = Facts(AT, **FAILING)
        assert decide(at_iteration(1), facts, Limits(max_retries=1)).row == "5d"
        assert decide(at_iteration(3), facts, Limits(max_retries=4)).row == "5c"

    def test_the_same_failure_twice_escalates_without_a_third_iteration(self):
        """N-101."""
        failed = {"score > 0.9": "0.5"}
        found = verdict("frame", failed=failed)
        assert row(behaved(), behavior=found, step=DONE) == "5c"
        retried = move(behaved(), "5c", reflection(False), behavior=found)
        retried = move(retried, "4")
        assert row(retried, behavior=found, step=DONE) == "5d"

    def test_a_criterion_that_names_the_artifact_counts_too(self):
        """N-101: the artifact is there; only the criterion on it failed."""
        found = Verdict(
            (ArtifactFact("frame", "incomplete", "criterion"),),
            (CriterionFact("len(frame) > 9", False, "3"),),
        )
        run = at_iteration(2, last_failure=Failure.of(found))
        assert row(run, behavior=found, step=found) == "5d"

    @pytest.mark.parametrize(
        ("earlier", "now"),
        [
            # Another value: the retry did differ.
            (
                verdict("frame", failed={"score > 0.9": "0.5"}),
                verdict("frame", failed={"score > 0.9": "0.6"}),
            ),
            # Another criterion.
            (verdict("frame", failed={"score > 0.9": "0.5"}), verdict("frame", failed={"n > 1": "0.5"})),
            (
                verdict("frame", failed={"score > 0.9": "0.5", "n > 1": "0"}),
                verdict("frame", failed={"score > 0.9": "0.5"}),
            ),
            # An artifact was missing, once or both times.
            (
                verdict(missing=("frame",), failed={"score > 0.9": "0.5"}),
                verdict("frame", failed={"score > 0.9": "0.5"}),
            ),
            (verdict(missing=("frame",)), verdict(missing=("frame",))),
            # Nothing failed but the cell, which raised.
            (DONE, DONE),
        ],
    )
    def test_a_failure_that_could_differ_is_tried_a_third_time(self, earlier, now):
        run = at_iteration(2, last_failure=Failure.of(earlier))
        assert row(run, behavior=now, step=verdict(missing=("frame",)), raised=True) == "5c"

    def test_only_the_iteration_before_counts(self):
        """Failing on one value in iteration 1 and 3 is not twice running."""
        first, second = (verdict("frame", failed={"score > 0.9": value}) for value in ("0.5", "0.6"))
        run = move(move(behaved(), "5c", reflection(False), behavior=first), "4")
        run = move(move(run, "5c", reflection(False), behavior=second), "4")
        decision = decide(run, Facts(AT, behavior=first, step=DONE), Limits(max_retries=9))
        assert decision.row == "5c"

    def test_a_new_behavior_does_not_inherit_the_failure_of_the_last(self):
        found = verdict("frame", failed={"score > 0.9": "0.5"})
        run = with_row(behaved(), last_failure=Failure.of(found), kernel_deaths=1)
        run = move(
            run, "5b", reflection(False), behavior("load_b2", "frame"), behavior=DONE,
            step=verdict(missing=("report",)),
        )  # fmt: skip
        run = move(run, "4")
        assert row(run, behavior=found, step=DONE, raised=True, died=True) == "5c"

    def test_a_missed_threshold_that_no_iteration_can_change_is_not_tried_again(self):
        """N-101: the model was made elsewhere, and its score was recomputed."""
        scored = ArtifactFact("test_performance", "incomplete", "criterion")
        missed = Verdict((scored,), (replace(LOCKED, final=True),))
        assert row(behaved(), behavior=missed, step=missed) == "5d"
        for other in (
            {"behavior": Verdict((scored,), (LOCKED,))},  # the behavior makes the model that is scored
            {"behavior": replace(missed, criteria=(*missed.criteria, CriterionFact("n > 1", False)))},
            {"behavior": replace(missed, artifacts=(ArtifactFact("test_performance", "missing", "absent"),))},
            {"behavior": missed, "raised": True},
        ):
            assert row(behaved(), **{"step": missed, **other}) == "5c"

    def test_a_second_death_of_the_kernel_counts_as_retries_used_up(self):
        """N-87."""
        facts = {"behavior": verdict(missing=("frame",)), "raised": True, "died": True}
        assert row(behaved(), **facts) == "5c"
        again = move(move(behaved(), "5c", reflection(False), **facts), "4")
        assert row(again, **facts) == "5d"
        assert row(again, **{**facts, "died": False}) == "5c"


class TestAfterAStep:
    def test_with_steps_remaining_the_next_one_follows(self):
        """N-51."""
        assert row(step_done(), stage=verdict(missing=("report",))) == "6a"

    def test_a_complete_stage_waits_for_its_remaining_steps(self):
        assert row(step_done(), stage=verdict("frame", "report")) == "6a"

    def test_a_complete_stage_is_followed_by_the_next(self):
        """N-52."""
        assert row(all_steps_done(), stage=verdict("frame", "report")) == "6b"

    def test_an_incomplete_stage_without_steps_is_revised_once(self):
        """N-77."""
        facts = {"stage": verdict("frame", missing=("report",)), "revision_offered": True}
        assert row(all_steps_done(), **facts) == "6e"
        revised = with_row(all_steps_done(), revised_stages=("first",))
        decision = decide(revised, Facts(AT, **facts))
        assert (decision.row, decision.reason) == ("6f", "acceptance_not_met")

    def test_without_a_revision_that_differs_the_run_fails(self):
        assert row(all_steps_done(), stage=verdict(missing=("report",))) == "6f"

    def test_a_failed_criterion_keeps_the_stage_open(self):
        found = verdict("frame", "report", failed={"len(frame) > 9": "False"})
        assert row(all_steps_done(), stage=found, revision_offered=True) == "6e"

    def test_an_escalated_step_is_not_passed_over(self):
        """N-77."""
        escalated = with_row(step_done(), escalated=True)
        stage = verdict("frame", missing=("report",))
        assert row(escalated, stage=stage, revision_offered=True) == "6e"
        assert row(escalated, stage=stage) == "6f"
        spent = with_row(step_done(), escalated=True, revised_stages=("first",))
        assert row(spent, stage=stage, revision_offered=True) == "6f"

    def test_the_revision_of_another_stage_is_not_used_up(self):
        escalated = with_row(step_done(), escalated=True, revised_stages=("second",))
        assert row(escalated, stage=verdict(missing=("report",)), revision_offered=True) == "6e"


class TestGaps:
    def gap(self, name="frame", **fields):
        fields = {"producer_stage": "first", "producer_step": "load", "critical": True, **fields}
        return GapFact(name, "the next step", **fields)

    def test_an_important_gap_does_not_hold_the_run_up(self):
        assert row(step_done(), gaps=(self.gap(critical=False),), stage=verdict()) == "6a"

    def test_a_critical_gap_is_gone_back_for(self):
        """N-79."""
        decision = decide(all_steps_done(), Facts(AT, gaps=(self.gap(),), stage=verdict("frame", "report")))
        assert (decision.row, decision.to) == ("6d", S.STEP_RUNNING)
        assert decision.gap == self.gap()

    def test_the_producer_in_an_earlier_stage_is_gone_back_to(self):
        run = move(all_steps_done(), "6b", stage_reflection(True))
        run = move(run, "2", StepPlan((step("fit", "model"), step("check", "scores"))))
        run = move(run, "3", behavior("fit_b1", "model"))
        run = move(run, "4")
        run = move(run, "5a", reflection(True, "model"), behavior=verdict("model"), step=verdict("model"))
        decision = decide(run, Facts(AT, gaps=(self.gap(),)))
        assert (decision.row, decision.to) == ("6d", S.STAGE_RUNNING)

    @pytest.mark.parametrize(
        "ledger",
        [{"backtracked": ("frame",)}, {"backtracked": ("a", "b")}],
        ids=["once per variable", "twice per run"],
    )
    def test_a_run_does_not_go_back_for_ever(self, ledger):
        decision = decide(
            with_row(all_steps_done(), **ledger), Facts(AT, gaps=(self.gap(),), stage=verdict())
        )
        assert (decision.row, decision.reason) == ("6f", "missing_variable")

    @pytest.mark.parametrize(
        "fields",
        [
            {"producer_step": None},  # nobody is known to produce it
            {"producer_step": "describe"},  # the step just closed
            {"producer_step": "elsewhere"},  # a step that was never done
            {"producer_stage": "second"},  # a stage that is still to come
        ],
    )
    def test_an_unsolvable_gap_ends_the_run(self, fields):
        """N-81."""
        decision = decide(
            all_steps_done(), Facts(AT, gaps=(self.gap(**fields),), stage=verdict("frame", "report"))
        )
        assert (decision.row, decision.reason) == ("6f", "missing_variable")

    def test_the_first_gap_that_can_be_closed_is_taken(self):
        gaps = (self.gap("lost", producer_step=None), self.gap())
        assert decide(all_steps_done(), Facts(AT, gaps=gaps)).gap.name == "frame"

    def test_after_an_escalation_a_backtrack_needs_the_revision(self):
        gaps = (self.gap("model"),)
        escalated = with_row(all_steps_done(), escalated=True)
        assert row(escalated, gaps=gaps) == "6d"
        spent = with_row(escalated, revised_stages=("first",))
        decision = decide(spent, Facts(AT, gaps=gaps))
        assert (decision.row, decision.reason) == ("6f", "acceptance_not_met")
        unescalated = with_row(all_steps_done(), revised_stages=("first",))
        assert row(unescalated, gaps=gaps) == "6d"


def last_stage(optional: bool = False, **ledger) -> RunState:
    """The only stage of a run, its only step done."""
    run = move(idle(), "1", StagePlan((stage("only", "model", optional=optional),)))
    run = move(run, "2", StepPlan((step("fit", "model"),)))
    run = move(run, "3", behavior("fit_b1", "model"))
    run = move(run, "4", variables={"model": 1})
    run = move(run, "5a", reflection(True, "model"), behavior=verdict("model"), step=verdict("model"))
    return with_row(run, **ledger)


class TestTheEnd:
    def test_the_last_complete_stage_completes_the_workflow(self):
        """N-52."""
        assert row(last_stage(), stage=verdict("model"), reexecuted=True) == "6c"
        assert row(last_stage(), stage=verdict("model")) == "6c"

    def test_a_notebook_that_does_not_reexecute_fails(self):
        decision = decide(last_stage(), Facts(AT, stage=verdict("model"), reexecuted=False))
        assert (decision.row, decision.reason) == ("6f", "not_reproducible")

    def test_a_missed_threshold_of_an_earlier_stage_keeps_the_run_from_completing(self):
        run = last_stage(locked={LOCKED.text: False})
        decision = decide(run, Facts(AT, stage=verdict("model"), reexecuted=True))
        assert (decision.row, decision.reason) == ("6f", "acceptance_not_met")

    def test_a_threshold_that_is_met_at_last_counts_as_met(self):
        run = last_stage(locked={LOCKED.text: False})
        now = Verdict(criteria=(replace(LOCKED, passed=True),))
        assert row(run, stage=now, reexecuted=True) == "6c"


class TestPartialStages:
    def locked_only(self, *more: CriterionFact) -> dict:
        found = Verdict((ArtifactFact("report", "complete"),), (LOCKED, *more))
        return {"behavior": found, "step": found, "stage": found}

    def test_a_stage_whose_only_failures_are_locked_thresholds_is_closed_as_partial(self):
        """N-93: a threshold that is missed does not cut the work short."""
        escalated = with_row(all_steps_done(), escalated=True)
        decision = decide(escalated, Facts(AT, **self.locked_only()))
        assert (decision.row, decision.closes_as) == ("6b", "partial")
        after = move(escalated, "6b", stage_reflection(True), closes_as="partial", **self.locked_only())
        assert after.ledger.locked == {LOCKED.text: False}

    def test_another_failure_beside_it_fails_the_run(self):
        escalated = with_row(all_steps_done(), escalated=True)
        facts = self.locked_only(CriterionFact("len(report) > 9", False, "False"))
        assert row(escalated, **facts) == "6f"

    def test_so_does_an_artifact_that_is_missing(self):
        escalated = with_row(all_steps_done(), escalated=True)
        found = Verdict((ArtifactFact("report", "missing", "absent"),), (LOCKED,))
        assert row(escalated, behavior=found, step=found, stage=found) == "6f"

    def test_so_does_one_of_the_closed_step_while_others_remain(self):
        escalated = with_row(step_done(), escalated=True)
        found = Verdict((ArtifactFact("frame", "missing", "absent"),), (LOCKED,))
        assert row(escalated, behavior=found, step=found, stage=found) == "6f"

    def test_the_stages_other_steps_are_done_all_the_same(self):
        """N-93: business impact and the like are not skipped because the hold-out was missed."""
        escalated = with_row(step_done(), escalated=True)
        there = Verdict((ArtifactFact("frame", "complete"),), (LOCKED,))
        missing = Verdict((*there.artifacts, ArtifactFact("report", "missing", "absent")), (LOCKED,))
        facts = {"behavior": there, "step": there, "stage": missing}
        assert row(escalated, **facts) == "6a"
        assert row(escalated, revision_offered=True, **facts) == "6e"
        assert row(escalated, gaps=(GapFact("x", "describe", True),), **facts) == "6b"
        after = move(escalated, "6a", stage_reflection(False), **facts)
        assert after.document.steps.completed[-1].completion_status == "failed"
        assert not after.ledger.escalated

    def test_a_model_that_is_too_weak_holds_nothing_up_once_nobody_can_go_back_for_it(self):
        weak = GapFact("frame", "threshold", True, "first", "load", weak=True)
        facts = {"gaps": (weak,), "stage": verdict("frame", "report")}
        assert row(all_steps_done(), **facts) == "6d"
        assert row(with_row(all_steps_done(), backtracked=("frame",)), **facts) == "6b"
        assert row(with_row(step_done(), backtracked=("frame",)), **facts) == "6a"
        # Its producer has nothing else to try.
        assert row(all_steps_done(), **{**facts, "gaps": (replace(weak, spent=True),)}) == "6b"
        # One that is missing does.
        missing = replace(weak, weak=False)
        lost = with_row(all_steps_done(), backtracked=("frame",))
        assert row(lost, **{**facts, "gaps": (missing,)}) == "6f"

    BEARABLE = CriterionFact("spread < 0.1", False, "False", bearable=True, figure="0.15300000000000001")

    def found(self, *criteria: CriterionFact) -> Verdict:
        return Verdict((ArtifactFact("report", "complete"),), criteria)

    def test_another_criterion_that_was_measured_on_a_model_is_missed_like_a_threshold(self):
        """The score varies a little too much: no reason to withhold model, card and script."""
        escalated = with_row(all_steps_done(), escalated=True)
        found = self.found(self.BEARABLE)
        facts = {"behavior": found, "step": found, "stage": found}
        decision = decide(escalated, Facts(AT, **facts))
        assert (decision.row, decision.closes_as) == ("6b", "partial")
        after = move(escalated, "6b", stage_reflection(True), closes_as="partial", **facts)
        assert after.ledger.missed == {"spread < 0.1": "0.153"}
        assert not after.ledger.all_met

    @pytest.mark.parametrize(
        "broken",
        [
            {"step": Verdict((ArtifactFact("report", "missing", "absent"),), (BEARABLE,))},
            {"step": Verdict((), (BEARABLE, CriterionFact("n > 1", False, "NameError")))},
            {"raised": True},
        ],
        ids=["an artifact is missing", "a criterion was not measured", "a cell raised"],
    )
    def test_what_is_not_an_honest_miss_ends_the_run(self, broken):
        escalated = with_row(all_steps_done(), escalated=True)
        found = self.found(self.BEARABLE)
        facts = {"behavior": found, "step": found, "stage": found, **broken}
        assert row(escalated, **facts) == "6f"

    def test_a_run_that_went_on_without_a_criterion_never_completes(self):
        run = last_stage(missed={"spread < 0.1": "0.153"}, missed_in={"spread < 0.1": "fit"})
        decision = decide(run, Facts(AT, stage=verdict("model"), reexecuted=True))
        assert (decision.row, decision.reason) == ("6f", "acceptance_not_met")
        optional = last_stage(
            True, escalated=True, missed={"spread < 0.1": "0.153"}, missed_in={"spread < 0.1": "fit"}
        )
        assert row(optional, stage=verdict(missing=("model",)), reexecuted=True) == "6f"

    def test_a_stage_that_is_complete_but_for_a_criterion_of_its_last_step_is_no_success(self):
        escalated = {"escalated": True}
        facts = {"step": self.found(self.BEARABLE), "stage": verdict("frame", "report")}
        decision = decide(with_row(all_steps_done(), **escalated), Facts(AT, **facts))
        assert (decision.row, decision.closes_as) == ("6b", "partial")
        assert row(last_stage(**escalated), **facts, reexecuted=True) == "6f"

    def test_what_is_met_at_last_is_missed_no_longer(self):
        run = last_stage(missed={"spread < 0.1": "0.153"}, missed_in={"spread < 0.1": "fit"})
        assert row(run, stage=self.found(replace(self.BEARABLE, passed=True)), reexecuted=True) == "6c"

    def test_a_behavior_given_up_on_its_own_criterion_does_not_hold_the_next_step_up(self):
        """An agent's plan asked for more than the step does."""
        run = move(behaved(), "5d", reflection(False), behavior=self.found(self.BEARABLE), step=DONE)
        assert row(run, step=DONE, stage=verdict(missing=("report",))) == "6a"
        after = move(run, "6a", stage_reflection(False), step=DONE)
        assert after.ledger.missed == {"spread < 0.1": "0.153"}
        assert after.ledger.given_up == {}

    @pytest.mark.parametrize("raised", [True, False])
    def test_a_behavior_that_failed_otherwise_does(self, raised):
        criteria = (self.BEARABLE,) if raised else (self.BEARABLE, CriterionFact("n > 1", False, "False"))
        run = move(
            behaved(), "5d", reflection(False), behavior=self.found(*criteria), step=DONE, raised=raised
        )
        assert row(run, step=DONE, stage=verdict(missing=("report",))) == "6f"

    def test_what_was_missed_in_a_step_that_is_done_again_is_forgotten(self):
        run = with_row(
            all_steps_done(),
            missed={"a > 1": "0", "b > 1": "0"},
            missed_in={"a > 1": "load", "b > 1": "before"},
        )
        gap = GapFact("frame", "threshold", True, "first", "load", weak=True)
        back = move(
            with_row(run, closed_steps={"zero": (run.document.steps.current.model_copy(
                update={"step_id": "before"}),)}),
            "6d", stage_reflection(False), StepPlan((step("load", "frame"),)), gap=gap, to=S.STEP_RUNNING,
        )  # fmt: skip
        assert back.ledger.missed == {"b > 1": "0"}

    def test_so_does_a_cell_that_raised(self):
        escalated = with_row(all_steps_done(), escalated=True)
        assert row(escalated, raised=True, **self.locked_only()) == "6f"

    def test_at_the_last_stage_it_fails_the_run(self):
        found = Verdict((ArtifactFact("model", "complete"),), (LOCKED,))
        run = last_stage(escalated=True)
        decision = decide(run, Facts(AT, behavior=found, step=found, stage=found, reexecuted=True))
        assert (decision.row, decision.reason) == ("6f", "acceptance_not_met")

    def test_a_revision_and_a_backtrack_come_first(self):
        escalated = with_row(all_steps_done(), escalated=True)
        gap = GapFact("frame", "threshold", True, "first", "load", weak=True)
        assert row(escalated, gaps=(gap,), revision_offered=True, **self.locked_only()) == "6d"
        assert row(escalated, revision_offered=True, **self.locked_only()) == "6e"

    def test_an_optional_stage_is_closed_as_partial(self):
        run = last_stage(optional=True, escalated=True)
        facts = Facts(AT, behavior=verdict(missing=("model",)), stage=verdict(missing=("model",)))
        decision = decide(run, facts)
        assert (decision.row, decision.closes_as) == ("6c", "partial")
        assert decide(run, replace(facts, reexecuted=False)).row == "6f"
        missed = with_row(run, locked={LOCKED.text: False})
        assert decide(missed, replace(facts, reexecuted=True)).row == "6f"


class TestDecisions:
    @pytest.mark.parametrize("made", [idle, started, in_behavior])
    def test_elsewhere_nothing_is_decided_by_facts(self, made):
        with pytest.raises(InvalidTransitionError):
            decide(made(), Facts(AT))

    def test_a_row_of_another_state_is_refused(self):
        with pytest.raises(InvalidTransitionError):
            Decision.of("6a", S.BEHAVIOR_COMPLETED)
        with pytest.raises(InvalidTransitionError):
            Decision.of("6a", S.STEP_COMPLETED, to=S.STAGE_RUNNING)

    def test_what_each_row_is_on_the_wire(self):
        """N-43."""
        here = S.BEHAVIOR_COMPLETED
        assert [row for row in ("5a", "5b", "5c", "5d") if Decision.of(row, here).completes_step] == [
            "5a",
            "5d",
        ]
        here = S.STEP_COMPLETED
        rows = ("6a", "6b", "6c", "6d", "6e", "6f")
        assert [row for row in rows if Decision.of(row, here).completes_stage] == ["6b", "6c"]


verdicts = st.builds(
    Verdict,
    st.lists(
        st.one_of(
            st.builds(ArtifactFact, st.sampled_from("abc"), st.just("complete")),
            st.builds(
                ArtifactFact,
                st.sampled_from("abc"),
                st.sampled_from(["incomplete", "missing"]),
                st.sampled_from(["absent", "stale", "none", "empty", "criterion"]),
            ),
        ),
        max_size=3,
    ).map(tuple),
    st.lists(
        st.builds(CriterionFact, st.sampled_from("xyz"), st.booleans(), st.sampled_from("01"), st.booleans()),
        max_size=3,
    ).map(tuple),
)
gaps = st.builds(
    GapFact,
    st.sampled_from(["frame", "lost"]),
    st.just("next"),
    st.booleans(),
    st.sampled_from([None, "first", "second"]),
    st.sampled_from([None, "load", "describe"]),
    st.booleans(),
)
any_facts = st.builds(
    Facts,
    st.just(AT),
    raised=st.booleans(),
    died=st.booleans(),
    behavior=verdicts,
    step=verdicts,
    stage=verdicts,
    gaps=st.lists(gaps, max_size=2).map(tuple),
    revision_offered=st.booleans(),
    reexecuted=st.sampled_from([None, True, False]),
)
places = st.sampled_from(
    [behaved(), at_iteration(3), step_done(), all_steps_done(), last_stage(), last_stage(True)]
)
ledgers = st.fixed_dictionaries(
    {
        "escalated": st.booleans(),
        "behaviors_since_entry": st.integers(1, 7),
        "revised_stages": st.sampled_from([(), ("first",), ("only",)]),
        "backtracked": st.sampled_from([(), ("frame",), ("a", "b")]),
    }
)


@settings(max_examples=300, deadline=None)
@given(places, ledgers, any_facts)
def test_whatever_the_facts_a_listed_row_is_chosen_and_only_what_is_complete_completes(run, ledger, facts):
    """N-68, N-69."""
    run = with_row(run, **ledger)
    decision = decide(run, facts)
    assert decision == decide(run, facts)
    assert decision == replace(
        Decision.of(decision.row, run.document.fsm.state, to=decision.to),
        reason=decision.reason,
        closes_as=decision.closes_as,
        gap=decision.gap,
    )
    assert (decision.reason is not None) == (decision.row == "6f")
    if decision.row == "5a":
        assert facts.behavior.complete
        assert facts.behavior.criteria
        assert facts.step.complete
        assert not facts.raised
    if decision.row in ("6b", "6c") and decision.closes_as == "success":
        assert facts.stage.complete
        assert not run.document.steps.remaining
    if decision.row == "6c":
        assert all(criterion.passed for criterion in facts.stage.criteria if criterion.locked)
        assert facts.reexecuted is not False
