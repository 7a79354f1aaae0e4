"""Code of cells that reports: what was measured, the limits, and whether they are met."""

from __future__ import annotations

# What is read of stages 5 to 7, each "not measured" where it is absent:
#
# cv_metrics, baseline_metrics   {metric: mean over the folds, "n": rows}
# test_performance               {metric: score, "n": rows, "looks": times the hold-out was scored,
#                                 "interval": {metric: [low, high]}}, the interval at 95 %
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


def interval_of(metric):
    """The 95 % interval of a hold-out score, or None."""
    for key in ("interval", "intervals", "interval_95", "confidence_interval"):
        interval = measured("test_performance", key)
        interval = interval.get(metric) if isinstance(interval, dict) else None
        if interval is not None and len(interval) == 2:
            return tuple(float(end) for end in interval)
    return None


def limits_reached():
    """Each limit with the scores that answer it, and the verdict."""
    rows = []
    for limit in problem_thresholds:
        metric, comparison = limit["metric"], limit["comparison"]
        by_baseline = limit["value"] == "baseline"
        value = measured("baseline_metrics", metric) if by_baseline else limit["value"]
        folds, held_out = measured("cv_metrics", metric), measured("test_performance", metric)
        # A limit of the user's is judged on the hold-out; the baseline has to be beaten in the folds.
        score, interval = (
            folds if by_baseline else held_out,
            None if by_baseline else interval_of(metric),
        )
        met = NOT_MEASURED
        if NOT_MEASURED not in (score, value):
            below, above = (
                comparison[0] == "<" and score < value,
                comparison[0] == ">" and score > value,
            )
            met = bool(below or above or ("=" in comparison and score == value))
        rows.append(
            {
                "limit": f"{metric} {comparison} {figure_text(value)}"
                + (" (baseline)" if by_baseline else ""),
                "folds": folds,
                "hold-out": held_out,
                "judged": f"{figure_text(score)} {'in the folds' if by_baseline else 'on the hold-out'}",
                "interval": interval,
                "met": met,
                "undecided": bool(
                    interval and met is not NOT_MEASURED and interval[0] <= value <= interval[1]
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
        answer = {True: "met", False: "**not met**"}.get(
            row["met"], "**not measured**, which does not count as met"
        )
        line = f"{row['limit']}: {row['judged']}, {answer}"
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
        met += {True: "met", False: "not met"}.get(row["met"], NOT_MEASURED)
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
