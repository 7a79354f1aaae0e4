"""What each transition writes."""

import pytest

from detent.flows.notebook.payloads.values import (
    Action,
    Actions,
    ContextFilter,
    GoalReview,
    StagePlan,
    StepPlan,
    WhatHappened,
)
from detent.flows.notebook.state.document import NotebookSummary
from detent.flows.notebook.state.facts import ArtifactFact, CriterionFact, GapFact, Verdict
from detent.flows.notebook.state.machine import NotebookEvent, NotebookState
from detent.flows.notebook.state.payload_errors import PayloadMismatch, PayloadMissing
from detent.flows.notebook.state.state_checks import check_state
from detent.kernel.errors import InvalidTransitionError
from tests.flows.notebook.state.samples import (
    AT,
    PCS,
    STAGES,
    STEPS,
    all_steps_done,
    behaved,
    behavior,
    idle,
    in_behavior,
    in_step,
    move,
    reflection,
    second_step,
    stage,
    stage_reflection,
    started,
    step,
    step_done,
    verdict,
    with_row,
)

S, E = NotebookState, NotebookEvent


def ids(items):
    return [getattr(item, "stage_id", None) or getattr(item, "step_id", None) for item in items]


class TestStartWorkflow:
    def test_the_first_stage_is_current_and_the_rest_remains(self):
        """N-63."""
        document = started().document
        assert document.stages.current.stage_id == "first"
        assert ids(document.stages.remaining) == ["second", "third"]
        assert document.stages.completed == ()
        assert document.stages.focus == "RMSE < 25000"
        assert document.stages.current_outputs.expected_names == ("frame", "report")
        assert document.location.model_dump() == {
            "stage_id": "first",
            "step_id": None,
            "behavior_id": None,
            "behavior_iteration": None,
        }
        assert (document.fsm.state, document.fsm.last_transition) == (S.STAGE_RUNNING, E.START_WORKFLOW)
        assert document.fsm.timestamp == AT

    def test_nothing_of_a_plan_is_lost(self):
        """N-22: title, goals, description, requirements and what is optional are in the state."""
        plan = StagePlan(
            (stage("first", "frame", needs=("user_problem",)), stage("second", "notes", optional=True)),
            focus="RMSE",
            goals="a good model",
            title="House prices",
            description="all of it",
        )
        document = move(idle(), "1", plan).document
        assert document.state.notebook.title == "House prices"
        assert document.stages.current.required_variables == {"user_problem": ""}
        assert document.stages.current.optional is None
        assert document.stages.remaining[0].optional is True
        written = document.stages.model_dump()
        assert (written["goals"], written["description"]) == ("a good model", "all of it")

    def test_a_title_cell_and_a_heading_are_counted(self):
        assert started().document.state.notebook.cell_count == 2


class TestStartStep:
    def test_plans_all_steps_of_the_stage(self):
        """N-23."""
        document = in_step().document
        assert document.steps.current.step_id == "load"
        assert ids(document.steps.remaining) == ["describe"]
        assert document.steps.focus == "Look first."
        assert document.steps.current_outputs.expected_names == ("frame",)
        assert document.steps.current.pcs_considerations["computability"] == "seeds are set"
        assert document.location.step_id == "load"
        assert document.location.behavior_id is None

    def test_a_revised_goal_replaces_the_text_and_the_earlier_one_still_counts(self):
        """N-26."""
        before = started().document.stages.current.goal
        run = move(started(), "2", StepPlan((step("load", "frame"),), goals="A better goal."))
        assert run.document.stages.current.goal == "A better goal."
        assert run.ledger.earlier_goals == (before,)

    def test_from_a_completed_step_the_next_planned_step_is_current_without_planning(self):
        """N-23, N-51."""
        run = move(step_done(), "6a", stage_reflection(next_focus="Mind the gaps."), stage=verdict("frame"))
        document = run.document
        assert document.fsm.last_transition is E.START_STEP
        assert ids(document.steps.completed) == ["load"]
        assert document.steps.completed[0].completion_status == "success"
        assert document.steps.current.step_id == "describe"
        assert document.steps.remaining == ()
        assert document.steps.focus == "Mind the gaps."
        assert document.location.step_id == "describe"
        assert document.location.behavior_id is None
        assert document.behaviors.completed == ()
        assert document.stages.current_outputs.produced == ("frame",)
        assert document.stages.current_outputs.remaining == ("report",)


class TestTracking:
    def test_what_is_measured_missing_later_is_produced_no_more(self):
        """N-44: the stage's own look decides over what its steps reported."""
        run = move(step_done(), "6a", stage_reflection(), stage=verdict(missing=("frame", "report")))
        outputs = run.document.stages.current_outputs
        assert (outputs.produced, outputs.remaining) == ((), ("frame", "report"))


