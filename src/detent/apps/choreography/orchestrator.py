"""`AgentOrchestrator`: a show in one blocking call, for programs that have no engine of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from detent.apps.choreography import parts
from detent.apps.choreography.export import WARNINGS, Show, files, result_of_show, written
from detent.apps.choreography.flow import show_flow
from detent.apps.choreography.job import Job
from detent.apps.choreography.settings import HEADING, JobConfig
from detent.flows.refine.loop import Progress, refine_loop
from detent.flows.refine.observers import StateMachineObserver
from detent.flows.refine.part import Rejected
from detent.flows.refine.result import OrchestratorResult, state_machine_of
from detent.flows.refine.state_machine import OrchestrationStateMachine
from detent.flows.refine.token_budget import TokenBudgetManager
from detent.kernel.errors import DetentError
from detent.runtime.settings import Settings

if TYPE_CHECKING:
    from detent.engine.ports import Store

T = TypeVar("T")


class AgentOrchestrator:
    """Makes shows by one job's settings, with the parts of the choreographer.

    `settings` say who performs which step, and with which model; by default code performs all. Without a
    `store`, a show is forgotten once it is made.
    """

    def __init__(
        self,
        job_config: JobConfig | None = None,
        *,
        settings: Settings | None = None,
        store: Store | None = None,
    ) -> None:
        self.job_config = job_config or JobConfig()
        agent = self.job_config.agent
        self.state_machine = OrchestrationStateMachine(max_iterations=agent.max_iterations)
        """Where the last show has come to; folded from its journal."""
        self.token_budget_manager = TokenBudgetManager(
            agent.token_budget, agent.enforce_token_budget, agent.token_buffer_pct
        )
        self.observers: list[StateMachineObserver] = []
        self._settings = settings or Settings(Path.cwd())
        self._store = store

    def add_observer(self, observer: StateMachineObserver) -> None:
        """Have an observer told of each transition, once it is committed."""
        self.observers.append(observer)

    def run(
        self, audio_path: str | Path, xsq_path: str | Path | None = None, **wishes: Any
    ) -> OrchestratorResult:
        """Make the show of a song, and wait for it; also inside a running event loop.

        `wishes` are arguments of `Job.of`, such as `out` and `force`.

        Raises:
            ConfigurationError: settings, song, rig or places cannot be used. Every other end is a result.
        """
        own = self.job_config.model_dump(exclude_unset=True)
        job = Job.of(
            self._settings.over({(HEADING,): own}), Path(audio_path),
            base=None if xsq_path is None else Path(xsq_path), **wishes,
        )  # fmt: skip
        return _waited(self._run(job))

    async def _run(self, job: Job) -> OrchestratorResult:
        self.state_machine = OrchestrationStateMachine(max_iterations=job.config.agent.max_iterations)
        result = await self._made(job)
        self.token_budget_manager.take_report(result.budget_report)
        return result

    async def _made(self, job: Job) -> OrchestratorResult:
        from detent.adapters.stores.memory import MemoryStore
        from detent.runtime.wiring import engine_for

        if not job.config.agent.use_state_machine:
            return await looped(job, self.observers, self.state_machine)
        store = self._store or MemoryStore()
        flow = show_flow(job.config, job.settings, store)
        engine = engine_for(job.settings, [flow], observers=self.observers, store=store)
        async with engine:
            run_id = await engine.start(flow, job.data, budget=self.token_budget_manager.budget)
            await engine.finish(run_id)
            self.state_machine = await state_machine_of(engine, run_id)
            return await result_of_show(engine, run_id)


async def looped(
    job: Job,
    observers: Sequence[StateMachineObserver] = (),
    machine: OrchestrationStateMachine | None = None,
    on_progress: Progress | None = None,
) -> OrchestratorResult:
    """Make a show in a plain loop, without a journal, and write its files.

    Observers and `on_progress` are those of `refine_loop`. A file that cannot be written ends up in the
    result's `error`, as there is nothing to resume.
    """
    agent, machine = job.config.agent, machine or OrchestrationStateMachine()
    result = await refine_loop(
        job.data["request"], preparer=parts.PREPARER, planner=parts.PLANNER, validator=parts.VALIDATOR,
        implementer=parts.IMPLEMENTER, judge=parts.JUDGE, rubric=parts.rubric_of,
        max_iterations=agent.max_iterations, pass_threshold=agent.success_threshold, budget=job.budget,
        observers=observers, machine=machine, on_progress=on_progress,
    )  # fmt: skip
    return await asyncio.to_thread(_write_all, result, machine)


def _write_all(result: OrchestratorResult, machine: OrchestrationStateMachine) -> OrchestratorResult:
    """A result, with the files that were written."""
    places = list(files(result))
    for what, path in places:
        try:
            if not result.files:
                measured = any(name == "audio" for name, _ in places)
                request = parts.prepare(result.request) if measured else result.request
            receipt = written(Show(request, result, machine), what, path)
        except (OSError, DetentError, Rejected) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return replace(result, error=f"{path} cannot be written: {reason}.")
        warnings = (*result.warnings, *receipt.get(WARNINGS, ()))
        result = replace(result, files=(*result.files, receipt["path"]), warnings=warnings)
    return result


def _waited(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives; in a thread of its own where an event loop runs in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
