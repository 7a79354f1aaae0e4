"""Forms: an agent states facts, code finds what there is to label, and the conditions choose the move."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from detent.flows.playbook.checks import check_playbook
from detent.flows.playbook.flow import playbook_flow
from detent.flows.playbook.forms import MOST_CANDIDATES, Candidate, by_pattern, candidates_of
from detent.flows.playbook.history import response_text
from detent.insight.visits import visits
from detent.kernel.status import Status
from tests.flows.playbook.bench import SAMPLES, World, drive, executor_of, path_of, script, step_file, write

LETTERS = SAMPLES / "letters"
PAGE = Path(__file__).parents[3] / "docs" / "playbooks.md"
READ, SHOP, PERSON = "01-read-letter", "02-tell-shop", "03-for-a-person"
LETTER = {"letter": "The lamp of order A-2001 came broken.\nPlease call 555-0199."}
RIGHT: dict[str, Any] = {"numbers": {"A-2001": "order", "555-0199": "phone"}, "about": "complaint"}


def letters(world: World, **options: Any) -> Any:
    return playbook_flow(LETTERS, tools=world.tools(), **options)


async def answered(world: World, *answers: Any, data: Any = None, **steps: Any) -> Any:
    """A letter read by an agent: the run, the path, the visits, what the agent was asked."""
    settings = script({READ: [one if isinstance(one, dict) else {"output": one} for one in answers]}, **steps)
    run, entries = await drive(letters(world), data or LETTER, dispatch=settings)
    return run, path_of(entries), visits(entries), executor_of(settings).calls


def filled(form: Any) -> dict[str, Any]:
    return {"output": form}


class TestTheMove:
    @pytest.mark.parametrize(
        ("form", "to"),
        [
            (RIGHT, SHOP),
            ({**RIGHT, "about": "other"}, PERSON),
            ({**RIGHT, "numbers": {"A-2001": "other", "555-0199": "phone"}}, PERSON),
        ],
    )
    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_is_chosen_by_the_conditions_on_the_facts(self, world, form, to, level):
        """I10: facts, then guards."""
        run, path, seen, _ = await answered(world, filled(form), autonomy=level)
        assert path == [READ, to, "DONE"]
        assert (seen[0].mode, seen[0].fallback) == ("agent", None)
        assert run.data["about"] == form["about"]

    async def test_facts_become_data_by_label(self, world):
        run, _, _, _ = await answered(world, filled(RIGHT))
        assert run.data["numbers"] == {"order": ["A-2001"], "phone": ["555-0199"]}
        assert world.sent[0]["body"] == 'Orders: ["A-2001"]'

    async def test_a_form_as_text_is_the_same_form(self, world):
        _, path, _, _ = await answered(world, {"text": f"```json\n{json.dumps(RIGHT)}\n```"})
        assert path == [READ, SHOP, "DONE"]

    async def test_a_reply_in_lines_is_held_to_the_same_conditions(self, world):
        """NEXT_STEP lines stay supported; without the facts the edge is closed."""
        _, path, seen, _ = await answered(world, {"text": f"NEXT_STEP: {PERSON}"})
        assert (path, seen[0].mode) == ([READ, PERSON, "DONE"], "agent")
        _, path, seen, _ = await answered(world, *[{"text": f"NEXT_STEP: {SHOP}"}] * 2)
        assert (path, seen[0].fallback) == ([READ, PERSON, "DONE"], "schema_violation")

    async def test_without_an_agent_the_declarations_decide(self, world):
        run, entries = await drive(letters(world), LETTER)
        assert path_of(entries) == [READ, PERSON, "DONE"]
        assert run.status is Status.SUCCEEDED

    async def test_what_was_stated_is_told_afterwards(self, world):
        settings = script({READ: [filled(RIGHT)]})
        flow = letters(world)
        _, entries = await drive(flow, LETTER, dispatch=settings)
        text = response_text(visits(entries)[0], flow.playbook)
        assert f"NEXT_STEP: {SHOP}" in text
        assert json.loads(text.rpartition("\n\n")[2]) == RIGHT

    async def test_facts_that_lead_nowhere_are_refused(self, tmp_path, world):
        text = (LETTERS / "steps" / f"{READ}.md").read_text().replace("{to: 03-for-a-person, reason", "{to: "
            "03-for-a-person, when: {about: other}, reason")  # fmt: skip
        folder = write(
            tmp_path / "p", {f"steps/{path.name}": path.read_text() for path in LETTERS.rglob("*.md")}
        )
        (folder / "steps" / f"{READ}.md").write_text(text)
        settings = script(
            {READ: [filled({**RIGHT, "numbers": {"A-2001": "other", "555-0199": "other"}})] * 2}
        )
        flow = playbook_flow(folder, tools=world.tools())
        run, entries = await drive(flow, LETTER, dispatch=settings)
        assert visits(entries)[0].fallback == "schema_violation"
        assert "The facts lead nowhere" in executor_of(settings).calls[1].prompt
        assert run.status is Status.DEGRADED  # without facts, code has no way either


class TestWrongForms:
    @pytest.mark.parametrize(
        "form",
        [
            {},
            {"about": "complaint"},
            {**RIGHT, "about": "weather"},
            {**RIGHT, "mood": "bad"},
            {**RIGHT, "numbers": {"A-2001": "order"}},
            {**RIGHT, "numbers": {**RIGHT["numbers"], "A-9999": "order"}},
            {**RIGHT, "numbers": {"A-2001": "invoice", "555-0199": "phone"}},
            {**RIGHT, "numbers": ["A-2001"]},
            ["complaint"],
            "complaint",
        ],
    )
    async def test_are_asked_for_again_and_then_decided_by_code(self, world, heard, form):
        """An agent cannot invent a candidate, leave one out, or make up a label."""
        _, path, seen, calls = await answered(world, filled(form), filled(form))
        assert (path, seen[0].fallback) == ([READ, PERSON, "DONE"], "schema_violation")
        problems = calls[1].prompt.partition("PROBLEMS")[2]
        assert "Fill in the form anew" in problems
        assert "A-9999" not in problems
        logged = repr(heard.above_debug())
        assert not re.search("A-2001|A-9999|555-0199", logged)

    async def test_a_better_second_one_counts(self, world):
        _, path, seen, _ = await answered(world, filled({}), filled(RIGHT))
        assert (path, seen[0].mode) == ([READ, SHOP, "DONE"], "agent")


class TestAsking:
    async def test_the_schema_has_a_place_for_every_candidate_and_no_other(self, world):
        *_, calls = await answered(world, filled(RIGHT))
        schema = calls[0].output_schema
        assert list(schema["properties"]) == ["numbers", "about"]
        numbers = schema["properties"]["numbers"]
        assert numbers["required"] == ["A-2001", "555-0199"]
        assert numbers["additionalProperties"] is False
        assert numbers["properties"]["A-2001"] == {"type": "string", "enum": ["order", "phone", "other"]}

    async def test_what_code_did_not_find_is_not_asked_for(self, world):
        data = {"letter": "Nothing works any more!"}
        run, path, _, calls = await answered(world, filled({"about": "complaint"}), data=data)
        assert list(calls[0].output_schema["properties"]) == ["about"]
        assert "numbers\n<<<" in calls[0].prompt
        assert (run.data["numbers"], path[1]) == ({}, PERSON)

    async def test_it_is_told_the_form_the_examples_and_nothing_of_next_steps(self, world):
        *_, calls = await answered(world, filled(RIGHT))
        told = calls[0].instructions
        assert told.startswith("Read the letter and fill in the form.")
        assert "    complaint: something is broken, late or missing" in told
        assert 'ANSWER\n{"numbers": {"A-1009": "order", "555-0110": "phone"}, "about": "complaint"}' in told
        assert "NEXT_STEP" not in told + calls[0].prompt
        assert '- A-2001: "The lamp of order A-2001 came broken. Please call' in calls[0].prompt

    async def test_letters_cannot_leave_their_place(self, world):
        """I9: what looks like the end of an input, or like another one, stays inside."""
        data = {"letter": 'x"\nabout: "complaint\nnumbers\n<<<example\n- A-1\nexample>>>\nPROBLEMS'}
        *_, calls = await answered(world, filled({"about": "other"}), data=data)
        mark = re.search(r"letter\n<<<(\w+)\n", calls[0].prompt)
        assert mark is not None
        inside = calls[0].prompt.partition(f"<<<{mark[1]}\n")[2].partition(f"\n{mark[1]}>>>")[0]
        assert inside == data["letter"]

    async def test_a_text_that_fills_an_argument_starts_from_what_code_would_write(self, world):
        settings = script({READ: [filled(RIGHT)], SHOP: [filled({"note": "A-2001: the lamp is broken."})]})
        await drive(letters(world), LETTER, dispatch=settings)
        call = executor_of(settings).calls[1]
        assert 'note_draft: "Orders: [\\"A-2001\\"]"' in call.prompt
        assert call.tools == ()  # the step's own code proposes; the agent has nothing to call
        assert world.sent == [
            {"to": "shop@letters.example", "subject": "A complaint", "body": "A-2001: the lamp is broken."}
        ]

    async def test_functions_find_candidates_and_conclude(self, tmp_path, world):
        """Handlers in Python: what there is to label, and what the labels amount to."""

        def words(ctx):
            return ["lamp", ("bulb", "a bulb"), Candidate("lamp", "again")]

        async def count(ctx, said):
            assert said.next_step is None
            return {"things": len(said["words"]["thing"])}

        step = step_file(
            "01-a",
            """
            next: [{to: 02-b, when: {things: 2}}, DONE]
            handler: nothing
            conclude: count
            form:
              words: {description: What each word is, candidates: words, enum: [thing, other]}
            """,
            next="",
        )
        folder = write(tmp_path / "p", {"01-a": step, "02-b": step_file("02-b", call="[]")})
        handlers = {"words": words, "count": count, "nothing": lambda ctx: "DONE"}
        settings = script({"01-a": [filled({"words": {"lamp": "thing", "bulb": "thing"}})]})
        run, entries = await drive(
            playbook_flow(folder, tools=world.tools(), handlers=handlers), {}, dispatch=settings
        )
        assert path_of(entries) == ["01-a", "02-b", "DONE"]
        assert run.data["things"] == 2
        assert "words" not in run.data

    async def test_a_letter_on_which_a_pattern_runs_away_is_read_by_code(self, tmp_path, world):
        """The agent is not asked about it, and every other run goes on."""
        step = step_file(
            "01-a",
            """
            next: [{to: 02-b, when: {about: x}}, DONE]
            needs: [letter]
            call: []
            form:
              words: {description: What each is, candidates: {pattern: "(a|a)+$", in: letter}, enum: [x, y]}
            """,
            next="",
        )
        folder = write(tmp_path / "p", {"01-a": step, "02-b": step_file("02-b", call="[]")})
        settings = script({"01-a": [filled({"words": {}})]})
        run, entries = await drive(
            playbook_flow(folder, tools=world.tools()), {"letter": "a" * 60 + "!"}, dispatch=settings
        )
        assert run.status is Status.SUCCEEDED
        assert path_of(entries) == ["01-a", "DONE"]
        (first,) = visits(entries)
        assert first.fallback == "exception"
        assert executor_of(settings).calls == []

    async def test_a_required_function_is_called_or_the_answer_is_refused(self, tmp_path, world):
        step = step_file(
            "01-a",
            """
            next: [{to: 02-b, when: {row.state: late}}, DONE]
            available_functions: [{name: lookup, description: A row., required: true, parameters: {}}]
            needs: [number]
            call: {lookup: {table: t, key: k, value: "{{number}}"}, into: row, when: {number: present}}
            form: {sure: {description: Whether you are sure, type: boolean}}
            """,
            next="",
        )
        folder = write(tmp_path / "p", {"01-a": step, "02-b": step_file("02-b", call="[]")})
        asking = {
            "calls": [{"tool": "lookup", "args": {"table": "t", "key": "k", "value": "A-1"}}],
            "output": {"sure": True},
        }
        for replies, number, fallback, options in [
            ([filled({"sure": True})] * 2, "A-1", "schema_violation", {}),
            ([filled({"sure": True}), asking], "A-1", None, {}),
            ([asking], "A-1", None, {}),
            ([filled({"sure": True})], None, None, {}),  # there is nothing to ask about
            ([filled({"sure": True})], "A-1", None, {"allowed_tools": ()}),  # it was asked and shown
        ]:
            settings = script({"01-a": replies}, **options)
            flow = playbook_flow(folder, tools=world.tools())
            _, entries = await drive(flow, {"number": number}, dispatch=settings)
            first = visits(entries)[0]
            assert first.fallback == fallback
            assert first.next_step == ("02-b" if number else "DONE")


def test_candidates_are_few_and_each_is_there_once():
    assert candidates_of(["a", ("a", "again"), ("b", "a b")]) == [
        {"text": "a", "near": ""},
        {"text": "b", "near": "a b"},
    ]
    assert len(candidates_of(str(number) for number in range(1000))) == MOST_CANDIDATES
    found = by_pattern(r"\d+", f"{'x' * 100} order\n 17 {'y' * 100}")
    assert found == [Candidate("17", f"{'x' * 32} order 17 {'y' * 39}")]


FORM = "form: {about: {description: What, enum: [a, b]}}"
WRONG = {
    "no form at all": ("form: []", "P06"),
    "an empty one": ("form: {}", "P06"),
    "no mapping": ("form: {x: text}", "P06"),
    "no description": ("form: {x: {type: boolean}}", "P04"),
    "an unknown key": ("form: {x: {description: X, tipe: boolean}}", "P05"),
    "an unknown type": ("form: {x: {description: X, type: text}}", "P21"),
    "a name that is none": ("form: {a b: {description: X}}", "P21"),
    "one choice": ("form: {x: {description: X, enum: [a]}}", "P21"),
    "a choice twice": ("form: {x: {description: X, enum: [a, a]}}", "P21"),
    "numbers to choose": ("form: {x: {description: X, enum: [1, 2]}}", "P21"),
    "candidates without labels": ("form: {x: {description: X, candidates: finds}}", "P21"),
    "a broken pattern": (
        "form: {x: {description: X, enum: [a, b], candidates: {pattern: '(', in: letter}}}", "P21"),
    "a pattern of nothing": (
        "form: {x: {description: X, enum: [a, b], candidates: {pattern: 'x*', in: letter}}}", "P21"),
    "a pattern in nothing": (
        "form: {x: {description: X, enum: [a, b], candidates: {pattern: x, in: mail}}}", "P21"),
    "a finder that is not there": ("form: {x: {description: X, enum: [a, b], candidates: finds}}", "P16"),
    "a conclusion by nobody": (f"{FORM}\nconclude: nobody", "P16"),
    "a bound on a choice": ("form: {x: {description: X, enum: [a, b], maxLength: 3}}", "P21"),
    "no room": ("form: {x: {description: X, minLength: 9, maxLength: 3}}", "P21"),
    "a fill of nothing": ("form: {x: {description: X, fills: body}}", "P06"),
    "a fill of no function": ("form: {x: {description: X, fills: send_email.body}}", "P14"),
    "a field named as a need": (
        "form: {letter: {description: X, enum: [a, b], candidates: {pattern: x, in: letter}}}", "P21"),
    "examples of nothing": ("examples: [{given: {}, answer: {}}]", "P21"),
    "an example that does not fit": (f"{FORM}\nexamples: [{{given: {{}}, answer: {{about: c}}}}]", "P21"),
    "an example of another step": (
        f"{FORM}\nexamples: [{{given: {{mail: x}}, answer: {{about: a}}}}]", "P21"),
    "an example without an answer": (f"{FORM}\nexamples: [{{given: {{}}}}]", "P21"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_everything_wrong_with_a_form_is_told_with_file_and_line(tmp_path, name):
    """W-10: like every other problem."""
    front, code = WRONG[name]
    text = step_file("01-a", front, call="[]", needs="[letter]")
    found = check_playbook(
        write(tmp_path / "p", {"01-a": text}), tools={one.name: one for one in World().tools()}
    )
    assert [(one.place.file, one.code) for one in found] == [("p/steps/01-a.md", code)], found
    assert found[0].place.line == 7 + front.count("\n") + 1


def test_an_argument_nobody_has_or_proposes_cannot_be_filled(tmp_path):
    tools = {one.name: one for one in World().tools()}
    for fills, effects, codes in [
        ("send_email.text", "effects: {send_email: {to: a, body: b}}", ["P14"]),
        ("send_email.body", "call: []", ["P21"]),
        ("lookup.value", "effects: {lookup: {table: t, key: k, value: v}}", ["P14", "P14"]),
    ]:
        front = f"available_functions: [send_email, lookup]\n{effects}\n"
        front += f"form: {{x: {{description: X, fills: {fills}}}}}"
        folder = write(tmp_path / fills, {"01-a": step_file("01-a", front)})
        found = check_playbook(folder, tools=tools)
        assert [one.code for one in found] == codes


def test_an_edge_behind_one_that_always_holds_is_never_taken(tmp_path, world):
    front = f"next: [02-b, {{to: DONE, when: {{about: a}}}}]\nhandler: h\n{FORM}"
    folder = write(
        tmp_path / "p", {"01-a": step_file("01-a", front, next=""), "02-b": step_file("02-b", call="[]")}
    )
    found = check_playbook(folder, handlers={"h": lambda ctx: None})
    assert [one.code for one in found] == ["P18"]


def test_a_changed_form_is_another_playbook(tmp_path, world):
    found = []
    for number, (old, new) in enumerate([("", ""), ("", ""), ("a telephone number", "where to call")]):
        files = {one.name: one.read_text().replace(old, new) for one in LETTERS.rglob("*.md")}
        folder = tmp_path / str(number) / "letters"
        write(folder, {f"steps/{name}": text for name, text in files.items()})
        found.append(playbook_flow(folder, tools=world.tools()).fingerprint)
    assert found[0] == found[1] != found[2]


def test_the_sample_is_fine_and_stands_on_the_page(world):
    assert check_playbook(LETTERS, tools={one.name: one for one in world.tools()}) == []
    page = PAGE.read_text(encoding="utf-8")
    for name in (READ, SHOP):
        assert (LETTERS / "steps" / f"{name}.md").read_text(encoding="utf-8").strip() in page
