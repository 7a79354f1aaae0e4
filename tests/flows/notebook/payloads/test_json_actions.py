"""T4 in JSON: every kind, every form, equal to what XML gives (N-33, N-112)."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from detent.flows.notebook.payloads.payload_error import (
    CHARACTER,
    CODE,
    COUNT,
    CUT,
    LIMIT,
    MISSING,
    NO_PAYLOAD,
    VALUE,
    PayloadError,
)
from detent.flows.notebook.payloads.plain import to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.values import Action, Actions

CODE_TEXT = 'import os\nif 1 < 2 and "</add-code2run>":\n    print("数据", os.sep)'
ITEMS: list[dict[str, Any]] = [
    {"action": "update_title", "title": "House prices"},
    {"action": "new_chapter", "content": "Data"},
    {"action": "new_step", "content": "Inventory"},
    {"action": "new_section", "content": "Files"},
    {"action": "add", "shot_type": "dialogue", "content": "We read & look: a < b."},
    {"action": "add", "shot_type": "action", "content": CODE_TEXT},
    {"action": "exec", "codecell_id": "lastAddedCellId", "need_output": True},
]
ACTIONS = Actions(
    (
        Action("update_title", "House prices"),
        Action("update_section_title", "Data"),
        Action("update_step_title", "Inventory"),
        Action("add_section", "Files"),
        Action("add_text", "We read & look: a < b."),
        Action("add_code", CODE_TEXT),
    )
)
XML = f"""<actions>
  <update-project-title>House prices</update-project-title>
  <update-section-title>Data</update-section-title>
  <update-step-title>Inventory</update-step-title>
  <add-section>Files</add-section>
  <add-text>We read &amp; look: a &lt; b.</add-text>
  <add-code2run><![CDATA[
{CODE_TEXT}
]]></add-code2run>
</actions>"""


def lines(*items) -> str:
    return "\n".join(json.dumps(item, ensure_ascii=False) for item in items)


JSON_LINES = lines(*ITEMS)


def wrapped(items) -> list[dict]:
    return [{"action": item} for item in items]


FORMS = {
    "xml": XML,
    "lines": JSON_LINES,
    "lines under action": lines(*wrapped(ITEMS)),
    "kind in type": lines(
        *({**{k: v for k, v in item.items() if k != "action"}, "type": item["action"]} for item in ITEMS)
    ),
    "array": json.dumps(ITEMS),
    "indented array": json.dumps(ITEMS, indent=2),
    "array under action": json.dumps({"action": ITEMS}),
    "array under actions": json.dumps({"actions": ITEMS}),
    "array of wrapped": json.dumps(wrapped(ITEMS)),
    "fenced": f"Here are the actions:\n```json\n{json.dumps(ITEMS, indent=1)}\n```\nDone.",
    "fenced lines": f"```\n{JSON_LINES}\n```",
    "lines with commas": JSON_LINES.replace("\n", ",\n"),
    "streamed events": "".join(f"data: {line}\n\n" for line in JSON_LINES.split("\n")) + "data: [DONE]\n",
    "windows lines": JSON_LINES.replace("\n", "\r\n"),
    "plain": json.dumps(to_plain(ACTIONS)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("expected", ["T4", None])
def test_every_form_reads_into_the_same_value(form, expected):
    """N-112: XML, JSON and streamed text."""
    read = read_payload(FORMS[form], expected=expected)
    assert read.value == ACTIONS
    assert read.details["format"] == ("xml" if form == "xml" else "json")
    assert read_payload(FORMS[form].encode(), expected=expected).value == ACTIONS


def actions_of(*items) -> tuple[Action, ...]:
    value = read_payload(lines(*items), expected="T4").value
    assert isinstance(value, Actions)
    return value.actions


def problem_of(text: str, **options) -> str:
    with pytest.raises(PayloadError) as caught:
        read_payload(text, expected="T4", **options)
    return caught.value.problems[0].code


class TestKinds:
    """N-33: each JSON kind of the table."""

    @pytest.mark.parametrize("shot", ["dialogue", "observation", "markdown", "Dialogue"])
    def test_texts(self, shot):
        assert actions_of({"action": "add", "shot_type": shot, "content": " t \n"}) == (
            Action("add_text", "t"),
        )

    @pytest.mark.parametrize("kind", ["comment_result", "update_last_text", "add_text", "add-text"])
    def test_other_names_of_a_text(self, kind):
        assert actions_of({"action": kind, "content": "t"}) == (Action("add_text", "t"),)

    def test_code_by_its_other_names(self):
        for item in (
            {"action": "add-code2run", "code": "x = 1"},
            {"type": "add_code2run", "content": "\n  x = 1\n"},
        ):
            assert actions_of(item) == (Action("add_code", "x = 1"),)

    def test_thinking_and_claims_are_journaled_only(self):
        made = actions_of(
            {"action": "is_thinking", "thinking_text": "hm", "agent_name": "Explore"},
            {"action": "finish_thinking"},
            {"action": "set_effect_as_thinking"},
            {"action": "mark_step_complete"},
            {"action": "mark_stage_complete"},
            {"action": "complete_reflection"},
        )
        assert {action.kind for action in made} == {"note"}
        assert made[0].name == "is_thinking"
        assert made[0].text == "hm"

    def test_a_communication(self):
        assert actions_of({"action": "communication", "to": "PCS", "message": "m"}) == (
            Action("communicate", "m", to="pcs"),
        )
        assert problem_of(lines({"action": "communication", "to": "boss", "message": "m"})) == VALUE

    def test_an_unknown_kind_is_flagged(self):
        read = read_payload(lines({"action": "dance"}, {"action": "add", "content": "t"}), expected="T4")
        assert read.value.actions == (Action("add_text", "t"),)
        assert any(flag.startswith("unused: /0") for flag in read.flags)

    def test_an_unknown_shot_type_is_refused(self):
        assert problem_of(lines({"action": "add", "shot_type": "film", "content": "x"})) == VALUE

    def test_an_action_without_content_is_refused(self):
        assert problem_of(lines({"action": "add", "shot_type": "action"})) == MISSING
        assert problem_of(lines({"action": "exec"})) == MISSING
        assert problem_of(lines({"action": "add", "content": ["x"]})) == VALUE


class TestExec:
    """`add` then `exec` of the same cell runs the code once."""

    ADD: ClassVar = {"action": "add", "shot_type": "action", "content": "x = 1", "store_id": "c1"}

    @pytest.mark.parametrize(
        "execute",
        [
            {"action": "exec", "codecell_id": "c1"},
            {"action": "exec", "codecell_id": "lastAddedCellId"},
            {"action": "exec", "lastAddedCellId": "c1"},
            {"action": "exec", "lastAddedCellId": True},
            {"action": "exec"},
            {"action": "exec", "codecell_id": "c1", "content": " x = 1\n"},
            {"action": "exec", "code": "x = 1"},
        ],
    )
    def test_of_a_cell_that_was_added_adds_nothing(self, execute):
        assert actions_of(self.ADD, execute) == (Action("add_code", "x = 1"),)

    def test_with_its_own_code_adds_a_cell(self):
        assert actions_of(self.ADD, {"action": "exec", "content": "y = 2"})[1] == Action("add_code", "y = 2")
        assert actions_of({"action": "exec", "codecell_id": "c9", "content": "y = 2"}) == (
            Action("add_code", "y = 2"),
        )

    def test_each_cell_runs_once_whatever_the_order(self):
        other = {**self.ADD, "content": "y = 2", "store_id": "c2"}
        made = actions_of(
            self.ADD, other, {"action": "exec", "codecell_id": "c1"}, {"action": "exec", "codecell_id": "c2"}
        )
        assert [action.text for action in made] == ["x = 1", "y = 2"]

    def test_the_same_code_added_twice_runs_twice(self):
        assert len(actions_of(self.ADD, {"action": "exec", "codecell_id": "c1"}, self.ADD)) == 2

    def test_of_a_cell_of_another_payload_is_journaled(self):
        assert actions_of({"action": "exec", "codecell_id": "ab12"}) == (Action("note", "ab12", name="exec"),)


class TestBroken:
    def test_a_cut_value_is_refused(self):
        text = lines(ITEMS[4], ITEMS[5])
        assert problem_of(text[:-4]) == CUT
        assert problem_of(json.dumps(ITEMS)[:-3]) == CUT

    def test_whole_lines_of_a_cut_answer_are_recovered_if_there_is_code(self):
        read = read_payload(lines(ITEMS[4], ITEMS[5]), expected="T4", cut=True)
        assert read.value.has_code
        assert read.repairs == ("R7",)
        assert problem_of(lines(ITEMS[4]), cut=True) == CUT

    def test_xml_inside_a_broken_json_text_is_not_taken_for_the_payload(self):
        inner = "<actions><add-code2run>import os</add-code2run></actions>"
        assert problem_of(f'[{{"action": "add", "content": "{inner}') == CUT

    def test_json_inside_the_code_of_an_xml_payload_is_not_taken_either(self):
        body = 'items = [\n{"action": "add", "content": "x"}\n]'
        read = read_payload(f"<actions><add-code2run>\n{body}\n</add-code2run></actions>")
        assert read.value.actions == (Action("add_code", body),)

    def test_code_that_is_no_python_is_refused(self):
        assert problem_of(lines({"action": "add", "shot_type": "action", "content": "x = ("})) == CODE
        assert problem_of(json.dumps({"actions": [{"kind": "add_code", "text": "x = ("}]})) == CODE

    def test_code_in_fences_or_with_entities_is_understood(self):
        read = read_payload(
            lines({"action": "add", "shot_type": "action", "content": "```python\nx = 1\n```"})
        )
        assert (read.value.actions[0].text, read.repairs) == ("x = 1", ("R1",))
        read = read_payload(lines({"action": "add", "shot_type": "action", "content": "if a &lt; b: pass"}))
        assert (read.value.actions[0].text, read.repairs) == ("if a < b: pass", ("R5",))

    def test_line_ends_within_a_string_are_read(self):
        text = '{"action": "add", "shot_type": "action", "content": "x = 1\ny = 2"}'
        assert read_payload(text).value.actions[0].text == "x = 1\ny = 2"

    def test_limits_and_characters(self):
        assert problem_of("[" * 100_000 + "{}") == LIMIT
        assert problem_of('[{"action":' + "[" * 90 + "]" * 90 + "}]") in (LIMIT, NO_PAYLOAD)
        assert problem_of(lines(*[ITEMS[4]] * 41)) == COUNT
        assert problem_of("[{}]") == NO_PAYLOAD
        assert problem_of('{"action": "add", "content": "a\\u0000b"}') == CHARACTER
        assert problem_of('{"action": "add", "content": "\\ud800"}') == CHARACTER
        assert problem_of('{"action": "add", "content": ' + "9" * 5000 + "}") == CUT
        assert problem_of('{"action": "add", "x": NaN, "content": "a"}') == CUT
