"""The recipes of stage 5's first half: the split, the preparation of the features, and the candidates."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.comparison_code import COMPARISON, SCORES, SIZES
from detent.flows.notebook.recipes.feature_code import FEATURES
from detent.flows.notebook.recipes.leakage_code import COMBINATIONS, SINGLE_COLUMNS, SPLIT_CHECKS
from detent.flows.notebook.recipes.methodology import HIGHER_IS_BETTER, primary_metric
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted
from detent.flows.notebook.recipes.search_code import CANDIDATES
from detent.flows.notebook.recipes.split_code import SPLIT

# -- feature_engineering_integration ------------------------------------------------------------------------


def feature_engineering_integration(kitchen: Kitchen) -> Recipe:
    """Hold rows out, take leaks out, and set up the preparation of the features."""
    slots = {
        "KEEP": literal(list(kitchen.problem.keep)),
        # A retry goes on without the search for combinations if that is what raised.
        "COMBINE": attempted(kitchen, "columns_that_combine(others, y)", '([], "")'),
    }
    return Recipe(
        lead="The rows are split **once**. The exploration has looked at all of them, but no model was fitted "
        "to the held-out ones or chosen by them. Everything that is fitted (medians, scales, encodings) is "
        "fitted inside a pipeline, on training rows alone; the training rows also decide whether the "
        "target's logarithm is modelled and classes are weighted. Rows that belong together stay on one "
        "side.\n\n"
        "Then the training rows are searched for columns that give the target away: copies of it in another "
        "unit, its labels in other words, columns that add up to it. A model that leans on them would shine "
        "here and fail later, so they are left out, each with its reason.",
        code=cell(
            _FEATURE_IMPORTS,
            fill(_FEATURE_FACTS, slots),
            SPLIT,
            FEATURES,
            SINGLE_COLUMNS,
            COMBINATIONS,
            ATTEMPT if kitchen.iteration > 1 else "",
            fill(_TAKE_OUT, slots),
            SPLIT_CHECKS,
            _FEATURE_INTEGRATION,
        ),
        result=_FEATURE_RESULT,
    )


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
    GroupShuffleSplit,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler
"""

_FEATURE_FACTS = """
KEEP = <<KEEP>>  # columns that stay among the features at the user's wish, leak or not
IS_CLASSIFICATION = task_type == "classification"
UNIVARIATE_SCORE = f_classif if IS_CLASSIFICATION else f_regression
split = evaluation_framework["split"]
"""

_TAKE_OUT = r'''
def reason_of(name, together, how):
    """Why a column of a combination is left out."""
    others = ", ".join(repr(other) for other in together if other != name)
    return f"together with {others}: {how}" if others else how


def take_out_leaks(X, y):
    """Columns to take out with the reason of each, those that stay at the user's wish, and what cannot go."""
    removed, kept = {}, {}
    while True:
        found = columns_that_explain(X, y)
        kept.update({name: why for name, why in found.items() if name in KEEP})
        found = {name: why for name, why in found.items() if name not in KEEP}
        if not found:
            others = X.drop(columns=[name for name in kept if name in X])
            together, how = <<COMBINE>>
            found = {name: reason_of(name, together, how) for name in together if name not in KEEP}
            if together and not found:
                kept.update(dict.fromkeys(together, how))
                continue
        if not found or len(found) == X.shape[1]:
            return (
                removed,
                kept,
                [f"{name!r}: {why}; no other feature is left" for name, why in found.items()],
            )
        removed.update(found)
        X = X.drop(columns=list(found))
'''

