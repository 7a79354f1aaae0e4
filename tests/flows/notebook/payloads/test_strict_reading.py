"""Strict reading: what is text whatever it looks like, and what is refused outright (N-89)."""

from __future__ import annotations

import pytest

from detent.flows.notebook.payloads.payload_error import (
    CHARACTER,
    CUT,
    FORBIDDEN,
    LIMIT,
    NO_PAYLOAD,
    PayloadError,
)
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from detent.flows.notebook.payloads.values import Actions
from detent.kernel.errors import DetentError


def actions(*bodies: str) -> str:
    return f"<actions>{''.join(bodies)}</actions>"


def code(body: str) -> str:
    return f"<add-code2run>{body}</add-code2run>"


def only_action(text: str) -> str:
    value = read_payload(text).value
    assert isinstance(value, Actions)
    (action,) = value.actions
    return action.text


def refused(text: str | bytes, **options) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        read_payload(text, **options)
    return caught.value


class TestTexts:
    """Text elements take everything between their tags as text (N-90: inner markup)."""

    def test_markup_in_code_is_text_even_if_it_is_well_formed(self):
        read = read_payload(actions(code('html = "<b>x</b>"')))
        assert read.value.actions[0].text == 'html = "<b>x</b>"'
        assert read.repairs == ()

    def test_comments_and_entities_in_code_with_markup_are_not_touched(self):
        body = 'html = "<p>a &amp; b<!-- c --><br/></p>"'
        assert only_action(actions(code(body))) == body

    def test_markup_in_prose_stays(self):
        text = actions("<add-text>Use <b>bold</b> &amp; <i>italic</i>.</add-text>")
        assert only_action(text) == "Use <b>bold</b> & <i>italic</i>."

    def test_a_well_formed_action_inside_code_is_text_of_that_code(self):
        body = 'example = "<add-text>hello</add-text>"'
        assert only_action(actions(code(body))) == body

    def test_an_action_inside_prose_is_prose_and_flagged(self):
        read = read_payload(actions(f"<add-text>Load: {code('import os')} done</add-text>"))
        assert [action.kind for action in read.value.actions] == ["add_text"]
        assert any(flag.startswith("text: ") for flag in read.flags)

    def test_cdata_is_read(self):
        body = '\n<![CDATA[\nif a < b and s == "</add-code2run>":\n    pass\n]]>\n'
        assert only_action(actions(code(body))) == 'if a < b and s == "</add-code2run>":\n    pass'

    def test_cdata_in_two_parts_holds_its_own_end(self):
        assert only_action(actions(code("x = '<![CDATA[]]]]><![CDATA[>]]>'"))) == "x = ']]>'"

    def test_code_loses_its_common_indentation_and_the_blank_lines_around(self):
        body = "\n\n      if a:\n          b = '''\n      x'''\n\n   "
        assert only_action(actions(code(body))) == "if a:\n    b = '''\nx'''"

    def test_a_first_line_beside_the_tag_does_not_hide_the_indentation_of_the_others(self):
        assert only_action(actions(code("import os\n      print(os)\n  "))) == "import os\nprint(os)"

    def test_lines_of_code_keep_their_inner_blank_space(self):
        body = 'text = """\na\n   \nb"""'
        assert only_action(actions(code(f"\n{body}\n"))) == body

    def test_entities_are_resolved_once_and_again_only_where_code_is_no_python_otherwise(self):
        assert only_action(actions(code("s = '&amp;lt;'"))) == "s = '&lt;'"
        read = read_payload(actions(code("if a &amp;lt; b: pass")))
        assert read.value.actions[0].text == "if a < b: pass"
        assert read.repairs == ("R5",)

    def test_magics_are_code_of_a_notebook(self):
        body = "%matplotlib inline\nfiles = !ls\nx = 5 % 3"
        assert only_action(actions(code(body))) == body
        assert only_action(actions(code("%%bash\nls | wc"))) == "%%bash\nls | wc"

    def test_line_ends_of_windows_are_line_ends(self):
        assert only_action(actions(code("\r\na = 1\r\nb = 2\r\n"))) == "a = 1\nb = 2"

    def test_chinese_text_and_a_byte_order_mark(self):
        text = "\ufeff<?xml version='1.0' encoding='gb2312'?>\n" + actions("<add-text>数据，“好”</add-text>")
        assert only_action(text) == "数据，“好”"
        assert only_action(text.encode("utf-8")) == "数据，“好”"

    @pytest.mark.parametrize("tag", ["goal", "focus", "goals"])
    def test_prose_of_plans_is_text_too(self, tag):
        text = sample("T1").replace(f"<{tag}>", f"<{tag}><em>a</em> ", 1)
        value = read_payload(text).value
        where = value.stages[0].goal if tag == "goal" else getattr(value, tag)
        assert where.startswith("<em>a</em> ")


