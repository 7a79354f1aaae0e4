"""The object of the kernel, over tables of its own; the orchestration's table has its tests under flows."""

import copy
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path

import pytest
import structlog

from detent.engine.state_machine import StateMachine
from detent.kernel.budget import Spend
from detent.kernel.entries import (
    AttemptFailed,
    Body,
    Ended,
    Entry,
    Forked,
    Migrated,
    Moved,
    Noted,
    Reopened,
    Started,
)
from detent.kernel.errors import ConfigurationError, InvalidTransitionError
from detent.kernel.machine import Machine
from detent.kernel.state_history import RestoreError, StateMetrics, StateTransition
from detent.kernel.status import Status


class Kiln(Enum):
    """A plain enum, so that a member is not its text."""

    COLD = "cold"
    HEATING = "heating"
    FIRING = "firing"
    DONE = "done"
    CRACKED = "cracked"


TABLE = Machine(
    "Kiln",
    start=Kiln.COLD,
    moves={
        Kiln.COLD: [Kiln.HEATING],
        Kiln.HEATING: [Kiln.FIRING, Kiln.HEATING, Kiln.CRACKED],
        Kiln.FIRING: [Kiln.DONE, Kiln.HEATING, Kiln.CRACKED],
    },
    ends={Kiln.DONE: Status.SUCCEEDED, Kiln.CRACKED: Status.FAILED},
)
QUIET = Machine("quiet", start="a", moves={"a": ["b"], "b": ["a", "end"]}, ends=["end"], self_moves="noop")


def ticking() -> Iterator[float]:
    return iter(map(float, count(100)))


@pytest.fixture
def kiln() -> StateMachine[Kiln]:
    return StateMachine(
        TABLE, counts=lambda frm, to: to is Kiln.FIRING, clock=ticking().__next__, max_iterations=2
    )


@pytest.fixture
def logged():
    with structlog.testing.capture_logs() as events:
        yield events
    structlog.reset_defaults()


def snapshot(machine: StateMachine) -> tuple:
    return machine.current_state, list(machine.history), machine.iteration_count, machine.max_iterations


