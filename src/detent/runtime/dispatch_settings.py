"""Reads the dispatch settings: who performs which step, in layers below a step's own, checked together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.authoring.document import below
from detent.authoring.names import Nearest
from detent.authoring.problem import NOWHERE, Place, Problem, in_order
from detent.authoring.step_settings import unknown_agent, unknown_step
from detent.dispatch.agent_side import agent_side, own_config
from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.config import EVERYWHERE, UNSAID, StepConfig, StepConfigError, out_of_place
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.dispatch.executor import DISPATCH_AGENT
from detent.engine import logger
from detent.kernel.errors import ConfigurationError
from detent.runtime.executors import NOBODY, ConfiguredExecutors
from detent.runtime.settings import Settings, SettingsError, alike, secrets_of

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.engine.flow import Flow


def dispatch_settings(
    settings: Settings,
    flows: Iterable[Flow],
    *,
    deterministic: bool = False,
    agents: Iterable[str] | None = (DISPATCH_AGENT,),
    complete: bool = True,
    known_steps: Iterable[str] = (),
    connect: bool = True,
    max_turns: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> DispatchSettings:
    """The settings that decide who performs the steps of these flows; `SettingsError` lists every problem.

    `agents` are the registered ones, None where those are not known. With `complete`, these are all flows
    there are, so that a key under `steps` that names no step of theirs is a mistake, unless it is among
    `known_steps`; without it, the step may become known later. Without `connect`, no model is made to see
    whether its options fit. `max_turns` limits how often a model is asked for one answer, tools in between.
    """
    reading = _Reading(
        settings, list(flows), None if agents is None else list(agents), complete, list(known_steps),
        max_turns,
    )  # fmt: skip
    read = DispatchSettings(
        steps=reading.steps(),
        agents=reading.agents(),
        model=reading.model(),
        executors=reading.executors,
        force_deterministic=deterministic or settings.force_deterministic,
        evidence=reading.evidence(),
        secrets=secrets_of(settings, environ),
        cwd=settings.folder,
        pointed_out=True,
    )
    reading.check_providers(read)
    reading.check_steps(read, connect)
    if reading.problems:
        raise SettingsError("The settings", reading.problems)
    return read


def model_problems(settings: Settings, flow: Flow) -> list[Problem]:
    """W005: steps of a flow that an agent should perform, though no model can be asked."""
    from detent.dispatch.dispatcher import Dispatcher

    try:
        read = dispatch_settings(settings, [flow], agents=None, complete=False, connect=False)
    except SettingsError:
        return []  # reported with the settings
    dispatcher = Dispatcher(read)
    problems: list[Problem] = []
    for step in flow.every_step():
        plan = dispatcher.plan_for(flow, step, read.force_deterministic)
        asked = plan.agent and plan.config.autonomy is not AutonomyLevel.OPERATOR
        if not asked and not (plan.alone and not read.force_deterministic):
            continue
        reason = ConfiguredExecutors(settings).absent(plan.config.provider, plan.config.model_id)
        if reason is None:
            continue
        fate = "no handler can perform it instead" if plan.alone else "the handler will run"
        message = f"step '{plan.qualified}' is an agent's, but {fate}: {reason}."
        place = place_of(settings, plan.resolved.sources["mode"], "mode")
        problems.append(Problem("W005", message, place or NOWHERE))
    return problems


def place_of(settings: Settings, layer: str, field: str) -> Place | None:
    """Place of a layer's field: in a file, or a variable. None if code or a default sets it."""
    heading, _, entry = layer.partition(".")
    paths: list[tuple[str, ...]] = []
    if heading == "model":
        paths = [("model", field), ("model", "id")] if field == "model_id" else [("model", field)]
    elif heading in ("steps", "agents"):
        names = [entry, *(key for key in settings.section(heading) if alike(str(key)) == alike(entry))]
        fields = (field, "model") if field == "model_id" else (field,)
        paths = [(heading, str(name), key) for name in names for key in fields]
    return next((settings.places[path] for path in paths if path in settings.places), None)


def shown_place(settings: Settings, layer: str, field: str) -> str | None:
    """`place_of` as text, for listings."""
    place = place_of(settings, layer, field)
    return None if place is None else str(place)


