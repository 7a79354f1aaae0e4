"""The recipes of stage 4: how features are treated, which models are tried, how they are judged."""

# What later stages read of these variables, with their exact keys:
#
# relevance_report (stage 1)    {"usable_features": [column], "excluded": {column: reason},
#                                "dates": [column], "groups": [column]}
# problem_thresholds (stage 1)  [{"metric": "rmse", "comparison": "<", "value": 25000.0}, ...]; where the
#                               problem sets none, the primary metric with "<" or ">" and "baseline"
# processing_pipeline_doc (2)   {"steps": [...], "rules": {...}, ...}: the rules of column_typing.py
# feature_engineering_strategy  {"numeric": [column], "categorical": [column], "datetime": [column],
#                                "text": [column], "left_out": {column: reason}, "log_target": bool},
#                               where log_target says that training rows may decide for it
# model_method_candidates       [{"name": "Ridge", "family": "linear", "why": words}, ...]: Ridge,
#                               LogisticRegression, RandomForest, HistGradientBoosting, LightGBM, XGBoost
# evaluation_framework          {"primary_metric": "rmse", "balanced_accuracy" or the first limit's metric,
#                                "higher_is_better": bool, "folds": int, "why": words,
#                                "split": {"kind": "shuffled" | "stratified" | "group" | "time",
#                                          "column": column or None},
#                                "test_size": float, "seed": int,
#                                "baseline": "mean" | "median" | "most_frequent",
#                                "thresholds": problem_thresholds}

from __future__ import annotations

from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

HIGHER_IS_BETTER = {"accuracy", "auc", "balanced_accuracy", "f1", "precision", "r2", "recall"}

# -- method_proposal ----------------------------------------------------------------------------------------


def method_proposal(kitchen: Kitchen) -> Recipe:
    """Decide how each kind of column is treated, and which models are tried."""
    slots = {
        "FEATURES": attempted(
            kitchen,
            '[name for name in relevance_report["usable_features"] if name in df_typed.columns]',
            "[name for name in df_typed.columns if name != target_column]",
        ),
        "EXCLUDED": attempted(kitchen, 'dict(relevance_report["excluded"])', "{}"),
        "DROPPED": attempted(
            kitchen,
            'dimension_report["dropped_columns"] | validity_report["dropped_columns"]',
            '{name: "dropped" for name in raw_dataset.columns if name not in df_typed.columns}',
        ),
        "KEEP": literal(list(kitchen.problem.keep)),
        "CANDIDATES": _REGRESSORS if kitchen.problem.task == "regression" else _CLASSIFIERS,
        "CAUTIOUS": _CAUTIOUS if kitchen.iteration > 2 else "",
    }  # fmt: skip
    return Recipe(
        lead=(
            "How will the features be treated, and which models are tried? The treatment follows from "
            "the kind of a column, and all of it is fitted inside the model's pipeline, on training rows "
            "only: numbers get their median where they are missing and are scaled, categories become "
            "indicator columns with rare levels grouped, dates become year, month and weekday, prose "
            "becomes weighted terms. The candidates differ in what they can see, so that their "
            "comparison says something about the data as well."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_PROPOSAL, slots)),
        result=_PROPOSAL_RESULT,
    )


_REGRESSORS = r"""
model_method_candidates = [
    {
        "name": "Ridge",
        "family": "linear",
        "why": "a straight relation, and steady where features say nearly the same",
    },
    {
        "name": "RandomForest",
        "family": "bagged trees",
        "why": "curved relations and interactions, and hard to upset by outliers",
    },
    {
        "name": "HistGradientBoosting",
        "family": "boosted trees",
        "why": "usually the most accurate on tables, and copes with gaps by itself",
    },
]
"""

_CLASSIFIERS = r"""
model_method_candidates = [
    {
        "name": "LogisticRegression",
        "family": "linear",
        "why": "straight borders between classes, and probabilities that can be read",
    },
    {
        "name": "RandomForest",
        "family": "bagged trees",
        "why": "curved borders and interactions, and hard to upset by outliers",
    },
    {
        "name": "HistGradientBoosting",
        "family": "boosted trees",
        "why": "usually the most accurate on tables, and copes with gaps by itself",
    },
]
"""

_CAUTIOUS = r"""
kinds["numeric"] = [name for name in kinds["numeric"] if df_typed[name].notna().any()]
kinds["text"], kinds["categorical"] = (
    [],
    kinds["categorical"] + kinds["text"],
)  # prose as categories: fewer parts
"""

