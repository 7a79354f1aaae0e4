"""What expressions give, and what they may touch on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import pytest

from detent.flows.workflow.expressions import UNBOUND, EvaluationError, Scope, parse
from detent.kernel.errors import ConfigurationError
from detent.kernel.view import view
from tests.flows.workflow.expressions.corpus import ACCEPTED, FAILING, SCOPE
from tests.flows.workflow.expressions.test_grammar import short


def evaluate(text, item=UNBOUND, **inputs):
    return parse(text).evaluate(Scope(inputs, {}, item))


def exactly(value):
    """A value with its types, so that true is not 1 and 1 is not 1.0."""
    if isinstance(value, list):
        return [exactly(item) for item in value]
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    return type(value), value


@pytest.mark.parametrize(("text", "value"), ACCEPTED, ids=[short(text) for text, _ in ACCEPTED])
def test_an_expression_gives_its_value(text, value):
    """D-62"""
    expression = parse(text)
    assert exactly(expression.evaluate(SCOPE)) == exactly(value)
    assert exactly(expression.evaluate(SCOPE)) == exactly(value), "a second time"


@pytest.mark.parametrize(("text", "words"), FAILING, ids=[short(text) for text, _ in FAILING])
def test_an_expression_without_a_value_says_why(text, words):
    """D-62"""
    with pytest.raises(EvaluationError) as failed:
        parse(text).evaluate(SCOPE)
    assert words in failed.value.message
    assert failed.value.expression == text
    assert short(text)[:20] in str(failed.value)


def test_an_error_names_what_is_available_as_facts():
    with pytest.raises(EvaluationError) as failed:
        parse("1 == inputs.map.zzz").evaluate(SCOPE)
    assert failed.value.names == ("a", "b", "not", "with space")
    assert failed.value.position == len("1 == inputs.map")


def test_a_failed_evaluation_is_no_configuration_error():
    with pytest.raises(EvaluationError) as failed:
        evaluate("item")
    assert not isinstance(failed.value, ConfigurationError)


def test_an_error_lists_so_many_names_and_counts_the_rest():
    with pytest.raises(EvaluationError) as failed:
        evaluate("item.x", {f"key{number:04}": 1 for number in range(1000)} | {"k" * 5000: 1})
    assert "key0019 and 981 more." in failed.value.message
    assert "key0020" not in failed.value.message
    assert len(str(failed.value)) < 500


def test_an_error_shows_no_value():
    for text in ("item.a.x", "item.a < 1", "len(item.b)", "item.a in item.b", "lower(item.b)", "item.l[9]"):
        with pytest.raises(EvaluationError) as failed:
            evaluate(text, {"a": "s3cr3t", "b": 424242, "l": ["s3cr3t"]})
        assert "s3cr3t" not in str(failed.value)
        assert "424242" not in str(failed.value)


def test_unbound_says_what_it_is():
    assert repr(UNBOUND) == "UNBOUND"


def test_item_and_index_may_be_null_and_are_then_bound():
    assert parse("[item, index]").evaluate(Scope({}, {}, None, 0)) == [None, 0]
    assert parse("default(item, 'x')").evaluate(Scope({}, {})) == "x"
    with pytest.raises(EvaluationError, match="'index' has a value only inside a loop"):
        parse("index").evaluate(Scope({}, {}, 1))


class Lazy(Mapping):
    """Steps that are looked up one by one; going through them is noted."""

    def __init__(self, steps):
        self.steps, self.asked, self.listed = steps, [], 0

    def __getitem__(self, name):
        self.asked.append(name)
        return self.steps[name]

    def __iter__(self):
        self.listed += 1
        return iter(self.steps)

    def __len__(self):
        raise AssertionError("counted")


def test_steps_are_looked_up_one_by_one_and_never_listed_without_an_error():
    output = Lazy({"output": 1})
    steps = Lazy({"a": output, "b": {"output": 2, "status": "ok"}})
    assert parse("steps.a.output or steps.b.output").evaluate(Scope({}, steps)) == 1
    assert parse("default(steps.zzz.output, 5)").evaluate(Scope({}, steps)) == 5
    assert (steps.asked, output.asked, steps.listed) == (["a", "zzz"], ["output"], 0)
    with pytest.raises(EvaluationError, match="Steps so far: a, b"):
        parse("steps.zzz.output").evaluate(Scope({}, steps))
    assert steps.listed == 1


def test_what_is_not_needed_is_not_evaluated():
    for text in ("false and steps.a.output", "1 or steps.a.output", "default(1, steps.a.output)",
                 "1 if true else steps.a.output", "steps.a.output if false else 1"):  # fmt: skip
        steps = Lazy({})
        parse(text).evaluate(Scope({}, steps))
        assert steps.asked == []


def test_every_part_is_evaluated_at_most_once():
    text = "1"
    for _ in range(30):
        text = f"default({text} and steps.no.output, 1)"
    steps = Lazy({})
    assert parse(text).evaluate(Scope({}, steps)) == 1
    assert len(steps.asked) == 30


def test_and_and_or_give_the_operand_itself():
    item = {"list": [1]}
    assert evaluate("null or item.list", item) is item["list"]
    assert evaluate("1 and item.list", item) is item["list"]


# --- what can be read --------------------------------------------------------------------------------


class Trap:
    """Reading anything of it is a failure of the language."""

    name = "readable"

    def __getattribute__(self, name):
        raise AssertionError(f"{name} was read")

    def __getitem__(self, key):
        raise AssertionError("an item was read")

    def __len__(self):
        raise AssertionError("counted")

    def __bool__(self):
        raise AssertionError("asked for its truth")

    def __eq__(self, other):
        raise AssertionError("compared")

    def __lt__(self, other):
        raise AssertionError("ordered")

    def __contains__(self, other):
        raise AssertionError("looked into")

    def __iter__(self):
        raise AssertionError("gone through")

    def __str__(self):
        raise AssertionError("written")

    __repr__ = __format__ = __hash__ = __str__  # type: ignore[assignment]


@dataclass
class TrapFields(Trap):
    """A dataclass whose fields can be read, past everything its class would do about it."""

    title: str
    count: ClassVar[int] = 3
    hidden: str = field(default="kept", repr=False)

    __eq__ = Trap.__eq__
    __repr__ = Trap.__repr__

    @property
    def computed(self):
        raise AssertionError("computed")


@dataclass
class Overlaid:
    """A field whose name a property has taken."""

    value: int = 0

    @property
    def other(self):
        raise AssertionError("computed")


class OverlaidAgain(Overlaid):
    value = property(lambda self: pytest.fail("computed"), lambda self, value: None)


@pytest.mark.parametrize(
    "text",
    ["item.name", "item['name']", "item[0]", "item.x.y", "len(item)", "item < 1", "item > item", "1 in item",
     "json(item)", "json([item])", "lower(item)", "default(item.name, 1)", "item in 'text'"],
)  # fmt: skip
def test_of_an_object_nothing_can_be_read(text):
    """D-62: mappings, dataclass fields and lists can be read, nothing else."""
    with pytest.raises(EvaluationError) as failed:
        evaluate(text, Trap())
    assert "Trap" in failed.value.message


def test_an_object_is_true_and_equal_to_itself_only():
    """D-62"""
    trap = Trap()
    assert parse("[not item, item == item, item == inputs.b, item in [inputs.b, item]]").evaluate(
        Scope({"b": Trap()}, {}, trap)
    ) == [False, True, False, True]
    assert evaluate("item and 1", trap) == 1
    assert evaluate("item != 1", trap) is True
    assert evaluate("item", trap) is trap


def test_fields_of_a_dataclass_are_read_past_its_own_attribute_access():
    """D-62"""
    item = TrapFields("t")
    assert evaluate("[item.title, item.hidden, not item]", item) == ["t", "kept", False]
    assert evaluate("json(item)", item) == '{"title":"t","hidden":"kept"}'
    assert evaluate("item == inputs.b", item, b=TrapFields("t")) is True
    assert evaluate("item == inputs.b", item, b=TrapFields("u")) is False
    for name in ("computed", "count", "name"):
        with pytest.raises(EvaluationError, match="It has: title, hidden"):
            evaluate(f"item.{name}", item)


def test_a_property_in_the_place_of_a_field_is_not_run():
    """D-62"""
    assert evaluate("item.value", Overlaid(4)) == 4
    with pytest.raises(EvaluationError, match="has no 'value'"):
        evaluate("item.value", OverlaidAgain(4))


@dataclass(slots=True)
class Unfinished:
    """A field without a default that nobody has set."""

    name: str
    later: str = field(init=False)


def test_a_field_that_was_never_set_is_missing():
    assert evaluate("[item.name, default(item.later, 'not yet'), json(item)]", Unfinished("n")) == [
        "n", "not yet", '{"name":"n"}',
    ]  # fmt: skip
    assert evaluate("item == inputs.b", Unfinished("n"), b=Unfinished("n")) is True
    with pytest.raises(EvaluationError, match="has no 'later'"):
        evaluate("item.later", Unfinished("n"))


def test_classes_modules_and_functions_have_nothing_to_read():
    """D-62"""
    for thing in (TrapFields, pytest, evaluate, len, "text".join, type, object(), range(3), {1, 2}, b"bytes"):
        for text in ("item.name", "item.title", "item[0]", "len(item)", "json(item)"):
            with pytest.raises(EvaluationError):
                evaluate(text, thing)


class Colour(str, Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Pair(NamedTuple):
    left: int
    right: int


def test_values_of_kinds_near_the_plain_ones_are_read_as_those():
    assert evaluate("item == 'red' and 'e' in item and upper(item) == 'RED'", Colour.RED) is True
    assert evaluate("item == 3 and item < 4", Size.BIG) is True
    assert evaluate("item[1] == 2 and len(item) == 2", Pair(1, 2)) is True
    with pytest.raises(EvaluationError, match="is a list"):
        evaluate("item.left", Pair(1, 2))
    assert evaluate("item.a == 1 and 'a' in item and len(item) == 1", MappingProxyType({"a": 1})) is True
    look = view({"a": {"b": [1]}})
    assert evaluate("[item.a.b[0], item.a == inputs.a]", look, a={"b": [1]}) == [1, True]
    assert evaluate("json(item)", look) == '{"a":{"b":[1]}}'


def test_a_mapping_is_only_looked_at_by_its_keys():
    class Talking(dict):
        def __missing__(self, key):
            raise AssertionError("made up a value")

        secret = "attribute"

    with pytest.raises(EvaluationError, match="has no 'secret'"):
        evaluate("item.secret", Talking(a=1))
    with pytest.raises(EvaluationError, match="has no 'items'"):
        evaluate("item.items", {"a": 1})


def test_a_key_that_is_no_text_cannot_be_read_and_does_not_hurt():
    item = {1: "one", None: "none", "a": 2}
    with pytest.raises(EvaluationError, match="Read it by name"):
        evaluate("item[1]", item)
    with pytest.raises(EvaluationError, match=r"It has: a\."):
        evaluate("item.b", item)
    assert evaluate("[1 in item, true in item, 2 in item]", item) == [True, False, False]


def test_names_that_begin_with_an_underscore_are_not_even_listed():
    with pytest.raises(EvaluationError) as failed:
        evaluate("item.b", {"_b": 1, "a": 1})
    assert failed.value.names == ("a",)


# --- bounds ------------------------------------------------------------------------------------------


def deep(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_nested_too_deeply_is_an_error_of_ours():
    for text in ("item == inputs.other", "json(item)", "item < inputs.more", "item in [inputs.other]"):
        with pytest.raises(EvaluationError, match="too deeply"):
            evaluate(text, deep(10_000), other=deep(10_000), more=deep(10_001))
    assert evaluate("not item", deep(10_000)) is False


def test_numbers_json_cannot_hold_are_an_error_of_ours():
    for value in (float("nan"), float("inf"), 10**5000, {(1, 2): 3}, {"a": {1, 2}}):
        with pytest.raises(EvaluationError, match="written as"):
            evaluate("json(item)", value)


def test_the_text_of_an_expression_bounds_what_json_can_make_of_a_value():
    text = "json(" * 4 + "item" + ")" * 4
    assert len(evaluate(text, '"' * 1000)) < 1000 * 32


def test_a_number_of_two_thousand_digits_is_a_number():
    assert evaluate("9" * 2000) == int("9" * 2000)
