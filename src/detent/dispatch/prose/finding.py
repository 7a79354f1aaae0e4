"""A finding: the rule a text breaks, and where."""

from __future__ import annotations

from typing import Literal, NamedTuple

Layer = Literal[
    "letters", "links", "inner_words", "names", "days", "number_words", "money", "digits", "language",
    "required",
]  # fmt: skip

MEANING: dict[Layer, str] = {
    "letters": "holds hidden, look-alike or marked-up letters",
    "links": "names a link, an address or an identifier that is not among the facts",
    "inner_words": "holds a placeholder, a protocol line or an internal name",
    "names": "names a person who is not the customer",
    "days": "names a day or a time that is not among the facts",
    "number_words": "states a number in words that is not among the facts",
    "money": "speaks of an amount of money",
    "digits": "holds a number that is not among the facts",
    "language": "has a sentence in another language than the customer's",
    "required": "does not name a fact that it has to name",
}


class Finding(NamedTuple):
    """One broken rule. It never holds the text, so that it may be logged."""

    layer: Layer
    place: str
    """`body` or `subject`, with the line; for `required` the name of the fact."""

    def __str__(self) -> str:
        return f"{self.layer}: the text {MEANING[self.layer]} ({self.place})."