class _Reading:
    """Reads the headings one by one and collects their problems."""

    def __init__(
        self,
        settings: Settings,
        flows: list[Flow],
        agents: list[str] | None,
        complete: bool,
        known_steps: list[str],
        max_turns: int | None,
    ) -> None:
        self.known_steps = known_steps
        self.settings = settings
        self.flows = flows
        self.known_agents = agents
        self.complete = complete
        self.executors = ConfiguredExecutors(settings, max_turns=max_turns)
        self.problems: list[Problem] = []
        self._prefixes: dict[str, tuple[Place, str]] = {}
        """Place and entry by the prefix under which messages name them."""
        self.unread: set[str] = set()
        """Entries under `steps` that cannot be read."""

    # -- layers ---------------------------------------------------------------------------------------------

    def steps(self) -> dict[str, StepConfig]:
        """The entries under `steps`, by the names of the steps."""
        section = self.settings.section("steps")
        if not section:
            return {}
        known = dict.fromkeys(
            name for flow in self.flows for step in flow.every_step()
            for name in (flow.qualified(step), step.name)
        )  # fmt: skip
        known |= dict.fromkeys(self.known_steps)
        configs: dict[str, StepConfig] = {}
        for key, entry in section.items():
            name = self._step_name(str(key), known)
            if name not in known and self.complete:
                place = self.settings.place("steps", str(key))
                meant = Nearest().of(name, known)
                self.problems.append(unknown_step(name, place, below("steps", str(key)), meant))
            config = self._layer("steps", str(key), entry)
            if config is not None:
                configs[name] = config
            elif entry is not None:
                self.unread.add(name)
        return configs

    def agents(self) -> dict[str, StepConfig]:
        """The entries under `agents`."""
        configs: dict[str, StepConfig] = {}
        for key, entry in self.settings.section("agents").items():
            name = str(key)
            if self.known_agents is not None and name not in self.known_agents:
                place, meant = self.settings.place("agents", name), Nearest().of(name, self.known_agents)
                self.problems.append(
                    unknown_agent(name, place, below("agents", name), meant, self.known_agents)
                )
            config = self._layer("agents", name, entry)
            if config is not None:
                configs[name] = config
                self.problems += [
                    self._entry_problem(("agents", name), field, f"{field} {text}")
                    for field, text in out_of_place(config)
                ]
        return configs

    def model(self) -> StepConfig:
        """The keys of the heading `model` that concern steps."""
        section = self.settings.section("model")
        fields = {key: value for key, value in section.items() if key in EVERYWHERE and value is not None}
        if section.get("id") is not None:
            if "model_id" in fields:
                message = "model: id and model_id mean the same; keep one of them."
                self.problems.append(Problem("", message, self.settings.place("model", "id"), "model"))
            fields["model_id"] = section["id"]
        if fields.get("provider") == NOBODY:
            del fields["provider"]
        if not fields:
            return UNSAID
        try:
            return StepConfig.read(fields, where=self._at("model"))
        except StepConfigError as error:
            self.problems += map(self._placed, error.problems)
            return UNSAID

    def evidence(self) -> EvidenceRules:
        """The heading `autonomy`; the settings of the version before are read, and warned about."""
        autonomy = self.settings.section("autonomy")
        demote: Mapping[str, Any] = autonomy.get("demote") or {}
        usual = EvidenceRules()
        rules: dict[str, Any] = {name: autonomy.get(name) for name in EVIDENCE_SETTINGS}
        for name in ("tolerate", "audit"):
            rules[name] = _by_level(autonomy.get(name), getattr(usual, name))
        rules |= {"demote": demote.get("enabled"), "floor": demote.get("floor")}
        rules = {name: value for name, value in rules.items() if value is not None}
        if "floor" in rules:
            rules["floor"] = AutonomyLevel(rules["floor"])
        earlier = self.settings.section("agreement")
        old = [f"agreement.{name}" for name in ("min_n", "min_lower95", "window") if name in earlier]
        old += [f"autonomy.demote.{name}" for name in ("hard", "agreement", "window") if name in demote]
        if old:
            logger.warning(
                "config.doubtful", code="W008", settings=", ".join(old),
                hint="these settings have no effect any more: say `autonomy.tolerate`, `risk` and `patience`",
            )  # fmt: skip
        try:
            return EvidenceRules(**rules)
        except ConfigurationError as error:
            self.problems.append(self.settings.problem(("autonomy",), f"autonomy: {error}"))
            return usual

    def _layer(self, heading: str, key: str, entry: Any) -> StepConfig | None:
        """One entry; None if it is empty or cannot be read."""
        if entry is None:
            return None
        try:
            return StepConfig.read(
                entry,
                where=self._at(heading, key),
                folder=self.settings.base(heading, key, "prompt_file").absolute(),
                read_text=_read_text,
            )
        except StepConfigError as error:
            self.problems += map(self._placed, error.problems)
            return None

    def _at(self, *entry: str) -> Callable[[str], str]:
        """The prefix of messages about a field of an entry; `_placed` turns it back into a place."""
        name = ".".join(entry)

        def at(field: str) -> str:
            place = self._field_place(entry, field)
            prefix = f"{place}: {name}"
            self._prefixes[prefix] = (place, name)
            return prefix

        return at

    def _field_place(self, entry: tuple[str, ...], field: str) -> Place:
        return self.settings.place(*entry, *field.split(".") if field else ())

    def _placed(self, text: str) -> Problem:
        """The problem of a message that begins with a prefix made by `_at`."""
        prefix = max((known for known in self._prefixes if text.startswith(f"{known}: ")), key=len)
        place, entry = self._prefixes[prefix]
        return Problem("", f"{entry}{text.removeprefix(prefix)}", place, entry)

    def _entry_problem(self, entry: tuple[str, ...], field: str, text: str) -> Problem:
        name = ".".join(entry)
        return Problem("", f"{name}: {text}", self._field_place(entry, field), name)

    def _step_name(self, key: str, known: Iterable[str]) -> str:
        """The step an entry refers to; a name from the environment may be spelled as a variable's name is."""
        if key in known or not self.settings.by_variable("steps", key):
            return key
        meant = [name for name in known if alike(name) == alike(key)]
        return meant[0] if len(meant) == 1 else key

    # -- checks across layers -------------------------------------------------------------------------------

    def check_providers(self, read: DispatchSettings) -> None:
        """Report every provider that a layer or a step names and that does not exist."""
        self.problems += self.executors.problems()
        layers = [(f"steps.{key}", config) for key, config in read.steps.items()]
        layers += [(f"agents.{key}", config) for key, config in read.agents.items()]
        layers.append(("model", read.model))
        for flow in self.flows:
            layers += [
                (f"step '{flow.qualified(step)}'", config)
                for step in flow.every_step()
                if (config := own_config(step)) is not None
            ]
        for layer, config in layers:
            if config.provider is not None and (wrong := self.executors.unknown(config.provider)) is not None:
                place = place_of(self.settings, layer, "provider")
                self.problems.append(Problem("", f"{layer}: {wrong}", place or NOWHERE))

    def _usual(self, plan: Plan, read: DispatchSettings) -> str | None:
        """The provider of a step that names none."""
        provider = read.agents.get(plan.agent_name, UNSAID).provider
        return provider or read.model.provider or self.executors.default

    def check_steps(self, read: DispatchSettings, connect: bool) -> None:
        """Report every configured step whose layers contradict each other, as far as they could be read."""
        from detent.dispatch.dispatcher import Dispatcher
        from detent.dispatch.plan import point_out

        # The layers of agents and model have been checked by themselves.
        dispatcher = Dispatcher(replace(read, agents={}, model=UNSAID))
        providers: set[str | None] = set()
        for flow in self.flows:
            for step in flow.every_step():
                qualified = flow.qualified(step)
                names = {qualified, step.name}
                silent = (
                    step.config is None and agent_side(step).hints is None and not names & read.steps.keys()
                )
                if names & self.unread or silent:
                    continue
                try:
                    plan = dispatcher.plan_for(flow, step)
                    point_out(plan)
                    if plan.alone or ((plan.agent or plan.config.shadow) and not read.force_deterministic):
                        providers.add(plan.config.provider or self._usual(plan, read))
                except StepConfigError as error:
                    for layer, field, text in error.found:
                        place = place_of(self.settings, layer, field)
                        message = f"step '{qualified}', {layer}: {field} {text}"
                        self.problems.append(Problem("", message, place or NOWHERE))
        if connect and not self.problems:
            refused = [self.executors.refused(name) for name in providers if name is not None]
            self.problems += in_order(problem for problem in refused if problem is not None)


EVIDENCE_SETTINGS = (
    "risk", "min_power", "audit_per_day", "recheck", "harm", "patience", "min_days", "max_unusable",
    "plant", "plant_first", "plant_until",
)  # fmt: skip
"""Keys of the heading `autonomy` that are rules of evidence by the same name."""


def _by_level(said: Any, usual: ByLevel) -> ByLevel | None:
    """A share for each level: one for both, or the levels named."""
    if said is None:
        return None
    if isinstance(said, Mapping):
        return usual._replace(**{level: share for level, share in said.items() if share is not None})
    return ByLevel(said, said)


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
