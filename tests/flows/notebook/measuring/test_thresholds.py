"""N-78: a revision that loosens or removes a threshold of the user's is refused."""

import pytest

from detent.flows.notebook.domain.problem import Threshold
from detent.flows.notebook.measuring.thresholds import is_looser, threshold_problems, thresholds_in

RMSE = Threshold("rmse", "<", 25000.0)
R2 = Threshold("r2", ">", 0.85)


@pytest.mark.parametrize(
    ("other", "looser"),
    [
        (Threshold("rmse", "<", 25000.0), False),
        (Threshold("rmse", "<", 24000.0), False),
        (Threshold("rmse", "<", 26000.0), True),
        (Threshold("rmse", "<=", 25000.0), True),
        (Threshold("rmse", "<=", 24999.0), False),
        (Threshold("rmse", ">", 100.0), True),
        (Threshold("mae", "<", 99999.0), False),
    ],
)
def test_what_lets_more_through_is_looser(other, looser):
    assert is_looser(other, RMSE) is looser


def test_an_upper_and_a_lower_limit_loosen_in_opposite_directions():
    assert is_looser(Threshold("r2", ">", 0.8), R2)
    assert not is_looser(Threshold("r2", ">", 0.9), R2)


class TestProblems:
    def test_keeping_or_tightening_is_no_problem(self):
        assert threshold_problems((RMSE, R2), (Threshold("rmse", "<", 24000.0), R2)) == ()

    def test_loosening_is(self):
        (problem,) = threshold_problems((RMSE, R2), (Threshold("rmse", "<", 30000.0), R2))
        assert "RMSE < 25000" in problem
        assert "RMSE < 30000" in problem

    def test_removing_is(self):
        (problem,) = threshold_problems((RMSE, R2), (R2,), before=(RMSE, R2))
        assert "removed" in problem

    def test_a_text_that_never_stated_it_removes_nothing(self):
        assert threshold_problems((RMSE, R2), (R2,), before=(R2,)) == ()
        assert len(threshold_problems((RMSE, R2), ())) == 2

    def test_an_intermediate_aim_beside_the_threshold_loosens_nothing(self):
        assert threshold_problems((RMSE,), (Threshold("rmse", "<", 30000.0), RMSE)) == ()


def test_limits_are_read_from_criteria_either_way_round():
    criteria = (
        'test_performance["rmse"] < 30000',
        '0.8 < cv_metrics["r2"]',
        'other["rmse"] < 1',
        "no expression at all",
        'test_performance["rmse"] < limit',
    )
    found = [(limit.metric, limit.comparison, limit.value) for limit in thresholds_in(criteria)]
    assert found == [("rmse", "<", 30000.0), ("r2", ">", 0.8)]
