"""Inputs of a workflow, from whoever gives them."""

import hashlib
import json
import math
from dataclasses import dataclass
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.authoring.problem import Place
from detent.flows.workflow.inputs import (
    InputProblem,
    InputsError,
    coerce,
    inputs_hash,
    misfit,
    variable,
)
from detent.flows.workflow.spec import InputSpec
from detent.kernel.errors import ConfigurationError
from tests.flows.workflow.expressions.test_evaluation import exactly

HERE = Place("flow.yaml", 3)
TYPES = ("string", "integer", "boolean", "float", "object", "array")


def spec(name="x", type="string", **more):
    more.setdefault("required", "default" not in more)
    return InputSpec(name, type, HERE, has_default="default" in more, **more)


def declared(*specs):
    return {one.name: one for one in specs}


@dataclass
class Rules:
    strict: bool
    names: tuple[str, ...]


FITTING = [
    ("string", "text", "text"),
    ("string", "", ""),
    ("string", "5", "5"),
    ("string", "true", "true"),
    ("string", " spaced ", " spaced "),
    ("string", "${{ inputs.x }}", "${{ inputs.x }}"),
    ("integer", "5", 5),
    ("integer", "+5", 5),
    ("integer", "-5", -5),
    ("integer", "007", 7),
    ("integer", 5, 5),
    ("integer", 5.0, 5),
    ("integer", -0.0, 0),
    ("integer", "9" * 4000, int("9" * 4000)),
    ("float", "5", 5.0),
    ("float", "2.5", 2.5),
    ("float", "-2.5e3", -2500.0),
    ("float", ".5", 0.5),
    ("float", "5.", 5.0),
    ("float", "+1E-2", 0.01),
    ("float", 5, 5.0),
    ("float", 2.5, 2.5),
    ("boolean", True, True),
    ("boolean", False, False),
    ("boolean", "true", True),
    ("boolean", "TRUE", True),
    ("boolean", "yes", True),
    ("boolean", "Yes", True),
    ("boolean", "1", True),
    ("boolean", 1, True),
    ("boolean", "false", False),
    ("boolean", "No", False),
    ("boolean", "0", False),
    ("boolean", 0, False),
    ("object", {"a": [1]}, {"a": [1]}),
    ("object", '{"a": [1, null]}', {"a": [1, None]}),
    ("object", "{}", {}),
    ("object", MappingProxyType({"a": 1}), {"a": 1}),
    ("object", Rules(True, ("a",)), {"strict": True, "names": ["a"]}),
    ("array", [1, "a"], [1, "a"]),
    ("array", (1, 2), [1, 2]),
    ("array", "[1, [2]]", [1, [2]]),
    ("array", " [] ", []),
]

