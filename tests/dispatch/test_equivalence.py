"""When two outcomes count as the same, and where they differ."""

import copy
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from detent.dispatch.equivalence import (
    MOST_KEPT,
    CompareRules,
    Discrepancy,
    canonical_value,
    differences,
    equal,
)
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import pointer_to
from detent.kernel.view import view
from tests.examples import examples

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["", "/", "~", "*", "0", "a b", " a  b "])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


@dataclass
class Part:
    name: str
    at: Path


@dataclass(frozen=True)
class Order:
    id: int
    parts: tuple[Part, ...]
    colour: Colour = Colour.RED
    tags: frozenset[str] = field(default_factory=frozenset)


class Device(BaseModel):
    serial: str
    bought: datetime
    price: Decimal = Decimal("1.50")
    share: float = math.nan
    tags: set[str] = set()


class Pair(NamedTuple):
    a: int
    b: str


class Odd:
    """Nothing anybody could compare."""


class OddModel(BaseModel, arbitrary_types_allowed=True):
    odd: Odd

    def model_dump(self, *, mode: str = "python", **options: Any) -> dict[str, Any]:
        return {"odd": "written by the model"} if mode == "json" else {"odd": self.odd}


class Reference:
    def __plain__(self):
        return {"$receipt": "k1.id"}


def kinds(left, right, rules=CompareRules(), schema=None):  # noqa: B008
    return [(one.pointer, one.kind) for one in differences(left, right, rules, schema=schema)[0]]


# -- canonical values ---------------------------------------------------------------------------------------

BERLIN = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({(1, 2), "x"}), ["x", [1, 2]]),
        ({10, 9}, [10, 9]),
        (Colour.RED, "red"),
        (Size.BIG, 3),
        ({Colour.RED: 1}, {"red": 1}),
        (Path("a") / "b.txt", "a/b.txt"),
        (PureWindowsPath("c:\\x\\y"), "c:/x/y"),
        (datetime(2024, 5, 1, 12, 0, tzinfo=BERLIN), "2024-05-01T10:00:00+00:00"),
        (datetime(2024, 5, 1, 12, 0), "2024-05-01T12:00:00+00:00"),
        (datetime(2024, 5, 1, 12, 0, 0, 250, tzinfo=UTC), "2024-05-01T12:00:00.000250+00:00"),
        (date(2024, 5, 1), "2024-05-01"),
        (time(9, 30), "09:30:00"),
        (timedelta(minutes=3), "0:03:00"),
        (b"\x00\xff", "AP8="),
        (bytearray(b"hi"), "aGk="),
        (memoryview(b"hi"), "aGk="),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Order(1, (Part("a", Path("x")),), tags=frozenset({"q", "p"})),
         {"id": 1, "parts": [{"name": "a", "at": "x"}], "colour": "red", "tags": ["p", "q"]}),
        (Pair(1, "x"), [1, "x"]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        (view({"a": [1, {"b": 2}]}), {"a": [1, {"b": 2}]}),
        (Reference(), {"$receipt": "k1.id"}),
        (OddModel(odd=Odd()), {"odd": "written by the model"}),
        (numpy.float64(1.5), 1.5),
        (numpy.arange(3), [0, 1, 2]),
        (math.inf, math.inf),
        (True, True),
        (None, None),
    ],
)  # fmt: skip
def test_everything_becomes_plain(value, canonical):
    reduced = canonical_value(value)
    assert reduced == canonical
    assert type(reduced) is type(canonical)


def test_a_model_is_reduced_by_our_rules_not_by_its_own():
    device = Device(serial="s", bought=datetime(2024, 5, 1, 12, tzinfo=BERLIN), tags={"y", "x"})
    reduced = canonical_value({"device": device})["device"]
    assert math.isnan(reduced.pop("share"))
    assert reduced == {
        "serial": "s", "bought": "2024-05-01T10:00:00+00:00", "price": "1.50", "tags": ["x", "y"]
    }  # fmt: skip


def test_nan_survives_in_sets_too():
    assert [str(item) for item in canonical_value({math.nan, 1.0, math.inf})] == ["1.0", "inf", "nan"]


