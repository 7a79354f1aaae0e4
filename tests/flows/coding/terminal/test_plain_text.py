"""Text of models and tools on its way to a terminal."""

from __future__ import annotations

import pytest

from detent.cli.output import printable
from detent.flows.coding.terminal.plain_text import one_line, text_lines, without_sequences

HOSTILE = {
    "colour": ("\x1b[31mred\x1b[0m", "red"),
    "clearing": ("a\x1b[2J\x1b[1;1Hb", "ab"),
    "title, closed by a bell": ("a\x1b]0;owned\x07b", "ab"),
    "title, closed by a string end": ("a\x1b]0;owned\x1b\\b", "ab"),
    "clipboard": ("\x1b]52;c;cm0gLXJmIH4=\x07x", "x"),
    "eight bits": ("\x9b2Jx\x9d0;t\x9cy", "xy"),
    "device control": ("\x1bP1;2q...\x1b\\x", "x"),
    "reset": ("\x1bcx", "x"),
    "charset": ("\x1b(0x", "x"),
    "colons and semicolons": ("\x1b[38:2:1:2:3mx", "x"),
    "private mode": ("\x1b[?1049hx", "x"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_control_sequence_is_removed_whole(name: str) -> None:
    raw, shown = HOSTILE[name]
    assert without_sequences(raw) == shown


@pytest.mark.parametrize(
    "raw", ["\x1b]0;never closed\nrm -rf", "\x1b[999", "\x1b", "a\x08b", "\x90open", "x\x9b"]
)
def test_what_is_left_of_a_broken_sequence_is_spelled_out_and_hides_nothing(raw: str) -> None:
    told = printable(without_sequences(raw))
    assert not any((ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0 for char in told)
    for word in ("never closed", "rm -rf", "open"):
        assert (word in raw) == (word in told)


def test_a_long_unclosed_sequence_hides_nothing_either() -> None:
    assert "end" in without_sequences("\x1b]0;" + "x" * 10_000 + "\x07end")
    assert "x" * 10_000 in without_sequences("\x1b]0;" + "x" * 10_000 + "\x07end")


def test_text_of_any_script_stays_as_it_is() -> None:
    text = "naïve Привет 日本語 العربية 👩‍👩‍👧 `code` — “quoted”"
    assert without_sequences(text) == text
    assert one_line(f"  {text}\r\n\tmore ") == f"{text} more"


def test_a_line_that_was_written_over_is_shown_as_it_was_left() -> None:
    assert text_lines("10 %\r50 %\rdone\r\nnext\r\n") == ["done", "next", ""]
    assert text_lines("a\tb") == ["a       b"]
