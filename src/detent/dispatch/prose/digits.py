"""Digits: a closed world, in which every digit is explained by a fact or by its place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.masked_text import BLANK, sentences

_MARKER = re.compile(r"^[ ]*(\d{1,2})[.)](?=[ ])", re.MULTILINE)
_TOKEN = re.compile(r"[\w]*\d[\w]*")


def unexplained(text: str, data: LanguageData) -> Iterator[int]:
    """Digits in a text whose facts are masked."""
    text = _without_characters(_without_markers(text), data)
    yield from (match.start() for match in _TOKEN.finditer(text))


def _without_markers(text: str) -> str:
    """The text without the numbers of a list that counts from 1; a single one is no list."""
    markers = list(_MARKER.finditer(text))
    if len(markers) < 2 or [int(marker.group(1)) for marker in markers] != list(range(1, len(markers) + 1)):
        return text
    return _MARKER.sub(lambda match: BLANK * len(match.group()), text)


def _without_characters(text: str, data: LanguageData) -> str:
    """The text without single digits that are spoken of as characters, beside a letter ("a 0 and an O")."""
    digit = re.compile(rf"(?<!\w)(?:{data.digit_talk})[ ]\"?'?(\d)(?![\w%]|[.,:/-]\d)", re.IGNORECASE)
    for offset, sentence in sentences(text):
        if data.letter_talk.search(sentence):
            plain = digit.sub(lambda match: BLANK * len(match.group()), sentence)
            text = text[:offset] + plain + text[offset + len(sentence) :]
    return text
