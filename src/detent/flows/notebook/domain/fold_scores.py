"""Cross-validates a model again, by the framework's folds.

Runs in the notebook's kernel, so it needs nothing but NumPy, pandas and scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detent.flows.notebook.domain.scores import scores_of_model

MOST_CELLS = 2_400_000
"""Rows times columns that are cross-validated; of more rows, a random part."""
FEWEST_ROWS = 2000


def check_folds(
    names: Mapping[str, Any], *, task: str, target: str, kind: str, column: str | None, seed: int
) -> dict[str, Any]:
    """The scores of a clone of `final_model` in the folds, and those of a model that knows no feature."""
    import numpy as np

    rows, table = names["X_train"], names["df_typed"]
    rows, truth = _some_rows(rows, table.loc[rows.index, target], task, seed)
    framework = names.get("evaluation_framework")
    parts = int(framework["folds"]) if isinstance(framework, Mapping) and "folds" in framework else 5
    labels = sorted(table[target].dropna().unique().tolist()) if task == "classification" else []
    described = table if column is None or column in table.columns else names["raw_dataset"]
    units = units_of(described, rows.index, kind, column)
    when = described[column].loc[rows.index] if kind == "time" else None
    pairs = folds_of(task, truth, units, min(max(parts, 2), 10), seed, when)
    figures: dict[str, list[dict[str, float]]] = {"model": [], "baseline": []}
    for number, (train, valid) in enumerate(pairs):
        # Whatever looks a row's target up by its label finds nothing: labels and order are new in every fold.
        valid = np.random.default_rng(seed + number).permutation(valid)
        known, known_truth = _renumbered(rows, train), _renumbered(truth, train)
        unseen, unseen_truth = _renumbered(rows, valid), _renumbered(truth, valid)
        for name, model in (("model", names["final_model"]), ("baseline", _dummy(task, framework))):
            fitted = _clone(model).fit(known, known_truth)
            figures[name].append(scores_of_model(task, fitted, unseen, unseen_truth, labels))
    return {
        "scores": _means(figures["model"]),
        "baseline": _means(figures["baseline"]),
        "folds": len(pairs),
        "n": len(rows),
    }


def _dummy(task: str, framework: Any) -> Any:
    from sklearn.dummy import DummyClassifier, DummyRegressor

    if task == "classification":
        return DummyClassifier(strategy="most_frequent")
    asked = framework.get("baseline") if isinstance(framework, Mapping) else None
    return DummyRegressor(strategy="median" if asked == "median" else "mean")


def _clone(model: Any) -> Any:
    from sklearn.base import clone

    return clone(model)


def _renumbered(values: Any, places: Any) -> Any:
    return values.iloc[places].reset_index(drop=True)


def _means(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    import pandas as pd

    return {name: float(value) for name, value in pd.DataFrame(figures).mean().items()}


def _some_rows(rows: Any, truth: Any, task: str, seed: int) -> tuple[Any, Any]:
    import numpy as np
    from sklearn.model_selection import train_test_split

    most = max(FEWEST_ROWS, MOST_CELLS // max(1, rows.shape[1]))
    if len(rows) <= most:
        return rows, truth
    strata = strata_of(truth, 2) if task == "classification" else None
    places, _ = train_test_split(np.arange(len(rows)), train_size=most, random_state=seed, stratify=strata)
    places = np.sort(places)
    return rows.iloc[places], truth.iloc[places]


def strata_of(truth: Any, least: int) -> Any:
    """The classes as numbers; those with fewer than `least` rows join the largest."""
    import pandas as pd

    counts = truth.value_counts()
    rare = counts.index[counts < least]
    return pd.factorize(truth.where(~truth.isin(rare), counts.index[0]), sort=True)[0]


def units_of(table: Any, index: Any, kind: str, column: str | None) -> Any:
    """A number per row; rows of one number stay on one side: those of a group, else those that are equal."""
    import numpy as np
    import pandas as pd

    if kind == "group" and column in table.columns:
        codes = pd.factorize(table[column].loc[index])[0]
        # A row that names no group is a group of its own.
        return np.where(codes >= 0, codes, codes.max() + 1 + np.arange(len(codes)))
    if kind == "time":
        return np.arange(len(index))
    return pd.factorize(pd.util.hash_pandas_object(table.loc[index], index=False))[0]


def folds_of(
    task: str, truth: Any, units: Any, parts: int, seed: int, when: Any = None
) -> list[tuple[Any, Any]]:
    """Places of training and validation rows, by the rule of the hold-out; `when` are the rows' times."""
    import numpy as np
    from sklearn.model_selection import (
        GroupShuffleSplit,
        KFold,
        StratifiedGroupKFold,
        StratifiedKFold,
        TimeSeriesSplit,
    )

    places = np.arange(len(truth))
    if when is not None:
        in_time = when.reset_index(drop=True).sort_values(kind="stable", na_position="first").index.to_numpy()
        return [(in_time[train], in_time[valid]) for train, valid in TimeSeriesSplit(parts).split(places)]
    classes = task == "classification"
    strata = strata_of(truth, parts) if classes else np.zeros(len(truth), dtype=int)
    distinct = len(np.unique(units))
    if distinct < parts:
        chooser = GroupShuffleSplit(n_splits=parts, test_size=0.3, random_state=seed)
        pairs = list(chooser.split(places, groups=units))
    elif distinct < len(units):
        grouped = StratifiedGroupKFold(parts, shuffle=True, random_state=seed)
        pairs = list(grouped.split(places, strata, units))
    elif classes and np.bincount(strata).min() >= parts:
        pairs = list(StratifiedKFold(parts, shuffle=True, random_state=seed).split(places, strata))
    else:
        pairs = list(KFold(parts, shuffle=True, random_state=seed).split(places))
    if not classes:
        return pairs
    # The only row of a class is trained with in every fold: nothing else could tell the model of the class.
    only = np.flatnonzero((truth.groupby(truth).transform("size") == 1).to_numpy())
    return [(np.union1d(train, only), np.setdiff1d(valid, only)) for train, valid in pairs]