class TestMoving:
    def test_a_new_machine_stands_at_its_start(self):
        """R-01, R-16"""
        machine = StateMachine(TABLE)
        assert snapshot(machine) == (Kiln.COLD, [], 0, 3)

    def test_an_allowed_move_is_made_and_recorded(self, kiln):
        """R-03, R-16"""
        assert kiln.transition(Kiln.HEATING, {"by": "hand"}, "lit", 2.5, 7) is True
        assert kiln.current_state is Kiln.HEATING
        assert kiln.history == [
            StateTransition(Kiln.COLD, Kiln.HEATING, 100.0, {"by": "hand"}, "lit", 2.5, 7)
        ]

    def test_metrics_are_optional(self, kiln):
        """R-37"""
        kiln.transition(Kiln.HEATING)
        assert kiln.history == [StateTransition(Kiln.COLD, Kiln.HEATING, 100.0, {}, None, 0.0, 0)]

    def test_the_clock_is_the_wall_clock_unless_one_is_given(self):
        machine = StateMachine(TABLE)
        machine.transition(Kiln.HEATING)
        assert machine.history[0].timestamp > 1_700_000_000

    def test_the_text_of_a_state_stands_for_the_state(self, kiln):
        assert kiln.can_transition_to("heating")
        assert kiln.transition("heating")
        assert kiln.current_state is Kiln.HEATING
        assert kiln.history[0].to_state is Kiln.HEATING

    def test_text_that_hashes_like_its_member_becomes_the_member_too(self):
        class Same(str, Enum):
            a = "a"
            end = "end"

        machine = StateMachine(Machine("m", start=Same.a, moves={Same.a: [Same.end]}, ends=[Same.end]))
        machine.transition("end")
        assert machine.current_state is Same.end
        assert machine.history[0].to_state is Same.end

    def test_a_move_the_table_does_not_list_is_refused_and_changes_nothing(self, kiln):
        """R-04"""
        kiln.transition(Kiln.HEATING)
        before = snapshot(kiln)
        with pytest.raises(InvalidTransitionError) as refused:
            kiln.transition(Kiln.DONE, {"a": 1}, "no", 1.0, 1)
        assert str(refused.value) == (
            "Invalid transition: heating → done. Valid transitions: ['firing', 'heating', 'cracked']"
        )
        assert refused.value.from_state is Kiln.HEATING
        assert refused.value.to_state is Kiln.DONE
        assert refused.value.valid == [Kiln.FIRING, Kiln.HEATING, Kiln.CRACKED]
        assert snapshot(kiln) == before

    @pytest.mark.parametrize("unknown", ["baking", "HEATING", "", None, 7, Status.FAILED])
    @pytest.mark.parametrize("where", [Kiln.COLD, Kiln.DONE])
    def test_a_state_the_table_does_not_know_is_refused_everywhere(self, kiln, unknown, where):
        kiln.current_state = where
        assert not kiln.can_transition_to(unknown)
        with pytest.raises(InvalidTransitionError) as refused:
            kiln.transition(unknown)
        assert refused.value.to_state == unknown
        assert kiln.history == []

    def test_a_member_of_a_plain_enum_of_another_kind_is_no_state_here(self, kiln):
        class Other(Enum):
            HEATING = "heating"

        with pytest.raises(InvalidTransitionError):
            kiln.transition(Other.HEATING)

    @pytest.mark.parametrize("end", [Kiln.DONE, Kiln.CRACKED])
    @pytest.mark.parametrize("wanted", [*Kiln, "cold"])
    def test_an_end_is_never_left(self, kiln, logged, end, wanted):
        """R-05"""
        kiln.current_state = end
        before = snapshot(kiln)
        assert kiln.is_terminal()
        assert not kiln.can_transition_to(wanted)
        assert kiln.transition(wanted, duration_seconds=-1) is False
        assert snapshot(kiln) == before
        name = wanted if isinstance(wanted, str) else wanted.value
        assert logged == [
            {"event": "state.move_refused", "log_level": "warning", "end": end.value, "wanted": name}
        ]

    def test_staying_is_a_move_when_the_table_lists_it(self, kiln):
        kiln.transition(Kiln.HEATING)
        assert kiln.transition(Kiln.HEATING)
        assert len(kiln.history) == 2

    def test_staying_is_refused_when_the_table_does_not_list_it(self, kiln):
        with pytest.raises(InvalidTransitionError):
            kiln.transition(Kiln.COLD)

    def test_staying_changes_nothing_in_a_machine_where_it_is_a_noop(self, logged):
        machine = StateMachine(QUIET)
        assert machine.transition("a", reason="again") is False
        assert snapshot(machine) == ("a", [], 0, 3)
        assert logged == []
        assert not machine.can_transition_to("a")

    @pytest.mark.parametrize("bad", [-0.001, math.nan, math.inf, -math.inf])
    def test_a_duration_is_a_finite_number_of_zero_or_more(self, kiln, bad):
        """R-33"""
        before = snapshot(kiln)
        with pytest.raises(ValueError, match="duration_seconds"):
            kiln.transition(Kiln.HEATING, duration_seconds=bad)
        assert snapshot(kiln) == before

    def test_tokens_are_zero_or_more(self, kiln):
        before = snapshot(kiln)
        with pytest.raises(ValueError, match="tokens_consumed"):
            kiln.transition(Kiln.HEATING, tokens_consumed=-1)
        with pytest.raises(TypeError):
            kiln.transition(Kiln.HEATING, tokens_consumed=1.5)
        assert snapshot(kiln) == before

    def test_a_whole_number_of_seconds_is_a_duration(self, kiln):
        kiln.transition(Kiln.HEATING, duration_seconds=3)
        assert kiln.history[0].duration_seconds == 3.0
        assert type(kiln.history[0].duration_seconds) is float

    def test_numbers_of_numpy_become_plain_numbers(self, kiln):
        import numpy

        kiln.transition(Kiln.HEATING, duration_seconds=numpy.float32(0.5), tokens_consumed=numpy.int64(3))
        assert type(kiln.history[0].duration_seconds) is float
        assert type(kiln.history[0].tokens_consumed) is int

    def test_a_table_comes_before_the_numbers(self, kiln):
        with pytest.raises(InvalidTransitionError):
            kiln.transition(Kiln.DONE, duration_seconds=-1)

    def test_long_reasons_are_cut(self, kiln):
        kiln.transition(Kiln.HEATING, reason="x" * 500)
        assert kiln.history[0].reason == "x" * 200

    def test_a_reason_is_text(self, kiln):
        with pytest.raises(TypeError, match="reason"):
            kiln.transition(Kiln.HEATING, reason=5)
        assert kiln.history == []

    def test_a_counting_rule_or_clock_that_raises_leaves_everything_as_it_was(self):
        def broken(*_):
            raise RuntimeError("broken")

        for machine in (StateMachine(TABLE, counts=broken), StateMachine(TABLE, clock=broken)):
            with pytest.raises(RuntimeError):
                machine.transition(Kiln.HEATING)
            assert snapshot(machine) == (Kiln.COLD, [], 0, 3)


