"""Metrics as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from detent.flows.notebook.domain.metric_names import metric_name
from detent.flows.notebook.exports.cell import Limit
from detent.kernel.plain import writable

FOLDS, HELD_OUT, BASELINE = "cv_metrics", "test_performance", "baseline_performance"
"""The scores in cross-validation, those on the rows held out, and the baseline's on the same rows."""
BASELINE_HEAD = "Baseline, held-out rows"
POSITIVE = "positive_class"
"""Of two classes the one that F1, precision and recall are about."""
_OF_ONE_CLASS = ("f1", "precision", "recall")
ROWS = "n"
_NAMES = {
    "artifact_completion": "Artifacts completed",
    "acceptance_pass_rate": "Acceptance criteria passed",
    "retry_rate": "Attempts for each behavior",
    "variable_coverage": "Variables produced",
    "stability_metrics": "Stability",
}


class ScoreRow(NamedTuple):
    """A score where it was measured, and what was asked of it."""

    name: str
    folds: str
    held_out: str
    baseline: str
    """On the rows held out."""
    asked: str
    met: bool | None


def score_rows(metrics: Mapping[str, Any], limits: Sequence[Limit]) -> list[ScoreRow]:
    """One row for each score; those with a threshold first, and the number of rows last."""
    folds, held_out, baseline = (_scores(metrics, name) for name in (FOLDS, HELD_OUT, BASELINE))
    asked = {limit.metric: limit for limit in reversed(limits)}
    names = [*(limit.metric for limit in limits), *held_out, *folds]
    names = [*(name for name in dict.fromkeys(names) if name != ROWS), ROWS]
    rows: list[ScoreRow] = []
    for name in names:
        limit = asked.get(name)
        if name not in folds and name not in held_out and limit is None:
            continue
        rows.append(
            ScoreRow(
                "rows" if name == ROWS else _score_name(name, metrics.get(POSITIVE)),
                metric_text(folds[name]) if name in folds else "",
                metric_text(held_out[name]) if name in held_out else "",
                metric_text(baseline[name]) if name in baseline and name != ROWS else "",
                ", ".join(other.asked for other in limits if other.metric == name),
                None if limit is None else _met([other.met for other in limits if other.metric == name]),
            )
        )
    return rows


def score_heads(rows: Sequence[ScoreRow]) -> tuple[str, ...]:
    """The heads of the scores' table; the baseline's column is there where one of its scores is known."""
    baseline = (BASELINE_HEAD,) if any(row.baseline for row in rows) else ()
    return ("Score", "Folds", "Held-out rows", *baseline, "Asked")


def _score_name(name: str, positive: Any) -> str:
    of_class = f" of class {positive}" if positive is not None and name in _OF_ONE_CLASS else ""
    return writable(metric_name(name) + of_class)


def other_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """All metrics but the scores, with names that people read."""
    rest = {_NAMES.get(name, name): value for name, value in metrics.items() if not _is_scores(name, value)}
    return metric_rows(rest)


def _scores(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = metrics.get(name)
    return value if isinstance(value, Mapping) else {}


def _is_scores(name: str, value: Any) -> bool:
    return name == POSITIVE or (name in (FOLDS, HELD_OUT, BASELINE) and isinstance(value, Mapping))


def _met(answers: Sequence[bool | None]) -> bool | None:
    return None if None in answers else all(answers)


def metric_rows(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and values; of metrics inside others the names are joined."""
    rows: list[tuple[str, str]] = []
    for name, value in metrics.items():
        label = f"{prefix}{writable(str(name))}"
        if isinstance(value, Mapping):
            rows.extend(metric_rows(value, f"{label} · "))
        else:
            rows.append((label, metric_text(value)))
    return rows


def metric_text(value: Any) -> str:
    """A metric as people read it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(metric_text, value))
    return writable(str(value))
