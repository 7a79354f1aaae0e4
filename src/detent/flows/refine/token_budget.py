"""Token budgets by stage: what is used, what is left, and whether another attempt can be paid.

Stand-alone it is told what each stage used. In a run it is a view of the engine's budget and journaled spend
(`TokenBudgetManager.of_run`), so that a resumed run goes on from the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from detent.engine import logger
from detent.kernel import errors as kernel
from detent.kernel.budget import Budget, Spend
from detent.kernel.errors import ConfigurationError, nearest

TOKEN_BUDGET = 75_000
BUFFER = 0.2
ESTIMATES: Mapping[str, int] = {
    "plan": 5500,
    "validate": 0,
    "implementation": 8500,
    "judge": 6500,
    "refinement": 7000,
}
"""Tokens that one call of an agent is expected to use, by stage."""
STAGES = tuple(ESTIMATES)
WHOLE_ATTEMPT = ("plan", "implementation", "judge")
PRICES = (5.0, 15.0)
"""USD for a million tokens of input and of output, where no price table decides."""


class BudgetExceededError(kernel.BudgetExceededError):
    """The token budget does not cover a stage."""

    def __init__(self, stage: str, needed: int, remaining: int) -> None:
        self.stage = stage
        self.needed = needed
        self.remaining = remaining
        super().__init__("tokens", remaining, needed)
        self.args = (
            f"The token budget does not cover '{stage}': it needs {needed:,} tokens, {remaining:,} are left. "
            f"Raise it, or do not enforce it.",
        )


class Usage(NamedTuple):
    """What one stage has used."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: some of it was used by a model without a price."""


