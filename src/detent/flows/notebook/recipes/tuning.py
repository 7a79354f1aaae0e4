"""The recipe that ends stage 5: the final model, tuned, saved, and loaded again."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.search_code import SEARCH
from detent.flows.notebook.recipes.typing_code import READ_AGAIN, RULES


def model_training_tuning(kitchen: Kitchen) -> Recipe:
    """Search the settings of the best two, refit the winner on all rows, and save it."""
    # After a backtrack the search is the wider one: the standard one missed a limit on the hold-out.
    attempt = min(3, max(kitchen.iteration, 2 if kitchen.backtracks else 1))
    ran_out = kitchen.ran_out > 0
    slots = {
        # What took too long or too much must not be asked for again with more of it.
        "SEARCH": (_SEARCH, _SMALL_SEARCH, "")[min(kitchen.ran_out, 2)],
        "FINAL_CELLS": "STUDY_CELLS" if ran_out else "FINAL_CELLS",
        "WIDER": _WIDER if attempt > 1 and not ran_out else "",
        "ENSEMBLE": _ENSEMBLE if attempt > 2 and not ran_out else "",
    }
    return Recipe(
        lead=_LEAD_AFTER_RUNNING_OUT if ran_out else _LEADS[attempt - 1],
        code=cell(_IMPORTS, SEARCH, READ_AGAIN, RULES, fill(_TUNING, slots), _SAVING),
        result=_RESULT,
    )


_LEADS = (
    "Can better settings do more? The best two candidates are searched by random draws with a fixed seed, "
    "scored in folds of the training rows. The winner over all candidates, tuned or not, is fitted again on "
    "the training rows, saved, loaded and compared with itself. Beside it goes a file that says how a new "
    "table gets its types.",
    "The first search did not reach what was asked for, so this one goes wider: more settings in more "
    "folds, extra trees, and products of the three numbers that tell most. What was tried before stays in "
    "the race.",
    "The most careful attempt: to all that was tried before comes the mean of the three best models, which "
    "errs less than most of them alone.",
)

_LEAD_AFTER_RUNNING_OUT = (
    "Time or memory ran out in the attempt before, so this one asks for less: few settings on few rows, or "
    "none at all. The candidates that were compared stay in the race, and the best of them is fitted again on "
    "as many training rows as the comparison had."
)

_IMPORTS = """
import json

from scipy.stats import loguniform, randint, uniform
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.model_selection import RandomizedSearchCV
"""

_TUNING = r'''
def consider(name, model):
    """Add a contender, judged on the same rows and folds as all others."""
    contenders[name] = model
    contender_folds[name] = cross_validated(model, X_study, y_study)
    print(f"{name:<52} {PRIMARY} {contender_folds[name][PRIMARY].mean():.6g}")


def search_best_two(settings, parts):
    """Search the settings of the two best kinds of model; what comes out are contenders."""
    kinds = {
        name: folds for name, folds in contender_folds.items() if name != DEFAULTS and "tuned" not in name
    }
    for name in best_names(kinds, 2):
        tried = affordable(settings, parts)
        searches.append(
            {"model": name, "settings": tried, "folds": parts, "rows": len(some_rows(SEARCH_CELLS))}
        )
        consider(
            f"{name}, tuned by {tried} settings in {parts} folds", searched(contenders[name], tried, parts)
        )


# What was compared so far stays in the race: whatever is tuned has to beat it.
contenders, contender_folds, searches = dict(candidates), dict(candidate_folds), []
<<SEARCH>>
<<WIDER>>
<<ENSEMBLE>>

# Those that keep every limit in the folds come first; among them the best by the folds.
keeping = {
    name: folds
    for name, folds in contender_folds.items()
    if all(meets(limit, folds.mean(), baseline_metrics) for limit in problem_thresholds)
}
winner = best_names(keeping or contender_folds)[0]
cv_metrics = {**contender_folds[winner].mean().to_dict(), "n": len(y_study)}

# The final fit takes all training rows where their number allows it.
final_rows = some_rows(<<FINAL_CELLS>>)
final_model = for_rows(contenders[winner], len(final_rows)).fit(X_train.loc[final_rows], y_train[final_rows])
best_params = {"model": winner, "rows": len(final_rows), **plain_settings(final_model)}
'''

_SEARCH = """
search_best_two(settings=10, parts=3)
"""

_SMALL_SEARCH = """
SEARCH_CELLS, SEARCH_WORK = SEARCH_CELLS // 4, 0  # the fewest settings, on fewer rows
search_best_two(settings=4, parts=2)
"""

_WIDER = r"""
# The wider search: more kinds of models, more settings, more folds.
consider("ExtraTrees", model_of(forest_estimator("extra")))
if columns_by_kind(X_train)["numbers"]:
    consider(f"{LINEAR} with interactions", model_of(linear_estimator(), interactions=True))
    boosting = boosting_estimator(CLASS_WEIGHT, **boosting_settings())
    consider(f"{BOOSTING} with interactions", model_of(boosting, interactions=True))
search_best_two(settings=25, parts=5)
"""

_ENSEMBLE = """
members = [
    (f"member_{number}", contenders[name]) for number, name in enumerate(best_names(contender_folds, 3))
]
voting = VotingClassifier(members, voting="soft") if IS_CLASSIFICATION else VotingRegressor(members)
consider("Mean of the best three", voting)
"""

_SAVING = r"""
Path("models").mkdir(exist_ok=True)
joblib.dump(final_model, "models/model.pkl", compress=3)
typing_saved = typing_to_save()
Path("models/typing.json").write_text(json.dumps(typing_saved, indent=1), encoding="utf-8", newline="\n")

loaded, sample = joblib.load("models/model.pkl"), X_train.head(50)
agreement = typing_agreement(typing_saved)
reload_check = {
    "rows": len(sample),
    "equal": bool((loaded.predict(sample) == final_model.predict(sample)).all()),
    "typing_agrees": min(agreement.values()),
}

spread = contender_folds[winner][PRIMARY].std()
print(
    f"chosen: {winner}, {PRIMARY} {cv_metrics[PRIMARY]:.6g} ± {spread:.3g}, fitted on {len(final_rows):,} "
    "rows"
)
for limit in problem_thresholds:
    score, met = cv_metrics[limit["metric"]], meets(limit, cv_metrics, baseline_metrics)
    print(
        f"{limit['metric']} {limit['comparison']} {limit['value']}: {score:.6g} in the folds, "
        f"{'met' if met else 'NOT met'}"
    )
for name, same in agreement.items():
    if same < 1:
        print(f"{name!r}: {1 - same:.2%} of its values would be typed differently in a new table")
print("loaded again:", reload_check)
"""

_RESULT = r"""
(
    markdown_table(
        [
            {
                "model": name,
                f"{PRIMARY}, mean of {FOLDS} folds": contender_folds[name][PRIMARY].mean(),
                "± sd": contender_folds[name][PRIMARY].std(),
            }
            for name in best_names(contender_folds, 6)
        ]
    )
    + f"\n\nThe final model is **{winner}**, fitted on {len(final_rows):,} training rows. "
    + " ".join(
        f"{limit['metric']} {limit['comparison']} {limit['value']}: {short(cv_metrics[limit['metric']])} in "
        "the folds, " + ("met." if meets(limit, cv_metrics, baseline_metrics) else "**not met**.")
        for limit in problem_thresholds
    )
    + (f" The search tried {sum(each['settings'] for each in searches):,} settings." if searches else "")
    + " Loaded again, the saved model predicts "
    + ("the same" if reload_check["equal"] else "**something else**")
    + f" for {counted(reload_check['rows'], 'row')}."
)
"""
