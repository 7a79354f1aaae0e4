"""The recipe that ends stage 6: what the error means, and all figures as a file."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe


def business_impact_assessment(kitchen: Kitchen) -> Recipe:
    """Say what the error means, against the baseline and the limits."""
    return Recipe(
        lead="What is the score worth to the person who asked? The error is put in the target's own units "
        "and held against the baseline, which knows no feature, and against the limits of the problem. A "
        "limit inside the interval of the hold-out score counts as undecided in words, whatever side the "
        "score fell on. All figures are written to `outputs/metrics.json`.",
        code=cell(_IMPACT),
        result=_IMPACT_RESULT,
    )


_IMPACT = r'''
def verdict_on(limit):
    """A limit with the scores that answer it."""
    metric, value = limit["metric"], limit["value"]
    low, high = holdout_interval.get(metric, (np.nan, np.nan))
    return {
        **limit,
        "cv": cv_metrics[metric],
        "holdout": test_performance[metric],
        "interval": [low, high],
        "met_in_folds": meets(limit, cv_metrics, baseline_metrics),
        "met": meets(limit, test_performance, baseline_performance),
        "undecided": bool(value != "baseline" and low <= value <= high),
    }


def plain_json(value):
    """A value as JSON can hold it: no figure is NaN or infinite there."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


threshold_verdicts = [verdict_on(limit) for limit in problem_thresholds]
beats_baseline = cv_metrics[PRIMARY] > baseline_metrics[PRIMARY]
if not HIGHER_IS_BETTER:
    beats_baseline = cv_metrics[PRIMARY] < baseline_metrics[PRIMARY]
telling = "balanced_accuracy" if IS_CLASSIFICATION else "mae"
business_impact_report = {
    "beats_baseline": bool(beats_baseline),
    "primary_metric": PRIMARY,
    "folds": {"model": cv_metrics[PRIMARY], "baseline": baseline_metrics[PRIMARY]},
    "holdout": {"model": test_performance[PRIMARY], "baseline": baseline_performance[PRIMARY]},
    "telling_metric": telling,
    "model": test_performance[telling],
    "baseline": baseline_performance[telling],
    "baseline_scores": baseline_performance,
    "positive_class": str(LABELS[1]) if len(LABELS) == 2 else None,
    "limits_met": sum(answer["met"] and answer["met_in_folds"] for answer in threshold_verdicts),
    "limits": len(threshold_verdicts),
}
metrics = {
    "test_performance": test_performance,
    "holdout_interval": holdout_interval,
    "holdout_looks": holdout_looks,
    "cv_metrics": cv_metrics,
    "cv_scores": cv_scores,
    "baseline_metrics": baseline_metrics,
    "baseline_performance": baseline_performance,
    **({"positive_class": str(LABELS[1])} if len(LABELS) == 2 else {}),
    "thresholds": threshold_verdicts,
    "leaks": leakage_report["leaks"],
}
Path("outputs").mkdir(exist_ok=True)
Path("outputs/metrics.json").write_text(
    json.dumps(plain_json(metrics), indent=1), encoding="utf-8", newline="\n"
)
for entry, value in business_impact_report.items():
    print(f"{entry:>15}  {value}")
'''

_IMPACT_RESULT = r"""
(
    (
        f"A prediction is off by **{short(test_performance['mae'])}** on average, in the units of "
        f"{code_name(target_column)}; always answering the "
        f"{evaluation_framework['baseline'].replace('_', ' ')} would be off by "
        f"{short(baseline_performance['mae'])}. "
        if not IS_CLASSIFICATION
        else f"Of 100 new rows about **{100 * test_performance['accuracy']:.0f}** get their right class; "
        f"always answering the most frequent one would get {100 * baseline_performance['accuracy']:.0f}. "
        f"With every class counted equally it is {100 * test_performance['balanced_accuracy']:.0f} against "
        f"{100 * baseline_performance['balanced_accuracy']:.0f}. "
    )
    + (
        "The model beats the baseline in the folds."
        if beats_baseline
        else "**The model does not beat the baseline in the folds.**"
    )
    + "".join(
        f"\n- {answer['metric']} {answer['comparison']} {answer['value']}: "
        + ("met" if answer["met"] and answer["met_in_folds"] else "**not met**")
        + f", {short(answer['cv'])} in the folds and {short(answer['holdout'])} on the hold-out"
        + ("; undecided, within the range of chance" if answer["undecided"] else "")
        for answer in threshold_verdicts
    )
)
"""
