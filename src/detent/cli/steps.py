"""Commands about steps and who performs them: `steps list`, `steps show`."""

from __future__ import annotations

import json as json_text
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from detent.cli import options
from detent.dispatch.agent_side import agent_side, highest_level, offered

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.dispatch.plan import Plan
    from detent.engine.flow import Flow
    from detent.engine.step import Step
    from detent.runtime.catalog import Catalog

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
def list_(
    flow: Annotated[
        str | None,
        typer.Option(
            "--flow", metavar="FLOW", help="Only this flow's: a name, file.py, or another definition."
        ),
    ] = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> None:
    """List every step: who performs it, trusted how far."""
    from detent.cli.output import say, say_json, table
    from detent.cli.workspace import Workspace

    book = _Book(Workspace(None, config, plugin, looks=True), flow)
    rows = [book.row(one) for one in book.steps]
    if json:
        say_json(rows)
    elif not rows:
        say("No flows are known here, so there are no steps. Name a file with --flow file.py.")
    else:
        table(
            ("STEP", "MODE", "AUTONOMY", "MODEL", "INTENT"),
            [
                (
                    row["step"],
                    row["mode"],
                    row["autonomy"] or "-",
                    "/".join(filter(None, (row["provider"], row["model_id"]))) or "-",
                    row["intent"] or "-",
                )
                for row in rows
            ],
        )


@steps.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A step: FLOW/STEP, or STEP where unique.")],
    json: options.Json = False,
    plugin: options.Plugins = None,
    config: options.Config = None,
) -> None:
    """Show how one step is performed, and which setting says so."""
    from detent.cli.output import say_json
    from detent.cli.workspace import Workspace

    book = _Book(Workspace(None, config, plugin, looks=True))
    found = book.detail(book.find(name))
    if json:
        say_json(found)
    else:
        _tell(found)


PERFORMED = ("python", "agent", "generate")
"""Types of steps that are performed by code or an agent; the others lead from one to the next."""


class _Named(NamedTuple):
    """A step and the flow it is in."""

    flow: Flow
    step: Step
    shipped: bool = False
    """It stands in a definition that comes with Detent."""

    @property
    def name(self) -> str:
        return self.flow.qualified(self.step)

    @property
    def of_flow(self) -> str:
        """As people call it who do not think of the kind of flow: `weekly/count`."""
        return f"{self.flow.name}/{self.step.name}"


class _Book:
    """The steps that are known here, with what the settings make of them."""

    def __init__(self, workspace: Workspace, flow: str | None = None) -> None:
        from detent.cli.output import warn
        from detent.dispatch.dispatcher import Dispatcher
        from detent.dispatch.executor import DISPATCH_AGENT
        from detent.runtime.dispatch_settings import dispatch_settings
        from detent.runtime.executors import ConfiguredExecutors

        self.settings = workspace.settings
        catalog = workspace.catalog
        chosen = None if flow is None else _picked(catalog, flow)
        flows = {found.flow.name: (found.flow, False) for found in catalog.all().values()}
        for definitions in catalog.every_definitions():
            for family, shipped in definitions.all(warn):
                for one in family:
                    flows.setdefault(one.name, (one, shipped))
        said = self.settings.section("steps")
        agents = catalog.agents()
        self.dispatch: DispatchSettings = dispatch_settings(
            self.settings, [one for one, _ in flows.values()],
            known_steps=catalog.step_names(said) if said else (), complete=not catalog.left_out,
            agents=None if agents is None else [DISPATCH_AGENT, *agents], connect=workspace.trust.ok,
        )  # fmt: skip
        self.may_be_left_out = catalog.may_be_left_out
        self.dispatcher = Dispatcher(self.dispatch)
        self.executors = ConfiguredExecutors(self.settings)
        self.steps = [
            _Named(one, step, shipped)
            for one, shipped in (flows.values() if chosen is None else [(one, False) for one in chosen])
            for step in one.every_step()
            if "flow" not in step.metadata or step.metadata.get("type") in PERFORMED
        ]

    def find(self, name: str) -> _Named:
        """The step of a name; an error names those it could be."""
        from detent.kernel.errors import ConfigurationError, nearest

        found = [one for one in self.steps if name in (one.name, one.of_flow, one.step.name)]
        exact = [one for one in found if one.name == name]
        if exact or len(found) == 1:
            return (exact or found)[0]
        own = [one for one in found if not one.shipped]
        if len(own) == 1:  # steps that come with Detent do not make the project's own ambiguous
            return own[0]
        if found:
            names = ", ".join(one.name for one in found)
            raise ConfigurationError(f"Several flows have a step '{name}': {names}.")
        known = [text for one in self.steps for text in (one.name, one.step.name)]
        hint = nearest(name, known) + self.may_be_left_out
        raise ConfigurationError(f"There is no step '{name}'.{hint} See: detent steps list")

    def plan(self, one: _Named) -> Plan:
        """What the layers of configuration make of a step."""
        return self.dispatcher.plan_for(one.flow, one.step, self.dispatch.force_deterministic)

    def model(self, plan: Plan) -> tuple[str | None, str | None]:
        """Provider and model an agent would be; nothing where no agent is asked."""
        if not (plan.agent or plan.alone or plan.config.shadow):
            return None, None
        provider = plan.config.provider or self.executors.default
        usual = self.executors.provider(provider).model_id if provider is not None else None
        return provider, plan.config.model_id or usual

    def row(self, one: _Named) -> dict[str, Any]:
        """A step in a list."""
        from detent.engine.step import WAITS

        plan = self.plan(one)
        provider, model_id = self.model(plan)
        plain = plan.config.to_plain()
        return {
            "step": one.name,
            "intent": one.step.intent or one.step.metadata.get(WAITS, ""),
            "mode": plain["mode"],
            # Where only an agent's words will do, nobody asks how far they are trusted.
            "autonomy": plain["autonomy"] if _has_a_choice(one.step) else None,
            "provider": provider,
            "model_id": model_id,
            "shadow": plain["shadow"],
            "forced": plan.resolved.forced,
        }

    def detail(self, one: _Named) -> dict[str, Any]:
        """Everything about a step."""
        from detent.dispatch.agent_tools import declared_tools
        from detent.dispatch.config import FIELDS
        from detent.kernel.plain import to_plain
        from detent.runtime.dispatch_settings import place_of

        plan = self.plan(one)
        resolved = plan.resolved
        plain = plan.config.to_plain()
        tools = declared_tools(one.step, one.flow.tools, None)
        contract = plan.contract
        return {
            **self.row(one),
            "queries": [tool.name for tool in tools.values() if tool.kind == "query"],
            "effects": [tool.name for tool in tools.values() if tool.kind == "effect"],
            "undeclared": [
                kind
                for kind, names in zip(("queries", "effects"), offered(one.step), strict=True)
                if names is None
            ],
            "next": list(contract.next),
            "output": None if contract.output is None else to_plain(contract.output),
            "hard_contract": contract.hard is not None,
            "max_autonomy": None if (highest := highest_level(one.step)) is None else highest.value,
            "config": {
                field: {
                    "value": plain.get(field),
                    "layer": resolved.sources[field],
                    "place": place_of(self.settings, resolved.sources[field], field),
                }
                for field in FIELDS
            },
            "dropped": list(resolved.dropped),
            "warnings": [{"code": code, "message": message} for code, message in resolved.warnings],
            "switch": self._switch(one, plan),
        }

    def _switch(self, one: _Named, plan: Plan) -> str:
        """How to have the other side perform the step."""
        file = self.settings.file.name if self.settings.file is not None else "detent.yaml"
        source = plan.resolved.sources["mode"]
        if plan.resolved.forced:
            return "Agents are switched off here: DETENT_FORCE_DETERMINISTIC is set."
        if not _has_a_choice(one.step):
            return "An agent performs it by nature: no mode changes that."
        wanted, who = ("deterministic", "its handler") if plan.agent else ("agent", "an agent")
        if source == "inline":
            return f"Have {who} perform it: the step's own configuration says its mode; change it there."
        name = one.name if re.fullmatch(r"[\w./-]+", one.name) else json_text.dumps(one.name)
        return f"Have {who} perform it: in {file}, steps: {{{name}: {{mode: {wanted}}}}}"