UNFIT = [
    ("string", 5, "it takes text, not a number."),
    ("string", True, "not a boolean"),
    ("string", ["a"], "not a list"),
    ("string", {"a": 1}, "not a mapping"),
    ("string", b"a", "not a value of type bytes"),
    ("integer", "five", "it takes a whole number such as 3, not a text of 4 characters."),
    ("integer", "", "not a text of 0 characters"),
    ("integer", "5.0", "whole number"),
    ("integer", "1e3", "whole number"),
    ("integer", "1_000", "whole number"),
    ("integer", " 5", "whole number"),
    ("integer", "5\n", "whole number"),
    ("integer", "٥", "whole number"),
    ("integer", "0x10", "whole number"),
    ("integer", "--5", "whole number"),
    ("integer", 5.5, "not a number"),
    ("integer", True, "not a boolean"),
    ("integer", math.nan, "whole number"),
    ("integer", math.inf, "whole number"),
    ("integer", "9" * 1_000_000, "a number of 1000000 digits is too long"),
    ("float", "nan", "it takes a finite number such as 2.5"),
    ("float", "inf", "finite number"),
    ("float", "1e999", "not finite, or too large"),
    ("float", math.inf, "not finite, or too large"),
    ("float", math.nan, "not finite, or too large"),
    ("float", 10**400, "not finite, or too large"),
    ("float", "1,5", "finite number"),
    ("float", "1_0.5", "finite number"),
    ("float", "٥.٥", "finite number"),
    ("float", ".", "finite number"),
    ("float", "", "finite number"),
    ("float", True, "not a boolean"),
    ("boolean", "on", "it takes true or false"),
    ("boolean", "maybe", "not a text of 5 characters"),
    ("boolean", "", "true or false"),
    ("boolean", 2, "not a number"),
    ("boolean", 1.0, "not a number"),
    ("boolean", [], "not a list"),
    ("object", "[1]", "it takes a mapping or its JSON text, not a list."),
    ("object", "null", "not null"),
    ("object", "{a: 1}", "the text is no JSON (line 1, column 2)"),
    ("object", [1], "not a list"),
    ("object", 5, "not a number"),
    ("object", '{"a": NaN}', "or holds a number that is too long or none"),
    ("object", '{"a": 1e999}', "something that JSON cannot"),
    ("object", '{"a":' * 100_000, "nested too deeply"),
    ("object", {1: "a"}, "a key that is not text"),
    ("object", {"a": object()}, "not a plain value"),
    ("array", "{}", "it takes a list or its JSON text, not a mapping."),
    ("array", "a,b", "the text is no JSON"),
    ("array", '"[]"', "not a text of 2 characters"),
    ("array", "[" + "9" * 5000 + "]", "too long"),
    ("array", "[" * 100_000, "nested too deeply"),
    ("array", {"a": 1}, "not a mapping"),
    ("array", {1, 2}, "not a value of type set"),
]


@pytest.mark.parametrize(("type", "given", "value"), FITTING)
def test_a_value_is_made_to_fit_its_type(type, given, value):
    """D-64"""
    found = coerce(declared(spec(type=type)), {"x": given})
    assert exactly(found) == exactly({"x": value})
    assert misfit(spec(type=type), given) is None


@pytest.mark.parametrize(
    ("type", "given", "words"), UNFIT, ids=[f"{one}-{str(two)[:20]}" for one, two, _ in UNFIT]
)
def test_a_value_of_another_type_is_refused_in_words(type, given, words):
    """D-64"""
    with pytest.raises(InputsError) as refused:
        coerce(declared(spec(type=type)), {"x": given})
    assert words in refused.value.problems[0].message
    assert refused.value.problems[0].message == misfit(spec(type=type), given)


def test_all_problems_are_reported_together():
    """D-64"""
    inputs = declared(
        spec("count", "integer"), spec("push", "boolean", default=True), spec("name"),
        spec("token", secret=True), spec("fine", "array", default=[]),
    )  # fmt: skip
    with pytest.raises(InputsError) as refused:
        coerce(inputs, {"count": "many", "push": "perhaps", "nam": "x", "fine": "[]"}, environ={})
    assert isinstance(refused.value, ConfigurationError)
    assert refused.value.exit_code == 2
    assert [problem.name for problem in refused.value.problems] == ["nam", "count", "push", "name", "token"]
    assert str(refused.value).splitlines() == [
        "The inputs cannot be used, 5 problems:",
        "  nam: there is no such input. Did you mean 'name'? Inputs: count, push, name, token, fine.",
        "  count: it takes a whole number such as 3, not a text of 4 characters.",
        "  push: it takes true or false (1 or 0, yes or no), not a text of 7 characters.",
        "  name: a value is missing: this input is required and takes text.",
        "  token: this input is secret and required. Set the environment variable DETENT_INPUT_TOKEN.",
    ]


def test_what_was_typed_is_answered_with_how_to_type_it():
    """D-64"""
    inputs = declared(spec("rules", "object"), spec("size", enum=("small", "big")))
    with pytest.raises(InputsError) as refused:
        coerce(inputs, {"rules": "a=1", "size": "huge"}, from_text=True)
    assert refused.value.problems == (
        InputProblem(
            "rules",
            "the text is no JSON (line 1, column 1). It takes a mapping or its JSON text. "
            "Type it as -i rules='{\"a\": 1}'.",
        ),
        InputProblem("size", "it must be one of 'small', 'big'. Type it as -i size=small."),
    )


