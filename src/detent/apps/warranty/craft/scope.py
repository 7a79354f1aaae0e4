"""Whether a mail is for this mailbox, and whether it says what is wrong with the device."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from detent.apps.warranty.craft import TextPart
from detent.apps.warranty.craft.language import without_greeting, without_signature
from detent.apps.warranty.craft.serials import without_serials
from detent.apps.warranty.craft.words import WORDS, Words, found, spaced

FEWEST_WORDS = 5
"""A text with fewer words describes nothing."""

LONGEST_DESCRIPTION = 2000
NO_DESCRIPTION = MappingProxyType({"en": "No description given.", "pl": "Brak opisu."})


@dataclass(frozen=True, slots=True)
class Scope:
    """What a mail is about, as far as words tell."""

    kind: Literal["in_scope", "spam", "topic"] = "in_scope"
    topic: str | None = None
    """Name of the topic, when it is one this mailbox does not serve."""
    hits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The entries found, per list; lists without hits are left out."""


def scope_of(subject: str, parts: Iterable[TextPart], words: Words = WORDS) -> Scope:
    """What a mail is about. Whatever is not clearly something else is in scope, an empty mail too."""
    text = _judged(subject, parts)
    topics = {name: found(entries, text) for name, entries in words.topic}
    named = [(name, entries) for name, entries in topics.items() if entries]
    hits = {
        "fault": found(words.fault, text),
        "safety": found(words.safety, text),
        "warranty": found(words.warranty, text),
        "topic": tuple(entry for _, entries in named for entry in entries),
        "spam_strong": found(words.spam_strong, text),
        "spam_weak": found(words.spam_weak, text),
    }
    seen = {name: entries for name, entries in hits.items() if entries}
    if (hits["spam_strong"] or len(hits["spam_weak"]) > 1) and not hits["fault"]:
        return Scope("spam", None, seen)
    if named and not (hits["fault"] or hits["safety"] or hits["warranty"]):
        return Scope("topic", named[0][0], seen)
    return Scope("in_scope", None, seen)


def has_safety(subject: str, parts: Iterable[TextPart], words: Words = WORDS) -> bool:
    """Whether the mail speaks of danger: smoke, sparks, a shock."""
    return bool(found(words.safety, _judged(subject, parts)))


def description_missing(subject: str, parts: Iterable[TextPart], words: Words = WORDS) -> bool:
    """Whether the mail does not say what is wrong: no fault named, and hardly a word beside the serial."""
    every = list(parts)
    text = _judged(subject, every)
    if found(words.fault, text) or found(words.safety, text):
        return False
    topic = re.sub(r"^(?:\s*(?:re|fwd?|odp|pd)\s*:)+", "", subject, flags=re.IGNORECASE)
    return _told(_body(every)) < FEWEST_WORDS and _told(topic) < FEWEST_WORDS


def issue_description(text: str, language: str = "en") -> str:
    """A description as a ticket holds it: clean, not too long, and never empty."""
    kept = "".join(
        one
        for one in text
        if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )
    lines = [line.rstrip() for line in kept.replace("\t", " ").split("\n")]
    clean = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    if len(clean) > LONGEST_DESCRIPTION:
        clean = clean[: LONGEST_DESCRIPTION - 1].rstrip() + "…"
    return clean or NO_DESCRIPTION.get(language, NO_DESCRIPTION["en"])


def _body(parts: Iterable[TextPart]) -> str:
    """The newest part, or the forwarded one when the newest is empty."""
    every = list(parts)
    newest = "\n".join(part.text for part in every if part.kind == "newest")
    if newest.strip():
        return newest
    return "\n".join(part.text for part in every if part.kind == "forwarded")


def _judged(subject: str, parts: Iterable[TextPart]) -> str:
    return spaced(f"{subject}\n{_body(parts)}")


def _told(text: str) -> int:
    """Words left when greeting, signature, serials and their labels are taken away."""
    left = without_serials(without_signature(without_greeting(text)))
    return len(re.findall(r"[^\W\d_][^\W_]*(?:['-][^\W_]+)*", left))
