"""Checks of a workflow that need more than its own file: the registry, other workflows, the settings, and
the references in its expressions.

All problems are reported at once. Problems with the shape of the file come from `reading`; `check_read`
combines both. Decisions where the format leaves room:

- `visibility` decides which steps a step can refer to. `until` sees the whole body of its loop. `default(…)`
  changes nothing: a reference to a result that can never exist is a mistake.
- `for_each` binds `item` and `index`, `until` binds `index`; parallel steps bind nothing. A name that a loop
  does not bind may come from an enclosing loop.
- Literal values are checked against types as `static_types` describes: only certain mistakes are reported.
- A child workflow's own mistakes are reported where its file is checked, not in every workflow that runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from detent.authoring.document import Written, below
from detent.authoring.names import Named, Shelf
from detent.authoring.problem import Place, Problem
from detent.flows.workflow.expressions import ExpressionError, Prepared, Reference, Template, condition
from detent.flows.workflow.inputs import misfit as input_misfit
from detent.flows.workflow.problem_list import Findings, cut
from detent.flows.workflow.reading import Read
from detent.flows.workflow.registry import STAGES, Action, Registry
from detent.flows.workflow.spec import (
    AgentStep,
    BranchStep,
    CheckpointStep,
    GenerateStep,
    LoopStep,
    PythonStep,
    StepSpec,
    SubworkflowStep,
    ValidateStep,
    WorkflowSpec,
)
from detent.flows.workflow.static_types import (
    ANYTHING,
    Signature,
    Unknown,
    always,
    keys_given,
    kind,
    known,
    misfit,
    wholly_known,
)
from detent.flows.workflow.step_modes import UNKNOWN_PROJECT, CheckSettings, Performers
from detent.flows.workflow.subworkflows import Family, Find
from detent.flows.workflow.visibility import Site, Visibility

_LOOKED_FOR = 20
"""Mistakes of one text that are reported at their exact place."""

T = TypeVar("T", bound=Named)


def check_read(
    read: Read, registry: Registry, find: Find, settings: CheckSettings = UNKNOWN_PROJECT
) -> list[Problem]:
    """Return every problem of a file that was read, in its order: of its shape and of all readable parts.

    `find` returns the workflow for a name or path as written in this file; None or `WorkflowNotFound` if
    there is none.
    """
    problems = list(read.problems)
    if read.partial is not None:
        whole = read.spec is not None
        problems += _Check(read.partial, registry, find, settings, read.doubtful, whole).problems()
    return sorted(
        dict.fromkeys(problems),
        key=lambda problem: (problem.place, problem.code, problem.path, problem.message),
    )


class _Check:
    """One check of a workflow; collects its problems."""

    def __init__(
        self,
        spec: WorkflowSpec,
        registry: Registry,
        find: Find,
        settings: CheckSettings,
        doubtful: frozenset[str],
        whole: bool,
    ) -> None:
        self.spec = spec
        self.registry = registry
        self.settings = settings
        self.doubtful = doubtful
        self.whole = whole
        self.findings = Findings()
        self.visibility = Visibility(spec.steps)
        self.steps = self.visibility.steps
        self.used: set[str] = set()
        """Inputs some expression reads."""
        self.unread = False
        """Some expression does not parse, so the inputs it reads are unknown."""
        self.signatures: dict[str, Signature] = {}
        self.family = Family(spec, find, self.findings, settings.workflows)
        self.performers = Performers(spec, registry, self.findings, settings)

    def problems(self) -> list[Problem]:
        """Run every check and return the problems."""
        self.inputs()
        self.body(self.spec.steps, "", Site("", 0, item=False, bound=False))
        self.outputs()
        self.unused()
        self.performers.project()
        return self.findings.problems

    # -- walking --------------------------------------------------------------------------------------------

    def body(self, steps: tuple[StepSpec, ...], container: str, around: Site) -> None:
        """Check the steps of one body."""
        up = around if container else None
        for index, step in enumerate(steps):
            self.step(step, Site(container, index, around.item, around.bound, up, step))

    def step(self, step: StepSpec, site: Site) -> None:
        """Check one step and the steps inside it."""
        self.condition(step, "when", step.when, site)
        self.prerequisites(step)
        self.performers.step(step)
        match step:
            case PythonStep():
                self.python(step, site)
            case AgentStep():
                self.agent(step, site)
            case GenerateStep():
                self.generate(step, site)
            case ValidateStep():
                self.validate(step, site)
            case SubworkflowStep():
                self.subworkflow(step, site)
            case BranchStep():
                self.branch(step, site)
            case LoopStep():
                self.loop(step, site)
            case CheckpointStep():
                self.values(step, "checkpoint_id", step.checkpoint_id, site)
        if isinstance(step, PythonStep | AgentStep | GenerateStep):
            self.undoes(step)

    def undoes(self, step: PythonStep | AgentStep | GenerateStep) -> None:
        """E013, and E018 for a rollback that could never be called."""
        if step.rollback is not None:
            self.registered(step, "rollback", "E013", self.registry.actions, step.rollback)
        action = self.registry.actions.find(step.action) if isinstance(step, PythonStep) else None
        rollback = self.registry.actions.find(
            step.rollback or (action.rollback if action is not None else "") or ""
        )
        available = self.handed_on(step, action)
        if rollback is None or available is None or step.path in self.doubtful:
            return
        missing = [f"'{name}'" for name in Signature.of(rollback).required if name not in available]
        if missing:
            needs = f"rollback '{rollback.name}' needs {', '.join(missing)}"
            message = f"{needs}, which this step neither gives nor is called with."
            self.findings.at(step, "rollback" if step.rollback is not None else "action", "E018", message)

    def handed_on(
        self, step: PythonStep | AgentStep | GenerateStep, action: Action | None
    ) -> Container[str] | None:
        """Names of the values a rollback can receive: keys of the step's output and its arguments; None if
        they are known only at run time."""
        if isinstance(step, PythonStep):
            gives = keys_given(step, action)
            if action is None or gives is None:
                return None
            takes = Signature.of(action)
            defaulted = [name for name in takes.named if name not in takes.required]
            positional = [parameter.name for parameter in takes.positional[: len(step.args)]]
            return {*gives, *defaulted, *positional, *step.kwargs}
        if not isinstance(step.context, Mapping) or isinstance(step, AgentStep):
            return None
        return step.context  # a generator gives a text

    # -- kinds of steps -------------------------------------------------------------------------------------

    def python(self, step: PythonStep, site: Site) -> None:
        """E001, E013, E018, E019."""
        for index, value in enumerate(step.args):
            self.values(step, f"args[{index}]", value, site)
        for name, value in step.kwargs.items():
            self.values(step, below("kwargs", name), value, site)
        if not step.action:
            return
        action = self.registered(step, "action", "E001", self.registry.actions, step.action)
        if action is None:
            return
        self.have_tools(step, "action", "E001", f"action '{action.name}'", (*action.effects, *action.queries))
        if step.rollback is None and action.rollback and action.rollback not in self.registry.actions:
            message = f"action '{action.name}' is undone by '{action.rollback}', which is not registered."
            meant = self.findings.nearest.of(action.rollback, self.registry.actions.names)
            self.findings.at(step, "action", "E013", message, meant)
        if step.path not in self.doubtful:
            self.arguments(step, action)

    def arguments(self, step: PythonStep, action: Action) -> None:
        """E018 and E019: the arguments fit the action's signature."""
        takes = self.signatures.get(action.name)
        if takes is None:
            takes = self.signatures[action.name] = Signature.of(action)
        positional, named = takes.positional, takes.named
        if len(step.args) > len(positional) and not takes.more_args:
            most = len(positional)
            message = f"action '{action.name}' takes {most} in args at most; here are {len(step.args)}."
            self.findings.at(step, f"args[{most}]", "E018", message)
        bound = {parameter.name for parameter in positional[: len(step.args)]}
        for parameter, value in zip(positional, step.args, strict=False):
            index = positional.index(parameter)
            self.literal(step, f"args[{index}]", parameter, takes.hints.get(parameter.name), value)
        for name, value in step.kwargs.items():
            part = below("kwargs", name)
            if name in bound and name in named:
                message = f"'{name}' is given twice: in args and in kwargs. Leave out one of them."
                self.findings.at(step, part, "E018", message)
            elif name in named:
                bound.add(name)
                self.literal(step, part, named[name], takes.hints.get(name), value)
            elif not takes.more_kwargs:
                unused = [option for option in named if option not in bound and option not in step.kwargs]
                known = ", ".join(named) or "nothing"
                message = f"action '{action.name}' has no parameter '{cut(name)}'. It takes: {known}."
                self.findings.at(step, part, "E018", message, self.findings.nearest.of(name, unused or named))
        missing = [name for name in takes.required if name not in bound]
        if missing:
            words = ", ".join(f"'{name}'" for name in missing)
            self.findings.at(step, "action", "E018", f"action '{action.name}' needs {words} in kwargs.")

    def literal(self, step: StepSpec, part: str, parameter: inspect.Parameter, hint: Any, value: Any) -> None:
        """E019: a literal value has the parameter's type."""
        if value is None and parameter.default is None:
            return
        expected = misfit(hint, known(value))
        if expected is not None:
            message = f"parameter '{parameter.name}' is {expected}, but here stands {kind(value)}."
            self.findings.at(step, part, "E019", message)

    def agent(self, step: AgentStep, site: Site) -> None:
        """E002, E003."""
        self.context(step, step.context, site)
        if step.agent and (agent := self.registered(step, "agent", "E002", self.registry.agents, step.agent)):
            self.have_tools(step, "agent", "E002", f"agent '{agent.name}'", agent.tools)

    def generate(self, step: GenerateStep, site: Site) -> None:
        """E004, E003."""
        self.context(step, step.context, site)
        generators = self.registry.generators
        if step.generator and (
            generator := self.registered(step, "generator", "E004", generators, step.generator)
        ):
            self.have_tools(step, "generator", "E004", f"generator '{generator.name}'", generator.tools)

    def context(self, step: StepSpec, context: Any, site: Site) -> None:
        if isinstance(context, str):
            self.registered(step, "context", "E003", self.registry.context_builders, context)
        elif context is not None:
            self.values(step, "context", context, site)

    def registered(self, step: StepSpec, part: str, code: str, shelf: Shelf[T], name: str) -> T | None:
        """The item of a name; a problem if there is none."""
        item = shelf.find(name)
        if item is None:
            self.findings.unregistered(step, part, code, shelf.kind, name, shelf.names)
        return item

    def have_tools(self, step: StepSpec, part: str, code: str, user: str, names: Iterable[str]) -> None:
        """Every tool that an action, agent or generator uses exists."""
        tools = self.settings.tools
        if tools is None:
            return
        for name in dict.fromkeys(names):
            if name not in tools:
                available = tools if isinstance(tools, Iterable) else ()
                message = f"{user} uses the tool '{name}', which is not there."
                meant = self.findings.nearest.of(name, map(str, available))
                self.findings.at(step, part, code, message, meant)

    def validate(self, step: ValidateStep, site: Site) -> None:
        """E015."""
        if isinstance(step.stages, str):
            read = self.condition(step, "stages", step.stages, site)
            self.constant(step, "stages", read, list, "a list")
        else:
            stages, registered = {*STAGES, *self.registry.stages.names}, self.registry.stages
            for index, stage in enumerate(step.stages):
                part = f"stages[{index}]"
                self.values(step, part, stage, site)
                name = known(stage)
                if isinstance(name, str) and name.strip() and name not in stages and name not in registered:
                    self.findings.unregistered(step, part, "E015", "validation stage", name, stages)
        if isinstance(step.retry, str):
            read = self.condition(step, "retry", step.retry, site)
            self.constant(step, "retry", read, int, "a whole number")
        if step.on_failure is not None:
            inner = Site(step.path, 0, site.item, site.bound, site, step.on_failure)
            self.step(step.on_failure, inner)

    def constant(
        self, step: StepSpec, part: str, read: Prepared | None, expected: type, expected_name: str
    ) -> None:
        """E019: the value of an expression without references has the right type."""
        value = always(read)
        if not isinstance(value, Unknown) and (not isinstance(value, expected) or isinstance(value, bool)):
            self.findings.at(
                step, part, "E019", f"'{part}' is {expected_name}, but this always gives {kind(value)}."
            )

    def branch(self, step: BranchStep, site: Site) -> None:
        """E026: an option behind one that always holds."""
        held = False
        for index, option in enumerate(step.options):
            number = _option_number(option.step.path, index)
            read = self.condition(step, f"options[{number}].when", option.when, site)
            if held:
                message = "this option is never reached: one before it always holds."
                self.findings.at(step, f"options[{number}]", "E026", message)
            value = always(read)
            held = held or (option.when is not None and not isinstance(value, Unknown) and bool(value))
            self.step(option.step, Site(step.path, index, site.item, site.bound, site, option.step))

    def loop(self, step: LoopStep, site: Site) -> None:
        """E011: a loop that can only fail."""
        item, bound = site.item, site.bound
        if step.has_for_each:
            item = bound = True
            if isinstance(step.for_each, str):
                read = self.condition(step, "for_each", step.for_each, site)
                self.constant(step, "for_each", read, list, "a list")
            else:
                self.values(step, "for_each", step.for_each, site)
        if step.until is not None:
            # `item` of this loop if both keys are given: reading the file has reported that conflict.
            bound = True
            behind = Site(step.path, len(step.steps), item, True, site, step)
            read = self.condition(step, "until", step.until, behind)
            value = always(read)
            if not isinstance(value, Unknown) and not value and step.on_exhausted == "fail":
                self.findings.at(
                    step, "until", "E011",
                    "this never holds, so the loop always fails after its last pass. Say when it ends, or "
                    "`on_exhausted: continue`.",
                )  # fmt: skip
        self.body(step.steps, step.path, Site(site.container, site.number, item, bound, site.up, step))

    # -- other workflows ------------------------------------------------------------------------------------

    def subworkflow(self, step: SubworkflowStep, site: Site) -> None:
        """E005, E008, E024."""
        for name, value in step.inputs.items():
            self.values(step, below("inputs", name), value, site)
        if not step.workflow:
            return
        child = self.family.child(self.spec, step.workflow)
        if isinstance(child, Problem):
            self.findings.at(step, "workflow", child.code, child.message, child.suggestions)
            return
        trouble = self.family.trouble(child)
        if trouble is not None:
            self.findings.at(step, "workflow", "E008", trouble)
        if step.path not in self.doubtful:
            self.child_inputs(step, child)
        if self.settings.forced:
            for spec in self.family.below(child):
                for inner in spec.every_step():
                    if self.performers.handlerless(inner):
                        message = (
                            f"agents are switched off, but step '{inner.name}' of workflow '{spec.name}' has "
                            f"no handler."
                        )
                        self.findings.at(step, "workflow", "E022", message)

    def child_inputs(self, step: SubworkflowStep, child: WorkflowSpec) -> None:
        """E024: the inputs fit the child's declaration."""
        for name, value in step.inputs.items():
            part = below("inputs", name)
            declared = child.inputs.get(name)
            if declared is None:
                declared_names = ", ".join(child.inputs) or "none"
                message = f"workflow '{child.name}' has no input '{cut(name)}'. Its inputs: {declared_names}."
                self.findings.at(step, part, "E024", message, self.findings.nearest.of(name, child.inputs))
            elif declared.secret:
                if known(value) is not ANYTHING:  # a secret of this workflow may be passed on
                    message = f"input '{name}' of '{child.name}' is a secret; it comes from the environment."
                    self.findings.at(step, part, "E024", message)
            else:
                literal = known(value)
                wrong = None
                if wholly_known(literal):
                    wrong = input_misfit(declared, literal)
                elif isinstance(literal, Unknown) and literal.text and declared.type != "string":
                    wrong = f"it is of type {declared.type}, but here stands a text"
                if wrong is not None:
                    message = f"input '{name}' of workflow '{child.name}': {wrong.rstrip('.')}."
                    self.findings.at(step, part, "E024", message)
        missing = [
            name
            for name, declared in child.inputs.items()
            if declared.required and not declared.secret and name not in step.inputs
        ]
        if missing:
            words = ", ".join(f"'{name}'" for name in missing)
            self.findings.at(
                step, "workflow", "E024", f"workflow '{child.name}' needs {words} under 'inputs'."
            )

    # -- inputs and outputs ---------------------------------------------------------------------------------

    def inputs(self) -> None:
        """E019: defaults and choices have the declared type."""
        for name, declared in self.spec.inputs.items():
            path = below("inputs", name)
            if declared.enum is not None:
                free = replace(declared, enum=None)
                for index, value in enumerate(declared.enum):
                    wrong = input_misfit(free, value)
                    if wrong is not None:
                        part = f"{path}.enum[{index}]"
                        message = f"a value of 'enum' does not fit its input: {wrong.rstrip('.')}."
                        self.findings.wrong("E019", self.part(part, declared.place), part, message)
            if declared.has_default and declared.default is not None and not declared.secret:
                wrong = input_misfit(declared, declared.default)
                if wrong is not None:
                    part = f"{path}.default"
                    message = f"the default does not fit its input: {wrong.rstrip('.')}."
                    self.findings.wrong("E019", self.part(part, declared.place), part, message)

    def part(self, path: str, otherwise: Place) -> Place:
        return self.spec.places.get(path, otherwise)

    def outputs(self) -> None:
        """The expressions of `outputs` see every step of the workflow."""
        site = Site("", len(self.spec.steps), item=False, bound=False)
        for name, value in (self.spec.outputs or {}).items():
            path = below("outputs", name)
            for where, text in _texts(value, path):
                place = self.part(where, self.spec.place)
                self.references(self.template(text, place, where), place, where, site)

    def unused(self) -> None:
        """W001."""
        if self.unread or not self.whole:
            return
        for name, declared in self.spec.inputs.items():
            if name not in self.used:
                message = f"input '{name}' is not used by any step or output."
                self.findings.wrong("W001", declared.place, below("inputs", name), message)

    # -- expressions ----------------------------------------------------------------------------------------

    def values(self, step: StepSpec, part: str, value: Any, site: Site) -> None:
        """Check the expressions in a value, at any depth."""
        for where, text in _texts(value, part):
            place = step.at(where)
            path = f"{step.path}.{where}"
            self.references(self.template(text, place, path), place, path, site)

    def template(self, text: str, place: Place, path: str) -> tuple[Reference, ...]:
        """References in a text with `${{ }}`; E006 if it does not parse."""
        try:
            return Template.parse(text).references
        except ExpressionError as error:
            self.unparsed(error, place, path)
            return ()

    def unparsed(self, error: ExpressionError, place: Place, path: str) -> None:
        self.unread = True
        self.findings.wrong(
            "E006", _inside(place, error.position), path, f"this is no expression: {error.message}"
        )

    def condition(self, step: StepSpec, part: str, value: Any, site: Site) -> Prepared | None:
        """Check a value that is an expression, with or without `${{ }}`."""
        if value is None:
            return None
        place, path = step.at(part), f"{step.path}.{part}"
        try:
            read = condition(value)
        except ExpressionError as error:
            self.unparsed(error, place, path)
            return None
        if isinstance(value, str):
            self.references(read.references, place, path, site)
        return read

    def references(self, references: tuple[Reference, ...], place: Place, path: str, site: Site) -> None:
        """E007, E016, E017."""
        seen: set[tuple[str, str | None]] = set()
        reported = 0

        def at(position: int) -> Place:
            """Place of a reference; exact only for the first mistakes of a text."""
            nonlocal reported
            reported += 1
            return _inside(place, position) if reported <= _LOOKED_FOR else place

        for reference in references:
            if reference.root == "inputs" and reference.name is not None:
                self.used.add(reference.name)
            if (reference.root, reference.name) in seen:
                continue
            seen.add((reference.root, reference.name))
            if reference.root in ("item", "index"):
                if not (site.item if reference.root == "item" else site.bound):
                    self.findings.wrong(
                        "E017", at(reference.position), path, self.not_bound(reference.root, site)
                    )
            elif reference.name is None:
                continue
            elif reference.root == "inputs":
                if reference.name not in self.spec.inputs:
                    declared_names = ", ".join(self.spec.inputs) or "none"
                    meant = self.findings.nearest.of(reference.name, self.spec.inputs)
                    names = "" if meant or len(self.spec.inputs) > 12 else f" Inputs: {declared_names}."
                    message = f"there is no input '{cut(reference.name)}'.{names}"
                    self.findings.wrong("E007", at(reference.position), path, message, meant)
            else:
                self.step_reference(reference.name, partial(at, reference.position), path, site)

    def not_bound(self, name: str, site: Site) -> str:
        if name == "item" and site.bound:
            return "'item' is the item of a 'for_each' loop; an 'until' loop has 'index' only."
        return f"'{name}' is only known inside a loop."

    def step_reference(self, name: str, at: Callable[[], Place], path: str, site: Site) -> None:
        step = self.steps.get(name)
        if step is None:
            meant = self.findings.nearest.of(name, self.steps)
            self.findings.wrong(
                "E007", at(), path, f"there is no step '{cut(name)}' in this workflow.", meant
            )
            return
        hidden = self.visibility.hidden(step, site)
        if hidden is not None:
            self.findings.wrong("E016", at(), path, hidden.why, hidden.instead)

    # -- prerequisites -------------------------------------------------------------------------------------

    def prerequisites(self, step: StepSpec) -> None:
        """E014."""
        for index, requirement in enumerate(step.requires):
            part = f"requires[{index}]"
            name, colon, argument = requirement.partition(":")
            prerequisite = self.registry.prerequisites.find(requirement)
            if prerequisite is not None and not prerequisite.takes_argument and not prerequisite.left_out:
                continue
            prerequisite = self.registered(step, part, "E014", self.registry.prerequisites, name)
            if prerequisite is None or prerequisite.left_out:
                continue
            if prerequisite.takes_argument and not argument.strip():
                self.findings.at(step, part, "E014", f"prerequisite '{name}' needs an argument: '{name}:…'.")
            elif colon and not prerequisite.takes_argument:
                message = f"prerequisite '{name}' takes nothing after a colon."
                self.findings.at(step, part, "E014", message, (name,))


# -- helpers ------------------------------------------------------------------------------------------------


def _option_number(path: str, index: int) -> int:
    """The number of an option in the file; unreadable options before it count too."""
    number = path[: -len(".step")].rpartition("[")[2].rstrip("]") if path.endswith(".step") else ""
    return int(number) if number.isdigit() else index


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in a value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, below(path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, below(path, index))


def _inside(place: Place, offset: int) -> Place:
    """Place of one character in the text at a place."""
    return place.inside(offset) if isinstance(place, Written) else place
