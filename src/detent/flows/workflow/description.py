"""Workflow files described: inputs, who performs each step, and what files can name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.dispatch.autonomy import StepType
from detent.flows.workflow.spec import (
    AgentStep,
    GenerateStep,
    InputSpec,
    PythonStep,
    StepSpec,
    WorkflowSpec,
)

if TYPE_CHECKING:
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.flows.workflow.preflight import Find
    from detent.flows.workflow.registry import Action, Registry
    from detent.runtime.plugs import Description
    from detent.runtime.settings import Settings

PERFORMED = (StepType.PYTHON, StepType.AGENT, StepType.GENERATE)
"""Kinds of steps that somebody performs; the others only say what comes when."""


# -- a workflow ---------------------------------------------------------------------------------------------


def described(
    spec: WorkflowSpec, file: str, settings: Settings, registry: Registry, *, forced: bool = False
) -> dict[str, Any]:
    """A workflow as plain values: inputs, steps, and what the settings make of each step."""
    from detent.dispatch.executor import DISPATCH_AGENT
    from detent.runtime.dispatch_settings import dispatch_settings

    agents = None if registry.incomplete else (DISPATCH_AGENT, *registry.agents.names)
    dispatch = dispatch_settings(settings, [], agents=agents, complete=False, deterministic=forced)
    steps = _Steps(spec, settings, dispatch, registry)
    return {
        "workflow": spec.name,
        "description": spec.description,
        "file": file,
        "inputs": [_input(one) for one in spec.inputs.values()],
        "steps": [steps.plain(step, path) for step, path in _paths(spec)],
        "outputs": None if spec.outputs is None else dict(spec.outputs),
    }


def planned(
    spec: WorkflowSpec, settings: Settings, registry: Registry, find: Find, *, forced: bool = False
) -> list[dict[str, Any]]:
    """Every step that a run may come to, those of subworkflows included, and how each is performed."""
    from detent.dispatch.executor import DISPATCH_AGENT
    from detent.flows.workflow.preflight import walk
    from detent.runtime.dispatch_settings import dispatch_settings

    agents = None if registry.incomplete else (DISPATCH_AGENT, *registry.agents.names)
    dispatch = dispatch_settings(settings, [], agents=agents, complete=False, deterministic=forced)
    files: dict[str, _Steps] = {}
    found: list[dict[str, Any]] = []
    for one in walk(spec, find):
        steps = files.get(one.of.name)
        if steps is None:
            steps = files[one.of.name] = _Steps(one.of, settings, dispatch, registry)
        found.append({**steps.plain(one.step, one.path), "of": one.of.name, "depth": one.depth})
    return found


def _paths(spec: WorkflowSpec) -> Iterator[tuple[StepSpec, str]]:
    """Every step with its path, in the order of the file."""
    waiting = [(step, step.name) for step in reversed(spec.steps)]
    while waiting:
        step, path = waiting.pop()
        yield step, path
        waiting.extend((one, f"{path}/{one.name}") for one in reversed(step.inner))


def _input(one: InputSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": one.name, "type": one.type, "required": one.required}
    if one.has_default:
        plain["default"] = one.default
    if one.enum is not None:
        plain["enum"] = list(one.enum)
    if one.secret:
        plain["secret"] = True
    return {**plain, "description": one.description}


class _Steps:
    """Steps of one file with the layers of configuration laid over each."""

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
        found: dict[str, Any] = {"path": path, "name": step.name, "type": step.type.value}
        action = self._action(step)
        for name in ("action", "agent", "generator", "workflow"):
            said = getattr(step, name, None)
            if said is not None:
                found[name] = said
        if step.description:
            found["description"] = step.description
        found["intent"] = self._intent(step, action)
        found |= self._performed(step, action)
        found["effects"] = list(action.effects) if action is not None else []
        found["rollback"] = getattr(step, "rollback", None) or (action.rollback if action else None)
        found["when"] = step.when
        found["requires"] = list(step.requires)
        return found

    def _performed(self, step: StepSpec, action: Action | None) -> dict[str, Any]:
        """Mode and autonomy, and the layer each comes from; nothing for steps that nobody performs."""
        if step.type not in PERFORMED:
            return {"mode": None, "autonomy": None, "layer": None}
        from detent.dispatch.config import StepConfigError, resolve
        from detent.dispatch.executor import DISPATCH_AGENT
        from detent.runtime.dispatch_settings import place_of

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
        # Only a step with a handler and an intent can be given from one to the other.
        mode = config["mode"] if step.type is StepType.PYTHON else step.type.natural_mode.value
        alone = step.type is not StepType.PYTHON
        said = resolved.sources["mode"]
        return {
            "mode": mode,
            "autonomy": None if alone else config["autonomy"],
            "layer": "default" if alone else said,
            "place": None if alone else place_of(self.settings, said, "mode"),
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
        """The step an entry means: a name in the environment is spelled as variables are."""
        from detent.runtime.settings import PREFIX, alike

        if key in known or not self.settings.place("steps", key).startswith(PREFIX):
            return key
        meant = [name for name in known if alike(name) == alike(key)]
        return meant[0] if len(meant) == 1 else key


def description(found: dict[str, Any]) -> Description:
    """A workflow, as `described` gives it, for people."""
    from detent.runtime.plugs import Description

    fields = [
        ("description", found["description"]),
        ("file", found["file"]),
        ("outputs", ", ".join(found["outputs"] or ()) or "the last step's"),
    ]
    inputs = [
        (entry["name"], entry["type"], _default(entry), entry["description"]) for entry in found["inputs"]
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
        for step in found["steps"]
    ]
    tables: list[tuple[Sequence[str], Sequence[Sequence[str]]]] = [
        (("INPUT", "TYPE", "DEFAULT", "DESCRIPTION"), inputs),
        (("STEP", "TYPE", "PERFORMS", "MODE", "AUTONOMY", "LAYER", "EFFECTS", "ROLLBACK"), steps),
    ]
    remarks = [
        f"{step['path']}: {text}"
        for step in found["steps"]
        for text in (
            *step.get("problems", ()),
            *(f"{warning['code']} {warning['message']}" for warning in step.get("warnings", ())),
        )
    ]
    return Description(found, found["workflow"], fields, [table for table in tables if table[1]], remarks)


def _default(one: Mapping[str, Any]) -> str:
    if one.get("secret"):
        return "(secret, from the environment)"
    if "default" in one:
        return json.dumps(one["default"], ensure_ascii=False, default=str)
    return "(required)" if one["required"] else "-"


def _layer(one: Mapping[str, Any]) -> str:
    if one.get("layer") is None:
        return "-"
    return f"{one['layer']} ({one['place']})" if one.get("place") else str(one["layer"])


# -- what files can name ------------------------------------------------------------------------------------


def registered(registry: Registry) -> list[dict[str, Any]]:
    """Everything that is registered, kind by kind, by name."""
    found: list[dict[str, Any]] = []
    for action in sorted(registry.actions, key=lambda one: one.name):
        found.append(
            {
                "name": action.name,
                "kind": "action",
                "origin": action.origin,
                "intent": action.intent,
                "parameters": [_parameter(one) for one in action.parameters.values()],
                "output_schema": _schema(action.output_schema),
                "effects": list(action.effects),
                "queries": list(action.queries),
                "rollback": action.rollback,
                "max_autonomy": None if action.max_autonomy is None else action.max_autonomy.value,
                "holds": action.holds,
                "opaque": action.opaque,
            }
        )
    for agent in sorted(registry.agents, key=lambda one: one.name):
        found.append(
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
    for generator in sorted(registry.generators, key=lambda one: one.name):
        found.append(
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
    for builder in sorted(registry.context_builders, key=lambda one: one.name):
        intent = _first_line(inspect.getdoc(builder.build) or "")
        found.append(
            {"name": builder.name, "kind": "context builder", "origin": builder.origin, "intent": intent}
        )
    for prerequisite in sorted(registry.prerequisites, key=lambda one: one.name):
        told = " NAME" if prerequisite.takes_argument else ""
        found.append(
            {
                "name": prerequisite.name,
                "kind": "prerequisite",
                "origin": prerequisite.origin,
                "intent": f"Needs {prerequisite.display_name or prerequisite.name}{told}.",
                "written": f"{prerequisite.name}:NAME" if told else prerequisite.name,
                "remediation": prerequisite.remediation.replace("{argument}", "NAME"),
            }
        )
    for stage in sorted(registry.stages, key=lambda one: one.name):
        found.append(
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
    instead = {(kind, one.name): one.instead_of for kind, one in registry.stand_ins}
    for one in found:
        if origin := instead.get((one["kind"], one["name"])):
            one["instead_of"] = origin
    return found


def _parameter(one: inspect.Parameter) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": one.name, "required": one.default is one.empty}
    if one.annotation is not one.empty:
        said = one.annotation
        plain["type"] = said if isinstance(said, str) else getattr(said, "__name__", str(said))
    if one.default is not one.empty:
        try:
            json.dumps(one.default)
            plain["default"] = one.default
        except (TypeError, ValueError):
            plain["default"] = str(one.default)
    return plain


def _schema(said: Any) -> Any:
    """The JSON Schema of a declared output."""
    from detent.flows.workflow.registry import schema_of
    from detent.kernel.plain import to_plain

    found = schema_of(said)
    return None if found is None else to_plain(dict(found))


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0]


def registered_fields(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything about one registered thing, for people."""
    return [
        (key.replace("_", " "), _told(key, value))
        for key, value in entry.items()
        if key not in ("name", "kind") and value not in (None, [], "", False)
    ]


def _told(key: str, value: Any) -> str:
    if key == "parameters":
        return ", ".join(_call(one) for one in value)
    if key in ("effects", "queries", "tools"):
        return ", ".join(value)
    if key in ("command", "fix_command"):
        return " ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _call(one: Mapping[str, Any]) -> str:
    return one["name"] if one["required"] else f"{one['name']}={json.dumps(one['default'], default=str)}"