class TestSoftDiscrepancies:
    """What is not listed is unused and flagged."""

    def test_unknown_elements_attributes_and_texts_are_flagged_with_their_paths(self):
        text = sample("T2").replace("<steps>", "<steps version='2'>stray<notes>n</notes>")
        text = text.replace(
            '<step id="data_structure_discovery"', '<step mood="good" id="data_structure_discovery"'
        )
        read = read_payload(text)
        assert "unused: steps/@version" in read.flags
        assert "unused: steps/notes" in read.flags
        assert "unused: text in steps" in read.flags
        assert "unused: steps/step[2]/@mood" in read.flags
        assert read.repairs == ()

    def test_an_unknown_action_is_flagged_and_the_others_are_done(self):
        read = read_payload(actions("<add-text>a</add-text>", "<sing>la</sing>", code("x = 1")))
        assert [action.kind for action in read.value.actions] == ["add_text", "add_code"]
        assert "unused: actions/sing" in read.flags

    def test_counts_outside_the_usual_are_flagged(self):
        assert any(flag.startswith("count: ") for flag in read_payload(plan_of(5)).flags)
        assert not any(flag.startswith("count: ") for flag in read_payload(plan_of(6)).flags)
        assert not any(flag.startswith("count: ") for flag in read_payload(plan_of(8)).flags)
        assert any(flag.startswith("count: ") for flag in read_payload(plan_of(9)).flags)

    def test_a_goal_without_artifacts_or_acceptance_is_flagged(self):
        assert sum(flag.startswith("goal: ") for flag in read_payload(plan_of(6)).flags) == 12
        assert sum(flag.startswith("goal: ") for flag in read_payload(sample("T1")).flags) == 0


def plan_of(stages: int) -> str:
    each = (
        "<stage id='s{0}' title='t'><goal>g</goal>"
        "<verified_artifacts><variable name='v{0}'/></verified_artifacts></stage>"
    )
    return f"<stages><remaining>{''.join(map(each.format, range(stages)))}</remaining></stages>"


