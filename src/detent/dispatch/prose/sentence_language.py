"""The language of a text: a closed world, in which every sentence shows words of its language.

A language that nobody here knows is refused like one that is recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set

from detent.dispatch.prose.foreign_words import FOREIGN, GREETINGS, LOANS
from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.masked_text import folded, sentences

FEWEST_WORDS = 4
"""Words of the shortest sentence that must hold a word of its language."""
FEWEST_OF_TEXT = 8
"""Words of the shortest text that is judged as a whole."""
SENTENCE_SHARE, TEXT_SHARE = 0.2, 0.25
"""Shares of the words that have to be words of the language."""
_WORD = re.compile(r"[^\W\d_]+")


def foreign(
    text: str, language: str, known: Mapping[str, LanguageData], proper: Set[str], own_text: Set[str]
) -> Iterator[int]:
    """The offsets of sentences in another language; the text's own if it shows too few words of its language.

    `proper` holds the folded words of facts, `own_text` those of the step's own text.
    """
    data = known[language]
    expected = (data.words | own_text | {folded(word) for word in data.numbers}) - {"a"}  # of any language
    others = [other.words for name, other in known.items() if name != language] + list(FOREIGN)
    own_words = every_word = 0
    for offset, sentence in sentences(text):
        words = [word for word in _WORD.findall(sentence) if folded(word) not in proper]
        if any(_has_foreign_letter(word, data) or _is_greeting(word, expected) for word in words):
            yield offset
            continue
        plain = [folded(word) for word in words]
        own = sum(word in expected for word in plain)
        most = max(sum(word in other for word in plain) for other in others)
        own_words, every_word = own_words + own, every_word + len(plain)
        if len(plain) < FEWEST_WORDS:
            if own == 0 and most > 1:
                yield offset
        elif own == 0 or own < SENTENCE_SHARE * len(plain) or most > own:
            yield offset
    if every_word >= FEWEST_OF_TEXT and own_words < TEXT_SHARE * every_word:
        yield 0


def _has_foreign_letter(word: str, data: LanguageData) -> bool:
    return not all(char.isascii() or char in data.letters for char in word.casefold()) and (
        word.casefold() not in LOANS
    )


def _is_greeting(word: str, expected: Set[str]) -> bool:
    plain = folded(word)
    return plain in GREETINGS and plain not in expected