@given(VALUES)
def test_a_canonical_value_stays_as_it_is_and_shares_nothing(value):
    reduced = canonical_value(value)
    assert equal(reduced, value)
    assert equal(canonical_value(reduced), reduced)
    if isinstance(value, dict | list):
        assert reduced is not value


@pytest.mark.parametrize(
    ("value", "place"), [({"a/b": [1, Odd()]}, "'/a~1b/1'"), (Odd(), "The value"), ([Odd], "'/0'")]
)
def test_what_cannot_be_compared_is_named_by_its_place(value, place):
    with pytest.raises(TypeError, match=place):
        canonical_value(value)


def test_keys_are_text():
    with pytest.raises(TypeError, match="'/a' has a key that is a int") as refused:
        canonical_value({"a": {123456: 1}})
    assert "123456" not in str(refused.value)


# -- the table ----------------------------------------------------------------------------------------------

NUMBER = {"type": "number"}
ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "total": {"$ref": "#/$defs/money"},
        "lines": {"type": "array", "items": {"type": "object", "additionalProperties": NUMBER}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}], "items": NUMBER},
        "maybe": {"anyOf": [NUMBER, {"type": "null"}]},
        "either": {"type": ["string", "number"]},
        "count": {"type": "integer"},
        "self": {"$ref": "#"},
    },
    "patternProperties": {"^x-": NUMBER},
    "$defs": {"money": {"allOf": [{"type": "number"}, {"minimum": 0}]}},
}
IGNORE, UNORDERED = (lambda *said: CompareRules(ignore=said)), (lambda *said: CompareRules(unordered=said))
LOOSE = CompareRules(text="whitespace")
NEAR = CompareRules(float_rel_tol=0.01)

