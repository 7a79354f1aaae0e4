"""Everything wrong with a workflow that needs more than its own file: the registry, other workflows,
settings, and what its expressions refer to.

All of it at once; what is wrong with the file's shape comes from `reading`, and `check_read` puts the two
together. Where the rules leave room:

- A step sees the steps that have finished before it in the same body, and what the body's owner sees. So it
  sees no later step, no neighbour of a loop whose steps run side by side, no step of another option, and
  nothing inside a loop, branch or `on_failure` it does not stand in; outside, those go by their owner's name.
  `until` sees the whole body of its loop. `default(…)` changes nothing: what can never be there is a mistake.
- `for_each` binds `item` and `index`, `until` binds `index`; steps side by side bind nothing. What a loop
  does not bind, the loop around it may.
- Only what is certainly wrong is told: the value of a lone expression is not known, and annotations beyond
  plain types, literals and unions are not judged.
- A child's own mistakes are told where its file is checked, not in every workflow that runs it.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from detent.engine.schemas import hints_of
from detent.flows.workflow.expressions import (
    EvaluationError,
    Expression,
    ExpressionError,
    Prepared,
    Reference,
    Scope,
    Template,
    condition,
)
from detent.flows.workflow.inputs import misfit
from detent.flows.workflow.problems import Place, Problem
from detent.flows.workflow.reading import MEANT, Nearest, Read
from detent.flows.workflow.registry import Action, Registry
from detent.flows.workflow.shelf import WorkflowNotFound, is_path
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
from detent.flows.workflow.yaml_text import Written, below
from detent.kernel.autonomy import AutonomyLevel, StepMode
from detent.kernel.errors import ConfigurationError
from detent.kernel.step_config import UNSAID, StepConfig, StepConfigError, resolve

Find = Callable[[str], WorkflowSpec | None]

FLOW = "workflow"
"""What the qualified names of steps begin with: `workflow/<workflow>/<step>`."""
DISPATCH_AGENT = "dispatch"
"""The agent that performs python steps in agent mode; always there."""
STAGES = ("format", "lint", "typecheck", "test")
"""Stages every project has, whether or not it gives them a command."""
DEEPEST_CHILD = 8
"""Subworkflows below a workflow, inside each other."""


def check_workflow(
    spec: WorkflowSpec,
    registry: Registry,
    *,
    find: Find,
    tools: Container[str] | None = None,
    steps: Mapping[str, Any] | None = None,
    agents: Mapping[str, Any] | None = None,
    executor: bool | None = None,
    forced: bool = False,
    workflows: Iterable[str] = (),
) -> list[Problem]:
    """Everything wrong with a workflow, in order of place.

    `find` gives the workflow of a name or path, as written in this file; None or `WorkflowNotFound` if there
    is none. `tools` are those that can be called, where that is known; `steps` and `agents` the settings of
    the project; `executor` whether one is configured. With `forced`, agents are switched off. `workflows` are
    names to suggest where `find` suggests none.
    """
    settings = _Settings(tools, steps or {}, agents or {}, executor, forced, tuple(workflows))
    return _Check(spec, registry, find, settings, frozenset(), whole=True).problems()


def check_read(
    read: Read,
    registry: Registry,
    *,
    find: Find,
    tools: Container[str] | None = None,
    steps: Mapping[str, Any] | None = None,
    agents: Mapping[str, Any] | None = None,
    executor: bool | None = None,
    forced: bool = False,
    workflows: Iterable[str] = (),
) -> list[Problem]:
    """Everything wrong with a file that was read: its shape, and all that can be checked in spite of it."""
    found = list(read.problems)
    if read.partial is not None:
        settings = _Settings(tools, steps or {}, agents or {}, executor, forced, tuple(workflows))
        whole = read.spec is not None
        found += _Check(read.partial, registry, find, settings, read.doubtful, whole=whole).problems()
    return _ordered(found)


def _ordered(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda one: (one.place, one.code, one.path, one.message))


class _Settings(NamedTuple):
    tools: Container[str] | None
    steps: Mapping[str, Any]
    agents: Mapping[str, Any]
    executor: bool | None
    forced: bool
    workflows: tuple[str, ...]


class _Home(NamedTuple):
    """Where a step stands."""

    container: str
    """Path of the step whose body it is in; '' for the workflow."""
    kind: Literal["body", "apart", "option", "on_failure"]
    number: int
    """Steps of the same body before it."""
    owner: StepSpec | None


@dataclass(frozen=True, slots=True)
class _Site:
    """Where an expression stands: which part of which body, and what that body is in."""

    container: str
    number: int
    """So many steps of the container are finished."""
    item: bool
    bound: bool
    """`index` is bound."""
    up: _Site | None = None
    itself: StepSpec | None = None
    """The step the expression belongs to."""

    def around(self) -> Iterator[_Site]:
        """This one and those around it."""
        here: _Site | None = self
        while here is not None:
            yield here
            here = here.up


class _Unknown:
    """A value that only a run can tell; as a text where some of it is written out."""

    def __init__(self, text: bool) -> None:
        self.text = text


_ANY = _Unknown(text=False)
_SOME_TEXT = _Unknown(text=True)


@dataclass(slots=True)
class _Signature:
    """What an action takes."""

    positional: list[inspect.Parameter] = field(default_factory=list)
    named: dict[str, inspect.Parameter] = field(default_factory=dict)
    """Everything that can be said by name."""
    required: list[str] = field(default_factory=list)
    more_args: bool = False
    more_kwargs: bool = False
    hints: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, action: Action) -> _Signature:
        found = cls(hints=hints_of(action.handler))
        for name, parameter in action.parameters.items():
            kind = parameter.kind
            if kind is parameter.VAR_POSITIONAL:
                found.more_args = True
                continue
            if kind is parameter.VAR_KEYWORD:
                found.more_kwargs = True
                continue
            if kind is not parameter.KEYWORD_ONLY:
                found.positional.append(parameter)
            if kind is not parameter.POSITIONAL_ONLY:
                found.named[name] = parameter
            if parameter.default is parameter.empty:
                found.required.append(name)
        return found


class _Check:
    """One look at a workflow."""

    def __init__(
        self,
        spec: WorkflowSpec,
        registry: Registry,
        find: Find,
        settings: _Settings,
        doubtful: frozenset[str],
        whole: bool,
    ) -> None:
        self.spec = spec
        self.registry = registry
        self.find = find
        self.settings = settings
        self.doubtful = doubtful
        self.whole = whole
        self.found: list[Problem] = []
        self.nearest = Nearest()
        self.steps: dict[str, StepSpec] = {}
        self.homes: dict[str, _Home] = {}
        self.used: set[str] = set()
        """Inputs some expression reads."""
        self.unread = False
        """Some expression does not parse, so that nobody knows what it would have read."""
        self.signatures: dict[str, _Signature] = {}
        self.children: dict[tuple[str, str], WorkflowSpec | Problem] = {}
        self.layers = self._layers()

    def problems(self) -> list[Problem]:
        """All of them."""
        self.place_steps(self.spec.steps, "", "body", None)
        self.inputs()
        self.body(self.spec.steps, "", _Site("", 0, item=False, bound=False))
        self.outputs()
        self.unused()
        self.project()
        return _ordered(self.found)

    # -- telling --------------------------------------------------------------------------------------------

    def wrong(
        self, code: str, place: Place, path: str, message: str, suggestions: tuple[str, ...] = ()
    ) -> None:
        self.found.append(Problem(code, message, Place(*place), path, suggestions))

    def at(
        self, step: StepSpec, part: str, code: str, message: str, suggestions: tuple[str, ...] = ()
    ) -> None:
        """A problem with a part of a step."""
        path = f"{step.path}{part}" if part.startswith("[") or not part else f"{step.path}.{part}"
        place = step.place
        while part:
            if part in step.places:
                place = step.places[part]
                break
            part = part[: max(part.rfind("."), part.rfind("["), 0)]
        self.wrong(code, place, path, message, suggestions)

    def unregistered(
        self, step: StepSpec, part: str, code: str, kind: str, name: str, names: Iterable[str]
    ) -> None:
        names = tuple(names)
        meant = self.nearest.of(name, names)
        there = "" if meant or len(names) > 12 else f" There are: {', '.join(sorted(names)) or 'none'}."
        self.at(step, part, code, f"there is no {kind} '{_cut(name)}'.{there}", meant)

    # -- where steps stand ----------------------------------------------------------------------------------

    def place_steps(
        self,
        steps: tuple[StepSpec, ...],
        container: str,
        kind: Literal["body", "apart", "option", "on_failure"],
        owner: StepSpec | None,
    ) -> None:
        """Note where every step stands, so that references can be judged."""
        for index, step in enumerate(steps):
            self.homes[step.path] = _Home(container, kind, index, owner)
            if step.name:
                self.steps.setdefault(step.name, step)
            if step.inner:
                inner: Literal["body", "apart", "option", "on_failure"] = "body"
                if isinstance(step, BranchStep):
                    inner = "option"
                elif isinstance(step, ValidateStep):
                    inner = "on_failure"
                elif isinstance(step, LoopStep) and _side_by_side(step):
                    inner = "apart"
                self.place_steps(step.inner, step.path, inner, step)

    # -- walking --------------------------------------------------------------------------------------------

    def body(self, steps: tuple[StepSpec, ...], container: str, around: _Site) -> None:
        """Check the steps of one body."""
        up = around if container else None
        for index, step in enumerate(steps):
            self.step(step, _Site(container, index, around.item, around.bound, up, step))

    def step(self, step: StepSpec, site: _Site) -> None:
        """Check one step, and what stands inside it."""
        self.condition(step, "when", step.when, site)
        self.prerequisites(step)
        self.config(step)
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
        if isinstance(step, PythonStep | AgentStep | GenerateStep) and step.rollback is not None:
            self.undoes(step, step.rollback)

    def undoes(self, step: StepSpec, rollback: str) -> None:
        """E013."""
        if rollback not in self.registry.actions:
            self.unregistered(step, "rollback", "E013", "action", rollback, self.registry.actions.names)

    # -- kinds of steps -------------------------------------------------------------------------------------

    def python(self, step: PythonStep, site: _Site) -> None:
        """E001, E013, E018, E019."""
        for index, value in enumerate(step.args):
            self.values(step, f"args[{index}]", value, site)
        for name, value in step.kwargs.items():
            self.values(step, below("kwargs", name), value, site)
        if not step.action:
            return
        action = self.registry.actions.find(step.action)
        if action is None:
            self.unregistered(step, "action", "E001", "action", step.action, self.registry.actions.names)
            return
        self.have_tools(step, "action", "E001", f"action '{action.name}'", (*action.effects, *action.queries))
        if step.rollback is None and action.rollback and action.rollback not in self.registry.actions:
            message = f"action '{action.name}' is undone by '{action.rollback}', which is not registered."
            meant = self.nearest.of(action.rollback, self.registry.actions.names)
            self.at(step, "action", "E013", message, meant)
        if step.path not in self.doubtful:
            self.arguments(step, action)

    def arguments(self, step: PythonStep, action: Action) -> None:
        """E018 and E019: what is given fits the action's signature."""
        takes = self.signatures.get(action.name)
        if takes is None:
            takes = self.signatures[action.name] = _Signature.of(action)
        positional, named = takes.positional, takes.named
        if len(step.args) > len(positional) and not takes.more_args:
            most = len(positional)
            message = f"action '{action.name}' takes {most} in args at most; here are {len(step.args)}."
            self.at(step, f"args[{most}]", "E018", message)
        given = {parameter.name for parameter in positional[: len(step.args)]}
        for parameter, value in zip(positional, step.args, strict=False):
            index = positional.index(parameter)
            self.literal(step, f"args[{index}]", parameter, takes.hints.get(parameter.name), value)
        for name, value in step.kwargs.items():
            part = below("kwargs", name)
            if name in given and name in named:
                message = f"'{name}' is given twice: in args and in kwargs. Leave out one of them."
                self.at(step, part, "E018", message)
            elif name in named:
                given.add(name)
                self.literal(step, part, named[name], takes.hints.get(name), value)
            elif not takes.more_kwargs:
                left = [one for one in named if one not in given and one not in step.kwargs]
                known = ", ".join(named) or "nothing"
                message = f"action '{action.name}' has no parameter '{_cut(name)}'. It takes: {known}."
                self.at(step, part, "E018", message, self.nearest.of(name, left or named))
        missing = [name for name in takes.required if name not in given]
        if missing:
            words = ", ".join(f"'{name}'" for name in missing)
            self.at(step, "action", "E018", f"action '{action.name}' needs {words} in kwargs.")

    def literal(self, step: StepSpec, part: str, parameter: inspect.Parameter, hint: Any, value: Any) -> None:
        """E019: a value that is written out is of the parameter's type."""
        if value is None and parameter.default is None:
            return
        wanted = _misfit(hint, _known(value))
        if wanted is not None:
            message = f"parameter '{parameter.name}' is {wanted}, but here stands {_kind(value)}."
            self.at(step, part, "E019", message)

    def agent(self, step: AgentStep, site: _Site) -> None:
        """E002, E003."""
        self.context(step, step.context, site)
        if not step.agent:
            return
        agent = self.registry.agents.find(step.agent)
        if agent is None:
            self.unregistered(step, "agent", "E002", "agent", step.agent, self.registry.agents.names)
        else:
            self.have_tools(step, "agent", "E002", f"agent '{agent.name}'", agent.tools)

    def generate(self, step: GenerateStep, site: _Site) -> None:
        """E004, E003."""
        self.context(step, step.context, site)
        if not step.generator:
            return
        generator = self.registry.generators.find(step.generator)
        if generator is None:
            names = self.registry.generators.names
            self.unregistered(step, "generator", "E004", "generator", step.generator, names)
        else:
            self.have_tools(step, "generator", "E004", f"generator '{generator.name}'", generator.tools)

    def context(self, step: StepSpec, context: Any, site: _Site) -> None:
        if isinstance(context, str):
            if context not in self.registry.context_builders:
                names = self.registry.context_builders.names
                self.unregistered(step, "context", "E003", "context builder", context, names)
        elif context is not None:
            self.values(step, "context", context, site)

    def have_tools(self, step: StepSpec, part: str, code: str, who: str, names: Iterable[str]) -> None:
        """What an action, agent or generator uses is there."""
        tools = self.settings.tools
        if tools is None:
            return
        for name in dict.fromkeys(names):
            if name not in tools:
                there = tools if isinstance(tools, Iterable) else ()
                message = f"{who} uses the tool '{name}', which is not there."
                self.at(step, part, code, message, self.nearest.of(name, (str(one) for one in there)))

    def validate(self, step: ValidateStep, site: _Site) -> None:
        """E015."""
        if isinstance(step.stages, str):
            read = self.condition(step, "stages", step.stages, site)
            self.constant(step, "stages", read, list, "a list")
        else:
            known = {*STAGES, *self.registry.stages.names}
            for index, stage in enumerate(step.stages):
                part = f"stages[{index}]"
                self.values(step, part, stage, site)
                name = _known(stage)
                if isinstance(name, str) and name.strip() and name not in known:
                    self.unregistered(step, part, "E015", "validation stage", name, known)
        if isinstance(step.retry, str):
            read = self.condition(step, "retry", step.retry, site)
            self.constant(step, "retry", read, int, "a whole number")
        if step.on_failure is not None:
            inner = _Site(step.path, 0, site.item, site.bound, site, step.on_failure)
            self.step(step.on_failure, inner)

    def constant(self, step: StepSpec, part: str, read: Prepared | None, kind: type, what: str) -> None:
        """E019: what an expression without references gives is of the right type."""
        value = _value_of(read)
        if not isinstance(value, _Unknown) and (not isinstance(value, kind) or isinstance(value, bool)):
            self.at(step, part, "E019", f"'{part}' is {what}, but this always gives {_kind(value)}.")

    def branch(self, step: BranchStep, site: _Site) -> None:
        """E026: an option behind one that always holds."""
        always = False
        for index, option in enumerate(step.options):
            number = _option_number(option.step.path, index)
            read = self.condition(step, f"options[{number}].when", option.when, site)
            if always:
                message = "this option is never reached: one before it always holds."
                self.at(step, f"options[{number}]", "E026", message)
            value = _value_of(read)
            always = always or (option.when is not None and not isinstance(value, _Unknown) and bool(value))
            self.step(option.step, _Site(step.path, index, site.item, site.bound, site, option.step))

    def loop(self, step: LoopStep, site: _Site) -> None:
        """E011: a loop that cannot end well."""
        item, bound = site.item, site.bound
        if step.has_for_each:
            item = bound = True
            if isinstance(step.for_each, str):
                read = self.condition(step, "for_each", step.for_each, site)
                self.constant(step, "for_each", read, list, "a list")
            else:
                self.values(step, "for_each", step.for_each, site)
        if step.until is not None:
            # `item` of this loop, where both are said: that conflict was told when the file was read.
            bound = True
            behind = _Site(step.path, len(step.steps), item, True, site, step)
            read = self.condition(step, "until", step.until, behind)
            value = _value_of(read)
            if not isinstance(value, _Unknown) and not value and step.on_exhausted == "fail":
                self.at(
                    step, "until", "E011",
                    "this never holds, so the loop always fails after its last pass. Say when it ends, or "
                    "`on_exhausted: continue`.",
                )  # fmt: skip
        self.body(step.steps, step.path, _Site(site.container, site.number, item, bound, site.up, step))

    # -- other workflows ------------------------------------------------------------------------------------

    def subworkflow(self, step: SubworkflowStep, site: _Site) -> None:
        """E005, E008, E024."""
        for name, value in step.inputs.items():
            self.values(step, below("inputs", name), value, site)
        if not step.workflow:
            return
        child = self.child(self.spec, step.workflow)
        if isinstance(child, Problem):
            self.at(step, "workflow", child.code, child.message, child.suggestions)
            return
        trouble = self.descend(child, (self.spec,), {})
        if trouble is not None:
            self.at(step, "workflow", "E008", trouble)
        if step.path not in self.doubtful:
            self.child_inputs(step, child)
        if self.settings.forced:
            for inner in self.below(child):
                for one in inner.every_step():
                    if self.handlerless(one):
                        message = (
                            f"agents are switched off, but step '{one.name}' of workflow '{inner.name}' has "
                            f"no handler."
                        )
                        self.at(step, "workflow", "E022", message)

    def child(self, of: WorkflowSpec, name: str) -> WorkflowSpec | Problem:
        """The workflow that `of` means by a name or path, or why there is none."""
        asked = name
        if of is not self.spec and is_path(name):
            asked = str(Path(of.place.file).absolute().parent / name)
        key = (of.place.file if is_path(name) else "", name)
        if key in self.children:
            return self.children[key]
        found: WorkflowSpec | Problem
        suggestions: tuple[str, ...] = ()
        try:
            there = self.find(asked)
            message = f"there is no workflow '{_cut(name)}'."
        except WorkflowNotFound as error:
            there, message, suggestions = None, f"there is no workflow '{_cut(name)}'.", error.suggestions
        except ConfigurationError as error:
            first = str(error).split("\n")[0].rstrip(":.")
            there, message = None, f"workflow '{_cut(name)}' cannot be used: {first}."
        if there is not None:
            found = there
        else:
            suggestions = suggestions or self.nearest.of(name, self.settings.workflows)
            found = Problem("E005", message, self.spec.place, "", suggestions)
        self.children[key] = found
        return found

    def runs(self, spec: WorkflowSpec) -> Iterator[WorkflowSpec]:
        """The workflows a workflow runs, as far as they are there."""
        names = dict.fromkeys(
            step.workflow for step in spec.every_step() if isinstance(step, SubworkflowStep) and step.workflow
        )
        for name in names:
            child = self.child(spec, name)
            if not isinstance(child, Problem):
                yield child

    def descend(
        self,
        spec: WorkflowSpec,
        above: tuple[WorkflowSpec, ...],
        clean: dict[tuple[tuple[str, str], int], None],
    ) -> str | None:
        """What is wrong with a chain of subworkflows: a circle, or too many inside each other.

        What was found clean at a depth is so under every chain of that length: a way back into the chain
        would be a circle of its own.
        """
        keys = [_key(one) for one in above]
        if _key(spec) in keys:
            circle = [one.name for one in above[keys.index(_key(spec)) :]]
            return f"subworkflows run in a circle: {' → '.join([*circle, spec.name])}."
        if len(above) > DEEPEST_CHILD:
            chain = " → ".join(one.name for one in (*above, spec))
            return f"subworkflows stand inside each other {DEEPEST_CHILD} deep at most: {chain}."
        if (_key(spec), len(above)) in clean:
            return None
        for child in self.runs(spec):
            trouble = self.descend(child, (*above, spec), clean)
            if trouble is not None:
                return trouble
        clean[_key(spec), len(above)] = None
        return None

    def below(self, spec: WorkflowSpec) -> Iterator[WorkflowSpec]:
        """A workflow and all it runs, each once."""
        seen = {_key(self.spec)}
        waiting = [spec]
        while waiting:
            one = waiting.pop()
            if _key(one) not in seen:
                seen.add(_key(one))
                yield one
                waiting.extend(self.runs(one))

    def child_inputs(self, step: SubworkflowStep, child: WorkflowSpec) -> None:
        """E024: what is given fits the child's declaration."""
        for name, value in step.inputs.items():
            part = below("inputs", name)
            declared = child.inputs.get(name)
            if declared is None:
                there = ", ".join(child.inputs) or "none"
                message = f"workflow '{child.name}' has no input '{_cut(name)}'. Its inputs: {there}."
                self.at(step, part, "E024", message, self.nearest.of(name, child.inputs))
            elif declared.secret:
                if _known(value) is not _ANY:  # a secret of this workflow may be handed on
                    message = f"input '{name}' of '{child.name}' is a secret; it comes from the environment."
                    self.at(step, part, "E024", message)
            else:
                known = _known(value)
                if isinstance(known, _Unknown):
                    fits = not known.text or declared.type == "string"
                    wrong = None if fits else f"it is of type {declared.type}, but here stands a text"
                elif _has_unknown(known):
                    wrong = None
                else:
                    wrong = misfit(declared, known)
                if wrong is not None:
                    message = f"input '{name}' of workflow '{child.name}': {wrong.rstrip('.')}."
                    self.at(step, part, "E024", message)
        missing = [
            name
            for name, declared in child.inputs.items()
            if declared.required and not declared.secret and name not in step.inputs
        ]
        if missing:
            words = ", ".join(f"'{name}'" for name in missing)
            self.at(step, "workflow", "E024", f"workflow '{child.name}' needs {words} under 'inputs'.")

    # -- inputs and outputs ---------------------------------------------------------------------------------

    def inputs(self) -> None:
        """E019: defaults and choices are of the type that is declared."""
        for name, declared in self.spec.inputs.items():
            path = below("inputs", name)
            if declared.enum is not None:
                free = replace(declared, enum=None)
                for index, value in enumerate(declared.enum):
                    wrong = misfit(free, value)
                    if wrong is not None:
                        part = f"{path}.enum[{index}]"
                        message = f"a value of 'enum' does not fit its input: {wrong.rstrip('.')}."
                        self.wrong("E019", self.part(part, declared.place), part, message)
            if declared.has_default and declared.default is not None and not declared.secret:
                wrong = misfit(declared, declared.default)
                if wrong is not None:
                    part = f"{path}.default"
                    message = f"the default does not fit its input: {wrong.rstrip('.')}."
                    self.wrong("E019", self.part(part, declared.place), part, message)

    def part(self, path: str, otherwise: Place) -> Place:
        return self.spec.places.get(path, otherwise)

    def outputs(self) -> None:
        """The expressions of `outputs` see every step of the workflow."""
        site = _Site("", len(self.spec.steps), item=False, bound=False)
        for name, value in (self.spec.outputs or {}).items():
            path = below("outputs", name)
            for where, text in _texts(value, path):
                place = self.part(where, self.spec.place)
                self.references(self.template(text, place, where), text, place, where, site)

    def unused(self) -> None:
        """W001."""
        if self.unread or not self.whole:
            return
        for name, declared in self.spec.inputs.items():
            if name not in self.used:
                message = f"input '{name}' is not used by any step or output."
                self.wrong("W001", declared.place, below("inputs", name), message)

    # -- expressions ----------------------------------------------------------------------------------------

    def values(self, step: StepSpec, part: str, value: Any, site: _Site) -> None:
        """Check the expressions in a value, however deep."""
        for where, text in _texts(value, part):
            place = _place(step, where)
            path = f"{step.path}.{where}"
            self.references(self.template(text, place, path), text, place, path, site)

    def template(self, text: str, place: Place, path: str) -> tuple[Reference, ...]:
        """What a text with `${{ }}` refers to; E006 when it does not parse."""
        try:
            return Template.parse(text).references
        except ExpressionError as error:
            self.unparsed(error, place, path)
            return ()

    def unparsed(self, error: ExpressionError, place: Place, path: str) -> None:
        self.unread = True
        self.wrong("E006", _inside(place, error.position), path, f"this is no expression: {error.message}")

    def condition(self, step: StepSpec, part: str, value: Any, site: _Site) -> Prepared | None:
        """Check a value that is an expression, with or without `${{ }}`."""
        if value is None:
            return None
        place, path = _place(step, part), f"{step.path}.{part}"
        try:
            read = condition(value)
        except ExpressionError as error:
            self.unparsed(error, place, path)
            return None
        if isinstance(value, str):
            self.references(read.references, value, place, path, site)
        return read

    def references(
        self, references: tuple[Reference, ...], text: str, place: Place, path: str, site: _Site
    ) -> None:
        """E007, E016, E017."""
        told: set[tuple[str, str | None]] = set()
        for one in references:
            if one.root == "inputs" and one.name is not None:
                self.used.add(one.name)
            if (one.root, one.name) in told:
                continue
            told.add((one.root, one.name))
            at = _inside(place, one.position)
            if one.root in ("item", "index"):
                if not (site.item if one.root == "item" else site.bound):
                    self.wrong("E017", at, path, self.not_bound(one.root, site))
            elif one.name is None:
                continue
            elif one.root == "inputs":
                if one.name not in self.spec.inputs:
                    there = ", ".join(self.spec.inputs) or "none"
                    meant = self.nearest.of(one.name, self.spec.inputs)
                    names = "" if meant else f" Inputs: {there}."
                    self.wrong("E007", at, path, f"there is no input '{_cut(one.name)}'.{names}", meant)
            else:
                self.step_reference(one.name, at, path, site)

    def not_bound(self, name: str, site: _Site) -> str:
        if name == "item" and site.bound:
            return "'item' is the item of a 'for_each' loop; an 'until' loop has 'index' only."
        return f"'{name}' is only known inside a loop."

    def step_reference(self, name: str, at: Place, path: str, site: _Site) -> None:
        step = self.steps.get(name)
        if step is None:
            meant = self.nearest.of(name, self.steps)
            self.wrong("E007", at, path, f"there is no step '{_cut(name)}' in this workflow.", meant)
            return
        hidden = self.hidden(step, site)
        if hidden is not None:
            message, meant = hidden
            self.wrong("E016", at, path, message, meant)

    def hidden(self, step: StepSpec, site: _Site) -> tuple[str, tuple[str, ...]] | None:
        """Why a step cannot be seen from a place, and which one may be meant; None when it can."""
        home = self.homes[step.path]
        name = step.name
        if site.itself is not None and site.itself.path == step.path:
            return f"step '{name}' refers to itself, which has given nothing yet.", ()
        for here in site.around():
            if here.itself is not None and here.itself.path == step.path:
                return f"step '{name}' is what this stands in; it has given nothing yet.", ()
            if here.container != home.container:
                continue
            if home.kind == "body" and home.number < here.number:
                return None
            if home.kind == "apart":
                return f"step '{name}' runs side by side with this one, so neither sees the other.", ()
            if home.kind == "option":
                return f"step '{name}' is another option of the same branch; only one of them runs.", ()
            return f"step '{name}' comes later. Refer to steps before this one.", ()
        owner = home.owner
        if owner is None:  # cannot be: the workflow's own steps are around everything
            return f"step '{name}' cannot be seen from here.", ()
        what = {
            "body": f"is inside the loop '{owner.name}', once per iteration",
            "apart": f"is inside the loop '{owner.name}'",
            "option": f"is an option of the branch '{owner.name}' and may not run",
            "on_failure": f"is the 'on_failure' of '{owner.name}' and may not run",
        }[home.kind]
        if self.hidden(owner, site) is not None:
            return f"step '{name}' {what}, and cannot be seen from here.", ()
        return f"step '{name}' {what}. Use the output of '{owner.name}'.", (owner.name,)

    # -- prerequisites and configuration --------------------------------------------------------------------

    def prerequisites(self, step: StepSpec) -> None:
        """E014."""
        for index, said in enumerate(step.requires):
            part = f"requires[{index}]"
            name, colon, argument = said.partition(":")
            there = self.registry.prerequisites.find(said)
            if there is not None and not there.takes_argument:
                continue
            there = self.registry.prerequisites.find(name)
            if there is None:
                names = self.registry.prerequisites.names
                self.unregistered(step, part, "E014", "prerequisite", name, names)
            elif there.takes_argument and not argument.strip():
                self.at(step, part, "E014", f"prerequisite '{name}' needs to be told what: '{name}:…'.")
            elif colon and not there.takes_argument:
                message = f"prerequisite '{name}' takes nothing after a colon."
                self.at(step, part, "E014", message, (name,))

    def _layers(self) -> dict[str, StepConfig]:
        """The project's `steps`, as layers; what cannot be read is told where settings are read."""
        found: dict[str, StepConfig] = {}
        for key, said in self.settings.steps.items():
            if isinstance(said, StepConfig):
                found[str(key)] = said
            elif isinstance(said, Mapping):
                try:
                    found[str(key)] = StepConfig.read(said)
                except StepConfigError:
                    continue
        return found

    def config(self, step: StepSpec) -> None:
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
            what = "an agent step" if isinstance(step, AgentStep) else "this generator"
            message = f"agents are switched off, but {what} has no handler to run instead."
            self.at(step, "type", "E022", message)
        said = [("inline", step.config), *((f"steps.{key}", one) for key, one in layers.items())]
        source, mode = next(((name, one.mode) for name, one in said if one.mode is not None), ("", None))
        if isinstance(step, PythonStep):
            self.python_config(step, layers, qualified, mode)
            return
        if isinstance(step, AgentStep | GenerateStep):
            self.agent_config(step, source, mode)
        elif mode is StepMode.AGENT:
            message = f"{_from(source)}mode: agent means nothing to {_a(step)} step; it runs as usual."
            self.at(step, _config_part(step, source, "mode"), "W003", message)
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
        if action is None:
            tools = tuple(tool for one in (step.config, *layers.values()) for tool in one.allowed_tools or ())
        cap = action.max_autonomy if action is not None else None
        found = self.resolved(step, flow, layers, tools, StepMode.DETERMINISTIC, step.config, cap)
        if found is None or found.config.mode is not StepMode.AGENT:
            return
        for code, message in found.warnings:
            source = found.sources["autonomy"]
            self.at(step, _config_part(step, source, "autonomy"), code, f"{_from(source)}{message}")
        if self.settings.executor is False and found.config.autonomy is not AutonomyLevel.OPERATOR:
            source = found.sources["mode"]
            message = f"{_from(source)}mode: agent, but no executor is configured: the handler will run."
            self.at(step, _config_part(step, source, "mode"), "W005", message)

    def agent_config(self, step: StepSpec, source: str, mode: StepMode | None) -> None:
        handlerless = self.handlerless(step)
        if mode is StepMode.DETERMINISTIC and handlerless:
            what = "an agent step" if isinstance(step, AgentStep) else "this generator"
            message = f"{_from(source)}mode: deterministic, but {what} has no handler. Leave it out."
            self.at(step, _config_part(step, source, "mode"), "E021", message)
        elif mode is not None:
            message = f"{_from(source)}mode means nothing to {_a(step)} step; an agent is asked as always."
            self.at(step, _config_part(step, source, "mode"), "W004", message)
        if self.settings.executor is False and handlerless and not self.settings.forced:
            message = f"no executor is configured, and {_a(step)} step cannot run without one."
            self.at(step, "type", "W005", message)

    def resolved(
        self,
        step: StepSpec,
        flow: str,
        layers: Mapping[str, StepConfig],
        tools: tuple[str, ...],
        natural: StepMode,
        inline: StepConfig,
        cap: AutonomyLevel | None = None,
    ) -> Any:
        """What the layers add up to; E020 when they do not, None then and when nothing is said."""
        if inline == UNSAID and not layers:
            return None
        try:
            return resolve(
                step.name, flow=flow, inline=inline, steps=layers, tools=tools, natural=natural,
                max_autonomy=cap, forced=self.settings.forced and natural is StepMode.DETERMINISTIC,
            )  # fmt: skip
        except StepConfigError as error:
            for layer, name, text in error.found:
                message = f"{_from(layer)}{name} {MEANT.sub('', text)}"
                meant = tuple(MEANT.findall(text))
                self.at(step, _config_part(step, layer, name), "E020", message, meant)
            return None

    def project(self) -> None:
        """E025: what the project's settings say about this workflow names something."""
        names = [step.name for step in self.spec.every_step() if step.name]
        for key in self.settings.steps:
            parts = str(key).split("/")
            if len(parts) == 3 and parts[0] == FLOW:
                parts = parts[1:]
            if len(parts) != 2 or parts[0] != self.spec.name or parts[1] in self.steps:
                continue
            front = str(key)[: -len(parts[1])] if parts[1] else str(key)
            meant = tuple(front + one for one in self.nearest.of(parts[1], names))
            message = f"the project's settings configure the step '{_cut(key)}', which is not there."
            self.wrong("E025", self.spec.place, below("settings.steps", str(key)), message, meant)
        known = (*self.registry.agents.names, DISPATCH_AGENT)
        for key in self.settings.agents:
            if key not in known:
                message = f"the project's settings configure the agent '{_cut(key)}', which is not there."
                path = below("settings.agents", str(key))
                self.wrong("E025", self.spec.place, path, message, self.nearest.of(str(key), known))