def _has_a_choice(step: Step) -> bool:
    """Whether handler or agent may perform a step, as the settings say."""
    from detent.dispatch.autonomy import StepMode

    return agent_side(step).step_type.natural_mode is StepMode.DETERMINISTIC


def _picked(catalog: Catalog, said: str) -> list[Flow]:
    """The flows of a name or file: several where a definition has more than its own."""
    flow = catalog.pick(said).flow
    return [found.flow for found in catalog.family(flow.name).values()]


def _tell(found: dict[str, Any]) -> None:
    """Print a step for people."""
    from detent.cli.output import clean, fields, paint, say, table

    say(paint(found["step"], bold=True))
    fields(
        [
            ("intent", clean(found["intent"]) or "-"),
            ("queries", _tools(found, "queries")),
            ("effects", _tools(found, "effects")),
            ("next", ", ".join(found["next"]) or "-"),
            ("output", _contract(found)),
            ("performed by", _performer(found)),
            ("advised", f"{found['max_autonomy']} at most" if found["max_autonomy"] else ""),
        ]
    )
    say()
    table(
        ("FIELD", "VALUE", "FROM"),
        [(field, _shown(one["value"]), _source(one)) for field, one in found["config"].items()],
    )
    for line in _remarks(found):
        say(line)
    say()
    say(found["switch"])


def _tools(found: dict[str, Any], kind: str) -> str:
    if kind in found["undeclared"]:
        return "none declared: the handler may use any of the flow's, an agent gets none"
    return ", ".join(found[kind]) or "none"


def _contract(found: dict[str, Any]) -> str:
    if found["output"] is None:
        return "any value"
    kind = "must fit" if found["hard_contract"] else "should fit"
    return f"{kind} {json_text.dumps(found['output'], ensure_ascii=False, sort_keys=True)}"


def _performer(found: dict[str, Any]) -> str:
    model = "/".join(filter(None, (found["provider"], found["model_id"])))
    who = (
        "its handler" if found["mode"] == "deterministic" else f"an agent ({model or 'no model configured'})"
    )
    beside = f", shadowed in {found['shadow']:.0%} of executions" if found["shadow"] else ""
    return who + beside


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False)


def _source(one: dict[str, Any]) -> str:
    return f"{one['layer']} ({one['place']})" if one["place"] else str(one["layer"])


def _remarks(found: dict[str, Any]) -> Iterator[str]:
    if found["dropped"]:
        yield f"Dropped, as a stronger layer says deterministic: {', '.join(found['dropped'])}."
    for warning in found["warnings"]:
        yield f"{warning['code']}: {warning['message']}"
