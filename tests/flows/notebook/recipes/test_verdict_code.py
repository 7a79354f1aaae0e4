"""How limits are judged where results are reported: by direction, by both scores, and honest about chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detent.flows.notebook.recipes.verdict_code import MEASURED


def report(**names: Any) -> dict[str, Any]:
    """The functions beside what earlier steps left."""
    found: dict[str, Any] = {
        "np": np,
        "problem_thresholds": [{"metric": "rmse", "comparison": "<", "value": 10.0}],
        "cv_metrics": {"rmse": 8.0, "r2": 0.8, "n": 80},
        "baseline_metrics": {"rmse": 20.0, "r2": 0.0, "n": 80},
        "test_performance": {"rmse": 9.0, "r2": 0.7, "n": 20},
        "baseline_performance": {"rmse": 21.0, "r2": -0.1, "n": 20},
        "holdout_interval": {"rmse": [7.0, 9.5], "r2": [0.5, 0.9]},
        **names,
    }
    exec(MEASURED, found)
    return found


def limit(metric: str, comparison: str, value: object) -> list[dict[str, object]]:
    return [{"metric": metric, "comparison": comparison, "value": value}]


class TestDirections:
    @pytest.mark.parametrize(
        ("metric", "comparison", "value", "met"),
        [
            ("rmse", "<", 10.0, True), ("rmse", "<", 8.5, False), ("rmse", "<", 5.0, False),
            ("rmse", "<=", 9.0, True), ("rmse", "<", 9.0, False),
            ("r2", ">", 0.6, True), ("r2", ">", 0.75, False), ("r2", ">", 0.9, False),
            ("r2", ">=", 0.7, True), ("r2", ">", 0.7, False),
        ],
    )  # fmt: skip
    def test_a_limit_is_met_only_in_the_folds_and_on_the_hold_out(
        self, metric: str, comparison: str, value: float, met: bool
    ) -> None:
        # N-93: a model that misses one of them has not achieved what was asked for.
        found = report(problem_thresholds=limit(metric, comparison, value))
        (row,) = found["limits_reached"]()
        assert row["met"] is met
        assert found["verdict"]() == ("achieved" if met else "not achieved")
        assert ("not met" in found["limits_table"]()) is not met

    def test_met_on_the_hold_out_and_missed_in_the_folds_is_missed(self) -> None:
        found = report(cv_metrics={"rmse": 11.0, "n": 80})
        assert found["verdict"]() == "not achieved"
        (line,) = found["verdict_lines"]()
        assert "9 on the hold-out, met" in line
        assert "11 in the folds, **not met**" in line

    def test_one_of_two_missed_is_not_achieved(self) -> None:
        limits = limit("rmse", "<", 10.0) + limit("r2", ">", 0.99)
        assert report(problem_thresholds=limits)["verdict"]() == "not achieved"


class TestBaseline:
    @pytest.mark.parametrize(("metric", "comparison"), [("rmse", "<"), ("r2", ">")])
    def test_each_score_is_held_against_the_baseline_of_its_own_rows(
        self, metric: str, comparison: str
    ) -> None:
        found = report(problem_thresholds=limit(metric, comparison, "baseline"))
        assert found["verdict"]() == "achieved"
        worse = {"rmse": 8.5, "r2": 0.75}  # better than the folds' model is no help on the hold-out
        found = report(problem_thresholds=limit(metric, comparison, "baseline"), baseline_performance=worse)
        (row,) = found["limits_reached"]()
        assert (row["kept in folds"], row["kept on hold-out"], row["met"]) == (True, False, False)


class TestChance:
    @pytest.mark.parametrize(
        ("value", "undecided"), [(9.6, False), (9.4, True), (7.0, True), (9.5, True), (6.9, False)]
    )
    def test_a_limit_inside_the_interval_is_undecided(self, value: float, undecided: bool) -> None:
        found = report(problem_thresholds=limit("rmse", "<", value))
        (row,) = found["limits_reached"]()
        assert row["undecided"] is undecided
        assert ("**undecided**" in found["verdict_lines"]()[0]) is undecided
        assert ("undecided" in found["limits_table"]()) is undecided

    def test_undecided_is_no_way_out_of_missed(self) -> None:
        found = report(problem_thresholds=limit("rmse", "<", 8.5))
        assert found["limits_reached"]()[0]["undecided"]
        assert found["verdict"]() == "not achieved"


class TestNotMeasured:
    @pytest.mark.parametrize("name", ["cv_metrics", "test_performance"])
    def test_a_limit_without_a_score_is_not_met(self, name: str) -> None:
        found = report(**{name: None})
        assert found["verdict"]() == "not achieved"
        assert "not measured" in found["verdict_lines"]()[0]

    def test_without_an_interval_nothing_is_called_undecided(self) -> None:
        found = report(holdout_interval=None, problem_thresholds=limit("rmse", "<", 9.4))
        assert found["limits_reached"]()[0]["undecided"] is False
        assert "–" in found["limits_table"]()

    def test_a_score_that_is_no_number_keeps_no_limit(self) -> None:
        found = report(test_performance={"rmse": float("nan")})
        assert found["verdict"]() == "not achieved"

    @pytest.mark.parametrize("keys", [("absent",), ("rmse", "deeper")])
    def test_a_figure_that_is_not_there(self, keys: tuple[str, ...]) -> None:
        assert report()["measured"]("cv_metrics", *keys) == "not measured"


class TestTables:
    def test_every_score_stands_beside_the_baseline_s(self) -> None:
        lines = report()["scores_table"]().splitlines()
        assert lines[2:] == ["| rmse | 20 | 8 | 21 | 9 |", "| r2 | 0 | 0.8 | -0.1 | 0.7 |"]

    def test_leaks_are_told_as_leaks(self) -> None:
        found = report(
            feature_engineering_strategy={"left_out": {"id": "an id", "copy": "all alike"}},
            leakage_report={"removed": {"copy": "tells the target"}},
        )
        assert found["columns_out"]() == {"id": "an id", "copy": "a leak: tells the target"}

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (True, "yes"), (np.False_, "no"), (12345, "12,345"), (0.123456, "0.1235"), (25000.4, "25,000"),
            ({"a": 1, "b": 0.5}, "a: 1, b: 0.5"), ([], "none"), ("two\nlines", "two lines"),
        ],
    )  # fmt: skip
    def test_figures_as_people_write_them(self, value: object, text: str) -> None:
        assert report()["figure_text"](value) == text
