"""Tells whether a problem is regression or classification, or neither."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from detent.flows.notebook.domain.column_kinds import column_facts, is_whole
from detent.flows.notebook.domain.column_names import is_id_name
from detent.flows.notebook.domain.metric_words import REGRESSION_METRICS
from detent.flows.notebook.domain.problem import ProblemError, Task, Threshold
from detent.flows.notebook.domain.text_values import is_text, numbers_in_text, present_texts
from detent.flows.notebook.domain.thresholds import metrics_named

if TYPE_CHECKING:
    import pandas as pd

FEWEST_ROWS = 10
MOST_CLASSES = 20
ROWS_PER_CLASS = 10
"""Whole numbers are classes if there are few of them, each in so many rows on average."""
MOST_NAMED_CLASSES = 100
"""Classes that a problem may ask for in so many words."""
LOOSE_METRICS = frozenset(("accuracy", "precision", "recall"))
"""Words of which people do not always mean the metric."""

CLASSES = re.compile(r"\b(?:classif\w*|whether|churn\w*)\b", re.IGNORECASE)
NEGATED = re.compile(
    r"\b(?:not|no|never|isn['’]t|instead of|rather than|without)\s+(?:\w+\s+){0,2}$", re.IGNORECASE
)
FORECAST = re.compile(r"\b(?:forecast\w*|time[- ]series)\b", re.IGNORECASE)
HORIZON = re.compile(
    r"\b(?:next|coming|following)\s+(?:\d+|two|three|four|five|six|seven|ten|twelve|few|several)\s+"
    r"(?:hours|days|weeks|months|quarters|years)\b|\b(?:hours?|days?|weeks?|months?|years?)\s+ahead\b"
    r"|\btomorrow['’]s\b|\bnext\s+(?:day|week|month|quarter|year)['’]s\b",
    re.IGNORECASE,
)
CLUSTERING = re.compile(
    r"\bclustering\b|\bunsupervised\b|\b(?:customer|market)?\s*segmentation\b|\bk-?means\b"
    r"|\bclusters?\s+(?:the|our|my|all|these|those|customers|users|rows|similar)\b"
    r"|\b(?:find|discover|identify|form|build|detect)\s+(?:\w+\s+){0,2}(?:clusters|segments|groups)\b"
    r"|\b(?:segment|group|divide|partition|split)\s+(?:\w+\s+){1,4}(?:in)?to\s+(?:\w+\s+){0,2}"
    r"(?:clusters|groups|segments)\b",
    re.IGNORECASE,
)
FREE_TEXT = re.compile(
    r"\b(?:summari[sz]e|translat(?:e|ion)|paraphrase|chatbot)\b"
    r"|\b(?:generate|write|compose|draft)\s+(?:\w+\s+){0,3}(?:texts?|descriptions?|summar(?:y|ies)|reviews?|"
    r"e-?mails?|answers?|stories|story|captions?|headlines?|titles?)\b",
    re.IGNORECASE,
)
SUPERVISED = re.compile(r"\b(?:predict\w*|estimat\w*|classif\w*|regress\w*)\b", re.IGNORECASE)
FEATURES_NAMED = re.compile(r"\b(?:from|using|given|based on)\b", re.IGNORECASE)


def find_task(
    problem: str, series: pd.Series, thresholds: Sequence[Threshold] = (), columns: Collection[str] = ()
) -> Task:
    """Whether a column is predicted as a number or as a class; `columns` are all names of the table.

    Raises:
        ProblemError: the problem is neither, a metric does not fit, or the column cannot be predicted.
    """
    _refuse_other_problems(problem)
    _check_values(series)
    mentions = metrics_named(problem, columns)
    sure = {threshold.metric for threshold in thresholds} | {
        mention.metric for mention in mentions if mention.metric not in LOOSE_METRICS
    }
    kinds: set[Task] = {"regression" if metric in REGRESSION_METRICS else "classification" for metric in sure}
    if len(kinds) > 1:
        names = ", ".join(sorted(sure))
        raise ProblemError(
            f"The metrics {names} belong to different tasks: some to numbers, some to classes."
        )
    if kinds:
        task = kinds.pop()
        _check_metric(series, task, sorted(sure))
        return task
    guess = _guess(problem, series)
    if guess == "regression" and any(mention.metric in LOOSE_METRICS for mention in mentions):
        # `with high accuracy` may be said of numbers as well; of what can be classes, it is the metric.
        return "classification" if suits(series, "classification") else "regression"
    return guess


def suits(series: pd.Series, task: Task) -> bool:
    """Whether a column can be predicted as a number, or as a class."""
    facts = column_facts(series)
    if facts.kind in ("constant", "text", "datetime"):
        return False
    numbers = _numbers(series)
    if facts.kind == "id" and (numbers is None or is_id_name(str(series.name))):
        return False
    if task == "regression":
        return numbers is not None
    if numbers is None:
        return True
    present = numbers.dropna()
    distinct = present.nunique()
    if distinct == 2:
        return True
    if is_whole(present):
        return bool(distinct <= MOST_NAMED_CLASSES and len(present) >= 2 * distinct)
    return bool(distinct <= MOST_CLASSES and len(present) >= ROWS_PER_CLASS * distinct)


def _numbers(series: pd.Series) -> pd.Series | None:
    """The column's numbers, also if they are written as text; None for text and truth values."""
    import pandas as pd

    if is_text(series):
        return numbers_in_text(series)
    if pd.api.types.is_bool_dtype(series.dtype) or not pd.api.types.is_numeric_dtype(series.dtype):
        return None
    return series


