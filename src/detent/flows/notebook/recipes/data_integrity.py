"""The recipes of stage 2: the table in proper types, valid values, and a filled copy to look at."""

# dimension_report["rules"] and validity_report["rules"] hold the rules of column_typing.py that were found,
# processing_pipeline_doc["rules"] both.
from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.column_typing import CONSTANT_COLUMNS, TYPED_TABLE, VALID_VALUES
from detent.flows.notebook.recipes.definitions import COLUMN_GROUPS
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- dimensional_integrity_check ----------------------------------------------------------------------------


def dimensional_integrity_check(kitchen: Kitchen) -> Recipe:
    """Give every column its type, and drop doubled observations and constant columns."""
    reading = kitchen.problem
    comma = reading.table.format.decimal == ","
    slots = {
        "KEEP": literal(list(reading.keep)),
        "IDS": literal(list(reading.not_features)),
        "DATES": literal(list(reading.dates)),
        "DECIMAL": literal("," if comma else "."),
        "DAY_FIRST": literal(comma),
        # A retry reads as numbers what is mostly numbers: the first time, too few texts could be read.
        "SHARE": literal(0.95 if kitchen.iteration == 1 else 0.8),
        "RULE": attempted(
            kitchen, "column_rule(name, raw_dataset[name])", '("categorical", None, None)'
        ),
        "EQUAL": attempted(kitchen, "row_table.duplicated()", "row_table.astype(str).duplicated()"),
        "CAUTION": _CAUTION if kitchen.iteration > 2 else "",
    }  # fmt: skip
    return Recipe(
        lead=(
            "Now each column gets its type, in a copy named `df_typed`; the table as it was read stays "
            "untouched. Numbers and dates that stand in text are parsed by one rule per column, and what "
            "does not fit the rule becomes missing and is counted. Rows are dropped only when they "
            "repeat an observation, key included; columns only when they say the same in every row. The "
            "row index is kept, so every row can be traced back."
        ),
        code=cell(
            CONSTANT_COLUMNS,
            TYPED_TABLE,
            ATTEMPT if kitchen.iteration > 1 else "",
            fill(_COLUMN_RULE, slots),
            fill(_DIMENSION, slots),
        ),
        result=_DIMENSION_RESULT,
    )


_COLUMN_RULE = r'''
DECIMAL, DAY_FIRST = <<DECIMAL>>, <<DAY_FIRST>>
keep, known_ids, known_dates = <<KEEP>>, <<IDS>>, <<DATES>>


def target_rule(values):
    """Kind of the target, and how its numbers are written."""
    if task_type == "classification":
        return (
            ("boolean" if is_truth(values) else "numeric" if is_number(values) else "categorical"),
            None,
            None,
        )
    plain = is_number(values) or is_truth(values) or pd.api.types.is_timedelta64_dtype(values)
    rule = None if plain else number_rule(values.dropna(), DECIMAL, share=0.8)
    if rule is None and not plain:
        raise ValueError(f"The target {target_column!r} holds texts that are no numbers.")
    return "numeric", rule, None


def column_rule(name, values):
    """Kind of a column, and how its numbers or dates are written if they stand in text."""
    if name == target_column:
        return target_rule(values)
    kind, _ = column_kind(name, values, DECIMAL, DAY_FIRST)
    present = values.dropna()
    if is_truth(values) or pd.api.types.is_timedelta64_dtype(values):  # durations become seconds
        return "numeric", None, None
    if is_number(values):
        if name in known_dates and len(present) and present.between(1800_01_01, 2200_12_31).all():
            return "datetime", None, {"format": "%Y%m%d", "day_first": False}
        return "numeric", None, None
    if pd.api.types.is_datetime64_any_dtype(values):
        return "datetime", None, None
    texts = comparable(present).astype(str)
    date = date_rule(texts, DAY_FIRST, share=0.5 if name in known_dates else <<SHARE>>)
    if date:
        return "datetime", None, date
    number = number_rule(texts, DECIMAL, share=<<SHARE>>)
    if number:
        return "numeric", number, None
    return ("text" if kind == "text" else "categorical"), None, None
'''

_CAUTION = r"""
if len(df_typed) < 0.95 * len(raw_dataset.astype(str).drop_duplicates()):  # then no row is dropped
    df_typed = typed_table(raw_dataset[list(df_typed.columns)], rules)
"""

