"""What the error means: against the baseline and the limits, in words and as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.flows.notebook.recipes.model_notebooks import (
    MODELLING,
    PREDICTABILITY,
    ModelNotebook,
    prepared,
)

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy

IMPACT = "business_impact_assessment"


def judged(notebook: ModelNotebook, folder: Path, **names: Any) -> ModelNotebook:
    """The notebook's impact where some figures are others; figures are put over those that are there."""
    other = notebook.branch(folder)
    for name, value in names.items():
        other.names[name] = {**other[name], **value} if isinstance(value, dict) else value
    other.play(IMPACT)
    return other


def limit(metric: str, comparison: str, value: object) -> dict[str, object]:
    return {"metric": metric, "comparison": comparison, "value": value}


class TestBaseline:
    @pytest.mark.parametrize(
        ("model", "baseline", "beats"), [(1.0, 2.0, True), (2.0, 2.0, False), (3.0, 2.0, False)]
    )
    def test_an_error_beats_it_by_being_smaller(
        self, homes: ModelNotebook, tmp_path: Path, model: float, baseline: float, beats: bool
    ) -> None:
        other = judged(homes, tmp_path, cv_metrics={"rmse": model}, baseline_metrics={"rmse": baseline})
        assert other["business_impact_report"]["beats_baseline"] is beats
        assert ("**The model does not beat the baseline in the folds.**" in other.texts[IMPACT]) is not beats

    @pytest.mark.parametrize(
        ("model", "baseline", "beats"), [(0.4, 0.3, True), (0.3, 0.3, False), (0.2, 0.3, False)]
    )
    def test_a_share_by_being_larger(
        self, blooms: ModelNotebook, tmp_path: Path, model: float, baseline: float, beats: bool
    ) -> None:
        metric = "balanced_accuracy"
        other = judged(blooms, tmp_path, cv_metrics={metric: model}, baseline_metrics={metric: baseline})
        assert other["business_impact_report"]["beats_baseline"] is beats

    def test_the_folds_decide_and_not_the_hold_out(self, homes: ModelNotebook, tmp_path: Path) -> None:
        # 9.1: the folds' mean of the primary metric.
        other = judged(homes, tmp_path, test_performance={"rmse": 1e9})
        assert other["business_impact_report"]["beats_baseline"] is True
        assert other["business_impact_report"]["holdout"]["model"] == 1e9

    def test_noise_does_not_beat_it_and_the_text_says_so_plainly(self, tmp_path: Path) -> None:
        # N-93. Against the median, an answer near the mean would have beaten it: the noise is skewed.
        rng = np.random.default_rng(1)
        table = pd.DataFrame({"a": rng.normal(size=70), "b": rng.normal(size=70)})
        table["y"] = rng.lognormal(size=70)
        notebook = prepared(tmp_path, table, "y", log_target=False).cook(*MODELLING[:2])
        notebook = notebook.branch(tmp_path, "HistGradientBoosting", "RandomForest")
        notebook.names["SEARCH_WORK"] = 0
        notebook.cook(MODELLING[2], *PREDICTABILITY[:4])
        notebook.play(IMPACT)
        assert notebook["business_impact_report"]["beats_baseline"] is False
        assert "does not beat the baseline" in notebook.texts[IMPACT]
        assert "rmse < baseline: **not met**" in notebook.texts[IMPACT]


class TestLimits:
    @pytest.mark.parametrize(
        ("folds", "holdout", "met"),
        [(1.0, 1.0, True), (1.0, 3.0, False), (3.0, 1.0, False), (3.0, 3.0, False)],
    )
    def test_one_is_met_only_in_the_folds_and_on_the_hold_out(
        self, homes: ModelNotebook, tmp_path: Path, folds: float, holdout: float, met: bool
    ) -> None:
        other = judged(
            homes, tmp_path, cv_metrics={"rmse": folds}, test_performance={"rmse": holdout},
            problem_thresholds=[limit("rmse", "<", 2.0)],
        )  # fmt: skip
        assert other["business_impact_report"]["limits_met"] == met
        assert ("**not met**" in other.texts[IMPACT]) is not met

    @pytest.mark.parametrize(
        ("metric", "comparison", "inside", "far"),
        [
            ("rmse", "<", 1.05, 50.0),
            ("mae", "<=", 1.05, 50.0),
            ("r2", ">", 0.99, 0.01),
            ("r2", ">=", 0.99, 0.01),
        ],
    )
    def test_one_inside_the_interval_is_undecided(
        self, homes: ModelNotebook, tmp_path: Path, metric: str, comparison: str, inside: float, far: float
    ) -> None:
        score = homes["test_performance"][metric]
        limits = [limit(metric, comparison, score * inside), limit(metric, comparison, score * far)]
        other = judged(homes, tmp_path, problem_thresholds=limits)
        near, away = other["threshold_verdicts"]
        assert (near["met"], near["undecided"]) == (True, True)
        assert (away["met"], away["undecided"]) == (True, False)
        assert other.texts[IMPACT].count("undecided") == 1

    def test_the_baseline_as_limit_is_that_of_the_hold_out_on_the_hold_out(
        self, homes: ModelNotebook, tmp_path: Path
    ) -> None:
        other = judged(
            homes, tmp_path, test_performance={"rmse": 5.0}, baseline_performance={"rmse": 4.0},
            baseline_metrics={"rmse": 1e9}, problem_thresholds=[limit("rmse", "<", "baseline")],
        )  # fmt: skip
        (verdict,) = other["threshold_verdicts"]
        assert (verdict["met_in_folds"], verdict["met"], verdict["undecided"]) == (True, False, False)


class TestWords:
    def test_the_error_is_in_the_target_s_own_units(self, homes: ModelNotebook) -> None:
        error = homes["test_performance"]["mae"]
        assert (
            f"off by **{homes['short'](error)}** on average, in the units of `price`" in homes.texts[IMPACT]
        )
        assert "always answering the mean" in homes.texts[IMPACT]

    def test_classes_are_told_of_a_hundred_rows(self, blooms: ModelNotebook) -> None:
        share = 100 * blooms["test_performance"]["accuracy"]
        assert f"Of 100 new rows about **{share:.0f}** get their right class" in blooms.texts[IMPACT]


class TestFile:
    def test_it_holds_the_scores_under_their_keys(self, homes: ModelNotebook) -> None:
        # 9.3
        text = (homes.folder / "outputs" / "metrics.json").read_text(encoding="utf-8")
        saved = json.loads(text)
        for name in ("test_performance", "cv_metrics", "holdout_interval", "cv_scores", "baseline_metrics"):
            assert saved[name] == homes[name]
        assert saved["thresholds"] == homes["threshold_verdicts"]
        assert saved["leaks"] == []

    def test_a_figure_that_could_not_be_measured_is_null(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = judged(
            homes, tmp_path, test_performance={"r2": np.nan}, cv_metrics={"mape": np.inf, "n": np.int64(3)}
        )
        text = (other.folder / "outputs" / "metrics.json").read_text(encoding="utf-8")
        saved = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert saved["test_performance"]["r2"] is None
        assert (saved["cv_metrics"]["mape"], saved["cv_metrics"]["n"]) == (None, 3)