class TestStartBehavior:
    def test_the_first_behavior_of_a_step_has_number_one_and_iteration_one(self):
        """N-30, N-63."""
        document = in_behavior().document
        assert document.behaviors.current.behavior_id == "load_b1"
        assert document.location.behavior_iteration == document.behaviors.iteration == 1
        assert document.behaviors.focus == "Do it."
        assert document.behaviors.current_outputs.expected_names == ("frame",)
        assert document.behaviors.current_outputs.produced == ()

    def test_inputs_have_the_real_values_whatever_the_payload_says(self):
        """N-28."""
        assert in_behavior().document.behaviors.current.inputs == {"user_submit_files": ["a.csv"]}

    def test_an_input_that_no_variable_holds_is_refused(self):
        """N-29."""
        with pytest.raises(PayloadMismatch, match="nowhere"):
            move(in_step(), "3", behavior("load_b1", "frame", inputs=("nowhere",)))

    @pytest.mark.parametrize("behavior_id", ["load_b2", "describe_b1"])
    def test_a_behavior_of_another_step_or_number_is_refused(self, behavior_id):
        """N-30."""
        with pytest.raises(PayloadMismatch):
            move(in_step(), "3", behavior(behavior_id, "frame"))

    def test_what_the_plan_tells_the_prompt_is_kept(self):
        """N-22."""
        from dataclasses import replace

        plan = replace(
            behavior("load_b1", "frame"),
            effects=True,
            whathappened=WhatHappened("so far", "before"),
            context_filter=ContextFilter(("frame",), (("report", "head_only"),)),
        )
        written = move(in_step(), "3", plan).document.behaviors.current.model_dump(mode="json")
        assert written["effects"] is True
        assert written["whathappened"] == {"overview": "so far", "background": "before"}
        assert written["context_filter"]["variables_to_summarize"] == [{"name": "report", "how": "head_only"}]


class TestCompleteAction:
    def test_writes_effects_variables_and_the_notebook_and_nothing_of_the_location(self):
        """N-57, N-58, N-59, N-64."""
        before = in_behavior().document
        run = behaved("first\n", "second\n", frame="DataFrame 2 x 2", other=3)
        document = run.document
        assert document.location == before.location
        assert document.behaviors == before.behaviors
        assert document.state.effects.current == ("first\n", "second\n")
        assert document.variables["frame"] == "DataFrame 2 x 2"
        assert set(document.variables) == {"user_problem", "user_submit_files", "frame", "other"}
        summary = document.state.notebook
        assert summary.cell_count == before.state.notebook.cell_count + 2
        assert summary.last_cell_type == "code"
        assert summary.last_output == "first\nsecond\n"
        assert (document.fsm.state, document.fsm.last_transition) == (S.BEHAVIOR_COMPLETED, E.COMPLETE_ACTION)

    def test_a_notebook_that_was_looked_at_is_taken_as_it_is(self):
        """N-59."""
        seen = NotebookSummary(
            notebook_id="n", title="T", cell_count=9, last_cell_type="code", last_output="7"
        )
        run = move(in_behavior(), "4", Actions((Action("add_text", "x"),)), notebook=seen)
        assert run.document.state.notebook == seen

    def test_text_after_the_last_code_adds_no_cell_and_titles_change_theirs(self):
        """N-105."""
        actions = Actions(
            (
                Action("update_title", "Prices"),
                Action("add_section", "Loading"),
                Action("add_code", "frame = 1"),
                Action("add_text", "It printed 1."),
                Action("note", name="finish_thinking"),
            )
        )
        before = in_behavior()
        summary = move(before, "4", actions, outputs=((),)).document.state.notebook
        assert summary.cell_count == before.document.state.notebook.cell_count + 2
        assert (summary.title, summary.last_cell_type, summary.last_output) == ("Prices", "code", "")

    def test_a_round_of_text_alone_is_written(self):
        before = in_behavior()
        summary = move(before, "4", Actions((Action("add_text", "It printed 1."),))).document.state.notebook
        assert summary.cell_count == before.document.state.notebook.cell_count + 1
        assert summary.last_cell_type == "markdown"


