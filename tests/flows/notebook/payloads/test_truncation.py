"""Text that was cut off: never a payload with shortened code or a shortened list (N-90, R7)."""

from __future__ import annotations

import ast

import pytest

from detent.flows.notebook.payloads.payload_error import CUT, PayloadError
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from tests.examples import ALL
from tests.flows.notebook.payloads.test_json_actions import JSON_LINES


def read_or_none(text: str, **options):
    """The payload of a text, None if it is refused; any other error is a failure."""
    try:
        return read_payload(text, **options)
    except PayloadError:
        return None


def beginnings(text: str, stride: int = 1):
    """The text cut at its positions: all beside markup, of the others every so-many-th."""
    for end in range(len(text)):
        if ALL or end % stride == 0 or set(text[end - 1 : end + 2]) & set("<>/"):
            yield text[:end]


def lists_of(value) -> list[tuple]:
    """Every list in a value that says how many there are of something."""
    found: list[tuple] = []
    for name in value.__dataclass_fields__:
        item = getattr(value, name)
        if isinstance(item, tuple):
            found.append(item)
            item_values = item
        else:
            item_values = (item,)
        for each in item_values:
            if hasattr(each, "__dataclass_fields__"):
                found.extend(lists_of(each))
    return found


@pytest.mark.parametrize("kind", ["T1", "T2", "T3", "T5", "T6"])
@pytest.mark.parametrize("broken", [False, True])
def test_at_every_position_a_plan_or_reflection_has_all_its_lists_or_is_refused(kind, broken):
    """`broken`: the text also needs other repairs, so that it never is strict XML."""
    text = sample(kind).replace("&lt;", "<").replace("&gt;", ">") if broken else sample(kind)
    if broken:
        text = "Here:\n```xml\n" + text
    whole = read_payload(text).value
    for beginning in beginnings(text, 40 if broken else 10):
        read = read_or_none(beginning)
        if read is None:
            continue
        assert lists_of(read.value) == lists_of(whole)
        if read.value != whole:
            assert "R7" in read.repairs


@pytest.mark.parametrize("form", ["strict", "raw", "cdata", "look-alikes"])
def test_at_every_position_code_is_whole_or_the_payload_is_refused(form):
    text = sample("T4")
    if form == "raw":
        text = text.replace("&lt;", "<")
    elif form == "cdata":
        text = text.replace("<add-code2run>\n", "<add-code2run><![CDATA[\n").replace(
            "\n</add-code2run>", "\n]]></add-code2run>"
        )
        text = text.replace("&lt;", "<")
    elif form == "look-alikes":
        body = (
            "a = 1\nb = '</add-code2run>'\n# as in </add-code2run></actions>\n"
            "c = '''</add-code2run><add-text>no</add-text>\n</actions>'''\nd = a < 2\nprint(a, b, c)"
        )
        cells = f"<add-code2run>\n{body}\n</add-code2run><add-code2run>e = 1</add-code2run>"
        text = f"<actions><add-text>t</add-text>{cells}</actions>"
    whole = list(read_payload(text).value.actions)
    given = 0
    for beginning in beginnings(text):
        # A comment may quote the very end of a payload: only who was cut off can tell.
        for cut in (True,) if form == "look-alikes" else (False, True):
            read = read_or_none(beginning, cut=cut)
            if read is None:
                continue
            given += 1
            assert "R7" in read.repairs or list(read.value.actions) == whole
            for action, meant in zip(read.value.actions, whole, strict=False):
                assert action.kind == meant.kind
                if action.kind == "add_code":
                    assert action.text == meant.text
                else:
                    assert meant.text.startswith(action.text)
    assert given


def test_a_comment_that_quotes_the_end_is_refused_of_who_was_cut_off():
    text = "<actions><add-code2run>x = 1\n# as in </add-code2run></actions>"
    assert read_payload(text).value.actions[0].text == "x = 1\n# as in"
    with pytest.raises(PayloadError) as caught:
        read_payload(text, cut=True)
    assert caught.value.problems[0].code == CUT