_PROPOSAL = r'''
candidate_features = <<FEATURES>>
kinds = column_groups(df_typed[candidate_features])
<<CAUTIOUS>>
excluded = <<EXCLUDED>>
dropped = <<DROPPED>>
feature_engineering_strategy = {
    **kinds,
    "left_out": {
        name: reason
        for name, reason in {**excluded, **dropped}.items()
        if name not in candidate_features
    },
    # Whether the logarithm is modelled is decided by the training rows alone, once they are drawn.
    "log_target": task_type == "regression",
}

<<CANDIDATES>>


def installed_boosting_library():
    """A library made for boosting, if one is installed here."""
    try:
        import lightgbm
    except ImportError:
        pass
    else:
        return "LightGBM"
    try:
        import xgboost
    except ImportError:
        return None
    return "XGBoost"


library = installed_boosting_library()
if library:
    why = "a library made for boosting, installed here"
    model_method_candidates.append({"name": library, "family": "boosted trees", "why": why})

for kind in ("numeric", "categorical", "datetime", "text"):
    print(f"{kind:>12}  {len(kinds[kind]):,} columns")
pd.DataFrame(model_method_candidates)
'''

_PROPOSAL_RESULT = r"""
(
    f"{counted(len(candidate_features), 'feature')} to go in: "
    f"{len(feature_engineering_strategy['numeric']):,} numeric, "
    f"{len(feature_engineering_strategy['categorical']):,} categorical, "
    f"{counted(len(feature_engineering_strategy['datetime']), 'date')} and "
    f"{counted(len(feature_engineering_strategy['text']), 'text')}; left out: "
    f"{counted(len(feature_engineering_strategy['left_out']), 'column')}. "
    + (
        "The target's logarithm is modelled if the training rows, which are not drawn yet, have a skew "
        "above 1 and no negative value. "
        if feature_engineering_strategy["log_target"]
        else ""
    )
    + "Candidates:\n\n"
    + "\n".join(
        f"- **{method['name']}** ({method['family']}): {method['why']}"
        for method in model_method_candidates
    )
)
"""


# -- training_evaluation_strategy ---------------------------------------------------------------------------


def training_evaluation_strategy(kitchen: Kitchen) -> Recipe:
    """Decide how models are compared and judged."""
    reading, settings = kitchen.problem, kitchen.settings
    metric = primary_metric(reading)
    kind = reading.split.kind
    slots = {
        "METRIC": literal(metric),
        "HIGHER": literal(metric in HIGHER_IS_BETTER),
        "KIND": literal("stratified" if reading.task == "classification" and kind == "shuffled" else kind),
        "COLUMN": literal(reading.split.column),
        "TEST_SIZE": literal(settings.test_size),
        "SEED": literal(settings.seed),
        "BASELINE": literal(baseline_answer(reading.task, metric)),
        "WHY": literal(reading.split.why or _WHY[kind]),
        "FOLDS": attempted(kitchen, "number_of_folds()", "3"),
    }
    return Recipe(
        lead=_evaluation_lead(reading),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_EVALUATION, slots)),
        result=_EVALUATION_RESULT,
    )


def primary_metric(reading: ProblemReading) -> str:
    """The metric that models are compared by: the first one asked for."""
    if reading.thresholds:
        return reading.thresholds[0].metric
    return "rmse" if reading.task == "regression" else "balanced_accuracy"


def baseline_answer(task: str, metric: str) -> str:
    """The constant answer that is best by the metric: a model has to beat that one."""
    if task == "classification":
        return "most_frequent"
    return "median" if metric in ("mae", "mape") else "mean"


_WHY = {
    "shuffled": "the rows are taken to be independent of each other",
    "stratified": "the rows are taken to be independent, and each part gets its share of every class",
    "group": "rows of one group resemble each other, and groups not seen before are to be predicted",
    "time": "later rows are to be predicted from earlier ones",
}


def _evaluation_lead(reading: ProblemReading) -> str:
    how = {
        "shuffled": "rows are drawn at random",
        "stratified": "rows are drawn at random, with the same share of each class on both sides",
        "group": "whole groups are held out, never a part of one",
        "time": "the latest rows are held out",
    }[reading.split.kind]
    return (
        "How will the models be judged? By one primary metric, on folds of the training rows while "
        "anything is still "
        f"being decided, and at the very end on a hold-out: {how}. The hold-out is drawn once, by "
        "the seed of this "
        "notebook, and neither seed nor split is ever searched. A baseline that knows only the "
        "target shows what a "
        "score is worth."
    )