TABLE: list[tuple[Any, Any, CompareRules, Any, list[tuple[str, str]]]] = [
    # scalars
    (None, None, CompareRules(), None, []),
    (None, 0, CompareRules(), None, [("", "type")]),
    (None, "", CompareRules(), None, [("", "type")]),
    (True, True, CompareRules(), None, []),
    (True, 1, CompareRules(), None, [("", "type")]),
    (False, 0.0, CompareRules(), NUMBER, [("", "type")]),
    (True, False, CompareRules(), None, [("", "value")]),
    (1, 1, CompareRules(), None, []),
    (1, 2, CompareRules(), None, [("", "value")]),
    (1, 1.0, CompareRules(), None, [("", "type")]),
    (1, 1.0, CompareRules(), NUMBER, []),
    (1, 1.0, CompareRules(), {"type": "integer"}, [("", "type")]),
    (2, 1.0, CompareRules(), NUMBER, [("", "value")]),
    (2**53 + 1, float(2**53), CompareRules(), NUMBER, [("", "value")]),
    (1, "1", CompareRules(), NUMBER, [("", "type")]),
    (0.1 + 0.2, 0.3, CompareRules(), None, [("", "value")]),
    (0.0, -0.0, CompareRules(), None, []),
    (math.nan, math.nan, CompareRules(), None, []),
    (math.nan, 1.0, CompareRules(), None, [("", "value")]),
    (math.nan, None, CompareRules(), None, [("", "type")]),
    (math.inf, math.inf, CompareRules(), None, []),
    (math.inf, -math.inf, CompareRules(), None, [("", "value")]),
    ("a", "a", CompareRules(), None, []),
    ("a", "A", CompareRules(), None, [("", "value")]),
    ("a b", "a  b", CompareRules(), None, [("", "value")]),
    # kinds of value
    ("1.50", Decimal("1.50"), CompareRules(), None, []),
    (Decimal("1.5"), Decimal("1.50"), CompareRules(), None, [("", "value")]),
    (Colour.RED, "red", CompareRules(), None, []),
    (Path("a") / "b", "a/b", CompareRules(), None, []),
    (b"hi", "aGk=", CompareRules(), None, []),
    ((1, 2), [1, 2], CompareRules(), None, []),
    ({"b", "a"}, ["a", "b"], CompareRules(), None, []),
    (datetime(2024, 1, 1, 2, tzinfo=BERLIN), datetime(2024, 1, 1, 0), CompareRules(), None, []),
    (Part("a", Path("x")), {"at": "x", "name": "a"}, CompareRules(), None, []),
    # mappings
    ({}, {}, CompareRules(), None, []),
    ({}, [], CompareRules(), None, [("", "type")]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, CompareRules(), None, []),
    ({"a": 1}, {}, CompareRules(), None, [("/a", "missing")]),
    ({}, {"a": 1}, CompareRules(), None, [("/a", "extra")]),
    ({"a": None}, {}, CompareRules(), None, [("/a", "missing")]),
    ({"b": 1, "a": 1, "c": 1}, {"c": 2, "b": "x"}, CompareRules(), None,
     [("/a", "missing"), ("/b", "type"), ("/c", "value")]),
    ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, CompareRules(), None, [("/a~1b/~0", "value")]),
    ({"": 1}, {"": 2}, CompareRules(), None, [("/", "value")]),
    # lists
    ([], [], CompareRules(), None, []),
    ([1, 2], [2, 1], CompareRules(), None, [("/0", "value"), ("/1", "value")]),
    ([1, 2], [1], CompareRules(), None, [("", "length")]),
    ([1], [None, 1], CompareRules(), None, [("", "length")]),
    ({"a": [[1], [2]]}, {"a": [[1], [3, 4]]}, CompareRules(), None, [("/a/1", "length")]),
    # what a schema says
    ({"total": 5}, {"total": 5.0}, CompareRules(), ORDER_SCHEMA, []),
    ({"count": 5}, {"count": 5.0}, CompareRules(), ORDER_SCHEMA, [("/count", "type")]),
    ({"lines": [{"p": 1}]}, {"lines": [{"p": 1.0}]}, CompareRules(), ORDER_SCHEMA, []),
    ({"pair": [1, 1]}, {"pair": [1.0, 1.0]}, CompareRules(), ORDER_SCHEMA, [("/pair/0", "type")]),
    ({"maybe": 1}, {"maybe": 1.0}, CompareRules(), ORDER_SCHEMA, []),
    ({"maybe": 1}, {"maybe": None}, CompareRules(), ORDER_SCHEMA, [("/maybe", "type")]),
    ({"either": 1}, {"either": 1.0}, CompareRules(), ORDER_SCHEMA, []),
    ({"x-y": 1, "z": 1}, {"x-y": 1.0, "z": 1.0}, CompareRules(), ORDER_SCHEMA, [("/z", "type")]),
    ({"self": {"self": {"total": 1}}}, {"self": {"self": {"total": 1.0}}}, CompareRules(), ORDER_SCHEMA, []),
    ({"output": {"total": 1}}, {"output": {"total": 1.0}}, CompareRules(),
     {"properties": {"output": ORDER_SCHEMA}}, []),
    ([1], [1.0], CompareRules(), {"items": [NUMBER]}, []),
    ({"a": 1}, {"a": 1.0}, CompareRules(), {"properties": {"a": {"$ref": "other.json"}}}, [("/a", "type")]),
    ({"a": 1}, {"a": 1.0}, CompareRules(), {"properties": {"a": {"$ref": "#/$defs/none"}}}, [("/a", "type")]),
    # ignored places
    ({"a": 1, "ms": 5}, {"a": 1, "ms": 9}, IGNORE("/ms"), None, []),
    ({"a": 1, "ms": 5}, {"a": 1}, IGNORE("/ms"), None, []),
    ({"a": 1}, {"a": 2}, IGNORE("/b"), None, [("/a", "value")]),
    ({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}, IGNORE("/a"), None, []),
    ({"a": {"b": 1}}, {"a": {"b": 2}}, IGNORE("/a/b/c"), None, [("/a/b", "value")]),
    ([{"id": 1, "ms": 1}], [{"id": 1, "ms": 2}], IGNORE("/*/ms"), None, []),
    ({"x": {"ms": 1}, "y": {"ms": 1}}, {"x": {"ms": 2}, "y": {"ms": 2}}, IGNORE("/*/ms"), None, []),
    ([1, 2, 3], [1, 9, 3], IGNORE("/1"), None, []),
    ([1, 2, 3], [1, 2], IGNORE("/2"), None, []),
    ([1, 2, 3], [], IGNORE("/*"), None, []),
    ([1, 2, 3], [1], IGNORE("/2"), None, [("", "length")]),
    ({"a/b": 1, "~": 1}, {"a/b": 2, "~": 2}, IGNORE("/a~1b", "/~0"), None, []),
    # lists without order
    ({"l": [1, 2, 2]}, {"l": [2, 1, 2]}, UNORDERED("/l"), None, []),
    ([1, 2], [2, 1], UNORDERED(""), None, []),
    ({"l": [1, 2, 2]}, {"l": [1, 1, 2]}, UNORDERED("/l"), None, [("/l/2", "missing"), ("/l/1", "extra")]),
    ({"l": [1, 2]}, {"l": [2]}, UNORDERED("/l"), None, [("/l/0", "missing")]),
    ({"l": [1]}, {"l": [True]}, UNORDERED("/l"), None, [("/l/0", "missing"), ("/l/0", "extra")]),
    ([{"t": [1, 2]}, {"t": [3]}], [{"t": [3]}, {"t": [2, 1]}], UNORDERED("", "/*/t"), None, []),
    ([{"t": [1, 2]}, {"t": [3]}], [{"t": [2, 1]}, {"t": [3]}], UNORDERED("/*/t"), None, []),
    ([{"i": 1, "ms": 1}, {"i": 2, "ms": 2}], [{"i": 2, "ms": 3}, {"i": 1, "ms": 4}],
     CompareRules(ignore=["/*/ms"], unordered=[""]), None, []),
    ([1, 2], [2.0, 1.0], UNORDERED(""), {"items": NUMBER}, []),
    ([0.0, math.nan], [math.nan, -0.0], UNORDERED(""), None, []),
    # near enough
    (1.0, 1.005, NEAR, None, []),
    (1.0, 1.5, NEAR, None, [("", "value")]),
    (100, 101, NEAR, NUMBER, [("", "value")]),
    (100, 100.5, NEAR, NUMBER, []),
    (100, 100.5, NEAR, None, [("", "type")]),
    (10**400, 1.5, NEAR, NUMBER, [("", "value")]),
    (math.nan, math.nan, NEAR, None, []),
    ([1.0, 1.009], [1.001, 0.992], CompareRules((), ("",), 0.01), None, []),
    ("a  b\n", " a b", LOOSE, None, []),
    ("ab", "a b", LOOSE, None, [("", "value")]),
    ({"a  b": 1}, {"a b": 1}, LOOSE, None, [("/a  b", "missing"), ("/a b", "extra")]),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "rules", "schema", "expected"), TABLE)
