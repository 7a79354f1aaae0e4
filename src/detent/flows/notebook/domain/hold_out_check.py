"""Scores the hold-out again, and checks that it is one.

Runs in the notebook's kernel, so it needs nothing but NumPy, pandas and scikit-learn.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from detent.flows.notebook.domain.scores import scores_of_model

EQUAL = 1e-9
"""Relative difference up to which two figures are the same."""
FEWEST_COVERED = 0.95
"""Share of the distinct rows with a target that must be among the training rows or held out."""
FARTHER = 2.0
"""How much farther from the median the targets of dropped rows may be, on average, than those of others."""
UNLIKELY = 3.5
"""How many standard errors away something is no chance any more."""
MOST_CELLS = 10_000_000
"""Rows times columns up to which the model is fitted again."""
HARDER = 2.0
"""How much larger the mean error of rows left out may be than that of the rows held out."""
NO_VALUE = ("", "na", "n/a", "nan", "null", "none", "?", "-", "unknown", "missing")
SENTINELS = (-99, -999, -9999, -99999, 999, 9999, 99999, 999999)


def check_hold_out(
    names: Mapping[str, Any],
    *,
    task: str,
    target: str,
    kind: str,
    column: str | None,
    test_size: float,
    metrics: list[str],
    fingerprint: str | None = None,
) -> dict[str, Any]:
    """The scores of `final_model` on the hold-out, and what keeps them from being a hold-out's.

    `kind` and `column` are the split's; `metrics` are those on which thresholds are set; `fingerprint` is
    that of `raw_dataset` when it was read.
    """
    raw, table, model = names["raw_dataset"], names["df_typed"], names["final_model"]
    train, test = names["X_train"], names["X_test"]
    findings: list[dict[str, str]] = []

    def found(check: str, text: str) -> None:
        findings.append({"check": check, "text": text})

    if fingerprint is not None and fingerprint_of(raw) != fingerprint:
        found("data", "raw_dataset is not as it was read")
    if target not in raw.columns or target not in table.columns or not table.index.is_unique:
        found("data", f"raw_dataset or df_typed has no column {target!r}, or df_typed names rows twice")
        return {"scores": {}, "n": 0, "findings": findings}
    _check_rows(raw, table, train, test, target, kind, test_size, found)
    _check_sides(table if column in table.columns else raw, train, test, kind, column, found)
    known = test.index[test.index.isin(table.index)]
    rows, truth = test.loc[known], table.loc[known, target]
    if not len(rows) or not test.index.is_unique or truth.isna().any():
        found("rows", "the hold-out has no rows, or rows without a target")
        return {"scores": {}, "n": len(rows), "findings": findings}
    _check_target(raw, table, train.index.union(test.index), target, task, found)
    _check_copies(names, table, target, found)
    labels = sorted(table[target].dropna().unique().tolist()) if task == "classification" else []
    scores = scores_of_model(task, model, rows, truth, labels)
    _check_predictions(model, rows, found)
    _check_left_out(table, train, rows, truth, model, task, target, found)
    _check_fit(model, train, table, rows, truth, target, task, found)
    _check_claim(names.get("test_performance"), scores, len(rows), metrics, found)
    return {"scores": scores, "n": len(rows), "findings": findings}


def fingerprint_of(table: Any) -> str:
    """A digest of a table's names, index and values."""
    import pandas as pd

    digest = hashlib.sha256(repr([(str(name), str(table[name].dtype)) for name in table.columns]).encode())
    digest.update(pd.util.hash_pandas_object(_hashable(table), index=True).to_numpy().tobytes())
    return digest.hexdigest()


def _hashable(table: Any) -> Any:
    """The table with values of mixed types as text."""
    mixed = [name for name in table.columns if table[name].dtype == object]
    return table.astype(dict.fromkeys(mixed, str))


# -- rows ---------------------------------------------------------------------------------------------------


def _check_rows(
    raw: Any, table: Any, train: Any, test: Any, target: str, kind: str, test_size: float, found: Any
) -> None:
    """Check that the parts are parts of the data, apart from one another, and nearly all of it."""
    import pandas as pd

    for name, part in (("X_train", train), ("X_test", test)):
        if not part.index.is_unique:
            found("rows", f"the index of {name} names rows twice")
        strangers = int((~part.index.isin(raw.index)).sum())
        if strangers:
            found("rows", f"{strangers} rows of {name} are not in raw_dataset")
    shared = int(test.index.isin(train.index).sum())
    if shared:
        found("rows", f"{shared} rows are among the training rows and held out")
    share = len(test) / max(1, len(train) + len(test))
    slack = 0.1 if kind == "group" else 0.05
    if abs(share - test_size) > slack + EQUAL:
        found("share", f"{share:.3f} of the rows are held out, not {test_size:g}")
    with_target = raw.index[_has_target(raw[target])]
    identity = pd.util.hash_pandas_object(_hashable(raw), index=False)
    distinct = set(identity[with_target])
    used = raw.index[raw.index.isin(train.index.union(test.index))]
    covered = len(distinct & set(identity[used])) / max(1, len(distinct))
    if covered < FEWEST_COVERED:
        found("coverage", f"{covered:.3f} of the distinct rows with a target are used, the others dropped")
    dropped = with_target[~identity[with_target].isin(set(identity[used])).to_numpy()]
    if pd.api.types.is_numeric_dtype(raw[target]) and len(dropped) > 1 and len(used):
        distance = (raw[target].astype(float) - raw.loc[used, target].astype(float).median()).abs()
        usual = distance[used].mean()
        by_chance = usual + UNLIKELY * distance[used].std() / math.sqrt(len(dropped))
        if distance[dropped].mean() > max(FARTHER * usual, by_chance):
            found("coverage", f"{len(dropped)} rows with extreme targets were dropped")


