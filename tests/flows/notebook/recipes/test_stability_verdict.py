"""How much refits vary, as one figure, and the verdict on it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest
from sklearn.base import clone
from sklearn.metrics import root_mean_squared_error

from detent.flows.notebook.recipes.recipe import RecipeSettings
from tests.flows.notebook.recipes.model_notebooks import ModelNotebook

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy

VARIATION, CONSOLIDATION = "multi_variation_analysis", "stability_consolidation"


def with_scores(
    notebook: ModelNotebook, folder: Path, scores: list[float], threshold: float = 0.1, moved: float = 0.0
) -> ModelNotebook:
    """The verdict on refits that came out with some scores; other preparations move the score by a share."""
    other = notebook.branch(folder)
    other.names["perturbation_test_results"] = [
        {"perturbation": f"refit, {number}", "metric": "rmse", "score": score}
        for number, score in enumerate(scores)
    ]
    other.names["refitted_score"] = lambda *_: other["reference_score"] * (1 + moved)
    (folder / "outputs").mkdir()
    settings = RecipeSettings(stability_threshold=threshold)
    return other.cook(VARIATION, CONSOLIDATION, settings=settings)


STEADY = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03, 0.97, 1.0, 1.0]
SHAKY = [1.0, 1.5, 0.6, 1.2, 0.9, 1.0, 1.3, 0.7, 1.0, 1.0]


class TestVariation:
    # N-86
    def test_it_is_the_deviation_over_the_absolute_mean_of_at_least_ten(
        self, homes: ModelNotebook, blooms: ModelNotebook
    ) -> None:
        for notebook in (homes, blooms):
            scores = [result["score"] for result in notebook["perturbation_test_results"]]
            figures = notebook["stability_metrics"]
            assert figures["refits"] == len(scores) >= 10
            assert figures["variation_coefficient"] == pytest.approx(stdev(scores) / abs(fmean(scores)))
            assert figures["threshold"] == 0.1

    def test_negative_scores_have_a_positive_variation(self, homes: ModelNotebook, tmp_path: Path) -> None:
        # R² of a useless model: without the absolute value it would be below any threshold.
        other = with_scores(homes, tmp_path, [-score for score in SHAKY])
        assert other["stability_metrics"]["variation_coefficient"] == pytest.approx(
            stdev(SHAKY) / fmean(SHAKY)
        )
        assert other["stability_certification"]["certified"] is False

    def test_scores_around_zero_are_never_stable(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = with_scores(homes, tmp_path, [1.0, -1.0] * 5)
        assert other["stability_metrics"]["variation_coefficient"] == float("inf")
        assert other["stability_certification"]["certified"] is False
        saved = json.loads(
            (tmp_path / "outputs" / "metrics.json").read_text(encoding="utf-8"),
            parse_constant=lambda word: pytest.fail(f"{word} is no JSON"),
        )
        assert saved["stability_metrics"]["variation_coefficient"] is None

    @pytest.mark.parametrize(
        ("scores", "threshold", "certified"),
        [(STEADY, 0.1, True), (SHAKY, 0.1, False), (SHAKY, 0.5, True), (STEADY, 0.001, False)],
    )
    def test_the_threshold_is_the_configured_one(
        self, homes: ModelNotebook, tmp_path: Path, scores: list[float], threshold: float, certified: bool
    ) -> None:
        other = with_scores(homes, tmp_path, scores, threshold)
        assert other["stability_metrics"]["threshold"] == threshold
        assert other["stability_certification"]["certified"] is certified
        assert ("**not below**" in other.texts[VARIATION]) is not certified
        assert ("**not certified as stable**" in other.texts[CONSOLIDATION]) is not certified
        advice = " ".join(other["improvement_recommendations"])
        assert ("hangs on which rows are drawn" in advice) is not certified

    def test_nine_refits_are_too_few(self, homes: ModelNotebook, tmp_path: Path) -> None:
        assert with_scores(homes, tmp_path, STEADY[:9])["stability_certification"]["certified"] is False


class TestPreparations:
    def test_each_is_a_refit_scored_on_the_rows_set_aside(self, homes: ModelNotebook) -> None:
        model = homes["prepared_otherwise"](homes["final_model"], imputing="mean")
        model = clone(model).fit(homes["X_rest"], homes["y_rest"])
        error = root_mean_squared_error(homes["y_aside"], model.predict(homes["X_aside"]))
        assert homes["preparation_scores"]["gaps filled with the mean"] == pytest.approx(error)
        assert len(homes["preparation_scores"]) == 4

    def test_features_are_in_fact_prepared_otherwise(self, homes: ModelNotebook) -> None:
        model = homes["prepared_otherwise"](homes["final_model"], imputing="mean")
        strategies = {
            value for name, value in model.get_params().items() if name.endswith("simpleimputer__strategy")
        }
        assert "median" not in strategies
        assert "mean" in strategies

    def test_interactions_stay(self, homes: ModelNotebook, tmp_path: Path) -> None:
        other = homes.branch(tmp_path)
        model = other.value("model_of(linear_estimator(), interactions=True)")
        again = other["prepared_otherwise"](model, imputing="mean")
        assert any("interactions" in name for name in again.get_params())


class TestVerdict:
    def test_it_gives_its_grounds_in_figures(self, homes: ModelNotebook) -> None:
        certificate = homes["stability_certification"]
        assert certificate["variation_coefficient"] == homes["stability_metrics"]["variation_coefficient"]
        assert len(certificate["grounds"]) == 3
        assert f"{certificate['variation_coefficient']:.3f}" in certificate["grounds"][0]

    @pytest.mark.parametrize(("moved", "depends"), [(0.37, True), (-0.37, True), (0.05, False)])
    def test_a_preparation_that_moves_the_score_is_named_with_it(
        self, homes: ModelNotebook, tmp_path: Path, moved: float, depends: bool
    ) -> None:
        other = with_scores(homes, tmp_path, STEADY, moved=moved)
        certificate = other["stability_certification"]
        assert certificate["certified"] is True  # N-86 goes by the refits alone
        assert certificate["preparation_move"] == pytest.approx(abs(moved))
        assert ("stable under resampling; it depends on" in certificate["verdict"]) is depends
        assert ("a move of 37%" in other.texts[CONSOLIDATION]) is depends
        assert ("**certified as stable**" in other.texts[CONSOLIDATION]) is not depends

    def test_the_figures_join_those_of_stage_six(self, homes: ModelNotebook) -> None:
        saved = json.loads((homes.folder / "outputs" / "metrics.json").read_text(encoding="utf-8"))
        assert saved["stability_metrics"] == homes["stability_metrics"]
        assert saved["certified"] is homes["stability_certification"]["certified"]
        assert saved["test_performance"] == homes["test_performance"]

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            ({"cv_spread": 1e-9}, "more than twice the spread"),
            ({"kept_leaks": {"price_in_thousands": "a copy"}}, "kept as asked"),
            (
                {"temporal_validation_report": {"rmse": 3.0, "baseline": 2.0}},
                "no better than the baseline",
            ),
            (
                {
                    "threshold_verdicts": [
                        {
                            "metric": "rmse", "comparison": "<", "value": 1, "met": False,
                            "met_in_folds": True, "undecided": True,
                        }
                    ]
                },
                "is not reached",
            ),
        ],
    )  # fmt: skip
    def test_the_advice_follows_the_figures(
        self, homes: ModelNotebook, tmp_path: Path, names: dict[str, object], words: str
    ) -> None:
        other = homes.branch(tmp_path)
        other.names.update(names)
        other.names.setdefault("kept_leaks", {})
        assert words in " ".join(other["recommendations"]())
