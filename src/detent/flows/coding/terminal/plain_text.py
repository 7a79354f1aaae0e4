"""Text of models and tools on its way to a terminal: without the sequences that steer one.

A colour of a test's output is no part of what it says, so sequences are removed whole; a control character
that is left is spelled out when the text is printed. What a person is asked about is not cleaned like this
but shown as it is, with everything escaped.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor, clearing
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}+(?:\x07|\x9c|\x1b\\\\)"  # OSC, DCS
    "|\x1b[ -/]*+[0-~]"  # the others
)
_MANY_BREAKS = re.compile("[\r\x0b\x0c\x85\u2028\u2029]+")


def without_sequences(text: str) -> str:
    """A text without control sequences. One that does not end leaves its contents to be seen."""
    return _SEQUENCE.sub("", text) if not text.isprintable() else text


def one_line(text: str) -> str:
    """A text on one line, without control sequences."""
    return " ".join(_MANY_BREAKS.sub(" ", without_sequences(text)).split())


def text_lines(text: str) -> list[str]:
    """The lines of a text without control sequences; of a line that was written over, what is left of it."""
    lines = without_sequences(text).replace("\r\n", "\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2].expandtabs(8) for line in lines]
