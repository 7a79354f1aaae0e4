"""Composes a text of approved sentences: an agent chooses, code fills in the values and puts them in order.

A sentence may be said while its condition holds on the data and every fact it names has a value. Required
ones are said whether they are chosen or not, in the order of the file; others follow the required one that an
agent names before them or, if it names none, that stands before them in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from detent.authoring.templates import Values, fill, placeholders
from detent.dispatch.prose.contract import findings
from detent.dispatch.prose.fact_kinds import SAMPLES, facts_from, in_words
from detent.dispatch.prose.finding import Finding
from detent.flows.playbook.sentences import Bank, Sentence
from detent.flows.playbook.templates import LANGUAGE
from detent.kernel.guards import dig, when

UNKNOWN = "sentences: one of them is not approved for this step, state and language"
TWICE = "sentences: at most one of each group may be chosen, and each only once"


class Choice(NamedTuple):
    """What an agent has chosen."""

    sentences: tuple[str, ...]
    greeting: str


class Sayable(NamedTuple):
    """What may be said in one state, filled in."""

    bank: Bank
    sentences: Mapping[str, Sentence]
    """By id, in the order of the file."""
    texts: Mapping[str, str]
    """The text of each."""
    greetings: Mapping[str, str]

    def problems(self, choice: Choice) -> list[str]:
        """Why a choice cannot be used."""
        if any(name not in self.sentences for name in choice.sentences) or (
            self.greetings and choice.greeting not in self.greetings
        ):
            return [UNKNOWN]
        groups = [self.sentences[name].group or f"/{name}" for name in choice.sentences]
        return [TWICE] if len(set(groups)) < len(groups) else []

    def order(self, choice: Choice) -> tuple[str, ...]:
        """The sentences that a choice comes to, in order."""
        chosen = dict.fromkeys(choice.sentences)
        by_group = {self.sentences[name].group: name for name in chosen if self.sentences[name].group}
        fixed: list[str] = []
        for sentence in self.sentences.values():
            name = by_group.get(sentence.group, sentence.id) if sentence.group else sentence.id
            if sentence.required and name not in fixed:
                fixed.append(name)
                by_group.setdefault(sentence.group, name)
        following: dict[str, list[str]] = {}
        before: str | None = None
        for name in chosen:
            if name in fixed:
                before = name
            else:
                following.setdefault(before or self._before(name, fixed), []).append(name)
        ordered = following.get("", [])
        for name in fixed:
            ordered += [name, *following.get(name, ())]
        return tuple(ordered)

    def _before(self, name: str, fixed: list[str]) -> str:
        """The last of the fixed sentences that stands before another in the file."""
        ids = list(self.sentences)
        return next((other for other in reversed(fixed) if ids.index(other) < ids.index(name)), "")

    def text(self, choice: Choice) -> str:
        """The whole text of a choice without problems."""
        paragraphs: list[list[str]] = []
        for name in self.order(choice):
            if self.sentences[name].paragraph or not paragraphs:
                paragraphs.append([])
            paragraphs[-1].append(self.texts[name])
        parts = [self.greetings.get(choice.greeting, ""), *map(" ".join, paragraphs), self.bank.closing]
        return "\n\n".join(part for part in parts if part)

    def to_plain(self) -> dict[str, Any]:
        """As an agent is shown it."""
        return {
            "greetings": list(self.greetings),
            "sentences": [
                {"id": name, "text": self.texts[name], "group": item.group, "required": item.required}
                for name, item in self.sentences.items()
            ],
        }


class Composer:
    """Composes the text of one step."""

    def __init__(
        self, banks: Mapping[str, Bank], kinds: Mapping[str, str],
        values: Callable[[Mapping[str, Any]], Values], language: str,
    ) -> None:  # fmt: skip
        self.banks = banks
        """By language."""
        self.kinds = kinds
        """The facts of the step."""
        self.values = values
        self.language = language
        """The language used if the data names none."""

    def bank(self, data: Mapping[str, Any]) -> Bank | None:
        """The bank of the run's language."""
        return self.banks.get(str(dig(data, LANGUAGE) or self.language))

    def sayable(self, data: Mapping[str, Any]) -> Sayable | None:
        """What may be said in the state of a run."""
        return sayable(self.bank(data), self.kinds, data, self.values(data))

    def composed(self, data: Mapping[str, Any], choice: Choice) -> tuple[str, list[str]]:
        """The text of a choice, and the problems that keep it from being used."""
        offer = self.sayable(data)
        problems = [UNKNOWN] if offer is None else offer.problems(choice)
        return "" if offer is None or problems else offer.text(choice), problems


def sayable(
    bank: Bank | None, kinds: Mapping[str, str], data: Mapping[str, Any], values: Values
) -> Sayable | None:
    """What may be said in this state; None if not even the required sentences can be."""
    if bank is None:
        return None
    language = bank.language
    sentences: dict[str, Sentence] = {}
    texts: dict[str, str] = {}
    for sentence in bank.sentences:
        if sentence.when is not None and not when(sentence.when)(data):
            continue
        text = _filled(sentence.text, kinds, values, language)
        if text is not None:
            sentences[sentence.id], texts[sentence.id] = sentence, text
        elif sentence.required:
            return None
    greetings = {kind: _filled(text, kinds, values, language) for kind, text in bank.greeting.items()}
    usable = {kind: text for kind, text in greetings.items() if text is not None}
    if not any(sentence.required for sentence in sentences.values()):
        return None
    return Sayable(bank, sentences, texts, usable)


def _filled(text: str, kinds: Mapping[str, str], values: Values, language: str) -> str | None:
    """A text with its slots filled in the form of the language; None if a value is missing."""
    shown: dict[str, str] = {}
    for key in {placeholder.key for placeholder in placeholders(text)}:
        words = in_words(kinds[key], values(key), language) if key in kinds else None
        if words is None:
            return None
        shown[key] = words
    return fill(text, lambda key, line: shown[key])


def readings(text: str, kinds: Mapping[str, str], language: str) -> list[str]:
    """A text as it reads with two sets of sample values."""
    filled = [
        _filled(text, kinds, lambda key, number=number: SAMPLES[kinds[key]][number], language)  # type: ignore[misc]
        for number in (0, 1)
    ]
    return [reading for reading in filled if reading is not None]


def breaks(
    text: str, kinds: Mapping[str, str], language: str, inner: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """The rules that a text with slots breaks by itself, whatever its values are."""
    return _breaks(text, tuple(kinds.items()), language, tuple(inner))


@lru_cache(maxsize=4096)
def _breaks(
    text: str, named: tuple[tuple[str, str], ...], language: str, inner: tuple[str, ...]
) -> tuple[Finding, ...]:
    """The same, remembered: every flow made of a playbook checks all sentences of its banks."""
    kinds = dict(named)
    for number, reading in enumerate(readings(text, kinds, language)):
        samples = [(kind, SAMPLES[kind][number]) for kind in kinds.values()]
        if broken := findings(reading, facts_from(samples, language, inner=inner), part="text"):
            return broken
    return ()
