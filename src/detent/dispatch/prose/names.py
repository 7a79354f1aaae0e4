"""Names: in a greeting and after a title only the customer's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.masked_text import blank, folded

_WORD = re.compile(r"[^\W\d_]+")
_LINES = re.IGNORECASE | re.MULTILINE
LONGEST_GREETING = 6
"""Words."""
MOST_NAMES = 4
"""Words of a person's name."""


def is_name(text: str, languages: Iterable[LanguageData]) -> bool:
    """Whether a text that somebody calls their name may be one: a few words, none of them everyday ones."""
    words = [folded(word) for word in _WORD.findall(text) if len(word) > 1]
    everyday = any(word in data.words or word in data.numbers for data in languages for word in words)
    return 0 < len(words) <= MOST_NAMES and not everyday and not any(char.isdigit() for char in text)


def spoken_to(name: str, data: LanguageData) -> frozenset[str]:
    """The folded forms of a name in a greeting."""
    forms: set[str] = set()
    for part in map(folded, _WORD.findall(name)):
        forms.add(part)
        for end, others in data.inflections:
            if part.endswith(end) and len(part) - len(end) >= 2:
                forms |= {part[: len(part) - len(end)] + other for other in others}
    return frozenset(forms)


def strangers(text: str, names: Iterable[str], data: LanguageData) -> Iterator[int]:
    """The offsets of names that are not the customer's."""
    own = frozenset().union(*(spoken_to(name, data) for name in names))
    for offset, word in (*_greeted(text, data), *_titled(text, data), *_signed(text, data)):
        plain = folded(word)
        if plain not in own and plain not in data.generic and plain not in data.words:
            yield offset


def without_own(text: str, names: Iterable[str], data: LanguageData) -> str:
    """The text without the customer's names in its greeting, which may be months' names (`Dear June`)."""
    own = frozenset().union(*(spoken_to(name, data) for name in names))
    for offset, word in _greeted(text, data):
        if folded(word) in own:
            text = text[:offset] + blank(word) + text[offset + len(word) :]
    return text


def _greeted(text: str, data: LanguageData) -> Iterator[tuple[int, str]]:
    """The words of greetings that may be names."""
    first = len(text) - len(text.lstrip())
    for match in re.finditer(rf"(?:^|(?<=[.!?][ ]))[ \t]*(?:{data.greeting})(?!\w)", text, _LINES):
        opening = match.start() <= first
        if not opening and not match.group().strip():  # only a title, which is a rule of its own
            continue
        rest = re.match(r"([ ,]*)([^,.!:;\n]*)([,.!:;\n]?)", text[match.end() :])
        assert rest is not None
        words = list(_WORD.finditer(rest.group(2)))
        if "," in rest.group(1):  # "Hello, Anna," greets her; "Hello, your printer is covered" goes on
            words = words if len(words) <= LONGEST_GREETING // 3 and rest.group(3) in (",", "!") else []
        short = "," not in rest.group(1) and len(words) <= LONGEST_GREETING // 2 and rest.group(3) != "."
        for word in words[:LONGEST_GREETING]:
            if word.group()[0].isupper() or (opening and short):
                yield match.end() + rest.start(2) + word.start(), word.group()


def _titled(text: str, data: LanguageData) -> Iterator[tuple[int, str]]:
    """Capitalised words behind a title or a role."""
    for match in re.finditer(rf"(?<!\w)(?i:{data.titles})[.]?[ \n]+([^\W\d_]+)", text):
        if match.group(1)[0].isupper():
            yield match.start(1), match.group(1)


def _signed(text: str, data: LanguageData) -> Iterator[tuple[int, str]]:
    """Capitalised words of the signature; a service desk signs as one."""
    for match in re.finditer(rf"(?:{data.closing})[,.!]?[ ]*\n+([^\n]+)", text, _LINES):
        for word in _WORD.finditer(match.group(1)):
            if word.group()[0].isupper():
                yield match.start(1) + word.start(), word.group()
