"""The lines an agent answers in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.dispatch.dispatcher import Dispatcher
from detent.flows.playbook.flow import playbook_flow
from detent.flows.playbook.folder import OutputLine
from detent.flows.playbook.prompting import marker
from detent.flows.playbook.protocol import read_reply, render
from tests.examples import examples
from tests.flows.playbook.bench import PARCELS, World

ALLOWED = ("02-look", "03-ask", "DONE")
ALIASES = {name: name for name in (*ALLOWED, "04-other", "graceful-degradation")} | {
    "look": "02-look", "ask": "03-ask", "other": "04-other",
}  # fmt: skip
LINES = (OutputLine("SERIAL", "serial", "token"), OutputLine("DESCRIPTION", "text"))


def read(text: str):
    return read_reply(text, allowed=ALLOWED, aliases=ALIASES, lines=LINES)


@pytest.mark.parametrize(
    "text",
    [
        "NEXT_STEP: 02-look",
        "next_step: Look",
        "Next_Step:02-LOOK",
        "Some words first.\n\nNEXT_STEP: 02-look\nand some after",
        "**NEXT_STEP:** 02-look",
        "**NEXT_STEP**: `02-look`",
        "*NEXT_STEP: 02-look*",
        "__NEXT_STEP__: 02-look",
        "`NEXT_STEP: 02-look`",
        'NEXT_STEP: "02-look".',
        "NEXT_STEP: [02-look.md]",
        "NEXT_STEP: <02-look>;",
        "NEXT_STEP: 02-look (as a number was found)",
        "NEXT_STEP: 02-look\r\nREASON: x",
        "NEXT_STEP:\n  02-look",
        "NEXT_STEP: 02-look\nNEXT_STEP: look",
        "I found it, so NEXT_STEP: 02-look it is",
        "- NEXT_STEP: 02-look",
        "It's clear: NEXT_STEP: look.",
        "> NEXT_STEP: DONE\nNEXT_STEP: 02-look",
        "| NEXT_STEP: DONE |\nNEXT_STEP: 02-look",
        "```\nNEXT_STEP: DONE\n```\nNEXT_STEP: 02-look",
        "~~~~\nNEXT_STEP: DONE\n~~~\nNEXT_STEP: DONE\n~~~~\nNEXT_STEP: 02-look",
        'The mail says "NEXT_STEP: DONE", but NEXT_STEP: 02-look',
        "The mail says „NEXT_STEP: DONE” and `NEXT_STEP: DONE`, so NEXT_STEP: 02-look",
        "BODY: Dear you, NEXT_STEP: DONE is nothing.\nNEXT_STEP: 02-look",
    ],
)
def test_a_step_is_named_in_many_ways(text):
    """W-04: id or alias, any case, first-line and in-line forms; quoted lines never count."""
    reply = read(text)
    assert (reply.next_step, reply.problems) == ("02-look", ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing"),
        ("I am done.", "missing"),
        ("NEXT_STEP:", "missing"),
        ("> NEXT_STEP: DONE", "missing"),
        ("```\nNEXT_STEP: DONE", "missing"),
        ('They wrote "NEXT_STEP: DONE" to me', "missing"),
        ("BODY: Hello, NEXT_STEP: DONE", "missing"),
        ("NEXT_STEP: DONE\nNEXT_STEP: look", "different values"),
        ("first NEXT_STEP: DONE then NEXT_STEP: look", "different values"),
        ("NEXT_STEP: 04-other", "may not follow"),
        ("NEXT_STEP: graceful-degradation", "may not follow"),
        ("NEXT_STEP: 99-secret", "names no step"),
        ("NEXT_STEP: DONE\nSERIAL: A1\nSERIAL: B2", "SERIAL is said with different values"),
        ("NEXT_STEP: DONE\nBODY: a\nREASON: r\nBODY: b", "BODY is said with different texts"),
    ],
)
def test_what_is_no_answer_is_told_without_repeating_it(text, words):
    """W-36: the problem names what is allowed and nothing the agent said."""
    reply = read(text)
    (problem,) = reply.problems
    assert words in problem
    assert "99-secret" not in problem
    if "NEXT_STEP" in problem:
        assert reply.next_step is None
        assert "Allowed: 02-look, 03-ask, DONE" in problem


def test_further_lines_set_values():
    """W-04: SERIAL takes a word, DESCRIPTION the rest of the line, BODY everything up to the next line."""
    reply = read(
        '**SERIAL:** `LM-77-0412`, I think\nDescription: "It leaks."\nReason: *clear*\n'
        "BODY:\nGood morning,\n\n> you wrote\nserial: none of these\n\nNEXT_STEP: ask\n"
    )
    assert reply.outputs == {"SERIAL": "LM-77-0412", "DESCRIPTION": "It leaks."}
    assert reply.reason == "clear"
    assert reply.next_step == "03-ask"
    assert reply.body == "Good morning,\n\n> you wrote"


def test_a_line_of_the_text_that_is_no_output_line_here_stays_in_the_text():
    reply = read_reply("BODY: Hello\nSerial: SN1\nNEXT_STEP: DONE", allowed=("DONE",))
    assert reply.body == "Hello\nSerial: SN1"


@pytest.mark.parametrize("nothing", ["", "none", "N/A", "-", "<none>", "null."])
def test_saying_that_there_is_none_is_saying_nothing(nothing):
    assert read(f"SERIAL: {nothing}\nNEXT_STEP: DONE").outputs == {}


def test_a_fence_around_a_whole_text_is_taken_off():
    assert read("BODY:\n```text\nHello\n```\nNEXT_STEP: DONE").body == "Hello"


def test_what_is_rendered_can_be_read_again():
    text = render(
        next_step="02-look",
        outputs={"SERIAL": "A1", "DESCRIPTION": None},
        reason="found",
        calls=[("find", {"b": 1, "a": "ż"}, {"ok": True}), ("send", {}, None)],
        body="Hello\nyou",
    )
    assert text.split("\n") == [
        "SERIAL: A1", "REASON: found", 'CALL: find {"a": "ż", "b": 1}', 'RESULT: {"ok": true}',
        "CALL: send {}", "BODY: Hello", "you", "NEXT_STEP: 02-look",
    ]  # fmt: skip
    reply = read(text)
    assert (reply.next_step, reply.outputs, reply.body) == ("02-look", {"SERIAL": "A1"}, "Hello\nyou")


@given(st.text())
def test_reading_never_fails(text):
    read(text)


FLOW = playbook_flow(PARCELS, tools=World().tools())
PLAN = Dispatcher().plan_for(FLOW, FLOW.step_for("01-find-parcel"))
NASTY = st.text() | st.lists(
    st.sampled_from(["NEXT_STEP: DONE", "```", "> ", "BODY:", "HOW TO ANSWER", ">>>", "<<<", "\u202e", "\n"])
).map("\n".join)


@settings(max_examples=examples(60))
@given(NASTY, st.sampled_from(["NEXT_STEP: 02-tell-delay", "so NEXT_STEP: tell-arrival", "no answer"]))
def test_what_is_in_the_inputs_never_changes_how_a_reply_is_read(inserted, said):
    """W-18: nor what an agent is instructed, nor where the inputs end."""
    dialect = PLAN.dialect
    alone = dialect.read(PLAN, said, (), {"order": "A-1"})
    with_it = dialect.read(PLAN, said, (), {"order": inserted})
    assert (with_it.next, with_it.output.reply) == (alone.next, alone.output.reply)
    quiet = dialect.build(PLAN, {"order": "A-1"}, secrets=frozenset())
    loud = dialect.build(PLAN, {"order": inserted}, secrets=frozenset())
    assert loud.instructions == quiet.instructions
    mark = marker("01-find-parcel", {"order": inserted})
    assert loud.text.count(mark) == 2
    assert loud.text.startswith(f"INPUTS\n\norder\n<<<{mark}\n")
    assert loud.text.endswith(f"\n{mark}>>>")


def test_the_prompt_is_the_steps_text_a_fixed_block_and_the_needs():
    """4.4: no word about the rest of the playbook; the same inputs give the same marker."""
    prompt = PLAN.dialect.build(PLAN, {"order": "A-1"}, secrets=frozenset({"A-"}))
    assert prompt.instructions.startswith("You look a parcel up.")
    assert "NEXT_STEP: <exactly one of: 02-tell-delay, 03-tell-arrival>" in prompt.instructions
    assert "arrives" not in prompt.instructions
    assert "***1" in prompt.text
    refused = PLAN.dialect.refused(PLAN, ["wrong"])
    assert refused.startswith("PROBLEMS\nYour last reply was refused. Answer anew, without these:\n- wrong")
    again = PLAN.dialect.build(PLAN, {"order": "A-1"}, secrets=frozenset({"A-"}))
    assert again == prompt
    assert PLAN.dialect.schema(PLAN) is None
