"""What may stand in a journal, and how other things become such values."""

import json
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from detent.kernel.plain import canonical, copied, decode, digest, encode, to_plain

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


@dataclass
class Point:
    x: int
    where: Path


class Pair(NamedTuple):
    a: int
    b: int


class Device(BaseModel):
    serial: str
    bought: datetime


class Array:
    """Answers as a numpy array does."""

    def tolist(self):
        return [1.5, [2]]


class Look:
    def __plain__(self):
        return {"a": Colour.RED}


@given(PLAIN)
def test_a_plain_value_is_itself(value):
    assert to_plain(value) == value


@given(PLAIN)
def test_a_plain_value_survives_being_written_and_read(value):
    assert decode(encode(value)) == value
    assert decode(canonical(value)) == value


@given(PLAIN)
def test_a_copy_shares_nothing_that_can_change(value):
    for copy in (to_plain(value), copied(value)):
        assert copy == value
        if isinstance(value, dict | list):
            assert copy is not value


def test_what_is_changed_afterwards_does_not_change_the_copy():
    inner = [1]
    plain = to_plain({"a": {"b": inner}})
    inner.append(2)
    assert plain == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Size.BIG, 3),
        (Path("a/b"), "a/b"),
        (PureWindowsPath("a\\b"), "a/b"),
        (Point(1, Path("p")), {"x": 1, "where": "p"}),
        (Device(serial="X", bought=datetime(2024, 1, 2)), {"serial": "X", "bought": "2024-01-02T00:00:00"}),
        (datetime(2024, 1, 2), "2024-01-02T00:00:00"),
        (datetime(2024, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))), "2024-01-02T02:00:00Z"),
        (date(2024, 1, 2), "2024-01-02"),
        (Decimal("1.50"), "1.50"),
        (Array(), [1.5, [2]]),
        (Look(), {"a": "red"}),
        ((1, (2,)), [1, [2]]),
        (OrderedDict(a=(1,)), {"a": [1]}),
        (MappingProxyType({"a": Size.BIG}), {"a": 3}),
        (Pair(1, 2), [1, 2]),
        ({Colour.RED: 1}, {"red": 1}),
    ],
)
def test_common_kinds_of_values_are_converted(value, plain):
    assert to_plain(value) == plain
    assert json.loads(json.dumps(to_plain(value), allow_nan=False)) == plain


def test_subclasses_of_text_and_numbers_become_the_plain_kind():
    class Text(str):
        pass

    class Number(float):
        pass

    class Whole(int):
        pass

    kinds = [
        type(to_plain(value)) for value in (Text("a"), Number(1.5), Whole(3), {Text("k"): 1}.popitem()[0])
    ]
    assert kinds == [str, float, int, str]
    assert [type(key) for key in to_plain({Text("k"): 1})] == [str]


def test_numpy_values_are_converted():
    import numpy

    value = {"a": numpy.float32(0.5), "b": numpy.int64(3), "c": numpy.arange(3), "d": numpy.bool_(True)}
    assert to_plain(value) == {"a": 0.5, "b": 3, "c": [0, 1, 2], "d": True}


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), 1j, Colour, Point])
def test_what_json_cannot_hold_is_refused_with_its_key_path(value):
    with pytest.raises(TypeError) as refused:
        to_plain({"plan": {"bars": [0, {"light": value}]}})
    assert "'plan.bars[1].light'" in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_with_their_key_path(value):
    with pytest.raises(ValueError, match=r"'a\[0\]'"):
        to_plain({"a": [value]})
    with pytest.raises(ValueError):
        encode(value)


def test_keys_must_be_text():
    with pytest.raises(TypeError, match="'a' has the key 1"):
        to_plain({"a": {1: 2}})


def test_a_value_refused_at_the_top_is_called_the_value():
    with pytest.raises(TypeError, match=r"^The value is an object"):
        to_plain(object())


def test_equal_mappings_have_equal_canonical_texts_and_digests():
    one, other = {"a": 1, "b": [1, {"d": 2, "c": 3}]}, {"b": [1, {"c": 3, "d": 2}], "a": 1}
    assert canonical(one) == canonical(other)
    assert digest(one) == digest(other)
    assert len(digest(one, 16)) == 16
    assert digest(one) != digest({"a": 1})


def test_text_is_written_as_it_is():
    assert encode({"a": "→ ü"}) == '{"a":"→ ü"}'
