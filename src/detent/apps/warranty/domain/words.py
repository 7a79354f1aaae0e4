"""The lists of words by which a mail is judged, and the search for them.

An entry is the beginning of a word or of a phrase: `defect` finds "defective". An entry that begins with
`=` is a whole word: `=jam` does not find "James". Texts and entries are compared folded: small letters,
no accents, no apostrophes, single spaces.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

from detent.apps.warranty.domain.experience import MORE
from detent.kernel.errors import DefinitionError, nearest

_LETTERS = str.maketrans({"ł": "l", "đ": "d", "ø": "o", "ß": "ss", "’": "'", "‘": "'", "´": "'", "`": "'"})
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))


def fold(text: str) -> str:
    """A text in the form in which it is searched: lower case, without accents."""
    if text.isascii():
        return text.lower().replace("`", "'")
    plain = unicodedata.normalize("NFKC", text).translate(_INVISIBLE).lower()
    apart = unicodedata.normalize("NFD", plain)
    return "".join(char for char in apart if not unicodedata.combining(char)).translate(_LETTERS)


def spaced(text: str) -> str:
    """A folded text with single spaces and no apostrophes, because many write "doesnt"."""
    return " ".join(fold(text).replace("'", "").split())


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Words:
    """Lists of entries; settings may add to each. The defaults are the starting entries."""

    fault: tuple[str, ...] = (
        "broke", "defect", "fault", "fail", "error", "stopp", "not work", "doesn't", "won't", "cannot start",
        "=dead", "deadlock", "no power", "leak", "noise", "crack", "blank", "black screen", "overheat",
        "=jam", "=jams", "jammed", "jamming", "hang", "freez", "restart",
        "nie dziala", "nie pracuje", "nie wlacza", "nie laczy", "nie wciaga", "zepsu", "uszkodz", "awari",
        "usterk", "blad", "zacina", "przeciek", "halas", "pekni", "zawyz", "gasnie", "czarny ekran",
    )  # fmt: skip
    fault_weak: tuple[str, ...] = ()
    """Words of complaint: a fault if the mail also names a device."""
    device: tuple[str, ...] = ()
    """Words for devices."""
    safety: tuple[str, ...] = (
        "smok", "spark", "burn", "electric shock",
        "dym", "iskr", "pali sie", "porazen",
    )  # fmt: skip
    warranty: tuple[str, ...] = (
        "warrant", "guarant", "=rma", "repair",
        "gwaranc", "reklamac", "napraw",
    )  # fmt: skip
    topic: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("opening-hours", ("opening hours", "godziny otwarcia")),
        ("prices", ("price list", "cennik")),
        ("sales", ("want to buy", "chce kupic")),
        ("orders", ("order status", "zamowien")),
        ("delivery", ("delivery", "dostaw")),
        ("invoice", ("invoice", "faktur")),
        ("payment", ("payment terms", "platnosc za")),
        ("jobs", ("job application", "vacanc", "oferta pracy", "rekrutac")),
        ("partnership", ("partnership", "wspolprac")),
        ("newsletter", ("newsletter",)),
        ("password", ("password", "haslo")),
    )
    """By name of the topic, so that a contact can be chosen for it."""
    topic_weak: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Words that hint at a topic, by its name: two of them decide, unless the mail names a serial number."""
    spam_strong: tuple[str, ...] = (
        "casino", "lottery", "you have won", "claim your prize", "free money", "click here to claim",
        "wygrales", "odbierz nagrode", "pozyczka bez",
    )  # fmt: skip
    spam_weak: tuple[str, ...] = (
        "unsubscribe", "limited offer", "click here", "=seo",
        "wypisz sie", "kliknij tutaj",
    )  # fmt: skip

    def extended(self, more: Mapping[str, Any], where: str = "warranty.words") -> Words:
        """These lists with further entries.

        `{fault: [kaput], topic: {training: [course, szkolen]}}`; topics given as a plain list are named by
        their entries.

        Raises:
            DefinitionError: lists every problem.
        """
        names = [item.name for item in fields(self)]
        problems: list[str] = []
        changes: dict[str, Any] = {}
        for name, added in more.items():
            if name not in names:
                hint = nearest(str(name), names) or f" Lists: {', '.join(names)}."
                problems.append(f"{where}.{name}: there is no such list.{hint}")
            elif name in ("topic", "topic_weak"):
                changes[name] = _topics(getattr(self, name), added, f"{where}.{name}", problems)
            else:
                changes[name] = (*getattr(self, name), *_entries(added, f"{where}.{name}", problems))
        if problems:
            raise DefinitionError("The lists of words", problems)
        return Words(**{name: changes.get(name, getattr(self, name)) for name in names})


def _topics(
    known: tuple[tuple[str, tuple[str, ...]], ...], written: Any, where: str, problems: list[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if isinstance(written, Mapping):
        added = {
            str(name): _entries(entries, f"{where}.{name}", problems) for name, entries in written.items()
        }
    else:
        added = {entry.removeprefix("="): (entry,) for entry in _entries(written, where, problems)}
    extended = {name: (*entries, *added.pop(name, ())) for name, entries in known}
    return (*extended.items(), *added.items())


def _entries(entries: Any, where: str, problems: list[str]) -> tuple[str, ...]:
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        problems.append(f"{where}: must be a list of words.")
        return ()
    wrong = [entry for entry in entries if not isinstance(entry, str) or not entry.removeprefix("=").strip()]
    if wrong:
        problems.append(f"{where}: must be a list of words; {len(wrong)} of its entries are none.")
        return ()
    return tuple(entries)


STARTING = Words()
"""The starting lists; legacy mode still uses them."""
WORDS = STARTING.extended(MORE)
"""The shipped lists."""


def found(entries: tuple[str, ...], text: str) -> tuple[str, ...]:
    """The entries that occur in a text prepared by `spaced`, each once, in the order of the list."""
    return tuple([stem.entry for stem in _stems(entries) if stem.text in text and _occurs(stem, text)])


class _Stem(NamedTuple):
    text: str
    whole: bool
    entry: str


@lru_cache(maxsize=256)
def _stems(entries: tuple[str, ...]) -> tuple[_Stem, ...]:
    return tuple(
        _Stem(spaced(entry.removeprefix("=")), entry.startswith("="), entry)
        for entry in dict.fromkeys(entries)
    )


def _occurs(stem: _Stem, text: str) -> bool:
    at = text.find(stem.text)
    while at >= 0:
        end = at + len(stem.text)
        if not (at and text[at - 1].isalnum()) and not (stem.whole and text[end : end + 1].isalnum()):
            return True
        at = text.find(stem.text, at + 1)
    return False
