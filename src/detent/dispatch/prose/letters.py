"""Letters: none hidden, none that only looks like another, no markup."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_USUAL = frozenset("\u00a0\u202f\u2011…´\n\r\t")
"""Characters that NFKC changes, or control characters, that ordinary texts have."""
_MARKUP = re.compile(r"<(?![^\s<>@]+@[^\s<>@]+>)[A-Za-z!/]")


def unsound(text: str) -> Iterator[int]:
    """The offsets of letters that are not what they look like."""
    if text.isascii():
        bad = (i for i, char in enumerate(text) if not (char.isprintable() or char in _USUAL))
    else:
        bad = (i for i, char in enumerate(text) if not _sound(char, text[i - 1 : i]))
    yield from bad
    yield from (match.start() for match in _MARKUP.finditer(text))
    if unicodedata.normalize("NFC", text) != text:
        yield 0


def _sound(char: str, before: str) -> bool:
    if char.isascii():
        return char.isprintable() or char in _USUAL
    if char in _USUAL:
        return True
    if unicodedata.normalize("NFKC", char) != char:
        return False
    category = unicodedata.category(char)
    if category[0] == "L":
        return _latin(char)
    if category[0] in "CNZ":
        return False
    if category[0] == "M":  # the mark that makes a symbol an emoji
        return char == "\ufe0f" and bool(before) and unicodedata.category(before) == "So"
    code = ord(char)
    if category == "So":
        return code in (0xA6, 0xA9, 0xAE, 0xB0) or (_is_picture(code) and code not in _WRITTEN_PICTURES)
    return code < 0x100 or 0x2010 <= code <= 0x205E or 0x2190 <= code <= 0x22FF  # signs and arrows


def _is_picture(code: int) -> bool:
    """Whether a symbol is a picture; braille, boxes and blanks are none."""
    return 0x2190 <= code <= 0x21FF or 0x2600 <= code <= 0x27BF or 0x1F300 <= code <= 0x1FAFF


_WRITTEN_PICTURES = frozenset((0x1F4AF, *range(0x1F51F, 0x1F525)))
"""Pictures of digits and letters."""


_ALIKE = frozenset("ıſĸŉƚ")
"""Letters of the same ranges that only look like usual ones."""


def _latin(char: str) -> bool:
    """Whether a letter is one of European names; phonetic and small capital letters are look-alikes."""
    code = ord(char)
    if char in _ALIKE:
        return False
    return 0xC0 <= code <= 0x17F or 0x218 <= code <= 0x21B or 0x1E00 <= code <= 0x1EFF
