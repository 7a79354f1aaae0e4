"""Checks banks of sentences against the playbook: steps, slots, conditions, groups, and the hard contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from detent.authoring.problem import Place, Problem
from detent.authoring.templates import placeholders
from detent.dispatch.prose.contract import LANGUAGES
from detent.flows.playbook.composition import breaks
from detent.flows.playbook.forms import free_text
from detent.flows.playbook.instruction import BAD_PROSE
from detent.flows.playbook.playbook import Playbook
from detent.flows.playbook.sentences import Bank, Sentence
from detent.kernel.errors import nearest


def sentence_problems(playbook: Playbook) -> list[Problem]:
    """The problems of every bank."""
    known = known_keys(playbook)
    return [
        problem
        for by_language in playbook.banks.values()
        for bank in by_language.values()
        for problem in _Check(playbook, bank, known).problems()
    ]


class _Check:
    """One check of a bank."""

    def __init__(self, playbook: Playbook, bank: Bank, known: Sequence[str]) -> None:
        self.playbook = playbook
        self.bank = bank
        self.known = known

    def problems(self) -> Iterator[Problem]:
        bank, steps = self.bank, self.playbook.steps
        step = steps.get(bank.step)
        if step is None:
            if bank.step not in self.playbook.texts:
                yield self.wrong("", f"there is no step '{bank.step}'.{nearest(bank.step, steps)}")
            return
        if free_text(step.form) is None:
            message = "it is not used: the form of its step has no free text for an argument, or several."
            yield self.wrong("", message, "W04")
        if bank.language not in LANGUAGES:
            names = ", ".join(LANGUAGES)
            yield self.wrong("", f"texts in '{bank.language}' cannot be checked. Languages: {names}.")
            return
        yield from self.ids()
        for path, text in bank.texts():
            yield from self.text(step.facts, path, text)
        for sentence in bank.sentences:
            yield from self.condition(sentence)
            yield from self.stand_in(sentence)
        if not any(sentence.required for sentence in bank.sentences):
            yield self.wrong("sentences", "no sentence is required: nothing would have to be said.")

    def wrong(self, path: str, message: str, code: str = BAD_PROSE) -> Problem:
        place = self.bank.places.get(path) or self.bank.places.get("") or Place("", 1)
        shown = self.playbook.loader.shown(self.bank.path)
        return Problem(code, message, Place(shown, place.line, place.column), path)

    def ids(self) -> Iterator[Problem]:
        """Each id names one sentence."""
        seen: set[str] = set()
        for sentence in self.bank.sentences:
            if sentence.id in seen:
                yield self.wrong(f"sentences[{sentence.index}].id", f"'{sentence.id}' is defined twice.")
            seen.add(sentence.id)

    def text(self, kinds: Mapping[str, str], path: str, text: str) -> Iterator[Problem]:
        """Slots are facts of the step, and the text keeps the hard contract whatever their values are."""
        unknown = [item.key for item in placeholders(text) if item.key not in kinds]
        for key in dict.fromkeys(unknown):
            hint = nearest(key, kinds) or f" Facts: {', '.join(kinds) or 'none'}."
            yield self.wrong(path, f"{{{{{key}}}}} is none of the `facts` of step '{self.bank.step}'.{hint}")
        if unknown:
            return
        for finding in breaks(text, kinds, self.bank.language, self.playbook.steps):
            yield self.wrong(path, f"it may not be said: {finding}")

    def condition(self, sentence: Sentence) -> Iterator[Problem]:
        """Its condition is on keys that the playbook knows."""
        for key in sentence.when or ():
            if not any(
                key == name or key.startswith(f"{name}.") or name.startswith(f"{key}.") for name in self.known
            ):
                path = f"sentences[{sentence.index}].when"
                yield self.wrong(path, f"no step reads or sets '{key}'.{nearest(key, self.known)}")

    def stand_in(self, sentence: Sentence) -> Iterator[Problem]:
        """What may be said in place of a required sentence names the same facts."""
        slots = {item.key for item in placeholders(sentence.text)}
        for other in self.bank.sentences:
            if other is sentence or not other.required or sentence.required:
                continue
            if other.group is None or other.group != sentence.group or not _meet(sentence, other):
                continue
            lacking = sorted({item.key for item in placeholders(other.text)} - slots)
            if lacking:
                yield self.wrong(
                    f"sentences[{sentence.index}].text",
                    f"it may stand for the required sentence '{other.id}' and does not name "
                    f"{', '.join(f'{{{{{key}}}}}' for key in lacking)}.",
                )


def _meet(one: Sentence, other: Sentence) -> bool:
    """Whether two sentences can be approved for the same state, by the keys their conditions share."""
    first, second = one.when or {}, other.when or {}
    return all(_overlap(first[key], second[key]) for key in first if key in second)


def _overlap(one: Any, other: Any) -> bool:
    if isinstance(one, list) or isinstance(other, list):
        ones, others = (value if isinstance(value, list) else [value] for value in (one, other))
        return any(_overlap(item, another) for item in ones for another in others)
    if "absent" in (one, other):
        return bool(one == other)
    return "present" in (one, other) or bool(one == other)


def known_keys(playbook: Playbook) -> list[str]:
    """The keys of the data that the playbook's files name."""
    keys: dict[str, None] = {}
    for step in playbook.steps.values():
        keys |= dict.fromkeys((*step.needs, *step.outputs, *(call.into for call in step.call)))
        keys |= dict.fromkeys(field.name for field in step.form if field.fills is None)
        for condition in (*(edge.when for edge in step.next), *(variant.when for variant in step.variant)):
            keys |= dict.fromkeys(condition or ())
    schema = playbook.manifest.input or {}
    keys |= dict.fromkeys(schema.get("properties") or ())
    return list(keys)
