"""Planted claims: wrong drafts made from right ones, to measure whether the person who reads them notices.

Pure. A mutation adds a claim that nothing supports, drops a negation or puts one fact in another's place. It
follows the text and its language, never the marks that a reviewer is shown. Claims that have a form (another
day, other digits, another name) are made as well; the hard contract refuses most of them, which says nothing
about a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from detent.dispatch.planted import leaves, near_misses
from detent.dispatch.sentence_marks import sentences
from detent.kernel.plain import digest


class DraftSort(str, Enum):
    """A sort of planted claim."""

    MONEY = "money promised"
    FREE = "free of charge"
    REPLACEMENT = "replacement promised"
    CAUSE = "cause named"
    DEADLINE = "deadline promised"
    LIABILITY = "liability admitted"
    DONE = "act claimed"
    """Something is said to have been done already."""
    NEGATION = "negation dropped"
    ANOTHER_FACT = "another fact"
    """A fact of the run where another one of the same form belongs."""
    NEAR_MISS = "near miss"
    """Two digits swapped, day and month swapped, one more or less."""
    ANOTHER_NAME = "another name"


@dataclass(frozen=True, slots=True)
class PlantedClaim:
    """A wrong text, and what is wrong with it."""

    sort: DraftSort
    text: str
    before: str
    """The sentence that was changed; empty where one was added."""
    after: str
    """The wrong sentence."""


def planted_claims(
    text: str, own: str, facts: Mapping[str, Any], language: str | None
) -> Iterator[PlantedClaim]:
    """Every wrong text that can be made from a right one; `own` is the handler's text.

    A claim that the handler makes itself is no error and is left out: what costs nothing under warranty is
    not planted where the handler says so.
    """
    words = LANGUAGES.get((language or "en").partition("-")[0].casefold())
    if words is not None:
        for sort, claims in words.claims.items():
            if _says(own, words.markers[sort], words.negation):
                continue
            for claim in claims:
                if (wrong := _with_claim(text, claim)) is not None:
                    yield PlantedClaim(sort, wrong, "", claim)
        yield from _negations(text, words)
    yield from _changed_facts(text, facts)


def _says(own: str, markers: str, negation: str) -> bool:
    """Whether a text makes a claim of a sort and denies none."""
    found = [sentence for sentence in sentences(own) if re.search(markers, sentence, re.IGNORECASE)]
    return bool(found) and not any(re.search(negation, sentence, re.IGNORECASE) for sentence in found)


def _with_claim(text: str, claim: str) -> str | None:
    """A text with one more sentence, at the end of its longest paragraph."""
    parts = re.split(r"(\n[^\S\n]*\n\s*)", text)
    whole = [index for index in range(0, len(parts), 2) if re.search(r"[.!?…]\s*$", parts[index])]
    if not whole or claim in text:
        return None
    longest = max(whole, key=lambda index: len(parts[index]))
    parts[longest] = f"{parts[longest].rstrip()} {claim}"
    return "".join(parts)


def _negations(text: str, words: _Words) -> Iterator[PlantedClaim]:
    for pattern, instead in words.dropped:
        for match in re.finditer(pattern, text):
            changed = match.expand(instead)
            yield _changed(DraftSort.NEGATION, text, match.start(), match.end(), changed)


def _changed_facts(text: str, facts: Mapping[str, Any]) -> Iterator[PlantedClaim]:
    values = list(dict.fromkeys(str(value) for _, value in leaves(dict(facts)) if _is_token(value)))
    for value in values:
        places = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text)]
        for start, end in places[:1]:
            for other in values:
                if other != value and _form(other) == _form(value):
                    yield _changed(DraftSort.ANOTHER_FACT, text, start, end, other)
            for near in near_misses(value):
                yield _changed(DraftSort.NEAR_MISS, text, start, end, str(near))
    if greeted := _GREETING.match(text):
        start, end = greeted.span("name")
        name = next(name for name in _NAMES if name not in text)
        yield _changed(DraftSort.ANOTHER_NAME, text, start, end, name)


def _is_token(value: Any) -> bool:
    """Whether a fact is a number, a day or an identifier, rather than words."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, str) and bool(_TOKEN.fullmatch(value)))


def _form(value: str) -> str:
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d", "0", value))