class TestRefusals:
    """Document types, entities and references are refused and never repaired; so are limits."""

    @pytest.mark.parametrize(
        "before",
        [
            "<!DOCTYPE actions>",
            "<!DOCTYPE actions SYSTEM 'file:///etc/passwd'>",
            "<!DOCTYPE actions [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>",
            "<!DOCTYPE a [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;'>]>",
            "<!DOCTYPE a [<!ENTITY % p SYSTEM 'http://127.0.0.1/x'> %p;]>",
            "Sure, here it is:\n<!DOCTYPE actions>\n",
            "<!doctype html>",
            "```xml\n<!ENTITY x 'y'>\n",
            "<?xml version='1.0'?><!DOCTYPE actions>",
            "<?xml-stylesheet href='http://127.0.0.1/x.xsl'?><!-- --> text ",
        ],
    )
    def test_a_document_type_or_entity_is_refused(self, before):
        for body in (actions("<add-text>a &x; b</add-text>"), actions("<add-text>broken & < x</add-text>")):
            assert refused(before + body).problems[0].code == FORBIDDEN

    @pytest.mark.parametrize(
        "inside",
        ["<!DOCTYPE x>", "<!ENTITY x 'y'>", "<?xml-stylesheet href='x'?>", "<xi:include href='x'/>"],
    )
    def test_also_between_elements(self, inside):
        for tail in ("", "<add-text>& broken</add-text>"):
            assert refused(actions(inside, code("x = 1"), tail)).problems[0].code == FORBIDDEN

    def test_after_the_payload_too(self):
        assert refused(actions(code("x = 1")) + "\n<!DOCTYPE x>").problems[0].code == FORBIDDEN

    def test_a_document_type_inside_code_is_text(self):
        assert (
            only_action(actions(code('page = "<!DOCTYPE html><p>x</p>"')))
            == 'page = "<!DOCTYPE html><p>x</p>"'
        )

    def test_entities_nobody_declared_are_text(self):
        read = read_payload(actions("<add-text>a&nbsp;b &xxe; &#0; &#xD800;</add-text>"))
        assert read.value.actions[0].text == "a&nbsp;b &xxe; &#0; &#xD800;"
        assert read.repairs == ("R2",)

    def test_ten_megabytes_are_refused_before_they_are_read(self):
        assert refused("<actions>" + "x" * 10_000_000).problems[0].code == LIMIT
        assert refused(b"<actions>" + b"x" * 10_000_000).problems[0].code == LIMIT

    def test_the_limit_counts_bytes(self):
        assert refused(actions(f"<add-text>{'数' * 350_000}</add-text>")).problems[0].code == LIMIT
        assert only_action(actions(f"<add-text>{'x' * 350_000}</add-text>"))

    def test_depth(self):
        assert refused("<actions>" + "<a>" * 100_000).problems[0].code == LIMIT
        within = "<a>" * 31 + "</a>" * 31
        assert read_payload(actions(within, code("x = 1"))).value.has_code
        assert refused(actions(f"<a>{within}</a>", code("x = 1"))).problems[0].code == LIMIT

    def test_number_of_elements(self):
        assert refused(actions("<add-text/>" * 5000)).problems[0].code == LIMIT

    def test_markup_within_a_text_counts_as_text(self):
        assert only_action(actions(f"<add-text>{'<b>' * 6000}{'</b>' * 6000}</add-text>")).startswith(
            "<b><b>"
        )

    @pytest.mark.parametrize("char", ["\0", "\x08", "\x1b", "\x0c", "\ufffe", "\ud800"])
    def test_characters_that_xml_cannot_hold_are_refused_with_their_line(self, char):
        error = refused(actions("\n\n", f"<add-text>a{char}b</add-text>"))
        assert error.problems[0].code == CHARACTER
        assert error.problems[0].place.line == 3

    @pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "gb18030"])
    def test_other_encodings_are_refused(self, encoding):
        error = refused(
            actions("<add-text>é数</add-text>".replace("数", "" if encoding == "latin-1" else "数")).encode(
                encoding
            )
        )
        assert error.problems[0].code in (CHARACTER, NO_PAYLOAD)


class TestRoots:
    """Which payload it is follows from the root."""

    @pytest.mark.parametrize(
        "text", ["", "  \n", "I cannot do that.", "<", "<html><body/></html>", "{", "[]", "null", "42"]
    )
    def test_a_text_without_a_payload(self, text):
        assert refused(text).problems[0].code == NO_PAYLOAD
        assert refused(text.encode()).problems[0].code == NO_PAYLOAD

    def test_another_payload_than_expected(self):
        assert refused(sample("T5"), expected="T6").problems[0].code == NO_PAYLOAD
        assert refused("Prose. " + sample("T5"), expected="T6").problems[0].code == NO_PAYLOAD

    def test_the_error_is_one_of_detents_and_names_path_and_line(self):
        error = refused(sample("T3").replace("<agent>", "<agnt>").replace("</agent>", "</agnt>"))
        assert isinstance(error, DetentError)
        assert error.exit_code == 1
        text = sample("T1").replace('id="stability_assessment"', 'id="Stability!"')
        (found,) = refused(text).problems
        assert found.path == "stages/remaining/stage[6]"
        assert found.place.line == text.split('id="Stability!"')[0].count("\n") + 1

    def test_all_problems_are_told_at_once(self):
        text = (
            sample("T1")
            .replace('id="stability_assessment"', 'id="X"')
            .replace('name="df_typed"', 'name="df typed"')
        )
        assert len(refused(text).problems) == 3

    def test_not_a_tag_at_all(self):
        assert refused("<actions").problems[0].code == NO_PAYLOAD
        assert refused("<actions ").problems[0].code == CUT
