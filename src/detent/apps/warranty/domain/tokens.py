"""Tokens in a text: those that could be a serial number, and those that never are.

Everything here judges one token at a time. The labels before tokens are judged in `serials`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from detent.apps.warranty.domain.words import fold

SHORTEST, LONGEST = 5, 20
"""Characters of a serial number, the joining ones included."""

LONGEST_TEXT = 250_000
"""Characters read of a text; one character may unfold into eighteen."""

HIDDEN = "\x01"
"""Replaces an address or a link, which is never a serial number or a word."""

_DASHES = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe58\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),  # these separate sentences, the others join words
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\x01", None),
        **dict.fromkeys("\u2018\u2019\u02bc", "'"),
        **dict.fromkeys("\u2044\u2215", "/"),
    }
)
_LINK = re.compile(r"(?:(?:https?|ftp)://|www\.)\S+", re.IGNORECASE)
_MAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]+@[\w.-]+")
_APART = re.compile(r"(?<![^\W_])([sS]) ?([/.]) ?([nN])(?![^\W_])")
_WORD = re.compile(r"\x01|[^\W_]+(?:[-/._][^\W_]+)*")


class Word(NamedTuple):
    """A run of letters and digits, blocks joined by single `-`, `/`, `.` or `_`."""

    text: str
    folded: str
    before: str
    """The text between it and the word before it, or the beginning of the line."""
    after: str
    """The first few characters after it."""
    tight: str
    """Folded, without the characters that join its blocks."""


def readable(text: str) -> str:
    """A text with one kind of dash, no invisible characters, plain digits, and addresses hidden."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text.translate(_DASHES))
    plain = plain[:LONGEST_TEXT].translate(_DASHES).replace("\r\n", "\n").replace("\r", "\n")
    plain = _LINK.sub(HIDDEN, plain)
    if "@" in plain:
        plain = _MAIL.sub(HIDDEN, plain)
    return _APART.sub(r"\1\2\3", plain.replace("n't", "nt"))


def words_of(line: str) -> list[Word]:
    """The words of one line."""
    words = []
    end = 0
    for match in _WORD.finditer(line):
        text = match.group()
        words.append(make_word(text, line[end : match.start()], line[match.end() : match.end() + 8]))
        end = match.end()
    return words


def make_word(text: str, before: str, after: str) -> Word:
    """A word with its surroundings."""
    folded = fold(text)
    return Word(text, folded, before, after, re.sub(r"[-/._]", "", folded) if len(text) < 100 else folded)


def fits(token: str) -> bool:
    """Whether it has the form of a serial number: length, plain letters and digits, a digit among them."""
    return SHORTEST <= len(token) <= LONGEST and token.isascii() and any(map(str.isdigit, token))


def mixed(token: str) -> bool:
    """Whether it has both letters and digits."""
    return any(map(str.isdigit, token)) and any(map(str.isalpha, token))


def attached(token: str) -> bool:
    """Whether it begins with an `SN` that belongs to it: `SN12345`, `SN-12345`, not `SNMPv3`."""
    if token[:2].upper() != "SN" or not fits(token):
        return False
    rest = token[2:].lstrip("-/._")
    return rest[:1].isdigit() or (
        len(rest) < len(token) - 2 or (token.isupper() and sum(map(str.isdigit, rest)) >= 3)
    )


