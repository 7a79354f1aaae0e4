"""Looks for leaks again: columns that give the target away, doubled rows, values prepared on all rows.

Runs in the notebook's kernel, so it needs nothing but NumPy, pandas and scikit-learn. Columns are judged on
the training rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from detent.flows.notebook.domain.hold_out_check import numbers_of

MONOTONE = 0.99
"""R² of the best monotone curve from which a column alone gives the target; honest columns stay far below."""
MONOTONE_INSIDE = 0.9
"""The same without the extreme targets, which alone may make a curve look good."""
APART = 0.999
LINEAR = 0.9999
"""R² of a linear model from which its columns make up the target."""
MOST_ROWS = 20_000
MOST_ROWS_LINEAR = 5_000


def check_leaks(
    names: Mapping[str, Any], *, task: str, target: str, kind: str, keep: list[str]
) -> dict[str, Any]:
    """The leaks that remain, each with its check and the columns it is about; those in `keep` are wanted."""
    table, train, test = names["df_typed"], names["X_train"], names["X_test"]
    truth = table.loc[train.index, target]
    leaks: list[dict[str, Any]] = []

    def found(check: str, text: str, columns: list[str]) -> None:
        if not columns or not set(columns) <= set(keep):
            leaks.append({"check": check, "text": text, "columns": columns})

    shared = int(test.index.isin(train.index).sum())
    if shared:
        found("shared rows", f"{shared} rows are among the training rows and held out", [])
    doubled = 0 if kind in ("group", "time") else _doubled(table, train, test, target)
    if doubled:
        found("doubled rows", f"{doubled} rows held out have an equal row among the training rows", [])
    if target in train.columns:
        found("target", f"the target {target!r} is among the features", [target])
    for check, text, columns in _columns_alone(train.drop(columns=target, errors="ignore"), truth, task):
        found(check, text, columns)
    alone = {column for leak in leaks for column in leak["columns"]} | set(keep)
    rest = train.drop(columns=[column for column in train.columns if column in alone])
    together, text = columns_together(rest, truth, task)
    if together:
        found("combination", text, together)
    for check, text, columns in _prepared(names["raw_dataset"], table, train, test):
        found(check, text, columns)
    for text in _fitted_on_more(names, len(train)):
        found("fitted on all rows", text, [])
    return {"leaks": leaks}


# -- rows ---------------------------------------------------------------------------------------------------


def _doubled(table: Any, train: Any, test: Any, target: str) -> int:
    """How many rows held out equal a training row; 0 for a table too coarse to tell rows apart."""
    import pandas as pd

    columns = [column for column in train.columns if column in table.columns and column != target]
    both = table.loc[train.index.union(test.index)]
    coarse = pd.util.hash_pandas_object(_plain(both[[*columns, target]]), index=False).value_counts()
    if len(coarse) < 20 or coarse.iloc[0] > 0.4 * len(both):
        return 0
    identity = pd.util.hash_pandas_object(_plain(both), index=False)
    return int(identity[test.index].isin(set(identity[train.index])).sum())


def _plain(table: Any) -> Any:
    mixed = [name for name in table.columns if table[name].dtype == object]
    return table.astype(dict.fromkeys(mixed, str))


# -- columns that give the target away ----------------------------------------------------------------------


def _columns_alone(rows: Any, truth: Any, task: str) -> Iterator[tuple[str, str, list[str]]]:
    """Columns that tell the target on their own."""
    step = max(1, len(rows) // MOST_ROWS)
    for column in rows.columns:
        known = rows[column].iloc[::step].dropna()
        labels = truth[known.index]
        if len(known) < max(10, 0.2 * len(rows) / step) or known.nunique() < 2 or labels.nunique() < 2:
            continue
        if task == "classification" and _one_to_one(known, labels):
            yield "labels", f"the values of {column!r} map one to one onto the classes", [column]
            continue
        numbers = _as_numbers(known)
        if numbers is None:
            continue
        if task == "classification":
            if _tells_apart(numbers, labels):
                yield "separation", f"{column!r} separates the classes alone (AUC > {APART})", [column]
            continue
        whole, inside = _monotone(numbers, labels.astype(float))
        if whole > MONOTONE and inside > MONOTONE_INSIDE:
            text = f"a monotone curve of {column!r} alone gives the target (R² {whole:.4f})"
            yield "copy", text, [column]


def _as_numbers(values: Any) -> Any:
    """A column as numbers, dates and numbers in text among them; None where that says nothing."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        return values.astype("int64").astype(float)
    if pd.api.types.is_bool_dtype(values) or pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    numbers = numbers_of(values)
    return numbers if numbers.notna().all() and numbers.nunique() > 1 else None


