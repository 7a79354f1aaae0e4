"""Budget use of a run, its descendants under way and its ancestors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from detent.engine.ports import Clock
from detent.kernel.budget import SHARED, Budget
from detent.kernel.errors import BudgetExceededError
from detent.kernel.run import Run


class Spending:
    """One run's use of its budget, and through `parent` of its ancestors'."""

    __slots__ = ("began", "budgeted", "clock", "live", "parent", "run")

    def __init__(self, clock: Clock, run: Run, parent: Spending | None) -> None:
        self.clock = clock
        self.run = run
        self.parent = parent
        """The parent run's spending, while that run is under way in this process too."""
        self.live: dict[str, float] = dict.fromkeys(SHARED, 0)
        """Use of descendants under way that is not yet rolled up into this run."""
        self.began: float | None = None
        """When the step under way began."""
        self.budgeted: bool = run.budget is not None or (parent is not None and parent.budgeted)

    def short_of(self, cap: Budget | None = None) -> tuple[str, float, float] | None:
        """The exhausted limit that keeps an agent from being asked: its name, the amount used, the limit.

        `cap` is the step's own budget, against which the visit's use counts.
        """
        if cap is not None:
            run = self.run
            seconds = run.visit_seconds
            if self.began is not None:
                seconds += self.clock.elapsed() - self.began
            used = {
                "tokens": run.visit_spend.tokens, "cost_usd": run.visit_spend.cost_usd, "seconds": seconds
            }  # fmt: skip
            if (limit := cap.exceeded(used)) is not None:
                return limit, used[limit], getattr(cap, limit)
        spending: Spending | None = self
        while spending is not None:
            budget = spending.run.budget
            if budget is not None and budget.enforce:
                total = spending.used()
                if (limit := budget.exceeded(total)) is not None:
                    return limit, total[limit], getattr(budget, limit)
            spending = spending.parent
        return None

    def money_is_limited(self, cap: Budget | None = None) -> bool:
        """True when some budget limits money."""
        if cap is not None and cap.cost_usd is not None:
            return True
        spending: Spending | None = self
        while spending is not None:
            if spending.run.budget is not None and spending.run.budget.cost_usd is not None:
                return True
            spending = spending.parent
        return False

    def used(self) -> dict[str, float]:
        """Use that counts against this run's budget, including descendants under way."""
        used = self.run.used()
        for name, more in self.live.items():
            used[name] += more
        if self.began is not None:
            used["seconds"] += self.clock.elapsed() - self.began
        return used

    def own(self) -> tuple[float, float, float]:
        run = self.run
        own = run.spend + run.visit_spend + run.side_spend
        return own.tokens, own.cost_usd, run.steps

    def count_in(self, used: Mapping[str, float]) -> None:
        """Count a child's earlier use, when it comes under way here, for this run and its ancestors."""
        spending: Spending | None = self
        while spending is not None:
            for name in SHARED:
                spending.live[name] += used[name]
            spending = spending.parent

    def count_out(self, used: Mapping[str, float]) -> None:
        """Stop counting a child as under way: it is rolled up into this run now."""
        for name in SHARED:
            self.live[name] -= used[name]

    def roll_up(self, before: tuple[float, float, float]) -> None:
        """Count the use of a commit against the ancestors under way."""
        after = self.own()
        ancestor = self.parent
        while ancestor is not None:
            for index, name in enumerate(SHARED):
                ancestor.live[name] += after[index] - before[index]
            ancestor = ancestor.parent

    def afford(self, cap: Budget | None, may_spend: Callable[[], bool]) -> None:
        """Check that the budgets leave room for further spending.

        `cap` limits the step's visit, within the run's budget.

        Raises:
            BudgetExceededError: a budget is used up.
        """
        if cap is None and not (self.budgeted and may_spend()):
            return  # a step passed the budget when it began, and may finish
        if (short := self.short_of(cap)) is not None:
            limit, used, of = short
            raise BudgetExceededError(limit, of, used)
