"""What boosting with its defaults, and FLAML, make of the same rows; runs in an environment of its own."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.notebook_tables import TABLES, load
from benchmarks.protocol import main

MOST_CATEGORIES = 255
"""That gradient boosting takes."""
FLAML_METRICS = {"rmse": "rmse", "auc": "roc_auc", "log_loss": "log_loss", "accuracy": "accuracy"}


def write_tables(param: dict[str, Any]) -> dict[str, Any]:
    """Write tables as text."""
    folder = Path(param["into"])
    for table in TABLES:
        if table.name in param["names"]:
            load(table).to_csv(folder / f"{table.name}.csv", index=False)
    return {}


def peers(param: dict[str, Any]) -> dict[str, Any]:
    """Fit both on the training rows, and predict the others."""
    import numpy as np
    import pandas as pd

    warnings.filterwarnings("ignore")
    table = next(table for table in TABLES if table.name == param["name"])
    frame = pd.read_csv(param["csv"], float_precision="round_trip")
    rows = np.load(param["rows"])
    X, y = encoded(frame.drop(columns=[table.target])), frame[table.target]
    train, test = rows["train"], rows["test"]
    figures: dict[str, Any] = {}
    for name, fit in (("boosting", boosting), ("flaml", flaml)):
        begin = time.perf_counter()
        model = fit(X.iloc[train], y.iloc[train], table.metric, param)
        seconds = time.perf_counter() - begin
        if table.metric in ("auc", "log_loss"):
            given = pd.DataFrame(
                model.predict_proba(X.iloc[test]), columns=[str(each) for each in model.classes_]
            )
            predicted = given.reindex(
                columns=[str(each) for each in rows["labels"]], fill_value=0.0
            ).to_numpy()
        else:
            predicted = np.asarray(model.predict(X.iloc[test])).astype(str if y.dtype == object else float)
        np.save(Path(param["out"]) / f"{name}.npy", predicted)
        figures[name] = {"seconds": seconds, "chosen": getattr(model, "best_estimator", "")}
    return figures


def encoded(X: Any) -> Any:
    """What is no number becomes a category, or a code where there are too many of them."""
    import pandas as pd

    X = X.copy()
    for name in X.columns[
        [not pd.api.types.is_numeric_dtype(X[name]) or X[name].dtype == bool for name in X]
    ]:
        category = X[name].astype("category")
        X[name] = category if len(category.cat.categories) < MOST_CATEGORIES else category.cat.codes
    return X


def boosting(X: Any, y: Any, metric: str, param: dict[str, Any]) -> Any:
    """Gradient boosting with its defaults."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    maker = HistGradientBoostingRegressor if metric == "rmse" else HistGradientBoostingClassifier
    with threadpool_limits(1):
        return maker(categorical_features="from_dtype", random_state=param["seed"]).fit(X, y)


def flaml(X: Any, y: Any, metric: str, param: dict[str, Any]) -> Any:
    """The search of FLAML, for as long as the flow took."""
    import logging

    from flaml import AutoML

    logging.disable()
    found = AutoML()
    found.fit(
        X, y, task="regression" if metric == "rmse" else "classification", metric=FLAML_METRICS[metric],
        time_budget=param["seconds"], n_jobs=2, seed=param["seed"], verbose=0,
    )  # fmt: skip
    return found


if __name__ == "__main__":
    main({"tables": write_tables, "peers": peers})
