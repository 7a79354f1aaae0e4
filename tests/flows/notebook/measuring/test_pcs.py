"""Compliance with PCS."""

import math
from dataclasses import replace

import pytest

from detent.flows.notebook.measuring.pcs import (
    PcsFigures,
    pcs_statements,
    perturbed_scores,
    variation_coefficient,
)

GOOD = PcsFigures(
    metric="rmse",
    holdout_rows=586,
    holdout_score=23911.4,
    cv_mean=24105.2,
    leaks=(),
    unseeded=(),
    versions_recorded=True,
    data_sha256="ab" * 32,
    reexecuted=True,
    perturbed_scores=(10.0, 10.1) * 5,
)


class TestPredictability:
    """N-84."""

    def test_a_scored_hold_out_without_a_leak_is_compliant(self):
        assert GOOD.is_predictable
        assert GOOD.gap == pytest.approx(-193.8)

    @pytest.mark.parametrize(
        "changes",
        [
            {"holdout_rows": None},
            {"holdout_rows": 0},
            {"holdout_score": None},
            {"holdout_score": math.nan},
            {"leaks": None},  # the checks did not run: not measured is not compliant
            {"leaks": ("price_copy",)},
        ],
    )
    def test_anything_less_is_not(self, changes):
        assert not replace(GOOD, **changes).is_predictable


class TestComputability:
    """N-85."""

    def test_seeds_versions_data_and_an_equal_reexecution_are_compliant(self):
        assert GOOD.is_computable

    @pytest.mark.parametrize(
        "changes",
        [
            {"unseeded": None},
            {"unseeded": ("cell 3: sample",)},
            {"versions_recorded": False},
            {"data_sha256": None},
            {"reexecuted": False},
            {"reexecuted": None},
        ],
    )
    def test_anything_less_is_not(self, changes):
        assert not replace(GOOD, **changes).is_computable


class TestStability:
    """N-86."""

    def test_the_coefficient_is_the_deviation_by_the_absolute_mean(self):
        assert variation_coefficient([9.0, 10.0, 11.0]) == pytest.approx(0.1)
        assert variation_coefficient([-9.0, -10.0, -11.0]) == pytest.approx(0.1)

    @pytest.mark.parametrize("scores", [[], [1.0], [0.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, True]])
    def test_where_it_is_no_number_there_is_none(self, scores):
        assert variation_coefficient(scores) is None

    def test_it_takes_ten_refits(self):
        assert GOOD.is_stable
        nine = replace(GOOD, perturbed_scores=GOOD.perturbed_scores[:9])
        assert nine.variation is None
        assert not nine.is_stable
        assert not replace(GOOD, perturbed_scores=None).is_stable

    def test_the_threshold_is_a_setting_and_not_met_by_equality(self):
        wide = replace(GOOD, perturbed_scores=(8.0, 12.0) * 5)
        assert not wide.is_stable
        assert replace(wide, stability_threshold=0.3).is_stable
        assert not replace(wide, stability_threshold=wide.variation).is_stable

    @pytest.mark.parametrize(
        ("results", "scores"),
        [
            ([1.0, 2], (1.0, 2.0)),
            ([{"kind": "seed", "score": 1.0}, {"rmse": 2.0}], (1.0, 2.0)),
            ({"a": 1.0, "b": {"score": 3}}, (1.0, 3.0)),
            ([{"kind": "seed"}], None),
            ("text", None),
            (None, None),
            ([1.0, None], None),
        ],
    )
    def test_scores_are_read_from_numbers_or_records(self, results, scores):
        assert perturbed_scores(results, "rmse") == scores


class TestStatements:
    """N-53."""

    def test_they_name_the_figures(self):
        texts = pcs_statements(GOOD)
        assert "23911.4" in texts.predictability
        assert "586 rows" in texts.predictability
        assert "no leak found" in texts.predictability
        assert "all random calls are seeded" in texts.computability
        assert "over 10 refits" in texts.stability

    def test_without_figures_they_say_so_and_are_not_empty(self):
        texts = pcs_statements(PcsFigures())
        for text in (texts.predictability, texts.computability, texts.stability):
            assert text.endswith("not measured.")

    def test_leaks_and_unseeded_cells_are_named(self):
        texts = pcs_statements(replace(GOOD, leaks=("price_copy",), unseeded=("cell 3: sample",)))
        assert "price_copy" in texts.predictability
        assert "cell 3: sample" in texts.computability


def test_the_figures_are_plain():
    plain = PcsFigures().to_plain()
    assert [part["compliant"] for part in plain.values()] == [False, False, False]
    assert GOOD.to_plain()["stability"]["refits"] == 10