def _check_sides(table: Any, train: Any, test: Any, kind: str, column: str | None, found: Any) -> None:
    """Check that no group stands on both sides, or that the rows held out are the later ones."""
    if kind not in ("group", "time"):
        return
    if column not in table.columns:
        found("split", f"there is no column {column!r} to tell by which rows belong together")
        return
    before = table[column].reindex(train.index).dropna()
    held_out = table[column].reindex(test.index).dropna()
    if kind == "group":
        both = set(before) & set(held_out)
        if both:
            found("split", f"{len(both)} groups of {column!r} are among the training rows and held out")
    elif len(before) and len(held_out) and held_out.min() < before.max():
        found("split", f"rows held out are earlier than training rows by {column!r}")


def _has_target(values: Any) -> Any:
    """Whether a raw value is one: neither missing, nor a text or number that stands for that."""
    import numpy as np
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        finite = np.isfinite(values.astype(float))
        ends = (values[finite].min(), values[finite].max())
        return finite & ~values.isin([value for value in SENTINELS if value in ends])
    texts = values.astype(str).str.strip().str.lower()
    return values.notna() & ~texts.isin(NO_VALUE)


# -- target -------------------------------------------------------------------------------------------------


def _check_target(raw: Any, table: Any, index: Any, target: str, task: str, found: Any) -> None:
    """Check that the typed target is the raw one."""
    index = index[index.isin(raw.index) & index.isin(table.index)]
    before, after = raw.loc[index, target], table.loc[index, target]
    if task == "regression":
        numbers = numbers_of(before)
        known = numbers.notna() & after.notna()
        if known.sum() < 0.9 * after.notna().sum() or not _are_close(
            numbers[known], after[known].astype(float), before[known]
        ):
            found("target", f"df_typed[{target!r}] is not the target as it was read")
        return
    plain = before.astype(str).str.strip().str.lower()
    after = after.astype(str)
    if (after.groupby(plain).nunique() > 1).any():
        found("target", f"rows of one class in raw_dataset have several in df_typed[{target!r}]")
    elif _labels(plain) > after.nunique():
        found("target", f"classes of raw_dataset are thrown together in df_typed[{target!r}]")


def _labels(plain: Any) -> int:
    """How many classes there are, spelling apart."""
    return int(plain.str.replace(r"\.0$|[\W_]+", "", regex=True).nunique())


def numbers_of(values: Any) -> Any:
    """The numbers of a column, also if they are written as text, such as `$12,500` or `1.2M`."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    texts = values.astype(str).str.replace("−", "-", regex=False)
    parts = texts.str.extract(r"^\s*(-?)\D*?(-?)(\d(?:[\d.,'’\s]*\d)?|[.,]\d+)\s*([kKmMbB]?)(?![^\W\d_])")
    digits = parts[2].str.replace(r"['’\s]", "", regex=True)
    commas_group = not digits.str.contains(r",(?!\d{3}(?:\D|$))", regex=True, na=False).any()
    thousands, decimal = (",", ".") if commas_group else (".", ",")
    plain = digits.str.replace(thousands, "", regex=False).str.replace(decimal, ".", regex=False)
    scales = parts[3].str.lower().map({"k": 1e3, "m": 1e6, "b": 1e9}).fillna(1.0)
    signs = (parts[0].fillna("") + parts[1].fillna("")).str.contains("-").map({True: -1.0, False: 1.0})
    return pd.to_numeric(plain, errors="coerce") * signs * scales


def _are_close(numbers: Any, others: Any, texts: Any) -> bool:
    """Whether numbers are the same; percent may be shares, and `5 m` may be metres or millions."""
    import numpy as np

    plain = texts.astype(str)
    factors = [1.0]
    if plain.str.contains("%", regex=False).any():
        factors.append(100.0)
    for letter, factor in (("k", 1e3), ("m", 1e6), ("b", 1e9)):
        if plain.str.contains(rf"\d\s*{letter}\b", regex=True, case=False).all():
            factors.append(factor)
    return any(np.allclose(numbers, others * factor, rtol=1e-9, atol=0.0) for factor in factors)


def _check_copies(names: Mapping[str, Any], table: Any, target: str, found: Any) -> None:
    """Check that `y_train` and `y_test` are the target of their rows."""
    import numpy as np

    for name, rows in (("y_train", names["X_train"]), ("y_test", names["X_test"])):
        given = names.get(name)
        if given is None or len(given) != len(rows) or not rows.index.isin(table.index).all():
            found("target", f"{name} does not belong to its rows")
            continue
        truth = table.loc[rows.index, target].to_numpy()
        given = np.asarray(given)
        try:
            same = bool(
                np.allclose(given.astype(float), truth.astype(float), rtol=1e-9, atol=0.0, equal_nan=True)
            )
        except (TypeError, ValueError):
            same = bool((given.astype(str) == truth.astype(str)).all())
        if not same:
            found("target", f"{name} is not df_typed[{target!r}] of its rows")


# -- model --------------------------------------------------------------------------------------------------


def _check_predictions(model: Any, rows: Any, found: Any) -> None:
    """Check that a prediction follows from its row's features, not from its label or place."""
    predicted = model.predict(rows)
    try:
        turned = model.predict(rows.iloc[::-1].reset_index(drop=True))[::-1]
        follows = _same(predicted, turned)
    except Exception:
        follows = False
    if not follows:
        found("model", "final_model predicts otherwise when rows are numbered and ordered anew")


