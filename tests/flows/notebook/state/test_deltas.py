"""The state as keys of a run's data."""

from detent.flows.notebook.state.deltas import REST, from_data, to_data
from detent.flows.notebook.state.ledger import RunState
from detent.flows.notebook.state.state_json import read_state
from tests.flows.notebook.state.samples import (
    all_steps_done,
    behaved,
    behavior,
    in_behavior,
    move,
    reflection,
    second_step,
    stage_reflection,
    step_done,
    verdict,
)


class TestDeltas:
    """I5: `set` and `append`, and nothing rewrites the whole."""

    def test_a_variable_is_set_by_itself(self):
        delta = to_data(in_behavior(), behaved(frame="DataFrame 2 x 2"))
        assert delta.set["var.frame"] == {"value": "DataFrame 2 x 2"}
        assert "var.user_problem" not in delta.set
        assert delta.append == {"effects.current": ["1\n"]}

    def test_a_variable_that_is_gone_is_null(self):
        retried = move(behaved(), "5c", reflection(False), dropped_variables=("frame",))
        assert to_data(behaved(), retried).set["var.frame"] is None

    def test_a_variable_may_hold_null(self):
        run = behaved(frame=None)
        assert from_data(to_data(None, run).set).document.variables["frame"] is None

    def test_history_is_appended_and_never_rewritten(self):
        retried = move(behaved("one\n"), "5c", reflection(False))
        again = move(move(retried, "4", outputs=(("two\n",),)), "5c", reflection(False))
        delta = to_data(move(retried, "4", outputs=(("two\n",),)), again)
        assert delta.append == {"effects.history": ["two\n"]}
        assert "effects.history" not in delta.set
        assert delta.set["effects.current"] == []

    def test_completed_steps_are_appended_and_the_remaining_ones_only_counted(self):
        delta = to_data(step_done(), second_step())
        assert [item["step_id"] for item in delta.append["steps.completed"]] == ["load"]
        assert delta.set["steps.remaining.left"] == 0
        assert "steps.remaining" not in delta.set

    def test_completed_stages_are_appended_and_the_remaining_ones_only_counted(self):
        after = move(all_steps_done(), "6b", stage_reflection(True))
        delta = to_data(all_steps_done(), after)
        assert [item["stage_id"] for item in delta.append["stages.completed"]] == ["first"]
        assert delta.set["stages.remaining.left"] == 1
        assert "stages.remaining" not in delta.set
        assert [item["step_id"] for item in delta.set["ledger.closed_steps.first"]["value"]] == [
            "load",
            "describe",
        ]

    def test_nothing_changed_is_nothing_written(self):
        assert to_data(behaved(), behaved()) == ({}, {})

    def test_true_is_not_one(self):
        delta = to_data(behaved(frame=1), behaved(frame=True))
        assert delta.set == {"var.frame": {"value": True}}

    def test_the_row_stands_where_the_guards_look_for_it(self):
        run = move(behaved(), "5a", reflection(True), behavior=verdict("frame"), step=verdict("frame"))
        assert to_data(behaved(), run).set["row"] == "5a"

    def test_keys_of_other_rooms_are_left_alone(self):
        data = {**to_data(None, behaved()).set, "cells": [1], "spend": 3}
        assert from_data(data) == behaved()

    def test_what_a_foreign_file_brought_along_is_kept(self):
        document = read_state(
            {"run": "r1", "observation": {"weather": {"rain": True}}, "state": {"FSM": {"note": "x"}}}
        )
        run = RunState(document)
        data = to_data(None, run).set
        assert data[REST]["document"]["run"] == "r1"
        assert from_data(data) == run

    def test_a_written_transition_is_small_however_long_the_run_is(self):
        """Cost grows linearly: the changes of a retry do not depend on how much was printed before."""

        def sized(count: int) -> int:
            run = behaved("x" * 100)
            for _ in range(count):
                run = move(move(run, "5c", reflection(False)), "4", outputs=(("x" * 100,),))
            after = move(run, "5c", reflection(False))
            return len(repr(to_data(run, after)))

        assert abs(sized(50) - sized(5)) < 20

    def test_a_run_can_begin_in_the_middle(self):
        run = move(
            behaved(), "5b", reflection(False), behavior("load_b2", "frame"), step=verdict(missing=("frame",))
        )
        again = RunState.of_document(run.document)
        assert again.ledger.behavior_numbers == {"load": 2}
        assert again.next_behavior_id == "load_b3"
