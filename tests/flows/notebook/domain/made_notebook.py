"""The variables of a finished notebook, made in plain Python, and ways to spoil them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from detent.flows.notebook.domain.probes import read_measured
from detent.flows.notebook.domain.problem import ProblemReading, Split, TableFacts, TableFormat, Threshold
from detent.flows.notebook.domain.scores import scores_of_model

FACTS = TableFacts("assets/t.csv", TableFormat("csv"), 300, ("a", "b", "c", "price"))


def number_table(rows=300):
    """A table whose target hangs on its features, with noise."""
    choice = np.random.default_rng(3)
    table = pd.DataFrame({name: choice.normal(50, 10, rows).round(3) for name in "abc"})
    noise = choice.normal(0, 12, rows) * choice.choice([1, 5], rows, p=[0.9, 0.1])
    table["price"] = (1000 + 4 * table["a"] - 3 * table["b"] + noise).round(2)
    return table


def class_table(rows=300):
    """A table whose target is a class that its features tell of, most of the time."""
    table = number_table(rows)
    cut = table.pop("price").quantile([0.4, 0.7]).tolist()
    values = number_table(rows)["price"]
    table["price"] = np.where(values < cut[0], "low", np.where(values < cut[1], "middle", "high"))
    return table


def reading_of(task="regression", thresholds=(), split=None, keep=()):
    """A reading of the problem about these tables."""
    default = Split("stratified" if task == "classification" else "shuffled")
    return ProblemReading(
        problem="Predict price",
        table=FACTS,
        target="price",
        task=task,
        thresholds=tuple(thresholds),
        split=split or default,
        keep=tuple(keep),
    )


RMSE = Threshold("rmse", "<", 40.0)


def notebook(raw, task="regression", columns=None, train=None, test=None, model=None):
    """The variables of an honest notebook on a table."""
    typed = raw.copy()
    labels = typed["price"] if task == "classification" else None
    if train is None:
        train, test = train_test_split(raw.index, test_size=0.2, random_state=42, stratify=labels)
    columns = columns or [name for name in raw.columns if name != "price"]
    estimator = Ridge() if task == "regression" else LogisticRegression(max_iter=500)
    if model is None:
        model = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), estimator)
    names = {
        "raw_dataset": raw,
        "df_typed": typed,
        "target_column": "price",
        "X_train": typed.loc[train, columns],
        "X_test": typed.loc[test, columns],
        "y_train": typed.loc[train, "price"],
        "y_test": typed.loc[test, "price"],
        "evaluation_framework": {"folds": 5},
        "final_model": model.fit(typed.loc[train, columns], typed.loc[train, "price"]),
    }
    return score(names, task)


def score(names, task="regression"):
    """Write `test_performance` as an honest cell would."""
    labels = sorted(names["df_typed"]["price"].unique()) if task == "classification" else []
    figures = scores_of_model(task, names["final_model"], names["X_test"], names["y_test"], labels)
    names["test_performance"] = {**figures, "n": len(names["X_test"])}
    return names


def forest(**settings):
    """A model that remembers its rows well."""
    return RandomForestClassifier(n_estimators=20, random_state=0, **settings)


def evaluated(probe, names):
    """A probe's value in a namespace, as it comes over the wire."""
    return json.loads(json.dumps(eval(probe, dict(names))))


def measured(probe, names):
    """What a probe finds in a namespace."""
    return read_measured(evaluated(probe, names))
