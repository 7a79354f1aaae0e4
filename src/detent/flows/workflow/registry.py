"""What workflow files name: actions, agents, generators, context builders, prerequisites, validation stages.

A decorator only marks a function; nothing is registered by being imported. A `Registry` collects what the
modules it is given have marked, and refuses a name that stands for two things.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.equivalence import CompareRules
from detent.kernel.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from detent.flows.workflow.spec import StepSpec, WorkflowSpec

MARK = "__detent_registers__"
"""Attribute under which a decorated function keeps what it stands for."""
SHORTEST_INTENT, LONGEST_INTENT = 20, 400
LEFT_OUT = "(its plugin is left out)"
"""Intent of a placeholder."""

T = TypeVar("T", bound="Named")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Named:
    """One thing workflow files may name."""

    name: str
    origin: str = ""
    """Where it was made, such as `shop/actions.py:12`."""
    instead_of: str = field(default="", kw_only=True)
    """Where the thing of the same name was made that ships with Detent and that it stands in for."""
    left_out: bool = field(default=False, kw_only=True)
    """Nothing but its name is known: it may be in a plugin that is not loaded."""


@dataclass(frozen=True, slots=True)
class Action(Named):
    """A handler with an intent; what `type: python` steps call and `rollback` names."""

    handler: Callable[..., Any] = field(default=lambda: None)
    intent: str = ""
    effects: tuple[str, ...] = ()
    """Tools it may propose."""
    queries: tuple[str, ...] = ()
    """Tools it may ask."""
    output_schema: Any = None
    """A dataclass, TypedDict or model class, or a JSON Schema."""
    rollback: str | None = None
    """The action that undoes it, where a step names none of its own."""
    compare: CompareRules | None = None
    validator: Callable[..., Any] | None = None
    max_autonomy: AutonomyLevel | None = None
    opaque: bool = False
    """The handler acts on the world itself: calling it is the effect."""
    repeatable: bool = False
    """Opaque: calling it twice is the same as once."""
    holds: bool = False
    """It waits for a person or the clock; an agent cannot answer in their place."""
    blocking: bool | None = None
    """Where a plain `def` is called, as a step says it: True in a thread, False on the event loop, None in a
    thread until it has shown to be quick."""
    timeout: float | None = None
    tells: Callable[[Mapping[str, Any]], tuple[str, str]] | None = None
    """Message and level left in the run's record when it is done, whoever did it; from its inputs."""
    wants_context: bool = field(init=False, default=False)
    """The handler's first parameter is the step's context."""

    def __post_init__(self) -> None:
        first = next(iter(inspect.signature(self.handler).parameters.values()), None)
        object.__setattr__(self, "wants_context", first is not None and first.name == "ctx")

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """What may be said in `kwargs`, in the order of `args`."""
        found = dict(inspect.signature(self.handler).parameters)
        if self.wants_context:
            found.pop("ctx")
        return found


@dataclass(frozen=True, slots=True)
class Agent(Named):
    """Somebody `type: agent` steps ask."""

    instructions: str = ""
    tools: tuple[str, ...] = ()
    """Queries and effects it may use."""
    prompt: Callable[..., Any] | None = None
    """`(context) -> str`: what it is told beside the context; None: the context alone."""
    output_schema: Any = None


@dataclass(frozen=True, slots=True)
class Generator(Named):
    """Writes a text: by agent, or by its handler."""

    handler: Callable[..., Any] | None = None
    """`(**context) -> str`, with `ctx` first if it wants it."""
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
    """Something that must be there before a run begins."""

    check: Callable[..., Any] = field(default=bool)
    """`() -> bool` or `(ok, message)`, sync or async."""
    remediation: str = ""
    display_name: str = ""
    takes_argument: bool = False
    """Named as `name:argument`; the check is given the argument."""


@dataclass(frozen=True, slots=True)
class ValidationStage(Named):
    """One check of a project: a command, and one that mends what it complains about."""

    command: tuple[str, ...] | None = None
    fix_command: tuple[str, ...] | None = None
    timeout: float = 300.0

    def __call__(self, target: F) -> F:
        """Put above a function or class, the stage is found with it; the target stays as it is."""
        _mark(target, self)
        return target


