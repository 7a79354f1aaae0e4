"""The items workflow files name: actions, agents, generators, context builders, prerequisites and validation
stages.

A decorator only marks a function; an import registers nothing. A `Registry` collects the marked functions of
its modules and refuses duplicate names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from detent.authoring.names import Named, Shelf
from detent.dispatch.agent_side import Abstaining
from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.equivalence import CompareRules
from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.engine.acts import Act
    from detent.flows.workflow.spec import StepSpec, WorkflowSpec

MARK = "__detent_registers__"
"""Attribute in which a decorated function keeps its items."""
SHORTEST_INTENT, LONGEST_INTENT = 20, 400
LEFT_OUT = "(its plugin is left out)"
"""Intent of a placeholder."""

STAGES = ("format", "lint", "typecheck", "test")
"""Stages that every project has, with or without a command."""

F = TypeVar("F", bound=Callable[..., Any])
FromReceipts: TypeAlias = "Callable[[Sequence[Act]], Mapping[str, Any]]"


@dataclass(frozen=True, slots=True)
class Action(Named):
    """A handler with an intent, called by `type: python` steps and named by `rollback`."""

    handler: Callable[..., Any] = field(default=lambda: None)
    intent: str = ""
    effects: tuple[str, ...] = ()
    """Effect tools it may propose."""
    queries: tuple[str, ...] = ()
    """Query tools it may call."""
    output_schema: Any = None
    """A dataclass, TypedDict or model class, or a JSON Schema."""
    rollback: str | None = None
    """The action that undoes it, unless the step names another."""
    compare: CompareRules | None = None
    validator: Callable[..., Any] | None = None
    max_autonomy: AutonomyLevel | None = None
    opaque: bool = False
    """The handler acts on the world itself: calling it is the effect."""
    repeatable: bool = False
    """For an opaque handler: calling it twice has the same effect as once."""
    holds: bool = False
    """It waits for a person or a time; an agent cannot answer instead."""
    blocking: bool | None = None
    """Where a plain `def` is called, as in the configuration of a step: True in a thread, False on the event
    loop, None in a thread until it has proved to be fast."""
    timeout: float | None = None
    tells: Callable[[Mapping[str, Any]], tuple[str, str]] | None = None
    """Computes, from its inputs, the message and level recorded in the run when the action is done."""
    rounds: int | None = None
    """How often an agent may act in its place: more than once where an effect depends on the receipt of an
    earlier one."""
    from_receipts: FromReceipts | None = None
    """Computes the fields of an agent's output from the effects it had performed; None: fields take the
    values of the same name in receipts, then in arguments."""
    may_abstain: bool | Abstaining = False
    """Whether a trusted agent may end it without acting. A function computes the output if nothing is to be
    done, from the inputs and the answers of queries; None: something is."""
    wants_context: bool = field(init=False, default=False)
    """The handler's first parameter is the step's context."""

    def __post_init__(self) -> None:
        first = next(iter(inspect.signature(self.handler).parameters.values()), None)
        object.__setattr__(self, "wants_context", first is not None and first.name == "ctx")

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Parameters that `kwargs` may name, in the order of `args`."""
        parameters = dict(inspect.signature(self.handler).parameters)
        if self.wants_context:
            parameters.pop("ctx")
        return parameters


@dataclass(frozen=True, slots=True)
class Agent(Named):
    """An agent that `type: agent` steps ask."""

    instructions: str = ""
    tools: tuple[str, ...] = ()
    """Queries and effects it may use."""
    prompt: Callable[..., Any] | None = None
    """`(context) -> str`: the prompt sent with the context; None: the context alone."""
    output_schema: Any = None


@dataclass(frozen=True, slots=True)
class Generator(Named):
    """Generates a text, with an agent or with its handler."""

    handler: Callable[..., Any] | None = None
    """`(**context) -> str`, optionally with `ctx` as its first parameter."""
    intent: str = ""
    prompt_file: str | None = None
    """Beside the module that registers it."""
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextBuilder(Named):
    """`(ctx) -> mapping` for agent and generate steps."""

    build: Callable[..., Any] = field(default=dict)


@dataclass(frozen=True, slots=True)
class Prerequisite(Named):
    """A condition that must hold before a run begins."""

    check: Callable[..., Any] = field(default=bool)
    """`() -> bool` or `(ok, message)`, sync or async."""
    remediation: str = ""
    display_name: str = ""
    takes_argument: bool = False
    """Named as `name:argument`; the check receives the argument."""


@dataclass(frozen=True, slots=True)
class ValidationStage(Named):
    """One check of a project: a command, and a command that fixes its complaints."""

    command: tuple[str, ...] | None = None
    fix_command: tuple[str, ...] | None = None
    timeout: float = 300.0

    def __call__(self, target: F) -> F:
        """Decorate a function or class, so that the stage is found with it; the target is unchanged."""
        _mark(target, self)
        return target


