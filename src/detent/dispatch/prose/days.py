"""Days: the facts' days in every usual form of a language, and nothing else that names a day or a time."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import date

from detent.dispatch.prose.language_data import LanguageData
from detent.dispatch.prose.masked_text import masked

_ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
_NAMES = re.compile(r"(?<!\w)(?:Mon|Tue|Tues|Wed|Thu|Thur|Thurs|Fri)(?!\w)")


def day_pattern(day: date, data: LanguageData, *, with_year: bool) -> re.Pattern[str]:
    """The accepted forms of a day; `with_year` leaves out those that do not name the year."""
    dd, mm, yyyy = f"0?{day.day}", f"0?{day.month}", str(day.year)
    forms = [
        rf"{yyyy}[-./]{day.month:02}[-./]{day.day:02}",
        rf"{dd}\.[ ]?{mm}\.[ ]?{yyyy}", rf"{dd}/{mm}/{yyyy}", rf"{dd}-{mm}-{yyyy}",
        rf"{dd}[. ]{{1,2}}{_ROMAN[day.month]}[. ]{{1,2}}{yyyy}",
    ]  # fmt: skip
    if day.day > 12:
        forms.append(rf"{mm}/{dd}/{yyyy}")
    year = data.year_words.format(year=yyyy, rest=_in_words(day.year, data))
    optional = year if with_year else rf"(?:{year})?"
    values = {
        "day": str(day.day) if day.day > 9 else dd, "ordinal": data.ordinals[day.day],
        "month": data.months[day.month], "year": optional,
    }  # fmt: skip
    forms += [form.format(**values) for form in data.day_forms]
    if day.day == calendar.monthrange(day.year, day.month)[1]:
        forms.append(data.month_ends.format(month=data.months[day.month], year=year))
    weekday = rf"(?:{data.weekdays[day.weekday()]},?[ ](?:the[ ]|den[ ]|dem[ ])?)?"
    return re.compile(rf"(?<![\w./-]){weekday}(?:{'|'.join(forms)})(?!\w|[-/]\d|\.\d)", re.IGNORECASE)


def _in_words(year: int, data: LanguageData) -> str:
    """Alternatives of the last two figures of a year in words."""
    rest = year % 100
    tens, ones = rest // 10 * 10, rest % 10

    def words(value: int) -> str:
        return "|".join(re.escape(word) for word, number in data.numbers.items() if number == value)

    single, pair = words(rest), rf"(?:{words(tens)})[- ](?:{words(ones)})" if ones and tens else ""
    return "|".join(form for form in (pair, single) if form) or "(?!)"


def unexplained(text: str, data: LanguageData) -> Iterator[int]:
    """Names of days and months, times of day and spans in a text whose facts are masked."""
    for pattern in _patterns(data):
        yield from (match.start() for match in pattern.finditer(text))


def without_days(text: str, data: LanguageData) -> str:
    """The text without names of days and months."""
    return masked(text, _patterns(data))


def _patterns(data: LanguageData) -> Iterator[re.Pattern[str]]:
    yield re.compile(rf"(?<!\w)(?:{'|'.join(data.weekdays)})(?!\w)", re.IGNORECASE)
    yield from (data.relative_days, data.times, data.any_month, _NAMES)
