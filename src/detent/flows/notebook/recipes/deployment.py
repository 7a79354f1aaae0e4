"""The recipes of stage 8's second half: the script with its guide, and the model card."""

from __future__ import annotations

from importlib import import_module

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted
from detent.flows.notebook.recipes.verdict_code import missed_code

# -- stakeholder_guidance -----------------------------------------------------------------------------------


def stakeholder_guidance(kitchen: Kitchen) -> Recipe:
    """Write the script that predicts, and the guide to it."""
    # Stage 5 knows what the saved model needs, so its author writes the script.
    script: str = import_module("detent.flows.notebook.recipes.predict_script").predict_script(kitchen)
    slots = {
        "SCRIPT": script_literal(script),
        "TARGET_KIND": attempted(kitchen, "str(df_typed[target_column].dtype)", '"unknown"'),
    }
    return Recipe(
        lead=(
            "Whether the model is of use shows when others apply it. The script reads a new table as "
            "this notebook read the first one, and writes a prediction for each of its rows. The guide "
            "says how, and when not to."
        ),
        code=cell(missed_code(kitchen), ATTEMPT if kitchen.iteration > 1 else "", fill(_GUIDANCE, slots)),
        result=_GUIDANCE_RESULT,
    )


def script_literal(script: str) -> str:
    """A script as a string that can be read, where its own quotes allow it."""
    readable = "'''" not in script and not script.endswith(("\\", "'"))
    return f"r'''{script}'''" if readable else literal(script)


_GUIDANCE = r"""
PREDICT_SCRIPT = <<SCRIPT>>

Path("outputs").mkdir(exist_ok=True)
Path("outputs/predict.py").write_text(PREDICT_SCRIPT, encoding="utf-8", newline="\n")

needed_columns = list(X_train.columns)
implementation_guide = "\n".join(
    [
        f"# How to predict {code_name(target_column)} for new rows",
        "",
        f"The goal of this work was **{verdict()}**."
        + (
            ""
            if verdict() == "achieved"
            else " Do not rely on the predictions where the limits matter."
        ),
        "",
        "1. Keep `models/` and `outputs/` beside each other, as they are.",
        "2. Put the new rows into a table of the same kind as the first one. The order of columns "
        "does not matter.",
        "3. Run `python outputs/predict.py NEW [OUT]`. It writes CSV, one row for each row of NEW, "
        "in its order.",
        "",
        f"**It needs** {counted(len(needed_columns), 'column')}: {listing(needed_columns, 40)}. "
        "Values may be missing and "
        "categories may be new; a missing column is named and nothing is predicted.",
        "",
        "**It writes** `prediction`"
        + (
            ", in the units of the target."
            if task_type == "regression"
            else ", one of the labels "
            + listing([str(name) for name in sorted(df_typed[target_column].unique(), key=str)], 20)
            + ", and `probability_<label>` for each of them."
        ),
        "",
        "**When not to use it:** for rows unlike those it was trained on, such as "
        + {
            "time": "a time further ahead than the held-out rows, for which the score says nothing",
            "group": "groups of another kind",
        }.get(
            measured("evaluation_framework", "split", "kind"), "other places, times or populations"
        )
        + "; and never as the only ground for a decision about a person.",
        "",
        "**Keep watch:** compare predictions with what came true. "
        + (
            f"On the hold-out the error was {figure_text(measured('test_performance', 'rmse'))} (RMSE)"
            if task_type == "regression"
            else "On the hold-out the balanced accuracy was "
            f"{figure_text(measured('test_performance', 'balanced_accuracy'))}"
        )
        + "; train again when new rows do clearly worse.",
    ]
)
print(implementation_guide)
"""

_GUIDANCE_RESULT = r"""
(
    f"`outputs/predict.py` ({Path('outputs/predict.py').stat().st_size:,} bytes) predicts "
    f"{code_name(target_column)} from "
    f"{counted(len(needed_columns), 'column')}. The goal was **{verdict()}**."
)
"""


# -- deployment_support -------------------------------------------------------------------------------------