class Registry:
    """Everything workflow files may name."""

    def __init__(self, *sources: ModuleType | Named) -> None:
        self.actions: Shelf[Action] = Shelf("action")
        self.agents: Shelf[Agent] = Shelf("agent")
        self.generators: Shelf[Generator] = Shelf("generator")
        self.context_builders: Shelf[ContextBuilder] = Shelf("context builder")
        self.prerequisites: Shelf[Prerequisite] = Shelf("prerequisite")
        self.stages: Shelf[ValidationStage] = Shelf("validation stage")
        self.shelves: Mapping[type[Named], Shelf[Any]] = {
            Action: self.actions, Agent: self.agents, Generator: self.generators,
            ContextBuilder: self.context_builders, Prerequisite: self.prerequisites,
            ValidationStage: self.stages,
        }  # fmt: skip
        for source in sources:
            for item in marked_in(source) if isinstance(source, ModuleType) else (source,):
                self.add(item)

    def shelf_of(self, item: Named) -> Shelf[Any]:
        """Return the shelf for items of the same kind.

        Raises:
            ConfigurationError: the item is of no kind that workflow files name.
        """
        for kind, shelf in self.shelves.items():
            if isinstance(item, kind):
                return shelf
        raise ConfigurationError(f"{type(item).__name__} is nothing a workflow file could name.")

    def add(self, item: Named) -> None:
        """Register one item.

        Raises:
            ConfigurationError: the item is of no kind that workflow files name, or its name is taken.
        """
        self.shelf_of(item).add(item)

    def put(self, item: Named) -> None:
        """Register one item, replacing the item of the same kind and name."""
        self.shelf_of(item).put(item)

    @property
    def intents(self) -> Mapping[str, str]:
        """Intents of the actions, by name; read-only. An undecorated action has none."""
        return MappingProxyType({item.name: item.intent for item in self.actions if item.intent})

    @property
    def stand_ins(self) -> list[tuple[str, Named]]:
        """Items that replace a built-in one, each with its kind."""
        return [(shelf.kind, item) for shelf in self.shelves.values() for item in shelf if item.instead_of]

    @property
    def incomplete(self) -> bool:
        """Whether plugins that may define more items are left out."""
        return self.actions.absent is not None

    def leave_out(self) -> None:
        """From now on find a placeholder for every unregistered name: its plugin may have been left out.

        A workflow with placeholders can be checked and drawn, but not run.
        """
        for kind, shelf in self.shelves.items():
            shelf.absent = partial(_placeholder, kind)


def _placeholder(kind: type[Named], name: str) -> Named:
    """An item whose code cannot be called."""
    values: dict[str, Any] = {
        "handler": _left_out, "build": _left_out, "check": _left_out, "intent": LEFT_OUT,
        "instructions": LEFT_OUT,
    }  # fmt: skip
    parts = [member.name for member in fields(kind) if member.name in values]
    return kind(name, left_out=True, **{part: values[part] for part in parts})


def _left_out(*args: Any, **kwargs: Any) -> Any:
    """Takes the place of the code of a plugin that is left out."""
    raise ConfigurationError("This is in a plugin that is left out: the project is not trusted.")


def named_by(spec: WorkflowSpec) -> set[tuple[str, str]]:
    """Return the kind and name of every item that a workflow's steps name literally."""
    names: set[tuple[str, str]] = set()
    for step in spec.every_step():
        for kind, name in (
            ("action", getattr(step, "action", None)), ("action", getattr(step, "rollback", None)),
            ("agent", getattr(step, "agent", None)), ("generator", getattr(step, "generator", None)),
            ("context builder", getattr(step, "context", None)),
            *(("prerequisite", entry.partition(":")[0]) for entry in step.requires),
            *(("validation stage", entry) for entry in _stages_of(step)),
        ):  # fmt: skip
            if isinstance(name, str) and name:
                names.add((kind, name))
    return names


def _stages_of(step: StepSpec) -> Iterable[Any]:
    stages = getattr(step, "stages", ())
    return () if isinstance(stages, str) else stages


def marked(value: Any) -> tuple[Named, ...]:
    """Return the items of a decorated function or class."""
    if isinstance(value, Named):
        return (value,)
    try:
        items = vars(value).get(MARK, ())
    except TypeError:
        return ()
    return items if isinstance(items, tuple) else ()


def marked_in(module: ModuleType) -> list[Named]:
    """Return the items of everything decorated in a module."""
    return [item for value in list(vars(module).values()) for item in marked(value)]