def _changed(sort: DraftSort, text: str, start: int, end: int, instead: str) -> PlantedClaim:
    wrong = f"{text[:start]}{instead}{text[end:]}"
    return PlantedClaim(sort, wrong, _sentence_at(text, start), _sentence_at(wrong, start))


def _sentence_at(text: str, place: int) -> str:
    """The sentence around a place of a text."""
    before = len(sentences(text[: place + 1]))
    every = sentences(text)
    return every[min(max(before - 1, 0), len(every) - 1)] if every else ""


_TOKEN = re.compile(r"(?=\S*\d)[\w./-]{1,40}")
_GREETING = re.compile(
    r"\s*(?:Dear|Hello|Hi|Hallo|Guten Tag|Liebe[r]?|Sehr geehrte[r]?|Dzień dobry|Szanown[aey])"
    r"(?: (?:Mr|Mrs|Ms|Frau|Herr|Pan|Pani|Panie)\.?)? (?P<name>[^\W\d_]{2,}(?: [^\W\d_]{2,})?)\s*[,!\n]"
)
_NAMES = ("Marta Lindqvist", "Tomasz Wilk", "Ines Albers")


@dataclass(frozen=True, slots=True)
class _Words:
    """What is planted in one language."""

    claims: Mapping[DraftSort, tuple[str, ...]]
    markers: Mapping[DraftSort, str]
    """Patterns of the words with which a text makes a claim of the sort."""
    negation: str
    dropped: tuple[tuple[str, str], ...]
    """Negations, each with what is left of it."""


