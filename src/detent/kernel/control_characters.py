"""Control characters shown instead of obeyed, for text from outside on its way to a person.

An escape sequence can clear a terminal, rename its window, fill the clipboard or hide the line before; a
bidirectional override shows a text in another order than it has.
"""

from __future__ import annotations

import unicodedata

_HARMLESS = frozenset("\n\t\u200c\u200d")
"""Line ends and tabs; what joins letters and emoji."""
_SPACES = "Zs"


def is_control(char: str) -> bool:
    """Whether a terminal, or an eye, could take a character for something else than text."""
    return not (char.isprintable() or char in _HARMLESS or unicodedata.category(char) == _SPACES)


def shown(text: str) -> str:
    """A text in which control characters are spelled out, such as `\\x1b`; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(f"\\x{ord(char):02x}" if is_control(char) else char for char in text)


def json_shown(text: str) -> str:
    """JSON that means the same, with control characters written as JSON's own escapes."""
    if text.isprintable():
        return text
    return "".join(_escaped(char) if is_control(char) else char for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"
