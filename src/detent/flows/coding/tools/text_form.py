"""How files and their names become text: what is binary, and names that a line of a result cannot hold."""

from __future__ import annotations

import json

HEAD = 8192
"""Bytes at the beginning of a file that tell whether it is text."""
MOST_CONTROLS = 0.1
"""Share of control characters above which it is not."""
_TEXT_CONTROLS = b"\t\n\r\f\b\x1b"
_CONTROLS = bytes(code for code in range(32) if code not in _TEXT_CONTROLS) + b"\x7f"


def is_binary(head: bytes) -> bool:
    """Whether the beginning of a file shows that it is no text."""
    if b"\0" in head:
        return True
    return len(head) - len(head.translate(None, _CONTROLS)) > MOST_CONTROLS * len(head)


def shown_name(name: str) -> str:
    """A name or path for a line of a result: itself, or as JSON where it could be mistaken."""
    return name if name.isprintable() and name == name.strip() else json.dumps(name)


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def with_notes(text: str, notes: list[str]) -> str:
    """A result, with notes on it in brackets on a line of their own."""
    if not notes:
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[{' '.join(notes)}]"
