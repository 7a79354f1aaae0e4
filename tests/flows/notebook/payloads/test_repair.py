"""The repair pass: each rule mends a payload that models really write, and is named (N-89)."""

from __future__ import annotations

import pytest

from detent.flows.notebook.payloads.payload_error import CODE, CUT, NAME, NO_PAYLOAD, SYNTAX, PayloadError
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from detent.flows.notebook.payloads.values import StagePlan

STAGE = (
    "<stage id='{0}' title='{0}'><goal>g</goal>"
    "<verified_artifacts><variable name='v'/></verified_artifacts></stage>"
)


def code(body: str) -> str:
    return f"<actions><add-code2run>{body}</add-code2run></actions>"


def repairs_of(text: str, **options) -> tuple[str, ...]:
    return read_payload(text, **options).repairs


def problem_of(text: str, **options) -> str:
    with pytest.raises(PayloadError) as caught:
        read_payload(text, **options)
    return caught.value.problems[0].code


@pytest.mark.parametrize("kind", ["T1", "T2", "T3", "T4", "T5", "T6"])
class TestEverySample:
    """Each sample, broken as real models break it, reads as the sample does."""

    def same(self, kind, text, *rules):
        read = read_payload(text, expected=kind)
        assert read.value == read_payload(sample(kind)).value
        assert set(rules) <= set(read.repairs)

    def test_prose_and_fences_around(self, kind):
        self.same(kind, f"Here is the plan:\n\n```xml\n{sample(kind)}```\n\nShall I go on?", "R1")

    def test_thinking_before_it(self, kind):
        draft = sample(kind)[: len(sample(kind)) // 2]
        self.same(kind, f"<think>First {draft} hm.</think>\n{sample(kind)}", "R1")

    def test_the_root_mentioned_before_it(self, kind):
        root = sample(kind).split("\n")[0].split(" ")[0].strip("<>")
        self.same(kind, f"I answer with a <{root}> element.\n```\n{sample(kind)}```", "R1")

    def test_bare_comparisons(self, kind):
        if "&lt;" in sample(kind) or "&gt;" in sample(kind):
            text = sample(kind).replace("&lt;", "<").replace("&gt;", ">")
            self.same(kind, text, *(["R3"] if "&lt;" in sample(kind) else []))

    def test_windows_line_ends_and_an_outdented_copy(self, kind):
        self.same(kind, sample(kind).replace("\n", "\r\n"))
        lines = sample(kind).split("\n")
        if kind != "T4":
            self.same(kind, "\n".join(line.strip() for line in lines))

    def test_unquoted_and_typographic_attributes(self, kind):
        if '="' in sample(kind):
            self.same(kind, sample(kind).replace("='", "=“").replace('="', "=“").replace('">', "”>"), "R4")

    def test_a_bare_ampersand(self, kind):
        if kind != "T4":
            text = sample(kind).replace("The ", "R&D: the ").replace("the ", "R&D & ", 1)
            assert "R2" in read_payload(text, expected=kind).repairs


class TestR1:
    def test_text_before_is_dropped_and_line_numbers_stay(self):
        text = "One\ntwo\n<stages><remaining>\n<stage id='A' title='t'></stage></remaining></stages>"
        with pytest.raises(PayloadError) as caught:
            read_payload(text)
        assert caught.value.problems[0].place.line == 4

    def test_two_payloads_are_ambiguous(self):
        assert problem_of(f"Either {code('x = 1')} or {code('x = 2')}") == NO_PAYLOAD

    def test_a_root_inside_another_is_no_reason_to_begin_again(self):
        inner = "<actions><add-text>t</add-text></actions>"
        assert problem_of(f"<actions><add-code2run>x = 1 < 2</add-code2run>{inner}") == SYNTAX

    def test_a_payload_inside_a_string_is_never_taken_for_the_payload(self):
        inner = code("import os")
        assert problem_of(f'<actions><add-code2run>text = "{inner}"\nprint(te') == CUT

    def test_fences_inside_the_code_element(self):
        read = read_payload(code("\n```python\nx = 1\n```\n"))
        assert read.value.actions[0].text == "x = 1"
        assert read.repairs == ("R1",)


class TestR2:
    def test_an_ampersand_that_begins_no_entity(self):
        read = read_payload("<actions><add-text>A & B &amp; C &b; D&</add-text></actions>")
        assert read.value.actions[0].text == "A & B & C &b; D&"
        assert read.repairs == ("R2",)

    def test_code_with_operators(self):
        body = "mask = (a > 1) & (b == 2)\nmask &= c"
        read = read_payload(code(body))
        assert read.value.actions[0].text == body
        assert read.repairs == ("R2",)


class TestR3:
    def test_comparisons_in_goals(self):
        text = sample("T1").replace("<focus>", "<focus>RMSE<25000, a<b and <b>bold</b>; ")
        read = read_payload(text)
        assert read.value.focus.startswith("RMSE<25000, a<b and <b>bold</b>; RMSE < 25000")
        assert read.repairs == ("R3",)

    def test_html_that_is_not_closed(self):
        read = read_payload("<actions><add-text>one<br>two <img src='x'> <3</add-text></actions>")
        assert read.value.actions[0].text == "one<br>two <img src='x'> <3"
        assert read.repairs == ("R3",)

    def test_code_that_compares_and_shifts(self):
        body = "if a < b and c << 2 > d:\n    html = '<b>' + x\n    y = a<b"
        read = read_payload(code(f"\n{body}\n"))
        assert read.value.actions[0].text == body
        assert read.repairs == ("R3",)

    def test_in_attributes(self):
        text = sample("T1").replace('title="Stability Assessment"', 'title="CV < 0.1 & "more""')
        read = read_payload(text)
        assert read.value.stages[-1].title == 'CV < 0.1 & "more"'
        assert read.repairs == ("R2", "R3", "R4")


class TestR4:
    @pytest.mark.parametrize(
        "tag",
        [
            "<stage id=s title=t optional>",
            "<stage id=s title=t optional=true>",
            "<stage optional id='s' title='t'>",
            '<stage id="s title="t" optional>',
            "<stage id=s\" title='t' optional>",
            "<stage id=“s” title=‘t’ optional>",
            '<stage id="s" title="t optional="true">',
            '<stage\n  id = s\n  title = "t"\n  optional\n>',
        ],
    )
    def test_attributes_without_value_or_quotes(self, tag):
        rest = "<goal>g</goal><verified_artifacts><variable name=v /></verified_artifacts></stage>"
        read = read_payload(f"<stages><remaining>{tag}{rest}</remaining></stages>")
        (stage,) = read.value.stages
        assert (stage.id, stage.title, stage.optional) == ("s", "t", True)
        assert "R4" in read.repairs

    def test_a_bare_value_of_several_words(self):
        text = f"<stages><remaining>{STAGE.format('a')}</remaining></stages>".replace(
            "title='a'", "title=Data Check"
        )
        assert read_payload(text).value.stages[0].title == "Data Check"

    def test_other_attributes_without_value_are_refused(self):
        text = f"<stages><remaining>{STAGE.format('a')}</remaining></stages>"
        assert problem_of(text.replace("<stage id='a'", "<stage id")) == SYNTAX
        assert problem_of(text.replace("title='a'", "title")) == NAME


class TestR5:
    """A body ends at the closing tag that a known tag or the end follows."""

    @pytest.mark.parametrize(
        "body",
        [
            's = "</add-code2run>"\nprint(s)',
            's = "</add-code2run><add-text>x</add-text>"\nprint(s)',
            's = "</add-code2run><add-text>x</add-text><add-code2run>"\nprint(s)',
            's = """</add-code2run>\n</actions>"""\nprint(s)',
            "s = '<actions><add-code2run>x</add-code2run></actions>'\nprint(1 < 2)",
            "# ends with </add-code2run>\nprint(s)",
            "# ends with </add-code2run></actions>\nprint(1 < 2)",
            "x = f'</add-code2run>{a!r}'",
            's = "</add-code2run>"; t = """\n</add-code2run>\n"""',
            "s = '</add_code2run></add-code2run>'",
            "s = '<![CDATA[ </add-code2run>'",
            "s = '</add-code2run>'  # </add-code2run>",
        ],
    )
    def test_a_closing_tag_in_a_string_does_not_cut_the_code(self, body):
        """N-90."""
        for text in (code(body), code(f"\n{body}\n"), f"Well:\n```xml\n{code(body)}\n```"):
            read = read_payload(text)
            assert [action.text for action in read.value.actions] == [body]

    def test_cells_after_it_are_kept(self):
        text = code("s = '</add-code2run>'</add-code2run><add-text>t</add-text><add-code2run>print(s)")
        assert [action.text for action in read_payload(text).value.actions] == [
            "s = '</add-code2run>'",
            "t",
            "print(s)",
        ]

    def test_prose_after_a_cell_does_not_hide_its_end(self):
        text = code("x = a < b</add-code2run>\nNow this: <add-code2run>y = 1")
        read = read_payload(text)
        assert [action.text for action in read.value.actions] == ["x = a < b", "y = 1"]
        assert "unused: text in actions" in read.flags

    def test_tags_of_the_payload_within_prose(self):
        text = sample("T3").replace("Print the shape.", "Print the <shape>, then </task> and <agent>.")
        read = read_payload(text)
        assert read.value.task.endswith("Print the <shape>, then </task> and <agent>.")
        assert "R5" in read.repairs

    def test_code_that_parses_only_resolved_is_resolved(self):
        read = read_payload(code("if a &lt; b &amp;&amp; '<b>' or 1: pass").replace("&amp;&amp;", "and"))
        assert read.value.actions[0].text == "if a < b and '<b>' or 1: pass"
        assert "R5" in read.repairs

    def test_code_that_parses_as_it_is_keeps_its_entities(self):
        body = "html = '<b>&lt;&nbsp;</b>' if a < b else '&amp;'"
        assert read_payload(code(body)).value.actions[0].text == body

    def test_cdata_whose_end_is_missing(self):
        read = read_payload(code("<![CDATA[\nif a < b:\n    pass\n"))
        assert read.value.actions[0].text == "if a < b:\n    pass"

    def test_code_that_is_no_python_is_refused(self):
        for body in ("x = (1", "x = 'a", "def f(:", "1 <", "x = 1 y = 2"):
            assert problem_of(code(body)) == CODE

    def test_a_text_that_is_not_closed_never_swallows_its_neighbour(self):
        first = STAGE.format("a").replace("</goal>", "")
        assert problem_of(f"<stages><remaining>{first}{STAGE.format('b')}</remaining></stages>") == SYNTAX
        second = STAGE.format("b").replace("</goal>", "</goals>")
        assert problem_of(f"<stages><remaining>{first}{second}</remaining></stages>") == SYNTAX
        first = STAGE.format("a").replace(
            "<variable name='v'/>", "<variable name='v'>x<variable name='w'>y</variable>"
        )
        assert problem_of(f"<stages><remaining>{first}{STAGE.format('b')}</remaining></stages>") == SYNTAX


class TestR6:
    @pytest.mark.parametrize("wrong", ["goals", "gaol", "goall", "Goal", "gol"])
    def test_a_misspelt_closing_tag_of_a_text(self, wrong):
        text = f"<stages><remaining>{STAGE.format('a')}{STAGE.format('b')}</remaining></stages>"
        read = read_payload(text.replace("</goal>", f"</{wrong}>", 1))
        assert [stage.goal for stage in read.value.stages] == ["g", "g"]
        assert read.repairs == ("R6",)

    def test_of_a_container_and_of_code(self):
        text = f"<stages><remaining>{STAGE.format('a')}{STAGE.format('b')}</remaning></stages>"
        assert read_payload(text.replace("</stage>", "</stag>", 1)).repairs == ("R6",)
        read = read_payload("<actions><add-code2run>x = 1</add-code-run><add-text>t</add-txt></actions>")
        assert [action.text for action in read.value.actions] == ["x = 1", "t"]
        assert read.repairs == ("R6",)

    def test_a_list_in_html_is_not_a_misspelt_goal(self):
        text = f"<stages><remaining>{STAGE.format('a')}</remaining></stages>".replace(
            "<goal>g", "<goal><ol><li>g</ol>"
        )
        assert read_payload(text).value.stages[0].goal == "<ol><li>g</ol>"

    def test_a_tag_too_far_from_it_is_refused(self):
        text = f"<stages><remaining>{STAGE.format('a')}</remaining></stages>"
        assert problem_of(text.replace("</verified_artifacts>", "</artifacts>")) == SYNTAX
        assert problem_of(text.replace("</goal>", "</focus>")) == SYNTAX

    def test_a_missing_closing_tag_in_the_middle_is_refused(self):
        text = f"<stages><remaining>{STAGE.format('a')}{STAGE.format('b')}</remaining></stages>"
        for tag in ("</stage>", "</verified_artifacts>", "</remaining>"):
            assert problem_of(text.replace(tag, "", 1)) == SYNTAX
        steps = sample("T2").replace("</step>", "")
        assert problem_of(steps[: steps.index("<step id=", 20)] + "</steps>") == SYNTAX


class TestR8:
    def test_tags_by_their_other_names(self):
        read = read_payload("<actions><add_text>t</add_text><add_code2run>x = 1</add_code2run></actions>")
        assert [action.kind for action in read.value.actions] == ["add_text", "add_code"]
        assert read.repairs == ("R8",)
        text = sample("T3").replace("<behavior ", "<behaviour ").replace("</behavior>", "</behaviour>")
        text = text.replace("behavior_id=", "behaviour_id=")
        assert read_payload(text).value == read_payload(sample("T3")).value
        assert read_payload(text).repairs == ("R8",)

    def test_tags_by_their_other_names_in_broken_text(self):
        read = read_payload(
            "<actions><add_text>a < b</add_text><add_code2run>x = a < b</add-code2run></actions>"
        )
        assert [action.text for action in read.value.actions] == ["a < b", "x = a < b"]
        assert {"R3", "R8"} <= set(read.repairs)

    def test_stages_without_remaining_and_steps_within_it(self):
        text = sample("T1").replace("<remaining>", "").replace("</remaining>", "")
        assert read_payload(text).value == read_payload(sample("T1")).value
        assert read_payload(text).repairs == ("R8",)
        text = (
            sample("T2").replace("<steps>", "<steps><remaining>").replace("  <focus>", "</remaining><focus>")
        )
        assert read_payload(text).value == read_payload(sample("T2")).value
        assert read_payload(text).repairs == ("R8",)

    def test_decisions_by_their_other_names(self):
        for name in ("STATE_STEP_COMPLETED", "STEP_COMPLETE", "STATE_Step_Complete"):
            text = sample("T5").replace("<next_state>STEP_COMPLETED", f"<next_state>{name}")
            read = read_payload(text)
            assert read.value.next_state == "STEP_COMPLETED"
            assert read.repairs == ("R8",)


class TestR9:
    def test_the_first_of_a_repeated_element_is_kept(self):
        read = read_payload(sample("T3").replace("<task ", "<agent>Model</agent><task "))
        assert read.value.agent == "behavior_2_initial_inventory_and_access_check"
        assert read.repairs == ("R9",)
        assert any(flag.startswith("unused: behavior/agent") for flag in read.flags)


class TestR10:
    @pytest.mark.parametrize(
        ("kind", "old", "new"),
        [
            ("T3", "<effects>False", "<effects>false"),
            ("T3", "<effects>False", "<effects>FALSE"),
            ("T5", 'complete="true"', 'complete="True"'),
            ("T5", "<next_state>STEP_COMPLETED", "<next_state>step_completed"),
            ("T5", "<status>achieved", "<status>Achieved"),
            ("T5", 'status="passed"', 'status="PASSED"'),
            ("T6", "<goal_status>partial", "<goal_status>Partial"),
            ("T6", 'urgency="important"', 'urgency="Important"'),
            ("T4", 'to="pcs"', 'to="PCS"'),
        ],
    )
    def test_other_cases(self, kind, old, new):
        assert old in sample(kind)
        read = read_payload(sample(kind).replace(old, new))
        assert read.value == read_payload(sample(kind)).value
        assert read.repairs == ("R10",)


def test_several_rules_at_once_are_all_named_in_order():
    text = (
        "Sure!\n```xml\n<stages>\n"
        "<stage id=a title=First optional><goal>R&D with a < b</gaol>"
        "<verified_artifacts><variable name='v'>x</variable></verified_artifacts></stage>\n"
        "</stages>\n```"
    )
    read = read_payload(text)
    assert isinstance(read.value, StagePlan)
    assert read.repairs == ("R1", "R2", "R3", "R4", "R6", "R8")


def test_nothing_is_repaired_that_is_right():
    for kind in ("T1", "T2", "T3", "T4", "T5", "T6"):
        assert repairs_of(sample(kind)) == ()
