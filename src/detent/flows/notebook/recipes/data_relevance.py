"""The recipes of stage 1's second half: what a row is, which columns are of use, and what will be checked."""

from __future__ import annotations

from detent.flows.notebook.domain.catalogue import problem_thresholds
from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.column_typing import ROW_KEYS
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- observation_unit_identification ------------------------------------------------------------------------


def observation_unit_identification(kitchen: Kitchen) -> Recipe:
    """Find out what one row stands for, and whether rows come twice."""
    reading = kitchen.problem
    slots = {
        "IDS": literal(list(reading.not_features)),
        "GROUPS": literal(list(reading.groups)),
        "DATES": literal(list(reading.dates)),
        "EQUAL": attempted(kitchen, "row_table.duplicated()", "row_table.astype(str).duplicated()"),
        "KEYS": attempted(kitchen, "keys_of(row_table, known_ids)", "[]"),
    }
    return Recipe(
        lead=(
            "What does one row stand for? A key column answers that: once rows that are equal in every "
            "column are set aside, each row has a key of its own. Without a key, two equal rows may be "
            "the same observation entered twice or two observations that happen to agree. The table "
            "cannot tell, so such rows are counted here and not removed."
        ),
        code=cell(ROW_KEYS, ATTEMPT if kitchen.iteration > 1 else "", fill(_UNIT, slots)),
        result=_UNIT_RESULT,
    )


_UNIT = r"""
known_ids, known_groups, known_dates = <<IDS>>, <<GROUPS>>, <<DATES>>
row_table = pd.DataFrame({name: comparable(raw_dataset[name]) for name in raw_dataset.columns})
equal_rows = <<EQUAL>>
keys = <<KEYS>>
pairs = [
    [group, date]
    for group in known_groups
    for date in known_dates
    if not row_table[~equal_rows].duplicated(subset=[group, date]).any()
]
if keys:
    unit = f"one {code_name(keys[0])}"
elif pairs:
    unit = f"one {code_name(pairs[0][0])} at one {code_name(pairs[0][1])}"
else:
    unit = "one observation without a key"
observation_unit_report = {
    "rows": len(raw_dataset),
    "unit": unit,
    "keys": keys,
    "key_pairs": pairs,
    "equal_rows": int(equal_rows.sum()),
    "rows_per_group": {
        group: float(raw_dataset[group].value_counts().mean()) for group in known_groups
    },
}
for entry, value in observation_unit_report.items():
    print(f"{entry:>14}  {value}")
"""

_UNIT_RESULT = r"""
(
    f"A row is {observation_unit_report['unit']}. "
    + (
        f"{observation_unit_report['equal_rows']:,} of {observation_unit_report['rows']:,} rows "
        "equal an earlier one "
        f"in every column ({observation_unit_report['equal_rows'] / observation_unit_report['rows']:.1%}). "
        + (
            f"They share their key {listing(observation_unit_report['keys'], 3)}, so they are the "
            "same observation "
            "twice and will be dropped."
            if observation_unit_report["keys"]
            else "No key says that they are the same observation, so they stay; the split must not part them."
        )
        if observation_unit_report["equal_rows"]
        else "No row comes twice."
    )
    + "".join(
        f" {code_name(group)} repeats: {mean:.1f} rows each on average."
        for group, mean in observation_unit_report["rows_per_group"].items()
    )
)
"""


# -- relevance_assessment -----------------------------------------------------------------------------------


def relevance_assessment(kitchen: Kitchen) -> Recipe:
    """Choose the columns that may be features, and write the thresholds down as data."""
    reading = kitchen.problem
    report = 'variable_analysis_report[name]["kind"]'
    slots = {
        "REASONS": literal({name: _sentence(reason) for name, reason in reading.not_features.items()}),
        "KEEP": literal(list(reading.keep)),
        "SPLIT": literal(reading.split.column if reading.split.kind == "group" else None),
        "DATES": literal(list(reading.dates)),
        "GROUPS": literal(list(reading.groups)),
        "THRESHOLDS": literal(problem_thresholds(reading)),
        "KIND": attempted(kitchen, report, "column_kind(name, raw_dataset[name])[0]"),
        "ROW_KEYS": attempted(kitchen, 'observation_unit_report["keys"]', "[]"),
        "LAST": _LAST_RESORT if kitchen.iteration > 1 else "",
    }
    return Recipe(
        lead=(
            "Not every column may be a feature. Identifiers and constants teach a model nothing that "
            "holds for rows it has not seen, and a column that names the group a row belongs to is no "
            "help for new groups. Each column that is left out is listed with its reason. "
        )
        + _thresholds_lead(reading),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_RELEVANCE, slots)),
        result=_RELEVANCE_RESULT,
    )


def _thresholds_lead(reading: ProblemReading) -> str:
    if reading.thresholds:
        limits = ", ".join(str(limit) for limit in reading.thresholds)
        return f"The problem sets these limits, which no later step may loosen: {limits}."
    return "The problem sets no limit, so the model has to beat a baseline that knows nothing but the target."


def _sentence(reason: str) -> str:
    return reason.strip().rstrip(".") or "left out by the reading of the problem"


_LAST_RESORT = r"""
if not usable:  # better a doubtful feature than none
    usable = [
        name
        for name in raw_dataset.columns
        if name != target_column and raw_dataset[name].notna().any()
    ]
    excluded = {name: reason for name, reason in excluded.items() if name not in usable}
"""

