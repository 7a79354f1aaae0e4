"""What checking a value may cost: counted in keywords applied, and in looks at a clock."""

from __future__ import annotations

from itertools import count, islice
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator

from detent.engine.schema_keywords import FREE_SECONDS, TooMuchWork, Work, bounded, errors_of
from detent.engine.schemas import MOST_TOLD, misfits

CODES = [f"code-{number}" for number in range(300)]
WRONG = [f"x{number}" for number in range(100_000)]


def validator(schema: dict[str, Any]) -> Any:
    return bounded(Draft202012Validator)(schema)


def steps_to(most: int, schema: dict[str, Any], value: Any) -> int:
    """Keywords applied until so many errors are found."""
    work = Work(value)
    assert list(islice(errors_of(validator(schema), value, work), most))
    return work.steps


def test_nothing_is_checked_beyond_the_errors_that_are_told():
    assert steps_to(MOST_TOLD, {"items": {"enum": CODES}}, WRONG) <= 2 * MOST_TOLD


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_of_an_alternative_only_the_first_errors_are_looked_for(word):
    schema = {word: [{"type": "array", "items": {"enum": CODES}}, {"type": "null"}]}
    assert steps_to(1, schema, WRONG) <= 3 * MOST_TOLD


def test_a_large_value_that_takes_too_long_does_not_fit():
    """The clock says that every look took as long as a whole small value may."""
    clock = count(0, FREE_SECONDS).__next__
    value = [0] * 1000
    work = Work(value, clock)
    with pytest.raises(TooMuchWork, match="takes too long to check"):
        list(errors_of(validator({"items": {"type": "integer"}}), value, work))
    assert work.steps < 100


def test_a_larger_value_may_take_longer():
    """A clock on which the look at each stretch of keywords takes half of what a small value may."""
    schema = {"items": {"type": "string"}}
    for length, fits in ((10, False), (1_000_000, True)):
        value = ["a" * length] * 100
        work = Work(value, count(0, FREE_SECONDS / 2).__next__)
        checked = errors_of(validator(schema), value, work)
        if fits:
            assert list(checked) == []
        else:
            with pytest.raises(TooMuchWork):
                list(checked)


def test_what_is_told_of_a_long_wrong_list_is_its_beginning_in_order():
    problems = misfits(WRONG, {"items": {"enum": CODES}})
    assert [line.partition(":")[0] for line in problems] == [f"/{number}" for number in range(MOST_TOLD)]


def test_of_a_class_too_only_the_first_problems_of_a_long_wrong_list_are_told():
    problems = misfits(WRONG, list[Literal["a", "b"]])
    assert problems == [f"/{number}: must be one of a, b" for number in range(MOST_TOLD)]


@pytest.mark.parametrize(
    ("value", "choices", "fits"),
    [
        (1, [1.0], True),
        (1, [True], False),
        (True, [1], False),
        (None, [None], True),
        ({"a": [1, 2]}, [{"a": [1.0, 2]}], True),
        ({"a": [1, 2]}, [{"a": [2, 1]}], False),
        ("1", [1], False),
        ([], [{}], False),
    ],
)
def test_a_choice_is_found_as_json_compares(value, choices, fits):
    assert (misfits(value, {"enum": choices}) == []) is fits


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, []),
        (15, ["/: fits more than one alternative"]),
        ("x", ["/: must be an integer or a number"]),
    ],
)
def test_one_alternative_is_one(value, expected):
    schema = {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 10}]}
    assert misfits(value, schema) == expected
