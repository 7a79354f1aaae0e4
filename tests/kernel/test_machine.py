"""The table: checked when made, never changed, the same everywhere."""

import copy
import os
import subprocess
import sys
from enum import Enum

import pytest

from detent.kernel.errors import DefinitionError, GuardRefusedError, InvalidTransitionError
from detent.kernel.guards import Guard, when
from detent.kernel.machine import Machine, MachineProblem, Move, changes, difference
from detent.kernel.status import Status


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"
    LOCKED = "locked"
    GONE = "gone"


def door(**changes) -> Machine[Door]:
    return Machine(**{
        "name": "door",
        "start": Door.OPEN,
        "moves": {
            Door.OPEN: [Door.SHUT, Door.GONE],
            Door.SHUT: [Door.LOCKED, Door.OPEN],
            Door.LOCKED: [Door.SHUT],
        },
        "ends": {Door.GONE: Status.SUCCEEDED},
        **changes,
    })  # fmt: skip


def codes(**definition) -> list[str]:
    with pytest.raises(DefinitionError) as refused:
        Machine(**{"name": "m", "start": "a", "moves": {}, "ends": ["end"], **definition})
    assert all(isinstance(problem, MachineProblem) for problem in refused.value.problems)
    return [problem.code for problem in refused.value.problems]


class TestStaticChecks:
    @pytest.mark.parametrize("definition", [{"name": ""}, {"version": 0}, {"version": "1"}])
    def test_m01_a_machine_has_a_name_and_a_version(self, definition):
        assert codes(moves={"a": ["end"]}, **definition) == ["M01"]

    def test_m02_the_start_is_no_end(self):
        assert "M02" in codes(start="end", moves={"a": ["end"]})

    def test_m03_there_is_an_end(self):
        assert codes(moves={"a": ["b"], "b": ["a"]}, ends=[]) == ["M03"]

    def test_m05_an_end_has_a_final_status(self):
        assert codes(moves={"a": ["end"]}, ends={"end": Status.WAITING}) == ["M05"]
        assert codes(moves={"a": ["end"]}, ends={"end": "succeeded"}) == ["M05"]

    def test_m06_nothing_leaves_an_end(self):
        assert codes(moves={"a": ["end"], "end": ["a"]}) == ["M06"]

    def test_m07_every_target_is_a_state_and_the_nearest_name_is_told(self):
        with pytest.raises(DefinitionError) as refused:
            Machine("m", start="plan", moves={"plan": ["judgge", "judge"], "judge": ["end"]}, ends=["end"])
        assert [problem.code for problem in refused.value.problems] == ["M07"]
        assert "Did you mean 'judge'?" in str(refused.value)

    def test_m08_a_machine_in_which_staying_is_a_noop_lists_no_self_move(self):
        assert codes(moves={"a": ["a", "end"]}, self_moves="noop") == ["M08"]
        Machine("m", start="a", moves={"a": ["a", "end"]}, ends=["end"])

    def test_m09_no_move_is_listed_twice(self):
        assert codes(moves={"a": ["end", "end"]}) == ["M09"]
        guarded = Move("end", when=when({"x": 1}))
        Machine[str]("m", start="a", moves={"a": ["end", guarded]}, ends=["end"])

    def test_m10_no_move_stands_behind_one_that_always_wins(self):
        always, never = Move("b", event="done"), Move("end", event="done", when=when({"x": 1}))
        assert codes(moves={"a": [always, never], "b": ["end"]}) == ["M10"]
        Machine("m", start="a", moves={"a": [never, always], "b": ["end"]}, ends=["end"])

    def test_m11_only_an_end_is_a_dead_end(self):
        assert codes(moves={"a": ["b", "end"], "b": []}) == ["M11"]
        Machine("m", start="a", moves={"a": ["b", "end"], "b": []}, ends=["end"], may_end=["b"])

    def test_m12_every_state_can_be_reached(self):
        assert codes(moves={"a": ["end"], "b": ["end"]}) == ["M12"]
        assert codes(start=Door.OPEN, moves={Door.OPEN: [Door.GONE]}, ends=[Door.GONE]) == [
            "M11", "M11", "M12", "M12",
        ]  # fmt: skip

    def test_m13_there_is_a_way_out_of_every_loop(self):
        assert codes(moves={"a": ["b", "end"], "b": ["c"], "c": ["b"]}) == ["M13", "M13"]
        Machine(
            "m", start="a", moves={"a": ["b", "end"], "b": ["c"], "c": ["b"]}, ends=["end"], may_end=["c"]
        )

    def test_m14_no_two_states_share_a_name(self):
        assert codes(start=1, moves={1: ["1", "end"], "1": ["end"]}) == ["M14"]

    def test_all_problems_are_told_at_once(self):
        found = codes(name="", moves={"a": ["a", "nowhere", "b"], "b": []}, self_moves="noop", ends=[])
        assert found[:2] == ["M01", "M03"]
        assert {"M07", "M08", "M11"} <= set(found)

    def test_a_problem_says_its_code_and_where_it_is(self):
        with pytest.raises(DefinitionError) as refused:
            Machine("m", start="a", moves={"a": ["b", "end"], "b": []}, ends=["end"])
        assert str(refused.value) == (
            "Machine 'm' has 1 problem:\n"
            "  M11 'b': is a dead end: it has no moves and is not declared as an end."
        )

    def test_a_single_text_in_place_of_a_collection_is_refused(self):
        with pytest.raises(TypeError, match="'end' is a single text"):
            Machine("m", start="a", moves={"a": "end"}, ends=["end"])
        with pytest.raises(TypeError, match="'end' is a single text"):
            Machine("m", start="a", moves={"a": ["end"]}, ends="end")