def _guess(problem: str, series: pd.Series) -> Task:
    """The task by the problem's words and the column's values, where no metric decides."""
    asked = _says(CLASSES, problem)
    if asked is not None:
        if suits(series, "classification"):
            return "classification"
        if not asked.lower().startswith("churn"):
            raise ProblemError(
                f"The problem says '{asked}', but '{series.name}' has {series.nunique()} different values: "
                f"these are no classes."
            )
    numbers = _numbers(series)
    if numbers is None:
        return "classification"
    present = numbers.dropna()
    distinct = present.nunique()
    if not is_whole(present):
        return "regression"
    few = distinct <= MOST_CLASSES and len(present) >= ROWS_PER_CLASS * distinct
    return "classification" if distinct == 2 or few else "regression"


def _check_metric(series: pd.Series, task: Task, metrics: Sequence[str]) -> None:
    if suits(series, task):
        return
    names = ", ".join(metrics)
    if task == "regression":
        raise ProblemError(f"{names} measures numbers, and '{series.name}' holds none.")
    raise ProblemError(
        f"{names} measures classes, and '{series.name}' holds {series.nunique()} different numbers. "
        f"Name a metric of numbers, such as RMSE."
    )


def _check_values(series: pd.Series) -> None:
    """Refuse a column that nobody can predict."""
    facts = column_facts(series)
    present = len(present_texts(series)) if is_text(series) else int(series.notna().sum())
    if facts.kind == "constant":
        raise ProblemError(
            f"'{series.name}' has the same value in every row, or none: nothing is to be predicted."
        )
    if present < FEWEST_ROWS:
        raise ProblemError(
            f"'{series.name}' has a value in {present} rows; at least {FEWEST_ROWS} are needed."
        )
    match facts.kind:
        case "text":
            raise ProblemError(f"'{series.name}' is free text, which this flow does not predict.")
        case "datetime":
            raise ProblemError(f"'{series.name}' holds dates; this flow predicts numbers and classes.")
        case "id" if _numbers(series) is None or is_id_name(str(series.name)):
            raise ProblemError(f"'{series.name}' is different in every row: it tells rows apart.")


def _refuse_other_problems(problem: str) -> None:
    """Refuse what is neither regression nor classification.

    Raises:
        ProblemError: the problem is about forecasting, clustering or free text.
    """
    forecast = _says(FORECAST, problem)
    horizon = _says(HORIZON, problem)
    if horizon is not None or (forecast is not None and not FEATURES_NAMED.search(problem)):
        raise ProblemError(
            f"'{horizon or forecast}' asks for a forecast, which this flow does not make: it predicts a "
            f"column of a table from the others. Name those to predict from, if they are known beforehand."
        )
    clustering = _says(CLUSTERING, problem)
    if clustering is not None and not SUPERVISED.search(problem):
        raise ProblemError(
            f"'{clustering}' asks for clusters, which this flow does not make: it predicts a known column."
        )
    text = _says(FREE_TEXT, problem)
    if text is not None and not SUPERVISED.search(problem):
        raise ProblemError(f"'{text}' asks for text, which this flow does not write: it predicts a column.")


def _says(pattern: re.Pattern[str], problem: str) -> str | None:
    """The first words that match a pattern and are not negated."""
    for match in pattern.finditer(problem):
        if not NEGATED.search(problem[max(0, match.start() - 40) : match.start()]):
            return match[0].strip()
    return None