class TestCompleteBehavior:
    def test_the_behavior_is_completed_and_the_ids_stay(self):
        """N-44, N-65."""
        document = step_done().document
        (done,) = document.behaviors.completed
        assert (done.behavior_id, done.completion_status) == ("load_b1", "success")
        assert done.artifacts_produced == ("frame",)
        assert document.behaviors.current is None
        assert document.location.behavior_id == "load_b1"
        assert document.location.behavior_iteration == 1
        assert document.steps.completed == ()
        assert document.steps.current.step_id == "load"
        assert document.steps.current_outputs.produced == ("frame",)
        assert document.steps.current_outputs.remaining == ()
        assert document.state.effects.current == ("1\n",)

    def test_the_measurement_is_written_and_not_the_claim(self):
        """N-44, N-45."""
        found = Verdict(
            (ArtifactFact("frame", "incomplete", "empty"),),
            (CriterionFact("len(frame) > 0", False, "False"),),
        )
        run = move(behaved(), "5d", reflection(True, "frame"), behavior=found, step=found)
        (done,) = run.document.behaviors.completed
        assert (done.completion_status, done.artifacts_produced) == ("failed", ())
        outputs = run.document.behaviors.current_outputs
        assert (outputs.produced, outputs.in_progress, outputs.remaining) == ((), ("frame",), ("frame",))
        assert run.document.steps.current_outputs.remaining == ("frame",)

    def test_an_escalated_step_is_marked(self):
        """N-12."""
        run = move(behaved(), "5d", reflection(False), behavior=verdict(missing=("frame",)))
        assert run.ledger.escalated
        assert run.document.steps.current.completion_status == "failed"
        assert check_state(run.document) == ()

    def test_a_complete_behavior_of_an_escalated_step_is_a_success(self):
        run = move(
            behaved(),
            "5d",
            reflection(True, "frame"),
            behavior=verdict("frame"),
            step=verdict("frame", failed={"len(frame) > 9": "False"}),
        )
        assert run.document.behaviors.completed[0].completion_status == "success"
        assert run.ledger.escalated

    def test_the_output_of_a_behavior_can_be_kept_as_a_variable(self):
        run = move(
            behaved("one\n", "two\n"), "5a", reflection(True, "frame", new_variables=("log",)),
            behavior=verdict("frame"), step=verdict("frame"),
        )  # fmt: skip
        assert run.document.variables["log"] == "one\ntwo\n"


class TestNextBehavior:
    def test_the_number_grows_the_iteration_is_one_and_the_output_joins_the_history(self):
        """N-30, N-58."""
        run = move(
            behaved("one\n"), "5b", reflection(False, "part"), behavior("load_b2", "frame"),
            behavior=verdict("part"), step=verdict(missing=("frame",)),
        )  # fmt: skip
        document = run.document
        assert document.fsm.last_transition is E.START_BEHAVIOR
        assert document.location.behavior_id == "load_b2"
        assert document.location.behavior_iteration == 1
        assert [done.behavior_id for done in document.behaviors.completed] == ["load_b1"]
        assert document.state.effects.current == ()
        assert document.state.effects.history == ("one\n",)
        assert document.steps.current_outputs.remaining == ("frame",)
        assert run.ledger.behaviors_since_entry == 2
        assert check_state(document) == ()

    def test_it_needs_the_plan_of_the_next_behavior(self):
        with pytest.raises(PayloadMissing) as missing:
            move(behaved(), "5b", reflection(False), behavior=verdict("frame"))
        assert missing.value.payload == "BehaviorPlan"


class TestRetry:
    def test_the_same_behavior_runs_again_with_feedback(self):
        """N-75."""
        before = behaved("KeyError: 'price'\n")
        payload = reflection(False, failing=("frame",), if_continuing="frame is missing")
        run = move(before, "5c", payload, behavior=verdict(missing=("frame",)), dropped_variables=("frame",))
        document = run.document
        assert document.location.behavior_id == "load_b1"
        assert document.location.behavior_iteration == document.behaviors.iteration == 2
        assert document.behaviors.completed == ()
        assert document.behaviors.current.whathappened == {"if_continuing_behavior": "frame is missing"}
        assert document.behaviors.current.acceptance == before.document.behaviors.current.acceptance
        assert document.behaviors.current_outputs.produced == ()
        assert document.state.effects.history == ("KeyError: 'price'\n",)
        assert document.state.effects.current == ()
        assert "frame" not in document.variables
        assert run.ledger.behaviors_since_entry == 1
        assert check_state(document) == ()

    def test_outputs_of_all_iterations_are_kept_once(self):
        """N-58."""
        run = move(behaved("one\n"), "5c", reflection(False), behavior=verdict(missing=("frame",)))
        run = move(run, "4", outputs=(("two\n",), ("three\n",)))
        run = move(run, "5c", reflection(False), behavior=verdict(missing=("frame",)))
        assert run.document.state.effects.history == ("one\n", "two\n", "three\n")
        assert run.document.state.effects.current == ()


