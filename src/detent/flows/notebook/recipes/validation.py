"""The recipes of stage 6: the folds, the hold-out, other times and other groups."""

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
        lead="How much does the score hang on which rows are trained with? The final model's settings are "
        "trained anew in each of the framework's folds and scored on the rows left out. The spread of the "
        "folds says how far a single score may be trusted. The hold-out has no part in this.",
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
    f"Over {counted(len(cv_scores), 'fold')} of {len(X_study):,} training rows the final model reaches "
    f"{PRIMARY} **{short(cv_mean)} ± {short(cv_spread)}**, from {short(min(cv_scores))} to "
    f"{short(max(cv_scores))}; the baseline has {short(baseline_metrics[PRIMARY])}. "
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
        + ". Nothing was fitted, chosen or tuned with these rows, so this is the score to expect on new "
        "rows of the same kind. Drawing the held-out rows again and again, with repeats, shows how much "
        "of it is chance.",
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
times = int(np.clip(2_000_000 / len(y_test) / max(1, len(LABELS)), 100, 500) * <<MORE>>)
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
        f"{name:>18}  {test_performance[name]:.6g}  [{low:.6g}, {high:.6g}]  baseline "
        f"{baseline_performance[name]:.6g}"
    )
"""

_HOLDOUT_RESULT = r"""
(
    f"On **{len(y_test):,} rows that the model had never seen**, {PRIMARY} is "
    f"**{short(test_performance[PRIMARY])}** (95 % interval {short(holdout_interval[PRIMARY][0])} to "
    f"{short(holdout_interval[PRIMARY][1])}); the folds had {short(cv_metrics[PRIMARY])}, the baseline has "
    f"{short(baseline_performance[PRIMARY])} here.\n\n"
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
    + (
        "\n\nThe held-out rows come right after the training rows in time. **The score holds for such rows "
        "only**; further ahead the error can be much larger."
        if evaluation_framework["split"]["kind"] == "time"
        else ""
    )
    + (
        f"\n\nF1, precision, recall and AUC are those of the positive class, {code_name(LABELS[1])}."
        if IS_CLASSIFICATION and len(LABELS) == 2
        else ""
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
        lead="Does the model hold for later rows? Where the table has dates, the same settings are trained "
        "on the earlier four fifths of the training rows and scored on the last fifth. A score much below "
        "that of the folds means that things change over time.",
        code=cell(_ELSEWHERE, ATTEMPT if kitchen.iteration > 1 else "", fill(_TEMPORAL, slots)),
        result=_TEMPORAL_RESULT,
    )


_ELSEWHERE = r'''
def scores_elsewhere(train, valid):
    """Scores of the final settings and the baseline, trained on some training rows and scored on others."""
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
    f"Trained on the training rows before {temporal_validation_report['begin']} "
    f"({code_name(temporal_validation_report['column'])}) and scored on the "
    f"{temporal_validation_report['scored_rows']:,} later ones, {PRIMARY} is "
    f"**{short(temporal_validation_report[PRIMARY])}**; the folds had "
    f"{short(temporal_validation_report['folds'])}, the baseline has "
    f"{short(temporal_validation_report['baseline'])} on these rows."
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
        lead="Does the model hold for groups it has not met? Where rows belong to groups, each group of the "
        "training rows is left out once: the model is trained on the others and scored on it. More than ten "
        "groups are put together into five parts.",
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
