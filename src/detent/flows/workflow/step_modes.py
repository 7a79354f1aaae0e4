"""How each step of a workflow will be performed, according to files and settings: mode, autonomy, executor.

The file's own layer and the project's `steps` are merged as when the step runs; values under `agents` and
`model` are checked when the settings are read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from detent.authoring.document import below
from detent.authoring.step_settings import unknown_agent, unknown_step
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import UNSAID, Resolved, StepConfig, StepConfigError, resolve
from detent.flows.workflow.problem_list import Findings, a
from detent.flows.workflow.reading import MEANT
from detent.flows.workflow.registry import Registry
from detent.flows.workflow.spec import AgentStep, GenerateStep, PythonStep, StepSpec, WorkflowSpec

FLOW = "workflow"
"""First part of the qualified names of steps: `workflow/<workflow>/<step>`."""
DISPATCH_AGENT = "dispatch"
"""The agent that performs python steps in agent mode; it always exists."""


def no_doubt() -> str | None:
    """Whether there is a model is not known, so no reason is given why not."""
    return None


class CheckSettings(NamedTuple):
    """The project in which a workflow is checked, as far as it is known."""

    tools: Container[str] | None = None
    """The callable tools; None if they are not known."""
    steps: Mapping[str, Any] = {}
    agents: Mapping[str, Any] = {}
    no_model: Callable[[], str | None] = no_doubt
    """Gives the reason why no model can be asked, or None."""
    forced: bool = False
    """Whether agents are switched off."""
    workflows: tuple[str, ...] = ()
    """Names of workflows to suggest."""


UNKNOWN_PROJECT = CheckSettings()


class Performers:
    """Checks who performs the steps of a workflow."""

    def __init__(
        self,
        spec: WorkflowSpec,
        registry: Registry,
        findings: Findings,
        settings: CheckSettings,
    ) -> None:
        self.spec = spec
        self.registry = registry
        self.findings = findings
        self.settings = settings
        self.layers = self._layers()

    def _layers(self) -> dict[str, StepConfig]:
        """The project's `steps`, as layers; unreadable ones are reported when the settings are read."""
        layers: dict[str, StepConfig] = {}
        for key, setting in self.settings.steps.items():
            if isinstance(setting, StepConfig):
                layers[str(key)] = setting
            elif isinstance(setting, Mapping):
                try:
                    layers[str(key)] = StepConfig.read(setting)
                except StepConfigError:
                    continue
        return layers

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
        if self.settings.forced and self.handlerless(step):
            subject = "an agent step" if isinstance(step, AgentStep) else "this generator"
            message = f"agents are switched off, but {subject} has no handler to run instead."
            self.findings.at(step, "type", "E022", message)
        sources = [("inline", step.config), *((f"steps.{key}", config) for key, config in layers.items())]
        source, mode = next(
            ((name, config.mode) for name, config in sources if config.mode is not None), ("", None)
        )
        if isinstance(step, PythonStep):
            self.python_config(step, layers, qualified, mode)
            return
        if isinstance(step, AgentStep | GenerateStep):
            self.agent_config(step, source, mode)
        elif mode is StepMode.AGENT:
            message = f"{_layer_prefix(source)}mode: agent means nothing to {a(step)} step; it runs as usual."
            self.findings.at(step, _config_part(step, source, "mode"), "W003", message)
        tools = step.config.allowed_tools or ()
        natural = step.type.natural_mode
        # For agent steps and control flow, `mode` itself was checked above.
        bare = {key: _without_mode(config) for key, config in layers.items()}
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
            tools = tuple(
                tool for config in (step.config, *layers.values()) for tool in config.allowed_tools or ()
            )
        cap = action.max_autonomy if action is not None else None
        resolved = self.resolved(step, flow, layers, tools, StepMode.DETERMINISTIC, step.config, cap)
        if resolved is None or resolved.config.mode is not StepMode.AGENT:
            return
        for code, message in resolved.warnings:
            source = resolved.sources["autonomy"]
            self.findings.at(
                step, _config_part(step, source, "autonomy"), code, f"{_layer_prefix(source)}{message}"
            )
        if resolved.config.autonomy is AutonomyLevel.OPERATOR:
            return
        if (reason := self.settings.no_model()) is not None:
            source = resolved.sources["mode"]
            message = f"{_layer_prefix(source)}mode: agent, but the handler will run: {reason}."
            self.findings.at(step, _config_part(step, source, "mode"), "W005", message)

    def agent_config(self, step: StepSpec, source: str, mode: StepMode | None) -> None:
        handlerless = self.handlerless(step)
        if mode is StepMode.DETERMINISTIC and handlerless:
            subject = "an agent step" if isinstance(step, AgentStep) else "this generator"
            message = (
                f"{_layer_prefix(source)}mode: deterministic, but {subject} has no handler. Leave it out."
            )
            self.findings.at(step, _config_part(step, source, "mode"), "E021", message)
        elif mode is not None:
            message = (
                f"{_layer_prefix(source)}mode means nothing to {a(step)} step; an agent is asked as always."
            )
            self.findings.at(step, _config_part(step, source, "mode"), "W004", message)
        if handlerless and not self.settings.forced and (reason := self.settings.no_model()) is not None:
            message = f"{a(step)} step cannot run without a model: {reason}."
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
        """The merged layers; None if there are none, or if they cannot be merged (E020)."""
        if inline == UNSAID and not layers:
            return None
        try:
            return resolve(
                step.name, flow=flow, inline=inline, steps=layers, tools=tools, natural=natural,
                max_autonomy=cap, forced=self.settings.forced and natural is StepMode.DETERMINISTIC,
            )  # fmt: skip
        except StepConfigError as error:
            for layer, name, text in error.found:
                message = f"{_layer_prefix(layer)}{name} {MEANT.sub('', text)}"
                meant = tuple(MEANT.findall(text))
                self.findings.at(step, _config_part(step, layer, name), "E020", message, meant)
            return None

    def project(self) -> None:
        """E025: the project's settings configure only steps and agents that exist."""
        names = [step.name for step in self.spec.every_step() if step.name]
        for key in self.settings.steps:
            parts = str(key).split("/")
            if len(parts) == 3 and parts[0] == FLOW:
                parts = parts[1:]
            if len(parts) != 2 or parts[0] != self.spec.name or parts[1] in names:
                continue
            front = str(key)[: -len(parts[1])] if parts[1] else str(key)
            meant = tuple(front + name for name in self.findings.nearest.of(parts[1], names))
            path = below("settings.steps", str(key))
            reason = f"workflow '{self.spec.name}' has no such step"
            self.findings.problems.append(unknown_step(str(key), self.spec.place, path, meant, reason))
        known = (*self.registry.agents.names, DISPATCH_AGENT)
        for key in self.settings.agents:
            if key not in known and key not in self.registry.agents:
                path = below("settings.agents", str(key))
                meant = self.findings.nearest.of(str(key), known)
                self.findings.problems.append(
                    unknown_agent(str(key), self.spec.place, path, meant, list(known))
                )


def _layer_prefix(layer: str) -> str:
    """Prefix of a message that names the layer, unless it is the step's own."""
    return "" if layer in ("inline", "") else f"{layer} in the project's settings: "


def _config_part(step: StepSpec, layer: str, name: str) -> str:
    """The part of the step at which to report a field; its config or name for layers of the settings."""
    if layer != "inline":
        return "config" if "config" in step.places else "name"
    config_key = "executor_config" if "executor_config" in step.places else "config"
    return f"{config_key}.{name}"


def _without_mode(config: StepConfig) -> StepConfig:
    if config.mode is None:
        return config
    return replace(config, mode=None)