_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sty|lut|kwi|maj|cze|lip|sie|wrz|paz|lis|gru"
_DAY, _MONTH, _YEAR = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])", r"(?:19|20)\d\d"
_NEVER = re.compile(
    rf"""(?ix)
    # dates
      {_YEAR}([-./]){_MONTH}\1{_DAY}(?:t\d\d)?r?
    | {_DAY}([-./]){_MONTH}\2(?:{_YEAR}|\d\d)r?
    | {_MONTH}([-./]){_DAY}\3(?:{_YEAR}|\d\d)
    | {_MONTH}[-./]{_YEAR}r? | {_YEAR}[-./]{_MONTH} | {_YEAR}[-/]{_YEAR}
    | {_DAY}[-./]?(?:{_MONTHS})[a-z]*[-./]?{_YEAR} | {_DAY}[-./](?:{_MONTHS})[a-z]*[-./]\d\d
    | (?:{_MONTHS})[a-z]*[-./]{_DAY}[-./]{_YEAR} | (?:{_MONTHS})[a-z]{{0,8}}[-./]{_YEAR}
    | {_YEAR}(?:r|rok|roku) | q[1-4][-./]?{_YEAR}
    # times
    | \d{{1,2}}\.\d\d-\d{{1,2}}\.\d\d | \d{{1,2}}h\d\d(?:m|min)? | \d\dz
    # addresses of machines
    | \d{{1,3}}(?:\.\d{{1,3}}){{3}}
    # amounts
    | \d+(?:[.,]\d+)?-?(?:pln|eur|usd|gbp|chf|zl|czk)
    # our own tickets
    | tkt[-_./]?\d+
    # files, names of machines
    | .+\.(?:jpe?g|png|gif|heic|pdf|docx?|xlsx?|txt|zip|mp4|mov|csv|log|eml|html?)
    | [^a-z]*+[a-z].*\.(?:com|net|org|info|biz|eu|pl|de|uk|example)
    """
)
_PHONE = re.compile(r"\d{3}-\d{3}-\d{3,4}|\d{2,3}-\d{3}-\d\d-\d\d|\d{3}-\d{4}|\d{3}\.\d{3}\.\d{3,4}")
_POST_CODE = re.compile(r"\d\d-\d{3}")
_MONEY = re.compile(r"\s?(?:zł|zl\b|pln\b|eur\b|euro?\b|usd\b|gbp\b|chf\b|czk\b|[€$£¥%])", re.IGNORECASE)
_MONEY_BEFORE = re.compile(r"[€$£¥]\s?$")

_UNITS = (
    "kg|g|mg|lb|lbs|v|kv|mv|a|ma|mah|ah|w|kw|kwh|wh|hz|khz|mhz|ghz|b|kb|mb|gb|tb|kbps|mbps|gbps|dpi|ppm|mm|cm|m|km|"
    "l|ml|s|ms|min|h|hrs|pcs|szt|x|px|bar|psi|rpm|nm|c|f|k|st|nd|rd|th|am|pm|r|ce|vac|vdc|va|kva|bit|fps|"
    "year|years|yr|month|months|day|days|lat|dni|mies|letni|letnia|stron|pages"
)
_WEAK = re.compile(
    rf"""(?ix)
      (?:\d+[-./])*\d+-?(?:{_UNITS})
    | \d+x\d+(?:x\d+)?(?:px|mm|cm)?
    | v\d+(?:\.\d+)*
    | (?:inv|fvs?|fa|fvat|ord|zam|rma|po|ref|order|invoice|zgl|wz|fs|kor)[-/._]\d.*
    | rs-?(?:232|422|485)c? | usb-?\d.* | ipv[46] | wpa\d.* | wi-?fi-?\d.* | win(?:dows)?-?\d+ | office-?\d+
    | covid-?\d+ | iso-?\d+.* | ip\d\d | 802\.11\w* | html5 | h\.?26[45] | utf-?(?:8|16) | cat-?\d\w?
    | iso-8859-\d+ | windows-125\d | ps/2 | mp[34] | 24/7h? | rj-?\d\d
    """
)


def never(word: Word) -> bool:
    """Whether a word is a date, a time, an amount, a link or our ticket, regardless of its label."""
    text = word.text
    if _NEVER.fullmatch(text):
        return True
    if word.before.endswith("+") and not any(map(str.isalpha, text)):
        return True  # a telephone number with its country
    if _POST_CODE.fullmatch(text) and re.match(r" [^\W\d_]", word.after) and word.after[1].isupper():
        return True
    if any(map(str.isalpha, text)):
        return False
    return bool(_MONEY.match(word.after) or _MONEY_BEFORE.search(word.before[-2:]))


def phone_shaped(text: str) -> bool:
    """Whether a token is written like a telephone number; a serial label right before it overrides this."""
    return _PHONE.fullmatch(text) is not None


def everyday(text: str) -> bool:
    """Whether a token mixes letters and digits for another reason: a unit, a standard, a document number."""
    return _WEAK.fullmatch(text) is not None
