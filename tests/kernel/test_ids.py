"""Ids of runs: those that people write are taken, those that harm are refused, and none means two runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.kernel.errors import ConfigurationError
from detent.kernel.ids import check_key, check_run_id, child_ids
from tests.examples import examples


@pytest.mark.parametrize(
    "run_id", ["release-1.2", "order/17", "Ünïcode 5", "a b", "C:\\x", "7", "50%", "x" * 200, "a.b.c", "日本"]
)
def test_ids_as_people_write_them_are_taken(run_id):
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    ("run_id", "why"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("x" * 201, "has 201 characters"),
        ("a\nb", r"control character in it \(\\n\)"),
        ("a\x1b[31m", "control character"),
        ("a\0", "control character"),
        ("a\u2028b", "line separator"),
        ("a\ud800", "surrogate"),
        (" a", "begins or ends with a space"),
        ("--help", "like an option"),
        (".", "dot"),
        ("..", "dot"),
        ("a..b", "two in a row"),
        ("a.", "ends with a dot"),
        (17, "must be text, not int"),
    ],
)
def test_an_id_that_would_harm_is_refused_with_the_reason(run_id, why):
    with pytest.raises(ConfigurationError, match=why) as error:
        check_run_id(run_id)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("key", ["", "a\nb", "a\ud800", "x" * 201, 5])
def test_a_key_that_would_harm_is_refused(key):
    with pytest.raises(ConfigurationError, match="cannot be the key of a child"):
        check_key(key)


keys = st.text("ab.%2E5/", min_size=1, max_size=6)


@settings(max_examples=examples(300))
@given(st.lists(keys, min_size=1, max_size=4), st.lists(keys, min_size=1, max_size=4))
def test_different_ways_down_from_a_run_have_different_ids(way, other):
    def down(keys):
        run_id = "r"
        for key in keys:
            run_id = child_ids(run_id, key)[0]
        return run_id

    assert (down(way) == down(other)) == (way == other)


def test_the_spare_id_of_a_child_cannot_be_chosen_by_a_person():
    with pytest.raises(ConfigurationError):
        check_run_id(child_ids("release-1", "2")[1])


def test_an_id_grown_too_long_for_an_index_is_refused():
    run_id = "r"
    with pytest.raises(ConfigurationError, match="shorter keys"):
        for _ in range(20):
            run_id = child_ids(run_id, "k" * 200)[0]
