"""Kinds of facts: what a value of a run may explain in a text, and how a language writes it.

A kind is declared by a person. Where it is not, `derived_kind` gives one only to values that explain nothing
but themselves: a day, an address, an identifier. A bare number is never one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, get_args

from detent.dispatch.prose.facts import Count, Facts, Unit

UNITS: tuple[Unit, ...] = get_args(Unit)
KINDS = ("identifier", "device", "day", "name", "address", "contact", *UNITS)
"""What a fact may be; a unit stands for a count with this unit."""

SAMPLES: Mapping[str, tuple[Any, Any]] = {
    "identifier": ("QX-70431", "ZK2286B"), "device": ("Falcon F300", "Heron H12"),
    "day": ("2031-05-17", "2029-11-08"), "name": ("Alex Morgan", "Kim Berg"),
    "address": ("alex@morgan.example", "kim@berg.example"),
    "contact": ("help@firm.example", "office@house.example"), **dict.fromkeys(UNITS, (6, 9)),
}  # fmt: skip
"""Two values of each kind, to see how a text reads with other values."""

MONTHS: Mapping[str, tuple[str, ...]] = {
    "en": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December"),
    "pl": ("stycznia", "lutego", "marca", "kwietnia", "maja", "czerwca", "lipca", "sierpnia", "września",
           "października", "listopada", "grudnia"),
    "de": ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober",
           "November", "Dezember"),
}  # fmt: skip

_FEWEST_DIGITS = 5
"""Digits of the shortest identifier without a letter: a shorter one would explain counts and years."""
_LONGEST = 80
"""Characters of the longest value that a text inserts."""
_NAME = re.compile(r"[^\W\d_]+(?:(?:[ '’-]|\. )[^\W\d_]+){0,4}")
_ADDRESS = re.compile(r"[^\s<>()\[\]\",;:@]+@[^\s<>()\[\]\",;:@]+\.[^\s<>()\[\]\",;:@]+")
_TOKEN = re.compile(r"[\w./-]*\d[\w./-]*")


def day_of(value: Any) -> date | None:
    """A day in ISO form, with or without a time; None for what is none."""
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError:
        return None


def derived_kind(value: Any) -> str | None:
    """The kind of a value whose kind nobody declared; None if it explains nothing."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        return None
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}(?:T\S*)?", value) and day_of(value) is not None:
        return "day"
    if _ADDRESS.fullmatch(value):
        return "address"
    return "identifier" if _TOKEN.fullmatch(value) and _is_identifier(value) else None


def in_words(kind: str, value: Any, language: str) -> str | None:
    """A value as a text in this language writes it; None if it is no value of its kind."""
    if kind == "day":
        day = day_of(value)
        if day is None or language not in MONTHS:
            return None if day is None else day.isoformat()
        return f"{day.day}{'.' if language == 'de' else ''} {MONTHS[language][day.month - 1]} {day.year}"
    if kind in UNITS:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
    text = " ".join(str(value).split()) if isinstance(value, str | int) else ""
    if not text or len(text) > _LONGEST or (kind == "name" and not _NAME.fullmatch(text)):
        return None
    return text


def facts_from(
    values: Iterable[tuple[str, Any]], language: str, *, sentences: Iterable[str] = (),
    inner: Iterable[str] = (),
) -> Facts:  # fmt: skip
    """The facts that values explain, each given with its kind; of a list, each item."""
    by_kind: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for kind, value in values:
        items = value if isinstance(value, list | tuple) else (value,)
        by_kind[kind] += [item for item in items if in_words(kind, item, language) is not None]

    def texts(kind: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(value) for value in by_kind[kind]))

    return Facts(
        language,
        identifiers=tuple(filter(_is_identifier, texts("identifier"))),
        devices=texts("device"),
        days=tuple(day for day in map(day_of, by_kind["day"]) if day is not None),
        counts=tuple(Count(value, unit) for unit in UNITS for value in by_kind[unit]),
        names=texts("name"),
        addresses=texts("address"),
        contacts=texts("contact"),
        sentences=tuple(sentences),
        inner=tuple(inner),
    )


def _is_identifier(text: str) -> bool:
    """Whether a token is long enough to be no count, year or amount."""
    digits = sum(char.isdigit() for char in text)
    return digits >= _FEWEST_DIGITS or (digits > 0 and any(char.isalpha() for char in text))
