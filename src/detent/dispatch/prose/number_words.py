"""Numbers in words: read, formed, and found before a unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from detent.dispatch.prose.facts import Count
from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.masked_text import sentences

LARGEST, MOST_WORDS = 12, 1
"""The largest number, and the most words of one, that a text may state without a unit."""
_WORD = re.compile(r"[^\W\d_]+")
_GAP = r"[ \n]+(?:\([\d]+\)[ \n]+)?"


def number_pattern(value: int, data: LanguageData) -> str:
    """A pattern of one number, in digits or in words of up to two parts."""
    single = [word for word, number in data.numbers.items() if number == value]
    tens, ones = value // 10 * 10, value % 10
    pairs: list[str] = []
    if 20 < value < 100 and ones:
        left = [word for word, number in data.numbers.items() if number == tens]
        right = [word for word, number in data.numbers.items() if number == ones]
        pairs = [rf"(?:{'|'.join(left)})[- ](?:{'|'.join(right)})"]
    words = "|".join(sorted([*single, *pairs], key=len, reverse=True))
    return (
        rf"(?:{value}(?![.,]?\d)(?:[ ]\((?:{words})\))?|(?:{words})(?:[ ]\({value}\))?)"
        if words
        else str(value)
    )


def count_patterns(counts: Iterable[Count], data: LanguageData) -> Iterator[re.Pattern[str]]:
    """The accepted forms of counts with their units."""
    for count in counts:
        number = number_pattern(count.value, data)
        forms = [rf"{number}[ \n-]+(?:{data.fillers})?(?:{data.units[count.unit]})"]
        if count.unit in data.compounds:
            forms.append(rf"{number}[ -]?(?:{data.compounds[count.unit]})")
        if (count.value, count.unit) in data.halves:
            forms.append(data.halves[count.value, count.unit])
        yield re.compile(rf"(?<![\w.,/-])(?:{'|'.join(forms)})(?!\w)", re.IGNORECASE)


def unexplained(text: str, data: LanguageData) -> Iterator[int]:
    """Numbers in words that only a fact may state, in a text whose facts are masked.

    These are numbers above twelve, of several words, or before a unit, and shares of a charge.
    """
    units = "|".join((*data.units.values(), data.other_units))
    compounds = "|".join(data.compounds.values())
    for start, end, words in _runs(text, data):
        unit = re.match(rf"(?:{_GAP}|-)(?:{data.fillers})?(?:{units})(?!\w)", text[end:], re.IGNORECASE)
        if unit or _is_large(words, data):
            yield start
    roman = rf"(?<!\w)(?-i:[IVXLC]{{2,}})[ -](?:{data.fillers})?(?:{units})(?!\w)"
    yield from (match.start() for match in re.finditer(roman, text, re.IGNORECASE))
    every = "|".join(sorted(map(re.escape, data.numbers), key=len, reverse=True))
    if compounds:
        for match in re.finditer(rf"(?<!\w)(?:{every})[ -]?(?:{compounds})(?!\w)", text, re.IGNORECASE):
            yield match.start()
    yield from (match.start() for match in data.many.finditer(text))
    for offset, sentence in sentences(text):
        share = data.shares.search(sentence)
        if share and data.charges.search(sentence):
            yield offset + share.start()


def _is_large(words: list[str], data: LanguageData) -> bool:
    values = [data.numbers[word] for word in words if word in data.numbers and word not in data.articles]
    stated = [value for value in values if value is not None]
    return len(stated) >= MOST_WORDS + 1 or any(value > LARGEST for value in stated)


def _runs(text: str, data: LanguageData) -> Iterator[tuple[int, int, list[str]]]:
    """Runs of number words, with joiners and commas between them."""
    words = [(match.start(), match.end(), match.group().casefold()) for match in _WORD.finditer(text)]
    run: list[tuple[int, int, str]] = []
    for word in words:
        joined = not run or re.fullmatch(r"[ ,\n-]{1,2}", text[run[-1][1] : word[0]])
        if (word[2] in data.numbers and joined) or (run and joined and word[2] in data.joiners):
            run.append(word)
        else:
            yield from _trimmed(run, data)
            run = [word] if word[2] in data.numbers else []
    yield from _trimmed(run, data)


def _trimmed(run: list[tuple[int, int, str]], data: LanguageData) -> Iterator[tuple[int, int, list[str]]]:
    while run and run[-1][2] not in data.numbers:
        run = run[:-1]
    if run:
        yield run[0][0], run[-1][1], [word for _, _, word in run]
