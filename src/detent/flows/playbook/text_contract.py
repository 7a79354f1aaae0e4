"""The hard contract of a step's text for people: every form in it is explained by a fact of the run.

A fact is a value under `facts` in the step file, with its kind. Undeclared, only a need that steps of the
playbook have set counts, and only as a day, an address or an identifier; what a run was started with may be
anybody's words, and explains nothing unless the file says so. An application may give facts of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from detent.authoring.templates import ABSENT, Values
from detent.dispatch.prose.contract import LANGUAGES, findings
from detent.dispatch.prose.fact_kinds import derived_kind, facts_from
from detent.dispatch.prose.facts import Facts
from detent.dispatch.prose.slots import FactValue
from detent.engine.outcome import Effect, Receipt
from detent.flows.playbook.instruction import InstructionFile
from detent.flows.playbook.templates import LANGUAGE
from detent.kernel.guards import dig
from detent.kernel.plain import to_plain

OwnFacts: TypeAlias = Callable[[str, Mapping[str, Any]], Facts]
"""An application's facts of a step, by its name, on the data of a run."""
Rendered: TypeAlias = Mapping[str, Callable[[str], str]]
"""By `function.argument`, the text that is sent for what the argument holds."""


class TextContract:
    """The contract of one step's text."""

    def __init__(
        self,
        step: InstructionFile,
        prose: Sequence[str],
        values: Callable[[Mapping[str, Any]], Values],
        language: str,
        *,
        written: Iterable[str] = (),
        inner: Iterable[str] = (),
        own: OwnFacts | None = None,
        rendered: Rendered | None = None,
    ) -> None:
        self.step = step
        self.prose = tuple(prose)
        self.values = values
        self.language = language
        """The language if the data names none."""
        self.written = frozenset(written)
        """Keys of the data that steps of the playbook set."""
        self.inner = tuple(inner)
        self.own = own
        self.rendered = rendered or {}

    def facts(self, data: Mapping[str, Any], sentences: Iterable[str] = ()) -> Facts:
        """What the text may state."""
        if self.own is not None:
            return self.own(self.step.id, data)
        values = [(fact.kind, fact.value) for fact in self.known(data).values()]
        language = str(dig(data, LANGUAGE) or self.language)
        return facts_from(values, language, sentences=sentences, inner=self.inner)

    def known(self, data: Mapping[str, Any]) -> dict[str, FactValue]:
        """The facts by their keys: those declared, and needs that can only be taken for what they are."""
        values = self.values(data)
        known: dict[str, FactValue] = {}
        for key, declared in self.step.facts.items():
            known[key] = FactValue(declared, _plain(values(key)))
        for key in self.step.needs:
            if key.partition(".")[0] in self.written and key not in known:
                value = _plain(values(key))
                kinds = {derived_kind(item) for item in (value if isinstance(value, list) else [value])}
                if len(kinds) == 1 and (kind := kinds.pop()) is not None:
                    known[key] = FactValue(kind, value)
        return {key: fact for key, fact in known.items() if fact.value is not None}

    def problems(
        self, data: Mapping[str, Any], effects: Iterable[Effect], own: Iterable[Effect]
    ) -> list[str]:
        """What is wrong with the texts of effects; `own` are those that the step's code would propose.

        Besides prose, every argument with several words is a text, unless code gives the same.
        """
        tools = {place.rpartition(".")[0] for place in self.prose}
        by_code = {(effect.tool, name, value) for effect in own for name, value in effect.args.items()
                   if isinstance(value, str)}  # fmt: skip
        texts: dict[str, list[str]] = {}
        for effect in effects:
            for name, value in effect.args.items() if effect.tool in tools else ():
                place = f"{effect.tool}.{name}"
                is_text = isinstance(value, str) and (place in self.prose or len(value.split()) > 1)
                if is_text and (effect.tool, name, value) not in by_code:
                    texts.setdefault(place, []).append(value)
        if not texts:
            return []
        facts = self.facts(data, [value for _, _, value in by_code])
        if facts.language not in LANGUAGES:
            return [f"language: a text in '{facts.language}' cannot be checked, so it is not used."]
        return [
            str(finding)
            for place, values in texts.items()
            for text in values
            for finding in self._broken(place, text, facts)
        ]

    def _broken(self, place: str, text: str, facts: Facts) -> Any:
        part = place.rpartition(".")[2]
        sent = self.rendered[place](text) if place in self.rendered else text
        return findings(text, facts, part=part) or (findings(sent, facts, part=part) if sent != text else ())


def _plain(value: Any) -> Any:
    """A value that texts may state; None for what is known only later, and for what is no value."""
    if isinstance(value, Receipt) or value is None or value is ABSENT:
        return None
    return to_plain(value)