class TokenBudgetManager:
    """Counts tokens by stage against a budget."""

    def __init__(
        self,
        token_budget: int = TOKEN_BUDGET,
        enforce_token_budget: bool = True,
        token_buffer_pct: float = BUFFER,
        estimates: Mapping[str, int] | None = None,
        prices: tuple[float, float] | None = PRICES,
        deterministic: Iterable[str] = (),
    ) -> None:
        """`deterministic` stages are performed by code: their estimate is 0. `prices` None: not known."""
        if isinstance(token_budget, bool) or not isinstance(token_budget, int) or token_budget < 1:
            raise ConfigurationError(f"token_budget is {token_budget!r}; it must be a whole number above 0.")
        if not 0 <= token_buffer_pct < 10:
            raise ConfigurationError(
                f"token_buffer_pct is {token_buffer_pct!r}; it is a share such as 0.2, not a percentage."
            )
        given = dict(estimates or {})
        for stage in (*given, *deterministic):
            _check_stage(stage, ConfigurationError)
        if wrong := [stage for stage, tokens in given.items() if not isinstance(tokens, int) or tokens < 0]:
            raise ConfigurationError(f"The estimate of '{wrong[0]}' must be a whole number of 0 or more.")
        self.token_budget = token_budget
        self.enforce_token_budget = enforce_token_budget
        self.token_buffer_pct = token_buffer_pct
        self.estimates = {**ESTIMATES, **given, **dict.fromkeys(deterministic, 0)}
        self.prices = prices
        self.iterations = 0
        self._usage: dict[str, Usage] = {}
        self._warned = False

    @property
    def budget(self) -> Budget:
        """The same limit for a run."""
        return Budget(tokens=self.token_budget, enforce=self.enforce_token_budget)

    # -- counting -------------------------------------------------------------------------------------------

    def record_stage(self, stage: str, input_tokens: int, output_tokens: int) -> None:
        """Add what one call of a stage used.

        Raises:
            ValueError: the stage is unknown, or a number negative.
        """
        _check_stage(stage, ValueError)
        for name, tokens in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
            if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
                raise ValueError(f"{name} is {tokens!r}; it must be a whole number of 0 or more.")
        cost = 0.0
        if self.prices is not None:
            cost = input_tokens / 1e6 * self.prices[0] + output_tokens / 1e6 * self.prices[1]
        known = self.prices is not None or not (input_tokens or output_tokens)
        self._add(stage, input_tokens, output_tokens, cost if known else None)

    def _add(self, stage: str, input_tokens: int, output_tokens: int, cost: float | None) -> None:
        usage = self._usage.get(stage, Usage())
        total = None if cost is None or usage.cost_usd is None else usage.cost_usd + cost
        self._usage[stage] = Usage(
            usage.calls + 1, usage.input_tokens + input_tokens, usage.output_tokens + output_tokens, total
        )
        if self.total_used > self.token_budget and not self._warned:
            self._warned = True
            logger.warning("budget.passed", limit="tokens", spent=self.total_used, of=self.token_budget)

    def take_report(self, report: Mapping[str, Any]) -> None:
        """Count what the report of a run says was used, in place of what was counted before."""
        self.reset()
        self.iterations = report["iterations"]
        for row in report["stage_usage"]:
            self._usage[row["stage"]] = Usage(
                row["calls"], row["input_tokens"], row["output_tokens"], row["cost_usd"]
            )

    def increment_iteration(self) -> None:
        """Count an iteration."""
        self.iterations += 1

    def reset(self) -> None:
        """Everything to zero; settings are kept."""
        self.iterations = 0
        self._usage.clear()
        self._warned = False

    # -- asking ---------------------------------------------------------------------------------------------

    @property
    def total_used(self) -> int:
        """Tokens used by all stages."""
        return sum(usage.input_tokens + usage.output_tokens for usage in self._usage.values())

    @property
    def remaining(self) -> int:
        """Tokens left; negative once the budget is passed."""
        return self.token_budget - self.total_used

    def is_exhausted(self) -> bool:
        """True if an enforced budget is used up."""
        return self.enforce_token_budget and self.remaining <= 0

    def needed(self, stage: str, *, include_buffer: bool = True) -> int:
        """The estimate of a stage, by default with its buffer."""
        _check_stage(stage, ValueError)
        # Rounded first: 5500 * 1.2 is 6600, whatever a float makes of it.
        buffer = 1 + self.token_buffer_pct if include_buffer else 1
        return int(round(self.estimates[stage] * buffer, 6))

    def can_afford_retry(self, stage: str) -> bool:
        """True if what is left covers another call of a stage, with its buffer."""
        return self.remaining >= self.needed(stage)

    def predict_remaining_cost(self, stages: Iterable[str], include_buffer: bool = True) -> int:
        """Tokens that the stages are expected to use."""
        return sum(self.needed(stage, include_buffer=include_buffer) for stage in stages)

    def ensure_affordable(self, stage: str) -> None:
        """Raise `BudgetExceededError` if an enforced budget does not cover a stage."""
        if self.enforce_token_budget and not self.can_afford_retry(stage):
            raise BudgetExceededError(stage, self.needed(stage), self.remaining)

    def get_status(self) -> dict[str, Any]:
        """Where the budget stands."""
        return {
            "total_used": self.total_used,
            "total_budget": self.token_budget,
            "remaining": self.remaining,
            "used_pct": self.total_used / self.token_budget * 100,
            "can_continue": self.remaining > 0 or not self.enforce_token_budget,
            "predicted_total": self.total_used + self.predict_remaining_cost(WHOLE_ATTEMPT),
        }

    def get_report(self) -> dict[str, Any]:
        """Use by stage, in the order of the stages; a cost is null if some price is not known."""
        rows = [(stage, self._usage[stage]) for stage in STAGES if stage in self._usage]
        costs = [usage.cost_usd for _, usage in rows]
        known = [cost for cost in costs if cost is not None]
        return {
            "stage_usage": [
                {
                    "stage": stage,
                    "calls": usage.calls,
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "total_tokens": usage.input_tokens + usage.output_tokens,
                    "cost_usd": usage.cost_usd,
                }
                for stage, usage in rows
            ],
            "total_used": self.total_used,
            "total_budget": self.token_budget,
            "budget_exceeded": self.total_used > self.token_budget,
            "iterations": self.iterations,
            "cost_usd": sum(known) if len(known) == len(costs) else None,
        }


def report_of_run(
    visits: Iterable[tuple[str, Spend]], budget: Budget | None, iterations: int
) -> dict[str, Any]:
    """The same report from a run's journal: each visit's own spend, retries and rejected answers included.

    Money is what the journal says; tokens without a price make it null.
    """
    limit = None if budget is None or budget.tokens is None else int(budget.tokens)
    manager = TokenBudgetManager()
    manager._warned = True  # the engine has warned
    for stage, spend in visits:
        unpriced = spend.tokens > 0 and not spend.cost_usd
        manager._add(stage, spend.input_tokens, spend.output_tokens, None if unpriced else spend.cost_usd)
    report = manager.get_report()
    over = limit is not None and report["total_used"] > limit
    return {**report, "total_budget": limit, "budget_exceeded": over, "iterations": iterations}


def _check_stage(stage: str, error: type[Exception]) -> None:
    if stage not in ESTIMATES:
        raise error(f"There is no stage '{stage}'. Stages: {', '.join(STAGES)}.{nearest(str(stage), STAGES)}")
