"""The recipes of stage 2's second half: missing values, and the check that the data came through."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- completeness_restoration -------------------------------------------------------------------------------


def completeness_restoration(kitchen: Kitchen) -> Recipe:
    """Drop rows without a target, and fill a copy for exploration."""
    slots = {
        "DIMENSION": attempted(kitchen, 'dimension_report["rules"]', "{}"),
        "VALIDITY": attempted(kitchen, 'validity_report["rules"]', "{}"),
        "FILL": attempted(kitchen, "usual_value(df_typed[name])", "df_typed[name].dropna().iloc[0]"),
        "LAST": _LAST_RESORT if kitchen.iteration > 1 else "",
    }
    return Recipe(
        lead=(
            "A row without a target can neither teach nor test, so it is dropped. Other gaps are filled, "
            "with the median or the most frequent value, **in a copy for exploration only**: "
            "`df_cleaned` feeds tables and charts. `df_typed` keeps its gaps, because the model must "
            "learn how to fill them from its training rows alone; a median over all rows would carry "
            "knowledge of the held-out ones."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_COMPLETENESS, slots)),
        result=_COMPLETENESS_RESULT,
    )


_COMPLETENESS = r'''
def usual_value(values):
    """The median of numbers and dates, the most frequent of categories and texts."""
    present = values.dropna()
    if pd.api.types.is_numeric_dtype(present) and not pd.api.types.is_bool_dtype(present):
        return float(present.median())
    if pd.api.types.is_datetime64_any_dtype(present):
        return present.median()
    return present.mode().iloc[0]


rows_before = len(df_typed)
df_typed = df_typed[df_typed[target_column].notna()].copy()
target_values = df_typed[target_column]
if task_type == "classification" and pd.api.types.is_float_dtype(target_values):
    # Labels 0 and 1, which a gap had made 0.0 and 1.0; halves, such as 1.5 stars, are names of classes.
    whole = (target_values % 1 == 0).all()
    df_typed[target_column] = target_values.astype("int64" if whole else str)
elif task_type == "classification" and is_truth(target_values):
    df_typed[target_column] = target_values.astype(bool)
without_values = [name for name in df_typed.columns if df_typed[name].isna().all()]
df_typed = df_typed.drop(columns=without_values)
if df_typed.shape[1] < 2 or df_typed.empty:
    raise ValueError(
        f"Nothing is left to predict {target_column!r} from: {df_typed.shape} rows and columns."
    )

gaps = df_typed.isna().sum()
filled = {name: <<FILL>> for name in df_typed.columns if gaps[name]}
df_cleaned = pd.DataFrame(
    {
        name: df_typed[name].fillna(filled[name]) if name in filled else df_typed[name]
        for name in df_typed.columns
    },
    index=df_typed.index,
)
<<LAST>>
processing_pipeline_doc = {
    "steps": [
        "types: every column read by one rule; doubled observations and constant columns dropped",
        "values: infinities and sentinels made missing, one spelling for each category",
        f"target: {rows_before - len(df_typed):,} rows without {target_column!r} dropped",
        "gaps: filled in df_cleaned for exploration; df_typed keeps them for the model's own pipeline",
    ],
    "rows_without_target": rows_before - len(df_typed),
    "columns_without_values": without_values,
    "filled_for_exploration": {
        name: {"cells": int(gaps[name]), "value": value if isinstance(value, float) else str(value)}
        for name, value in filled.items()
    },
    "rules": {**<<DIMENSION>>, **<<VALIDITY>>},
}
for step in processing_pipeline_doc["steps"]:
    print("-", step)
print(f"\n{int(gaps.sum()):,} gaps in {len(filled):,} columns filled in df_cleaned")
pd.DataFrame.from_dict(
    processing_pipeline_doc["filled_for_exploration"], orient="index", columns=["cells", "value"]
)
'''

_LAST_RESORT = r"""
for name in df_cleaned.columns[
    df_cleaned.isna().any()
]:  # whatever could not be filled is told apart as its own value
    df_cleaned[name] = df_cleaned[name].astype(object).fillna("missing").astype(str)
