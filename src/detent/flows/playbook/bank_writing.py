"""Adds sentences of approved drafts to a step's bank, for the state in which they were approved.

The state is told by every key that the step's variants, the edges to it and its bank have conditions on: a
sentence is never approved for more than the person has seen.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detent.authoring.templates import placeholders
from detent.dispatch.prose.slots import FactValue, with_slots
from detent.dispatch.sentence_bank import NewSentence
from detent.dispatch.sentence_marks import sentences
from detent.flows.playbook.composition import Composer, breaks, readings, sayable
from detent.flows.playbook.instruction import InstructionFile
from detent.flows.playbook.sentences import Bank, BankFile, read_bank
from detent.kernel.errors import ConfigurationError
from detent.kernel.guards import dig
from detent.kernel.plain import encode

FEWEST_WORDS = 4
"""Words of the shortest sentence that is offered; shorter ones are greetings and signatures."""
GROUP = "added"
"""Group of a sentence for which nobody names one: of those, one may be said."""

Conditions = Sequence[Mapping[str, Any]]


class StepBank:
    """The bank of one step, as the review of drafts sees it."""

    def __init__(
        self, step: InstructionFile, composer: Composer, conditions: Conditions, inner: Sequence[str]
    ) -> None:
        self.step = step
        self.composer = composer
        self.conditions = conditions
        """Of its variants and of the edges to it."""
        self.inner = inner

    def offered(self, text: str, own: str, data: Mapping[str, Any]) -> list[NewSentence]:
        """The sentences of an approved text that are not in the bank for this state, slots in place."""
        bank = self._bank(data)
        kinds, values = self.step.facts, self.composer.values(data)
        facts = {key: FactValue(kind, values(key)) for key, kind in kinds.items()}
        state = sayable(bank, kinds, data, values)
        known = {
            _folded(line) for said in (state.texts.values() if state else ()) for line in sentences(said)
        }
        known |= {_folded(line) for line in sentences(own)}
        slotted = {
            _folded(sentence.text) for sentence in bank.sentences if state and sentence.id in state.sentences
        }
        offered: list[NewSentence] = []
        for sentence in sentences(text):
            new = with_slots(sentence, facts, bank.language)
            if len(sentence.split()) < FEWEST_WORDS or _folded(sentence) in known or _folded(new) in slotted:
                continue
            broken = breaks(new, kinds, bank.language, self.inner)
            problem = f"with other values it may not be said: {broken[0]}" if broken else None
            offered.append(NewSentence(new, tuple(readings(new, kinds, bank.language)), problem))
        return offered

    def add(
        self, sentence: NewSentence, data: Mapping[str, Any], within: Path, *, by: str, day: str,
        group: str | None = None,
    ) -> tuple[str, str]:  # fmt: skip
        """Add a sentence for the state of this data; returns its id and the file.

        Raises:
            ConfigurationError: it may not be said with other values, or the file cannot take it.
        """
        bank = self._bank(data)
        if not bank.path.resolve().is_relative_to(within.resolve()):
            raise ConfigurationError(
                f"{bank.path.name} comes with the application. Work on a copy of its files in the project."
            )
        if sentence.problem is not None:
            raise ConfigurationError(f"This sentence cannot be added: {sentence.problem}")
        file = BankFile(bank.step, bank.language, bank.path)
        with _locked(bank.path.parent):
            now, wrong = read_bank(file, bank.path.name)  # another person may have added to it
            if now is None or any(problem.severity == "error" for problem in wrong):
                raise ConfigurationError(f"{bank.path} cannot be read. Check it first: detent check")
            self._check_group(now, sentence, group)
            name = _free_id(sentence.text, {item.id for item in now.sentences})
            block = _block(name, group or GROUP, self.state(data, now), sentence.text, by, day)
            _append(file, block, len(now.sentences) + 1)
        return name, str(bank.path)

    def state(self, data: Mapping[str, Any], bank: Bank) -> dict[str, Any]:
        """The condition that holds in the state of this data and tells it from others."""
        condition: dict[str, Any] = {}
        for when in (*self.conditions, *(item.when for item in bank.sentences if item.when)):
            for key, expected in when.items():
                value = dig(data, key)
                empty = value is None or value in ("", [], {})
                if empty:
                    condition[key] = "absent"
                elif expected in ("present", "absent") or not isinstance(value, str | int | float | bool):
                    condition.setdefault(key, "present")
                else:
                    condition[key] = [value] if value in ("present", "absent") else value
        return condition

    def _bank(self, data: Mapping[str, Any]) -> Bank:
        bank = self.composer.bank(data)
        if bank is None:
            raise ConfigurationError(
                f"Step '{self.step.id}' has no bank in this language: write sentences/{self.step.id}."
                f"{dig(data, 'language') or self.composer.language}.yaml first."
            )
        return bank

    def _check_group(self, bank: Bank, sentence: NewSentence, group: str | None) -> None:
        slots = {item.key for item in placeholders(sentence.text)}
        for other in bank.sentences:
            lacking = {item.key for item in placeholders(other.text)} - slots
            if other.required and other.group is not None and other.group == group and lacking:
                raise ConfigurationError(
                    f"In group '{group}' it may stand for '{other.id}' and does not name "
                    f"{', '.join(sorted(lacking))}."
                )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others from adding to the banks of a folder meanwhile, on systems that can lock it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # gives the lock back


def _block(name: str, group: str, when: Mapping[str, Any], text: str, by: str, day: str) -> str:
    """A sentence as YAML; its values in the form of JSON, which is YAML too."""
    values = {"id": name, "group": group, "when": when, "text": text, "approved_by": by, "approved_at": day}
    lines = [f"{key}: {encode(value)}" for key, value in values.items() if value]
    return "  - " + "\n    ".join(lines) + "\n"


def _append(file: BankFile, block: str, expected: int) -> None:
    """Add a block at the end of the file's list, or leave the file as it is."""
    before = file.path.read_text(encoding="utf-8")
    trial = file.path.with_name(f".{file.path.name}.{os.getpid()}")
    try:
        trial.write_text(before.rstrip("\n") + "\n" + block, encoding="utf-8")
        bank, wrong = read_bank(BankFile(file.step, file.language, trial), file.path.name)
        if bank is None or wrong or len(bank.sentences) != expected:
            raise ConfigurationError(f"{file.path} does not end with its list. Add it by hand:\n{block}")
        trial.replace(file.path)
    except OSError as error:
        raise ConfigurationError(f"{file.path} cannot be written: {error.strerror}.") from None
    finally:
        trial.unlink(missing_ok=True)


def _free_id(text: str, taken: set[str]) -> str:
    """A name from the first words."""
    folded = unicodedata.normalize("NFKD", text.replace("ł", "l").casefold())
    words = re.findall(r"[a-z0-9]+", re.sub(r"\{\{.*?\}\}", " ", folded).encode("ascii", "ignore").decode())
    stem = "-".join(words[:4]) or "sentence"
    return next(name for name in _numbered(stem) if name not in taken)


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1


def _folded(sentence: str) -> str:
    return " ".join(sentence.split()).casefold()
