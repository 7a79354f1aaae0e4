"""The context in which the steps of one workflow file are compiled: registry, tools, ports, other files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.engine.tools import Tool
from detent.flows.workflow.registry import Registry, ValidationStage
from detent.flows.workflow.spec import StepSpec, WorkflowSpec
from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.kernel.run import Run

StageRunner = Callable[[ValidationStage], Awaitable[Mapping[str, Any]]]
"""Runs a stage's command: `{exit_code, output, duration_ms}`."""
CheckpointWriter = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]
"""Saves `(root run, checkpoint id, document)`; raises OSError if that fails."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside world of a project's workflows."""

    root: Path
    """The project's folder."""
    run_stage: StageRunner
    save_checkpoint: CheckpointWriter
    max_parallel: int = 8
    """Most parallel iterations of a loop without a bound of its own."""
    ended: Callable[[Store, Run], Awaitable[None]] | None = None
    """Called when a run of a file has ended."""


@dataclass(slots=True)
class CompileContext:
    """One workflow file while it is compiled into flows."""

    spec: WorkflowSpec
    registry: Registry
    tools: Mapping[str, Tool]
    ports: Ports
    find: Callable[[str], CompileContext]
    """Finds the context of another workflow by name or path."""
    hash_of: Callable[[Mapping[str, Any]], str]
    environ: Mapping[str, str]
    """Environment that holds the values of secret inputs."""
    flows: dict[str, Flow] = field(default_factory=dict)
    """Flows compiled from this file, by name."""

    @property
    def scope(self) -> str:
        """Prefix of its steps' names in settings and reports."""
        return f"workflow/{self.definition}"

    @property
    def definition(self) -> str:
        """The name of the workflow, also for a single-step run."""
        return self.spec.name.partition(".")[0]

    def kinds(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Split an agent's tools into queries and effects.

        Raises:
            ConfigurationError: a tool does not exist, or is not for agents.
        """
        queries: list[str] = []
        effects: list[str] = []
        for name in names:
            tool = self.tools.get(name)
            if tool is None:
                raise ConfigurationError(f"Workflow '{self.spec.name}': there is no tool '{name}'.")
            if not tool.for_agents:
                raise ConfigurationError(f"Workflow '{self.spec.name}': the tool '{name}' is not for agents.")
            (queries if tool.kind == "query" else effects).append(name)
        return tuple(queries), tuple(effects)


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a step: on its own, or inside branches whose result it becomes."""

    spec: StepSpec
    under: tuple[str, ...] = ()
    """Names of the branches around it, outermost first."""

    @property
    def owner(self) -> str:
        """The outermost branch around the step, whose result is this step's output; else the step itself."""
        return self.under[0] if self.under else self.spec.name

    @property
    def ran(self) -> str | None:
        """The step's name if it is inside a branch, to be kept in the branch's result."""
        return self.spec.name if self.under else None

    @property
    def path(self) -> str:
        """The step's path, as shown in events."""
        return "/".join((*self.under, self.spec.name))

    def below(self, spec: StepSpec) -> Position:
        """Return the position of a step that this branch may choose."""
        return Position(spec, (*self.under, self.spec.name))
