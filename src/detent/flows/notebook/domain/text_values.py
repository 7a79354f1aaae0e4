"""Numbers and dates that a column holds as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from detent.flows.notebook.domain.table_text import NO_VALUE, find_number_marks

if TYPE_CHECKING:
    import pandas as pd

ENOUGH = 0.95
"""Share of the values that must be numbers, or dates."""
SAMPLE = 2000
TEXT_NUMBER = re.compile(
    r"\s*(?P<sign>[-+−]?)\s*(?P<currency>[$€£¥₹]|USD|EUR|GBP|CHF)?\s*(?P<inner_sign>[-+−]?)"
    r"(?P<digits>\d(?:[\d.,'’\s]*\d)?\.?|\.\d+)\s*(?P<unit>%|[^\W\d_/°µ²³€$£¥₹.]{0,12}[/°µ²³€$£¥₹.\w]{0,8})\s*"
)
CODE = re.compile(r"0\d|.*\d\s(?!\d{3}(?:\D|$))")
"""Digits that are no amount: a leading zero, blanks elsewhere than between thousands."""
SCALES = {"k": 1e3, "m": 1e6, "b": 1e9}
DATE_FORMATS = (
    "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m", "ISO8601", "%d.%m.%Y", "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S", "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%d-%m-%Y", "%m-%d-%Y",
    "%d-%m-%Y %H:%M", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%b %Y", "%B %Y", "%b-%Y",
)  # fmt: skip
"""Tried in this order; the first that reads the most values is taken."""
DATE_LIKE = re.compile(
    r"\s*(?:\d{1,4}[-./]\d{1,2}(?:[-./]\d{1,4})?(?:[T\s].*)?"
    r"|\d{1,2}[-\s.][A-Za-z]{3,9}\.?[-\s,]+\d{2,4}.*|[A-Za-z]{3,9}\.?[-\s]\d{1,2},?\s+\d{4}.*"
    r"|[A-Za-z]{3,9}[-\s]\d{4})\s*"
)


def is_text(series: pd.Series) -> bool:
    """Whether a column's values are text."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        return is_text(series.cat.categories.to_series())
    if isinstance(series.dtype, pd.StringDtype):
        return True
    return bool(series.dtype == object) and any(isinstance(value, str) for value in series.dropna().head(100))


def present_texts(series: pd.Series) -> pd.Series:
    """The values of a text column that stand for something, as text: neither missing nor `?` or `n/a`."""
    texts = series.dropna().astype(str)
    return texts[~texts.str.strip().str.lower().isin(NO_VALUE)]


def numbers_in_text(series: pd.Series) -> pd.Series | None:
    """The numbers of a column such as `$12,500`, `48,000 km` or `12%`, or None if it is no such column."""
    import pandas as pd

    texts = present_texts(series)
    uniques = pd.Series(texts.unique(), dtype=object)
    if not len(uniques) or not _mostly_numbers(uniques[:: 1 + len(uniques) // SAMPLE]):
        return None
    matches = {text: TEXT_NUMBER.fullmatch(text) for text in uniques}
    found = {text: match for text, match in matches.items() if match is not None}
    if texts.isin(set(found)).mean() < ENOUGH:
        return None
    if sum(CODE.match(match["digits"]) is not None for match in found.values()) > (1 - ENOUGH) * len(found):
        return None
    units = {match["unit"].lower().rstrip("s") for match in found.values()}
    scaled = units <= {"", *SCALES} and (
        len(units - {""}) > 1 or any(match["currency"] for match in found.values())
    )
    if not scaled and len(units - {""}) > 1:
        return None
    digits = {text: "".join(match["digits"].split()) for text, match in found.items()}
    decimal, thousands = find_number_marks([[value] for value in digits.values()], ";")
    if decimal == "," and all(re.fullmatch(r"[1-9]\d{0,2}(,\d{3})*", value) for value in digits.values()):
        # Beside a currency or a unit, three digits after a comma are thousands.
        decimal, thousands = ".", ","
    values = {}
    for text, match in found.items():
        number = _number(digits[text], decimal, thousands)
        if number is None:
            continue
        if scaled:
            number *= SCALES.get(match["unit"].lower(), 1.0)
        negative = "-" in match["sign"] + match["inner_sign"] or "−" in match["sign"] + match["inner_sign"]
        values[text] = -number if negative else number
    if texts.isin(set(values)).mean() < ENOUGH:
        return None
    return series.map(lambda value: values.get(str(value)), na_action="ignore").astype(float)


def _mostly_numbers(uniques: pd.Series) -> bool:
    return bool(uniques.map(lambda text: TEXT_NUMBER.fullmatch(text) is not None).mean() >= ENOUGH)


def _number(digits: str, decimal: str, thousands: str | None) -> float | None:
    if thousands is not None:
        digits = digits.replace(thousands, "")
    digits = digits.replace("'", "").replace("’", "")
    if decimal == "," and "." not in digits:
        digits = digits.replace(",", ".")
    try:
        return float(digits)
    except ValueError:
        return None


def date_format(series: pd.Series) -> str | None:
    """The format of a text column's dates, as `pd.to_datetime` takes it, or None if they are no dates."""
    import pandas as pd

    texts = present_texts(series)
    uniques = pd.Series(texts.unique(), dtype=object)
    sample = uniques[:: 1 + len(uniques) // SAMPLE]
    if not len(sample) or sample.map(lambda text: DATE_LIKE.fullmatch(text) is not None).mean() < ENOUGH:
        return None
    best, best_share = None, ENOUGH
    for format in DATE_FORMATS:
        share = pd.to_datetime(sample, format=format, errors="coerce").notna().mean()
        if share > best_share or (best is None and share == best_share):
            best, best_share = format, share
        if best_share == 1.0:
            break
    return best
