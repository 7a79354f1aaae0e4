"""Stage 5: the split, the preparation of the features, the candidates and the final model."""

from __future__ import annotations

from detent.flows.notebook.recipes.feature_code import FEATURES
from detent.flows.notebook.recipes.leakage_code import LEAKAGE
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.search_code import CANDIDATES, SCORES, SEARCH, SIZES
from detent.flows.notebook.recipes.split_code import SPLIT
from detent.flows.notebook.recipes.typing_code import APPLYING, LEARNING

_FEATURE_IMPORTS = """
import warnings
from itertools import combinations
from operator import attrgetter, methodcaller

from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_classif, f_regression
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import (
    GroupShuffleSplit, KFold, StratifiedKFold, TimeSeriesSplit, cross_val_score, train_test_split,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler
""".strip()

_FEATURE_BODY = r"""
IS_CLASSIFICATION = task_type == "classification"
UNIVARIATE_SCORE = f_classif if IS_CLASSIFICATION else f_regression
split = evaluation_framework["split"]
share_held_out = evaluation_framework["test_size"]

left_out = dict(feature_engineering_strategy["left_out"])
features = [column for kind in ("numeric", "categorical", "datetime", "text")
            for column in feature_engineering_strategy[kind] if column in df_typed.columns and column != target_column]
if split["kind"] == "group" and split["column"] in features and split["column"] not in KEEP:
    features.remove(split["column"])
    left_out[split["column"]] = "it names the group, and new rows come from other groups"

# The split is drawn once, on values that nothing was fitted to.
units, unit_reason = rows_that_belong_together(features)
train_index, test_index = split_rows(units, share_held_out, evaluation_framework["seed"])
X_train, X_test = df_typed.loc[train_index, features], df_typed.loc[test_index, features]
y_train, y_test = df_typed.loc[train_index, target_column], df_typed.loc[test_index, target_column]

# Leaks are looked for among the training rows alone; a column that leaks is left out on both sides.
removed, kept_leaks, remaining = take_out_leaks(X_train, y_train)
X_train, X_test = X_train.drop(columns=list(removed)), X_test.drop(columns=list(removed))
left_out.update(removed)

encoded_columns = encoded_width(X_train)
KEEP_BEST = 200 if encoded_columns > 500 else None
feature_pipeline = build_features(X_train, keep_best=KEEP_BEST).fit(X_train, y_train)
if KEEP_BEST:
    encoded_columns = feature_pipeline[:-1].transform(X_train.head(50)).shape[1]
    KEEP_BEST = min(KEEP_BEST, encoded_columns)
    encoded_columns = KEEP_BEST

doubled_rows = int(row_identity([*features, target_column]).duplicated().sum())
single_class_rows = int((y_train.groupby(y_train).transform("size") == 1).sum()) if IS_CLASSIFICATION else 0
leakage_report = {
    "leaks": remaining + leaks_of_the_split(X_train, X_test, y_train, y_test),
    "removed": removed,
    "checks": [
        {"check": "rows that are on both sides of the split", "result": int(train_index.isin(test_index).sum())},
        {"check": "rows equal to another row", "result": doubled_rows},
        {"check": "what is kept on one side of the split", "result": unit_reason},
        {"check": "target among the features", "result": target_column in X_train.columns},
        {"check": "columns that explain the target alone or together", "result": len(removed) + len(remaining)},
        {"check": "leaking columns kept at the user's wish", "result": kept_leaks},
        {"check": "values changed before the split", "result": not X_train.equals(df_typed.loc[train_index, X_train.columns])},
    ],
}

kinds = columns_by_kind(X_train)
print(f"{len(X_train)} training rows and {len(X_test)} hold-out rows ({len(X_test) / len(df_typed):.1%}), split: {split['kind']}")
print("features:", ", ".join(f"{len(columns)} {kind}" for kind, columns in kinds.items() if columns), f"-> {encoded_columns} encoded columns")
for column, reason in removed.items():
    print(f"left out, a leak: {column}: {reason}")
for column, reason in kept_leaks.items():
    print(f"kept as asked, though a leak: {column}: {reason}")
print("leaks that remain:", leakage_report["leaks"] or "none")
""".strip()

