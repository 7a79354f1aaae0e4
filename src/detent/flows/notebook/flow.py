"""A notebook as a flow: six roles, one kernel, one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole
from detent.engine.context import StepContext
from detent.engine.flow import Detour, Flow
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.flows.notebook.domain.catalogue import stage_of_step
from detent.flows.notebook.kernel.cell_tool import KERNEL, cell_tool
from detent.flows.notebook.kernel.session import ACTIONS, KernelOptions, opener
from detent.flows.notebook.roles.checks import RoleChecks
from detent.flows.notebook.roles.dialect import RoleDialect
from detent.flows.notebook.roles.facts import MeasuredFacts
from detent.flows.notebook.roles.generation import Generation
from detent.flows.notebook.roles.planning import Planning
from detent.flows.notebook.roles.reflection import Reflection
from detent.flows.notebook.roles.role import (
    ACTION_GENERATOR,
    BEHAVIOR_ARRANGER,
    BEHAVIOR_REFLECTOR,
    STAGE_PLANNER,
    STAGE_REFLECTOR,
    STEP_PLANNER,
    Role,
)
from detent.flows.notebook.run_view import OPTIONS, WHY_FAILED, WORK, NotebookRun
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.state.machine import NOTEBOOK, NotebookState
from detent.flows.notebook.verification import VERIFY, verification_tool
from detent.flows.notebook.work_folder import copy_folder
from detent.kernel.budget import Budget
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.adapters.jupyter.port import NotebookKernel
    from detent.engine.ports import Store

NAME = "notebook"

MakeKernel = Callable[[Path, int], "NotebookKernel"]
"""A kernel for a work folder and an epoch of its run."""


class NotebookFlow(Flow):
    """A data-science notebook, built stage by stage on a real kernel."""

    def __init__(self, settings: NotebookSettings | None = None, *, kernel: MakeKernel | None = None) -> None:
        self.notebook_settings = settings = settings or NotebookSettings()
        self.facts = MeasuredFacts(settings)
        self._checks = RoleChecks(settings, self.facts)
        options = KernelOptions(settings.cell_timeout, settings.criterion_timeout)
        make = kernel or jupyter_kernel(settings)
        super().__init__(
            NOTEBOOK,
            self._own_steps(settings),
            name=NAME,
            description="A data-science notebook that builds itself, stage by stage.",
            tools=[
                cell_tool(self.facts.given, self._checks.refuses),
                verification_tool(settings, make),
            ],
            resources={KERNEL: opener(make, options)},
            on_failure=_failed,
            budget=Budget(steps=settings.max_transitions),
        )
        self.delivered: dict[str, int] = {}
        """The entry up to which a run's own files were written here, by its id."""
        self.ended = self.waits = self._deliver
        self.copied = _copied

    async def _deliver(self, store: Store, run: Run) -> None:
        """Write what a run is to leave behind, whoever has driven it to its end."""
        from detent.flows.notebook.delivery import deliver_own

        await deliver_own(store, run)
        self.delivered[run.id] = run.seq

    def _own_steps(self, settings: NotebookSettings) -> Mapping[Any, Step]:
        reflection = Reflection(settings, self.facts)
        planning = Planning(settings, reflection)
        generation = Generation(settings, self.facts)
        finish = Step("finish", _finish, effects=(), queries=(), agent=AgentSide(role=AgentRole.NONE))
        return {
            NotebookState.IDLE: self._role(
                STAGE_PLANNER, planning.plan_stages, planning.stages_planned
            ),
            NotebookState.STAGE_RUNNING: self._role(
                STEP_PLANNER, planning.plan_steps, planning.steps_planned
            ),
            NotebookState.STEP_RUNNING: self._role(
                BEHAVIOR_ARRANGER, planning.arrange, planning.behavior_arranged
            ),
            NotebookState.BEHAVIOR_RUNNING: self._role(
                ACTION_GENERATOR, generation.generate, generation.generated, effects=(ACTIONS,),
                rounds=settings.max_rounds, acted_out=_raised, stands=True, by_contract=True,
                level_for=self._last_is_by_code,
            ),
            NotebookState.BEHAVIOR_COMPLETED: self._role(
                BEHAVIOR_REFLECTOR, reflection.reflect_on_behavior, reflection.behavior_reflected
            ),
            NotebookState.STEP_COMPLETED: self._role(
                STAGE_REFLECTOR, reflection.reflect_on_stage, reflection.stage_reflected,
                queries=(VERIFY,),
            ),
            NotebookState.WORKFLOW_COMPLETE: finish,
            NotebookState.FAILED: finish,
        }  # fmt: skip

    def _role(
        self,
        role: Role,
        handler: Callable[[StepContext], Any],
        conclude: Callable[[StepContext, Any], Any],
        *,
        effects: tuple[str, ...] = (),
        queries: tuple[str, ...] = (),
        **side: Any,
    ) -> Step:
        return Step(
            role.name, handler, role.intent, effects=effects, queries=queries,
            inputs=self._checks.inputs_of(role), conclude=conclude, validator=self._checks.validator_of(role),
            agent=AgentSide(
                dialect=RoleDialect(role, self._checks.check_of(role)), names_next=False, queries=(),
                **{"rounds": 0, **side},
            ),
        )  # fmt: skip

    def _last_is_by_code(self, ctx: StepContext) -> Any:
        """Code writes the last iteration of a catalogue step, so that none ends worse for its agent."""
        run = NotebookRun(ctx.values)
        if run.iteration < self.notebook_settings.max_retries or stage_of_step(run.step.step_id) is None:
            return None
        return "operator", "the last iteration"


def _raised(acts: Any) -> bool:
    """A round whose cell raised is the last of its iteration."""
    return bool(acts) and bool(acts[-1].happened) and bool(acts[-1].receipt["raised"])


def _finish(ctx: StepContext) -> Outcome:
    """End as the state says; complete without a re-execution is degraded."""
    run = NotebookRun(ctx.values)
    if ctx.state == NotebookState.FAILED.value:
        return Outcome(end=Status.FAILED, reason=str(ctx.values.get(WHY_FAILED) or "failed"))
    verified = run.options.verify
    return Outcome(
        end=Status.SUCCEEDED if verified else Status.DEGRADED, reason="" if verified else "not verified"
    )


def _failed(run: Run, reason: str, message: str) -> Detour | None:
    """A step that cannot be performed ends the run in FAILED, with the reason."""
    if run.state in (NotebookState.FAILED.value, NotebookState.WORKFLOW_COMPLETE.value):
        return None
    return Detour(NotebookState.FAILED, {WHY_FAILED: f"{reason}: {message}"[:500]})


def _copied(run: Run, new_id: str) -> Mapping[str, Any]:
    """A fork has a folder and places of its own, so that neither run disturbs the other."""
    from detent.flows.notebook.delivery import own_places

    view = NotebookRun(run.data)
    return {
        WORK: str(copy_folder(view.work, new_id)),
        OPTIONS: asdict(own_places(view.options, new_id)),
    }


def jupyter_kernel(settings: NotebookSettings) -> MakeKernel:
    """Kernels of the running environment."""

    def make(work: Path, epoch: int) -> NotebookKernel:
        from detent.adapters.jupyter.kernel import JupyterKernel, KernelLimits

        memory = None if settings.kernel_memory is None else int(settings.kernel_memory * 2**30)
        folder = work / ".detent"
        folder.mkdir(parents=True, exist_ok=True)
        return JupyterKernel(folder, epoch=epoch, limits=KernelLimits(memory=memory))

    return make
