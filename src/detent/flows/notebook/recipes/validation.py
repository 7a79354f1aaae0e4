"""The recipes of stage 6: the folds, the hold-out, other times, other groups, and what the error means."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.evaluation_charts import CLASS_CHARTS, FOLD_CHART, REGRESSION_CHARTS
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- cross_validation_assessment ----------------------------------------------------------------------------


def cross_validation_assessment(kitchen: Kitchen) -> Recipe:
    """Score the final model's recipe fold by fold."""
    slots = {"DRAW": attempted(kitchen, "draw_folds(fold_scores)", "None")}
    return Recipe(
        lead="How much does the score hang on which rows are trained with? The final model's settings are trained "
        "anew in each of the framework's folds and scored on the rows left out. The spread of the folds says how "
        "far a single score may be trusted. The hold-out has no part in this.",
        code=cell(FOLD_CHART, ATTEMPT if kitchen.iteration > 1 else "", fill(_FOLDS, slots)),
        result=_FOLDS_RESULT,
    )


_FOLDS = r"""
fold_scores = cross_validated(final_model, X_study, y_study)
cv_scores = [float(score) for score in fold_scores[PRIMARY]]
cv_mean, cv_spread = float(np.mean(cv_scores)), float(np.std(cv_scores, ddof=1))

<<DRAW>>
for number, score in enumerate(cv_scores, 1):
    print(f"fold {number}  {PRIMARY} {score:.6g}")
print(f"mean {cv_mean:.6g}, standard deviation {cv_spread:.3g}, baseline {baseline_metrics[PRIMARY]:.6g}")
"""

_FOLDS_RESULT = r"""
(
    f"Over {counted(len(cv_scores), 'fold')} of {len(X_study):,} training rows the final model reaches {PRIMARY} "
    f"**{short(cv_mean)} ± {short(cv_spread)}**, from {short(min(cv_scores))} to {short(max(cv_scores))}; the baseline "
    f"has {short(baseline_metrics[PRIMARY])}. "
    + (
        "Every fold is better than the baseline."
        if all((score > baseline_metrics[PRIMARY]) == HIGHER_IS_BETTER for score in cv_scores)
        else "**Not every fold is better than the baseline**: some rows are hard to say anything about."
    )
)
"""


# -- holdout_evaluation -------------------------------------------------------------------------------------


def holdout_evaluation(kitchen: Kitchen) -> Recipe:
    """Score the final model on the rows that had no part in making it."""
    looks = 1 + kitchen.backtracks
    slots = {
        "LOOKS": literal(looks),
        "DRAW": attempted(kitchen, "draw_holdout(y_test, predicted)", "None"),
        "MORE": literal(1 if kitchen.iteration == 1 else 0.2),
    }
    regression = kitchen.problem.task == "regression"
    return Recipe(
        lead="Now the hold-out is opened, for the "
        + ("first and only time" if looks == 1 else "second and last time, which the model card will say")
        + ". Nothing was fitted, chosen or tuned with these rows, so this is the score to expect on new rows of the same "
        "kind. Drawing the held-out rows again and again, with repeats, shows how much of it is chance.",
        code=cell(
            REGRESSION_CHARTS if regression else CLASS_CHARTS,
            _INTERVALS,
            ATTEMPT if kitchen.iteration > 1 else "",
            fill(_HOLDOUT, slots),
        ),
        result=_HOLDOUT_RESULT,
    )


_INTERVALS = r'''
def resampled_scores(y, predicted, chances, times):
    """Scores on rows drawn with repeats; whole groups are drawn where the split held groups together."""
    rng = np.random.default_rng(RANDOM_STATE)
    together = pd.factorize(units[y.index])[0]
    places = pd.Series(np.arange(len(y))).groupby(together).apply(np.array)
    rows = []
    for _ in range(times):
        drawn = rng.integers(0, len(places), len(places))
        chosen = np.concatenate([places.iloc[number] for number in drawn])
        some_chances = None if chances is None else chances.iloc[chosen].reset_index(drop=True)
        rows.append(scores_of(y.iloc[chosen], predicted[chosen], some_chances))
    return pd.DataFrame(rows)
'''

