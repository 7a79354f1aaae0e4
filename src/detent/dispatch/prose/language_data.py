"""What the checks know about a language; one module of data each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from detent.dispatch.prose.facts import Unit


@dataclass(frozen=True, slots=True)
class LanguageData:
    """The words and forms of one language. Patterns are matched without case unless they say otherwise."""

    words: frozenset[str]
    """Frequent words, folded, by which a sentence is recognised."""
    letters: str
    """Letters beside those of ASCII."""
    business: frozenset[str]
    """Folded words that mails write with a capital letter and that name nobody."""
    abbreviations: str
    """Abbreviations behind which a sentence goes on."""
    numbers: Mapping[str, int | None]
    """Number words in every inflection; None: a vague number."""
    joiners: tuple[str, ...]
    """Words inside a number, such as `and`."""
    ordinals: Mapping[int, str]
    """Patterns of the days of a month in words."""
    months: Mapping[int, str]
    """Patterns of the months' names."""
    any_month: re.Pattern[str]
    """A month's name that stands for a day or a time."""
    day_forms: tuple[str, ...]
    """Patterns with `{day}`, `{ordinal}`, `{month}`, `{year}`; `{year}` is optional where the form allows."""
    month_ends: str
    """Pattern of the last day of a month: `{month}`, `{year}`."""
    weekdays: tuple[str, ...]
    """Patterns, Monday first."""
    relative_days: re.Pattern[str]
    times: re.Pattern[str]
    """Times of day in words, and spans without a number (`within the hour`)."""
    year_words: str
    """Pattern between a day and its year, or after it."""
    units: Mapping[Unit, str]
    other_units: str
    """Units that no fact has."""
    many: re.Pattern[str]
    """Numbers that are never a fact, such as `dozens`."""
    shares: re.Pattern[str]
    """Fractions and multiples, which change a charge or a warranty."""
    charges: re.Pattern[str]
    """Words for what is paid or granted."""
    articles: frozenset[str]
    """Words that are articles more often than numbers."""
    fillers: str
    """Words between number and unit."""
    compounds: Mapping[Unit, str]
    """Endings of adjectives made of a number and a unit (`six-month`)."""
    halves: Mapping[tuple[int, Unit], str]
    """Further forms of a count (`half a year`)."""
    money: str
    """Words for currencies."""
    greeting: str
    closing: str
    """The end of a line behind which the sender signs."""
    generic: frozenset[str]
    """Folded words in a greeting that name nobody."""
    titles: str
    """Titles and roles before a name."""
    inflections: tuple[tuple[str, tuple[str, ...]], ...]
    """Ends of names and the ends that may replace them in a greeting."""
    digit_talk: str
    """Words before a digit that is spoken of as a character."""
    letter_talk: re.Pattern[str]
    """A letter spoken of as a character."""
    at_dot: str
    """Spelled-out `@` and `.` in brackets."""
    spelled: str
    """Words that occur only where a link or an address is spelled out."""
    capital_nouns: bool = False
    """Whether every noun begins with a capital letter, so that none tells a name."""
