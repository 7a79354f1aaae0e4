"""Capitalised words inside a sentence, and codes in capitals: those of the facts, and none else.

A single capitalised word at the beginning of a sentence is not judged: every sentence begins with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from detent.dispatch.prose import days
from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.masked_text import folded

_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{2,}")
_INITIAL = re.compile(r"(?<=[^\W\d_][ ])[^\W\d_]\.(?=[ ]?(?:,|[^\W\d_]))")
_CODE = re.compile(r"(?<![\w'])(?:[^\W\d_]{2,}|[^\W\d_](?:[-.][^\W\d_])+)(?![\w']|-\d)")
_SHORT_LINE = re.compile(r"^[ *•~-]*([^\W\d_]{2,}(?:[ ][^\W\d_]{2,})?)[ ]*$", re.MULTILINE)
_WRAPPED = 50
"""Characters of a line after which the next one goes on with its sentence."""
_ACRONYMS = frozenset(
    [
        "ok",
        "id",
        "pdf",
        "usb",
        "led",
        "lcd",
        "pc",
        "it",
        "sn",
        "nr",
        "ps",
        "faq",
        "sms",
        "eu",
        "ue",
        "cd",
        "dvd",
        "tv",
    ]
)


def names(text: str, whole: str, known: Set[str], data: LanguageData) -> Iterator[int]:
    """The offsets of capitalised words that may be names, in a text whose facts are masked.

    `whole` is the text before that; `known` holds the folded words that need no explanation.
    """
    if data.capital_nouns:
        return
    text = days.without_days(text, data)
    for match in _WORD.finditer(text):
        word = match.group()
        is_capitalised = word[0].isupper() and not word.isupper()
        if not is_capitalised or _is_known(word, known, data):
            continue
        if not _begins_sentence(whole, match.start(), data):
            yield match.start()
    for match in _INITIAL.finditer(text):
        if match.group()[0].isupper() and whole[: match.start()].split()[-1][0].isupper():
            yield match.start()
    for match in _SHORT_LINE.finditer(text):  # a name in a line of its own is a signature
        first = match.group(1).split()[0]
        if first[0].isupper() and not _is_known(first, known, data):
            yield match.start(1)


def codes(text: str, known: Set[str], data: LanguageData) -> Iterator[int]:
    """The offsets of words in capitals that are neither usual nor known."""
    for match in _CODE.finditer(text):
        plain = folded(match.group()).replace(".", "").replace("-", "")
        if match.group().isupper() and plain not in _ACRONYMS and not _is_known(plain, known, data):
            yield match.start()


def _is_known(word: str, known: Set[str], data: LanguageData) -> bool:
    plain = folded(word)
    return any(plain in words for words in (known, data.words, data.generic, data.business))


def _begins_sentence(text: str, offset: int, data: LanguageData) -> bool:
    before = text[:offset].rstrip(" \"'([*")
    above, _, line = before.rpartition("\n")
    if not line.strip(" -•*>"):
        last = above.rpartition("\n")[2].rstrip()
        return len(last) < _WRAPPED or last[-1] in ".!?:;…"
    if line[-1] not in ".!?…)":
        return False
    return re.search(rf"(?<!\w)(?:{data.abbreviations})\.$", line, re.IGNORECASE) is None
