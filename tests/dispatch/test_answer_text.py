"""Reading an agent's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.dispatch.answer_text import parse_answer
from detent.kernel.plain import encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_json_value_is_read_as_itself(value):
    assert parse_answer(encode(value), text_allowed=False) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('Here it is:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ("```json\n1\n```\nor rather\n```json\n2\n```", 2),
        ('```json\n{"a": 1}\n```\n```python\nprint(1)\n```', {"a": 1}),
        ('```json\n{"a": 1}\n```\n```json\n{"a": \n```', {"a": 1}),
        ('~~~JSON\n[1]\n~~~', [1]),
        ('````json\n{"a": "```"}\n````', {"a": "```"}),
        ("  \n 7 \n", 7),
    ],
)  # fmt: skip
def test_the_last_fenced_json_block_counts(text, value):
    """1.8: the whole text as JSON, else the last fenced JSON block."""
    assert parse_answer(text, text_allowed=False) == value


@pytest.mark.parametrize(
    "text", ["just words", "", "{", "NaN", '{"a": Infinity}', "```json\n{\n```", "```json\n1", "[" * 100_000]
)
def test_what_is_no_json_is_refused_without_being_repeated(text):
    with pytest.raises(ValueError) as caught:
        parse_answer(text, text_allowed=False)
    assert "words" not in str(caught.value)
    assert "answer" in str(caught.value)


def test_where_a_text_will_do_the_text_is_the_answer():
    assert parse_answer("just words", text_allowed=True) == "just words"
    assert parse_answer('"quoted"', text_allowed=True) == "quoted"
