"""Slots: the places of a sentence at which it names a fact, so that it can be said with other values.

Only a whole token that is an accepted form of a fact becomes a slot. The number of a count becomes one only
beside its unit: "2 working days", never "2 places to find it".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from detent.dispatch.prose.contract import LANGUAGES
from detent.dispatch.prose.days import day_pattern
from detent.dispatch.prose.fact_kinds import UNITS, day_of
from detent.dispatch.prose.facts import Count
from detent.dispatch.prose.identifiers import device_patterns, identifier_pattern
from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.links import address_pattern, contact_patterns
from detent.dispatch.prose.masked_text import even
from detent.dispatch.prose.number_words import count_patterns, number_pattern


class FactValue(NamedTuple):
    """A value of a run with its kind."""

    kind: str
    value: Any


def with_slots(sentence: str, facts: Mapping[str, FactValue], language: str) -> str:
    """A sentence with `{{key}}` in place of each fact that it names.

    Raises:
        KeyError: nothing is known about the language.
    """
    data, plain = LANGUAGES[language], even(sentence)
    spans: dict[int, tuple[int, str]] = {}
    for key, (start, end) in _named(plain, facts, data):
        if all(end <= begun or ended <= start for begun, (ended, _) in spans.items()):
            spans[start] = (end, key)
    for start in sorted(spans, reverse=True):
        end, key = spans[start]
        sentence = f"{sentence[:start]}{{{{{key}}}}}{sentence[end:]}"
    return sentence


def _named(
    text: str, facts: Mapping[str, FactValue], data: LanguageData
) -> Iterator[tuple[str, tuple[int, int]]]:
    """The facts that a text names, longer values before those that may be a part of one."""
    for key, (kind, value) in sorted(facts.items(), key=lambda item: -len(str(item[1].value))):
        if not isinstance(value, str | int) or value == "":
            continue
        for pattern in _patterns(kind, value, data):
            for match in pattern.finditer(text):
                number = (
                    re.search(number_pattern(int(value), data), match.group(), re.IGNORECASE)
                    if kind in UNITS
                    else None
                )
                if kind not in UNITS:
                    yield key, match.span()
                elif number is not None:
                    yield key, (match.start() + number.start(), match.start() + number.end())


def _patterns(kind: str, value: Any, data: LanguageData) -> Iterable[re.Pattern[str]]:
    text = str(value)
    if kind in UNITS:
        return count_patterns([Count(int(value), kind)], data)
    if kind == "day":
        day = day_of(value)
        return () if day is None else (day_pattern(day, data, with_year=True),)
    if kind == "identifier":
        return (identifier_pattern(text),)
    if kind == "device":
        return device_patterns(text)
    if kind == "address":
        return (address_pattern(text),)
    if kind == "contact":
        return contact_patterns((text,))
    return (re.compile(rf"(?<!\w){re.escape(text)}(?!\w)"),)