def test_an_optional_input_that_is_missing_is_its_default_or_null():
    """D-64"""
    inputs = declared(
        spec("a", required=False), spec("b", "integer", default=3), spec("c", "array", default=["x"]),
        spec("d", default=None),
    )  # fmt: skip
    assert coerce(inputs, {}) == {"a": None, "b": 3, "c": ["x"], "d": None}


def test_null_for_an_optional_input_is_the_same_as_not_giving_it():
    inputs = declared(spec("a", required=False), spec("b", "integer", default=3))
    assert coerce(inputs, {"a": None, "b": None}) == {"a": None, "b": 3}
    with pytest.raises(InputsError, match="it is null, but this input is required and takes text"):
        coerce(declared(spec("a")), {"a": None})


def test_defaults_are_made_to_fit_and_never_shared():
    default = {"a": []}
    inputs = declared(spec("o", "object", default=default), spec("y", "boolean", default="yes"))
    found = coerce(inputs, {})
    assert found == {"o": {"a": []}, "y": True}
    found["o"]["a"].append(1)
    assert default == {"a": []}


def test_what_was_given_is_never_shared():
    given = {"x": [{"a": 1}]}
    found = coerce(declared(spec(type="array")), given)
    found["x"][0]["a"] = 2
    assert given == {"x": [{"a": 1}]}


def test_inputs_come_in_the_order_declared():
    inputs = declared(spec("b"), spec("a"), spec("c", default="z"))
    assert list(coerce(inputs, {"a": "1", "b": "2"})) == ["b", "a", "c"]


def test_an_input_must_be_among_those_it_may_be():
    """D-64"""
    size = spec("size", enum=("small", "big"))
    level = spec("level", "integer", enum=(1, 2))
    assert coerce(declared(size, level), {"size": "big", "level": "2"}) == {"size": "big", "level": 2}
    assert misfit(size, "huge") == "it must be one of 'small', 'big'."
    assert misfit(level, 3) == "it must be one of 1, 2."
    assert misfit(level, "two") == "it takes a whole number such as 3, not a text of 3 characters."
    assert misfit(spec("flag", "boolean", enum=(1,)), True) is None, "1 is coerced as the value is"


def test_a_choice_of_the_wrong_type_is_a_mistake_of_the_file_and_nobody_can_choose_it():
    level = spec("level", "integer", enum=("one", 2))
    assert coerce(declared(level), {"level": "2"}) == {"level": 2}
    assert misfit(level, "one") == "it takes a whole number such as 3, not a text of 3 characters."


def test_a_value_nested_too_deeply_is_refused():
    value: list = []
    for _ in range(100_000):
        value = [value]
    assert misfit(spec(type="array"), value) == "it is nested too deeply."


def test_a_misfit_knows_null():
    assert misfit(spec(default=None), None) is None
    assert misfit(spec(required=False), None) is None
    assert misfit(spec(), None) == "it takes text, not null."


def test_no_message_shows_a_value():
    given = {type: "hunter2 [" if type != "string" else ["hunter2"] for type in TYPES}
    with pytest.raises(InputsError) as refused:
        coerce(declared(*(spec(type, type) for type in TYPES)), given)
    assert len(refused.value.problems) == len(TYPES)
    assert "hunter2" not in str(refused.value)


# --- secrets -----------------------------------------------------------------------------------------

TOKEN = spec("api_token", secret=True)
SET = {"DETENT_INPUT_API_TOKEN": "hunter2", "OTHER": "x"}


def test_a_secret_comes_from_the_environment_and_stands_by_its_name():
    """D-64"""
    assert coerce(declared(TOKEN), {}, environ=SET) == {"api_token": {"$secret": "api_token"}}
    assert variable("api_token") == "DETENT_INPUT_API_TOKEN"