class TestContext:
    def test_context_becomes_json_values_of_its_own(self, kiln):
        @dataclass
        class Plan:
            where: Path
            then: Kiln

        bars = [1, 2]
        kiln.transition(Kiln.HEATING, {"plan": Plan(Path("a/b"), Kiln.DONE), "bars": bars})
        bars.append(3)
        assert kiln.history[0].context == {"plan": {"where": "a/b", "then": "done"}, "bars": [1, 2]}

    def test_what_json_cannot_hold_is_refused_with_its_key_path(self, kiln):
        with pytest.raises(TypeError, match=r"'context\.plan\.bars\[1\]'"):
            kiln.transition(Kiln.HEATING, {"plan": {"bars": [1, object()]}})
        assert snapshot(kiln) == (Kiln.COLD, [], 0, 2)

    def test_numbers_that_are_not_finite_are_refused(self, kiln):
        """R-33"""
        with pytest.raises(ValueError, match="'context.score'"):
            kiln.transition(Kiln.HEATING, {"score": math.nan})
        assert kiln.history == []

    def test_context_is_a_mapping(self, kiln):
        with pytest.raises(TypeError, match="'context' is a list"):
            kiln.transition(Kiln.HEATING, ["a"])

    def test_a_transition_made_by_hand_is_checked_when_it_is_written(self):
        with pytest.raises(TypeError, match="'context.x'"):
            StateTransition(Kiln.COLD, Kiln.HEATING, 1.0, {"x": {1}}).to_dict()
        with pytest.raises(ValueError):
            StateTransition(Kiln.COLD, Kiln.HEATING, 1.0, {}, None, math.inf).to_dict()


class TestStanding:
    def test_assigning_the_state_records_nothing(self, kiln):
        kiln.current_state = Kiln.FIRING
        assert kiln.current_state is Kiln.FIRING
        assert kiln.history == []
        kiln.current_state = "done"
        assert kiln.current_state is Kiln.DONE

    def test_a_state_of_another_machine_cannot_be_assigned(self, kiln):
        with pytest.raises(ValueError, match="heatin"):
            kiln.current_state = "heatin"
        assert kiln.current_state is Kiln.COLD

    def test_history_is_handed_out_as_a_copy(self, kiln):
        """R-10"""
        kiln.transition(Kiln.HEATING)
        kiln.get_transition_history().clear()
        assert len(kiln.history) == len(kiln.get_transition_history()) == 1

    def test_reset_goes_back_to_the_start_and_keeps_the_limit(self, kiln):
        """R-10"""
        kiln.max_iterations = 7
        kiln.transition(Kiln.HEATING)
        kiln.transition(Kiln.FIRING)
        kiln.reset()
        assert snapshot(kiln) == (Kiln.COLD, [], 0, 7)

    def test_the_limit_of_iterations_is_asked_before_another_one(self, kiln):
        """R-09"""
        kiln.transition(Kiln.HEATING)
        kiln.transition(Kiln.FIRING)
        assert not kiln.exceeded_max_iterations()
        kiln.transition(Kiln.HEATING)
        kiln.transition(Kiln.FIRING)
        assert kiln.iteration_count == 2
        assert kiln.exceeded_max_iterations()

    def test_without_a_counting_rule_nothing_counts(self):
        machine = StateMachine(TABLE)
        machine.transition(Kiln.HEATING)
        machine.transition(Kiln.FIRING)
        assert machine.iteration_count == 0

    @pytest.mark.parametrize("bad", [0, -1, 1.5, "3", None, True])
    def test_the_limit_of_iterations_is_a_whole_number_above_zero(self, kiln, bad):
        with pytest.raises(ConfigurationError, match="max_iterations"):
            StateMachine(TABLE, max_iterations=bad)
        with pytest.raises(ConfigurationError):
            kiln.max_iterations = bad
        assert kiln.max_iterations == 2

    def test_a_deep_copy_goes_its_own_way(self, kiln):
        kiln.transition(Kiln.HEATING)
        other = copy.deepcopy(StateMachine.from_dict(TABLE, kiln.to_dict()))
        other.transition(Kiln.FIRING)
        assert len(kiln.history) == 1
        assert other.machine is TABLE

    def test_its_representation_says_where_it_stands(self, kiln):
        kiln.transition(Kiln.HEATING)
        assert repr(kiln) == "<StateMachine 'Kiln' in 'heating' after 1 transitions>"


