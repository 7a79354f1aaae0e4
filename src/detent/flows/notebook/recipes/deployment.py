"""The recipes of stage 8's second half: the script with its guide, and the model card."""

from __future__ import annotations

from importlib import import_module

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

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
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_GUIDANCE, slots)),
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
            "time": "a time long after the last training row",
            "group": "groups of another kind",
        }.get(evaluation_framework["split"]["kind"], "other places, times or populations")
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
        "SMALL": literal(200),
    }
    return Recipe(
        lead=(
            "The model card travels with the model: what it is for, what it was made from, how good it "
            "is and how that was measured, and where it must not be trusted."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_CARD, slots)),
        result=_CARD_RESULT,
    )


_CARD = r'''
def pcs_lines():
    """Predictability, computability and stability, each with its figure."""
    primary = evaluation_framework["primary_metric"]
    folds, held_out = measured("cv_metrics", primary), measured("test_performance", primary)
    gap = abs(held_out - folds) if NOT_MEASURED not in (folds, held_out) else NOT_MEASURED
    return [
        f"Predictability: {primary} {figure_text(folds)} in the folds and {figure_text(held_out)} on "
        "the hold-out, "
        f"a gap of {figure_text(gap)}; leaks that remain: {figure_text(measured('leakage_report', 'leaks'))}",
        f"Computability: seed {RANDOM_STATE}, versions and SHA-256 of the data recorded below",
        "Stability: variation coefficient "
        f"{figure_text(measured('stability_metrics', 'variation_coefficient'))}, certified: "
        f"{figure_text(measured('stability_certification', 'certified'))}",
    ]


def limitations():
    """What the model cannot be trusted with, each with the figure that says so."""
    split = evaluation_framework["split"]
    lines = [
        {
            "shuffled": "It was tested on rows drawn from the same table; rows from other times, "
            "places or populations may differ.",
            "stratified": "It was tested on rows drawn from the same table; rows from other times, "
            "places or populations may differ.",
            "group": "It was tested on other groups of the same table "
            f"({code_name(split['column'])}); other kinds may differ.",
            "time": f"It was tested on the rows latest in {code_name(split['column'])}; what changes "
            "after them is unknown to it.",
        }[split["kind"]],
        "It tells what goes together, not what causes what; changing a feature need not change the outcome.",
    ]
    lines += [
        f"Not achieved: {line}"
        for row, line in zip(limits_reached(), verdict_lines())
        if not row["met"]
    ]
    lines += [
        f"Undecided: {line}"
        for row, line in zip(limits_reached(), verdict_lines())
        if row["undecided"]
    ]
    if len(df_typed) < <<SMALL>>:
        lines.append(f"It rests on {len(df_typed):,} rows only; every figure here is uncertain.")
    if task_type == "classification":
        counts = df_typed[target_column].value_counts()
        rare = {
            str(name): int(n)
            for name, n in sorted(counts.items(), key=lambda pair: str(pair[0]))
            if n < 10
        }
        if rare:
            lines.append(
                f"Classes with fewer than ten rows are hardly known to it: {figure_text(rare)}."
            )
    gaps = df_typed[list(X_train.columns)].isna().mean()
    if gaps.max() > 0.3:
        lines.append(
            f"More than 30 % of the values are missing in {listing(gaps.index[gaps > 0.3], 8)}."
        )
    leaks = measured("leakage_report", "leaks")
    if leaks != NOT_MEASURED and len(leaks):
        lines.append(
            f"Columns that may give the answer away are still in use: {figure_text(leaks)}."
        )
    if measured("stability_certification", "certified") is not True:
        lines.append("Its stability is not certified.")
    return lines


def section(title, lines):
    """A section of the card."""
    return [f"## {title}", *(f"- {line}" for line in lines), ""]


looks = measured("holdout_looks")
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
            [f"{code_name(name)}: {why}" for name, why in leakage_report.get("removed", {}).items()]
            or ["none"],
        ),
        *section("Model", [f"{name}: {figure_text(value)}" for name, value in best_params.items()]),
        "## Limits",
        limits_table(),
        "",
        *(f"- {line}" for line in verdict_lines()),
        "",
        "## Scores and baseline",
        scores_table(),
        "",
        f"The baseline always answers the {evaluation_framework['baseline'].replace('_', ' ')}.",
        "",
        *section("Predictability, computability, stability", pcs_lines()),
        *section(
            "Hold-out",
            [
                f"{figure_text(measured('test_performance', 'n'))} rows, "
                f"{evaluation_framework['split']['kind']} split",
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
