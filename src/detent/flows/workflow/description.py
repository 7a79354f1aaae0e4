"""Descriptions of workflow files: their inputs, who performs each step, and the items that files can name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.flows.workflow.spec import (
    AgentStep,
    GenerateStep,
    InputSpec,
    PythonStep,
    StepSpec,
    WorkflowSpec,
)
from detent.flows.workflow.step_type import StepType

if TYPE_CHECKING:
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.flows.workflow.registry import Action, Registry
    from detent.flows.workflow.subworkflows import Find
    from detent.runtime.plugs import Description
    from detent.runtime.settings import Settings

PERFORMED = (StepType.PYTHON, StepType.AGENT, StepType.GENERATE)
"""Kinds of steps that code or an agent performs; the others are control flow."""


# -- a workflow ---------------------------------------------------------------------------------------------


def described(
    spec: WorkflowSpec, file: str, settings: Settings, registry: Registry, *, forced: bool = False
) -> dict[str, Any]:
    """A workflow as plain values: inputs, and steps with their resolved configuration."""
    from detent.dispatch.executor import DISPATCH_AGENT
    from detent.runtime.dispatch_settings import dispatch_settings

    agents = None if registry.incomplete else (DISPATCH_AGENT, *registry.agents.names)
    dispatch = dispatch_settings(settings, [], agents=agents, complete=False, deterministic=forced)
    steps = _Steps(spec, settings, dispatch, registry)
    return {
        "flow": spec.name,
        "description": spec.description,
        "place": file,
        "inputs": [_input(entry) for entry in spec.inputs.values()],
        "steps": [steps.plain(step, path) for step, path in _paths(spec)],
        "outputs": None if spec.outputs is None else dict(spec.outputs),
    }


def planned(
    spec: WorkflowSpec, settings: Settings, registry: Registry, find: Find, *, forced: bool = False
) -> list[dict[str, Any]]:
    """Every step that a run may reach, those of subworkflows included, and how each is performed."""
    from detent.dispatch.executor import DISPATCH_AGENT
    from detent.flows.workflow.preflight import walk
    from detent.runtime.dispatch_settings import dispatch_settings

    agents = None if registry.incomplete else (DISPATCH_AGENT, *registry.agents.names)
    dispatch = dispatch_settings(settings, [], agents=agents, complete=False, deterministic=forced)
    files: dict[str, _Steps] = {}
    rows: list[dict[str, Any]] = []
    for placed in walk(spec, find):
        steps = files.get(placed.of.name)
        if steps is None:
            steps = files[placed.of.name] = _Steps(placed.of, settings, dispatch, registry)
        rows.append({**steps.plain(placed.step, placed.path), "of": placed.of.name, "depth": placed.depth})
    return rows


def _paths(spec: WorkflowSpec) -> Iterator[tuple[StepSpec, str]]:
    """Every step with its path, in the order of the file."""
    waiting = [(step, step.name) for step in reversed(spec.steps)]
    while waiting:
        step, path = waiting.pop()
        yield step, path
        waiting.extend((inner_step, f"{path}/{inner_step.name}") for inner_step in reversed(step.inner))


def _input(entry: InputSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": entry.name, "type": entry.type, "required": entry.required}
    if entry.has_default:
        plain["default"] = entry.default
    if entry.enum is not None:
        plain["enum"] = list(entry.enum)
    if entry.secret:
        plain["secret"] = True
    return {**plain, "description": entry.description}


class _Steps:
    """Steps of one file with their layers of configuration."""

    def __init__(
        self, spec: WorkflowSpec, settings: Settings, dispatch: DispatchSettings, registry: Registry
    ) -> None:
        self.scope = f"workflow/{spec.name}"
        self.settings = settings
        self.dispatch = dispatch
        self.registry = registry
        known = [name for step in spec.every_step() for name in (f"{self.scope}/{step.name}", step.name)]
        self.layers = {self._spelled(key, known): layer for key, layer in dispatch.steps.items()}

    def plain(self, step: StepSpec, path: str) -> dict[str, Any]:
        """A step and how it is performed."""
        described: dict[str, Any] = {
            "step": f"{self.scope}/{step.name}",
            "path": path,
            "name": step.name,
            "type": step.type.value,
        }
        action = self._action(step)
        for name in ("action", "agent", "generator", "workflow"):
            named = getattr(step, name, None)
            if named is not None:
                described[name] = named
        if step.description:
            described["description"] = step.description
        described["intent"] = self._intent(step, action)
        described |= self._performed(step, action)
        described["effects"] = list(action.effects) if action is not None else []
        described["rollback"] = getattr(step, "rollback", None) or (action.rollback if action else None)
        described["when"] = step.when
        described["requires"] = list(step.requires)
        return described

    def _performed(self, step: StepSpec, action: Action | None) -> dict[str, Any]:
        """Mode and autonomy, and the layer each comes from; empty for control flow."""
        if step.type not in PERFORMED:
            return {"mode": None, "autonomy": None, "layer": None}
        from detent.dispatch.config import StepConfigError, resolve
        from detent.dispatch.executor import DISPATCH_AGENT
        from detent.runtime.dispatch_settings import shown_place

        agent = step.agent if isinstance(step, AgentStep) else DISPATCH_AGENT
        try:
            resolved = resolve(
                step.name,
                flow=self.scope,
                inline=step.config,
                steps=self.layers,
                agent=self.dispatch.agents.get(agent),
                agent_name=agent,
                model=self.dispatch.model,
                forced=self.dispatch.force_deterministic and step.type is StepType.PYTHON,
                max_autonomy=None if action is None else action.max_autonomy,
                tools=self._tools(step, action),
                natural=step.type.natural_mode,
            )
        except StepConfigError as error:
            return {"mode": None, "autonomy": None, "layer": None, "problems": list(error.problems)}
        config = resolved.config.to_plain()
        # Only a step with a handler and an intent can be switched between code and agent.
        mode = config["mode"] if step.type is StepType.PYTHON else step.type.natural_mode.value
        alone = step.type is not StepType.PYTHON
        layer = resolved.sources["mode"]
        return {
            "mode": mode,
            "autonomy": None if alone else config["autonomy"],
            "layer": "default" if alone else layer,
            "place": None if alone else shown_place(self.settings, layer, "mode"),
            "autonomy_layer": None if alone else resolved.sources["autonomy"],
            "forced": resolved.forced,
            "warnings": [{"code": code, "message": message} for code, message in resolved.warnings],
        }

    def _action(self, step: StepSpec) -> Action | None:
        return self.registry.actions.find(step.action) if isinstance(step, PythonStep) else None

    def _intent(self, step: StepSpec, action: Action | None) -> str:
        if action is not None:
            return action.intent
        if isinstance(step, GenerateStep):
            generator = self.registry.generators.find(step.generator)
            return generator.intent if generator is not None else ""
        return ""

    def _tools(self, step: StepSpec, action: Action | None) -> tuple[str, ...]:
        if action is not None:
            return (*action.queries, *action.effects)
        if isinstance(step, AgentStep):
            agent = self.registry.agents.find(step.agent)
            return agent.tools if agent is not None else ()
        if isinstance(step, GenerateStep):
            generator = self.registry.generators.find(step.generator)
            return generator.tools if generator is not None else ()
        return ()

    def _spelled(self, key: str, known: list[str]) -> str:
        """The step an entry refers to; a name from the environment is spelled as a variable's name is."""
        from detent.runtime.settings import alike

        if key in known or not self.settings.by_variable("steps", key):
            return key
        meant = [name for name in known if alike(name) == alike(key)]
        return meant[0] if len(meant) == 1 else key