class TestLogging:
    def test_each_move_says_its_six_facts_once(self, kiln, logged):
        """R-17"""
        kiln.transition(Kiln.HEATING, {"secret": "x"}, "lit", 1.23456, 9)
        kiln.transition(Kiln.FIRING)
        assert logged == [
            {"event": "state.moved", "log_level": "info", "from": "cold", "to": "heating", "iteration": 0,
             "duration_s": 1.23, "tokens": 9, "reason": "lit"},
            {"event": "state.moved", "log_level": "info", "from": "heating", "to": "firing", "iteration": 1,
             "duration_s": 0.0, "tokens": 0, "reason": None},
        ]  # fmt: skip

    def test_a_refused_move_says_nothing_but_its_exception(self, kiln, logged):
        with pytest.raises(InvalidTransitionError):
            kiln.transition(Kiln.DONE)
        assert logged == []


class TestAddingUp:
    @pytest.fixture
    def fired(self, kiln):
        kiln.transition(Kiln.HEATING, duration_seconds=1.0, tokens_consumed=10)
        kiln.transition(Kiln.FIRING, duration_seconds=4.0, tokens_consumed=5)
        kiln.transition(Kiln.HEATING, duration_seconds=3.0, tokens_consumed=30)
        kiln.transition(Kiln.FIRING, duration_seconds=2.0, tokens_consumed=6)
        kiln.transition(Kiln.DONE, duration_seconds=3.0, tokens_consumed=30)
        return kiln

    def test_a_state_adds_up_what_was_spent_when_it_was_left(self, fired):
        """R-11"""
        assert fired.get_state_metrics(Kiln.HEATING) == StateMetrics(
            Kiln.HEATING, 2, 6.0, 11, 3.0, 5.5, 2.0, 4.0
        )
        assert fired.get_state_metrics("heating") == fired.get_state_metrics(Kiln.HEATING)

    def test_a_state_never_left_has_the_defaults(self, fired):
        """R-11"""
        assert fired.get_state_metrics(Kiln.DONE) == StateMetrics(
            Kiln.DONE, 0, 0.0, 0, 0.0, 0.0, math.inf, 0.0
        )

    def test_a_state_that_is_none_is_refused(self, fired):
        with pytest.raises(ValueError):
            fired.get_state_metrics("baking")

    def test_all_states_but_the_ends_are_listed_in_order(self, fired):
        """R-11"""
        everything = fired.get_all_state_metrics()
        assert list(everything) == [Kiln.COLD, Kiln.HEATING, Kiln.FIRING]
        for state, metrics in everything.items():
            assert metrics == fired.get_state_metrics(state)

    def test_totals(self, fired):
        """R-12"""
        assert fired.get_total_metrics() == {
            "total_duration_seconds": 13.0,
            "total_tokens": 81,
            "total_transitions": 5,
            "iteration_count": 2,
            "state_visits": {"cold": 1, "heating": 2, "firing": 2},
            "current_state": "done",
        }

    def test_transition_patterns(self, fired):
        """R-13"""
        metrics = fired.get_transition_metrics()
        assert list(metrics["transition_counts"].items()) == [
            ("cold → heating", 1), ("heating → firing", 2), ("firing → heating", 1), ("firing → done", 1),
        ]  # fmt: skip
        assert metrics["most_common_transition"] == "heating → firing"
        assert metrics["most_common_count"] == 2
        assert metrics["unique_transitions"] == 4

    def test_of_equally_common_transitions_the_first_seen_wins(self, kiln):
        """R-13"""
        for state in (Kiln.HEATING, Kiln.FIRING, Kiln.DONE):
            kiln.transition(state)
        assert kiln.get_transition_metrics()["most_common_transition"] == "cold → heating"

    def test_no_transitions_make_no_pattern(self, kiln):
        """R-13"""
        assert kiln.get_transition_metrics() == {
            "transition_counts": {},
            "most_common_transition": None,
            "most_common_count": 0,
            "unique_transitions": 0,
        }

    def test_bottlenecks_rank_by_average_and_ties_go_to_the_earlier_state(self, fired):
        """R-14"""
        assert fired.get_bottleneck_analysis() == {
            "slowest_state": {
                "state": "heating", "avg_duration_seconds": 3.0, "total_duration_seconds": 6.0,
                "visit_count": 2,
            },
            "highest_token_state": {
                "state": "firing", "avg_tokens": 30.0, "total_tokens": 60, "visit_count": 2,
            },
            "avg_duration_per_iteration": 6.5,
            "avg_tokens_per_iteration": 40.5,
        }  # fmt: skip

    def test_without_visits_there_is_no_bottleneck(self, kiln):
        """R-14"""
        assert kiln.get_bottleneck_analysis() == {
            "slowest_state": None,
            "highest_token_state": None,
            "avg_duration_per_iteration": 0.0,
            "avg_tokens_per_iteration": 0.0,
        }

    def test_without_iterations_the_averages_per_iteration_are_zero(self, kiln):
        """R-14"""
        kiln.transition(Kiln.HEATING, duration_seconds=5, tokens_consumed=5)
        analysis = kiln.get_bottleneck_analysis()
        assert analysis["slowest_state"]["state"] == "cold"
        assert analysis["avg_duration_per_iteration"] == analysis["avg_tokens_per_iteration"] == 0.0

    def test_the_report_carries_the_machine_s_own_name(self, kiln):
        """R-15, R-16"""
        assert kiln.format_metrics_report() == (
            "=== Kiln Metrics Report ===\n\nFinal State: cold\nIterations: 0 / 2\nTotal Duration: 0.00s\n"
            "Total Tokens: 0\nTotal Transitions: 0\n\n--- State Visit Counts ---"
        )