def test_the_table_of_pairs(left, right, rules, schema, expected):
    """D-58"""
    assert Counter(kinds(left, right, rules, schema)) == Counter(expected)
    assert equal(left, right, rules, schema) is not bool(expected)
    assert Counter(kinds(right, left, rules, schema)) == Counter(map(swapped, expected))


def test_the_table_is_long_enough():
    """D-58"""
    assert len(TABLE) >= 40


def swapped(found):
    pointer, kind = found
    return pointer, {"missing": "extra", "extra": "missing"}.get(kind, kind)


# -- whatever the values ------------------------------------------------------------------------------------

RULES = st.sampled_from(
    [
        CompareRules(),
        CompareRules(ignore=["/0", "/a"]),
        CompareRules(ignore=["/*/*"]),
        CompareRules(unordered=["", "/*", "/*/*"]),
        CompareRules(float_rel_tol=0.1, text="whitespace"),
        CompareRules(unordered=["", "/*"], float_rel_tol=0.5),
    ]
)
SCHEMAS = st.sampled_from([None, NUMBER, {"items": NUMBER, "additionalProperties": {"$ref": "#"}}])


@given(VALUES, RULES, SCHEMAS)
def test_every_value_equals_itself(value, rules, schema):
    """D-58"""
    assert differences(value, value, rules, schema=schema) == ((), 0)
    assert equal(value, copy.deepcopy(value), rules, schema)