_FEATURE_INTEGRATION = r"""
features = [
    name
    for kind in ("numeric", "categorical", "datetime", "text")
    for name in feature_engineering_strategy[kind]
    if name in df_typed.columns and name != target_column
]
if split["kind"] == "group" and split["column"] in features and split["column"] not in KEEP:
    features.remove(split["column"])  # it names the group, and new rows come from other groups

# The split is drawn once, before a model is fitted.
units, unit_reason = rows_that_belong_together(features)
train_index, test_index = split_rows(units, evaluation_framework["test_size"], evaluation_framework["seed"])
X_train, X_test = df_typed.loc[train_index, features], df_typed.loc[test_index, features]
y_train, y_test = df_typed.loc[train_index, target_column], df_typed.loc[test_index, target_column]

# Leaks are looked for among the training rows alone; a column that leaks is left out on both sides.
removed, kept_leaks, remaining = take_out_leaks(X_train, y_train)
X_train, X_test = X_train.drop(columns=list(removed)), X_test.drop(columns=list(removed))

encoded_columns = encoded_width(X_train)
KEEP_BEST = 200 if encoded_columns > 500 else None  # a univariate filter inside the pipeline
feature_pipeline = build_features(X_train, keep_best=KEEP_BEST).fit(X_train, y_train)
encoded_columns = KEEP_BEST or encoded_columns

equal_rows = int(row_identity([*features, target_column]).duplicated().sum())
lonely_classes = int((y_train.value_counts() == 1).sum()) if IS_CLASSIFICATION else 0
changed = X_train.columns[
    [not X_train[name].equals(df_typed.loc[train_index, name]) for name in X_train.columns]
]
leakage_report = {
    "leaks": remaining + leaks_of_the_split(X_train, X_test),
    "removed": removed,
    "kept": kept_leaks,
    "checks": [
        {
            "check": "rows that are training and hold-out rows at once",
            "result": int(train_index.isin(test_index).sum()),
        },
        {"check": "rows that equal an earlier row", "result": equal_rows},
        {"check": "what stays on one side of the split", "result": unit_reason},
        {"check": "target among the features", "result": target_column in X_train.columns},
        {
            "check": "columns that tell the target, alone or together",
            "result": len(removed) + len(kept_leaks) + len(remaining),
        },
        {"check": "columns changed before the split", "result": len(changed)},
    ],
}

share = len(X_test) / len(df_typed)
print(
    f"{len(X_train):,} training rows, {len(X_test):,} hold-out rows ({share:.1%}), {split['kind']} split of "
    f"{unit_reason}"
)
for kind, names in columns_by_kind(X_train).items():
    print(f"{kind:>12}  {len(names):,} columns")
print(f"{'encoded':>12}  {encoded_columns:,} columns")
for name, why in removed.items():
    print(f"left out as a leak: {name!r}: {why}")
for name, why in kept_leaks.items():
    print(f"kept as asked, though a leak: {name!r}: {why}")
print("leaks that remain:", leakage_report["leaks"] or "none")
"""

_FEATURE_RESULT = r"""
(
    f"**{len(X_test):,} of {len(df_typed):,} rows** ({len(X_test) / len(df_typed):.1%}) are held out, drawn "
    f"once by a {split['kind']} split"
    + (f" by {code_name(split['column'])}" if split["column"] else "")
    + ", and stay closed until the hold-out evaluation. "
    + (f"{counted(equal_rows, 'row')} equal an earlier one; " if equal_rows else "")
    + f"what stays on one side: {' '.join(unit_reason.split())}. "
    + (
        f"{counted(lonely_classes, 'class', 'classes')} with a single row stay among the training rows. "
        if lonely_classes
        else ""
    )
    + f"{counted(X_train.shape[1], 'feature')} become {counted(encoded_columns, 'encoded column')} inside "
    "the pipeline"
    + (", the best by a univariate filter. " if KEEP_BEST else ". ")
    + (
        "Taken out as leaks:\n\n"
        + "\n".join(f"- {code_name(name)}: {' '.join(why.split())}" for name, why in removed.items())
        + "\n\n"
        if removed
        else "No column gives the target away, alone or together with others. "
    )
    + (f"Kept as asked, although they leak: {listing(kept_leaks)}. " if kept_leaks else "")
    + (
        "**Leaks that remain:** " + "; ".join(leakage_report["leaks"]) + "."
        if leakage_report["leaks"]
        else "No leak is left."
    )
)
"""


# -- method_integration -------------------------------------------------------------------------------------


def method_integration(kitchen: Kitchen) -> Recipe:
    """Cross-validate the candidates and a baseline."""
    slots = {
        "JOBS": literal(kitchen.settings.jobs if kitchen.iteration < 3 else 1),
        # A retry compares on fewer rows: time or memory ran out.
        "CELLS": literal({1: 2_400_000, 2: 800_000}.get(kitchen.iteration, 200_000)),
        "FOLDS": attempted(kitchen, "cross_validated(model, X_study, y_study)", "pd.DataFrame()"),
    }
    return Recipe(
        lead="Which kind of model suits these data? Each candidate is a whole pipeline, so every fold "
        "learns its own medians, scales and encodings. A baseline that ignores the features shows what a "
        "score is worth. Gradient boosting with its defaults is always among the candidates: whatever is "
        "tuned later has to beat it on the same folds."
        + (
            ""
            if primary_metric(kitchen.problem) in HIGHER_IS_BETTER
            else " Errors are compared by the mean of their logarithms, so that no hard fold decides alone."
        ),
        code=cell(
            _CANDIDATE_IMPORTS,
            fill(_CANDIDATE_FACTS, slots),
            SCORES,
            SIZES,
            COMPARISON,
            CANDIDATES,
            ATTEMPT if kitchen.iteration > 1 else "",
            fill(_CANDIDATE_COMPARISON, slots),
        ),
        result=_CANDIDATE_RESULT,
    )


