"""Finds the serial number in a mail, with a confidence; never raises.

A text is read word by word. A label ("S/N", "nr seryjny") waits for a token; words such as "is" or "of the
printer" keep it waiting, any other word ends its wait. Another label ("order no.") claims the token instead.
Tokens found this way are pass 1; if there are none, tokens of letters and digits near a label are pass 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from detent.apps.warranty.domain import TextPart, labels, tokens
from detent.apps.warranty.domain.tokens import Word

Method = Literal["pattern", "agent", "none", "error"]

MOST_KEPT = 50
"""Number of serials of one mail that are listed; a pasted inventory has thousands."""


@dataclass(frozen=True, slots=True)
class SerialExtraction:
    """The serial numbers of a mail."""

    serial_number: str | None = None
    """As printed in the mail."""
    confidence: float = 0.0
    """0.95 one by label, 0.85 one near a label, 0.7 several, 0.0 none."""
    multiple_serials_detected: bool = False
    all_detected_serials: tuple[str, ...] = ()
    """In the order of the search: newest part, subject, quoted, forwarded."""
    extraction_method: Method = "none"
    ambiguous: bool = False
    """Several different ones in the whole mail."""
    found_in: str | None = None
    """newest, subject, quoted or forwarded."""


def extract(parts: Iterable[TextPart], subject: str = "") -> SerialExtraction:
    """The serial number of a mail, from the first place that has one."""
    try:
        return _extract(list(parts), subject)
    except Exception:
        return SerialExtraction(extraction_method="error")


def serial_key(text: str) -> str:
    """The key of a serial number, the same for all its spellings: A–Z and 0–9."""
    return re.sub(r"[^A-Z0-9]", "", tokens.readable(text).upper())


def serial_shaped(text: str) -> list[str]:
    """The tokens of a text that a reader, or this extractor, would take for a serial number."""
    reading = _Reading(text)
    words = (word for line in tokens.readable(text).split("\n") for word in tokens.words_of(line))
    return list(dict.fromkeys([*reading.labelled, *(word.text for word in words if _stands_alone(word))]))


def without_serials(text: str) -> str:
    """A text without its serial numbers and their labels."""
    reading = _Reading(text)
    gone = {*reading.labelled, *reading.near}
    left = []
    for line in tokens.readable(text).split("\n"):
        words = tokens.words_of(line)
        remaining = [
            word.before + word.text
            for place, word in enumerate(words)
            if word.text not in gone and not labels.belongs_to_label(words, place)
        ]
        left.append("".join(remaining))
    return "\n".join(left)


def _extract(parts: Sequence[TextPart], subject: str) -> SerialExtraction:
    def texts(kind: str) -> list[tuple[str, str]]:
        return [(kind, part.text) for part in parts if part.kind == kind]

    places = [*texts("newest"), ("subject", subject), *texts("quoted"), *texts("forwarded")]
    seen: dict[str, str] = {}
    found_in: str | None = None
    sure = False
    for name, text in places:
        if not text:
            continue
        reading = _Reading(text)
        hits = reading.labelled or reading.near
        if hits and found_in is None:
            found_in, sure = name, bool(reading.labelled)
        for hit in hits:
            seen.setdefault(_spelling_key(hit), hit)
    if found_in is None:
        return SerialExtraction()
    everything = tuple(seen.values())
    several = len(everything) > 1
    return SerialExtraction(
        serial_number=everything[0],
        confidence=0.7 if several else 0.95 if sure else 0.85,
        multiple_serials_detected=several,
        all_detected_serials=everything[:MOST_KEPT],
        extraction_method="pattern",
        ambiguous=several,
        found_in=found_in,
    )


def _spelling_key(token: str) -> str:
    """A key equal for two spellings of one number: `SN-12345`, and `12345` after a label."""
    key = serial_key(token)
    return key[2:] if re.fullmatch(r"SN[0-9].*", key) else key


# -- reading ------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    words: list[Word]
    cells: int
    """Number of cells, if the line is a row of a table; otherwise 1."""
    cell: list[int]
    """The cell of each word."""
    rest: str
    """The text after its last word."""


class _Waiting(NamedTuple):
    """A label that waits for its token."""

    kind: Literal["serial", "other"]
    negated: bool = False
    """ "I cannot find the serial number": only a token right after it counts."""
    many: bool = False
    counts: bool = True
    """False for a label that counts only with a number sign after it, until that is seen."""
    direct: bool = True
    """Whether only signs follow the label, on the same line."""


class _Reading:
    """One text, read."""

    def __init__(self, text: str) -> None:
        self.labelled: list[str] = []
        """Tokens by pass 1, in order."""
        self.near: list[str] = []
        """Tokens by pass 2, in order."""
        self._lines = [_line(row) for row in tokens.readable(text).split("\n")]
        self._lines = [line for line in self._lines if line.words]
        self._near_lines: set[int] = set()
        self._taken: set[tuple[int, int]] = set()
        """Places of tokens that belong to other labels."""
        self._waiting: _Waiting | None = None
        self._table: tuple[int, int] | None = None
        """Cells of the table being read, and the column of its serials."""
        self._listing: _Waiting | None = None
        """The label whose list is being read."""
        for number in range(len(self._lines)):
            self._read(number)
        if not self.labelled:
            self._look_near()

    def _read(self, number: int) -> None:
        line = self._lines[number]
        before = len(self.labelled)
        places: list[int] = []
        for place, word in enumerate(line.words):
            if place and labels.BREAKS & set(word.before):
                self._waiting = None
            if labels.is_label(line.words, place):
                self._label(line.words, place, places)
            else:
                self._word(number, place, word)
        if places and not self._negated_line(line.words, places):
            self._near_lines.update((number, number + 1))
        heads = bool(places) and len(self.labelled) == before and self._heads(number)
        if heads:
            self._table = (line.cells, line.cell[places[0]])
        elif places or self._table is None or self._table[0] != line.cells:
            self._table = None
        else:
            self._row(line, self._table[1])
        self._line_ends(number, heads)

    def _label(self, words: Sequence[Word], place: int, places: list[int]) -> None:
        places.append(place)
        tight = words[place].tight
        many = tight in labels.MANY or (
            place + 1 < len(words) and words[place + 1].tight in ("numbers", "nos", "nrs")
        )
        self._waiting = _Waiting("serial", negated=labels.negated(words, place), many=many)
        self._listing = None

    def _word(self, number: int, place: int, word: Word) -> None:
        waiting = self._waiting
        if waiting is not None and not waiting.counts and set(word.before) & set(":#="):
            waiting = waiting._replace(counts=True)
        if waiting is not None and word.tight in labels.NUMBER:
            self._waiting = waiting._replace(counts=True)
            return
        if any(map(str.isdigit, word.text)):
            self._token(number, place, word, waiting)
            return
        listing, self._listing = self._listing, None
        if listing is not None and word.folded in labels.LIST_WORDS:
            self._listing = listing
            return
        if waiting is not None and waiting.kind == "serial" and word.folded in labels.BETWEEN:
            near = word.folded in ("is", "to", "jest")
            self._waiting = None if waiting.negated and not near else waiting._replace(direct=near)
            return
        if waiting is not None and waiting.kind == "other" and word.folded in ("is", "to", "jest"):
            self._waiting = waiting
            return
        other = labels.other_label(word)
        self._waiting = _Waiting("other", counts=other == "other") if other else None

    def _token(self, number: int, place: int, word: Word, waiting: _Waiting | None) -> None:
        listing, self._listing, self._waiting = self._listing, None, None
        if waiting is not None and waiting.kind == "other" and waiting.counts:
            self._taken.add((number, place))
            return
        if not tokens.fits(word.text) or tokens.never(word):
            return
        if waiting is not None and waiting.kind == "serial":
            if waiting.negated and "." in word.before:
                return
            if not waiting.direct and (tokens.phone_shaped(word.text) or tokens.everyday(word.text)):
                return
            self._hit(word, waiting)
        elif tokens.attached(word.text):
            self._hit(word, _Waiting("serial"))
        elif listing is not None and word.before.strip() in labels.LIST_SIGNS and _continues_list(word):
            self._hit(word, listing)

    def _hit(self, word: Word, label: _Waiting) -> None:
        self.labelled.append(word.text)
        self._listing = label

    def _line_ends(self, number: int, in_table: bool) -> None:
        """Decide at the end of a line whether a label without a token waits for the next line."""
        line = self._lines[number]
        waiting = self._waiting
        if waiting is not None:
            goes_on = not (labels.BREAKS & set(line.rest)) and not in_table
            if waiting.kind == "serial":
                goes_on = goes_on and not waiting.negated
            else:
                goes_on = goes_on and bool(set(line.rest) & set(":#="))
            self._waiting = waiting._replace(direct=False, counts=True) if goes_on else None
        if self._listing is not None and not self._listing.many:
            self._listing = None

    def _negated_line(self, words: Sequence[Word], places: Sequence[int]) -> bool:
        following = {word.folded for word in words[places[-1] + 1 : places[-1] + 8]}
        return bool(following & labels.UNKNOWN_AFTER) or all(labels.negated(words, place) for place in places)

    def _heads(self, number: int) -> bool:
        """Whether the line is the head of a table: the next one has as many cells."""
        cells = self._lines[number].cells
        return cells > 1 and number + 1 < len(self._lines) and self._lines[number + 1].cells == cells

    def _row(self, line: _Line, column: int) -> None:
        """Take the token below a label that heads a column."""
        word = next(
            (candidate for candidate, cell in zip(line.words, line.cell, strict=True) if cell == column), None
        )
        if word is None or not tokens.fits(word.text) or tokens.never(word):
            return
        if word.text not in self.labelled[-line.cells :]:  # it may have its own SN prefix
            self.labelled.append(word.text)

    def _look_near(self) -> None:
        for number in sorted(self._near_lines):
            if number >= len(self._lines):
                continue
            for place, word in enumerate(self._lines[number].words):
                if _stands_alone(word) and (number, place) not in self._taken:
                    self.near.append(word.text)


def _line(text: str) -> _Line:
    words = list(labels.parted(tokens.words_of(text)))
    if not words:
        return _Line([], 1, [], "")
    sign = "|" if "|" in text else "\t"
    cell, at = [], 0
    for word in words:
        at += word.before.count(sign)
        cell.append(at)
    rest = text[text.rfind(words[-1].text) + len(words[-1].text) :]
    return _Line(words, text.count(sign) + 1, cell, rest)


def _stands_alone(word: Word) -> bool:
    """Whether a word looks like a serial number even without a label: letters and digits."""
    fitting = tokens.fits(word.text) and tokens.mixed(word.text) and not tokens.never(word)
    return fitting and not tokens.everyday(word.text)


def _continues_list(word: Word) -> bool:
    """Whether a token after a comma continues a list of serials; plain numbers may count anything."""
    if tokens.mixed(word.text):
        return not tokens.everyday(word.text)
    return re.match(r"\s*(?:[,;.)&/]|$|and |or |i |oraz |lub )", word.after) is not None
