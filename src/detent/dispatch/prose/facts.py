"""The facts of a run that may explain what a text says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, NamedTuple

Unit = Literal["minutes", "hours", "working_days", "days", "weeks", "months", "years", "percent"]


class Count(NamedTuple):
    """A number with its unit."""

    value: int
    unit: Unit


class Amount(NamedTuple):
    """An amount of money, by its currency code."""

    value: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run holds. The customer's own text is no fact."""

    language: str
    identifiers: tuple[str, ...] = ()
    """Serial numbers, ticket numbers and the like; compared without case, spaces and hyphens."""
    devices: tuple[str, ...] = ()
    """Names that may hold digits, such as those of devices; a part of one is enough."""
    days: tuple[date, ...] = ()
    counts: tuple[Count, ...] = ()
    amounts: tuple[Amount, ...] = ()
    names: tuple[str, ...] = ()
    """The customer's names."""
    addresses: tuple[str, ...] = ()
    """The customer's own addresses."""
    contacts: tuple[str, ...] = ()
    """Contacts that may be named, each as a whole or by its address, link or telephone number."""
    sentences: tuple[str, ...] = ()
    """Sentences of the step's template, filled: approved as they are."""
    inner: tuple[str, ...] = ()
    """Internal words that customers never see, such as ids of steps and keys of the protocol."""


class Required(NamedTuple):
    """A fact the text has to name."""

    name: str
    """What it is, for the refusal."""
    identifier: str | None = None
    day: date | None = None
    contacts: tuple[str, ...] = ()
    """Any one of them."""