@given(VALUES, VALUES, RULES, SCHEMAS)
def test_it_does_not_matter_which_side_is_which(left, right, rules, schema):
    """D-58"""
    there, count = differences(left, right, rules, schema=schema)
    back, other_count = differences(right, left, rules, schema=schema)
    assert count == other_count
    assert equal(left, right, rules, schema) == equal(right, left, rules, schema) == (count == 0)
    if count <= MOST_KEPT and not rules.float_rel_tol:
        assert Counter(swapped((one.pointer, one.kind)) for one in there) == Counter(
            (one.pointer, one.kind) for one in back
        )


@given(VALUES, VALUES, RULES, SCHEMAS)
def test_the_same_comparison_tells_the_same_in_the_same_order(left, right, rules, schema):
    shuffled = copy.deepcopy(left)
    if isinstance(left, dict):
        shuffled = dict(reversed(left.items()))
    assert differences(left, right, rules, schema=schema) == differences(
        shuffled, right, rules, schema=schema
    )


@st.composite
def mutations(draw):
    """A value, the same with one place changed, and the pointers that may tell of it."""
    value = draw(VALUES)
    changed = copy.deepcopy(value)
    path: list[str | int] = []
    holder, here = None, changed
    while isinstance(here, dict | list) and here and draw(st.booleans()):
        part = draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        path.append(part)
        holder, here = here, here[part]
    if isinstance(here, dict | list) and draw(st.booleans()):
        if isinstance(here, list):
            here.insert(draw(st.integers(0, len(here))), draw(SCALARS))
            return value, changed, pointer_to(path)
        key = draw(st.text(max_size=3).filter(lambda one: one not in here))
        here[key] = draw(SCALARS)
        return value, changed, pointer_to([*path, key])
    other = draw(SCALARS)
    assume(type(other) is not type(here) or (other != here and not (other != other and here != here)))
    if holder is None:
        return value, other, ""
    holder[path[-1]] = other
    return value, changed, pointer_to(path)


@settings(max_examples=examples(300))
@given(mutations())
def test_a_change_in_one_place_is_always_found_there_and_only_there(mutation):
    """D-58"""
    value, changed, pointer = mutation
    found, count = differences(value, changed)
    assert count == 1
    assert found[0].pointer == pointer
    assert not equal(value, changed)


@given(st.lists(VALUES, max_size=6), st.randoms())
def test_an_unordered_list_equals_itself_in_any_order(items, random):
    mixed = list(items)
    random.shuffle(mixed)
    assert equal({"l": items}, {"l": mixed}, UNORDERED("/l"))


@given(
    VALUES,
    VALUES,
    RULES.filter(lambda rules: not rules.float_rel_tol) | st.just(LOOSE),
    st.sampled_from([{}, NUMBER, {"items": NUMBER, "additionalProperties": NUMBER}]),
)
def test_items_of_an_unordered_list_are_equal_exactly_when_they_are_equal_alone(one, other, rules, schema):
    inside = CompareRules(
        [f"/*{pointer}" for pointer in rules.ignore],
        ["", *(f"/*{pointer}" for pointer in rules.unordered)],
        text=rules.text,
    )
    for there in (other, one, near(one)):
        assert equal([one], [there], inside, {"items": schema}) is equal(one, there, rules, schema)


def near(value):
    """Another value that some rules call the same."""
    if isinstance(value, dict):
        return {key: near(item) for key, item in value.items()}
    if isinstance(value, list):
        return [near(item) for item in reversed(value)]
    if isinstance(value, str):
        return f" {value}\n"
    return float(value) if type(value) is int and abs(value) < 2**60 else value


@given(st.lists(VALUES, min_size=1, max_size=6), VALUES, st.randoms())
def test_one_item_more_in_an_unordered_list_is_one_difference(items, more, random):
    longer = [*items, more]
    random.shuffle(longer)
    found, count = differences(items, longer, UNORDERED(""))
    assert (count, found[0].kind) == (1, "extra")
    assert equal(longer[int(found[0].pointer[1:])], more)