def _monotone(numbers: Any, truth: Any) -> tuple[float, float]:
    """R² of the best rising or falling curve, over all rows and without the extreme targets."""
    from sklearn.isotonic import IsotonicRegression
    from sklearn.metrics import r2_score

    best = (0.0, 0.0)
    usual = ((truth > truth.quantile(0.01)) & (truth < truth.quantile(0.99))).to_numpy()
    values, goal = numbers.to_numpy(), truth.to_numpy()
    for rising in (True, False):
        fitted = IsotonicRegression(increasing=rising).fit_transform(values, goal)
        whole = float(r2_score(goal, fitted))
        if whole > best[0]:
            inside = whole
            if usual.sum() > 2 and truth[usual].nunique() > 2:
                inside = float(r2_score(goal[usual], fitted[usual]))
            best = (whole, inside)
    return best


def _tells_apart(numbers: Any, labels: Any) -> bool:
    """Whether a number tells every class of some size from every other."""
    from sklearn.metrics import roc_auc_score

    sizes = labels.value_counts()
    classes = sorted(sizes.index[sizes >= 5])
    if not 2 <= len(classes) <= 20:
        return False
    for one, other in combinations(classes, 2):
        pair = labels.isin([one, other])
        area = roc_auc_score(labels[pair] == one, numbers[pair])
        if max(area, 1 - area) <= APART:
            return False
    return True


def _one_to_one(values: Any, labels: Any) -> bool:
    """Whether every value stands for one class and every class for one value."""
    import pandas as pd

    sizes = labels.value_counts()
    large = labels.isin(sizes.index[sizes >= 2])
    texts, labels = values[large].astype(str), labels[large]
    if labels.nunique() < 2 or texts.nunique() != labels.nunique():
        return False
    counts = pd.crosstab(texts, labels)
    at_its_class = counts.to_numpy().max(axis=0) / counts.sum(axis=0).to_numpy()
    return bool(counts.idxmax(axis=1).is_unique and at_its_class.min() > APART)


# -- columns that make up the target together ---------------------------------------------------------------


def columns_together(rows: Any, truth: Any, task: str) -> tuple[list[str], str]:
    """The fewest columns of numbers that make up the target, and how; empty if none do."""
    import numpy as np
    import pandas as pd

    step = max(1, len(rows) // MOST_ROWS_LINEAR)
    numeric = [name for name in rows.columns if pd.api.types.is_numeric_dtype(rows[name])]
    table, labels = rows[numeric].iloc[::step].astype(float), truth.iloc[::step]
    table = table.fillna(table.median())
    table = table.loc[:, table.std() > 0]
    if table.shape[1] < 2 or len(table) < 20:
        return [], ""
    table = (table - table.mean()) / table.std()
    if task == "regression":
        columns = _adds_up(table, labels.to_numpy(dtype=float))
        return columns, f"a weighted sum of {columns} is the target (R² > {LINEAR})"
    sizes = labels.value_counts()
    for label in sorted(sizes.index[sizes >= 5])[:20]:
        columns = _adds_up(table, np.asarray(labels == label, dtype=float))
        if columns:
            return columns, f"a weighted sum of {columns} tells whether a row is {label!r}"
    columns = _parts(table, labels)
    return columns, f"a straight line through {columns} parts the classes"


def _weights(table: Any, truth: Any) -> Any:
    """The weights of the columns in the best weighted sum, and what is added to it."""
    import numpy as np

    with_ones = np.column_stack([table, np.ones(len(table))])
    return np.linalg.lstsq(with_ones, truth, rcond=None)[0]


def _linear_share(table: Any, truth: Any) -> float:
    """R² of a linear model on rows that it was not fitted on."""
    import numpy as np
    from sklearn.metrics import r2_score

    values = table.to_numpy()
    part = np.random.default_rng(0).permutation(len(values)) % 5
    predicted = np.empty(len(values))
    for number in range(5):
        weights = _weights(values[part != number], truth[part != number])
        predicted[part == number] = values[part == number] @ weights[:-1] + weights[-1]
    return float(r2_score(truth, predicted))


def _adds_up(table: Any, truth: Any) -> list[str]:
    """The fewest columns whose weighted sum is the target."""
    import numpy as np
    import pandas as pd

    if np.std(truth) == 0:
        return []
    chosen = list(table.columns)
    if table.shape[1] > min(300, len(table) / 3):
        # More columns than rows or patience can bear: collect those that explain most of what is left.
        chosen, left = [], truth - truth.mean()
        while len(chosen) < min(20, len(table) // 5) and np.std(left) > 1e-9 * np.std(truth):
            chosen.append(table.columns[int(np.argmax(np.abs(table.to_numpy().T @ left)))])
            weights = _weights(table[chosen], truth)
            left = truth - table[chosen].to_numpy() @ weights[:-1] - weights[-1]
    if _linear_share(table[chosen], truth) <= LINEAR:
        return []
    heaviness = pd.Series(np.abs(_weights(table[chosen], truth)[:-1]), index=chosen)
    heavy = list(heaviness.index[heaviness > 1e-4 * heaviness.max()])
    if _linear_share(table[heavy], truth) > LINEAR:
        chosen = heavy
    for column in heaviness[chosen].sort_values(kind="stable").index:
        fewer = [name for name in chosen if name != column]
        if fewer and _linear_share(table[fewer], truth) > LINEAR:
            chosen = fewer
    return chosen


def _parts(table: Any, labels: Any) -> list[str]:
    """Two or three columns through which a straight line or plane parts the classes without an error."""
    import numpy as np
    from sklearn.feature_selection import f_classif
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    labels = labels[labels.groupby(labels).transform("size") >= 10]
    table = table.loc[labels.index]
    table = table.loc[:, table.std() > 0]
    if len(labels) < 100 or labels.nunique() < 2 or table.shape[1] < 2:
        return []
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    line = LogisticRegression(C=1000.0, max_iter=500, random_state=0)
    ranked = table.columns
    if table.shape[1] > 50:
        ranked = ranked[np.argsort(-f_classif(table, labels)[0], kind="stable")[:50]]
    if cross_val_score(line, table[ranked], labels, cv=folds).mean() < 0.99:
        return []
    weight = np.abs(line.fit(table[ranked], labels).coef_).max(axis=0)
    heaviest = list(ranked[np.argsort(-weight, kind="stable")[:8]])
    for size in (2, 3):
        for columns in map(list, combinations(heaviest, size)):
            if line.fit(table[columns], labels).score(table[columns], labels) < 1.0:
                continue
            if cross_val_score(line, table[columns], labels, cv=folds).mean() >= 0.99:
                return columns
    return []


# -- values prepared outside of the pipeline ----------------------------------------------------------------


def _prepared(raw: Any, table: Any, train: Any, test: Any) -> Iterator[tuple[str, str, list[str]]]:
    """Columns that were scaled or filled by what all rows show."""
    import numpy as np
    import pandas as pd

    both = pd.concat([train, test])
    for column in both.columns:
        if not _is_number(both[column]):
            continue
        values = both[column].astype(float)
        before = next(
            (base[column] for base in (raw, table) if column in base and _is_number(base[column])), None
        )
        seen = [values]
        if before is not None:
            before = before.reindex(values.index).astype(float)
            if np.array_equal(values.to_numpy(), before.to_numpy(), equal_nan=True):
                continue
            if column in table and _is_number(table[column]):
                seen.append(table[column].astype(float))
        own = values.iloc[: len(train)]
        # What is new may have a range from 0 to 1 by its nature.
        ways = ("moments", "range", "quartiles") if before is not None else ("moments",)
        if any(_is_scaled(all_rows, by) and not _is_scaled(own, by) for all_rows in seen for by in ways):
            yield "fitted on all rows", f"{column!r} was scaled before the split, by all rows", [column]
        elif before is not None and before.isna().any() and values.notna().all():
            filled = values[before.isna()]
            if filled.nunique() == 1 and _is_filling(filled.iloc[0], before, len(train)):
                yield "fitted on all rows", f"{column!r} was filled before the split, by all rows", [column]


def _is_number(values: Any) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values))