_HOLDOUT = r"""
holdout_looks = <<LOOKS>>
predicted = final_model.predict(X_test)
chances = (
    chances_of(final_model, X_test) if IS_CLASSIFICATION and hasattr(final_model, "predict_proba") else None
)
test_performance = {**scores_of(y_test, predicted, chances), "n": len(y_test)}

reference = clone(baseline).fit(X_study, y_study)
baseline_performance = {**all_scores(reference, X_test, y_test), "n": len(y_test)}
times = int(np.clip(2_000_000 / len(y_test) / max(1, len(LABELS)), 100, 1000) * <<MORE>>)
resampled = resampled_scores(y_test, predicted, chances, times)
holdout_interval = {
    name: [float(end) for end in np.nanpercentile(resampled[name], [2.5, 97.5])]
    for name in resampled
    if resampled[name].notna().any()
}

<<DRAW>>
print(f"{len(y_test):,} held-out rows, look {holdout_looks}, intervals of {times} draws")
for name, (low, high) in holdout_interval.items():
    print(
        f"{name:>18}  {test_performance[name]:.6g}  [{low:.6g}, {high:.6g}]  baseline {baseline_performance[name]:.6g}"
    )
"""

_HOLDOUT_RESULT = r"""
(
    f"On **{len(y_test):,} rows that the model had never seen**, {PRIMARY} is **{short(test_performance[PRIMARY])}** "
    f"(95 % interval {short(holdout_interval[PRIMARY][0])} to {short(holdout_interval[PRIMARY][1])}); the folds had "
    f"{short(cv_metrics[PRIMARY])}, the baseline has {short(baseline_performance[PRIMARY])} here.\n\n"
    + "\n".join(
        f"- {limit['metric']} {limit['comparison']} "
        + (short(float(limit["value"])) if limit["value"] != "baseline" else "the baseline")
        + f": {short(test_performance[limit['metric']])}, "
        + ("met" if meets(limit, test_performance, baseline_performance) else "**not met**")
        + (
            "; **undecided**, since the limit lies inside the interval: another sample could say otherwise"
            if limit["value"] != "baseline"
            and limit["metric"] in holdout_interval
            and holdout_interval[limit["metric"]][0] <= limit["value"] <= holdout_interval[limit["metric"]][1]
            else ""
        )
        for limit in problem_thresholds
    )
    + ("" if holdout_looks == 1 else "\n\nThis is the second look at the hold-out; there is no third.")
)
"""


# -- temporal_validation ------------------------------------------------------------------------------------


def temporal_validation(kitchen: Kitchen) -> Recipe:
    """Train on the past, and score on the last fifth, where there is a date."""
    slots = {
        "SCORES": attempted(
            kitchen,
            "scores_elsewhere(when.index[:cut], when.index[cut:])",
            "(None, 'the model could not be trained')",
        )
    }
    return Recipe(
        lead="Does the model hold for later rows? Where the table has dates, the same settings are trained on the "
        "earlier four fifths of the training rows and scored on the last fifth. A score much below that of the folds "
        "means that things change over time.",
        code=cell(_ELSEWHERE, ATTEMPT if kitchen.iteration > 1 else "", fill(_TEMPORAL, slots)),
        result=_TEMPORAL_RESULT,
    )


_ELSEWHERE = r'''
def scores_elsewhere(train, valid):
    """Scores of the final settings and of the baseline, trained on some training rows and scored on others."""
    allowed = some_rows(STUDY_CELLS)
    train = train[train.isin(allowed)]
    if len(train) < 10 or len(valid) < 5 or y_train[train].nunique() < 2:
        return None, f"{len(train)} rows to train with and {len(valid)} to score on are too few"
    model = for_rows(final_model, len(train)).fit(X_train.loc[train], y_train[train])
    reference = clone(baseline).fit(X_train.loc[train], y_train[train])
    figures = {
        PRIMARY: all_scores(model, X_train.loc[valid], y_train[valid])[PRIMARY],
        "baseline": all_scores(reference, X_train.loc[valid], y_train[valid])[PRIMARY],
        "trained_rows": len(train),
        "scored_rows": len(valid),
    }
    return figures, ""
'''

_TEMPORAL = r"""
temporal_validation_report = {"applicable": bool(relevance_report["dates"])}
dated = [name for name in relevance_report["dates"] if name in df_typed.columns]
if dated:
    when = df_typed.loc[X_train.index, dated[0]].dropna().sort_values(kind="stable")
    cut = int(0.8 * len(when))
    figures, reason = <<SCORES>>
    temporal_validation_report["column"] = dated[0]
    if figures:
        temporal_validation_report.update(figures, begin=str(when.iloc[cut]), folds=cv_metrics[PRIMARY])
    else:
        temporal_validation_report["reason"] = reason
elif temporal_validation_report["applicable"]:
    temporal_validation_report["reason"] = "no column with dates is left in the typed table"
else:
    temporal_validation_report["reason"] = "the table has no column with dates"
for entry, value in temporal_validation_report.items():
    print(f"{entry:>14}  {value}")
"""