LANGUAGES: Mapping[str, _Words] = {
    "en": _Words(
        {
            DraftSort.MONEY: (
                "We will credit the purchase price to your account.",
                "You will get what you paid for it back from us.",
                "Please consider the open bill settled.",
            ),
            DraftSort.FREE: (
                "You will not have to pay anything for the repair.",
                "The repair itself will cost you nothing at all.",
            ),
            DraftSort.REPLACEMENT: (
                "We are sending you a new device in its place.",
                "If you prefer, you simply get another one from us.",
            ),
            DraftSort.CAUSE: (
                "That sounds like the power supply, which often fails on this model.",
                "This happens when the paper sensor has worn out.",
            ),
            DraftSort.DEADLINE: (
                "You will have it back with you very soon, we give you our word on that.",
                "Our technician will call you back within the hour.",
            ),
            DraftSort.LIABILITY: (
                "The fault is clearly ours, and we will answer for the damage.",
                "We take the blame for what this has cost your business.",
            ),
            DraftSort.DONE: (
                "The courier is already on the way to you.",
                "We have already ordered the spare part for you.",
            ),
        },
        {
            DraftSort.MONEY: r"refund|reimburs|money back|credit|settled",
            DraftSort.FREE: r"\bfree\b|no charge|no cost|pay nothing|costs? you nothing",
            DraftSort.REPLACEMENT: r"replac|exchange|new device",
            DraftSort.CAUSE: r"caused? by|because of|sounds like|due to",
            DraftSort.DEADLINE: r"\bwithin\b|working days?|hours?|at the latest|by the end",
            DraftSort.LIABILITY: r"our fault|liab|responsib|blame",
            DraftSort.DONE: r"on (?:its|the) way|already|have (?:sent|ordered|shipped)",
        },
        r"\b(?:not|no|cannot|can't|never|nor)\b|n't\b",
        (
            (r"\b([Cc])annot\b", r"\1an"),
            (r"\b([Cc]an|[Cc]ould|[Dd]oes|[Dd]o|[Ii]s|[Aa]re|[Ww]ill|[Hh]as|[Hh]ave|[Ww]as) not\b", r"\1"),
            (r"\bno longer\b", "still"),
        ),
    ),
    "de": _Words(
        {
            DraftSort.MONEY: (
                "Den Kaufpreis schreiben wir Ihnen gut.",
                "Sie bekommen von uns zurück, was Sie dafür bezahlt haben.",
            ),
            DraftSort.FREE: (
                "Für die Reparatur müssen Sie nichts bezahlen.",
                "Die Reparatur selbst kostet Sie gar nichts.",
            ),
            DraftSort.REPLACEMENT: (
                "Wir schicken Ihnen stattdessen ein neues Gerät.",
                "Wenn Sie möchten, bekommen Sie von uns einfach ein anderes.",
            ),
            DraftSort.CAUSE: (
                "Das klingt nach dem Netzteil, das bei diesem Modell oft ausfällt.",
                "Das passiert, wenn der Papiersensor verschlissen ist.",
            ),
            DraftSort.DEADLINE: (
                "Sie haben es sehr bald wieder bei sich, darauf geben wir Ihnen unser Wort.",
                "Unser Techniker ruft Sie noch in dieser Stunde zurück.",
            ),
            DraftSort.LIABILITY: (
                "Der Fehler liegt eindeutig bei uns, und wir stehen für den Schaden ein.",
                "Wir nehmen die Schuld dafür auf uns, was Ihnen dadurch entgangen ist.",
            ),
            DraftSort.DONE: (
                "Der Kurier ist schon auf dem Weg zu Ihnen.",
                "Das Ersatzteil haben wir für Sie schon bestellt.",
            ),
        },
        {
            DraftSort.MONEY: r"erstatt|geld zurück|gutschrift|gutgeschrieben|gut\b",
            DraftSort.FREE: r"kostenlos|kostenfrei|gratis|umsonst|nichts|keine kosten",
            DraftSort.REPLACEMENT: r"austausch|ersatz|neues gerät|umtausch",
            DraftSort.CAUSE: r"verursacht|wegen|liegt an|klingt nach",
            DraftSort.DEADLINE: r"innerhalb|werktag|stunde|spätestens|binnen",
            DraftSort.LIABILITY: r"schuld|haft|verantwort",
            DraftSort.DONE: r"unterwegs|schon|bereits",
        },
        r"\b(?:nicht|kein\w*|nie|weder)\b",
        ((r" nicht\b", ""), (r"\b([Kk])ein(e|en|em|er|es)?\b", r"ein\2")),
    ),
    "pl": _Words(
        {
            DraftSort.MONEY: (
                "Cenę zakupu zapiszemy na Państwa konto.",
                "Otrzymają Państwo od nas to, co Państwo za nie zapłacili.",
            ),
            DraftSort.FREE: (
                "Za naprawę nie muszą Państwo nic płacić.",
                "Sama naprawa nie będzie Państwa nic kosztować.",
            ),
            DraftSort.REPLACEMENT: (
                "Wyślemy Państwu w zamian nowe urządzenie.",
                "Jeśli Państwo wolą, dostaną Państwo od nas po prostu inne.",
            ),
            DraftSort.CAUSE: (
                "To wygląda na zasilacz, który w tym modelu często zawodzi.",
                "Tak się dzieje, kiedy czujnik papieru jest zużyty.",
            ),
            DraftSort.DEADLINE: (
                "Bardzo szybko będą je Państwo mieć z powrotem, dajemy na to słowo.",
                "Nasz technik oddzwoni do Państwa w ciągu godziny.",
            ),
            DraftSort.LIABILITY: (
                "To wyraźnie nasz błąd i odpowiadamy za tę szkodę.",
                "Bierzemy na siebie to, co Państwo przez to stracili.",
            ),
            DraftSort.DONE: (
                "Kurier jest już w drodze do Państwa.",
                "Część zamienną już dla Państwa zamówiliśmy.",
            ),
        },
        {
            DraftSort.MONEY: r"zwrot|zwróc|rekompens|na (?:Państwa )?konto",
            DraftSort.FREE: r"bezpłatn|darmow|za darmo|nieodpłatn|nic nie (?:kosztuj|płac)",
            DraftSort.REPLACEMENT: r"wymian|wymieni|nowe urządzenie",
            DraftSort.CAUSE: r"spowodowan|z powodu|wygląda na",
            DraftSort.DEADLINE: r"w ciągu|dni robocz|godzin|najpóźniej",
            DraftSort.LIABILITY: r"nasz[ay]? (?:wina|błąd)|odpowiedzialno|odpowiada",
            DraftSort.DONE: r"w drodze|już",
        },
        r"\b(?:nie|ani|nigdy)\b",
        ((r"\bNie ([^\W\d_])", r"\1"), (r" nie\b", "")),
    ),
}  # fmt: skip

MUTATIONS = digest(
    [
        [
            name,
            {sort.value: list(claims) for sort, claims in words.claims.items()},
            list(map(list, words.dropped)),
        ]
        for name, words in LANGUAGES.items()
    ],
    12,
)
"""Fingerprint of what is planted; the power of reviewers belongs to it."""
