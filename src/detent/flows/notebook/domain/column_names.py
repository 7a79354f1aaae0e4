"""Names of columns as words, and where a sentence mentions them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from detent.flows.notebook.domain.metric_words import words

NAME_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
"""A word in `SalePrice`, `sale_price`, `price.2` or `größe`."""
TEXT_WORD = re.compile(r"[^\W\d_]+|\d+")
QUOTES = "`'\"‘’“”«»"
BETWEEN_WORDS = re.compile(r"[\W_]{0,3}")

FUNCTION_WORDS = words(
    "a an the i in is it its of to at by for from and or no not on as be we us our all my with using if so"
    " do does are was were will can this that these those which who whom what when where how why than then"
    " there they you your he she his her one"
)
GENERIC_WORDS = FUNCTION_WORDS | words(
    "data dataset table file row rows column columns model models predict prediction estimate build make"
    " train test set feature features sample samples value values number good best high low new other"
    " use please want need score error result results accuracy"
)
"""Words that say nothing of which column is meant."""
ID_WORDS = words("id ids uuid guid key identifier no nr num number index idx serial pid uid ssn sku")
STRICT_ID_WORDS = words("id ids uuid guid identifier pid uid ssn")
"""Words that name nothing else than whom or what a row is about."""
ENDINGS = ("ions", "ion", "ing", "als", "al", "ers", "er", "ed", "ies", "es", "is", "s", "e", "y")
OTHER_WORDS: Mapping[str, frozenset[str]] = {
    "sell": words("sale price"),
    "sold": words("sale price"),
    "cost": words("price fee fare charge"),
    "worth": words("price value"),
    "pay": words("price fee fare charge"),
    "paid": words("price fee fare charge"),
    "earn": words("salary wage income pay"),
    "leav": words("churn attrition exit"),
    "quit": words("churn attrition exit"),
    "die": words("death dead mortality"),
    "died": words("death dead mortality"),
}
"""What a verb, here its stem, says of whom or what a row is about, as columns are named."""


def name_words(name: str) -> tuple[str, ...]:
    """The words of a column's name, in lower case."""
    return tuple(word.lower() for word in NAME_WORD.findall(name))


def stem(word: str) -> str:
    """A word without the ending that tells `survived` from `survival`, in lower case."""
    word = word.lower()
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


def singular(word: str) -> str:
    """A word without the `s` of its plural, in lower case."""
    word = word.lower()
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2:
        return word[:-1]
    return word


def is_id_name(name: str) -> bool:
    """Whether a name says that the values tell rows, persons or things apart."""
    parts = name_words(name)
    return bool(parts) and (parts[-1] in ID_WORDS or parts[0] in STRICT_ID_WORDS)


@dataclass(frozen=True, slots=True)
class Mention:
    """A column's name in a sentence."""

    column: str
    start: int
    end: int
    exact: bool
    """Letter by letter, not only word by word."""
    quoted: bool
    """In quotes, or called a column."""

    @property
    def is_sure(self) -> bool:
        """Whether nothing but the column can be meant: quoted, or no word of the language."""
        return self.quoted or (self.exact and _is_identifier(self.column))


def find_mentions(text: str, columns: Iterable[str]) -> list[Mention]:
    """Where a sentence mentions columns; of mentions that overlap, the longest."""
    pieces = [(match.start(), match.end()) for match in TEXT_WORD.finditer(text)]
    by_first: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    mentions = []
    for column in columns:
        parts = tuple(word.lower() for word in TEXT_WORD.findall(column))
        spoken = name_words(column)
        if not parts:
            mentions += _signs(text, column)
            continue
        for form in {parts, spoken}:
            by_first.setdefault(singular(form[0]), []).append((form, column))
    for place, (start, end) in enumerate(pieces):
        for form, column in by_first.get(singular(text[start:end]), ()):
            last = place + len(form) - 1
            if last < len(pieces) and _matches(text, pieces[place : last + 1], form):
                mentions.append(_mention(text, start, pieces[last][1], column))
    return _longest(mention for mention in mentions if _is_meant(text, mention))


def _matches(text: str, pieces: Sequence[tuple[int, int]], form: Sequence[str]) -> bool:
    for (start, end), word in zip(pieces, form, strict=True):
        if singular(text[start:end]) != singular(word):
            return False
    return all(BETWEEN_WORDS.fullmatch(text[left[1] : right[0]]) for left, right in pairwise(pieces))


def _mention(text: str, start: int, end: int, column: str) -> Mention:
    """A mention, widened to signs that belong to the name."""
    inner = column.find(text[start:end])
    if inner >= 0 and text[max(0, start - inner) :].startswith(column):
        start = start - inner
        end = start + len(column)
    before, after = text[start - 1 : start], text[end : end + 1]
    quoted = bool(before) and bool(after) and before in QUOTES and after in QUOTES
    if not quoted:
        quoted = (
            re.search(r"\bcolumns?\s+(?:named\s+|called\s+)?$", text[max(0, start - 20) : start]) is not None
        )
    return Mention(column, start, end, exact=text[start:end] == column, quoted=quoted)


def _signs(text: str, column: str) -> list[Mention]:
    """Mentions of a name that has no letter or digit, such as `#`."""
    if not column.strip():
        return []
    pattern = re.compile(rf"(?:(?<=\s)|(?<=[{QUOTES}])|^){re.escape(column)}(?=[\s{QUOTES},.;]|$)")
    return [_mention(text, match.start(), match.end(), column) for match in pattern.finditer(text)]


def _is_meant(text: str, mention: Mention) -> bool:
    """Whether a mention is more than a common word of the sentence."""
    if mention.quoted or mention.column.lower() not in FUNCTION_WORDS:
        return True
    # `A` before a noun is the article; before `from`, a comma or the end it can only be the column.
    after = text[mention.end :].lstrip()
    return mention.exact and re.match(r"$|[,.;)]|(?:from|using|given|based|and|by|with)\b", after) is not None


def _longest(mentions: Iterable[Mention]) -> list[Mention]:
    kept: list[Mention] = []
    by_weight = sorted(mentions, key=lambda mention: (mention.start - mention.end, not mention.exact))
    for mention in by_weight:
        rivals = [other for other in kept if mention.start < other.end and other.start < mention.end]
        # Columns that differ in spelling alone are mentioned together, unless one is spelt exactly.
        if all(
            (other.start, other.end) == (mention.start, mention.end) and other.exact == mention.exact
            for other in rivals
        ):
            kept.append(mention)
    return sorted(kept, key=lambda mention: (mention.start, mention.end))


def _is_identifier(name: str) -> bool:
    """Whether a name is no word of the language: it has signs, digits, or capitals inside."""
    if re.search(r"[\W_\d]", name):
        return True
    return len(name) > 1 and (name[1:] != name[1:].lower())