class TestWrittenForm:
    def test_a_transition_is_written_with_these_keys_in_this_order(self):
        made = StateTransition(Kiln.COLD, Kiln.HEATING, 1790000000.25, {}, None, 4.2, 1200)
        assert json.dumps(made.to_dict()) == (
            '{"from_state": "cold", "to_state": "heating", "timestamp": 1790000000.25, "reason": null, '
            '"context": {}, "duration_seconds": 4.2, "tokens_consumed": 1200}'
        )
        assert StateTransition.from_dict(made.to_dict(), Kiln) == made

    def test_infinity_is_written_as_null_and_read_as_infinity(self):
        """R-33"""
        metrics = StateMetrics(Kiln.COLD)
        written = json.dumps(metrics.to_dict(), allow_nan=False)
        assert json.loads(written)["min_duration_seconds"] is None
        assert StateMetrics.from_dict(json.loads(written), Kiln) == metrics

    def test_metrics_are_written_with_eight_fields(self, kiln):
        kiln.transition(Kiln.HEATING, duration_seconds=2)
        metrics = kiln.get_state_metrics(Kiln.COLD)
        assert list(metrics.to_dict()) == [
            "state", "visit_count", "total_duration_seconds", "total_tokens", "avg_duration_seconds",
            "avg_tokens", "min_duration_seconds", "max_duration_seconds",
        ]  # fmt: skip
        assert StateMetrics.from_dict(metrics.to_dict(), Kiln) == metrics

    def test_sums_of_enormous_durations_stay_numbers_json_can_hold(self, kiln):
        """R-33"""
        kiln.transition(Kiln.HEATING, duration_seconds=1e308)
        kiln.transition(Kiln.HEATING, duration_seconds=1.7e308)
        kiln.transition(Kiln.FIRING, duration_seconds=1.7e308)
        json.dumps(
            [
                kiln.to_dict(), kiln.get_total_metrics(), kiln.get_bottleneck_analysis(),
                *(metrics.to_dict() for metrics in kiln.get_all_state_metrics().values()),
            ],
            allow_nan=False,
        )  # fmt: skip
        assert "inf" not in kiln.format_metrics_report()

    def test_the_whole_object_survives_being_written_and_read(self, kiln):
        kiln.transition(Kiln.HEATING, {"a": [1]}, "lit", 1.5, 3)
        kiln.transition(Kiln.FIRING)
        written = json.dumps(kiln.to_dict(), allow_nan=False)
        read = StateMachine.from_dict(TABLE, json.loads(written))
        assert snapshot(read) == snapshot(kiln)
        assert json.dumps(read.to_dict()) == written

    def test_what_is_written_names_its_table(self, kiln):
        written = kiln.to_dict()
        assert written["schema_version"] == 1
        assert written["machine"] == {"name": "Kiln", "version": 1, "fingerprint": TABLE.fingerprint}
        assert list(written) == [
            "schema_version", "machine", "current_state", "iteration_count", "max_iterations", "history",
        ]  # fmt: skip

    def test_a_smaller_form_is_read_with_the_defaults(self):
        plain = {
            "current_state": "heating",
            "iteration_count": 1,
            "history": [{"from_state": "cold", "to_state": "heating", "timestamp": 5, "reason": None}],
        }
        read = StateMachine.from_dict(TABLE, plain)
        assert snapshot(read) == (Kiln.HEATING, [StateTransition(Kiln.COLD, Kiln.HEATING, 5.0, {})], 1, 3)

    MOVE = {"from_state": "cold", "to_state": "heating", "timestamp": 5.0}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"schema_version": 2}, "schema_version"),
            ({"machine": "Kiln"}, "machine"),
            ({"machine": {"name": "Kiln", "version": 1, "fingerprint": "0"}}, "machine"),
            ({"current_state": "baking"}, "current_state"),
            ({"current_state": None}, "current_state"),
            ({"current_state": "cold"}, "current_state"),
            ({"iteration_count": -1}, "iteration_count"),
            ({"iteration_count": "1"}, "iteration_count"),
            ({"max_iterations": 0}, "max_iterations"),
            ({"history": {}}, "history"),
            ({"history": [5]}, "history[0]"),
            ({"history": [{**MOVE, "to_state": "baking"}]}, "history[0].to_state"),
            ({"history": [{**MOVE, "from_state": "heating", "to_state": "done"}]}, "history[0].to_state"),
            ({"history": [MOVE, {**MOVE, "from_state": "firing"}]}, "history[1].from_state"),
            ({"history": [{**MOVE, "tokens_consumed": -1}]}, "history[0]"),
            ({"history": [{**MOVE, "duration_seconds": math.inf}]}, "history[0]"),
            ({"history": [{**MOVE, "duration_seconds": "long"}]}, "history[0]"),
            ({"history": [{**MOVE, "timestamp": math.nan}]}, "history[0]"),
            ({"history": [{**MOVE, "context": []}]}, "history[0]"),
            ({"history": [{"from_state": "cold", "to_state": "heating"}]}, "history[0].timestamp"),
        ],
    )
    def test_a_damaged_or_foreign_form_is_refused_by_field(self, change, field):
        whole = {"current_state": "heating", "iteration_count": 0, "history": [self.MOVE]}
        StateMachine.from_dict(TABLE, whole)
        with pytest.raises(RestoreError) as refused:
            StateMachine.from_dict(TABLE, {**whole, **change})
        assert refused.value.field == field
        assert str(refused.value).startswith(f"{field}: ")

    def test_another_table_is_refused_with_the_difference(self, kiln):
        changed = Machine("Kiln", version=2, start=Kiln.COLD, moves=TABLE.moves, ends=TABLE.ends)
        with pytest.raises(RestoreError, match="version 1 → 2, fingerprint"):
            StateMachine.from_dict(changed, kiln.to_dict())

    def test_something_else_altogether_is_refused(self):
        with pytest.raises(RestoreError):
            StateMachine.from_dict(TABLE, ["not", "a", "mapping"])  # type: ignore[arg-type]