def test_actions_cut_after_code_are_recovered_and_flagged():
    read = read_payload("<actions><add-code2run>x = 1</add-code2run><add-text>The resul")
    assert [action.text for action in read.value.actions] == ["x = 1", "The resul"]
    assert read.repairs == ("R7",)
    assert any(flag.startswith("recovered") for flag in read.flags)


@pytest.mark.parametrize(
    "text",
    [
        "<actions><add-code2run>x = 1\ny = 2",
        "<actions><add-code2run>x = 1</add-code2ru",
        "<actions><add-code2run>x = 1</add-code2run><add-code2run>y",
        "<actions><add-code2run>x = 1</add-code2run><add-code2run>",
        "<actions><add-code2run>s = '</add-code2run>",
        "<actions><add-code2run>s = '</add-code2run><add-t",
        "<actions><add-code2run># ends with </add-code2run>",
        "<actions><add-code2run># ends with </add-code2run></actions> and goes on\nprint(1",
        "<actions><add-text>Nothing is done ye",
        "<actions><add-code2run>x = 1</add-code2run><add-text>One <add-text>two",
        "<actions><add-code2run><![CDATA[x = 1\ny = 2",
        "<actions><add-code2run><![CDATA[x = 1]]>",
        "<actions><add-code2run>s = '<actions><add-code2run>import os</add-code2run></actions>'\nprint(",
    ],
)
def test_a_cut_within_code_or_before_any_is_refused(text):
    with pytest.raises(PayloadError) as caught:
        read_payload(text)
    assert caught.value.problems[0].code == CUT


def test_a_plan_of_two_stages_cut_from_six_is_no_plan():
    text = sample("T1")
    third = text.index('<stage id="exploratory_data_analysis"')
    for end in (third, third + 20, text.index("</remaining>"), text.index("</remaining>") + 5):
        with pytest.raises(PayloadError) as caught:
            read_payload(text[:end])
        assert caught.value.problems[0].code == CUT
    flat = text.replace("<remaining>", "").replace("</remaining>", "")
    with pytest.raises(PayloadError):
        read_payload(flat[: flat.index('<stage id="exploratory_data_analysis"')])


def test_a_plan_cut_in_its_focus_is_recovered():
    text = sample("T1")
    read = read_payload(text[: text.index("PCS: rows")])
    assert len(read.value.stages) == 6
    assert read.repairs == ("R7",)


def test_steps_and_criteria_cut_short_are_refused_and_a_revised_goal_is_never_half_a_goal():
    text = sample("T2")
    assert read_or_none(text[: text.index('<step id="observation_unit')]) is None
    assert read_or_none(text[: text.index("<focus>")]) is None
    assert read_or_none(text[: text.index("</goals>")]) is None
    assert read_payload(text[: text.index("<goals>")]).value.goals == ""
    text = sample("T3")
    for mark in ("<criterion>raw", "</criterion>", "</acceptance>"):
        assert read_or_none(text[: text.index(mark)]) is None
    assert (
        read_payload(text[: text.index("<whathappened>")]).value.acceptance
        == read_payload(text).value.acceptance
    )


def test_json_lines_cut_at_every_position_give_whole_code_or_nothing():
    whole = list(read_payload(JSON_LINES).value.actions)
    for beginning in beginnings(JSON_LINES):
        read = read_or_none(beginning, expected="T4", cut=True)
        if read is not None:
            assert list(read.value.actions) == whole[: len(read.value.actions)]
            assert read.value.has_code
            assert "R7" in read.repairs


def test_code_that_is_given_always_parses():
    for form in (sample("T4"), sample("T4").replace("&lt;", "<")):
        for beginning in beginnings(form):
            read = read_or_none(beginning)
            for action in read.value.actions if read else ():
                if action.kind == "add_code":
                    ast.parse(action.text)
