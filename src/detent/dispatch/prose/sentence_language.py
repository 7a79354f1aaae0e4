"""The language of a text, sentence by sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from detent.dispatch.prose.foreign_words import FOREIGN
from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.masked_text import folded, sentences

FEWEST_WORDS = 4
"""Words of the shortest sentence that is judged."""
FEWEST_WITHOUT = 6
"""Words of the shortest sentence that must hold a frequent word of its language."""
_WORD = re.compile(r"[^\W\d_]+")


def foreign(text: str, language: str, known: Mapping[str, LanguageData]) -> Iterator[int]:
    """The offsets of sentences in another language."""
    others = [data.words for name, data in known.items() if name != language] + list(FOREIGN)
    for offset, sentence in sentences(text):
        words = [folded(word) for word in _WORD.findall(sentence)]
        if len(words) < FEWEST_WORDS:
            continue
        own = sum(word in known[language].words for word in words)
        most = max(sum(word in other for word in words) for other in others)
        if most > own or (own == 0 and len(words) >= FEWEST_WITHOUT):
            yield offset