# -- small things -------------------------------------------------------------------------------------------


def _key(spec: WorkflowSpec) -> tuple[str, str]:
    """What tells workflows apart."""
    return (spec.place.file, spec.name)


def _side_by_side(step: LoopStep) -> bool:
    return not step.has_for_each and step.until is None


def _a(step: StepSpec) -> str:
    return f"{'an' if step.type.value[0] == 'a' else 'a'} {step.type.value}"


def _option_number(path: str, index: int) -> int:
    """The number of an option in the file; some may not have been readable."""
    number = path[: -len(".step")].rpartition("[")[2].rstrip("]") if path.endswith(".step") else ""
    return int(number) if number.isdigit() else index


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


def _cut(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


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


def _place(step: StepSpec, part: str) -> Place:
    """Where a part of a step stands."""
    return step.places.get(part, step.place)


def _inside(place: Place, offset: int) -> Place:
    """A character of the text at a place."""
    return place.inside(offset) if isinstance(place, Written) else place


def _value_of(read: Prepared | None) -> Any:
    """What an expression always gives; unknown when that depends on something."""
    if read is None or read.references:
        return _ANY
    try:
        return read.resolve(Scope({}, {}))
    except EvaluationError:
        return _ANY


def _known(value: Any) -> Any:
    """A value as far as it is written out."""
    if isinstance(value, str):
        try:
            template = Template.parse(value)
        except ExpressionError:
            return _ANY
        if template.is_plain:
            return "".join(piece for piece in template.pieces if not isinstance(piece, Expression))
        return _ANY if template.lone is not None else _SOME_TEXT
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    return value


def _has_unknown(value: Any) -> bool:
    if isinstance(value, _Unknown):
        return True
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_unknown(item) for item in items)


