"""Text between tags and in attributes: escaped, unescaped, and what XML cannot hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
"""The entities that exist without a document type."""
CDATA_START = "<![CDATA["
CDATA_END = "]]>"
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold: NUL, other control characters, halves of surrogate pairs."""

SPACE = " \t\n\r"
"""White space of XML."""

_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_ESCAPED_IN_ATTRIBUTE = {**_ESCAPED, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}
_SPECIAL = re.compile("[&<>\r]")
_SPECIAL_IN_ATTRIBUTE = re.compile('[&<>\r"\n\t]')


def escaped(text: str) -> str:
    """Text as it stands between tags."""
    return _SPECIAL.sub(lambda match: _ESCAPED[match[0]], holdable(text))


def escaped_attribute(text: str) -> str:
    """Text as it stands between double quotes."""
    return _SPECIAL_IN_ATTRIBUTE.sub(lambda match: _ESCAPED_IN_ATTRIBUTE[match[0]], holdable(text))


def holdable(text: str) -> str:
    """A text in which the characters that XML cannot hold are spelled out, such as `\\x1b`."""
    return FORBIDDEN.sub(lambda match: _spelled_out(ord(match[0])), text)


def guarded(text: str) -> str:
    """Escaped text whose outer white space is written as references, so that no reader trims it."""
    core = text.strip(SPACE)
    if core == text:
        return text
    start = text.find(core) if core else len(text)
    return "".join((_references(text[:start]), core, _references(text[start + len(core) :])))


def unescaped(text: str) -> str:
    """Text with its entities resolved."""
    return ENTITY.sub(lambda match: _resolved(match[0]), text)


def body_text(raw: str) -> str:
    """The text that an element's body stands for: outer white space trimmed, CDATA and entities resolved."""
    parts = [(text, literal) for text, literal in segments(raw) if text]
    while parts and not parts[0][0].strip(SPACE):
        parts.pop(0)
    while parts and not parts[-1][0].strip(SPACE):
        parts.pop()
    last = len(parts) - 1
    texts = []
    for index, (text, literal) in enumerate(parts):
        text = text.lstrip(SPACE) if index == 0 else text
        text = text.rstrip(SPACE) if index == last else text
        texts.append(text if literal else unescaped(text))
    return "".join(texts)


def decoded(raw: str) -> str:
    """An element's body with CDATA and entities resolved, nothing trimmed."""
    return "".join(text if is_literal else unescaped(text) for text, is_literal in segments(raw))


def is_character_data(raw: str) -> bool:
    """Whether a body is text to an XML parser: no markup but CDATA, and every `&` begins an entity."""
    return all(
        literal or ("<" not in text and "&" not in ENTITY.sub(_without_character, text))
        for text, literal in segments(raw)
    )


def segments(raw: str) -> Iterator[tuple[str, bool]]:
    """The parts of a body, and whether each is literal, as in CDATA."""
    position = 0
    while (start := raw.find(CDATA_START, position)) >= 0:
        end = raw.find(CDATA_END, start)
        if end < 0:
            break
        yield raw[position:start], False
        yield raw[start + len(CDATA_START) : end], True
        position = end + len(CDATA_END)
    yield raw[position:], False


def _without_character(match: re.Match[str]) -> str:
    return match[0] if _resolved(match[0]) == match[0] else ""


def _resolved(entity: str) -> str:
    name = entity[1:-1]
    if name in _NAMED:
        return _NAMED[name]
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return entity if code > 0x10FFFF or FORBIDDEN.match(chr(code)) else chr(code)


def _references(space: str) -> str:
    return "".join(f"&#{ord(char)};" for char in space)


def _spelled_out(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