def _mark(target: Any, item: Named) -> None:
    setattr(target, MARK, (*marked(target), item))


def _marker(make: Callable[[F], Named]) -> Callable[[F], F]:
    """The decorator that marks a function or class with the item made from it."""

    def mark(target: F) -> F:
        _mark(target, make(target))
        return target

    return mark


def _origin(target: Any) -> str:
    code = getattr(inspect.unwrap(target), "__code__", None)
    module = getattr(target, "__module__", "")
    return f"{module}:{code.co_firstlineno}" if code is not None else str(module)


def action(
    name: str,
    *,
    intent: str,
    effects: Iterable[str] = (),
    queries: Iterable[str] = (),
    output_schema: Any = None,
    rollback: str | None = None,
    compare: CompareRules | None = None,
    validator: Callable[..., Any] | None = None,
    max_autonomy: AutonomyLevel | str | None = None,
    opaque: bool = False,
    repeatable: bool = False,
    holds: bool = False,
    blocking: bool | None = None,
    timeout: float | None = None,
    tells: Callable[[Mapping[str, Any]], tuple[str, str]] | None = None,
    rounds: int | None = None,
    from_receipts: FromReceipts | None = None,
    may_abstain: bool | Abstaining = False,
) -> Callable[[F], F]:
    """Make the decorated function an action: the handler of `type: python` steps that name it.

    Raises:
        ConfigurationError: the intent is too short or too long, or `rounds` is no number of 1 or more.
    """
    stripped = intent.strip() if isinstance(intent, str) else ""
    if not SHORTEST_INTENT <= len(stripped) <= LONGEST_INTENT:
        raise ConfigurationError(
            f"Action '{name}' needs an intent of {SHORTEST_INTENT} to {LONGEST_INTENT} characters: what it "
            f"accomplishes, not how."
        )
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1):
        raise ConfigurationError(f"Action '{name}': `rounds` is how often an agent may act, 1 or more.")

    level = None if max_autonomy is None else AutonomyLevel(max_autonomy)
    return _marker(
        lambda function: Action(
            name, _origin(function), function, stripped, tuple(effects), tuple(queries), output_schema,
            rollback, compare, validator, level, opaque, repeatable, holds, blocking, timeout, tells,
            rounds, from_receipts, may_abstain,
        )
    )  # fmt: skip


def agent(
    name: str, *, instructions: str, tools: Iterable[str] = (), output_schema: Any = None
) -> Callable[[F], F]:
    """Make the decorated function an agent: it writes the prompt. A class is instantiated and called for it.

    Raises:
        ConfigurationError: an instance of the class is not callable.
    """

    def make(target: F) -> Agent:
        prompt: Callable[..., Any] = target() if isinstance(target, type) else target
        if not callable(prompt):
            raise ConfigurationError(f"Agent '{name}' is a class that cannot be called for a prompt.")
        return Agent(name, _origin(target), instructions.strip(), tuple(tools), prompt, output_schema)

    return _marker(make)


def generator(
    name: str, *, intent: str = "", prompt_file: str | None = None, tools: Iterable[str] = ()
) -> Callable[[F], F]:
    """Make the decorated function the handler of a generator. The intent defaults to its docstring."""

    def make(function: F) -> Generator:
        summary = (intent or function.__doc__ or "").strip().split("\n")[0]
        return Generator(name, _origin(function), function, summary, prompt_file, tuple(tools))

    return _marker(make)


def context_builder(name: str) -> Callable[[F], F]:
    """Make the decorated function `(ctx) -> mapping` a context builder."""

    return _marker(lambda function: ContextBuilder(name, _origin(function), function))


def prerequisite(
    name: str, *, remediation: str, display_name: str = "", takes_argument: bool = False
) -> Callable[[F], F]:
    """Make the decorated function `() -> bool` or `() -> (ok, message)` a prerequisite."""

    return _marker(
        lambda function: Prerequisite(
            name, _origin(function), function, remediation, display_name or name, takes_argument
        )
    )


def validation_stage(
    name: str,
    *,
    command: Iterable[str],
    fix_command: Iterable[str] | None = None,
    timeout: float = 300.0,
) -> ValidationStage:
    """Return a validation stage, to be assigned in a module or used as a decorator in it."""
    stage = ValidationStage(
        name, "", tuple(command), None if fix_command is None else tuple(fix_command), timeout
    )
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is not None:
        stage = replace(stage, origin=f"{caller.f_globals.get('__name__', '')}:{caller.f_lineno}")
    return stage


def schema_of(declared: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of a declared output: a class, or already a schema."""
    if declared is None or isinstance(declared, Mapping):
        return declared
    from detent.engine.schemas import schema_of as read

    return read(declared)
