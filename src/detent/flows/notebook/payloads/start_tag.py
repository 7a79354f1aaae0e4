"""Start tags as models write them: bare, missing and typographic quotes, attributes without a value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from detent.flows.notebook.payloads.xml_text import ENTITY, SPACE, escaped_attribute, unescaped

FLAGS = frozenset({"optional", "required", "disabled", "enabled", "hidden"})
"""Attributes that are true where they have no value."""

LONGEST_VALUE = 4000
"""Characters of an attribute in a tag that has to be repaired."""

_NAME = re.compile(r"[A-Za-z_][\w.:-]*")
_NEXT = r"(?:\s*/?>|\s+[A-Za-z_][\w.:-]*\s*=|\s+(?:optional|required|disabled|enabled|hidden)(?=[\s/>]))"
_QUOTES = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "’": "’"}
_END_OF_QUOTED = {quote: re.compile(f"{quote}(?={_NEXT})") for quote in set(_QUOTES.values())}
_END_OF_BARE = re.compile(rf"(?={_NEXT})|[<>]")
_END_OF_TAG = re.compile(r">\s*<")
_NEXT_ATTRIBUTE = re.compile(r"\s+[A-Za-z_][\w.:-]*\s*=\s*[\"'“”‘’]")
_STRAY = SPACE + "\"'“”‘’"


@dataclass(frozen=True, slots=True)
class StartTag:
    """A start tag that was read."""

    attributes: dict[str, str]
    end: int
    """The position after the tag."""
    closed: bool
    """Whether it ends with `/>`."""
    rules: frozenset[str]
    """The rules of repair that this took."""

    def written(self, tag: str) -> str:
        """The tag as XML."""
        attributes = "".join(f' {name}="{escaped_attribute(text)}"' for name, text in self.attributes.items())
        return f"<{tag}{attributes}{'/' if self.closed else ''}>"


class BrokenTag(ValueError):
    """A start tag cannot be read. `cut`: the text ends within it."""

    def __init__(self, why: str, *, cut: bool = False) -> None:
        self.cut = cut
        super().__init__(why)


def read_start_tag(text: str, position: int) -> StartTag:
    """The attributes of a start tag, read from behind its name.

    Raises:
        BrokenTag: an attribute has no value and is none that may go without, or the tag does not end.
    """
    attributes: dict[str, str] = {}
    rules: set[str] = set()
    while True:
        position = _after(text, position, SPACE)
        if position >= len(text):
            raise BrokenTag("the text ends within a tag", cut=True)
        if text[position] == ">":
            return StartTag(attributes, position + 1, False, frozenset(rules))
        if text.startswith("/>", position):
            return StartTag(attributes, position + 2, True, frozenset(rules))
        name = _NAME.match(text, position)
        if name is None:
            if text[position] in _STRAY:
                position += 1
                rules.add("R4")
                continue
            raise BrokenTag("a tag does not end")
        equals = _after(text, name.end(), SPACE)
        if equals >= len(text):
            raise BrokenTag("the text ends within a tag", cut=True)
        if text[equals] == "=":
            value, position, needed = _value(text, _after(text, equals + 1, SPACE))
            rules |= needed
        elif name[0] in FLAGS:
            value, position = "true", name.end()
            rules.add("R4")
        else:
            raise BrokenTag(f"the attribute '{name[0][:40]}' has no value")
        if name[0] in attributes:
            rules.add("R9")
        attributes.setdefault(name[0], value)


def _value(text: str, position: int) -> tuple[str, int, set[str]]:
    """An attribute's value, the position after it, and the rules of repair that this took."""
    most = position + LONGEST_VALUE
    closing = _QUOTES.get(text[position : position + 1])
    if closing is not None:
        match = _END_OF_QUOTED[closing].search(text, position + 1, most)
        value = text[position + 1 : match.start() if match else most]
        if not (_END_OF_TAG.search(value) or _NEXT_ATTRIBUTE.search(value)):
            if match is None:
                raise _endless(text, most)
            rules = {"R4"} if text[position] not in "\"'" or text[position] in value else set[str]()
            return unescaped(value), match.end(), rules | _escapes(value)
        position += 1  # its closing quote is missing
    match = _END_OF_BARE.search(text, position, most)
    if match is None:
        raise _endless(text, most)
    value = text[position : match.start()].strip(_STRAY)
    return unescaped(value), match.start(), {"R4"} | _escapes(value)


def _escapes(value: str) -> set[str]:
    rules = {"R3"} if "<" in value else set[str]()
    return rules | {"R2"} if "&" in ENTITY.sub("", value) else rules


def _endless(text: str, most: int) -> BrokenTag:
    if most >= len(text):
        return BrokenTag("the text ends within a tag", cut=True)
    return BrokenTag("an attribute does not end")


def _after(text: str, position: int, characters: str) -> int:
    while position < len(text) and text[position] in characters:
        position += 1
    return position