def _is_scaled(values: Any, by: str) -> bool:
    """Whether numbers have the mean and spread, the range or the quartiles that scaling gives them."""
    import numpy as np

    present = values.dropna()
    if present.nunique() < 3:
        return False
    if by == "moments":
        close = min(abs(present.std(ddof=0) - 1), abs(present.std(ddof=1) - 1)) < 1e-6
        return bool(abs(present.mean()) < 1e-6 and close)
    if by == "range":
        return bool(np.isclose(present.min(), 0.0, atol=1e-9) and np.isclose(present.max(), 1.0, atol=1e-9))
    low, middle, high = present.quantile([0.25, 0.5, 0.75])
    return bool(abs(middle) < 1e-6 and abs(high - low - 1) < 1e-6)


def _is_filling(value: float, before: Any, train: int) -> bool:
    """Whether a value is the mean, median or most frequent one of all rows, and not of the training rows."""
    own = before.iloc[:train]

    def makes(values: Any) -> set[float]:
        return {round(float(number), 9) for number in (values.mean(), values.median(), values.mode().iloc[0])}

    return round(float(value), 9) in makes(before) - makes(own)


def _fitted_on_more(names: Mapping[str, Any], rows: int) -> Iterator[str]:
    """Parts of the pipeline and the model that have seen more rows than there are training rows."""
    import numpy as np

    for name in ("feature_pipeline", "final_model"):
        for part in _parts_of(names.get(name), 0):
            seen = getattr(part, "n_samples_seen_", None)
            if seen is not None and int(np.max(seen)) > rows:
                yield f"{type(part).__name__} in {name} was fitted on {int(np.max(seen))} rows"


def _parts_of(value: Any, depth: int) -> Iterator[Any]:
    """An estimator and those inside it."""
    if depth > 8 or value is None or isinstance(value, str | int | float):
        return
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts_of(item, depth + 1)
        return
    if not hasattr(value, "get_params"):
        return
    yield value
    for attribute in ("steps", "transformers_", "regressor_", "estimator_", "best_estimator_", "estimators_"):
        inner = getattr(value, attribute, None)
        if isinstance(inner, list | tuple) or hasattr(inner, "get_params"):
            yield from _parts_of(inner, depth + 1)
