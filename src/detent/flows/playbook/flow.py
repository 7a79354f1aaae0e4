"""From a folder of step files to a flow: checked, durable, and not gone on with when its files changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detent.authoring.problem import DocumentError
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.proposal import Validator
from detent.engine.context import StepContext
from detent.engine.flow import Flow
from detent.engine.step import Handler, Step
from detent.engine.tools import Tool
from detent.flows.playbook.bank_writing import StepBank
from detent.flows.playbook.checks import problems_of, redirect_of
from detent.flows.playbook.composition import Composer
from detent.flows.playbook.declared_handler import DeclaredHandler, EffectWriter, Further
from detent.flows.playbook.folder import PlaybookFolder
from detent.flows.playbook.forms import free_text
from detent.flows.playbook.instruction import ENDS, FAILED, Edge, InstructionFile
from detent.flows.playbook.playbook import Playbook, read_playbook
from detent.flows.playbook.prompting import Show
from detent.flows.playbook.reading import BODY_ARGUMENT
from detent.flows.playbook.registry import Load, Names, imported
from detent.flows.playbook.steps import Contract, StepWork, engine_step, missing_step, prose_of
from detent.flows.playbook.table import machine_of
from detent.flows.playbook.text_contract import OwnFacts, Rendered, TextContract
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError
from detent.kernel.machine import difference
from detent.kernel.policy import USUAL, RetryPolicy

MAX_STEPS = "max_steps"
"""Reason of a run that made too many steps."""
EVERY = "*"
"""Stands for every step, where contracts are given."""


class PlaybookFlow(Flow):
    """A flow made of a playbook; `playbook` is what its files say."""

    performed_by = DispatchSettings()

    playbook: Playbook
    max_steps: int

    def difference(self, old: Mapping[str, Any]) -> list[str]:
        """What changed since a definition that a run was started under; step files by their names."""
        was, now = dict(old.get("extra") or {}), dict(self.definition.get("extra") or {})
        table = {key: value for key, value in old.items() if key != "extra"}
        mine = {key: value for key, value in self.definition.items() if key != "extra"}
        return [
            *difference(table, mine),
            *(
                f"{file} {'is gone' if file not in now else 'is new' if file not in was else 'has changed'}"
                for file in dict.fromkeys([*was, *now])
                if was.get(file) != now.get(file)
            ),
        ]

    def read_input(self, data: Any) -> dict[str, Any]:
        """The data a run starts with, checked against the manifest's schema if it has one."""
        plain = super().read_input(data)
        schema = self.playbook.manifest.input
        if schema is not None:
            from detent.engine.schemas import misfits

            if wrong := misfits(plain, schema):
                problems = "; ".join(line.removeprefix("/: ") for line in wrong)
                raise ConfigurationError(f"The input does not fit playbook '{self.name}': {problems}.")
        return plain


def playbook_flow(
    folder: str | Path | PlaybookFolder,
    *,
    tools: Iterable[Tool] = (),
    handlers: Mapping[str, Handler] | Callable[[str], Handler | None] | None = None,
    validators: Mapping[str, Validator] | Callable[[str], Validator | None] | None = None,
    contracts: Mapping[str, Contract] | None = None,
    arguments: Mapping[str, Callable[[StepContext], Mapping[str, Any]]] | None = None,
    protocol: Mapping[str, Any] | None = None,
    values: Further | None = None,
    show: Show | None = None,
    facts: OwnFacts | None = None,
    rendered: Rendered | None = None,
    overlays: Sequence[str | Path | PlaybookFolder] = (),
    agents: Iterable[str] = (),
    max_steps: int | None = None,
    retry: RetryPolicy = USUAL,
    timeout: float | None = None,
    name: str | None = None,
    language: str | None = None,
    strict: bool = False,
    check: bool = True,
    load: Load = imported,
) -> PlaybookFlow:
    """The flow a playbook's folder describes; `DocumentError` lists everything wrong with it.

    `handlers` (among them what finds candidates and what concludes) and `validators` are looked up by the
    names step files use. `contracts` by step id (or `*`) are further rules for agents' answers, kept at every
    level. `arguments` by function give what effects have when the file says nothing else. `values` by name
    are what texts may insert and steps need beside the data, each made from the data. `show` by need says how
    agents see its value. `facts` are what texts for people may state, in place of the `facts` of step files;
    `rendered` by argument (`send_email.body`) gives the text that is sent for it. `protocol` adds output
    lines to the manifest's. `agents` are steps that settings give to agents, so that they need no handler.
    `retry` and `timeout` hold where a file gives no hint. Without `check`, a step whose file is missing ends
    the run degraded instead. `load` gives the modules that the files name.
    """
    playbook, problems = read_playbook(folder, overlays=overlays, language=language, protocol=protocol)
    names = Names(playbook, tools, handlers, validators, load)
    problems += names.problems
    if check:
        problems += problems_of(
            playbook, names.tools, names.handlers, names.validators, agents=agents,
            usual={**playbook.manifest.arguments, **(arguments or {})}, values=values or (),
            reported=problems,
        )  # fmt: skip
        errors = [problem for problem in problems if strict or problem.severity == "error"]
        if errors:
            raise DocumentError(f"Playbook '{name or playbook.manifest.name}'", errors)
    maker = _Maker(
        playbook,
        names,
        contracts or {},
        arguments or {},
        values or {},
        retry,
        timeout,
        show or {},
        facts,
        rendered or {},
    )
    limit = max_steps if max_steps is not None else playbook.manifest.max_steps
    steps, edges = maker.steps(), maker.edges()
    machine = machine_of(name or playbook.manifest.name, playbook.manifest.version, playbook.start, edges)
    flow = PlaybookFlow(
        machine,
        {state: steps[state] for state in machine.states if state not in ENDS},
        name=name or playbook.manifest.name,
        tools=names.tools.values(),
        budget=Budget(steps=limit),
        exhausted={"steps": FAILED},
        exhausted_reasons={"steps": MAX_STEPS},
        extra=playbook.fingerprint_parts(),
    )
    flow.playbook = playbook
    flow.max_steps = limit
    return flow


