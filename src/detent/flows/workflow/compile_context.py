"""What the steps of one workflow file share while they are made: registry, tools, ports, other files."""

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
"""`(root run, checkpoint id, document)`; raises OSError when it cannot be written."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside world of a project's workflows."""

    root: Path
    """The project's folder."""
    run_stage: StageRunner
    save_checkpoint: CheckpointWriter
    max_parallel: int = 8
    """Iterations side by side where a file does not say how many."""
    ended: Callable[[Store, Run], Awaitable[None]] | None = None
    """Told when a run of a file has come to its end."""


@dataclass(slots=True)
class CompileContext:
    """One workflow on its way to becoming flows."""

    spec: WorkflowSpec
    registry: Registry
    tools: Mapping[str, Tool]
    ports: Ports
    find: Callable[[str], CompileContext]
    """The home of another workflow, by name or path."""
    hash_of: Callable[[Mapping[str, Any]], str]
    environ: Mapping[str, str]
    """Where secret inputs have their values."""
    flows: dict[str, Flow] = field(default_factory=dict)
    """Every flow made for this file, by name."""

    @property
    def scope(self) -> str:
        """What its steps' names begin with in settings and reports."""
        return f"workflow/{self.definition}"

    @property
    def definition(self) -> str:
        """The name of the file, also where one step of it is run by itself."""
        return self.spec.name.partition(".")[0]

    def kinds(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """An agent's tools by what they are: queries, effects."""
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
    """Where a step stands: alone, or inside branches whose result it becomes."""

    spec: StepSpec
    under: tuple[str, ...] = ()
    """Names of the branches around it, outermost first."""

    @property
    def owner(self) -> str:
        """The step whose result this one's output is."""
        return self.under[0] if self.under else self.spec.name

    @property
    def ran(self) -> str | None:
        """The step's name where it stands in a branch, for the branch's result to tell."""
        return self.spec.name if self.under else None

    @property
    def path(self) -> str:
        """As events show it."""
        return "/".join((*self.under, self.spec.name))

    def below(self, spec: StepSpec) -> Position:
        """The seat of a step that this branch may choose."""
        return Position(spec, (*self.under, self.spec.name))
