"""Drafts to customers, right and wrong, with the facts of the runs they are written in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from detent.dispatch.prose.contract import findings, missing
from detent.dispatch.prose.facts import Count, Facts, Required
from detent.dispatch.prose.finding import Finding

_FOLDER = Path(__file__).parent


@cache
def _read(name: str) -> Any:
    return yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def facts_in(situation: str, language: str, **changed: Any) -> Facts:
    held = {**_read("situations")[situation], **changed}
    return Facts(
        language,
        identifiers=tuple(held.get("identifiers", ())),
        devices=tuple(held.get("devices", ())),
        days=tuple(held.get("days", ())),
        counts=tuple(Count(**count) for count in held.get("counts", ())),
        names=tuple(held["names"]),
        addresses=tuple(held["addresses"]),
        contacts=tuple(held["contacts"]),
    )


def required_in(situation: str) -> list[Required]:
    held = _read("situations")[situation]
    required = [
        Required("day", day=fact) if isinstance(fact, date) else Required(fact, identifier=fact)
        for fact in held.get("required", ())
    ]
    return required + [Required("contact", contacts=tuple(held["contacts"]))] * bool(
        held.get("required_contact")
    )


def base(situation: str, language: str, add: str = "") -> str:
    """A right draft, with a sentence added."""
    return _read("situations")[situation]["base"][language].replace("{add}\n\n", f"{add}\n\n" if add else "")


@dataclass(frozen=True)
class Draft:
    name: str
    situation: str
    language: str
    text: str
    layers: frozenset[str]
    """The layers that have to refuse it; none for a right draft."""
    names: tuple[str, ...] | None = None

    def findings(self) -> tuple[Finding, ...]:
        changed = {} if self.names is None else {"names": self.names}
        facts = facts_in(self.situation, self.language, **changed)
        return findings(self.text, facts) + missing(self.text, required_in(self.situation), self.language)


def drafts(part: str, sort: str) -> list[Draft]:
    """The drafts of a part (`develop`, `blind`) and a sort (`right`, `wrong`)."""
    listed = []
    for number, line in enumerate(_read(part)[sort]):
        (language,) = {"en", "pl", "de"} & set(line)
        text = line[language]
        if sort == "wrong":
            text = text["text"] if isinstance(text, dict) else base(line["in"], language, text)
        layers = line.get("layer", [])
        listed.append(
            Draft(
                f"{part}-{sort}-{number}-{language}", line["in"], language, text,
                frozenset([layers] if isinstance(layers, str) else layers),
                tuple(line["names"]) if "names" in line else None,
            )
        )  # fmt: skip
    return listed
