"""What checking a value may cost, counted in steps."""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator

from detent.engine.schema_keywords import FREE_STEPS, STEPS_EACH, TooMuchWork, Work, bounded, errors_of
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


ROWS = 5_000
NAMES = [f"n{number}" for number in range(2_000)]


def test_a_large_value_is_checked_to_its_end_with_steps_to_spare():
    rows = [{"id": n, "name": str(n), "tags": ["a", "b"]} for n in range(ROWS)]
    tags = {"type": "array", "items": {"enum": ["a", "b"]}}
    row = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"pattern": "^[0-9]+$"}, "tags": tags},
        "required": ["id", "name", "tags"],
    }
    schema = {"type": "array", "items": {"anyOf": [{"type": "null"}, row]}}
    work = Work(rows)
    assert list(errors_of(validator(schema), rows, work)) == []
    assert FREE_STEPS < work.steps < FREE_STEPS + ROWS * STEPS_EACH * 6 / 4  # six values a row


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"items": {"type": "integer"}}, [0] * 1000),
        ({"items": {}}, [0] * 1000),
        ({"contains": {"type": "null"}}, [0] * 1000),
        ({"uniqueItems": True}, list(range(1000))),
        ({"uniqueItems": True}, [list(range(1000))]),
        ({"enum": [[]]}, [{"a": list(range(1000))}]),
        ({"const": []}, [{"a": list(range(1000))}]),
        ({"const": list(range(1000))}, []),
        ({"propertyNames": True}, dict.fromkeys(NAMES)),
        ({"additionalProperties": True}, dict.fromkeys(NAMES)),
        ({"patternProperties": {"^x": {}, "^y": {}}}, dict.fromkeys(NAMES)),
        ({"properties": dict.fromkeys(NAMES, True)}, {}),
        ({"required": NAMES}, dict.fromkeys(NAMES)),
        ({"dependentRequired": {name: ["x"] for name in NAMES}}, {}),
        ({"dependentSchemas": {name: {} for name in NAMES}}, {}),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) and len(case) == 1 else "",
)
def test_a_keyword_counts_for_as_much_as_it_goes_through(part, value):
    """Repeated often enough, none of them goes on past what the value's size allows."""
    schema = {"allOf": [{"not": {"allOf": [part, False]}}] * 300}
    work = Work(value)
    with pytest.raises(TooMuchWork, match="takes too long to check"):
        list(errors_of(validator(schema), value, work))
    assert work.steps < FREE_STEPS + STEPS_EACH * 3000 + 4000


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
