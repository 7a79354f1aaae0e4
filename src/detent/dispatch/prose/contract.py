"""The contract of a text to a customer: every form in it is explained by a fact of the run.

Meaning is not judged here: a promise in plain words passes, and is for a person to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from detent.dispatch.prose import capitals, days, digits, links, money, number_words
from detent.dispatch.prose.english import ENGLISH
from detent.dispatch.prose.facts import Facts, Required
from detent.dispatch.prose.finding import Finding, Layer
from detent.dispatch.prose.german import GERMAN
from detent.dispatch.prose.identifiers import device_patterns, foreign_prefixes, identifier_pattern
from detent.dispatch.prose.inner_words import inner
from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.letters import unsound
from detent.dispatch.prose.masked_text import blank, even, folded, line_of, masked, sentences
from detent.dispatch.prose.names import spoken_to, strangers, without_own
from detent.dispatch.prose.polish import POLISH
from detent.dispatch.prose.sentence_language import foreign

LANGUAGES: Mapping[str, LanguageData] = {"en": ENGLISH, "pl": POLISH, "de": GERMAN}
"""The languages whose texts can be checked."""


def findings(text: str, facts: Facts, *, part: str = "body") -> tuple[Finding, ...]:
    """The broken rules of a text as it is sent, one finding for each layer.

    Raises:
        KeyError: nothing is known about the language.
    """
    data = LANGUAGES[facts.language]
    hidden = next(iter(unsound(text)), None)
    if hidden is not None:  # what the others would read is not what the customer reads
        return (Finding("letters", f"{part}, line {line_of(text, hidden)}"),)
    plain = _without_sentences(even(text), facts.sentences)
    rest = masked(without_own(plain, facts.names, data), _patterns(facts, data))
    own_text = frozenset(_words(facts.sentences))
    proper = frozenset(_words((*facts.devices, *facts.contacts))).union(
        *(spoken_to(name, data) for name in facts.names)
    )
    rules: dict[Layer, Callable[[], Iterator[int]]] = {
        "links": lambda: _links(rest, facts, data, proper | own_text),
        "inner_words": lambda: inner(rest, facts.inner),
        "names": lambda: _names(rest, even(text), facts, data, proper | own_text),
        "days": lambda: days.unexplained(rest, data),
        "number_words": lambda: number_words.unexplained(rest, data),
        "money": lambda: money.unexplained(rest, data),
        "digits": lambda: digits.unexplained(rest, data),
        "language": lambda: foreign(rest, facts.language, LANGUAGES, proper, own_text),
    }
    places = ((layer, next(iter(rule()), None)) for layer, rule in rules.items())
    return tuple(
        Finding(layer, f"{part}, line {line_of(text, offset)}")
        for layer, offset in places
        if offset is not None
    )


def missing(text: str, required: Iterable[Required], language: str) -> tuple[Finding, ...]:
    """The required facts that a text does not name, in whatever accepted form."""
    data, plain = LANGUAGES[language], even(text)
    return tuple(
        Finding("required", fact.name)
        for fact in required
        if not any(pattern.search(plain) for pattern in _forms(fact, data))
    )


def _forms(fact: Required, data: LanguageData) -> Iterator[re.Pattern[str]]:
    if fact.identifier is not None:
        yield identifier_pattern(fact.identifier)
    if fact.day is not None:
        yield days.day_pattern(fact.day, data, with_year=True)
    yield from links.contact_patterns(fact.contacts)


def _patterns(facts: Facts, data: LanguageData) -> Iterator[re.Pattern[str]]:
    """The accepted forms of all facts; longer ones first, because a part of one may be another."""
    yield from links.contact_patterns(facts.contacts)
    yield from map(links.address_pattern, facts.addresses)
    yield from map(identifier_pattern, facts.identifiers)
    for device in facts.devices:
        yield from device_patterns(device)
    for day in facts.days:
        yield days.day_pattern(day, data, with_year=False)
    yield from number_words.count_patterns(facts.counts, data)
    yield from money.amount_patterns(facts.amounts)


def _words(texts: Iterable[str]) -> Iterator[str]:
    return (folded(word) for text in texts for word in re.findall(r"[^\W\d_]+", text))


def _names(rest: str, whole: str, facts: Facts, data: LanguageData, known: Set[str]) -> Iterator[int]:
    yield from strangers(rest, facts.names, data)
    yield from capitals.names(rest, whole, known, data)


def _links(rest: str, facts: Facts, data: LanguageData, known: Set[str]) -> Iterator[int]:
    yield from links.unexplained(rest, data)
    yield from links.paths(rest, (*facts.contacts, *facts.addresses))
    counted = set(number_words.unexplained(rest, data))  # a Roman number is that rule's
    yield from (offset for offset in capitals.codes(rest, known, data) if offset not in counted)
    yield from (
        offset
        for offset in foreign_prefixes(rest, facts.identifiers)
        if not any(char.isdigit() for char in rest[offset:].split()[0])  # those are the digits' rule
    )


def _without_sentences(text: str, approved: Iterable[str]) -> str:
    """The text without the sentences of the template, which a person has written for this step."""
    known = {_joined(sentence) for body in approved for _, sentence in sentences(even(body))}
    for offset, sentence in sentences(text):
        if known and _joined(sentence) in known:
            text = text[:offset] + blank(sentence) + text[offset + len(sentence) :]
    return text


def _joined(sentence: str) -> str:
    return " ".join(sentence.split())