class TestM04:
    """Names used in `ends`, `may_end` and `moves` must be states; an enum says which those are."""

    def test_an_end_that_is_no_state(self):
        with pytest.raises(DefinitionError) as refused:
            door(ends={Door.GONE: Status.SUCCEEDED, "elsewhere": Status.FAILED})
        assert [(p.code, p.where) for p in refused.value.problems] == [("M04", "'elsewhere'")]

    def test_states_that_may_end_but_are_none_in_a_fixed_order(self):
        with pytest.raises(DefinitionError) as refused:
            door(may_end=["zig", "attic", "moor"])
        assert [p.where for p in refused.value.problems] == ["'attic'", "'moor'", "'zig'"]
        assert {p.code for p in refused.value.problems} == {"M04"}

    def test_moves_of_a_state_that_is_none_name_the_nearest(self):
        moves = {state: [*row] for state, row in door().moves.items()}
        with pytest.raises(DefinitionError, match="M04 'locket': .* Did you mean 'locked'?"):
            door(moves={**moves, "locket": [Door.GONE]})


class TestFingerprint:
    def test_the_same_table_made_twice_is_the_same_machine(self):
        assert door() == door()
        assert hash(door()) == hash(door())
        assert len(door().fingerprint) == 16

    @pytest.mark.parametrize(
        "change",
        [
            {"name": "gate"},
            {"version": 2},
            {"self_moves": "noop"},
            {"may_end": [Door.SHUT]},
            {"ends": {Door.GONE: Status.FAILED}},
            {"moves": {Door.OPEN: [Door.GONE, Door.SHUT], Door.SHUT: [Door.LOCKED, Door.OPEN],
                       Door.LOCKED: [Door.SHUT]}},
            {"moves": {Door.OPEN: [Door.SHUT, Door.GONE], Door.SHUT: [Door.LOCKED, Door.OPEN],
                       Door.LOCKED: [Move(Door.SHUT, when=when({"key": "present"}))]}},
            {"moves": {Door.OPEN: [Door.SHUT, Door.GONE], Door.SHUT: [Door.LOCKED, Door.OPEN],
                       Door.LOCKED: [Move(Door.SHUT, event="turn")]}},
            {"moves": {Door.OPEN: [Door.SHUT, Door.GONE], Door.SHUT: [Door.LOCKED, Door.OPEN],
                       Door.LOCKED: [Move(Door.SHUT, reason="unlocked")]}},
        ],
    )  # fmt: skip
    def test_any_change_of_the_law_changes_it(self, change):
        assert door(**change).fingerprint != door().fingerprint
        assert door(**change) != door()

    def test_sets_are_read_in_the_order_of_the_enum(self):
        moves = {
            Door.OPEN: {Door.GONE, Door.SHUT},
            Door.SHUT: {Door.LOCKED, Door.OPEN},
            Door.LOCKED: {Door.SHUT},
        }
        machine = door(moves=moves, ends={Door.GONE})
        assert machine.allowed(Door.OPEN) == (Door.SHUT, Door.GONE)
        assert machine.allowed(Door.SHUT) == (Door.OPEN, Door.LOCKED)

    def test_the_row_order_of_the_definition_does_not_matter_for_an_enum(self):
        moves = dict(reversed(list(door().moves.items())))
        assert door(moves=moves) == door()

    def test_it_is_the_same_whatever_the_hash_seed(self):
        """Sets of texts are read in another order in every process; the fingerprint must not care."""
        code = """
from enum import Enum
from detent.kernel.machine import Machine
from detent.kernel.guards import when
from detent.kernel.machine import Move
E = Enum("E", {name: name for name in ["one", "two", "three", "four", "five"]}, type=str)
typed = Machine("e", start=E.one, ends={E.four, E.five}, may_end={E.two, E.three},
    moves={E.one: set(E) - {E.one}, E.two: {E.three, E.one}, E.three: {E.two, E.five}})
ends = {"done", "failed", "cancelled", "lost", "found"}
text = Machine("t", start="a", ends=ends, may_end={"a", "b", "c"},
    moves={"a": {"b", "c", *ends}, "b": {"a", "c"}, "c": {Move("a"), Move("b", when=when({"x": [1, 2]}))}})
print(typed.fingerprint, text.fingerprint)
"""
        told = set()
        for seed in ("0", "1", "2", "3", "4"):
            env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
            run = subprocess.run(
                [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
            )
            told.add(run.stdout)
        assert len(told) == 1

    def test_this_table_has_this_fingerprint(self):
        """If this fails, every stored run would be refused: change it on purpose or find the mistake."""
        assert door().fingerprint == "5d8faa9af49e61de"


class TestDifference:
    def test_equal_tables_have_none(self):
        assert difference(door().describe(), door().describe()) == []

    def test_it_names_what_changed_one_thing_a_line(self):
        old = Machine("m", start="a", moves={"a": ["b", "end"], "b": ["end", "a"]}, ends=["end"])
        new = Machine(
            "m",
            version=2,
            start="a",
            moves={"a": ["c", Move("end", event="stop", when=when({"x": 1}))], "c": ["end"]},
            ends={"end": Status.FAILED},
            may_end=["c"],
            self_moves="noop",
        )
        assert difference(old.describe(), new.describe()) == [
            "version: 1 → 2",
            "self_moves: error → noop",
            "state removed: b",
            "state added: c",
            "move removed: a → b",
            "move removed: a → end",
            "move added: a → c",
            'move added: a → end on stop when {"x":1}',
            "move removed: b → end",
            "move removed: b → a",
            "move added: c → end",
            "end end: succeeded → failed",
            "may_end: [] → ['c']",
        ]

    def test_a_change_of_order_is_a_change(self):
        old = Machine("m", start="a", moves={"a": ["b", "end"], "b": ["end"]}, ends=["end"])
        new = Machine("m", start="a", moves={"a": ["end", "b"], "b": ["end"]}, ends=["end"])
        assert difference(old.describe(), new.describe()) == ["moves of a reordered: b, end → end, b"]

    def test_what_a_flow_adds_to_the_description_is_compared_too(self):
        old = {**door().describe(), "steps": {"a": 1, "b": 1}, "note": "x"}
        new = {**door().describe(), "steps": {"a": 2, "c": 1}, "note": "y"}
        assert difference(old, new) == [
            "steps a: 1 → 2", "steps b: 1 → None", "steps c: None → 1", "note: x → y",
        ]  # fmt: skip

    def test_lists_of_named_things_are_compared_by_name_and_values_are_short(self):
        one, two, three = ({"name": name, "with": {"x": 1}} for name in ("one", "two", "three"))
        other = {"name": "two", "with": {"x": "y" * 200}, "of": [{"k": 1}, {"k": 2}]}
        old = {"steps": [one, {**two, "of": [{"k": 1}, {"k": 3}]}, three]}
        assert changes(old, {"steps": [other, one, {"name": "four"}]}) == [
            "steps three: removed",
            "steps four: added",
            f"steps two with x: 1 → {'y' * 79}…",
            "steps two of [1] k: 3 → 2",
            "steps reordered: one, two → two, one",
        ]
        assert changes([1, 2], [1, 3], "list") == ["list: [1, 2] → [1, 3]"]
        assert changes({"a": 1}, {"a": 1}) == []

    def test_the_label_of_a_move_and_the_order_of_states_are_told_too(self):
        """Both stand in the fingerprint, so a refusal must be able to say them."""
        old = Machine("m", start="a", moves={"a": ["b", "end"], "b": ["c"], "c": ["end"]}, ends=["end"])
        new = Machine(
            "m",
            start="a",
            moves={"a": ["b", Move("end", reason="enough")], "c": ["end"], "b": ["c"]},
            ends=["end"],
        )
        assert old.fingerprint != new.fingerprint
        assert difference(old.describe(), new.describe()) == [
            "states reordered: a, b, c, end → a, c, b, end",
            "move removed: a → end",
            "move added: a → end because 'enough'",
        ]


class TestAsking:
    def test_allowed_targets_come_in_table_order_each_once(self):
        guarded = Move("b", when=when({"x": 1}))
        machine = Machine("m", start="a", moves={"a": [guarded, "end", "b"], "b": ["end"]}, ends=["end"])
        assert machine.allowed("a") == ("b", "end")
        assert machine.allowed("end") == ()

    def test_allows_agrees_with_allowed(self):
        machine = door()
        for state in Door:
            for to in Door:
                assert machine.allows(state, to) == (to in machine.allowed(state))

    def test_states_go_by_their_text(self):
        machine = door()
        assert machine.state("locked") is Door.LOCKED
        assert machine.state(Door.LOCKED) is Door.LOCKED
        assert machine.named(Door.LOCKED) == "locked"
        assert machine.has("gone")
        assert not machine.has("GONE")

    def test_an_unknown_state_names_the_nearest(self):
        with pytest.raises(ValueError, match="no state 'lockd'. Did you mean 'locked'?"):
            door().state("lockd")

    def test_a_member_of_another_enum_that_equals_ours_is_taken_for_ours(self):
        class Ours(str, Enum):
            A = "a"
            END = "end"

        class Theirs(str, Enum):
            A = "a"

        machine = Machine("m", start=Ours.A, moves={Ours.A: [Ours.END]}, ends=[Ours.END])
        assert machine.state(Theirs.A) is Ours.A

    def test_an_end_listed_without_a_status_gets_it_by_its_name(self):
        ends = ["failed", "budget_exhausted", "done", "running"]
        machine = Machine("m", start="a", moves={"a": ends}, ends=ends)
        assert dict(machine.ends) == {
            "failed": Status.FAILED,
            "budget_exhausted": Status.BUDGET_EXHAUSTED,
            "done": Status.SUCCEEDED,
            "running": Status.SUCCEEDED,
        }

    def test_route_to_finds_a_direct_end_of_a_status(self):
        machine = Machine(
            "m", start="a", moves={"a": ["b", "failed"], "b": ["done"]}, ends=["failed", "done"]
        )
        assert machine.route_to("a", Status.FAILED) == "failed"
        assert machine.route_to("a", Status.SUCCEEDED) is None
        assert machine.route_to("b", Status.SUCCEEDED) == "done"

    def test_route_to_takes_the_first_end_in_the_table_whose_condition_holds_whatever_its_event(self):
        machine = Machine(
            "claim",
            start="check",
            moves={
                "check": [
                    "paid",
                    Move("void", when=when({"void": [True]})),
                    Move("rejected", event="reject"),
                    "broken",
                ]
            },
            ends={
                "paid": Status.SUCCEEDED,
                "void": Status.FAILED,
                "rejected": Status.FAILED,
                "broken": Status.FAILED,
            },
        )
        assert machine.route_to("check", Status.FAILED, {}) == "rejected"
        assert machine.route_to("check", Status.FAILED, {"void": True}) == "void"
        assert machine.route_to("check", Status.CANCELLED, {}) is None


class TestChoosing:
    """Whoever performed the step: the guards on the edges choose the move."""

    @pytest.fixture
    def machine(self):
        return Machine(
            "desk",
            start="desk",
            moves={
                "desk": [
                    Move("valid", event="checked", when=when({"covered": True})),
                    Move("invalid", event="checked", when=when({"covered": False})),
                    Move("ask", event="unclear"),
                    Move("ask", event="checked", when=Guard("no date", lambda data: "date" not in data)),
                ],
                "ask": ["desk", "valid", "invalid"],
            },
            ends={"valid": Status.SUCCEEDED, "invalid": Status.FAILED},
        )

    def test_the_first_move_whose_condition_holds_is_taken(self, machine):
        assert machine.choose("desk", {"covered": True}).to == "valid"
        assert machine.choose("desk", {"covered": False}).to == "invalid"
        assert machine.choose("desk", {}).event == "unclear"

    def test_an_event_narrows_the_choice(self, machine):
        assert machine.choose("desk", {}, event="checked").to == "ask"
        assert machine.choose("desk", {"covered": True}, event="unclear").to == "ask"

    def test_a_target_narrows_the_choice(self, machine):
        assert machine.choose("ask", {}, to="invalid") == Move("invalid")
        assert machine.choose("desk", {"date": 1}, to="ask").event == "unclear"
        assert machine.choose("desk", {}, to="ask", event="checked").when.name == "no date"

    def test_a_condition_that_does_not_hold_refuses_even_the_named_target(self, machine):
        with pytest.raises(GuardRefusedError) as refused:
            machine.choose("desk", {"covered": False}, to="valid")
        assert refused.value.from_state == "desk"
        assert refused.value.to_state == "valid"
        assert 'valid needs {"covered":true}' in str(refused.value)

    def test_no_condition_that_holds_refuses_the_event(self, machine):
        with pytest.raises(GuardRefusedError):
            machine.choose("desk", {"date": 1}, event="checked")

    def test_a_target_the_table_does_not_list_is_refused_with_those_it_does(self, machine):
        with pytest.raises(InvalidTransitionError) as refused:
            machine.choose("desk", {}, to="desk")
        assert not isinstance(refused.value, GuardRefusedError)
        assert refused.value.valid == ["valid", "invalid", "ask"]

    def test_an_event_the_state_does_not_know_is_refused_with_those_it_does(self, machine):
        with pytest.raises(InvalidTransitionError, match="Events here: checked, unclear."):
            machine.choose("desk", {}, event="explode")

    def test_nothing_leaves_an_end(self, machine):
        with pytest.raises(InvalidTransitionError):
            machine.choose("valid", {})


class TestImmutability:
    @pytest.mark.parametrize("name", ["name", "version", "start", "moves", "ends", "fingerprint", "states"])
    def test_no_attribute_can_be_set_or_deleted(self, name):
        machine = door()
        with pytest.raises(AttributeError, match="immutable"):
            setattr(machine, name, None)
        with pytest.raises(AttributeError, match="immutable"):
            delattr(machine, name)

    def test_its_mappings_cannot_be_changed(self):
        machine = door()
        with pytest.raises(TypeError):
            machine.moves[Door.GONE] = (Move(Door.OPEN),)  # type: ignore[index]
        with pytest.raises(TypeError):
            machine.ends[Door.OPEN] = Status.FAILED  # type: ignore[index]

    def test_what_it_was_made_from_may_change_afterwards(self):
        row, ends = [Door.SHUT, Door.GONE], {Door.GONE: Status.SUCCEEDED}
        machine = door(moves={**door().moves, Door.OPEN: row}, ends=ends)
        row.append(Door.LOCKED)
        ends[Door.OPEN] = Status.FAILED
        assert machine == door()
        assert machine.allowed(Door.OPEN) == (Door.SHUT, Door.GONE)

    def test_a_description_handed_out_is_the_caller_s_own(self):
        machine = door()
        machine.describe()["moves"]["open"].clear()
        assert machine.describe() == door().describe()

    def test_a_copy_of_it_is_itself(self):
        machine = door()
        assert copy.copy(machine) is copy.deepcopy(machine) is machine
