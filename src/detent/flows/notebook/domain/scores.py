"""Scores of predictions, by the names that thresholds have.

Runs in the notebook's kernel as well as here, so it needs nothing but NumPy, pandas and scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def scores_of(
    task: str, truth: Any, predicted: Any, chances: Any = None, labels: Sequence[Any] = ()
) -> dict[str, float]:
    """All scores of predictions.

    For classes, `labels` are all of them in order, and `chances` has a column for each. Shares of one class
    mean the last of two labels; of more labels, the mean over those that occur.
    """
    import numpy as np

    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if task == "regression":
        return _number_scores(truth.astype(float), predicted.astype(float))
    scores = _class_scores(truth, predicted, labels)
    if chances is not None:
        scores |= _chance_scores(truth, np.asarray(chances, dtype=float), labels)
    return scores


def scores_of_model(
    task: str, model: Any, rows: Any, truth: Any, labels: Sequence[Any] = ()
) -> dict[str, float]:
    """The scores of a fitted model on rows."""
    chances = None
    if task == "classification" and hasattr(model, "predict_proba"):
        chances = chances_of(model, rows, labels)
    return scores_of(task, truth, model.predict(rows), chances, labels)


def chances_of(model: Any, rows: Any, labels: Sequence[Any]) -> Any:
    """Probabilities with a column for each label, also for one that the model has not seen."""
    import pandas as pd

    given = pd.DataFrame(model.predict_proba(rows), columns=list(model.classes_))
    return given.reindex(columns=list(labels), fill_value=0.0).to_numpy()


def _number_scores(truth: Any, predicted: Any) -> dict[str, float]:
    from sklearn.metrics import (
        mean_absolute_error,
        mean_absolute_percentage_error,
        mean_squared_error,
        r2_score,
    )

    squared = float(mean_squared_error(truth, predicted))
    return {
        "r2": float(r2_score(truth, predicted)) if len(truth) > 1 else float("nan"),
        "rmse": squared**0.5,
        "mse": squared,
        "mae": float(mean_absolute_error(truth, predicted)),
        "mape": float(mean_absolute_percentage_error(truth, predicted)),
    }


def _class_scores(truth: Any, predicted: Any, labels: Sequence[Any]) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

    present = [label for label in labels if (truth == label).any()]
    which: dict[str, Any] = {"average": "macro", "labels": present}
    if len(labels) == 2:
        which = {"average": "binary", "pos_label": labels[1]}
    return {
        "accuracy": float(accuracy_score(truth, predicted)),
        "balanced_accuracy": float(
            recall_score(truth, predicted, labels=present, average="macro", zero_division=0)
        ),
        "f1": float(f1_score(truth, predicted, zero_division=0, **which)),
        "precision": float(precision_score(truth, predicted, zero_division=0, **which)),
        "recall": float(recall_score(truth, predicted, zero_division=0, **which)),
    }


def _chance_scores(truth: Any, chances: Any, labels: Sequence[Any]) -> dict[str, float]:
    import numpy as np
    from sklearn.metrics import roc_auc_score

    asked = [labels[1]] if len(labels) == 2 else list(labels)
    areas = []
    for label in asked:
        is_label = truth == label
        if 0 < is_label.sum() < len(truth):
            areas.append(roc_auc_score(is_label, chances[:, list(labels).index(label)]))
    places = np.array([list(labels).index(label) for label in truth])
    of_truth = chances[np.arange(len(truth)), places]
    return {
        "auc": float(np.mean(areas)) if areas else float("nan"),
        "log_loss": float(-np.log(np.clip(of_truth, 1e-15, None)).mean()),
    }
