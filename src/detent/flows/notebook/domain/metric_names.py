"""The names of metrics as people read them."""

from __future__ import annotations

METRIC_NAMES = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1",
    "log_loss": "log loss",
    "mae": "MAE",
    "mape": "MAPE",
    "mse": "MSE",
    "precision": "precision",
    "r2": "R²",
    "recall": "recall",
    "rmse": "RMSE",
}


def metric_name(metric: str) -> str:
    """The name of a metric, or the metric itself with spaces between its words."""
    return METRIC_NAMES.get(metric, metric.replace("_", " "))