class _Maker:
    """Makes the engine's steps."""

    def __init__(
        self,
        playbook: Playbook,
        names: Names,
        contracts: Mapping[str, Contract],
        arguments: Mapping[str, Any],
        values: Further,
        retry: RetryPolicy,
        timeout: float | None,
        show: Show,
        facts: OwnFacts | None = None,
        rendered: Rendered | None = None,
    ) -> None:
        self.playbook = playbook
        self.names = names
        self.show = show
        self.facts = facts
        self.rendered = rendered
        self.written = {key.partition(".")[0] for step in playbook.steps.values() for key in _set_by(step)}
        self.contracts = contracts
        self.retry = retry
        self.timeout = timeout
        self.writer = EffectWriter(playbook.templates, {**playbook.manifest.arguments, **arguments}, values)
        unknown = [step for step in contracts if step != EVERY and step not in playbook.steps]
        if unknown:
            raise ConfigurationError(f"There is no step '{unknown[0]}' to keep a contract.")

    def edges(self) -> dict[str, Sequence[Edge]]:
        """Every step's edges; a step whose file is missing has none."""
        edges: dict[str, Sequence[Edge]] = dict(self.playbook.edges)
        for name in self._missing():
            edges[name] = ()
        return edges

    def steps(self) -> dict[str, Step]:
        """Every step."""
        steps = {step: self._step(step) for step in self.playbook.steps}
        folder = self.playbook.loader.folder
        for name in self._missing():
            steps[name] = missing_step(
                name, folder.shown(folder.steps / f"{name}.md"), redirect_of(self.playbook.manifest),
                self.writer, self.names.tools,
            )  # fmt: skip
        return steps

    def _missing(self) -> list[str]:
        named = [edge.to for row in self.playbook.edges.values() for edge in row]
        known = {*self.playbook.steps, *ENDS}
        return [name for name in dict.fromkeys([self.playbook.start, *named]) if name and name not in known]

    def _function(self, step: str, name: str) -> Callable[..., Any]:
        function = self.names.handlers.find(name)
        if isinstance(function, str):
            raise ConfigurationError(f"Step '{step}': {function}")
        return function

    def _step(self, name: str) -> Step:
        playbook, step = self.playbook, self.playbook.steps[name]
        edges = playbook.edges[name]
        inner: Handler | None = None
        if step.handler is not None:
            inner = self._function(name, step.handler)
        elif step.declarative:
            inner = DeclaredHandler(step, edges, self.writer)
        validator: Validator | None = None
        if step.validator is not None:
            function = self.names.validators.find(step.validator)
            if isinstance(function, str):
                raise ConfigurationError(f"Step '{name}': {function}")
            validator = function
        composer: Composer | None = None
        if name in playbook.banks and free_text(step.form) is not None:
            composer = Composer(
                playbook.banks[name], step.facts, self.writer.values, playbook.templates.language
            )
        work = StepWork(
            step,
            edges,
            inner=inner,
            aliases=playbook.aliases,
            lines=playbook.output_lines(step),
            tools=self.names.tools,
            writer=self.writer,
            redirect=redirect_of(playbook.manifest),
            contracts=[self.contracts[key] for key in (EVERY, name) if key in self.contracts],
            concluding=self._function(name, step.conclude) if step.conclude is not None else None,
            filling=self._function(name, step.filled_by) if step.filled_by is not None else None,
            finders={
                field.name: self._function(name, field.candidates.function)
                for field in step.form
                if field.candidates is not None and field.candidates.function is not None
            },
            show=self.show,
            texts=self._texts(step),
            composer=composer,
            bank=None if composer is None else self._bank(step, composer),
        )
        return engine_step(
            work, validator=validator, retry=self.retry, timeout=self.timeout, shown=playbook.shown(step)
        )

    def _bank(self, step: InstructionFile, composer: Composer) -> StepBank:
        """The bank of a step, for sentences of approved drafts."""
        edges = [edge for row in self.playbook.edges.values() for edge in row if edge.to == step.id]
        conditions = [edge.when for edge in edges if edge.when]
        conditions += [variant.when for variant in step.variant]
        return StepBank(step, composer, conditions, tuple(self.playbook.steps))

    def _texts(self, step: InstructionFile) -> TextContract | None:
        """The hard contract of a step's text for people, if it writes any."""
        functions = [function.name for function in step.available_functions]
        # An agent may also call a function with a text that nobody declared to be one.
        further = [f"{name}.{BODY_ARGUMENT}" for name in functions if step.prose is None]
        prose = dict.fromkeys([*prose_of(step, self.names.tools), *further])
        if not prose:
            return None
        return TextContract(
            step, tuple(prose), self.writer.values, self.playbook.templates.language, written=self.written,
            inner=self.playbook.steps, own=self.facts, rendered=self.rendered,
        )  # fmt: skip


def _set_by(step: InstructionFile) -> list[str]:
    """The keys of the data that a step sets."""
    stated = [field.name for field in step.form if field.fills is None and step.conclude is None]
    return [*step.outputs, *stated, *(call.into for call in step.call)]
