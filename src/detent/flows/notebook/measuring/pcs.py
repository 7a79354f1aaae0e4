"""Compliance with PCS: three yes-or-no values and the figures behind them. What is not measured is a no."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, TypeGuard

from detent.flows.notebook.payloads.values import PcsTexts

LEAST_REFITS = 10
"""Perturbed refits without which stability is not measured."""
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class PcsFigures:
    """What was measured; None is what was not."""

    metric: str = ""
    """The primary metric's name."""
    holdout_rows: int | None = None
    holdout_score: float | None = None
    cv_mean: float | None = None
    leaks: Sequence[str] | None = None
    """None until the leak checks ran."""
    unseeded: Sequence[str] | None = None
    """Random calls without a seed, each with its cell; None until the cells were looked at."""
    versions_recorded: bool = False
    data_sha256: str | None = None
    reexecuted: bool | None = None
    """Whether the clean re-execution gave equal results."""
    perturbed_scores: Sequence[float] | None = None
    stability_threshold: float = 0.1

    # -- predictability -------------------------------------------------------------------------------------

    @property
    def gap(self) -> float | None:
        """Between the mean of the folds and the hold-out."""
        if self.cv_mean is None or self.holdout_score is None:
            return None
        return self.holdout_score - self.cv_mean

    @property
    def is_predictable(self) -> bool:
        """A hold-out exists and was scored, and no leak was found."""
        scored = bool(self.holdout_rows) and _is_number(self.holdout_score)
        return scored and self.leaks is not None and not self.leaks

    # -- computability --------------------------------------------------------------------------------------

    @property
    def is_computable(self) -> bool:
        """All random calls are seeded, versions and data are recorded, and the re-execution was equal."""
        seeded = self.unseeded is not None and not self.unseeded
        return seeded and self.versions_recorded and bool(self.data_sha256) and self.reexecuted is True

    # -- stability ------------------------------------------------------------------------------------------

    @property
    def variation(self) -> float | None:
        """The coefficient of variation of the perturbed refits."""
        scores = self.perturbed_scores
        return None if scores is None or len(scores) < LEAST_REFITS else variation_coefficient(scores)

    @property
    def is_stable(self) -> bool:
        """The coefficient of variation of at least ten refits is below the threshold."""
        return self.variation is not None and self.variation < self.stability_threshold

    def to_plain(self) -> dict[str, Any]:
        """As plain values, for `outputs/metrics.json` and the model card."""
        return {
            "predictability": {
                "compliant": self.is_predictable,
                "holdout_rows": self.holdout_rows,
                "holdout_score": self.holdout_score,
                "cv_mean": self.cv_mean,
                "gap": self.gap,
                "leaks": None if self.leaks is None else list(self.leaks),
            },
            "computability": {
                "compliant": self.is_computable,
                "unseeded": None if self.unseeded is None else list(self.unseeded),
                "versions_recorded": self.versions_recorded,
                "data_sha256": self.data_sha256,
                "reexecuted": self.reexecuted,
            },
            "stability": {
                "compliant": self.is_stable,
                "variation_coefficient": self.variation,
                "threshold": self.stability_threshold,
                "refits": None if self.perturbed_scores is None else len(self.perturbed_scores),
            },
        }


def variation_coefficient(scores: Sequence[float]) -> float | None:
    """Standard deviation of a sample divided by its absolute mean; None where that is not a number."""
    if len(scores) < 2 or not all(_is_number(score) for score in scores):
        return None
    mean = fmean(scores)
    return stdev(scores) / abs(mean) if mean else None


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def perturbed_scores(results: Any, metric: str = "score") -> tuple[float, ...] | None:
    """The scores in `perturbation_test_results`: numbers, or records with the metric or a `score`.

    None if one of them is no number.
    """
    items = list(results.values()) if isinstance(results, Mapping) else results
    if not isinstance(items, Sequence) or isinstance(items, str):
        return None
    scores: list[float] = []
    for item in items:
        score = item.get(metric, item.get("score")) if isinstance(item, Mapping) else item
        if not _is_number(score):
            return None
        scores.append(float(score))
    return tuple(scores)


def pcs_statements(figures: PcsFigures) -> PcsTexts:
    """Three statements that name the figures that exist."""
    return PcsTexts(_predictability(figures), _computability(figures), _stability(figures))


def _predictability(figures: PcsFigures) -> str:
    parts = []
    if figures.holdout_score is not None:
        parts.append(f"hold-out {figures.metric} {figures.holdout_score:.6g} on {figures.holdout_rows} rows")
    if figures.cv_mean is not None:
        parts.append(f"cross-validated {figures.metric} {figures.cv_mean:.6g}")
    if figures.leaks is not None:
        parts.append(f"leaks: {', '.join(figures.leaks)}" if figures.leaks else "no leak found")
    return _statement("Predictability", parts)


def _computability(figures: PcsFigures) -> str:
    parts = []
    if figures.unseeded is not None:
        names = ", ".join(figures.unseeded)
        parts.append(f"without a seed: {names}" if names else "all random calls are seeded")
    if figures.versions_recorded:
        parts.append("versions are recorded")
    if figures.data_sha256:
        parts.append(f"data SHA-256 {figures.data_sha256[:12]}")
    if figures.reexecuted is not None:
        parts.append("re-execution equal" if figures.reexecuted else "re-execution differs")
    return _statement("Computability", parts)


def _stability(figures: PcsFigures) -> str:
    if figures.variation is None:
        return _statement("Stability", [])
    refits = len(figures.perturbed_scores or ())
    return _statement(
        "Stability",
        [
            f"coefficient of variation {figures.variation:.4g} over {refits} refits, "
            f"threshold {figures.stability_threshold:g}"
        ],
    )


def _statement(name: str, parts: Sequence[str]) -> str:
    return f"{name}: {'; '.join(parts) or NOT_MEASURED}."