_DIMENSION = r"""
rules = {"kinds": {}, "numbers": {}, "dates": {}}
for name in raw_dataset.columns:
    kind, number, date = <<RULE>>
    rules["kinds"][name] = kind
    if number:
        rules["numbers"][name] = number
    if date:
        rules["dates"][name] = date
all_typed = typed_table(raw_dataset, rules)

row_table = pd.DataFrame({name: comparable(raw_dataset[name]) for name in raw_dataset.columns})
equal_rows = <<EQUAL>>
keys = keys_of(row_table, known_ids)
doubled = (
    equal_rows if keys else equal_rows & False
)  # without a key they may be different observations
constants = constant_columns(all_typed[~doubled], keep=[target_column, *keep])
df_typed = all_typed[~doubled].drop(columns=list(constants))
<<CAUTION>>
unreadable = {}
for name in [*rules["numbers"], *rules["dates"]]:
    lost = raw_dataset[name][raw_dataset[name].notna() & all_typed[name].isna()].astype(str)
    if len(lost):
        unreadable[name] = {"cells": len(lost), "examples": sorted(set(lost))[:3]}

# Columns with the same values in every row: one of them is enough.
originals, copies = {}, {}
for name in df_typed.columns:
    values = pd.util.hash_pandas_object(df_typed[name], index=False).to_numpy().tobytes()
    if originals.setdefault((rules["kinds"][name], values), name) != name and name != target_column:
        copies[name] = originals[rules["kinds"][name], values]

dimension_report = {
    "rows": {"before": len(raw_dataset), "after": len(df_typed)},
    "columns": {"before": raw_dataset.shape[1], "after": df_typed.shape[1]},
    "keys": keys,
    "equal_rows": int(equal_rows.sum()),
    "dropped_rows": int(doubled.sum()),
    "dropped_columns": constants,
    "numbers_in_text": list(rules["numbers"]),
    "dates_in_text": list(rules["dates"]),
    "unreadable": unreadable,
    "copies": copies,
    "rules": rules,
}
print(
    f"rows {len(raw_dataset):,} -> {len(df_typed):,}, columns {raw_dataset.shape[1]:,} -> "
    f"{df_typed.shape[1]:,}"
)
for entry in ("equal_rows", "dropped_rows", "dropped_columns", "unreadable", "copies"):
    print(f"{entry:>15}  {dimension_report[entry]}")
pd.DataFrame(
    {
        "read as": raw_dataset.dtypes.astype(str),
        "type": df_typed.dtypes.astype(str),
        "kind": rules["kinds"],
    }
)
"""

_DIMENSION_RESULT = r"""
(
    f"`df_typed` has **{dimension_report['rows']['after']:,} rows and "
    f"{dimension_report['columns']['after']:,} columns**. "
    + (
        f"{counted(dimension_report['dropped_rows'], 'row')} repeated an observation and went out. "
        if dimension_report["dropped_rows"]
        else f"Rows that equal an earlier one: {dimension_report['equal_rows']:,}. No key tells "
        "whether they are the "
        "same observation, so they stay. "
        if dimension_report["equal_rows"]
        else "No observation is there twice. "
    )
    + (
        f"Constant columns dropped: {listing(dimension_report['dropped_columns'])}. "
        if dimension_report["dropped_columns"]
        else ""
    )
    + (
        f"Numbers were parsed from the texts of {listing(dimension_report['numbers_in_text'])}. "
        if dimension_report["numbers_in_text"]
        else ""
    )
    + (
        f"Dates were parsed from the texts of {listing(dimension_report['dates_in_text'])}. "
        if dimension_report["dates_in_text"]
        else ""
    )
    + "".join(
        f"{counted(lost['cells'], 'cell')} of {code_name(name)} could not be read and now count as "
        "missing, such as "
        f"{listing(lost['examples'])}. "
        for name, lost in dimension_report["unreadable"].items()
    )
    + (
        f"These columns copy another: {listing(dimension_report['copies'])}. "
        if dimension_report["copies"]
        else ""
    )
)
"""


# -- value_validity_check -----------------------------------------------------------------------------------


def value_validity_check(kitchen: Kitchen) -> Recipe:
    """Turn infinities and sentinels into missing values, and give each category one spelling."""
    slots = {
        "KEEP": literal(list(kitchen.problem.keep)),
        "SENTINELS": attempted(kitchen, "sentinels_of(df_typed[name])", "[]"),
        "SPELLING": attempted(kitchen, "spelling_of(df_typed[name])", "{}"),
        # A retry leaves rare numbers alone: too much was taken for a sentinel.
        "OFTEN": literal(2 if kitchen.iteration == 1 else 5 * kitchen.iteration),
    }
    return Recipe(
        lead=(
            "Are the values possible? An infinity is no measurement. A number such as -999 that is "
            "repeated and lies far from all others stands for a missing value; taken as a quantity it "
            "would pull every mean. And `Yes`, `yes` and ` YES` are one category: each gets its most "
            "frequent spelling. The target's numbers are left as they are, apart from infinities."
        ),
        code=cell(
            COLUMN_GROUPS, VALID_VALUES, ATTEMPT if kitchen.iteration > 1 else "", fill(_VALIDITY, slots)
        ),
        result=_VALIDITY_RESULT,
    )