def test_the_environment_of_the_process_is_the_usual_one(monkeypatch):
    monkeypatch.setenv("DETENT_INPUT_API_TOKEN", "hunter2")
    assert coerce(declared(TOKEN), {}) == {"api_token": {"$secret": "api_token"}}


def test_a_secret_cannot_be_given():
    """D-64"""
    for value in ("hunter2", {"$secret": 5}, {"$secret": "a", "b": 1}, 5):
        with pytest.raises(InputsError) as refused:
            coerce(declared(TOKEN), {"api_token": value}, from_text=True, environ=SET)
        (problem,) = refused.value.problems
        assert problem.name == "api_token"
        assert "DETENT_INPUT_API_TOKEN" in problem.message
        assert "hunter2" not in problem.message


def test_a_secret_of_another_workflow_can_be_handed_on_to_a_secret_only():
    handed = {"$secret": "parents_token"}
    assert coerce(declared(TOKEN), {"api_token": handed}, environ={}) == {"api_token": handed}
    for type in ("string", "object"):
        with pytest.raises(InputsError, match="only be handed to an input that is declared secret"):
            coerce(declared(spec(type=type)), {"x": handed})


def test_a_missing_secret_is_a_problem_that_names_the_variable():
    """D-64"""
    for environ in ({}, {"DETENT_INPUT_API_TOKEN": ""}):
        with pytest.raises(InputsError, match="Set the environment variable DETENT_INPUT_API_TOKEN"):
            coerce(declared(TOKEN), {}, environ=environ)


def test_an_optional_secret_may_be_missing():
    assert coerce(declared(spec("t", secret=True, required=False)), {}, environ={}) == {"t": None}
    assert coerce(declared(spec("t", secret=True, required=False)), {"t": None}, environ={}) == {"t": None}


def test_a_secret_has_its_type_too():
    pin = spec("pin", "integer", secret=True)
    assert coerce(declared(pin), {}, environ={"DETENT_INPUT_PIN": "1234"}) == {"pin": {"$secret": "pin"}}
    with pytest.raises(InputsError) as refused:
        coerce(declared(pin), {}, environ={"DETENT_INPUT_PIN": "hunter2"})
    assert "the environment variable DETENT_INPUT_PIN: it takes a whole number" in str(refused.value)
    assert "hunter2" not in str(refused.value)


# --- the hash ----------------------------------------------------------------------------------------


def test_the_hash_is_that_of_key_sorted_compact_json():
    text = json.dumps({"a": [1, "ü"], "b": None}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    wanted = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert inputs_hash({"b": None, "a": [1, "ü"]}) == wanted
    assert inputs_hash({"a": [1, "ü"], "b": None}) == wanted
    assert inputs_hash({}) == hashlib.sha256(b"{}").hexdigest()[:16]


def test_different_inputs_have_different_hashes():
    values = [
        {},
        {"a": 1},
        {"a": "1"},
        {"a": True},
        {"a": None},
        {"a": [1]},
        {"b": 1},
        {"a": {"$secret": "a"}},
    ]
    assert len({inputs_hash(one) for one in values}) == len(values)


# --- any value ---------------------------------------------------------------------------------------

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(TYPES), ANY, st.booleans())
def test_whatever_is_given_fits_or_is_refused_and_fits_again_as_it_is(type, value, from_text):
    """D-64"""
    one = declared(spec(type=type, required=False))
    try:
        found = coerce(one, {"x": value}, from_text=from_text)
    except InputsError:
        refused = misfit(one["x"], value)
        assert refused is not None
        return
    assert exactly(coerce(one, found)) == exactly(found)
    assert len(inputs_hash(found)) == 16


@given(st.integers())
def test_every_whole_number_survives_its_text(number):
    assert coerce(declared(spec(type="integer")), {"x": str(number)}) == {"x": number}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_survives_its_text(number):
    assert coerce(declared(spec(type="float")), {"x": repr(number)}) == {"x": number}