_FEATURE_RESULT = r"""
(f"The hold-out has **{len(X_test):,} of {len(df_typed):,} rows** ({len(X_test) / len(df_typed):.1%}); "
 f"it is drawn once ({split['kind']}{', by ' + str(split['column']) if split['column'] else ''}) and stays closed until the "
 f"hold-out evaluation. What is kept on one side: {unit_reason}"
 + (f" ({doubled_rows:,} rows equal another one)" if doubled_rows else "")
 + (f". {single_class_rows} class(es) with a single row stay among the training rows" if single_class_rows else "")
 + f". The {X_train.shape[1]} features become **{encoded_columns} columns** inside the pipeline"
 + (", of which a univariate filter keeps the best 200" if KEEP_BEST else "") + ".\n\n"
 + ("**Taken out as leaks:**\n\n" + "\n".join(f"- `{column}`: {reason}" for column, reason in removed.items()) + "\n\n"
    if removed else "No column gives the target away, alone or together with others.\n\n")
 + ("**Kept as asked, although they leak:** " + ", ".join(f"`{column}`" for column in kept_leaks) + ".\n\n" if kept_leaks else "")
 + ("**Leaks that remain:** " + "; ".join(leakage_report["leaks"]) + "." if leakage_report["leaks"]
    else "After this no leak is left."))
""".strip()


def feature_engineering_integration(kitchen: Kitchen) -> Recipe:
    """Hold rows out, take leaks out, and set up the preparation of the features."""
    settings = f"# Columns that stay among the features at the user's wish, leak or not.\nKEEP = {list(kitchen.problem.keep)!r}"
    return Recipe(
        lead=(
            "The rows are split **once**, before anything is learned from them: everything that is fitted (medians, scales, "
            "encodings) is fitted inside a pipeline, on training rows alone. Rows that belong together stay on one side.\n\n"
            "Then the training rows are searched for columns that give the target away: copies of it in another unit, its "
            "labels in other words, columns that add up to it. A model that leans on them would shine here and fail later, "
            "so they are left out, each with its reason."
        ),
        code="\n\n\n".join((_FEATURE_IMPORTS, settings, SPLIT, FEATURES, LEAKAGE, _FEATURE_BODY)),
        result=_FEATURE_RESULT,
    )


_CANDIDATE_IMPORTS = """
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier, ExtraTreesRegressor, HistGradientBoostingClassifier, HistGradientBoostingRegressor,
    RandomForestClassifier, RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.metrics import (
    accuracy_score, f1_score, mean_absolute_error, mean_absolute_percentage_error, mean_squared_error,
    precision_score, recall_score,
)
from sklearn.model_selection import cross_validate
""".strip()

_CANDIDATE_SETTINGS = r"""
PRIMARY = evaluation_framework["primary_metric"]
HIGHER_IS_BETTER = evaluation_framework["higher_is_better"]
FOLDS = evaluation_framework["folds"]
LABELS = sorted(df_typed[target_column].unique().tolist()) if IS_CLASSIFICATION else []
LOG_TARGET = bool(feature_engineering_strategy["log_target"]) and not IS_CLASSIFICATION and bool((y_train >= 0).all())
CLASS_WEIGHT = "balanced" if IS_CLASSIFICATION and y_train.value_counts(normalize=True).min() < 0.2 else None

LINEAR = "Logistic regression" if IS_CLASSIFICATION else "Ridge regression"
FOREST, BOOSTING, DEFAULTS = "Random forest", "Gradient boosting", "Gradient boosting, defaults"
""".strip()

