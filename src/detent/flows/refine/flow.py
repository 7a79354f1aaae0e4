"""A refinement as a flow: four parts, one table, and what is performed at every end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.engine import logger
from detent.engine.flow import Flow
from detent.engine.journal_reader import read
from detent.flows.refine.decisions import EXHAUSTED, RefineSettings
from detent.flows.refine.evaluation import CATEGORY_PASS, PASS_THRESHOLD, Rubric
from detent.flows.refine.part import Part, Parts
from detent.flows.refine.result import OrchestratorResult, result_at_end
from detent.flows.refine.run_data import RunData
from detent.flows.refine.state_machine import (
    REFINE,
    OrchestrationState,
    OrchestrationStateMachine,
    starts_iteration,
)
from detent.flows.refine.steps import RefineSteps
from detent.flows.refine.token_budget import TokenBudgetManager
from detent.kernel.budget import LIMITS, Budget

if TYPE_CHECKING:
    from detent.engine.finishing import Ending
    from detent.engine.ports import Store
    from detent.engine.tools import Tool
    from detent.kernel.run import Run

Finisher = Callable[[OrchestratorResult], Iterable[Any]]
"""From the result to the effects performed at the end."""


class RefineFlow(Flow):
    """A flow that plans, validates, implements and judges until the result passes."""

    def __init__(
        self,
        name: str,
        parts: Parts,
        settings: RefineSettings,
        *,
        budget: Budget | None = None,
        finisher: Finisher | None = None,
        tools: Iterable[Tool] = (),
        description: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.parts = parts
        self.refine_settings = settings
        self.finisher = finisher
        super().__init__(
            REFINE,
            RefineSteps(parts, settings).by_state(),
            name=name,
            description=description,
            tools=tools,
            budget=budget,
            counts=starts_iteration,
            exhausted=dict.fromkeys(LIMITS, OrchestrationState.BUDGET_EXHAUSTED),
            exhausted_reasons={"tokens": EXHAUSTED},
            extra=extra,
            at_end=None if finisher is None else self._at_end,
        )
        self.ended = self._report

    def _at_end(self, ending: Ending) -> Iterable[Any]:
        assert self.finisher is not None
        return self.finisher(result_at_end(ending, self.refine_settings))

    async def _report(self, store: Store, run: Run) -> None:
        """Log the metrics report; the hook is called once for each end."""
        settings = RunData(run.data, self.refine_settings).settings
        entries = [entry async for entry in read(store, run.id)]
        machine = OrchestrationStateMachine.from_journal(entries, max_iterations=settings.max_iterations)
        logger.info(
            "refine.completed", run_id=run.id, flow=self.name, status=run.status.value,
            report=machine.format_metrics_report(),
        )  # fmt: skip


def refine_flow(
    name: str = "refine",
    *,
    planner: Any,
    validator: Any,
    implementer: Any,
    judge: Any,
    max_iterations: int = 3,
    pass_threshold: float = PASS_THRESHOLD,
    category_pass: float = CATEGORY_PASS,
    rubric: Rubric | Callable[[Any], Rubric] | None = None,
    budget: Budget | TokenBudgetManager | int | None = None,
    preparer: Any = None,
    finisher: Finisher | None = None,
    prepare_timeout: float | None = None,
    tools: Iterable[Tool] = (),
    description: str = "",
) -> RefineFlow:
    """A flow whose data are `{"request": …}`; `"settings": {"max_iterations": 5}` are a run's own.

    Parts are functions, or `Part`s around them. `rubric` is a rubric, or a function of the prepared request.
    `tools` are those that the finisher's effects name.

    Raises:
        ConfigurationError: a part is none, or a number is out of range.
    """
    parts, settings = parts_and_settings(
        planner, validator, implementer, judge, preparer, rubric, max_iterations, pass_threshold,
        category_pass, budget, prepare_timeout,
    )  # fmt: skip
    return RefineFlow(
        name, parts, settings, budget=limit_of(budget), finisher=finisher, tools=tools,
        description=description,
    )  # fmt: skip


def parts_and_settings(
    planner: Any,
    validator: Any,
    implementer: Any,
    judge: Any,
    preparer: Any,
    rubric: Rubric | Callable[[Any], Rubric] | None,
    max_iterations: int,
    pass_threshold: float,
    category_pass: float,
    budget: Budget | TokenBudgetManager | int | None,
    prepare_timeout: float | None = None,
) -> tuple[Parts, RefineSettings]:
    """The parts and numbers of a refinement, checked."""
    prepare = None if preparer is None else Part.of("preparer", preparer)
    if prepare is not None and prepare_timeout is not None:
        prepare = replace(prepare, timeout=prepare_timeout)
    parts = Parts(
        Part.of("planner", planner), Part.of("validator", validator), Part.of("implementer", implementer),
        Part.of("judge", judge), prepare, rubric,
    )  # fmt: skip
    settings = RefineSettings(max_iterations, pass_threshold, category_pass)
    if isinstance(budget, TokenBudgetManager):
        settings = settings.changed(
            {"token_buffer_pct": budget.token_buffer_pct, "estimates": budget.estimates}
        )
    return parts, settings


def limit_of(budget: Budget | TokenBudgetManager | int | None) -> Budget | None:
    """The limit that a budget sets a run."""
    if isinstance(budget, TokenBudgetManager):
        return budget.budget
    return Budget(tokens=budget) if isinstance(budget, int) else budget
