"""What kind of values a column holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from detent.flows.notebook.domain.column_names import is_id_name, name_words
from detent.flows.notebook.domain.text_values import (
    date_format,
    is_text,
    numbers_in_text,
    present_texts,
)

if TYPE_CHECKING:
    import pandas as pd

ColumnKind = Literal["numeric", "categorical", "datetime", "text", "id", "constant"]

WORDS_OF_TEXT = 5
"""Free text has more words than this, on average."""
SAMPLE = 2000
SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0)
"""Numbers that are written where a value is missing."""
DATE_NAMES = frozenset(("date", "day", "datum", "dt", "time", "timestamp"))


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column's kind, and how its values come to be of that kind."""

    kind: ColumnKind
    distinct: int
    missing: int
    """Values that are missing, texts such as `?` and `n/a` among them."""
    number_in_text: bool = False
    date_format: str | None = None
    """How dates that are written as text, or as whole numbers such as 20240131, are read."""
    sentinels: tuple[float, ...] = ()


def column_kinds(table: pd.DataFrame) -> Mapping[str, ColumnKind]:
    """The kind of each column."""
    return {name: column_facts(table[name]).kind for name in table.columns}


def column_facts(series: pd.Series) -> ColumnFacts:
    """What kind a column is; its name counts where values alone do not tell."""
    import pandas as pd

    name = str(series.name)
    if is_text(series):
        return _text_facts(series, name)
    present = series.dropna()
    distinct = int(present.nunique())
    missing = len(series) - len(present)
    if distinct <= 1:
        return ColumnFacts("constant", distinct, missing)
    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        return ColumnFacts("datetime", distinct, missing)
    if series.dtype == object or pd.api.types.is_bool_dtype(series.dtype):
        return ColumnFacts("categorical", distinct, missing)
    if isinstance(series.dtype, pd.CategoricalDtype):
        return ColumnFacts("categorical", distinct, missing)
    if pd.api.types.is_timedelta64_dtype(series.dtype):
        return ColumnFacts("numeric", distinct, missing)
    if not pd.api.types.is_numeric_dtype(series.dtype):
        return ColumnFacts("categorical", distinct, missing)
    if not missing and distinct == len(series) and _counts_rows(series, name):
        return ColumnFacts("id", distinct, missing)
    if _dates_as_numbers(present, name):
        return ColumnFacts("datetime", distinct, missing, date_format="%Y%m%d")
    return ColumnFacts("numeric", distinct, missing, sentinels=sentinels(present))


def is_whole(series: pd.Series) -> bool:
    """Whether every number is whole, whatever the dtype: a missing value makes 0 and 1 floats."""
    import pandas as pd

    if pd.api.types.is_integer_dtype(series.dtype):
        return True
    if not pd.api.types.is_float_dtype(series.dtype):
        return False
    present = series.dropna()
    return bool((present == present.round()).all())


def sentinels(present: pd.Series) -> tuple[float, ...]:
    """Numbers that stand for a missing value: written often, and far from all others."""
    lowest, highest = float(present.min()), float(present.max())
    found = []
    for value in SENTINELS:
        if value not in (lowest, highest):
            continue
        others = present[present != value]
        if not len(others) or (present == value).sum() < 2:
            continue
        spread = float(others.max() - others.min())
        distance = min(abs(value - float(others.min())), abs(value - float(others.max())))
        outside = value < float(others.min()) or value > float(others.max())
        if outside and distance > max(spread, 1.0):
            found.append(value)
    return tuple(found)


def _counts_rows(series: pd.Series, name: str) -> bool:
    """Whether numbers that are all different say nothing but which row it is."""
    if not is_whole(series):
        return False
    return is_id_name(name) or float(series.max()) - float(series.min()) == len(series) - 1


def _dates_as_numbers(present: pd.Series, name: str) -> bool:
    import pandas as pd

    if not DATE_NAMES & set(name_words(name)) or not is_whole(present):
        return False
    if not present.between(19000101, 21001231).all():
        return False
    texts = present.astype("int64").astype(str)
    return bool(pd.to_datetime(texts, format="%Y%m%d", errors="coerce").notna().all())


def _text_facts(series: pd.Series, name: str) -> ColumnFacts:
    texts = present_texts(series)
    distinct = int(texts.nunique())
    missing = len(series) - len(texts)

    def facts(kind: ColumnKind, **more: Any) -> ColumnFacts:
        return ColumnFacts(kind, distinct, missing, **more)

    if distinct <= 1:
        return facts("constant")
    numbers = numbers_in_text(series)
    if numbers is not None:
        if distinct == len(series) and _counts_rows(numbers, name):
            return facts("id", number_in_text=True)
        return facts("numeric", number_in_text=True, sentinels=sentinels(numbers.dropna()))
    format = date_format(series)
    if format is not None:
        return facts("datetime", date_format=format)
    sample = texts.iloc[:: 1 + len(texts) // SAMPLE]
    if sample.map(lambda text: len(re.findall(r"\S+", text))).mean() > WORDS_OF_TEXT:
        return facts("text")
    if distinct == len(texts) or (is_id_name(name) and distinct > 0.5 * len(texts)):
        return facts("id")
    return facts("categorical")
