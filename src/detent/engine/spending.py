"""What a run, its descendants under way and its ancestors have used of their budgets."""

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
        """That of the parent run, while it is under way in this process too."""
        self.live: dict[str, float] = dict.fromkeys(SHARED, 0)
        """What descendants under way have used that is not yet rolled up into this run."""
        self.began: float | None = None
        """When the step under way began."""
        self.budgeted: bool = run.budget is not None or (parent is not None and parent.budgeted)

    def short_of(self, cap: Budget | None = None) -> tuple[str, float, float] | None:
        """The limit that leaves nothing for asking an agent: its name, what is used, what it is.

        `cap` is the step's own; what the visit has used counts against it.
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
        here: Spending | None = self
        while here is not None:
            budget = here.run.budget
            if budget is not None and budget.enforce:
                total = here.used()
                if (limit := budget.exceeded(total)) is not None:
                    return limit, total[limit], getattr(budget, limit)
            here = here.parent
        return None

    def money_is_limited(self, cap: Budget | None = None) -> bool:
        """True when some budget limits money."""
        if cap is not None and cap.cost_usd is not None:
            return True
        here: Spending | None = self
        while here is not None:
            if here.run.budget is not None and here.run.budget.cost_usd is not None:
                return True
            here = here.parent
        return False

    def used(self) -> dict[str, float]:
        """What counts against this run's budget, descendants under way included."""
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
        """Count what a child had already used when it came under way here, for this run and its ancestors."""
        here: Spending | None = self
        while here is not None:
            for name in SHARED:
                here.live[name] += used[name]
            here = here.parent

    def count_out(self, used: Mapping[str, float]) -> None:
        """Stop counting a child as under way: it is rolled up into this run now."""
        for name in SHARED:
            self.live[name] -= used[name]

    def roll_up(self, before: tuple[float, float, float]) -> None:
        """Count what this commit used against the ancestors under way."""
        after = self.own()
        ancestor = self.parent
        while ancestor is not None:
            for index, name in enumerate(SHARED):
                ancestor.live[name] += after[index] - before[index]
            ancestor = ancestor.parent

    def afford(self, cap: Budget | None, may_spend: Callable[[], bool]) -> None:
        """Raise `BudgetExceededError` before something is paid for that no budget covers any more.

        `cap` limits the step's visit, inside the run's budget.
        """
        if cap is None and not (self.budgeted and may_spend()):
            return  # a step passed the budget when it began, and may finish
        if (short := self.short_of(cap)) is not None:
            limit, used, of = short
            raise BudgetExceededError(limit, of, used)
