"""`refine`: plan, validate, implement and judge until the result passes, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine.engine import Engine
from detent.flows.refine.evaluation import CATEGORY_PASS, PASS_THRESHOLD, Rubric
from detent.flows.refine.flow import Finisher, limit_of, refine_flow
from detent.flows.refine.result import OrchestratorResult, result_of
from detent.flows.refine.run_data import REQUEST
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError, RunNotFound
from detent.kernel.plain import to_plain
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.performer import PerformerSource
    from detent.engine.ports import Store
    from detent.engine.tools import Tool
    from detent.flows.refine.token_budget import TokenBudgetManager


async def refine(
    request: Any,
    *,
    planner: Any,
    validator: Any,
    implementer: Any,
    judge: Any,
    name: str = "refine",
    run_id: str | None = None,
    max_iterations: int = 3,
    pass_threshold: float = PASS_THRESHOLD,
    category_pass: float = CATEGORY_PASS,
    rubric: Rubric | Callable[[Any], Rubric] | None = None,
    budget: Budget | TokenBudgetManager | int | None = None,
    store: Store | None = None,
    observers: Sequence[Any] = (),
    preparer: Any = None,
    finisher: Finisher | None = None,
    tools: Iterable[Tool] = (),
    dispatch: PerformerSource | None = None,
) -> OrchestratorResult:
    """Refine a request until the judge passes it, or the means are used up.

    Without a `store` it is forgotten afterwards. With one, a run that exists goes on; its budget may be
    larger now. If it has ended, its result is given again. `dispatch` says which parts agents perform.

    Raises:
        ConfigurationError: a part or a setting is wrong, or the run was started with another request.
    """
    flow = refine_flow(
        name, planner=planner, validator=validator, implementer=implementer, judge=judge,
        max_iterations=max_iterations, pass_threshold=pass_threshold, category_pass=category_pass,
        rubric=rubric, budget=budget, preparer=preparer, finisher=finisher, tools=tools,
    )  # fmt: skip
    if store is None:
        from detent.adapters.stores.memory import MemoryStore

        store = MemoryStore()
    async with Engine(store, [flow], observers=observers, dispatch=dispatch) as engine:
        run_id = await _begun(engine, name, request, run_id, limit_of(budget))
        await engine.finish(run_id)
        return await result_of(engine, run_id)


async def _begun(engine: Engine, name: str, request: Any, run_id: str | None, budget: Budget | None) -> str:
    """The id of the run: a new one, or the one that exists and goes on."""
    if run_id is not None:
        try:
            run = await engine.get(run_id)
        except RunNotFound:
            pass
        else:
            if run.flow != name or run.data.get(REQUEST) != to_plain(request):
                raise ConfigurationError(
                    f"Run {run_id} was started with another request. Choose another run_id."
                )
            more = budget is not None and budget != run.budget and budget.exceeded(run.used()) is None
            if run.status is Status.BUDGET_EXHAUSTED and more:
                await engine.reopen(run_id, budget=budget)
            return run_id
    return await engine.start(name, {REQUEST: request}, run_id=run_id)
