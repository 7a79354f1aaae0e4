"""Commands about steps and who performs them: `steps list`, `steps show`."""

from __future__ import annotations

import json as json_text
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from detent.cli.autonomy import in_force, known_demotions, known_watches, level_text, plain_of, told
from detent.cli.options import Columns, Options, takes

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.dispatch.autonomy import AutonomyLevel
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.dispatch.evidence import Demotion
    from detent.dispatch.plan import Plan
    from detent.engine.flow import Flow
    from detent.engine.step import Step

steps = typer.Typer(
    help="List steps, and show how each is performed and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(steps, name="steps", rich_help_panel="Look at flows")


@steps.command("list")
@takes("json", "project")
async def list_(
    options: Options,
    flow: Annotated[
        str | None,
        typer.Option(
            "--flow", metavar="FLOW", help="Only this flow's: a name, file.py, or another definition."
        ),
    ] = None,
) -> None:
    """List every step: who performs it, and at which level."""
    workspace = options.workspace(looks=True)
    book = StepBook(workspace, flow, await known_demotions(workspace))
    empty = "No flows are known here, so there are no steps. Name a file with --flow file.py."
    rows = [book.row(named) for named in book.steps]
    options.print_rows(rows, COLUMNS, empty=empty)
    lowered = [row["step"] for row in rows if row["demotion"] is not None]
    if lowered and options.as_table:
        from detent.cli.output import say

        say()
        for step in lowered:
            say(told(step, book.held[step]))


def _model(row: Mapping[str, Any]) -> str:
    return "/".join(filter(None, (row["provider"], row["model_id"]))) or "-"


def _level(row: Mapping[str, Any]) -> str:
    level = level_text(row["autonomy"], row["in_force"])
    return f"{level}, {row['text']}" if row["text"] else level


COLUMNS: Columns = {
    "STEP": "step", "MODE": "mode", "AUTONOMY": _level, "MODEL": _model, "INTENT": "intent",
}  # fmt: skip


@steps.command("show")
@takes("json", "project")
async def show(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A step: FLOW/STEP, or STEP where unique.")],
) -> None:
    """Show how one step is performed, and which setting decides it."""
    from detent.cli.output import iso, say_json

    workspace = options.workspace(looks=True)
    book = StepBook(workspace, held=await known_demotions(workspace))
    detail = book.detail(book.find(name))
    watch = (await known_watches(workspace)).get(detail["step"])
    detail["recheck"] = [
        {"kind": kind, "clean_to_go": held.recheck, "since": iso(held.since)}
        for kind, held in (watch.kinds.items() if watch is not None else ())
        if held.recheck
    ]
    if options.json:
        say_json(detail)
    else:
        _print_detail(workspace, detail, book.held.get(detail["step"]))


PERFORMED = ("python", "agent", "generate")
"""Types of steps that code or an agent performs; the other types are control flow."""


class _Named(NamedTuple):
    """A step and the flow it is in."""

    flow: Flow
    step: Step
    shipped: bool = False
    """Whether the step belongs to a definition that ships with Detent."""

    @property
    def name(self) -> str:
        return self.flow.qualified(self.step)

    @property
    def of_flow(self) -> str:
        """Name without the kind of flow: `weekly/count`."""
        return f"{self.flow.name}/{self.step.name}"


class StepBook:
    """The steps known in this project, each with its resolved configuration."""

    def __init__(
        self, workspace: Workspace, flow: str | None = None, held: Mapping[str, Demotion] | None = None
    ) -> None:
        from detent.cli.output import warn
        from detent.dispatch.dispatcher import Dispatcher
        from detent.runtime.executors import ConfiguredExecutors

        self.settings = workspace.settings
        self.held = held or {}
        """Demotions in force, by step."""
        catalog = workspace.catalog
        chosen = None if flow is None else _picked(workspace, flow)
        flows = {source.flow.name: (source.flow, False) for source in catalog.all().values()}
        for definitions in catalog.every_definitions():
            for family, shipped in definitions.all(warn):
                for member in family:
                    flows.setdefault(member.name, (member, shipped))
        for member in catalog.flows_of_apps():
            flows.setdefault(member.name, (member, True))
        self.dispatch: DispatchSettings = workspace.dispatch([member for member, _ in flows.values()])
        self.may_be_left_out = catalog.may_be_left_out
        self.dispatcher = Dispatcher(self.dispatch)
        self.executors = ConfiguredExecutors(self.settings)
        self.steps = [
            _Named(member, step, shipped)
            for member, shipped in (
                flows.values() if chosen is None else [(member, False) for member in chosen]
            )
            for step in member.every_step()
            if "flow" not in step.metadata or step.metadata.get("type") in PERFORMED
        ]

    def find(self, name: str) -> _Named:
        """The step with this name; an error lists the candidates."""
        from detent.kernel.errors import ConfigurationError, nearest

        matches = [named for named in self.steps if name in (named.name, named.of_flow, named.step.name)]
        exact = [named for named in matches if named.name == name]
        if exact or len(matches) == 1:
            return (exact or matches)[0]
        own = [named for named in matches if not named.shipped]
        if len(own) == 1:  # steps that ship with Detent do not make the project's own ambiguous
            return own[0]
        if matches:
            names = ", ".join(named.name for named in matches)
            raise ConfigurationError(f"Several flows have a step '{name}': {names}.")
        known = [text for named in self.steps for text in (named.name, named.step.name)]
        hint = nearest(name, known) + self.may_be_left_out
        raise ConfigurationError(f"There is no step '{name}'.{hint} See: detent steps list")

    def plan(self, named: _Named) -> Plan:
        """The plan that the layers of configuration give a step."""
        return self.dispatcher.plan_for(named.flow, named.step, self.dispatch.force_deterministic)

    def model(self, plan: Plan) -> tuple[str | None, str | None]:
        """Provider and model of the step's agent; empty if no agent performs it."""
        if not (plan.agent or plan.alone or plan.config.shadow):
            return None, None
        provider = plan.config.provider or self.executors.default
        usual = self.executors.provider(provider).model_id if provider is not None else None
        return provider, plan.config.model_id or usual

    def _defaults(self, plan: Plan) -> dict[str, dict[str, Any]]:
        """Provider and model where no layer names them: the default provider, and its own model."""
        chosen: dict[str, dict[str, Any]] = {}
        name = plan.config.provider or self.executors.default
        if name is None:
            return chosen
        if plan.config.provider is None:
            chosen["provider"] = {"value": name, "layer": "default", "place": "the only entry under models"}
        if plan.config.model_id is None and (model_id := self.executors.provider(name).model_id) is not None:
            chosen["model_id"] = {"value": model_id, "layer": f"models.{name}", "place": None}
        return chosen

    def row(self, named: _Named) -> dict[str, Any]:
        """A step as a row of the list."""
        from detent.engine.step import WAITS

        plan = self.plan(named)
        provider, model_id = self.model(plan)
        plain = plan.config.to_plain()
        demotion = self.held.get(named.name) if plan.agent else None
        level = in_force(plan.config.autonomy, demotion)
        lowered = demotion is not None and level is not plan.config.autonomy
        return {
            "step": named.name,
            "intent": named.step.intent or named.step.metadata.get(WAITS, ""),
            "mode": plain["mode"],
            # A step without a handler has no level of trust.
            "autonomy": plain["autonomy"] if _has_a_choice(named.step) else None,
            "in_force": level.value if level is not None and _has_a_choice(named.step) else None,
            "demotion": plain_of(demotion) if lowered and demotion is not None else None,
            "provider": provider,
            "model_id": model_id,
            "shadow": plain["shadow"],
            "text": self._text(named, plan, level),
            "forced": plan.resolved.forced,
        }

    @staticmethod
    def _text(named: _Named, plan: Plan, level: AutonomyLevel | None) -> str | None:
        """What becomes of the agent's text for people: None, `reviewed` or `free prose`."""

        if not (plan.agent and plan.prose):
            return None
        if plan.config.prose is not None and level is not None and level.above is None:
            return "free prose"
        return "reviewed" if plan.config.review is not None else None

    def detail(self, named: _Named) -> dict[str, Any]:
        """Everything about a step."""
        from detent.dispatch.agent_side import highest_level, offered
        from detent.dispatch.agent_tools import declared_tools
        from detent.dispatch.config import FIELDS
        from detent.kernel.plain import to_plain

        plan = self.plan(named)
        resolved = plan.resolved
        plain = plan.config.to_plain()
        tools = declared_tools(named.step, named.flow.tools, None)
        contract = plan.contract
        return {
            **self.row(named),
            "queries": [tool.name for tool in tools.values() if tool.kind == "query"],
            "effects": [tool.name for tool in tools.values() if tool.kind == "effect"],
            "undeclared": [
                kind
                for kind, names in zip(("queries", "effects"), offered(named.step), strict=True)
                if names is None
            ],
            "next": list(contract.next),
            "output": None if contract.output is None else to_plain(contract.output),
            "hard_contract": contract.hard is not None,
            "handler": not plan.alone,
            "no_model": self.executors.absent(plan.config.provider, plan.config.model_id)
            if plan.agent or plan.alone
            else None,
            "max_autonomy": None if (highest := highest_level(named.step)) is None else highest.value,
            "config": {
                field: {
                    "value": plain.get(field),
                    **self._source(named.step, resolved.sources[field], field),
                }
                for field in FIELDS
            }
            | self._defaults(plan),
            "dropped": list(resolved.dropped),
            "warnings": [{"code": code, "message": message} for code, message in resolved.warnings],
            "switch": self._switch(named, plan),
        }

    def _source(self, step: Step, layer: str, field: str) -> dict[str, str | None]:
        """Layer and place of a field; a step's own configuration may come from settings of its flow."""
        from detent.runtime.dispatch_settings import shown_place

        keys = step.metadata.get("settings")
        if layer == "inline" and keys is not None:
            return {"layer": ".".join(keys), "place": str(self.settings.place(*keys, field))}
        return {"layer": layer, "place": shown_place(self.settings, layer, field)}

    def _switch(self, named: _Named, plan: Plan) -> str:
        """The setting that hands the step to the other performer, code or agent."""
        file = self.settings.file.name if self.settings.file is not None else "detent.yaml"
        source = plan.resolved.sources["mode"]
        if plan.resolved.forced:
            return "Agents are switched off here: DETENT_FORCE_DETERMINISTIC is set."
        if not _has_a_choice(named.step):
            return "An agent performs it by nature: no mode changes that."
        mode, who = ("deterministic", "its handler") if plan.agent else ("agent", "an agent")
        if source == "inline" and (keys := named.step.metadata.get("settings")) is not None:
            return f"Have {who} perform it: in {file}, {'.'.join(keys)}: {{mode: {mode}}}"
        if source == "inline":
            return f"Have {who} perform it: the step's own configuration says its mode; change it there."
        name = named.name if re.fullmatch(r"[\w./-]+", named.name) else json_text.dumps(named.name)
        return f"Have {who} perform it: in {file}, steps: {{{name}: {{mode: {mode}}}}}"


def _has_a_choice(step: Step) -> bool:
    """Whether settings can choose between handler and agent for this step."""
    from detent.dispatch.agent_side import agent_side
    from detent.dispatch.autonomy import AgentRole

    return agent_side(step).role in (AgentRole.OPTIONAL, AgentRole.NONE)


def _picked(workspace: Workspace, target: str) -> list[Flow]:
    """The flows of a name or file: several where a definition contains child flows."""
    flow = workspace.pick(target, workspace.definition(target)).flow
    return [source.flow for source in workspace.catalog.family(flow.name).values()]


def _print_detail(workspace: Workspace, detail: dict[str, Any], demotion: Demotion | None) -> None:
    """Print every detail of a step."""
    from detent.cli.output import clean, fields, paint, say, table

    say(paint(detail["step"], bold=True))
    fields(
        [
            ("intent", clean(detail["intent"]) or "-"),
            ("queries", _tools(detail, "queries")),
            ("effects", _tools(detail, "effects")),
            ("next", ", ".join(detail["next"]) or "-"),
            ("output", _contract(detail)),
            ("performed by", _performer(detail)),
            ("level", _level(detail) if detail["demotion"] is not None else ""),
            ("advised", f"{detail['max_autonomy']} at most" if detail["max_autonomy"] else ""),
        ]
    )
    say()
    table(
        ("FIELD", "VALUE", "FROM"),
        [(field, _format(setting["value"]), _source(setting)) for field, setting in detail["config"].items()],
    )
    for line in _remarks(detail):
        say(line)
    if demotion is not None and detail["demotion"] is not None:
        say()
        say(told(detail["step"], demotion))
        say(f"Back with: {workspace.command('autonomy', 'restore', detail['step'])}")
    say()
    say(detail["switch"])


def _tools(detail: dict[str, Any], kind: str) -> str:
    if kind in detail["undeclared"]:
        return "none declared: the handler may use any of the flow's, an agent gets none"
    return ", ".join(detail[kind]) or "none"


def _contract(detail: dict[str, Any]) -> str:
    if detail["output"] is None:
        return "any value"
    kind = "must fit" if detail["hard_contract"] else "should fit"
    return f"{kind} {json_text.dumps(detail['output'], ensure_ascii=False, sort_keys=True)}"


def _performer(detail: dict[str, Any]) -> str:
    who = "its handler" if detail["mode"] == "deterministic" else f"an agent ({_model(detail)})"
    if detail["in_force"] == "operator" and detail["mode"] == "agent":
        who = "its handler: at operator the agent is not asked"
    elif (reason := detail["no_model"]) is not None:
        who = f"its handler, in place of an agent: {reason}" if detail["handler"] else f"nobody: {reason}"
    beside = f", shadowed in {detail['shadow']:.0%} of executions" if detail["shadow"] else ""
    return who + beside


def _format(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False)


def _source(setting: dict[str, Any]) -> str:
    return f"{setting['layer']} ({setting['place']})" if setting["place"] else str(setting["layer"])


def _remarks(detail: dict[str, Any]) -> Iterator[str]:
    for held in detail["recheck"]:
        of = f" for kind '{held['kind']}'" if held["kind"] else ""
        until = f"until {held['clean_to_go']} more answers in a row are clean"
        yield f"Under recheck{of} since {held['since']}: gated as at collaborator {until}."
    if detail["dropped"]:
        yield f"Dropped, as a stronger layer says deterministic: {', '.join(detail['dropped'])}."
    for warning in detail["warnings"]:
        yield f"{warning['code']}: {warning['message']}"
