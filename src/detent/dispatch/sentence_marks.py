"""Marks on the sentences of a draft, for the person who reads it: they pass and refuse nothing.

A sentence is known (the handler writes it too), supported (it has no words but those of the facts and of the
handler's text) or new. Phrases that may commit us to something are marked wherever they stand; a negation is
shown with them and not interpreted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from detent.dispatch.claim_phrases import CLAIM_PHRASES

_SENTENCE = re.compile(r"[^\n.!?…]+(?:[.!?…](?=\S)[^\n.!?…]*)*[.!?…]*")
_WORD = re.compile(r"[^\W_]+(?:[-'’@.][^\W_]+)*")
_TOKEN = re.compile(r"\S*\d\S*|\S+@\S+|\w+://\S+|[$€£¥]|\bwww\.\S+")


class SentenceMark(str, Enum):
    """Where the words of a sentence come from."""

    KNOWN = "known"
    SUPPORTED = "supported"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class MarkedSentence:
    """A sentence of a draft with its mark and the phrases in it that may be a commitment."""

    text: str
    mark: SentenceMark
    phrases: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {"text": self.text, "mark": self.mark.value, "phrases": list(self.phrases)}


def sentences(text: str) -> list[str]:
    """The sentences of a text, each on one line."""
    return [" ".join(match.group().split()) for match in _SENTENCE.finditer(text) if match.group().strip()]


def marked(text: str, own: str, facts: Mapping[str, Any], known: Iterable[str] = ()) -> list[MarkedSentence]:
    """The sentences of a draft beside the handler's text; `known` are further approved sentences."""
    familiar = {_folded(sentence) for sentence in (*sentences(own), *known)}
    words = {*_words(own), *_words(" ".join(_texts(facts)))}
    result: list[MarkedSentence] = []
    for sentence in sentences(text):
        if _folded(sentence) in familiar:
            mark = SentenceMark.KNOWN
        elif set(_words(sentence)) <= words:
            mark = SentenceMark.SUPPORTED
        else:
            mark = SentenceMark.NEW
        result.append(MarkedSentence(sentence, mark, phrases_in(sentence)))
    return result


def phrases_in(text: str) -> tuple[str, ...]:
    """The phrases of a text that may be a commitment, in any language, in order."""
    hits = [match for pattern in _PATTERNS for match in pattern.finditer(text)]
    return tuple(dict.fromkeys(match.group() for match in sorted(hits, key=lambda match: match.start())))


def claims_of(text: str) -> Counter[str]:
    """What a change of wording keeps: tokens with a digit, addresses, signs of money, marked phrases."""
    tokens = [token.strip(".,;:!?()\"'").casefold() for token in _TOKEN.findall(text)]
    return Counter([*tokens, *(phrase.casefold() for phrase in phrases_in(text))])


def _folded(sentence: str) -> str:
    return " ".join(sentence.split()).casefold()


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return [] if value is None else [str(value)]


_PATTERNS = tuple(
    re.compile(rf"(?<!\w)(?:{'|'.join(phrases)})", re.IGNORECASE) for phrases in CLAIM_PHRASES.values()
)
