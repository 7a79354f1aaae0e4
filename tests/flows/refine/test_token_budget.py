"""Token budgets: every figure of the specification."""

from __future__ import annotations

import pytest

from detent.flows.refine.token_budget import BudgetExceededError, TokenBudgetManager
from detent.kernel import errors as kernel
from detent.kernel.errors import ConfigurationError


def used(tokens, **options):
    manager = TokenBudgetManager(**options)
    manager.record_stage("plan", tokens, 0)
    return manager


@pytest.mark.parametrize(
    ("stage", "needed"),
    [("plan", 6600), ("validate", 0), ("implementation", 10200), ("judge", 7800), ("refinement", 8400)],
)
def test_a_retry_needs_its_estimate_and_a_fifth(stage, needed):
    """R-29"""
    assert used(75_000 - needed).can_afford_retry(stage) is True
    assert used(75_001 - needed).can_afford_retry(stage) is False
    manager = used(75_001 - needed)
    with pytest.raises(BudgetExceededError) as error:
        manager.ensure_affordable(stage)
    assert (error.value.stage, error.value.needed, error.value.remaining) == (stage, needed, needed - 1)
    assert f"{needed:,}" in str(error.value)
    assert isinstance(error.value, kernel.BudgetExceededError)
    used(90_000, enforce_token_budget=False).ensure_affordable(stage)


def test_predictions():
    """R-29"""
    manager = TokenBudgetManager()
    assert manager.predict_remaining_cost(["plan", "implementation", "judge"]) == 24600
    assert manager.predict_remaining_cost(["plan", "refinement"], include_buffer=False) == 12500
    assert TokenBudgetManager(deterministic=["plan"]).predict_remaining_cost(["plan", "judge"]) == 7800
    assert TokenBudgetManager(token_buffer_pct=0.0).needed("plan") == 5500
    assert TokenBudgetManager(estimates={"plan": 10}).needed("plan") == 12


def test_status_and_exhaustion():
    """R-29: remaining may be negative, and used_pct above 100."""
    manager = used(60_000)
    assert manager.get_status() == {
        "total_used": 60_000, "total_budget": 75_000, "remaining": 15_000, "used_pct": 80.0,
        "can_continue": True, "predicted_total": 84_600,
    }  # fmt: skip
    assert [used(tokens).is_exhausted() for tokens in (74_999, 75_000)] == [False, True]
    over = used(90_000, enforce_token_budget=False)
    assert (over.is_exhausted(), over.get_status()["can_continue"]) == (False, True)
    assert (over.get_status()["remaining"], over.get_status()["used_pct"]) == (-15_000, 120.0)
    assert used(75_000).get_status()["can_continue"] is False


def test_the_report_adds_up_and_costs(heard):
    """R-29: 5 and 15 USD a million unless said otherwise; passing the budget is warned once."""
    manager = TokenBudgetManager(1000)
    manager.record_stage("plan", 600, 200)
    manager.record_stage("judge", 100, 100)
    assert not heard.named("budget.passed")
    manager.record_stage("plan", 400, 0)
    manager.record_stage("plan", 1, 0)
    manager.increment_iteration()
    report = manager.get_report()
    assert [row["stage"] for row in report["stage_usage"]] == ["plan", "judge"]
    assert report["stage_usage"][0] == {
        "stage": "plan", "calls": 3, "input_tokens": 1001, "output_tokens": 200, "total_tokens": 1201,
        "cost_usd": pytest.approx(0.008005),
    }  # fmt: skip
    assert (report["total_used"], report["budget_exceeded"], report["iterations"]) == (1401, True, 1)
    assert report["cost_usd"] == pytest.approx(0.010005)
    assert len(heard.named("budget.passed")) == 1
    manager.reset()
    assert manager.get_report() == {
        "stage_usage": [], "total_used": 0, "total_budget": 1000, "budget_exceeded": False, "iterations": 0,
        "cost_usd": 0,
    }  # fmt: skip


def test_a_model_without_a_price_has_no_cost():
    """R-29: null, except for code, which costs nothing."""
    manager = TokenBudgetManager(prices=None)
    manager.record_stage("validate", 0, 0)
    assert manager.get_report()["cost_usd"] == 0.0
    manager.record_stage("plan", 1, 0)
    assert manager.get_report()["cost_usd"] is None


@pytest.mark.parametrize(
    "wrong", [("plna", 1, 1), ("plan", -1, 0), ("plan", 0, -1), ("plan", True, 0), ("plan", 1.5, 0)]
)
def test_what_cannot_be_counted_changes_nothing(wrong):
    """R-29"""
    manager = TokenBudgetManager()
    with pytest.raises(ValueError, match="plan|tokens"):
        manager.record_stage(*wrong)
    assert manager.total_used == 0


@pytest.mark.parametrize(
    "wrong",
    [{"token_budget": 0}, {"token_budget": True}, {"token_buffer_pct": -0.1}, {"token_buffer_pct": 20},
     {"estimates": {"plna": 1}}, {"estimates": {"plan": -1}}, {"deterministic": ["x"]}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        TokenBudgetManager(**wrong)