def journal(*bodies: Body) -> list[Entry]:
    return [Entry(seq, 1000.0 + seq, 1, body) for seq, body in enumerate(bodies, 1)]


STARTED = Started("kiln", "cold", "Kiln", 1, TABLE.fingerprint)


class TestFolding:
    def test_each_move_of_the_journal_is_a_transition(self):
        spend = Spend(10, 5, 0.1)
        machine = StateMachine.from_journal(
            TABLE,
            journal(
                STARTED,
                Moved("cold", "heating", reason="lit", duration=2.5, spend=spend),
                AttemptFailed("firing", 1, "Timeout", "slow", duration=9.0, spend=spend),
                Noted("weather", {"rain": True}),
                Moved("heating", "firing", iteration=True),
                Moved("firing", "done", reason="y" * 300, status=Status.SUCCEEDED),
            ),
            max_iterations=5,
        )
        assert machine.history == [
            StateTransition(Kiln.COLD, Kiln.HEATING, 1002.0, {}, "lit", 2.5, 15),
            StateTransition(Kiln.HEATING, Kiln.FIRING, 1005.0),
            StateTransition(Kiln.FIRING, Kiln.DONE, 1006.0, {}, "y" * 200),
        ]
        assert machine.current_state is Kiln.DONE
        assert (machine.iteration_count, machine.max_iterations) == (1, 5)

    def test_no_entries_give_a_new_machine(self):
        assert snapshot(StateMachine.from_journal(TABLE, [])) == (Kiln.COLD, [], 0, 3)

    def test_a_run_that_started_elsewhere_stands_there(self):
        started = Started("kiln", "firing", "Kiln", 1, TABLE.fingerprint)
        assert StateMachine.from_journal(TABLE, journal(started)).current_state is Kiln.FIRING

    def test_iterations_are_those_the_journal_marks(self):
        entries = journal(STARTED, Moved("cold", "heating", iteration=True), Moved("heating", "firing"))
        machine = StateMachine.from_journal(TABLE, entries, counts=lambda *_: True)
        assert machine.iteration_count == 1
        machine.transition(Kiln.DONE)
        assert machine.iteration_count == 2

    def test_a_reopened_run_stands_where_it_was_sent_without_a_move(self):
        entries = journal(STARTED, Moved("cold", "heating"), Moved("heating", "cracked"), Reopened("heating"))
        machine = StateMachine.from_journal(TABLE, entries)
        assert machine.current_state is Kiln.HEATING
        assert len(machine.history) == 2
        assert not machine.is_terminal()

    def test_a_fork_goes_on_from_where_its_copied_part_stands(self):
        entries = journal(STARTED, Moved("cold", "heating"), Forked({"x": 1}), Moved("heating", "firing"))
        machine = StateMachine.from_journal(TABLE, entries)
        assert machine.current_state is Kiln.FIRING
        assert len(machine.history) == 2

    def test_a_run_over_without_a_move_stays_in_its_state(self):
        entries = journal(STARTED, Moved("cold", "heating"), Ended(Status.CANCELLED))
        assert StateMachine.from_journal(TABLE, entries).current_state is Kiln.HEATING

    def test_a_migrated_run_keeps_what_it_spent_in_states_that_are_gone(self):
        entries = journal(
            Started("kiln", "damp", "Kiln", 1, "old"),
            Moved("damp", "drying", duration=3.0, spend=Spend(7)),
            Migrated(2, TABLE.fingerprint, "cold"),
            Moved("cold", "heating", duration=1.0),
        )
        machine = StateMachine.from_journal(TABLE, entries)
        assert machine.current_state is Kiln.HEATING
        assert machine.get_total_metrics()["total_duration_seconds"] == 4.0
        assert machine.get_total_metrics()["state_visits"] == {"damp": 1, "cold": 1}
        assert machine.get_all_state_metrics()[Kiln.COLD].visit_count == 1
        assert machine.get_bottleneck_analysis()["slowest_state"]["state"] == "cold"
        assert "  damp: 1" in machine.format_metrics_report()

    @pytest.mark.parametrize(
        "entries",
        [
            journal(STARTED, Moved("cold", "damp")),
            journal(STARTED, Moved("cold", "damp"), Moved("damp", "heating")),
            journal(STARTED, Migrated(2, "x", "damp")),
            journal(Started("kiln", "damp", "Kiln", 1, "old")),
        ],
    )
    def test_a_journal_of_another_machine_is_refused(self, entries):
        with pytest.raises(ValueError, match="'damp'"):
            StateMachine.from_journal(TABLE, entries)


def test_importing_it_loads_no_engine_store_loop_or_settings_library():
    """R-37: the machine can be used and tested alone."""
    code = """
import sys
before = set(sys.modules)
import detent.engine.state_machine
print("\\n".join(sorted(set(sys.modules) - before)))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "detent.engine.state_machine" in loaded
    foreign = {"asyncio", "sqlite3", "structlog", "pydantic", "yaml", "typer", "rich", "psycopg", "numpy"}
    assert not foreign & {name.partition(".")[0] for name in loaded}
    ours = {name for name in loaded if name.startswith("detent.") and not name.startswith("detent.kernel")}
    assert ours == {
        "detent.front_door", "detent.engine", "detent.engine.logger", "detent.engine.state_machine",
    }  # fmt: skip