def deployment_support(kitchen: Kitchen) -> Recipe:
    """Write the model card."""
    slots = {
        "LOOKS": literal(1 + kitchen.backtracks),
        "COMPUTABLE": attempted(
            kitchen, "', '.join(f'{n} {v}' for n, v in library_versions.items())", '"not recorded"'
        ),
        "MOST_VARIATION": literal(kitchen.settings.stability_threshold),
    }
    return Recipe(
        lead=(
            "The model card travels with the model: what it is for, what it was made from, how good it "
            "is and how that was measured, and where it must not be trusted."
        ),
        code=cell(missed_code(kitchen), ATTEMPT if kitchen.iteration > 1 else "", fill(_CARD, slots)),
        result=_CARD_RESULT,
    )


_CARD = r'''
MOST_VARIATION = <<MOST_VARIATION>>


def beside_baseline(limit):
    """Whether the interval of the hold-out score leaves the baseline out, in words."""
    metric = limit["metric"]
    interval, usual = measured("holdout_interval", metric), measured("baseline_performance", metric)
    if isinstance(interval, str) or isinstance(usual, str):
        return "whether the score differs from the baseline was not measured"
    low, high = interval
    ends = f"the 95 % interval of {metric} on the hold-out, {figure_text(low)} to {figure_text(high)},"
    if low <= usual <= high:
        return f"{ends} holds the baseline's {figure_text(usual)}: **no better than the baseline, beyond chance**"
    better = low > usual if limit["comparison"][0] == ">" else high < usual
    side = "better" if better else "**worse**"
    return f"{ends} excludes the baseline's {figure_text(usual)}: {side} than the baseline"


def pcs_lines():
    """What was checked of predictability, computability and stability, with the figures that say so."""
    metric = problem_thresholds[0]["metric"]
    folds, held_out = measured("cv_metrics", metric), measured("test_performance", metric)
    gap = abs(held_out - folds) if NOT_MEASURED not in (folds, held_out) else NOT_MEASURED
    leaks, rows = measured("leakage_report", "leaks"), measured("test_performance", "n")
    predictable = NOT_MEASURED not in (leaks, rows, held_out) and not leaks and rows > 0
    variation = measured("stability_metrics", "variation_coefficient")
    stable = variation != NOT_MEASURED and variation < MOST_VARIATION
    return [
        f"predictability: checks {'passed' if predictable else '**not passed**'}: {figure_text(rows)} rows "
        f"held out and scored, leaks that remain: {figure_text(leaks)}. This says that the score can be "
        f"believed, not that it is good: {metric} is {figure_text(held_out)} there and "
        f"{figure_text(folds)} in the folds (a gap of {figure_text(gap)}); "
        f"{beside_baseline(problem_thresholds[0])}",
        f"computability: seed {RANDOM_STATE}, versions and SHA-256 of the data are recorded; the run "
        "says whether a second execution gave the same",
        f"stability: {'yes' if stable else 'no'}; coefficient of variation {figure_text(variation)}, "
        f"to stay below {MOST_VARIATION:g}; {stability_verdict()}",
    ]


def limitations():
    """What the model cannot be trusted with, each with the figure that says so."""
    column = code_name(measured("evaluation_framework", "split", "column"))
    tested = {
        "group": f"other groups of the same table ({column}); groups of another kind may differ",
        "time": f"the latest rows by {column}, which come right after those it learned from: the score "
        "holds for such rows only. For rows further ahead the error can be much larger, above all where the "
        "target rises or falls over time; train again before",
    }
    usual = (
        "rows drawn from the same table; rows from other times, places or populations may differ"
    )
    lines = [
        f"It was tested on {tested.get(measured('evaluation_framework', 'split', 'kind'), usual)}.",
        "It tells what goes together, not what causes what: changing a feature need not change the outcome.",
    ]
    for row, line in zip(limits_reached(), verdict_lines()):
        if not row["met"]:
            lines.append(f"Not achieved: {line}")
        elif row["undecided"]:
            lines.append(f"Undecided: {line}")
    lines += [f"Not achieved: {line}" for line in miss_lines()]
    if len(df_typed) < 200:
        lines.append(f"It rests on {len(df_typed):,} rows only; every figure here is uncertain.")
    if task_type == "classification":
        counts = df_typed[target_column].astype(str).value_counts().sort_index()
        rare = {name: int(n) for name, n in counts.items() if n < 10}
        if rare:
            lines.append(
                f"Classes with fewer than ten rows are hardly known to it: {figure_text(rare)}."
            )
    gaps = df_typed[list(X_train.columns)].isna().mean()
    if gaps.max() > 0.3:
        lines.append(
            f"More than 30 % of the values are missing in {listing(gaps.index[gaps > 0.3])}."
        )
    leaks = measured("leakage_report", "leaks")
    if leaks != NOT_MEASURED and len(leaks):
        lines.append(
            f"Columns that may give the answer away are still in use: {figure_text(leaks)}."
        )
    if measured("stability_certification", "certified") is not True:
        lines.append("Its stability is not certified.")
    elif stability_verdict() != "certified as stable":
        lines.append(f"It is {stability_verdict()}.")
    return lines


def section(title, lines):
    """A section of the card."""
    return [f"## {title}", *(f"- {line}" for line in lines), ""]


looks = measured("holdout_looks")
baseline = figure_text(measured("evaluation_framework", "baseline"))
leaks_removed = measured("leakage_report", "removed")
leaks_removed = leaks_removed if isinstance(leaks_removed, dict) else {}
settings_found = measured("best_params")
settings_found = (
    settings_found if isinstance(settings_found, dict) else {"settings": settings_found}
)
versions = <<COMPUTABLE>>
model_card = "\n".join(
    [
        f"# Model card: {code_name(target_column)}",
        "",
        f"The goal was **{verdict()}**.",
        "",
        *section(
            "Purpose",
            [
                f"question: {' '.join(user_problem.split())}",
                f"{task_type} of {code_name(target_column)} from the other columns of the table",
            ],
        ),
        *section(
            "Data",
            [
                f"file {measured('data_inventory_checklist', 'file')}",
                f"SHA-256 {measured('data_inventory_checklist', 'sha256')}",
                f"{len(raw_dataset):,} rows and {raw_dataset.shape[1]:,} columns read, "
                f"{len(df_typed):,} rows used",
                f"target {code_name(target_column)}",
            ],
        ),
        *section(
            "Features",
            [
                f"used, {len(X_train.columns):,}: {listing(X_train.columns, 200)}",
                *(
                    f"left out: {code_name(name)}, {reason}"
                    for name, reason in columns_out().items()
                ),
            ],
        ),
        *section(
            "Columns removed as leaks",
            [f"{code_name(name)}: {why}" for name, why in leaks_removed.items()] or ["none"],
        ),
        *section(
            "Model", [f"{name}: {figure_text(value)}" for name, value in settings_found.items()]
        ),
        "## Limits",
        limits_table(),
        "",
        *(f"- {line}" for line in verdict_lines()),
        "",
        "## Scores and baseline",
        scores_table(),
        "",
        f"The baseline always answers the {baseline.replace('_', ' ')}.",
        "",
        *section("Predictability, computability, stability", pcs_lines()),
        *section(
            "Hold-out",
            [
                f"{figure_text(measured('test_performance', 'n'))} rows, "
                f"split: {measured('evaluation_framework', 'split', 'kind')}",
                f"looked at {counted(looks if isinstance(looks, int) else <<LOOKS>>, 'time')}",
            ],
        ),
        *section("Limitations", limitations()),
        *section(
            "How to use",
            [
                "`python outputs/predict.py NEW [OUT]`, with `models/` and `outputs/` kept beside each other",
                "the implementation guide says what NEW has to hold",
            ],
        ),
        *section("Seed and versions", [f"seed {RANDOM_STATE}", versions]),
    ]
)
Path("outputs").mkdir(exist_ok=True)
Path("outputs/model_card.md").write_text(model_card, encoding="utf-8", newline="\n")
print(model_card)
'''

_CARD_RESULT = r"""
(
    f"The model card stands in `outputs/model_card.md`. It says that the goal was **{verdict()}** and names "
    f"{counted(len(limitations()), 'limitation')}."
)
"""