@given(st.lists(st.floats(1, 2), max_size=7), st.lists(st.floats(1, 2), max_size=7))
def test_with_a_tolerance_as_many_items_as_possible_find_a_partner(left, right):
    """Held against trying every way to pair them."""

    def most(rest: tuple[float, ...], free: tuple[float, ...]) -> int:
        if not rest:
            return 0
        first, *others = rest
        best = most(tuple(others), free)
        for index, one in enumerate(free):
            if math.isclose(first, one, rel_tol=0.2):
                best = max(best, 1 + most(tuple(others), free[:index] + free[index + 1 :]))
        return best

    left, right = left[:5], right[:5]
    _, count = differences(left, right, CompareRules((), ("",), 0.2))
    assert count == len(left) + len(right) - 2 * most(tuple(left), tuple(right))


# -- how much is told ---------------------------------------------------------------------------------------


def test_fifty_are_told_and_the_rest_counted():
    found, count = differences({str(n): n for n in range(80)}, {})
    assert (len(found), count) == (50, 80)
    assert found[0] == Discrepancy("/0", "missing")
    assert [one.pointer for one in found] == sorted(f"/{n}" for n in range(80))[:50]


def test_fewer_are_told_when_fewer_are_asked_for():
    found, count = differences([0] * 9, [1] * 9, limit=2)
    assert ([one.pointer for one in found], count) == (["/0", "/1"], 9)
    assert differences([0] * 9, [1] * 9, limit=0) == ((), 9)


def test_a_discrepancy_says_nothing_of_the_values():
    [found], _ = differences({"mail": "SECRET-LEFT"}, {"mail": "SECRET-RIGHT"})
    assert "SECRET" not in repr(found)
    assert found.to_plain() == {"pointer": "/mail", "kind": "value"}
    assert Discrepancy.from_plain(found.to_plain()) == found


def test_neither_side_is_touched():
    left, right = {"l": [2, 1], "s": {3}}, {"l": [1, 2], "s": [3]}
    before = copy.deepcopy((left, right))
    assert equal(left, right, UNORDERED("/l"))
    assert (left, right) == before


# -- rules --------------------------------------------------------------------------------------------------


def test_rules_take_lists_and_keep_tuples():
    rules = CompareRules(ignore=["/a"], unordered=["/b"])
    assert (rules.ignore, rules.unordered) == (("/a",), ("/b",))
    assert rules == CompareRules(("/a",), ("/b",))
    assert hash(rules) == hash(CompareRules(("/a",), ("/b",)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignore": ["duration_ms"]}, "ignore holds 'duration_ms'; .* a slash: '/duration_ms'"),
        ({"ignore": [""]}, "begins with a slash"),
        ({"unordered": ["a/b"]}, "unordered holds 'a/b'"),
        ({"ignore": "/a"}, "ignore takes a list of pointers, not a str"),
        ({"unordered": None}, "not null"),
        ({"ignore": [3]}, "ignore holds a int"),
        ({"ignore": ["/a~b"]}, "'~' of a key is written '~0'"),
        ({"float_rel_tol": -0.1}, "float_rel_tol is -0.1; it takes 0 or more"),
        ({"float_rel_tol": math.nan}, "float_rel_tol is nan"),
        ({"float_rel_tol": math.inf}, "float_rel_tol is inf"),
        ({"float_rel_tol": "0.1"}, "float_rel_tol takes a number, not a str"),
        ({"float_rel_tol": True}, "float_rel_tol takes a number, not a bool"),
        ({"text": "whitespaces"}, "it takes exact or whitespace. Did you mean 'whitespace'"),
        ({"text": None}, "it takes exact or whitespace"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_meant_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        CompareRules(**options)


def test_pointers_are_written_as_the_standard_says():
    assert pointer_to([]) == ""
    assert pointer_to(["a/b", "~", 0, ""]) == "/a~1b/~0/0/"