_CANDIDATE_IMPORTS = """
from joblib import parallel_config
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.metrics import (
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    precision_recall_fscore_support,
)
from sklearn.model_selection import cross_validate
from threadpoolctl import threadpool_limits
"""

_CANDIDATE_FACTS = r"""
N_JOBS = <<JOBS>>
# Cells of the encoded table that comparison, search and final fit may take, and the work of a search.
STUDY_CELLS, SEARCH_CELLS, FINAL_CELLS, SEARCH_WORK = <<CELLS>>, 600_000, 30_000_000, 60
PRIMARY = evaluation_framework["primary_metric"]
HIGHER_IS_BETTER = evaluation_framework["higher_is_better"]
FOLDS = evaluation_framework["folds"]
LABELS = sorted(df_typed[target_column].unique().tolist()) if IS_CLASSIFICATION else []
# Decided by the training rows: the held-out ones have no say in how the model is made.
LOG_TARGET = bool(
    feature_engineering_strategy["log_target"]
    and not IS_CLASSIFICATION
    and (y_train >= 0).all()
    and y_train.skew() > 1
)
# Weights help to find rare classes; they distort the probabilities, and cost hits where every row counts alike.
JUDGED_BY = {PRIMARY, *(limit["metric"] for limit in problem_thresholds)}
CLASS_WEIGHT = (
    "balanced"
    if IS_CLASSIFICATION
    and not JUDGED_BY <= {"accuracy", "log_loss", "precision"}
    and y_train.value_counts(normalize=True).min() < 0.2
    else None
)

LINEAR = "LogisticRegression" if IS_CLASSIFICATION else "Ridge"
FOREST, BOOSTING, DEFAULTS = "RandomForest", "HistGradientBoosting", "HistGradientBoosting with defaults"
# One thread per fit: small fits gain nothing from more, and sums come out the same on every machine.
threadpool_limits(limits=1)
"""

_CANDIDATE_COMPARISON = r"""
study_rows = some_rows(STUDY_CELLS)
X_study, y_study = X_train.loc[study_rows], y_train[study_rows]
if IS_CLASSIFICATION:
    baseline = DummyClassifier(strategy="most_frequent", random_state=RANDOM_STATE)
else:
    baseline = DummyRegressor(strategy=evaluation_framework["baseline"])

baseline_folds = cross_validated(baseline, X_study, y_study)
baseline_metrics = {**baseline_folds.mean().to_dict(), "n": len(y_study)}
candidates, candidate_folds = {}, {}
for name, model in make_candidates().items():
    folds = <<FOLDS>>
    if len(folds):
        candidates[name], candidate_folds[name] = model, folds
trained_models = {
    name: for_rows(model, len(X_study)).fit(X_study, y_study) for name, model in candidates.items()
}
training_history = [
    {
        "model": name,
        **folds.mean().to_dict(),
        f"{PRIMARY}_sd": float(folds[PRIMARY].std()),
        "rows": len(y_study),
    }
    for name, folds in {"Baseline": baseline_folds, **candidate_folds}.items()
]

print(f"{FOLDS} folds of {len(X_study):,} training rows (of {len(X_train):,})")
print(f"logarithm of the target: {LOG_TARGET}, class weights: {CLASS_WEIGHT}, processes: {jobs_for(X_study)}")
for entry in training_history:
    print(f"{entry['model']:<36} {PRIMARY} {entry[PRIMARY]:.6g} ± {entry[PRIMARY + '_sd']:.3g}")
"""

_CANDIDATE_RESULT = r"""
(
    markdown_table(
        [
            {
                "model": entry["model"],
                f"{PRIMARY}, mean of {FOLDS} folds": entry[PRIMARY],
                "± sd": entry[f"{PRIMARY}_sd"],
            }
            for entry in training_history
        ]
    )
    + f"\n\n**{best_names(candidate_folds)[0]}** is ahead with {PRIMARY} "
    f"{short(candidate_folds[best_names(candidate_folds)[0]][PRIMARY].mean())}; the baseline, which knows "
    f"no feature, has {short(baseline_metrics[PRIMARY])}."
    + (
        f" The models were compared on {len(X_study):,} of the {len(X_train):,} training rows, drawn at "
        "random."
        if len(X_study) < len(X_train)
        else ""
    )
)
"""
