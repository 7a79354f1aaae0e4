"""Ids of sessions are names of files: what is none is refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.coding.sessions.ids import check_session_id, is_session_id, moment_of, new_session_id
from detent.kernel.errors import ConfigurationError
from tests.examples import examples

NOW = 1_772_442_900.0


def test_an_id_has_the_time_the_first_words_and_six_digits():
    made = new_session_id("Fix the parser, please!", NOW, Random(1))
    assert made == "2026-03-02_09-15-00_fix-the-parser-pleas_" + f"{Random(1).getrandbits(24):06x}"
    assert moment_of(made) == "2026-03-02T09:15:00Z"
    assert new_session_id("x", NOW) != new_session_id("x", NOW)


@pytest.mark.parametrize(
    ("prompt", "slug"),
    [
        ("fix it", "fix-it"), ("", "session"), ("日本語", "session"), ("Größe ändern", "groe-andern"),
        ("--help", "help"), ("../../etc", "etc"), ("a" * 50, "a" * 20), ("\x1b[31mred", "31mred"),
        ("aaaaaaaaaaaaaaaaaaa bbb", "aaaaaaaaaaaaaaaaaaa"), ("-_-", "session"), ("\ud800x", "x"),
    ],
)  # fmt: skip
def test_a_slug_has_small_letters_digits_and_hyphens(prompt, slug):
    assert new_session_id(prompt, NOW).split("_")[2] == slug


@given(st.text(max_size=80), st.floats(0, 4e9))
@settings(max_examples=examples(200))
def test_every_new_id_is_one(prompt, now):
    made = new_session_id(prompt, now)
    assert check_session_id(made) == made
    assert "/" not in made
    assert not made.startswith((".", "-"))


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-02_09-15-00_fix-parser_9f2c11", "2026-03-02_09-15-00_fix-parser_9f2c11ab",
        "2026-03-02_09-15-00_fix_parser_9f2c11", "2026-03-02_09-15-00_x_9f2c11", "abcdef01", "a" * 64,
        "2026-03-02_09-15-00_" + "s" * 20 + "_9f2c11", "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    ],
)  # fmt: skip
def test_ids_of_every_age_are_read(text):
    assert check_session_id(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "abcdef0", "a" * 65, "../abcdef01", "abcdef01/..", "abcdef01.json", "abcdef01\n",
        " abcdef01",
        "ABCDEF01", "-bcdef01", "--------", "abcdefgh", ".abcdef01", "abc\0ef01", "~", "last",
        "2026-03-02_09-15-00_fix-parser_9f2c1", "2026-03-02_09-15-00_fix-parser_9f2c111",
        "2026-03-02_09-15-00__9f2c11", "2026-03-02_09-15-00_Fix_9f2c11", "2026-03-02_09-15-00_a.b_9f2c11",
        "2026-03-02_09-15-00_" + "s" * 21 + "_9f2c11", "٢٠٢٦-03-02_09-15-00_x_9f2c11", "a" * 1000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    assert not is_session_id(text)
    with pytest.raises(ConfigurationError, match="is no session id"):
        check_session_id(text)


def test_other_ids_have_no_time():
    assert moment_of("abcdef01") is None
    assert moment_of("2026-99-99_09-15-00_x_9f2c11") is None
    assert not is_session_id(None)
