"""Small tables made for these tests, each the same at every call."""

from __future__ import annotations

import numpy as np
import pandas as pd

ODD_NAMES = [
    'a"b', "it's", "x\ny", "class", "</add-code2run>", "$a$ and $b_", "a|b", "`code`", "<<TARGET>>", "{name}",
    "'] + [1/0", "中文", "w" * 80, "<script>alert(1)</script>", "\\n", "# no comment",
]  # fmt: skip


def houses(rows: int = 120) -> pd.DataFrame:
    """Houses whose price follows their size."""
    rng = np.random.default_rng(5)
    size = rng.normal(100, 20, rows).round(1)
    return pd.DataFrame(
        {
            "size": size,
            "rooms": rng.integers(1, 8, rows),
            "town": rng.choice(["Bonn", "Köln", "Ulm"], rows),
            "age": rng.integers(0, 90, rows),
            "price": (size * 2000 + rng.normal(0, 20_000, rows)).round(0),
        }
    )


def customers(rows: int = 160, share: float = 0.25) -> pd.DataFrame:
    """Customers, some of whom leave: mostly those that call often."""
    rng = np.random.default_rng(6)
    calls = rng.poisson(2, rows)
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D")
    table = pd.DataFrame(
        {
            "calls": calls,
            "plan": rng.choice(["free", "gold", "silver"], rows),
            "since": since.strftime("%Y-%m-%d"),
            "spent": np.exp(rng.normal(3, 1, rows)).round(2),
        }
    )
    likely = np.argsort(-(calls + rng.normal(0, 1, rows)))
    table["churn"] = "no"
    table.loc[likely[: int(share * rows)], "churn"] = "yes"
    return table


def mushrooms(rows: int = 150) -> pd.DataFrame:
    """Categories and nothing else."""
    rng = np.random.default_rng(8)
    table = pd.DataFrame(
        {name: rng.choice(list("abcde")[: 3 + n], rows) for n, name in enumerate(["cap", "odor", "gill"])}
    )
    table["edible"] = np.where(table["odor"] == "a", "yes", rng.choice(["yes", "no"], rows))
    return table


def odd_names(rows: int = 90) -> pd.DataFrame:
    """Columns whose names are anything but identifiers; the target is `'] + [1/0`."""
    rng = np.random.default_rng(9)
    table = pd.DataFrame({name: rng.normal(size=rows).round(3) for name in ODD_NAMES})
    table["class"] = rng.choice(["$a$", "_b", "c|d"], rows)
    table["'] + [1/0"] = (3 * table['a"b'] + rng.normal(size=rows)).round(3)
    return table
