"""Whether a mail is for this mailbox, and whether it describes a fault."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from detent.apps.warranty.domain import TextPart
from detent.apps.warranty.domain.language import without_greeting, without_notices, without_signature
from detent.apps.warranty.domain.serials import extract, without_serials
from detent.apps.warranty.domain.words import WORDS, Words, found, spaced

FEWEST_WORDS = 5
"""A text with fewer words describes nothing."""

LONGEST_DESCRIPTION = 2000
NO_DESCRIPTION = MappingProxyType({"en": "No description given.", "pl": "Brak opisu."})


@dataclass(frozen=True, slots=True)
class Scope:
    """What a mail is about, judged by its words."""

    kind: Literal["in_scope", "spam", "topic"] = "in_scope"
    topic: str | None = None
    """Name of the topic, if this mailbox does not serve it."""
    hits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The entries found, per list; lists without hits are left out."""


def scope_of(subject: str, parts: Iterable[TextPart], words: Words = WORDS) -> Scope:
    """What a mail is about. A mail that is not clearly about another topic is in scope, even an empty one.

    Faults count anywhere. Words for which a mail is redirected count outside the signature only: signatures
    mention deliveries and invoices in any mail.
    """
    every = list(parts)
    body = without_notices(_body(every))
    text = spaced(f"{subject}\n{body}")
    written = spaced(f"{subject}\n{without_signature(body).strip() or body}")
    topics, hints = _by_topic(words.topic, written), _by_topic(words.topic_weak, written)
    devices, complaints = found(words.device, text), found(words.fault_weak, text)
    hits = {
        "fault": (*found(words.fault, text), *(complaints if devices else ())),
        "safety": found(words.safety, text),
        "warranty": found(words.warranty, text),
        "topic": tuple(entry for entries in topics.values() for entry in entries),
        "topic_weak": tuple(entry for entries in hints.values() for entry in entries),
        "spam_strong": found(words.spam_strong, written),
        "spam_weak": found(words.spam_weak, written),
    }
    seen = {name: entries for name, entries in hits.items() if entries}
    if (hits["spam_strong"] or len(hits["spam_weak"]) > 1) and not hits["fault"]:
        return Scope("spam", None, seen)
    if hits["fault"] or hits["safety"] or hits["warranty"]:
        return Scope("in_scope", None, seen)
    named = next(iter(topics), None)
    if named is None:
        named = next((name for name, entries in hints.items() if _differ(entries)), None)
        if named is not None and extract(every, subject).serial_number is not None:
            named = None  # a sender who names the serial number has the device at hand
    return Scope("in_scope" if named is None else "topic", named, seen)


def _by_topic(lists: tuple[tuple[str, tuple[str, ...]], ...], text: str) -> dict[str, tuple[str, ...]]:
    """The topics of a text, with the entries found."""
    return {name: entries for name, listed in lists if (entries := found(listed, text))}


def _differ(entries: Iterable[str]) -> bool:
    """Whether the entries are different words, not forms of one: "cena" and "ceny" are one word."""
    return len({entry.removeprefix("=")[:3] for entry in entries}) > 1


def description_missing(
    subject: str, parts: Iterable[TextPart], words: Words = WORDS, scope: Scope | None = None
) -> bool:
    """Whether the mail lacks a description: no fault, and hardly a word besides the serial number.

    `scope` is the mail's scope, if it is already known.
    """
    every = list(parts)
    if (scope or scope_of(subject, every, words)).hits.keys() & {"fault", "safety"}:
        return False
    topic = re.sub(r"^(?:\s*(?:re|fwd?|odp|pd)\s*:)+", "", subject, flags=re.IGNORECASE)
    return _word_count(_body(every)) < FEWEST_WORDS and _word_count(topic) < FEWEST_WORDS


def issue_description(text: str, language: str = "en") -> str:
    """A description for a ticket: without control characters, limited in length, never empty."""
    printable = "".join(
        char
        for char in text
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )
    lines = [line.rstrip() for line in printable.replace("\t", " ").split("\n")]
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
    return spaced(f"{subject}\n{without_notices(_body(parts))}")


def _word_count(text: str) -> int:
    """Number of words without greeting, signature, serial numbers and their labels."""
    left = without_serials(without_signature(without_greeting(text)))
    return len(re.findall(r"[^\W\d_][^\W_]*(?:['-][^\W_]+)*", left))