_RELEVANCE = r"""
reasons_known = <<REASONS>>
keep, split_group, known_dates = <<KEEP>>, <<SPLIT>>, <<DATES>>
problem_thresholds = <<THRESHOLDS>>
row_keys = <<ROW_KEYS>>

usable, excluded, dates = [], {}, []
for name in raw_dataset.columns:
    kind = <<KIND>>
    if name == target_column:
        continue
    if kind == "datetime" or (kind == "numeric" and name in known_dates):
        dates.append(name)
    if name in keep:
        usable.append(name)
    elif name == split_group:
        excluded[name] = "names the group that is held out as a whole"
    elif name in reasons_known:
        excluded[name] = reasons_known[name]
    elif kind == "id" or name in row_keys:
        excluded[name] = "identifies the row"
    elif kind == "constant":
        excluded[name] = "has the same value in every row"
    else:
        usable.append(name)
<<LAST>>
relevance_report = {
    "usable_features": usable,
    "excluded": excluded,
    "dates": dates,
    "groups": [name for name in <<GROUPS>> if name in raw_dataset.columns],
}
print(f"{len(usable)} usable features, {len(excluded)} columns left out")
for name, reason in excluded.items():
    print(f"  {name!r}: {reason}")
for limit in problem_thresholds:
    print(f"  limit: {limit['metric']} {limit['comparison']} {limit['value']}")
"""

_RELEVANCE_RESULT = r"""
(
    f"**{counted(len(relevance_report['usable_features']), 'column')}** may serve as features. "
    + (
        "Left out:\n\n"
        + "\n".join(
            f"- {code_name(name)}: {reason}"
            for name, reason in relevance_report["excluded"].items()
        )
        + "\n\n"
        if relevance_report["excluded"]
        else "None is left out. "
    )
    + (
        f"Columns with dates: {listing(relevance_report['dates'])}. "
        if relevance_report["dates"]
        else ""
    )
    + (
        f"Columns that name groups: {listing(relevance_report['groups'])}. "
        if relevance_report["groups"]
        else ""
    )
    + "To be met: "
    + ", ".join(
        f"{limit['metric']} {limit['comparison']} {limit['value']}" for limit in problem_thresholds
    )
    + "."
)
"""


# -- pcs_hypothesis_formulation -----------------------------------------------------------------------------


def pcs_hypothesis_formulation(kitchen: Kitchen) -> Recipe:
    """State what will be checked so that the result can be believed."""
    settings = kitchen.settings
    slots = {
        "TEST_SIZE": literal(settings.test_size),
        "SPLIT": literal(kitchen.problem.split.kind),
        "WHY": literal(kitchen.problem.split.why),
        "STABILITY": literal(settings.stability_threshold),
        "EXCLUDED": attempted(kitchen, 'len(relevance_report["excluded"])', "0"),
        "FILE": attempted(kitchen, 'data_inventory_checklist["sha256"]', '"not recorded"'),
    }
    return Recipe(
        lead=(
            "A result deserves trust for three reasons. It **predicts** rows that had no part in making "
            "it, it can be **computed** again by someone else, and it is **stable** when data and "
            "decisions change a little. Before anything is modelled, this is what will be checked for "
            "each, and when it counts as failed."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_PCS, slots)),
        result=_PCS_RESULT,
    )


_PCS = r"""
held_out, split_kind, most_variation = <<TEST_SIZE>>, <<SPLIT>>, <<STABILITY>>
limits = " and ".join(
    f"{limit['metric']} {limit['comparison']} {limit['value']}" for limit in problem_thresholds
)
pcs_hypothesis_framework = {
    "predictability": {
        "hypothesis": f"{target_column} can be predicted from the other columns for rows not seen before",
        "check": f"a hold-out of {held_out:.0%} of the rows (split: {split_kind}), scored after all "
        "decisions",
        "fails_if": f"{limits} is missed there, or a feature gives the target away",
        "why_this_split": <<WHY>>,
    },
    "computability": {
        "hypothesis": "the same data and seed give the same figures",
        "check": f"seed {RANDOM_STATE}, versions and the SHA-256 of the data recorded, all cells run "
        "again from the top",
        "fails_if": "a figure differs",
        "data_sha256": <<FILE>>,
    },
    "stability": {
        "hypothesis": "the score does not hang on particular rows or on one decision",
        "check": "refits on resampled and perturbed training rows, and with other preprocessing",
        "fails_if": f"the scores vary by {most_variation:.0%} of their mean or more",
    },
}
data_existence_report = {
    "rows": len(raw_dataset),
    "columns": raw_dataset.shape[1],
    "target": target_column,
    "task": task_type,
    "rows_without_target": int(raw_dataset[target_column].isna().sum()),
    "usable_features": len(relevance_report["usable_features"]),
    "excluded_columns": <<EXCLUDED>>,
    "thresholds": problem_thresholds,
}
for aspect, plan in pcs_hypothesis_framework.items():
    print(
        f"{aspect}\n  {plan['hypothesis']}\n  checked by {plan['check']}\n  fails if {plan['fails_if']}"
    )
"""

_PCS_RESULT = r"""
(
    f"The data are there: {data_existence_report['rows']:,} rows, "
    f"{counted(data_existence_report['usable_features'], 'usable feature')} and the target "
    f"{code_name(target_column)}"
    + (
        f". {counted(data_existence_report['rows_without_target'], 'row')} without it can teach "
        "nothing and will be dropped."
        if data_existence_report["rows_without_target"]
        else ", known for every row."
    )
)
"""
