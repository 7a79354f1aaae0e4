"""Code of cells that reports: what was measured, the limits, and whether they are met."""

from __future__ import annotations

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
    """Each limit with the scores that answer it, and the verdict."""
    rows = []
    for limit in problem_thresholds:
        metric, comparison, value = limit["metric"], limit["comparison"], limit["value"]
        folds, held_out = measured("cv_metrics", metric), measured("test_performance", metric)
        interval = measured("holdout_interval", metric)
        met = keeps(held_out, comparison, value)
        if value == "baseline":  # to be beaten in the folds, and not lost on the hold-out
            value = measured("baseline_metrics", metric)
            met = keeps(folds, comparison, value)
            if met and measured("baseline_performance", metric) != NOT_MEASURED:
                met = keeps(held_out, comparison, measured("baseline_performance", metric))
        known = (
            not isinstance(interval, str)
            and not isinstance(value, str)
            and limit["value"] != "baseline"
        )
        rows.append(
            {
                "limit": f"{metric} {comparison} {figure_text(value)}"
                + (" (baseline in the folds)" if limit["value"] == "baseline" else ""),
                "folds": folds,
                "hold-out": held_out,
                "interval": tuple(interval) if known else None,
                "met": met,
                "undecided": bool(
                    known and met is not None and interval[0] <= value <= interval[1]
                ),
            }
        )
    return rows


def verdict():
    """The answer in words: achieved, or not achieved."""
    return "achieved" if all(row["met"] is True for row in limits_reached()) else "not achieved"


def verdict_lines():
    """A sentence for each limit, honest about chance."""
    lines = []
    for row in limits_reached():
        answer = {True: "met", False: "**not met**", None: "**not measured**, so not met"}[
            row["met"]
        ]
        line = (
            f"{row['limit']}: {figure_text(row['hold-out'])} on the hold-out, "
            f"{figure_text(row['folds'])} in the folds, {answer}"
        )
        if row["interval"]:
            line += f" (95 % interval {figure_text(row['interval'][0])} to {figure_text(row['interval'][1])})"
        if row["undecided"]:
            line += (
                "; **undecided**: the limit lies inside the interval, so chance may have decided"
            )
        lines.append(line + ".")
    return lines


def limits_table():
    """The limits as a Markdown table."""
    lines = [
        "| limit | folds | hold-out | 95 % interval | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in limits_reached():
        interval = (
            " to ".join(figure_text(end) for end in row["interval"]) if row["interval"] else "–"
        )
        met = "undecided, " if row["undecided"] else ""
        met += {True: "met", False: "not met", None: NOT_MEASURED}[row["met"]]
        lines.append(
            f"| {row['limit']} | {figure_text(row['folds'])} | {figure_text(row['hold-out'])} "
            f"| {interval} | {met} |"
        )
    return "\n".join(lines)


def scores_table():
    """All scores of the final model as a Markdown table, the baseline beside them."""
    lines = ["| metric | baseline | folds | hold-out |", "| --- | --- | --- | --- |"]
    for metric, score in cv_metrics.items():
        if metric != "n" and isinstance(score, (int, float, np.number)):
            scores = (
                measured(name, metric)
                for name in ("baseline_metrics", "cv_metrics", "test_performance")
            )
            lines.append(
                f"| {metric} | " + " | ".join(figure_text(value) for value in scores) + " |"
            )
    return "\n".join(lines)


def columns_out():
    """Every column that is no feature, with its reason; leaks are said to be such."""
    removed = measured("leakage_report", "removed")
    removed = removed if isinstance(removed, dict) else {}
    return {
        **feature_engineering_strategy["left_out"],
        **{name: f"a leak: {why}" for name, why in removed.items()},
    }
'''