def description(described: dict[str, Any]) -> Description:
    """The description of a workflow for people, from the values of `described`."""
    from detent.runtime.plugs import Description

    fields = [
        ("description", described["description"]),
        ("file", described["place"]),
        ("outputs", ", ".join(described["outputs"] or ()) or "the last step's"),
    ]
    inputs = [
        (entry["name"], entry["type"], _default(entry), entry["description"]) for entry in described["inputs"]
    ]
    steps = [
        (
            "  " * step["path"].count("/") + step["name"],
            step["type"],
            next((step[name] for name in ("action", "agent", "generator", "workflow") if name in step), "-"),
            step["mode"] or "-",
            step["autonomy"] or "-",
            _layer(step),
            ", ".join(step["effects"]) or "-",
            step["rollback"] or "-",
        )
        for step in described["steps"]
    ]
    tables: list[tuple[Sequence[str], Sequence[Sequence[str]]]] = [
        (("INPUT", "TYPE", "DEFAULT", "DESCRIPTION"), inputs),
        (("STEP", "TYPE", "PERFORMS", "MODE", "AUTONOMY", "LAYER", "EFFECTS", "ROLLBACK"), steps),
    ]
    remarks = [
        f"{step['path']}: {text}"
        for step in described["steps"]
        for text in (
            *step.get("problems", ()),
            *(f"{warning['code']} {warning['message']}" for warning in step.get("warnings", ())),
        )
    ]
    return Description(described, described["flow"], fields, [table for table in tables if table[1]], remarks)


def _default(entry: Mapping[str, Any]) -> str:
    if entry.get("secret"):
        return "(secret, from the environment)"
    if "default" in entry:
        return json.dumps(entry["default"], ensure_ascii=False, default=str)
    return "(required)" if entry["required"] else "-"