class Shelf(Generic[T]):
    """Things of one kind by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._named: dict[str, T] = {}
        self.absent: Callable[[str], T] | None = None
        """Makes a placeholder for a name that is not here, where a plugin that may have it is left out."""

    def add(self, item: T) -> None:
        """Put one on the shelf; a name that stands for two things is an error that names both places."""
        there = self._named.get(item.name)
        if there is not None and there is not item and there != item:
            raise ConfigurationError(
                f"Two {self.kind}s are named '{item.name}': {there.origin or 'one'} and "
                f"{item.origin or 'another'}. Rename one of them."
            )
        self._named[item.name] = item

    def put(self, item: T) -> None:
        """Put one on the shelf, in place of one of its name."""
        self._named[item.name] = item

    def get(self, name: str) -> T:
        """The one of a name, or a `ConfigurationError` with the nearest."""
        found = self.find(name)
        if found is None:
            raise ConfigurationError(f"There is no {self.kind} '{name}'.{nearest(name, self._named)}")
        return found

    def find(self, name: str) -> T | None:
        """The one of a name, if there is one."""
        found = self._named.get(name)
        return self.absent(name) if found is None and self.absent is not None and name else found

    def __contains__(self, name: object) -> bool:
        return name in self._named or (self.absent is not None and isinstance(name, str) and bool(name))

    def __iter__(self) -> Iterator[T]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._named)


class Registry:
    """Everything workflow files may name."""

    def __init__(self, *sources: ModuleType | Named) -> None:
        self.actions: Shelf[Action] = Shelf("action")
        self.agents: Shelf[Agent] = Shelf("agent")
        self.generators: Shelf[Generator] = Shelf("generator")
        self.context_builders: Shelf[ContextBuilder] = Shelf("context builder")
        self.prerequisites: Shelf[Prerequisite] = Shelf("prerequisite")
        self.stages: Shelf[ValidationStage] = Shelf("validation stage")
        for source in sources:
            if isinstance(source, Named):
                self.add(source)
            else:
                self.collect(source)

    def add(self, item: Named) -> None:
        """Register one thing."""
        for kind, shelf in self._shelves():
            if isinstance(item, kind):
                shelf.add(item)
                return
        raise ConfigurationError(f"{type(item).__name__} is nothing a workflow file could name.")

    @property
    def intents(self) -> Mapping[str, str]:
        """What each action is for, by name; read-only. One nobody decorated has none."""
        return MappingProxyType({item.name: item.intent for item in self.actions if item.intent})

    def put(self, item: Named) -> None:
        """Register one thing in place of that of its kind and name."""
        for kind, shelf in self._shelves():
            if isinstance(item, kind):
                shelf.put(item)

    @property
    def stand_ins(self) -> list[tuple[str, Named]]:
        """What stands in for something that ships, each with its kind."""
        return [(shelf.kind, item) for _, shelf in self._shelves() for item in shelf if item.instead_of]

    def collect(self, module: ModuleType) -> list[Named]:
        """Register everything a module has marked; gives what was found."""
        found: list[Named] = []
        for value in list(vars(module).values()):
            for item in marked(value):
                self.add(item)
                found.append(item)
        return found

    def replaced(self, **changed: Iterable[Named]) -> Registry:
        """A copy in which things of the same name are replaced: settings over what is registered."""
        copy = Registry()
        for kind, shelf in self._shelves():
            wanted = {item.name: item for items in changed.values() for item in items}
            for item in shelf:
                copy.add(wanted.pop(item.name) if isinstance(wanted.get(item.name), kind) else item)
            for item in wanted.values():
                if isinstance(item, kind):
                    copy.add(item)
        return copy

    @property
    def incomplete(self) -> bool:
        """Plugins are left out that may hold more."""
        return self.actions.absent is not None

    def leave_out(self) -> None:
        """Have a placeholder for every name that is not registered: plugins that may have it are left out.

        What is made of placeholders can be checked and drawn; it cannot run.
        """
        self.actions.absent = lambda name: Action(name, handler=_left_out, intent=LEFT_OUT, left_out=True)
        self.agents.absent = lambda name: Agent(name, instructions=LEFT_OUT, left_out=True)
        self.generators.absent = lambda name: Generator(
            name, handler=_left_out, intent=LEFT_OUT, left_out=True
        )
        self.context_builders.absent = lambda name: ContextBuilder(name, build=_left_out, left_out=True)
        self.prerequisites.absent = lambda name: Prerequisite(name, check=_left_out, left_out=True)
        self.stages.absent = lambda name: ValidationStage(name, left_out=True)

    def _shelves(self) -> tuple[tuple[type[Named], Shelf[Any]], ...]:
        return (
            (Action, self.actions), (Agent, self.agents), (Generator, self.generators),
            (ContextBuilder, self.context_builders), (Prerequisite, self.prerequisites),
            (ValidationStage, self.stages),
        )  # fmt: skip


def _left_out(*args: Any, **kwargs: Any) -> Any:
    """Stands where the code of a plugin would."""
    raise ConfigurationError("This is in a plugin that is left out: the project is not trusted.")


def named_by(spec: WorkflowSpec) -> set[tuple[str, str]]:
    """What a workflow's steps name, each with its kind, as far as the file says it."""
    found: set[tuple[str, str]] = set()
    for step in spec.every_step():
        for kind, said in (
            ("action", getattr(step, "action", None)), ("action", getattr(step, "rollback", None)),
            ("agent", getattr(step, "agent", None)), ("generator", getattr(step, "generator", None)),
            ("context builder", getattr(step, "context", None)),
            *(("prerequisite", one.partition(":")[0]) for one in step.requires),
            *(("validation stage", one) for one in _stages_of(step)),
        ):  # fmt: skip
            if isinstance(said, str) and said:
                found.add((kind, said))
    return found


