"""Text of session files: read and written again, it is the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.coding.sessions.json_text import (
    DEEPEST,
    NotReadable,
    Verbatim,
    parse,
    to_bytes,
    to_text,
    value_text,
)
from tests.examples import examples
from tests.flows.coding.sessions.corpus import DAMAGED

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(st.text(), VALUES, max_size=6), st.booleans())
@settings(max_examples=examples(300))
def test_every_object_is_read_as_it_was_written(plain, rows):
    raw = to_bytes(plain, by_item=list(plain) if rows else ())
    again, repeated = parse(raw)
    assert again == plain
    assert list(again) == list(plain)
    assert not repeated
    assert json.loads(raw) == plain
    text = raw.decode("utf-8")
    assert all(char.isprintable() or char == "\n" or char.isspace() or ord(char) > 0xA0 for char in text)


@pytest.mark.parametrize(
    "number",
    [
        "1e400", "1e-99999999999999999999", "-1e-400000", "0.1000000000000000055511151231257827", "7" * 5000,
        "-" + "1" * 700,
    ],
)  # fmt: skip
def test_numbers_that_no_float_can_hold_stay_as_they_were_written(number):
    raw = f'{{"a": [{number}], "b": {number}, "c": "{number[:20]}"}}'.encode()
    plain = parse(raw).plain
    assert plain["b"] == Verbatim(number)
    assert plain["a"] == [plain["b"]]
    assert float(plain["b"]) == float(number)
    assert parse(to_bytes(plain)).plain == plain
    assert to_text(plain).count(number) == 2 + (len(number) <= 20)
    assert value_text(plain["a"]) == f"[{number}]"
    assert hash(plain["b"]) == hash(Verbatim(number))


def test_usual_numbers_are_numbers():
    plain = parse(b'{"a": 1.10, "b": 1E2, "c": -0.0, "d": 1.0, "e": 12, "f": 0.1}').plain
    assert plain == {"a": 1.1, "b": 100.0, "c": 0.0, "d": 1.0, "e": 12, "f": 0.1}
    assert all(type(value) in (int, float) for value in plain.values())


def test_of_repeated_keys_the_last_counts_and_the_others_are_told():
    plain, repeated = parse(b'{"a": 1, "b": {"c": 1, "c": 2}, "a": [2], "a": 3}')
    assert plain == {"a": 3, "b": {"c": 2}}
    assert repeated == [{"key": "c", "value": 1}, {"key": "a", "value": 1}, {"key": "a", "value": [2]}]


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_object_is_refused_with_a_reason(name):
    with pytest.raises(NotReadable) as refused:
        parse(DAMAGED[name])
    assert str(refused.value).startswith(("is ", "holds ", "does "))
    assert len(str(refused.value)) < 120


def test_depth_is_limited_at_the_same_level_everywhere():
    def nested(levels: int) -> bytes:
        return b'{"x": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert parse(nested(DEEPEST)).plain
    with pytest.raises(NotReadable, match="nested"):
        parse(nested(DEEPEST + 1))


def test_other_encodings_of_unicode_are_read():
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        assert parse('{"a": "é"}'.encode(encoding)).plain == {"a": "é"}, encoding
    assert parse(b'{"a": "\xed\xa0\x80"}').plain == {"a": "\ud800"}


def test_hidden_characters_are_written_as_escapes():
    text = to_text({"a": "x\x7f\x9b31m\u202e\u2028\ufeff\ud800é"})
    assert text == '{\n "a": "x\\u007f\\u009b31m\\u202e\\u2028\\ufeff\\ud800\\u00e9"\n}\n'
    assert to_text({"a": "é\u200d"}) == '{\n "a": "é\u200d"\n}\n'
    assert to_text({}) == "{}\n"


def test_a_value_that_is_no_json_is_refused():
    with pytest.raises(TypeError, match="cannot stand"):
        to_text({"a": object()})
    with pytest.raises(ValueError, match="Out of range"):
        to_text({"a": float("nan")})
