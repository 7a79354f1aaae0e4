"""The same refinement as a plain loop: no journal, no resume, no agents.

It calls the same parts and decides by the same code, for comparison while the state machine is rolled out.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from detent.engine import logger
from detent.engine.user_errors import failure, message_of
from detent.flows.refine import decisions
from detent.flows.refine.attempt import Attempt
from detent.flows.refine.decisions import Decision, RefineSettings
from detent.flows.refine.evaluation import CATEGORY_PASS, PASS_THRESHOLD, Rubric
from detent.flows.refine.feedback import Feedback, for_implementer, for_planner
from detent.flows.refine.flow import limit_of, parts_and_settings
from detent.flows.refine.part import Calling, Parts, Rejected
from detent.flows.refine.result import OrchestratorResult, metrics_of, result_with, status_of
from detent.flows.refine.state_machine import REFINE, OrchestrationStateMachine
from detent.flows.refine.state_machine import OrchestrationState as State
from detent.flows.refine.token_budget import TokenBudgetManager, report_of_run
from detent.kernel.budget import NOTHING, Budget, Spend
from detent.kernel.plain import copied, to_plain
from detent.kernel.status import Status

T = TypeVar("T")
Progress = Callable[[str, float | None, float | None, str], None]
"""Called with a state, what is done, of how much, and a few words."""
NOTE = "note"
"""Of the context of the first transition: a few words about the prepared request."""


async def refine_loop(
    request: Any,
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
    observers: Sequence[Any] = (),
    preparer: Any = None,
    machine: OrchestrationStateMachine | None = None,
    on_progress: Progress | None = None,
) -> OrchestratorResult:
    """Refine a request in this process alone; the result has no run id and no files.

    A `machine` at its start is moved from state to state, for a caller that wants its history. `on_progress`
    is called with what parts tell by `show_progress`, and the state they are called in; perhaps in a thread.

    Raises:
        ConfigurationError: a part or a setting is wrong.
    """
    parts, settings = parts_and_settings(
        planner, validator, implementer, judge, preparer, rubric, max_iterations, pass_threshold,
        category_pass, budget,
    )  # fmt: skip
    machine = machine or OrchestrationStateMachine()
    machine.max_iterations = settings.max_iterations
    loop = _Loop(parts, settings, limit_of(budget), observers, machine, on_progress)
    return await loop.run(to_plain(request))


class _Failed(Exception):
    """A part has failed; carries the fixed reason and the error."""

    def __init__(self, reason: str, error: str) -> None:
        self.reason = reason
        self.error = error
        super().__init__(reason)


class _Loop:
    """One refinement."""

    def __init__(
        self,
        parts: Parts,
        settings: RefineSettings,
        budget: Budget | None,
        observers: Sequence[Any],
        machine: OrchestrationStateMachine,
        on_progress: Progress | None = None,
    ) -> None:
        self.on_progress = on_progress
        self.parts = parts
        self.settings = settings
        self.budget = budget
        self.observers = observers
        self.machine = machine
        self.attempts: list[Attempt] = []
        """The last one is under way."""
        self.feedback: list[Feedback] = []
        self.visits: list[tuple[str, Spend]] = []
        self.error: str | None = None
        self._spend = NOTHING
        self._seconds = 0.0

    async def run(self, request: Any) -> OrchestratorResult:
        """Go from state to state until an end."""
        steps = {State.PLANNING: self._plan, State.VALIDATING: self._validate,
                 State.IMPLEMENTING: self._implement, State.JUDGING: self._judge}  # fmt: skip
        given = copied(request)
        try:
            request = await self._timed(self._prepare, decisions.REJECTED, request)
            self._move(Decision(State.PLANNING), self._noted(request))
            while not self.machine.is_terminal():
                decision, context = await steps[self.machine.current_state](request)
                self._move(decision, context)
        except _Failed as failed:
            self.error = failed.error
            self._move(Decision(State.FAILED, failed.reason), {})
        return self._result(given)

    # -- steps ----------------------------------------------------------------------------------------------

    async def _prepare(self, calling: Calling, request: Any) -> Any:
        try:
            return await self.parts.prepared(calling, request)
        except Rejected as rejected:
            reason = f"{decisions.REJECTED}: {rejected.code}"[:200]
            raise _Failed(reason, rejected.message) from rejected

    def _noted(self, request: Any) -> dict[str, Any]:
        note = None if self.parts.preparer is None else self.parts.preparer.note
        try:
            return {} if note is None else {NOTE: str(note(request))[:200]}
        except Exception:  # a note decides nothing
            return {}

    async def _plan(self, request: Any) -> tuple[Decision, dict[str, Any]]:
        previous = self.attempts[-1] if self.attempts else None

        async def work(calling: Calling, _: Any) -> Any:
            return await self.parts.planned(calling, request, for_planner(self.feedback), previous)

        plan = await self._timed(work, decisions.PLAN_FAILED, None, "plan")
        self.attempts.append(Attempt(len(self.attempts) + 1, plan, executors={"plan": "code"}))
        return decisions.after_plan(self._exhausted()), {"plan": plan}

    async def _validate(self, request: Any) -> tuple[Decision, dict[str, Any]]:
        attempt = self.attempts[-1]

        async def work(calling: Calling, _: Any) -> Any:
            return await self.parts.validated(calling, request, attempt.plan)

        report = await self._timed(work, decisions.VALIDATOR_FAILED, None, "validate")
        self._made("validate", validation=report)
        decision = decisions.after_validation(report, attempt.iteration, self.settings, time.time())
        return decision, {"validation": report.to_plain()}

    async def _implement(self, request: Any) -> tuple[Decision, dict[str, Any]]:
        refined = bool(self.feedback) and self.feedback[-1].type == "judge_soft_failure"
        previous = self.attempts[-1]
        if refined:
            own = Attempt(
                previous.iteration + 1, previous.plan, previous.validation, refined=True, executors={}
            )
            self.attempts.append(own)

        async def work(calling: Calling, _: Any) -> Any:
            feedback = for_implementer(self.feedback)
            earlier = previous if refined else None
            return await self.parts.implemented(calling, request, previous.plan, feedback, earlier)

        stage = "refinement" if refined else "implementation"
        try:
            made = await self._timed(work, decisions.IMPLEMENTATION_FAILED, None, stage)
        except _Failed:
            if refined:
                self.attempts.pop()
            raise
        self._made("implement", implementation=made)
        return decisions.after_implementation(self._exhausted()), {"implementation": made}

    async def _judge(self, request: Any) -> tuple[Decision, dict[str, Any]]:
        attempt = self.attempts[-1]

        async def work(calling: Calling, _: Any) -> Any:
            return await self.parts.judged(calling, request, attempt.plan, attempt.implementation)

        evaluation = await self._timed(work, decisions.JUDGE_FAILED, None, "judge")
        attempt = self._made("judge", evaluation=evaluation)
        before = self.attempts[-2] if len(self.attempts) > 1 else None
        decision = decisions.after_judgement(
            attempt, before, self.parts.rubric_for(request), self.settings, time.time(),
            exhausted=self._exhausted(),
        )  # fmt: skip
        limits = self.settings.pass_threshold, self.settings.category_pass
        return decision, {"evaluation": evaluation.to_plain(*limits)}

    # -- what surrounds them --------------------------------------------------------------------------------

    async def _timed(
        self, work: Callable[[Calling, Any], Awaitable[T]], reason: str, value: Any, stage: str | None = None
    ) -> T:
        """What a part gives; its time and spend go to the move that follows."""
        calling, began = Calling(self._show), time.monotonic()
        try:
            return await work(calling, value)
        except _Failed:
            raise
        except BaseException as raised:
            if (error := failure(raised)) is None:
                raise
            kind = type(error).__name__
            reason = f"{reason}: {kind}" if reason == decisions.REJECTED else reason
            raise _Failed(reason, decisions.error_text(reason, kind, message_of(error))) from raised
        finally:
            self._seconds, self._spend = time.monotonic() - began, calling.spend
            if stage is not None:
                self.visits.append((stage, calling.spend))

    def _show(self, done: float | None = None, of: float | None = None, text: str = "") -> None:
        if self.on_progress is not None:
            self.on_progress(self.machine.current_state.value, done, of, text)

    def _made(self, part: str, **values: Any) -> Attempt:
        attempt = self.attempts[-1]
        executors = {**attempt.executors, part: "code"}
        self.attempts[-1] = made = replace(attempt, executors=executors, **values)
        return made

    def _exhausted(self) -> bool:
        budget, spend = self.budget, sum((spend for _, spend in self.visits), NOTHING)
        if budget is None or not budget.enforce:
            return False
        return budget.exceeded({"tokens": spend.tokens, "cost_usd": spend.cost_usd}) is not None

    def _move(self, decision: Decision, context: dict[str, Any]) -> None:
        if self.attempts and self.machine.current_state is not State.INITIALIZED:
            attempt = self.attempts[-1]
            self.attempts[-1] = replace(
                attempt, tokens=attempt.tokens + self._spend.tokens,
                duration_s=attempt.duration_s + self._seconds,
            )  # fmt: skip
        self.machine.transition(decision.to, context, decision.reason, self._seconds, self._spend.tokens)
        self._seconds, self._spend = 0.0, NOTHING
        if decision.feedback is not None:
            self.feedback.append(decision.feedback)
        for observer in self.observers:
            try:
                observer.on_state_transition(self.machine.history[-1])
                observer.on_metrics_update(self.machine.get_total_metrics())
            except Exception as error:
                logger.error(
                    "observer.failed", observer=type(observer).__name__,
                    transition=len(self.machine.history), error=type(error).__name__,
                )  # fmt: skip

    def _result(self, request: Any) -> OrchestratorResult:
        machine = self.machine
        logger.info("refine.completed", status=machine.current_state.value,
                    report=machine.format_metrics_report())  # fmt: skip
        status: Status = REFINE.ends[machine.current_state]
        reason = machine.history[-1].reason
        totals = machine.get_total_metrics()
        return result_with(
            OrchestratorResult(
                status_of(status, reason), "", machine.current_state.value, reason,
                tokens_used=totals["total_tokens"], execution_time_s=totals["total_duration_seconds"],
                error=self.error, budget_report=report_of_run(self.visits, self.budget, len(self.attempts)),
                metrics=metrics_of(machine), request=request, run_status=status, settings=self.settings,
            ),
            self.attempts,
        )  # fmt: skip
