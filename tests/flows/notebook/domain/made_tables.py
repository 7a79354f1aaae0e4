"""Small tables whose columns are described in a line of text."""

from __future__ import annotations

import numpy as np
import pandas as pd

ROWS = 200


def made_table(description: str, rows: int = ROWS) -> pd.DataFrame:
    """A table of columns such as `price:num zone:cat(4) id:key sold:date note:text churn:bin`.

    Columns are separated by blanks, or by ` | ` if names hold blanks.
    """
    choice = np.random.default_rng(7)
    separator = " | " if " | " in description else " "
    columns = {}
    for part in description.split(separator):
        name, _, kind = part.rpartition(":")
        columns[name] = _values(kind, choice, rows)
    return pd.DataFrame(columns)


def _values(kind: str, choice: np.random.Generator, rows: int):
    size = int(kind.partition("(")[2].rstrip(")") or 3)
    match kind.partition("(")[0]:
        case "num":
            return choice.normal(100, 20, rows).round(3)
        case "int":
            return choice.integers(1000, 500_000, rows)
        case "few":
            return choice.integers(0, size, rows)
        case "bin":
            return choice.integers(0, 2, rows)
        case "cat":
            return [f"level{n}" for n in choice.integers(0, size, rows)]
        case "yes":
            return choice.choice(["yes", "no"], rows)
        case "key":
            return 500_000 + choice.permutation(rows) * 3
        case "date":
            return pd.date_range("2020-01-01", periods=rows, freq="D").astype(str)
        case "text":
            return [f"a long text about thing {n} and its use" for n in choice.integers(0, 900, rows)]
        case "money":
            return [f"${n:,}" for n in choice.integers(1000, 90_000, rows)]
        case "one":
            return ["same"] * rows
    raise ValueError(kind)