_EVALUATION = r'''
def number_of_folds():
    """Five, or fewer where groups, rows or classes are few."""
    if split["kind"] == "group":
        return max(2, min(5, int(df_typed[split["column"]].nunique() * (1 - TEST_SIZE))))
    if len(df_typed) >= 100:
        return 5
    if task_type == "regression":
        return 3
    counts = df_typed[target_column].value_counts()
    smallest = int(
        counts[counts > 1].min() * (1 - TEST_SIZE)
    )  # each class at least twice in each fold
    return max(2, min(3, smallest // 2))


TEST_SIZE = <<TEST_SIZE>>
split = {"kind": <<KIND>>, "column": <<COLUMN>>}
evaluation_framework = {
    "primary_metric": <<METRIC>>,
    "higher_is_better": <<HIGHER>>,
    "folds": <<FOLDS>>,
    "split": split,
    "why": <<WHY>>,
    "test_size": TEST_SIZE,
    "seed": <<SEED>>,
    "baseline": <<BASELINE>>,
    "thresholds": problem_thresholds,
}
for entry, value in evaluation_framework.items():
    print(f"{entry:>16}  {value}")
'''

_EVALUATION_RESULT = r"""
(
    f"The primary metric is **{evaluation_framework['primary_metric']}**, "
    f"{'higher' if evaluation_framework['higher_is_better'] else 'lower'} is better. "
    f"{evaluation_framework['folds']} folds of about "
    f"{len(df_typed) * (1 - evaluation_framework['test_size']) / evaluation_framework['folds']:,.0f} "
    "rows serve for "
    f"comparison and search; about {len(df_typed) * evaluation_framework['test_size']:,.0f} rows are "
    "held out "
    f"({evaluation_framework['split']['kind']} split, because {evaluation_framework['why'].rstrip('.')})."
)
"""


# -- methodology_consolidation ------------------------------------------------------------------------------


def methodology_consolidation(kitchen: Kitchen) -> Recipe:
    """Write the method down in one document."""
    slots = {
        "WARNINGS": literal(list(kitchen.problem.warnings)),
        "ADVICE": attempted(kitchen, "list(modeling_recommendations)", "[]"),
        "SOURCES": attempted(kitchen, "listing(raw_dataset.columns, 12)", '"see the data"'),
    }
    return Recipe(
        lead=(
            "The method in one document, complete before the first model is trained. Every result can "
            "later be held against what was planned."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_METHODOLOGY, slots)),
        result=_METHODOLOGY_RESULT,
    )


_METHODOLOGY = r"""
strategy, framework = feature_engineering_strategy, evaluation_framework
sources = <<SOURCES>>
treatment = {
    "numeric": "median where missing, scaled",
    "categorical": "most frequent where missing, indicator columns, rare levels grouped, unknown "
    "levels ignored",
    "datetime": "year, month and weekday",
    "text": "TF-IDF of up to 100 terms",
}
methodology_document = "\n".join(
    [
        "# Method",
        "",
        f"**Question.** {' '.join(user_problem.split())}",
        "",
        f"**Data.** {len(df_typed):,} rows and {df_typed.shape[1]:,} columns: {sources}.",
        "",
        f"**Task.** {task_type} of {code_name(target_column)}"
        + (
            ", modelled as its logarithm if the training rows have a skew above 1 and no negative value."
            if strategy["log_target"]
            else "."
        ),
        "",
        "## Features",
        *(
            f"- {kind}: {counted(len(strategy[kind]), 'column')} ({listing(strategy[kind], 5)}), {how}"
            for kind, how in treatment.items()
            if strategy[kind]
        ),
        *(
            f"- left out: {code_name(name)}, {reason}"
            for name, reason in strategy["left_out"].items()
        ),
        "",
        "## Candidates",
        *(
            f"- {method['name']} ({method['family']}): {method['why']}"
            for method in model_method_candidates
        ),
        "",
        "## Evaluation",
        f"- primary metric {framework['primary_metric']}, {framework['folds']} folds, "
        f"hold-out of {framework['test_size']:.0%}, {framework['split']['kind']} split",
        f"- why this split: {framework['why']}",
        f"- baseline: always the {framework['baseline'].replace('_', ' ')}",
        *(
            f"- to be met: {limit['metric']} {limit['comparison']} {limit['value']}"
            for limit in problem_thresholds
        ),
        "",
        "## Precautions",
        "- everything that learns from data is fitted inside the pipeline, on training rows only",
        "- features that give the target away are looked for before training, and taken out with "
        "their reason",
        "- the hold-out is scored after all decisions",
        *(f"- {advice}" for advice in <<ADVICE>>),
        *(f"- remark on the problem: {warning}" for warning in <<WARNINGS>>),
    ]
)
print(methodology_document)
"""

_METHODOLOGY_RESULT = r"""
(
    f"The method is fixed: {len(model_method_candidates)} candidates, "
    f"{evaluation_framework['folds']} folds, {len(problem_thresholds)} "
    f"{'limit' if len(problem_thresholds) == 1 else 'limits'} to meet."
)
"""