class TestCompleteStage:
    def test_the_stage_is_completed_with_its_experience_and_the_next_one_is_current(self):
        """N-49, N-52."""
        run = move(
            all_steps_done(),
            "6b",
            stage_reflection(True, experience="Mind the encoding.", experience_from="first"),
            stage=verdict("frame", "report"),
        )
        document = run.document
        assert document.fsm.last_transition is E.COMPLETE_STAGE
        (done,) = document.stages.completed
        assert (done.stage_id, done.experience, done.completion_status) == (
            "first",
            "Mind the encoding.",
            "success",
        )
        assert document.stages.current.stage_id == "second"
        assert document.stages.current_outputs.expected_names == ("model",)
        assert document.stages.current_outputs.produced == ()
        assert document.steps.completed == ()
        assert document.location.stage_id == "second"
        assert document.location.step_id is None
        assert ids(run.ledger.closed_steps["first"]) == ["load", "describe"]
        assert check_state(document) == ()

    def test_a_stage_can_be_closed_as_partial(self):
        run = move(all_steps_done(), "6b", stage_reflection(True), closes_as="partial")
        assert run.document.stages.completed[0].completion_status == "partial"

    def test_after_the_last_stage_nothing_is_current(self):
        """N-52."""
        run = move(all_steps_done(), "6b", stage_reflection(True))
        for plan, name in ((step("fit", "model"), "fit"), (step("write", "notes"), "write")):
            artifact = plan.verified_artifacts[0].name
            run = move(run, "2", StepPlan((plan,)))
            run = move(run, "3", behavior(f"{name}_b1", artifact))
            run = move(run, "4", variables={artifact: 1})
            run = move(
                run, "5a", reflection(True, artifact), behavior=verdict(artifact), step=verdict(artifact)
            )
            if run.document.stages.remaining:
                run = move(run, "6b", stage_reflection(True))
        run = move(run, "6c", stage_reflection(True))
        document = run.document
        assert document.fsm.state is S.WORKFLOW_COMPLETE
        assert ids(document.stages.completed) == ["first", "second", "third"]
        assert document.stages.current is None
        assert document.location.stage_id is None
        assert check_state(document) == ()


class TestBacktrack:
    GAP = GapFact("frame", "describe", True, "first", "load")

    def test_within_the_stage_the_producing_step_is_current_again(self):
        """N-79."""
        run = with_row(all_steps_done(), escalated=False)
        plan = StepPlan((step("load", "frame"), step("describe", "report")))
        run = move(
            run,
            "6d",
            stage_reflection(),
            plan,
            to=S.STEP_RUNNING,
            gap=self.GAP,
            dropped_variables=("report",),
        )
        document = run.document
        assert document.fsm.last_transition is E.START_STEP
        assert document.steps.completed == ()
        assert document.steps.current.step_id == "load"
        assert ids(document.steps.remaining) == ["describe"]
        assert "report" not in document.variables
        assert run.ledger.backtracked == ("frame",)
        assert run.ledger.revised_stages == ()
        assert document.stages.current_outputs.produced == ()
        assert check_state(document) == ()

    def test_numbers_of_behaviors_go_on_counting(self):
        """N-30."""
        plan = StepPlan((step("load", "frame"), step("describe", "report")))
        run = move(all_steps_done(), "6d", stage_reflection(), plan, to=S.STEP_RUNNING, gap=self.GAP)
        assert run.next_behavior_id == "load_b2"
        with pytest.raises(PayloadMismatch):
            move(run, "3", behavior("load_b1", "frame"))
        assert move(run, "3", behavior("load_b2", "frame")).document.location.behavior_iteration == 1

    def test_the_plan_begins_with_the_producing_step(self):
        with pytest.raises(PayloadMismatch):
            move(
                all_steps_done(), "6d", stage_reflection(), StepPlan((step("describe", "report"),)),
                to=S.STEP_RUNNING, gap=self.GAP,
            )  # fmt: skip

    def test_an_earlier_stage_is_taken_up_again_at_the_producing_step(self):
        """N-79: the steps before the producer stand, and T2 plans only it and the ones after it."""
        run = move(all_steps_done(), "6b", stage_reflection(True, experience="x"))
        run = move(run, "2", StepPlan((step("fit", "model"),)))
        run = move(run, "3", behavior("fit_b1", "model"))
        run = move(run, "4")
        run = move(run, "5d", reflection(False), behavior=verdict(missing=("model",)))
        gap = GapFact("report", "fit", True, "first", "describe")
        run = move(run, "6d", stage_reflection(), to=S.STAGE_RUNNING, gap=gap)
        document = run.document
        assert document.fsm.last_transition is E.COMPLETE_STAGE
        assert document.stages.current.stage_id == "first"
        assert document.stages.current.experience is None
        assert document.stages.current.completion_status is None
        assert ids(document.stages.remaining) == ["second", "third"]
        assert document.stages.completed == ()
        assert document.location.stage_id == "first"
        assert document.stages.current_outputs.produced == ("frame",)
        # After an escalation it uses up the revision of the stage it came from.
        assert run.ledger.revised_stages == ("second",)
        assert not run.ledger.escalated
        assert check_state(document) == ()
        run = move(run, "2", StepPlan((step("describe", "report"),)))
        assert ids(run.document.steps.completed) == ["load"]
        assert run.document.steps.current.step_id == "describe"
        assert check_state(run.document) == ()