_CANDIDATE_BODY = r"""
study_rows = some_rows(2_400_000)
X_study, y_study = X_train.loc[study_rows], y_train[study_rows]
if IS_CLASSIFICATION:
    dummy = DummyClassifier(strategy="most_frequent", random_state=RANDOM_STATE)
else:
    dummy = DummyRegressor(strategy=evaluation_framework["baseline"])

candidates = make_candidates()
baseline_folds = cross_validated(dummy, X_study, y_study)
baseline_metrics = {**baseline_folds.mean().to_dict(), "n": len(y_study)}
candidate_folds = {name: cross_validated(for_rows(model, len(X_study)), X_study, y_study) for name, model in candidates.items()}
training_history = [
    {"model": name, **folds.mean().to_dict(), f"{PRIMARY}_sd": float(folds[PRIMARY].std()), "folds": len(folds), "rows": len(y_study)}
    for name, folds in {"Baseline": baseline_folds, **candidate_folds}.items()
]
trained_models = {name: for_rows(model, len(X_study)).fit(X_study, y_study) for name, model in candidates.items()}

print(f"{FOLDS} folds over {len(X_study)} of {len(X_train)} training rows; target learned as its logarithm: {LOG_TARGET}; class weights: {CLASS_WEIGHT}")
for entry in training_history:
    print(f"{entry['model']:<32} {PRIMARY} {entry[PRIMARY]:.6g} ± {entry[PRIMARY + '_sd']:.3g}")
""".strip()

_CANDIDATE_RESULT = r"""
(as_table([{"model": entry["model"], f"{PRIMARY} (mean of {FOLDS} folds)": entry[PRIMARY], "± sd": entry[f"{PRIMARY}_sd"]}
           for entry in training_history])
 + "\n\n" + (lambda best: f"The best candidate so far is **{best['model']}** with {PRIMARY} {best[PRIMARY]:,.4g}; the baseline, which knows "
             f"no feature, has {baseline_metrics[PRIMARY]:,.4g}.")(
     (max if HIGHER_IS_BETTER else min)(training_history[1:], key=lambda entry: entry[PRIMARY]))
 + (f" The candidates were compared on a random sample of {len(X_study):,} of the {len(X_train):,} training rows." if len(X_study) < len(X_train) else ""))
""".strip()


def method_integration(kitchen: Kitchen) -> Recipe:
    """Cross-validate the candidates and a baseline."""
    settings = f"N_JOBS = {kitchen.settings.jobs!r}\n{_CANDIDATE_SETTINGS}"
    return Recipe(
        lead=(
            "Each candidate is a whole pipeline, so every fold learns its own medians, scales and encodings. A baseline that "
            "ignores the features shows what a score is worth. Gradient boosting with its defaults is always among the "
            "candidates: whatever is tuned later has to beat it on the same folds."
        ),
        code="\n\n\n".join((_CANDIDATE_IMPORTS, settings, SCORES, SIZES, CANDIDATES, _CANDIDATE_BODY)),
        result=_CANDIDATE_RESULT,
    )


_TUNING_IMPORTS = """
import json
import re

from scipy.stats import loguniform, randint, uniform
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.model_selection import RandomizedSearchCV
""".strip()

_TUNING_BODY = r'''
def best_names(names, count):
    """The names of the best contenders so far, the best first."""
    return sorted(names, key=lambda name: primary_mean(contender_folds[name]), reverse=HIGHER_IS_BETTER)[:count]


def consider(name, model):
    """Add a contender, judged on the same rows and folds as all others."""
    contenders[name] = model
    contender_folds[name] = cross_validated(for_rows(model, len(X_study)), X_study, y_study)
    print(f"{name:<52} {PRIMARY} {contender_folds[name][PRIMARY].mean():.6g}")


# What was compared so far stays in the race: a tuned model has to beat it.
contenders, contender_folds, searches = dict(candidates), dict(candidate_folds), []
for settings, parts in SEARCHES:
    if parts > 3:  # The wider search begins with more kinds of models.
        consider("Extra trees", model_of(forest_estimator("extra")))
        if columns_by_kind(X_train)["numbers"]:
            consider(f"{LINEAR}, interactions", model_of(linear_estimator(), interactions=True))
            consider(f"{BOOSTING}, interactions", model_of(boosting_estimator(**boosting_settings()), interactions=True))
    tried = affordable(settings, parts)
    for name in best_names([name for name in contenders if name != DEFAULTS and "tuned" not in name], 2):
        searches.append({"model": name, "settings": tried, "folds": parts, "rows": len(some_rows(SEARCH_CELLS))})
        consider(f"{name}, tuned on {tried} settings in {parts} folds", searched(contenders[name], tried, parts))
{ensemble}
winner = best_names(contenders, 1)[0]
cv_metrics = {**contender_folds[winner].mean().to_dict(), "n": len(y_study)}

# The final fit takes all training rows where their number allows it.
final_rows = some_rows(60_000_000)
final_model = for_rows(contenders[winner], len(final_rows)).fit(X_train.loc[final_rows], y_train[final_rows])

chosen = {name.rsplit("model__", 1)[-1]: value for name, value in final_model.get_params().items()
          if "model__" in name and isinstance(value, (int, float, str)) and not isinstance(value, bool)}
best_params = {"model": winner, "rows": len(final_rows), **chosen}

# Saved, loaded again and compared; the rules that type a new table as this one was typed are saved beside it.
Path("models").mkdir(exist_ok=True)
joblib.dump(final_model, "models/model.pkl", compress=3)
loaded = joblib.load("models/model.pkl")
rules, typing_agreement = typing_rules()
Path("models/typing.json").write_text(json.dumps({"target": target_column, "columns": rules}, indent=1), encoding="utf-8")
reload_check = {
    "rows": min(50, len(X_train)),
    "equal": bool((loaded.predict(X_train.head(50)) == final_model.predict(X_train.head(50))).all()),
    "typing_agrees": min(typing_agreement.values()),
}

print(f"chosen: {winner}, {PRIMARY} {cv_metrics[PRIMARY]:.6g} ± {contender_folds[winner][PRIMARY].std():.3g}, fitted on {len(final_rows)} rows")
for threshold in problem_thresholds:
    met = "met" if meets(threshold, cv_metrics, baseline_metrics) else "NOT met"
    print(f"{threshold['metric']} {threshold['comparison']} {threshold['value']}: {cv_metrics[threshold['metric']]:.6g} in the folds, {met}")
print("loaded again:", reload_check)
'''.strip()

