"""Conditions on edges."""

from typing import Any

import pytest

from detent.kernel.guards import Guard, dig, when


@pytest.mark.parametrize(
    ("condition", "data", "holds"),
    [
        ({}, {}, True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {}, False),
        ({"a": None}, {}, True),
        ({"a": "x", "b": "y"}, {"a": "x", "b": "y"}, True),
        ({"a": "x", "b": "y"}, {"a": "x", "b": "z"}, False),
        ({"a.b.c": 1}, {"a": {"b": {"c": 1}}}, True),
        ({"a.b.c": 1}, {"a": {"b": 3}}, False),
        ({"a.0": 1}, {"a": [1, 2]}, True),
        ({"a.-1": 2}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": 2}, True),
        ({"a": (1, 2)}, {"a": 3}, False),
        ({"a": []}, {"a": 3}, False),
        ({"a": "present"}, {"a": 0}, True),
        ({"a": "present"}, {"a": False}, True),
        ({"a": "present"}, {"a": ""}, False),
        ({"a": "present"}, {"a": []}, False),
        ({"a": "present"}, {"a": {}}, False),
        ({"a": "present"}, {"a": None}, False),
        ({"a": "present"}, {}, False),
        ({"a": "absent"}, {}, True),
        ({"a": "absent"}, {"a": "x"}, False),
        ({"a": ["present"]}, {"a": "present"}, True),
        ({"a": ["present"]}, {"a": "x"}, False),
    ],
)
def test_a_condition_written_as_data_holds_when_every_key_does(condition, data, holds):
    assert when(condition)(data) is holds


@pytest.mark.parametrize(("value", "wanted"), [(1, True), (True, 1), (0, False), (False, 0)])
def test_true_is_not_one(value, wanted):
    assert not when({"a": wanted})({"a": value})


def test_the_name_of_a_condition_is_its_canonical_text():
    assert when({"b": 1, "a": [2, 3]}).name == when({"a": (2, 3), "b": 1}).name == '{"a":[2,3],"b":1}'


def test_a_condition_changed_after_it_was_given_changes_nothing():
    condition: dict[str, Any] = {"a": [1]}
    guard = when(condition)
    condition["a"].append(2)
    condition["b"] = 5
    assert guard({"a": 1})
    assert not guard({"a": 2})


def test_a_guard_answers_with_a_boolean_and_goes_by_its_name():
    guard = Guard("has items", lambda data: data.get("items"))  # type: ignore[arg-type, return-value]
    assert guard({"items": [1]}) is True
    assert guard({}) is False
    assert str(guard) == "has items"


def test_a_guard_cannot_be_changed():
    with pytest.raises(AttributeError):
        when({"a": 1}).name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("dotted", ["a.5", "a.-3", "a.x", "a.--1", "a.²", "a.0.b", "b", "a.", ""])
def test_a_way_that_ends_early_gives_the_default(dotted):
    assert dig({"a": [1, 2]}, dotted, "default") == "default"


def test_text_is_not_a_sequence_to_dig_in():
    assert dig({"a": "text"}, "a.0") is None
