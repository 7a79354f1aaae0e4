"""A reply while it is being written."""

from __future__ import annotations

import pytest

from detent.flows.coding.terminal.reply_stream import LONGEST_SHOWN, ReplyStream

FENCED = "Look:\n```py\n<think>\nTUNACODE DONE: no\n```\nTUNACODE DONE: yes\n"
REPLIES = {
    "plain": ("one\ntwo\n\nthree", ["one", "two", "", "three"], []),
    "blank ends": ("\n\n  \none\n\n\n", ["one"], []),
    "windows": ("one\r\ntwo\r\nTUNACODE DONE: x\r\n", ["one", "two"], ["TUNACODE DONE: x"]),
    "marker": ("Did it.\nTUNACODE DONE: fixed", ["Did it."], ["TUNACODE DONE: fixed"]),
    "marker, indented, any case": ("  tunacode done: x\nafter", ["after"], ["  tunacode done: x"]),
    "marker's beginning only": ("TUNA\nTUNACODE\nTUNACODE DONE", ["TUNA", "TUNACODE", "TUNACODE DONE"], []),
    "quoted": ("> TUNACODE DONE: x\n- TUNACODE DONE: y", ["> TUNACODE DONE: x", "- TUNACODE DONE: y"], []),
    "old marker": ("\nTUNACODE_TASK_COMPLETE\nall done", ["all done"], ["TUNACODE_TASK_COMPLETE"]),
    "old marker later": ("text\nTUNACODE_TASK_COMPLETE", ["text", "TUNACODE_TASK_COMPLETE"], []),
    "in a fence": (
        FENCED, ["Look:", "```py", "<think>", "TUNACODE DONE: no", "```"], ["TUNACODE DONE: yes"]
    ),
    "longer fence": (
        "````\n```\nTUNACODE DONE: x\n````\nend", ["````", "```", "TUNACODE DONE: x", "````", "end"], []),
    "inline fence": ("```x```\nTUNACODE DONE: x", ["```x```"], ["TUNACODE DONE: x"]),
    "open fence": ("~~~\nTUNACODE DONE: x", ["~~~", "TUNACODE DONE: x"], []),
    "thinking": ("<think>\nI plan\nTUNACODE DONE: x\n</think>\nanswer", ["answer"], []),
    "thinking within a line": ("a <think>b\nc</think> d\ne", ["a ", " d", "e"], []),
    "thinking without an end": ("a\n<think>\nb\nc", ["a"], []),
    "tool output": ("<tool_output name=x>\nsecret\n</tool_output>\nseen", ["seen"], []),
    "a mention": ("the `<think>` tag\nstays", ["the `<think>` tag", "stays"], []),
    "a fence in thinking": ("<think>\n```\n</think>\nTUNACODE DONE: x", [], ["TUNACODE DONE: x"]),
}  # fmt: skip


def _streamed(text: str, size: int) -> tuple[list[str], list[str], ReplyStream]:
    stream = ReplyStream()
    lines: list[str] = []
    for place in range(0, len(text), size):
        lines += stream.feed(text[place : place + size])
    lines += stream.end()
    return lines, stream.held, stream


@pytest.mark.parametrize("name", REPLIES)
def test_the_lines_shown_are_the_same_however_a_reply_is_cut_into_pieces(name: str) -> None:
    text, shown, held = REPLIES[name]
    for size in (1, 2, 3, 7, len(text)):
        assert _streamed(text, size)[:2] == (shown, held), size


def test_a_line_that_may_become_a_marker_is_held_back_until_it_cannot() -> None:
    stream = ReplyStream()
    seen: dict[str, str] = {}
    text = ""
    for char in "  TunaCode DONE is":
        text += char
        stream.feed(char)
        seen[text] = stream.unfinished
    assert set(list(seen.values())[:-3]) == {""}  # up to "  TunaCode DONE" it may still become one
    assert seen["  TunaCode DONE "] == "  TunaCode DONE "


def test_a_marker_is_never_shown_unfinished_and_thinking_neither() -> None:
    stream = ReplyStream()
    for char in "TUNACODE DONE: it is":
        stream.feed(char)
        assert stream.unfinished == ""
    assert stream.feed("\nab<think") == []
    assert stream.unfinished == "ab"
    stream.feed(">c")
    assert stream.unfinished == "ab"
    stream.feed("\nd")
    assert stream.unfinished == ""
    assert stream.feed("</think>\n< 3 and <b") == []
    assert stream.unfinished == "< 3 and <b"


def test_an_end_of_thinking_that_nothing_opened_is_noticed() -> None:
    stream = ReplyStream()
    assert stream.feed("I plan\n") == ["I plan"]
    assert stream.feed("</think>\nanswer\n") == ["answer"]
    assert stream.thought_aloud
    assert not _streamed("I plan</think>\nanswer", 100)[2].thought_aloud  # nothing was shown of it


def test_hostile_replies_are_streamed_in_time_proportional_to_their_length() -> None:
    """A quadratic reading would need hours here, and run into the time limit of a test."""
    hostile = ("```\n" * 300_000, "<think>\n" * 300_000, "<" * 2_000_000, f"{'`' * 9000}\n{'a' * 10}\n" * 50)
    for text in hostile:
        for size in (len(text) // 500 + 1, len(text)):
            _, _, stream = _streamed(text, size)
            assert len(stream.unfinished) <= LONGEST_SHOWN