def _same(left: Any, right: Any) -> bool:
    import numpy as np

    left, right = np.asarray(left), np.asarray(right)
    if left.dtype.kind in "fiu" and right.dtype.kind in "fiu":
        return bool(np.allclose(left, right, rtol=1e-6, equal_nan=True))
    return bool((left == right).all())


def _errors(predicted: Any, truth: Any, task: str) -> Any:
    import numpy as np

    if task == "regression":
        return (np.asarray(predicted, dtype=float) - np.asarray(truth, dtype=float)) ** 2
    return (np.asarray(predicted) != np.asarray(truth)).astype(float)


def _check_left_out(
    table: Any, train: Any, rows: Any, truth: Any, model: Any, task: str, target: str, found: Any
) -> None:
    """Check that rows in neither part are not the ones that the model fails on."""
    left_out = table.index[
        ~table.index.isin(train.index) & ~table.index.isin(rows.index) & table[target].notna()
    ]
    if len(left_out) < 2 or not set(rows.columns) <= set(table.columns):
        return
    try:
        predicted = model.predict(table.loc[left_out, rows.columns])
    except Exception:
        return
    outside = _errors(predicted, table.loc[left_out, target], task)
    inside = _errors(model.predict(rows), truth, task)
    size = 2.0 if task == "regression" else 1.0
    if outside.mean() ** (1 / size) > HARDER * max(inside.mean(), 1e-300) ** (1 / size) and outside.sum() > 1:
        found("coverage", f"{len(left_out)} rows were left out on which the model errs far more")


def _check_fit(
    model: Any, train: Any, table: Any, rows: Any, truth: Any, target: str, task: str, found: Any
) -> None:
    """Check that the model was fitted on the training rows alone: fitted on them again, it is no worse."""
    import numpy as np
    from sklearn.base import clone

    if train.size > MOST_CELLS:
        return
    try:
        again = clone(model).fit(train, table.loc[train.index, target])
        fresh, given = again.predict(rows), model.predict(rows)
    except Exception as error:
        found("model", f"final_model cannot be fitted again on X_train: {type(error).__name__}: {error}")
        return
    if _same(fresh, given):
        return
    before, gain = _errors(fresh, truth, task), _errors(fresh, truth, task) - _errors(given, truth, task)
    better, worse = int((gain > 0).sum()), int((gain < 0).sum())
    # By chance, a model without a fixed seed is better on about half of the rows, and by little.
    by_rows = (better - worse) / math.sqrt(max(1, better + worse))
    by_size = float(gain.mean() / (gain.std() / math.sqrt(len(gain)))) if np.any(gain != gain[0]) else 0.0
    if gain.mean() > 0.1 * before.mean() and max(by_rows, by_size) > UNLIKELY:
        found("model", "final_model is better on the hold-out than when it is fitted on X_train alone")


def _check_claim(claim: Any, scores: Mapping[str, float], rows: int, metrics: list[str], found: Any) -> None:
    """Check that `test_performance` holds what was measured."""
    for metric in metrics:
        if metric not in scores:
            found("claim", f"{metric!r} cannot be measured: final_model gives no probabilities")
    if not isinstance(claim, Mapping):
        found("claim", "test_performance is no dictionary of figures")
        return
    for metric in metrics:
        if metric not in claim:
            found("claim", f"test_performance has no {metric!r}")
    for name, measured in {**scores, "n": rows}.items():
        figure = claim.get(name, measured)
        if isinstance(figure, bool) or not isinstance(figure, Real):
            found("claim", f"test_performance[{name!r}] is no number")
        elif not math.isclose(figure, measured, rel_tol=EQUAL) and not (
            figure != figure and measured != measured
        ):
            found("claim", f"test_performance[{name!r}] is {figure!r}, measured {measured!r}")
