"""Money: currency signs, codes and words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from detent.dispatch.prose.facts import Amount
from detent.dispatch.prose.language_data import LanguageData

_CODES = re.compile(
    r"(?<![^\W_])(?:(?i:EUR|USD|PLN|GBP|CHF|CZK)|SEK|NOK|DKK|HUF|RON|BGN|UAH|RUB|JPY|CNY|CAD|AUD|NZD|INR|BTC|ETH)(?![^\W_])"
)
_PICTURES = frozenset("💰💴💵💶💷💸🪙")
_SIGNS = {"EUR": "€", "USD": r"\$", "GBP": "£", "PLN": "zł", "JPY": "¥"}


def amount_patterns(amounts: Iterable[Amount]) -> Iterator[re.Pattern[str]]:
    """The accepted forms of amounts."""
    for amount in amounts:
        whole, _, cents = f"{amount.value:.2f}".partition(".")
        number = rf"{whole}(?:[.,]{cents})" + ("?" if cents == "00" else "")
        sign = rf"(?:{amount.currency}|{_SIGNS.get(amount.currency, amount.currency)})"
        yield re.compile(rf"(?<![\w.,])(?:{number}[ ]?{sign}|{sign}[ ]?{number})(?![\w.,]*\d)", re.IGNORECASE)


def unexplained(text: str, data: LanguageData) -> Iterator[int]:
    """Signs, codes and words of currencies."""
    if not text.isascii() or "$" in text:
        yield from (i for i, char in enumerate(text) if unicodedata.category(char) == "Sc")
    yield from (i for i, char in enumerate(text) if char in _PICTURES)
    for pattern in (_CODES, re.compile(rf"(?<!\w)(?:{data.money})(?!\w)", re.IGNORECASE)):
        yield from (match.start() for match in pattern.finditer(text))
