"""The numbers of a mail that could be a serial number, each with its surroundings.

A token that can never be one (a date, an amount, a link, another form) is left out. Which of the numbers are
serial numbers is for the reader of the mail to decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from detent.apps.warranty.domain import TextPart, labels, tokens
from detent.apps.warranty.domain.serials import serial_key

BEFORE, AFTER = 48, 24
"""Characters shown around a number."""
LONGEST_READ = 20_000
"""Characters of one part that are searched: a pasted log has thousands of numbers."""


class Number(NamedTuple):
    """A number and its surroundings."""

    text: str
    """As printed in the mail."""
    near: str


def numbers_in(parts: Iterable[TextPart], subject: str = "") -> list[Number]:
    """The numbers of a mail in order of precedence: newest part, subject, quoted, forwarded."""
    every = list(parts)
    texts = [
        *(part.text for part in every if part.kind == "newest"),
        subject,
        *(part.text for kind in ("quoted", "forwarded") for part in every if part.kind == kind),
    ]
    numbers: dict[str, Number] = {}
    for text in texts:
        for number in _numbers(tokens.readable(text[:LONGEST_READ])):
            numbers.setdefault(serial_key(number.text), number)
    return list(numbers.values())


def _numbers(text: str) -> Iterable[Number]:
    at = 0
    for line in text.split("\n"):
        place = at
        for word in labels.parted(tokens.words_of(line)):
            place = max(place, text.find(word.text, place))
            if tokens.fits(word.text) and not tokens.never(word):
                yield Number(word.text, _near(text, place, place + len(word.text)))
            place += len(word.text)
        at += len(line) + 1


def _near(text: str, start: int, end: int) -> str:
    """The text around a place, in whole words."""
    before, after = text[max(0, start - BEFORE) : start], text[end : end + AFTER]
    if start > BEFORE:
        before = before.partition(" ")[2] if " " in before else before
    if len(text) > end + AFTER:
        after = after.rpartition(" ")[0] if " " in after else after
    return " ".join(f"{before}{text[start:end]}{after}".replace(tokens.HIDDEN, "…").split())
