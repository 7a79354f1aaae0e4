"""Canonical XML: what is written reads back equal, whatever texts a payload holds (N-22)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.element import parse
from detent.flows.notebook.payloads.kinds import KINDS, kind_of
from detent.flows.notebook.payloads.plain import from_plain, to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from detent.flows.notebook.payloads.values import Action, Actions, Named
from detent.kernel import plain
from tests.examples import examples
from tests.flows.notebook.payloads.values import PAYLOADS


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_payload_reads_back_equal_and_unrepaired(kind):
    @settings(max_examples=examples(60), deadline=None)
    @given(PAYLOADS[kind])
    def check(value):
        written = canonical(value)
        read = read_payload(written, expected=kind)
        assert read.value == value
        assert read.repairs == ()
        assert not any(flag.startswith("unused") for flag in read.flags)
        assert canonical(read.value) == written
        assert read_payload(written.encode(), expected=kind).value == value

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_plain_json_reads_back_equal(kind):
    @settings(max_examples=examples(40), deadline=None)
    @given(PAYLOADS[kind])
    def check(value):
        data = to_plain(value)
        assert plain.decode(plain.encode(data)) == data
        assert from_plain(kind, data) == value
        assert kind_of(value) == kind

    check()


@settings(max_examples=examples(40), deadline=None)
@given(st.text(st.characters(exclude_categories=[]), max_size=30))
def test_characters_that_xml_cannot_hold_are_spelled_out_and_the_rest_is_kept(text):
    value = Actions((Action("add_text", text),))
    read = read_payload(canonical(value)).value
    assert canonical(read) == canonical(value)


def test_a_terminal_escape_in_a_traceback_is_shown_not_lost():
    read = read_payload(canonical(Actions((Action("add_text", "\x1b[31mKeyError\x00"),)))).value
    assert read.actions[0].text == "\\x1b[31mKeyError\\x00"


def test_code_keeps_every_character_even_blank_lines_and_carriage_returns_in_strings():
    code = 'text = """\n\n   a\t\n\r\n</add-code2run>\n   """\nprint(text)'
    assert read_payload(canonical(Actions((Action("add_code", code),)))).value.actions[0].text == code


@pytest.mark.parametrize("code", ["# ", "\n\nx = 1\n", "x = 1  ", "", " ", "x = '''  \n'''"])
def test_code_is_kept_even_where_a_reader_would_trim_it(code):
    written = canonical(Actions((Action("add_text", "t"), Action("add_code", code))))
    assert read_payload(written).value.actions[1].text == code


def test_outer_space_of_a_text_survives():
    value = read_payload(sample("T3")).value
    value = replace(value, task="\n  do it \t", inputs=(Named("x", " "), Named("y", "\r\n")))
    assert read_payload(canonical(value)).value == value


def test_equal_values_give_equal_text_and_it_is_well_formed():
    for kind in KINDS:
        value = read_payload(sample(kind)).value
        assert canonical(value) == canonical(read_payload(canonical(value)).value)
        assert parse(canonical(value)).vocabulary.kind == kind