"""

_COMPLETENESS_RESULT = r"""
(
    (
        f"Dropped for want of a target: {counted(processing_pipeline_doc['rows_without_target'], 'row')}; "
        if processing_pipeline_doc["rows_without_target"]
        else "Every row has a target; "
    )
    + f"{counted(len(df_typed), 'row')} remain. "
    + (
        "Filled for exploration: "
        + counted(
            sum(
                entry["cells"]
                for entry in processing_pipeline_doc["filled_for_exploration"].values()
            ),
            "gap",
        )
        + f" in {counted(len(processing_pipeline_doc['filled_for_exploration']), 'column')}, most of them in "
        + listing(
            sorted(
                processing_pipeline_doc["filled_for_exploration"],
                key=lambda name: -processing_pipeline_doc["filled_for_exploration"][name]["cells"],
            )[:3]
        )
        + ". "
        if processing_pipeline_doc["filled_for_exploration"]
        else "There was no gap to fill. "
    )
    + f"`df_typed` still has {int(df_typed.isna().sum().sum()):,} missing cells, `df_cleaned` "
    f"{int(df_cleaned.isna().sum().sum()):,}."
)
"""


# -- integrity_verification ---------------------------------------------------------------------------------


def integrity_verification(kitchen: Kitchen) -> Recipe:
    """Compare the tables before and after."""
    slots = {
        "DROPPED": attempted(kitchen, 'dimension_report["dropped_rows"]', "len(raw_dataset) - len(df_typed)"),
        "WITHOUT": attempted(kitchen, 'processing_pipeline_doc["rows_without_target"]', "0"),
    }
    return Recipe(
        lead=(
            "Cleaning must not change what it was not asked to change. The tables before and after are "
            "compared: rows are accounted for one by one, the target is the one that was read, gaps were "
            "filled in the copy only, and nothing impossible is left."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_INTEGRITY, slots)),
        result=_INTEGRITY_RESULT,
    )


_INTEGRITY = r'''
def tally(table):
    """The figures that tell a table's state."""
    numbers = table.select_dtypes("number")
    return {
        "rows": len(table),
        "columns": table.shape[1],
        "numeric columns": numbers.shape[1],
        "missing cells": int(table.isna().sum().sum()),
        "infinite cells": int(numbers.isin([np.inf, -np.inf]).sum().sum()),
        "missing targets": int(table[target_column].isna().sum()),
    }


data_quality_report = {
    "raw_dataset": tally(raw_dataset),
    "df_typed": tally(df_typed),
    "df_cleaned": tally(df_cleaned),
    "missing_share": {
        name: round(float(share), 6) for name, share in df_typed.isna().mean().items() if share
    },
}
read_target = raw_dataset.loc[df_typed.index, target_column]
same_target = not is_number(read_target) or bool(
    (read_target.astype(float) == df_typed[target_column].astype(float)).all()
)
present = df_typed.notna()
dropped_rows = <<DROPPED>>
rows_without = <<WITHOUT>>
integrity_verification_report = {
    "rows are accounted for": len(raw_dataset) - dropped_rows - rows_without == len(df_typed),
    "every row can be traced back": bool(
        df_typed.index.is_unique and df_typed.index.isin(raw_dataset.index).all()
    ),
    "column names are unique": bool(df_typed.columns.is_unique),
    "the target is as it was read": same_target,
    "no value is infinite": data_quality_report["df_typed"]["infinite cells"] == 0,
    "the copy has no gap": data_quality_report["df_cleaned"]["missing cells"] == 0,
    "only gaps were filled": all(
        (df_cleaned.loc[present[name], name] == df_typed.loc[present[name], name]).all()
        for name in df_typed.columns
    ),
}
for check, holds in integrity_verification_report.items():
    print("ok    " if holds else "FAILED", check)
pd.DataFrame(
    {name: figures for name, figures in data_quality_report.items() if name != "missing_share"}
)
'''

_INTEGRITY_RESULT = r"""
(
    f"{sum(integrity_verification_report.values())} of {len(integrity_verification_report)} checks hold. "
    + (
        "Not so: "
        + "; ".join(check for check, holds in integrity_verification_report.items() if not holds)
        + ". "
        if not all(integrity_verification_report.values())
        else ""
    )
    + f"From {data_quality_report['raw_dataset']['rows']:,} rows and "
    f"{data_quality_report['raw_dataset']['columns']:,} columns, "
    f"{data_quality_report['df_typed']['rows']:,} rows and "
    f"{data_quality_report['df_typed']['columns']:,} columns go on, with "
    f"{data_quality_report['df_typed']['missing cells']:,} cells missing"
    + (
        ", most in "
        + code_name(
            max(data_quality_report["missing_share"], key=data_quality_report["missing_share"].get)
        )
        + f" ({max(data_quality_report['missing_share'].values()):.1%})."
        if data_quality_report["missing_share"]
        else "."
    )
)
"""
