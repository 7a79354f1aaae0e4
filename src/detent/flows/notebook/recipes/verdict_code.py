"""Code of cells that reports: what was measured, the limits, and whether they are met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.flows.notebook.recipes.code_text import literal

if TYPE_CHECKING:
    from detent.flows.notebook.recipes.recipe import Kitchen

# What is read of stages 5 to 7, each "not measured" where it is absent:
#
# cv_metrics, baseline_metrics   {metric: mean over the folds, "n": rows}
# test_performance               {metric: score on the hold-out, "n": rows}
# baseline_performance           the same of the baseline
# holdout_interval               {metric: (low, high)}, at 95 %
# holdout_looks                  how often the hold-out was scored
# leakage_report                 {"leaks": [...], "removed": {column: reason}, ...}
# best_params                    {"model": name, setting: value}
# stability_metrics              {"variation_coefficient": float, ...}
# stability_certification        {"certified": bool, ...}


def missed_code(kitchen: Kitchen) -> str:
    """Code that holds what was missed beside the limits; nothing where all was met."""
    return f"criteria_missed = {literal(dict(kitchen.missed))}" if kitchen.missed else ""


MEASURED = r'''
NOT_MEASURED = "not measured"


def measured(name, *keys):
    """A figure of an earlier step, or 'not measured'."""
    value = globals().get(name)
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return NOT_MEASURED if value is None else value


def figure_text(value):
    """A figure as prose and tables show it."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {figure_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(figure_text(item) for item in value) or "none"
    return " ".join(str(value).split())


def keeps(score, comparison, value):
    """Whether a score keeps a limit; None if one of them was not measured."""
    if NOT_MEASURED in (score, value):
        return None
    below, above = comparison[0] == "<" and score < value, comparison[0] == ">" and score > value
    return bool(below or above or ("=" in comparison and score == value))


def limits_reached():
    """Each limit with its scores: it is met only if it is kept in the folds and on the hold-out."""
    rows = []
    for limit in problem_thresholds:
        metric, comparison, value = limit["metric"], limit["comparison"], limit["value"]
        of_folds = of_held_out = value
        if value == "baseline":  # which is scored like the model, in the folds and on the hold-out
            of_folds, of_held_out = (
                measured("baseline_metrics", metric),
                measured("baseline_performance", metric),
            )
        interval = measured("holdout_interval", metric)
        known = not isinstance(interval, str) and not isinstance(of_held_out, str)
        folds, held_out = measured("cv_metrics", metric), measured("test_performance", metric)
        rows.append(
            {
                "limit": f"{metric} {comparison} {figure_text(value)}"
                + (f" ({figure_text(of_folds)} in the folds)" if value == "baseline" else ""),
                "folds": folds,
                "kept in folds": keeps(folds, comparison, of_folds),
                "hold-out": held_out,
                "kept on hold-out": keeps(held_out, comparison, of_held_out),
                "interval": tuple(interval) if known else None,
                "undecided": known and bool(interval[0] <= of_held_out <= interval[1]),
            }
        )
        rows[-1]["met"] = rows[-1]["kept in folds"] is True and rows[-1]["kept on hold-out"] is True
    return rows


def misses():
    """Criteria beside the limits that were missed, each with what was measured."""
    return globals().get("criteria_missed", {})


def miss_lines():
    """A sentence for each of them."""
    return [f"`{criterion}`: {value}, **not met**." for criterion, value in misses().items()]


def verdict():
    """The answer in words: achieved, or not achieved."""
    missed = misses() or not all(row["met"] for row in limits_reached())
    return "not achieved" if missed else "achieved"


KEPT = {True: "met", False: "**not met**", None: "**not measured**"}


def verdict_lines():
    """A sentence for each limit, honest about chance."""
    lines = []
    for row in limits_reached():
        line = (
            f"{row['limit']}: {figure_text(row['hold-out'])} on the hold-out, "
            f"{KEPT[row['kept on hold-out']]}; "
            f"{figure_text(row['folds'])} in the folds, {KEPT[row['kept in folds']]}"
        )
        if row["interval"]:
            ends = " to ".join(figure_text(end) for end in row["interval"])
            line += f"; 95 % interval of the hold-out {ends}"
        if row["undecided"]:
            line += ", so **undecided**: the limit lies inside it, and chance may have decided"
        lines.append(line + ".")
    named = {limit["metric"] for limit in problem_thresholds} & {"f1", "precision", "recall"}
    return lines + ([class_words()] if named and class_words() else []) + miss_lines()


def limits_table():
    """The limits as a Markdown table."""
    lines = [
        "| limit | folds | hold-out | 95 % interval | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in limits_reached():
        interval = " to ".join(figure_text(end) for end in row["interval"] or ["–"])
        met = ("met" if row["met"] else "not met") + (", undecided" if row["undecided"] else "")
        scores = f"{figure_text(row['folds'])} | {figure_text(row['hold-out'])}"
        lines.append(f"| {row['limit']} | {scores} | {interval} | {met} |")
    return "\n".join(lines)


def scores_table():
    """All scores of the final model as a Markdown table, each beside the baseline on the same rows."""
    lines = [
        "| metric | baseline, folds | model, folds | baseline, hold-out | model, hold-out |",
        "| --- | --- | --- | --- | --- |",
    ]
    for metric, score in cv_metrics.items():
        if metric != "n" and isinstance(score, (int, float, np.number)):
            scores = (
                measured(name, metric)
                for name in (
                    "baseline_metrics",
                    "cv_metrics",
                    "baseline_performance",
                    "test_performance",
                )
            )
            lines.append(
                f"| {metric} | " + " | ".join(figure_text(value) for value in scores) + " |"
            )
    return "\n".join(lines + (["", class_words()] if class_words() else []))


def class_words():
    """Which class F1, precision and recall are about; nothing where that is not known."""
    labels = measured("LABELS")
    if measured("task_type") != "classification" or not isinstance(labels, list):
        return ""
    if len(labels) == 2:
        return f"F1, precision, recall and AUC are those of the positive class, {code_name(labels[1])}."
    return "F1, precision, recall and AUC are means over the classes, each counted equally."


def stability_verdict():
    """What stability testing says, in words."""
    said = measured("stability_certification", "verdict")
    if said != NOT_MEASURED:
        return said
    certified = measured("stability_certification", "certified")
    return {True: "certified as stable", False: "not certified as stable"}.get(certified, NOT_MEASURED)


def columns_out():
    """Every column that is no feature, with its reason; leaks are said to be such."""
    left_out, leaks = (
        measured("feature_engineering_strategy", "left_out"),
        measured("leakage_report", "removed"),
    )
    reasons = dict(left_out) if isinstance(left_out, dict) else {}
    if isinstance(leaks, dict):
        reasons |= {name: f"a leak: {why}" for name, why in leaks.items()}
    return reasons
'''
