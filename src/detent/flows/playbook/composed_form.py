"""The form in which an agent chooses approved sentences, in place of writing a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from detent.flows.playbook.composition import Choice
from detent.flows.playbook.forms import free_text
from detent.flows.playbook.instruction import FormField

SENTENCES = "sentences"
"""Name of the field, and of the input that lists what may be chosen."""
GREETING = "greeting"
HOW = (
    "You do not write the text: code puts it together. sentences under INPUTS lists what may be said, by its "
    "id. Choose what answers this case best, at most one of each group. Required ones are said in any case."
)
_GREETINGS = {
    "formal": "for somebody who writes formally",
    "by_name": "with the customer's name",
    "plain": "the usual one",
}


def fields(form: Sequence[FormField], offer: Mapping[str, Any]) -> tuple[FormField, ...]:
    """The form with the choice of sentences, and of a greeting, in place of its free text."""
    text = free_text(form)
    assert text is not None
    ids = [sentence["id"] for sentence in offer["sentences"]]
    one = {"type": "string", "enum": ids}
    schema = {"type": "array", "items": one, "uniqueItems": True, "maxItems": len(ids)}
    about = "The ids of the sentences to say, in order"
    chosen = [replace(text, name=SENTENCES, description=about, schema=schema)]
    if greetings := list(offer["greetings"]):
        meanings = {kind: _GREETINGS[kind] for kind in greetings}
        choice = {"type": "string", "enum": greetings}
        chosen.append(
            replace(text, name=GREETING, description="How the text begins", schema=choice, meanings=meanings)
        )
    return tuple(item for field in form for item in (chosen if field is text else [field]))


def choice_of(facts: Mapping[str, Any]) -> Choice:
    """What a form that was filled in without problems chooses."""
    return Choice(tuple(facts[SENTENCES]), facts.get(GREETING, ""))


def shown(offer: Mapping[str, Any]) -> str:
    """The sentences as an agent sees them."""
    lines = []
    for sentence in offer["sentences"]:
        marks = ["required"] if sentence["required"] else []
        marks += [f"group {sentence['group']}"] if sentence["group"] else []
        about = f" ({', '.join(marks)})" if marks else ""
        lines.append(f"- {sentence['id']}{about}: {sentence['text']}")
    return "\n".join(lines)