_VALIDITY = r'''
NINES = [10**digits - 1 for digits in range(2, 8)]


def sentinels_of(values):
    """Numbers that stand for a missing value: all nines, repeated, and far from everything else."""
    repeated = values.value_counts()
    repeated = [
        nines
        for nines in (sign * n for n in NINES for sign in (1, -1))
        if repeated.get(nines, 0) >= <<OFTEN>>
    ]
    rest = values[values.notna() & ~values.isin(repeated) & ~values.isin([np.inf, -np.inf])]
    if rest.nunique() < 3:
        return []
    low, high = float(rest.min()), float(rest.max())
    return [
        number
        for number in repeated
        if max(low - number, number - high) > high - low or (number < 0 <= low and number <= -99)
    ]


def spelling_of(values):
    """The most frequent spelling of each category, by what its spellings have in common."""
    counts = values.dropna().value_counts()
    if len(counts) > 1000:
        return {}
    used = {}
    for text in sorted(counts.index, key=lambda text: (-counts[text], text)):
        used.setdefault(spelling_key(text), text)
    return used


before = df_typed
kinds = column_groups(df_typed, left_out=[target_column])
labels = (
    [target_column]
    if task_type == "classification" and not is_number(df_typed[target_column])
    else []
)
labels = [name for name in labels if not is_truth(df_typed[name])]
sentinels = {name: <<SENTINELS>> for name in kinds["numeric"]}
spelling = {name: <<SPELLING>> for name in kinds["categorical"] + labels}
validity_rules = {
    "sentinels": {name: numbers for name, numbers in sentinels.items() if numbers},
    "spelling": {name: used for name, used in spelling.items() if used},
}
df_typed = valid_values(df_typed, validity_rules)
emptied = constant_columns(df_typed, keep=[target_column, *<<KEEP>>])
df_typed = df_typed.drop(columns=list(emptied))

infinite = before.select_dtypes("number").isin([np.inf, -np.inf]).sum()
respelled = {
    name: sorted(
        str(text)
        for text in before[name].dropna().unique()
        if used.get(spelling_key(text), text) != text
    )
    for name, used in validity_rules["spelling"].items()
}
validity_report = {
    "infinities": {name: int(n) for name, n in infinite.items() if n},
    "sentinels": {
        name: {str(number): int((before[name] == number).sum()) for number in numbers}
        for name, numbers in validity_rules["sentinels"].items()
    },
    "respelled": {name: texts for name, texts in respelled.items() if texts},
    "dropped_columns": emptied,
    "missing_cells": {
        "before": int(before.isna().sum().sum()),
        "after": int(df_typed.isna().sum().sum()),
    },
    "rules": validity_rules,
}
for entry in ("infinities", "sentinels", "respelled", "dropped_columns", "missing_cells"):
    print(f"{entry:>15}  {validity_report[entry]}")
'''

_VALIDITY_RESULT = r"""
(
    (
        "Infinite values, now missing: "
        + ", ".join(
            f"{n:,} in {code_name(name)}" for name, n in validity_report["infinities"].items()
        )
        + ". "
        if validity_report["infinities"]
        else "No value is infinite. "
    )
    + (
        "Numbers that stand for a missing value: "
        + ", ".join(
            f"{number} in {code_name(name)} ({counted(n, 'cell')})"
            for name, counts in validity_report["sentinels"].items()
            for number, n in counts.items()
        )
        + ". "
        if validity_report["sentinels"]
        else "No number stands for a missing value. "
    )
    + (
        "Spellings brought together: "
        + "; ".join(
            f"{listing(texts, 4)} in {code_name(name)}"
            for name, texts in validity_report["respelled"].items()
        )
        + ". "
        if validity_report["respelled"]
        else "Every category is spelled in one way. "
    )
    + (
        f"Columns left without anything to tell: {listing(validity_report['dropped_columns'])}. "
        if validity_report["dropped_columns"]
        else ""
    )
    + f"Missing cells: {validity_report['missing_cells']['before']:,} before, "
    f"{validity_report['missing_cells']['after']:,} after."
)
"""