_TEMPORAL_RESULT = r"""
(
    f"Trained on the training rows before {temporal_validation_report['begin']} ({code_name(temporal_validation_report['column'])}) "
    f"and scored on the {temporal_validation_report['scored_rows']:,} later ones, {PRIMARY} is "
    f"**{short(temporal_validation_report[PRIMARY])}**; the folds had {short(temporal_validation_report['folds'])}, the "
    f"baseline has {short(temporal_validation_report['baseline'])} on these rows."
    if PRIMARY in temporal_validation_report
    else f"Nothing to measure here: {temporal_validation_report['reason']}."
)
"""


# -- domain_generalization ----------------------------------------------------------------------------------


def domain_generalization(kitchen: Kitchen) -> Recipe:
    """Leave one group out at a time, where rows belong to groups."""
    slots = {
        "SCORES": attempted(
            kitchen, "scores_elsewhere(rest, inside)", "(None, 'the model could not be trained')"
        )
    }
    return Recipe(
        lead="Does the model hold for groups it has not met? Where rows belong to groups, each group of the training "
        "rows is left out once: the model is trained on the others and scored on it. More than ten groups are put "
        "together into five parts.",
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_DOMAIN, slots)),
        result=_DOMAIN_RESULT,
    )


_DOMAIN = r"""
domain_generalization_report = {"applicable": bool(relevance_report["groups"])}
candidates_for_groups = [name for name in relevance_report["groups"] if name in raw_dataset.columns]
if candidates_for_groups:
    # A column with two to ten groups is left out group by group; else the first column, in five parts.
    belongs = {
        name: raw_dataset.loc[X_train.index, name].dropna().astype(str) for name in candidates_for_groups
    }
    few = [name for name, groups in belongs.items() if 2 <= groups.nunique() <= 10]
    group_column = (few or candidates_for_groups)[0]
    group_of = belongs[group_column]
    if group_of.nunique() > 10:
        part = deal_into_parts(pd.factorize(group_of)[0], np.zeros(len(group_of), dtype=int), 5)
        group_of = pd.Series([f"part {number + 1}" for number in part], index=group_of.index)
    domain_generalization_report.update(column=group_column, groups={}, not_scored={})
    for group in sorted(group_of.unique()):
        inside, rest = group_of.index[group_of == group], group_of.index[group_of != group]
        figures, reason = <<SCORES>>
        if figures:
            domain_generalization_report["groups"][group] = figures
        else:
            domain_generalization_report["not_scored"][group] = reason
else:
    domain_generalization_report["reason"] = "no column names groups of rows"
for entry, value in domain_generalization_report.items():
    print(f"{entry:>12}  {value}")
"""

_DOMAIN_RESULT = r"""
(
    f"By {code_name(domain_generalization_report['column'])}, {PRIMARY} on each group left out:\n\n"
    + markdown_table(
        [
            {
                "group": group,
                PRIMARY: figures[PRIMARY],
                "baseline": figures["baseline"],
                "rows": figures["scored_rows"],
            }
            for group, figures in domain_generalization_report["groups"].items()
        ]
    )
    + f"\n\nThe folds had {short(cv_metrics[PRIMARY])}."
    if domain_generalization_report.get("groups")
    else "Nothing to measure here: "
    + domain_generalization_report.get("reason", "no group has enough rows on both sides")
    + "."
)
"""


# -- business_impact_assessment -----------------------------------------------------------------------------


def business_impact_assessment(kitchen: Kitchen) -> Recipe:
    """Say what the error means, against the baseline and the limits."""
    return Recipe(
        lead="What is the score worth to the person who asked? The error is put in the target's own units and held "
        "against the baseline, which knows no feature, and against the limits of the problem. A limit inside the "
        "interval of the hold-out score counts as undecided in words, whatever side the score fell on. All figures "
        "are written to `outputs/metrics.json`.",
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
        f"A prediction is off by **{short(test_performance['mae'])}** on average, in the units of {code_name(target_column)}; "
        f"always answering the {evaluation_framework['baseline'].replace('_', ' ')} would be off by "
        f"{short(baseline_performance['mae'])}. "
        if not IS_CLASSIFICATION
        else f"Of 100 new rows about **{100 * test_performance['accuracy']:.0f}** get their right class; always answering the most "
        f"frequent one would get {100 * baseline_performance['accuracy']:.0f}. With every class counted equally it is "
        f"{100 * test_performance['balanced_accuracy']:.0f} against {100 * baseline_performance['balanced_accuracy']:.0f}. "
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
