"""The recipes that end stage 7: other preparations, the variation as one figure, and the verdict."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- multi_variation_analysis -------------------------------------------------------------------------------


def multi_variation_analysis(kitchen: Kitchen) -> Recipe:
    """Change how features are prepared, and sum up how much the score varies."""
    slots = {
        "THRESHOLD": literal(kitchen.settings.stability_threshold),
        "SCORE": attempted(kitchen, "refitted_score(other, X_rest, y_rest)", "reference_score"),
    }
    return Recipe(
        lead="Do decisions that could have been made otherwise matter? Gaps are filled and numbers scaled "
        "in other ways, and the model is refitted and scored on the same rows as before. How stable it is "
        "in one figure: the standard deviation of the perturbed refits, divided by their mean.",
        code=cell(_VARIATION_IMPORTS, ATTEMPT if kitchen.iteration > 1 else "", fill(_VARIATION, slots)),
        result=_VARIATION_RESULT,
    )


_VARIATION_IMPORTS = """
from sklearn.preprocessing import MinMaxScaler, RobustScaler
"""

_VARIATION = r'''
def prepared_otherwise(model, **how):
    """The model with its features prepared in another way."""
    settings = model.get_params()
    places = [name for name in settings if name == "features" or name.endswith("__features")]
    interacting = {
        place: any(name == "interactions" for name, *_ in settings[place]["columns"].transformers)
        for place in places
    }
    other = {
        place: build_features(X_train, interactions=interacting[place], keep_best=KEEP_BEST, **how)
        for place in places
    }
    return clone(model).set_params(**other)


preparations = {
    "gaps filled with the mean": {"imputing": "mean"},
    "numbers scaled by quartiles": {"scaler": RobustScaler},
    "numbers scaled to 0 to 1": {"scaler": MinMaxScaler},
    "mean and quartiles": {"imputing": "mean", "scaler": RobustScaler},
}
preparation_scores = {}
for name, how in preparations.items():
    other = prepared_otherwise(final_settings, **how)
    preparation_scores[name] = <<SCORE>>

perturbed = [result["score"] for result in perturbation_test_results]
stability_metrics = {
    "metric": PRIMARY,
    "refits": len(perturbed),
    "mean": float(np.mean(perturbed)),
    "sd": float(np.std(perturbed, ddof=1)),
    "variation_coefficient": float(np.std(perturbed, ddof=1) / abs(np.mean(perturbed)))
    if np.mean(perturbed)
    else float("inf"),
    "threshold": <<THRESHOLD>>,
    "preparations": preparation_scores,
}

figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
everything = {
    result["perturbation"]: result["score"] for result in perturbation_test_results
} | preparation_scores
colours = [BLUE] * len(perturbed) + [ORANGE] * len(preparation_scores)
axis.scatter(list(everything.values()), range(len(everything)), color=colours)
axis.axvline(reference_score, color=GREY, linestyle=":", label="unperturbed")
axis.set_yticks(range(len(everything)), list(everything))
axis.invert_yaxis()
axis.set(title=f"{PRIMARY} of refits", xlabel=f"{PRIMARY} on the rows set aside", ylabel="what was changed")
axis.legend(loc="best")
save_chart(
    figure, "outputs/stability/refits.png", f"{PRIMARY} of refits on perturbed rows and other preparations"
)
for entry, value in stability_metrics.items():
    print(f"{entry:>22}  {value}")
'''

_VARIATION_RESULT = r"""
(
    f"The coefficient of variation over {counted(stability_metrics['refits'], 'refit')} is "
    f"**{stability_metrics['variation_coefficient']:.3f}**, "
    + (
        "below"
        if stability_metrics["variation_coefficient"] < stability_metrics["threshold"]
        else "**not below**"
    )
    + f" {stability_metrics['threshold']:g}. Other preparations give {PRIMARY} from "
    f"{short(min(preparation_scores.values()))} to {short(max(preparation_scores.values()))}, where the "
    f"chosen one has {short(reference_score)}."
)
"""


# -- stability_consolidation --------------------------------------------------------------------------------


def stability_consolidation(kitchen: Kitchen) -> Recipe:
    """Give the verdict on stability, and what would make the model better."""
    slots = {"METRICS": attempted(kitchen, "metrics", "{}")}
    return Recipe(
        lead="The verdict on stability, with its grounds, and what these figures advise to do next. The "
        "stability figures join the others in `outputs/metrics.json`.",
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_CONSOLIDATION, slots)),
        result=_CONSOLIDATION_RESULT,
    )


_CONSOLIDATION = r'''
def farthest_preparation():
    """The preparation that moves the score most, and the score."""
    return max(preparation_scores.items(), key=lambda pair: abs(pair[1] - reference_score))


def certified_words():
    """The verdict in words; a decision that moves the score further than the threshold is named with it."""
    if not certified:
        return "not certified as stable"
    how, score = farthest_preparation()
    if preparation_move <= stability_metrics["threshold"]:
        return "certified as stable"
    return (
        f"stable under resampling; it depends on how features are prepared ({how}: {PRIMARY} "
        f"{short(score)} instead of {short(reference_score)}, a move of {preparation_move:.0%})"
    )


def grounds():
    """What speaks for and against, each with its figure."""
    largest = max(sensitivity_analysis_report, key=lambda entry: abs(entry["change"]))
    how, other = farthest_preparation()
    return [
        f"{stability_metrics['refits']} perturbed refits vary by "
        f"{stability_metrics['variation_coefficient']:.3f} of their mean",
        f"moving a setting changes {PRIMARY} by {abs(largest['change']):.1%} at most ({largest['setting']})",
        f"preparing features otherwise gives {PRIMARY} {short(other)} at the farthest ({how}), where "
        f"{short(reference_score)} was",
    ]


def recommendations():
    """What the figures advise."""
    advice = []
    gap = abs(test_performance[PRIMARY] - cv_metrics[PRIMARY])
    if gap > 2 * cv_spread:
        advice.append(
            f"Hold-out and folds differ by {short(gap)} in {PRIMARY}, more than twice the spread of the "
            "folds: look for rows of the hold-out that differ from the training rows."
        )
    missed = [answer for answer in threshold_verdicts if not (answer["met"] and answer["met_in_folds"])]
    for answer in missed:
        advice.append(
            f"{answer['metric']} {answer['comparison']} {answer['value']} is not reached: more rows or "
            "features that tell more about the target would help most."
        )
    if any(answer["undecided"] for answer in threshold_verdicts):
        advice.append(
            "A limit lies inside the interval of the hold-out score: score the model on more new rows "
            "before relying on it."
        )
    if not stability_metrics["variation_coefficient"] < stability_metrics["threshold"]:
        advice.append(
            "The score hangs on which rows are drawn: collect more rows, or take the mean of several models."
        )
    elsewhere = [temporal_validation_report, *domain_generalization_report.get("groups", {}).values()]
    worse = [
        figures
        for figures in elsewhere
        if PRIMARY in figures and (figures[PRIMARY] <= figures["baseline"]) == HIGHER_IS_BETTER
    ]
    if worse:
        advice.append(
            "On later rows or on groups left out the model does no better than the baseline: train it again "
            "for those."
        )
    if kept_leaks:
        advice.append(
            f"Columns that leak are kept as asked ({', '.join(map(repr, kept_leaks))}): make sure they are "
            "known when predicting."
        )
    gaps = X_train.isna().mean().sort_values(ascending=False)
    if gaps.iloc[0] > 0.3:
        advice.append(
            f"{gaps.index[0]!r} is missing in {gaps.iloc[0]:.0%} of the rows: find out why, and record it "
            "if possible."
        )
    return advice or [
        "Nothing in these figures asks for a change; score the model on new rows from time to time."
    ]


certified = bool(
    stability_metrics["refits"] >= 10
    and stability_metrics["variation_coefficient"] < stability_metrics["threshold"]
)
preparation_move = float(
    abs(farthest_preparation()[1] - reference_score) / (abs(reference_score) or 1.0)
)
stability_certification = {
    "certified": certified,
    "verdict": certified_words(),
    "preparation_move": preparation_move,
    "variation_coefficient": stability_metrics["variation_coefficient"],
    "threshold": stability_metrics["threshold"],
    "refits": stability_metrics["refits"],
    "grounds": grounds(),
}
improvement_recommendations = recommendations()

metrics = {**<<METRICS>>, "stability_metrics": stability_metrics, "certified": certified}
Path("outputs/metrics.json").write_text(
    json.dumps(plain_json(metrics), indent=1), encoding="utf-8", newline="\n"
)
print("verdict:", stability_certification["verdict"])
for line in [*stability_certification["grounds"], *improvement_recommendations]:
    print("-", line)
'''

_CONSOLIDATION_RESULT = r"""
(
    f"The model is **{stability_certification['verdict']}**: coefficient of variation {stability_metrics['variation_coefficient']:.3f} against "
    f"{stability_metrics['threshold']:g}.\n\n"
    + "\n".join(f"- {line}" for line in stability_certification["grounds"])
    + "\n\nAdvice:\n\n"
    + "\n".join(f"- {line}" for line in improvement_recommendations)
)
"""