_ENSEMBLE = r"""
# The mean of three different models errs less than most of them.
members = [(f"member_{number}", contenders[name]) for number, name in enumerate(best_names(contenders, 3))]
members_are = best_names(contenders, 3)
if IS_CLASSIFICATION:
    consider("Ensemble of the best three", VotingClassifier(members, voting="soft"))
else:
    consider("Ensemble of the best three", VotingRegressor(members))
"""

_TUNING_RESULT = r"""
(as_table([{"model": name, f"{PRIMARY} (mean of {FOLDS} folds)": contender_folds[name][PRIMARY].mean(), "± sd": contender_folds[name][PRIMARY].std()}
           for name in best_names(contenders, 6)])
 + f"\n\nThe final model is **{winner}**, fitted on {len(final_rows):,} training rows. "
 + "; ".join(f"{threshold['metric']} {threshold['comparison']} {threshold['value']}: {cv_metrics[threshold['metric']]:,.4g} in the folds, "
             + ("met" if meets(threshold, cv_metrics, baseline_metrics) else "**not met**") for threshold in problem_thresholds)
 + f". The saved model, loaded again, predicts {'the same' if reload_check['equal'] else 'SOMETHING ELSE'} on {reload_check['rows']} rows; "
 + f"the saved typing rules give back at least {reload_check['typing_agrees']:.2%} of each column.")
""".strip()


def model_training_tuning(kitchen: Kitchen) -> Recipe:
    """Search the settings of the best two, refit the winner on all rows, and save it."""
    attempt = min(3, max(kitchen.iteration, 2 if kitchen.backtracks else 1))
    searches = [(10, 3)] if attempt == 1 else [(10, 3), (25, 5)]
    lead = (
        "The best two candidates are searched for better settings: random draws with a fixed seed, scored in folds of the "
        "training rows. The winner over all candidates, tuned or not, is fitted again on the training rows, saved, loaded "
        "and compared with itself."
    )
    if attempt >= 2:
        lead += (
            " The first search did not reach what was asked for, so this one goes wider: more settings, more folds, extra "
            "trees, and products of the three numbers that say most."
        )
    if attempt == 3:
        lead += " The mean of the best three models joins the contest."
    settings = f"# How many random settings, and in how many folds.\nSEARCHES = {searches!r}"
    body = _TUNING_BODY.replace("{ensemble}", _ENSEMBLE if attempt == 3 else "", 1)
    return Recipe(
        lead=lead,
        code="\n\n\n".join((_TUNING_IMPORTS, settings, SEARCH, APPLYING, LEARNING, body)),
        result=_TUNING_RESULT,
    )