def _layer(step: Mapping[str, Any]) -> str:
    if step.get("layer") is None:
        return "-"
    return f"{step['layer']} ({step['place']})" if step.get("place") else str(step["layer"])


# -- what files can name ------------------------------------------------------------------------------------


def registered(registry: Registry) -> list[dict[str, Any]]:
    """Every registered item, by kind and name."""
    entries: list[dict[str, Any]] = []
    for action in sorted(registry.actions, key=lambda item: item.name):
        entries.append(
            {
                "name": action.name,
                "kind": "action",
                "origin": action.origin,
                "intent": action.intent,
                "parameters": [_parameter(item) for item in action.parameters.values()],
                "output_schema": _schema(action.output_schema),
                "effects": list(action.effects),
                "queries": list(action.queries),
                "rollback": action.rollback,
                "max_autonomy": None if action.max_autonomy is None else action.max_autonomy.value,
                "holds": action.holds,
                "opaque": action.opaque,
            }
        )
    for agent in sorted(registry.agents, key=lambda item: item.name):
        entries.append(
            {
                "name": agent.name,
                "kind": "agent",
                "origin": agent.origin,
                "intent": _first_line(agent.instructions),
                "instructions": agent.instructions,
                "output_schema": _schema(agent.output_schema),
                "tools": list(agent.tools),
            }
        )
    for generator in sorted(registry.generators, key=lambda item: item.name):
        entries.append(
            {
                "name": generator.name,
                "kind": "generator",
                "origin": generator.origin,
                "intent": generator.intent,
                "prompt_file": generator.prompt_file,
                "handler": generator.handler is not None,
                "tools": list(generator.tools),
            }
        )
    for builder in sorted(registry.context_builders, key=lambda item: item.name):
        intent = _first_line(inspect.getdoc(builder.build) or "")
        entries.append(
            {"name": builder.name, "kind": "context builder", "origin": builder.origin, "intent": intent}
        )
    for prerequisite in sorted(registry.prerequisites, key=lambda item: item.name):
        argument = " NAME" if prerequisite.takes_argument else ""
        entries.append(
            {
                "name": prerequisite.name,
                "kind": "prerequisite",
                "origin": prerequisite.origin,
                "intent": f"Needs {prerequisite.display_name or prerequisite.name}{argument}.",
                "written": f"{prerequisite.name}:NAME" if argument else prerequisite.name,
                "remediation": prerequisite.remediation.replace("{argument}", "NAME"),
            }
        )
    for stage in sorted(registry.stages, key=lambda item: item.name):
        entries.append(
            {
                "name": stage.name,
                "kind": "validation stage",
                "origin": stage.origin,
                "intent": " ".join(stage.command) if stage.command else "No command: it is skipped.",
                "command": None if stage.command is None else list(stage.command),
                "fix_command": None if stage.fix_command is None else list(stage.fix_command),
                "timeout": stage.timeout,
            }
        )
    instead = {(kind, item.name): item.instead_of for kind, item in registry.stand_ins}
    for item in entries:
        if origin := instead.get((item["kind"], item["name"])):
            item["instead_of"] = origin
    return entries


def _parameter(parameter: inspect.Parameter) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": parameter.name, "required": parameter.default is parameter.empty}
    if parameter.annotation is not parameter.empty:
        annotation = parameter.annotation
        plain["type"] = (
            annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
        )
    if parameter.default is not parameter.empty:
        try:
            json.dumps(parameter.default)
            plain["default"] = parameter.default
        except (TypeError, ValueError):
            plain["default"] = str(parameter.default)
    return plain


def _schema(declared: Any) -> Any:
    """The JSON Schema of a declared output."""
    from detent.flows.workflow.registry import schema_of
    from detent.kernel.plain import to_plain

    schema = schema_of(declared)
    return None if schema is None else to_plain(dict(schema))


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0]


def registered_fields(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """All fields of one registered item, for people."""
    return [
        (key.replace("_", " "), _format_field(key, value))
        for key, value in entry.items()
        if key not in ("name", "kind") and value not in (None, [], "", False)
    ]


def _format_field(key: str, value: Any) -> str:
    if key == "parameters":
        return ", ".join(_call(parameter) for parameter in value)
    if key in ("effects", "queries", "tools"):
        return ", ".join(value)
    if key in ("command", "fix_command"):
        return " ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _call(parameter: Mapping[str, Any]) -> str:
    return (
        parameter["name"]
        if parameter["required"]
        else f"{parameter['name']}={json.dumps(parameter['default'], default=str)}"
    )