def _stages_of(step: StepSpec) -> Iterable[Any]:
    stages = getattr(step, "stages", ())
    return () if isinstance(stages, str) else stages


def marked(value: Any) -> tuple[Named, ...]:
    """What a decorated function or class stands for."""
    if isinstance(value, Named):
        return (value,)
    try:
        found = vars(value).get(MARK, ())
    except TypeError:
        return ()
    return found if isinstance(found, tuple) else ()


def _mark(target: Any, item: Named) -> None:
    setattr(target, MARK, (*marked(target), item))


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
) -> Callable[[F], F]:
    """Make the decorated function an action: the handler of `type: python` steps that name it."""
    said = intent.strip() if isinstance(intent, str) else ""
    if not SHORTEST_INTENT <= len(said) <= LONGEST_INTENT:
        raise ConfigurationError(
            f"Action '{name}' needs an intent of {SHORTEST_INTENT} to {LONGEST_INTENT} characters: what it "
            f"accomplishes, not how."
        )

    def wrap(function: F) -> F:
        level = None if max_autonomy is None else AutonomyLevel(max_autonomy)
        _mark(
            function,
            Action(
                name, _origin(function), function, said, tuple(effects), tuple(queries), output_schema,
                rollback, compare, validator, level, opaque, repeatable, holds, blocking, timeout,
                tells,
            ),
        )  # fmt: skip
        return function

    return wrap


def agent(
    name: str, *, instructions: str, tools: Iterable[str] = (), output_schema: Any = None
) -> Callable[[F], F]:
    """Make an agent of a function that writes its prompt, or of a class whose instance does when called."""

    def wrap(target: F) -> F:
        prompt: Callable[..., Any] = target() if isinstance(target, type) else target
        if not callable(prompt):
            raise ConfigurationError(f"Agent '{name}' is a class that cannot be called for a prompt.")
        _mark(target, Agent(name, _origin(target), instructions.strip(), tuple(tools), prompt, output_schema))
        return target

    return wrap


def generator(
    name: str, *, intent: str = "", prompt_file: str | None = None, tools: Iterable[str] = ()
) -> Callable[[F], F]:
    """Make the decorated function the handler of a generator. Without an intent its docstring says it."""

    def wrap(function: F) -> F:
        said = (intent or function.__doc__ or "").strip().split("\n")[0]
        _mark(function, Generator(name, _origin(function), function, said, prompt_file, tuple(tools)))
        return function

    return wrap


def context_builder(name: str) -> Callable[[F], F]:
    """Make the decorated function `(ctx) -> mapping` a context builder."""

    def wrap(function: F) -> F:
        _mark(function, ContextBuilder(name, _origin(function), function))
        return function

    return wrap


def prerequisite(
    name: str, *, remediation: str, display_name: str = "", takes_argument: bool = False
) -> Callable[[F], F]:
    """Make the decorated function `() -> bool` or `() -> (ok, message)` a prerequisite."""

    def wrap(function: F) -> F:
        _mark(
            function,
            Prerequisite(
                name, _origin(function), function, remediation, display_name or name, takes_argument
            ),
        )
        return function

    return wrap


def validation_stage(
    name: str,
    *,
    command: Iterable[str],
    fix_command: Iterable[str] | None = None,
    timeout: float = 300.0,
) -> ValidationStage:
    """A validation stage: a value of a module, or put as a decorator above a function of it."""
    stage = ValidationStage(
        name, "", tuple(command), None if fix_command is None else tuple(fix_command), timeout
    )
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is not None:
        stage = replace(stage, origin=f"{caller.f_globals.get('__name__', '')}:{caller.f_lineno}")
    return stage


def schema_of(said: Any) -> Mapping[str, Any] | None:
    """The JSON Schema of a declared output, however it was declared."""
    if said is None or isinstance(said, Mapping):
        return said
    from detent.engine.schemas import schema_of as read

    return read(said)