_NAMES: Mapping[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    dict: "a mapping", type(None): "null",
}  # fmt: skip


def _kind(value: Any) -> str:
    """What stands there, without the value."""
    return "null" if value is None else _NAMES.get(type(value), "something else")


def _misfit(hint: Any, value: Any) -> str | None:
    """What an annotation wants, when a value is certainly not that."""
    if hint is None or (isinstance(value, _Unknown) and not value.text):
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _misfit(args[0], value)
    if origin in (typing.Union, types.UnionType):
        wanted = [_misfit(one, value) for one in args]
        told = [one for one in wanted if one is not None]
        return " or ".join(dict.fromkeys(told)) if len(told) == len(args) else None
    if origin is Literal:
        if isinstance(value, _Unknown):
            return None if any(isinstance(one, str) for one in args) else _choices(args)
        return None if any(type(one) is type(value) and one == value for one in args) else _choices(args)
    plain = hint if origin is None else origin
    if not isinstance(plain, type) or plain not in _NAMES:
        return None
    if not _is(plain, value):
        return _NAMES[plain]
    if plain is list and len(args) == 1:
        inner = next((one for one in (_misfit(args[0], item) for item in value) if one), None)
        return None if inner is None else f"a list of which each item is {inner}"
    if plain is dict and len(args) == 2:
        inner = next((one for one in (_misfit(args[1], item) for item in value.values()) if one), None)
        return None if inner is None else f"a mapping of which each value is {inner}"
    return None


def _is(kind: Any, value: Any) -> bool:
    if isinstance(value, _Unknown):
        return kind is str
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _choices(options: Iterable[Any]) -> str:
    return " or ".join(f"'{one}'" if isinstance(one, str) else str(one).lower() for one in options)
