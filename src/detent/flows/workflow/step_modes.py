"""How each step of a workflow will be performed, as far as files and settings say: mode, autonomy, executor.

The file's own layer and the project's `steps` are added up as when the step runs; what stands under `agents`
and `model` is judged where settings are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detent.authoring.document import below
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import UNSAID, Resolved, StepConfig, StepConfigError, resolve
from detent.flows.workflow.problem_list import Findings, a, cut
from detent.flows.workflow.reading import MEANT
from detent.flows.workflow.registry import Registry
from detent.flows.workflow.spec import AgentStep, GenerateStep, PythonStep, StepSpec, WorkflowSpec

FLOW = "workflow"
"""What the qualified names of steps begin with: `workflow/<workflow>/<step>`."""
DISPATCH_AGENT = "dispatch"
"""The agent that performs python steps in agent mode; always there."""


class Performers:
    """Who performs the steps of a workflow."""

    def __init__(
        self,
        spec: WorkflowSpec,
        registry: Registry,
        findings: Findings,
        *,
        steps: Mapping[str, Any],
        agents: Mapping[str, Any],
        executor: bool | None,
        forced: bool,
    ) -> None:
        self.spec = spec
        self.registry = registry
        self.findings = findings
        self.said_steps = steps
        self.said_agents = agents
        self.executor = executor
        self.forced = forced
        self.layers = self._layers()

    def _layers(self) -> dict[str, StepConfig]:
        """The project's `steps`, as layers; what cannot be read is told where settings are read."""
        found: dict[str, StepConfig] = {}
        for key, said in self.said_steps.items():
            if isinstance(said, StepConfig):
                found[str(key)] = said
            elif isinstance(said, Mapping):
                try:
                    found[str(key)] = StepConfig.read(said)
                except StepConfigError:
                    continue
        return found

    def step(self, step: StepSpec) -> None:
        """E020, E021, E022, W002 to W006: how the step will be performed."""
        qualified = f"{FLOW}/{self.spec.name}"
        layers: dict[str, StepConfig] = {}
        for key in (f"{qualified}/{step.name}", f"{self.spec.name}/{step.name}"):
            if key in self.layers:
                layers[f"{qualified}/{step.name}"] = self.layers[key]
                break
        if step.name in self.layers:
            layers[step.name] = self.layers[step.name]
        if self.forced and self.handlerless(step):
            what = "an agent step" if isinstance(step, AgentStep) else "this generator"
            message = f"agents are switched off, but {what} has no handler to run instead."
            self.findings.at(step, "type", "E022", message)
        said = [("inline", step.config), *((f"steps.{key}", one) for key, one in layers.items())]
        source, mode = next(((name, one.mode) for name, one in said if one.mode is not None), ("", None))
        if isinstance(step, PythonStep):
            self.python_config(step, layers, qualified, mode)
            return
        if isinstance(step, AgentStep | GenerateStep):
            self.agent_config(step, source, mode)
        elif mode is StepMode.AGENT:
            message = f"{_from(source)}mode: agent means nothing to {a(step)} step; it runs as usual."
            self.findings.at(step, _config_part(step, source, "mode"), "W003", message)
        tools = step.config.allowed_tools or ()
        natural = step.type.natural_mode
        # For what is only an agent's, and for control flow, `mode` itself was judged above.
        bare = {key: _without_mode(one) for key, one in layers.items()}
        self.resolved(step, qualified, bare, tools, natural, _without_mode(step.config))

    def handlerless(self, step: StepSpec) -> bool:
        """Whether only an agent can perform a step."""
        if isinstance(step, GenerateStep):
            generator = self.registry.generators.find(step.generator)
            return generator is not None and generator.handler is None
        return isinstance(step, AgentStep)

    def python_config(
        self, step: PythonStep, layers: Mapping[str, StepConfig], flow: str, mode: StepMode | None
    ) -> None:
        action = self.registry.actions.find(step.action)
        tools: tuple[str, ...] = (*action.effects, *action.queries) if action is not None else ()
        if action is None or action.left_out:
            tools = tuple(tool for one in (step.config, *layers.values()) for tool in one.allowed_tools or ())
        cap = action.max_autonomy if action is not None else None
        found = self.resolved(step, flow, layers, tools, StepMode.DETERMINISTIC, step.config, cap)
        if found is None or found.config.mode is not StepMode.AGENT:
            return
        for code, message in found.warnings:
            source = found.sources["autonomy"]
            self.findings.at(step, _config_part(step, source, "autonomy"), code, f"{_from(source)}{message}")
        if self.executor is False and found.config.autonomy is not AutonomyLevel.OPERATOR:
            source = found.sources["mode"]
            message = f"{_from(source)}mode: agent, but no executor is configured: the handler will run."
            self.findings.at(step, _config_part(step, source, "mode"), "W005", message)

    def agent_config(self, step: StepSpec, source: str, mode: StepMode | None) -> None:
        handlerless = self.handlerless(step)
        if mode is StepMode.DETERMINISTIC and handlerless:
            what = "an agent step" if isinstance(step, AgentStep) else "this generator"
            message = f"{_from(source)}mode: deterministic, but {what} has no handler. Leave it out."
            self.findings.at(step, _config_part(step, source, "mode"), "E021", message)
        elif mode is not None:
            message = f"{_from(source)}mode means nothing to {a(step)} step; an agent is asked as always."
            self.findings.at(step, _config_part(step, source, "mode"), "W004", message)
        if self.executor is False and handlerless and not self.forced:
            message = f"no executor is configured, and {a(step)} step cannot run without one."
            self.findings.at(step, "type", "W005", message)

    def resolved(
        self,
        step: StepSpec,
        flow: str,
        layers: Mapping[str, StepConfig],
        tools: tuple[str, ...],
        natural: StepMode,
        inline: StepConfig,
        cap: AutonomyLevel | None = None,
    ) -> Resolved | None:
        """What the layers add up to; E020 when they do not, None then and when nothing is said."""
        if inline == UNSAID and not layers:
            return None
        try:
            return resolve(
                step.name, flow=flow, inline=inline, steps=layers, tools=tools, natural=natural,
                max_autonomy=cap, forced=self.forced and natural is StepMode.DETERMINISTIC,
            )  # fmt: skip
        except StepConfigError as error:
            for layer, name, text in error.found:
                message = f"{_from(layer)}{name} {MEANT.sub('', text)}"
                meant = tuple(MEANT.findall(text))
                self.findings.at(step, _config_part(step, layer, name), "E020", message, meant)
            return None

    def project(self) -> None:
        """E025: what the project's settings say about this workflow names something."""
        names = [step.name for step in self.spec.every_step() if step.name]
        for key in self.said_steps:
            parts = str(key).split("/")
            if len(parts) == 3 and parts[0] == FLOW:
                parts = parts[1:]
            if len(parts) != 2 or parts[0] != self.spec.name or parts[1] in names:
                continue
            front = str(key)[: -len(parts[1])] if parts[1] else str(key)
            meant = tuple(front + one for one in self.findings.nearest.of(parts[1], names))
            message = f"the project's settings configure the step '{cut(key)}', which is not there."
            self.findings.wrong("E025", self.spec.place, below("settings.steps", str(key)), message, meant)
        known = (*self.registry.agents.names, DISPATCH_AGENT)
        for key in self.said_agents:
            if key not in known and key not in self.registry.agents:
                message = f"the project's settings configure the agent '{cut(key)}', which is not there."
                path = below("settings.agents", str(key))
                self.findings.wrong(
                    "E025", self.spec.place, path, message, self.findings.nearest.of(str(key), known)
                )


def _from(layer: str) -> str:
    """Which layer is meant, where it is not the step's own."""
    return "" if layer in ("inline", "") else f"{layer} in the project's settings: "


def _config_part(step: StepSpec, layer: str, name: str) -> str:
    """Where a field of a layer stands in the file; '' for layers that stand elsewhere."""
    if layer != "inline":
        return "config" if "config" in step.places else "name"
    own = "executor_config" if "executor_config" in step.places else "config"
    return f"{own}.{name}"


def _without_mode(config: StepConfig) -> StepConfig:
    if config.mode is None:
        return config
    return replace(config, mode=None)