class TestRevision:
    def escalated(self):
        run = move(second_step(), "3", behavior("describe_b1", "report"))
        run = move(run, "4", outputs=(("no\n",),))
        return move(run, "5d", reflection(False), behavior=verdict(missing=("report",)))

    def test_the_same_step_is_current_once_more(self):
        """N-77."""
        run = move(
            self.escalated(),
            "6e",
            stage_reflection(),
            StepPlan((step("describe", "report"),), goals="Do less."),
        )
        document = run.document
        assert document.fsm.state is S.STEP_RUNNING
        assert ids(document.steps.completed) == ["load"]
        assert document.steps.current.step_id == "describe"
        assert document.steps.current.completion_status is None
        assert document.stages.current.goal == "Do less."
        assert run.ledger.earlier_goals == ()  # at a revision the criteria of the earlier goal are replaced
        assert run.ledger.revised_stages == ("first",)
        assert not run.ledger.escalated
        assert run.next_behavior_id == "describe_b2"
        assert check_state(document) == ()

    def test_steps_that_take_its_place_leave_it_failed(self):
        run = move(self.escalated(), "6e", stage_reflection(), StepPlan((step("other", "report"),)))
        assert [(done.step_id, done.completion_status) for done in run.document.steps.completed] == [
            ("load", "success"),
            ("describe", "failed"),
        ]

    def test_the_new_goal_of_the_review_is_taken_where_the_plan_names_none(self):
        review = GoalReview(True, "too much", "Do half.")
        run = move(
            self.escalated(),
            "6e",
            stage_reflection(goal_review=review),
            StepPlan((step("describe", "report"),)),
        )
        assert run.document.stages.current.goal == "Do half."


class TestVariables:
    def test_a_deprecated_variable_leaves_the_state(self):
        """N-57."""
        run = behaved(frame=1, draft=2)
        run = move(run, "5a", reflection(True, "frame"), behavior=verdict("frame"), step=verdict("frame"))
        run = move(run, "6a", stage_reflection(deprecate=("draft",)))
        assert set(run.document.variables) == {"user_problem", "user_submit_files", "frame"}

    @pytest.mark.parametrize("name", ["user_problem", "user_submit_files", "frame"])
    def test_a_user_input_or_a_required_name_cannot_be_deprecated(self, name):
        run = move(step_done(), "6a", stage_reflection(deprecate=(name,)))
        assert name in run.document.variables

    def test_an_undeclared_name_is_no_error(self):
        run = move(step_done(), "6a", stage_reflection(deprecate=("never_there",)))
        assert "never_there" not in run.document.variables


class TestEnds:
    @pytest.mark.parametrize("made", [idle, started, in_step, in_behavior, behaved, step_done])
    @pytest.mark.parametrize(("row", "state"), [("7", S.FAILED), ("8", S.CANCELLED)])
    def test_failing_and_cancelling_change_the_fsm_alone(self, made, row, state):
        before = made()
        after = move(before, row)
        assert after.document.fsm.state is state
        assert after.document.changed(fsm=before.document.fsm) == before.document

    @pytest.mark.parametrize(
        "row", ["1", "2", "3", "4", "5a", "5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "6f", "7"]
    )
    def test_an_end_takes_no_row(self, row):
        """N-15."""
        with pytest.raises(InvalidTransitionError):
            move(move(in_step(), "8"), row, STAGES, STEPS)


def test_applying_changes_nothing_of_what_was_there():
    before = behaved()
    written = before.document.model_dump_json()
    move(before, "5a", reflection(True, "frame"), behavior=verdict("frame"), step=verdict("frame"))
    assert before.document.model_dump_json() == written


def test_pcs_texts_are_those_of_the_plan():
    assert in_step().document.steps.current.pcs_considerations == {
        "predictability": PCS.predictability,
        "computability": PCS.computability,
        "stability": PCS.stability,
    }
