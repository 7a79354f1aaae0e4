"""A flow: a machine, the step for each of its states, and the tools those steps may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from detent.engine.acts import Act
from detent.engine.calls import still_running
from detent.engine.ports import Resource, Store
from detent.engine.step import Handler, Step
from detent.engine.step_failures import refused
from detent.engine.tools import CALL, Tool, Toolbox, ToolError
from detent.engine.user_errors import message_of
from detent.kernel.budget import LIMITS, Budget
from detent.kernel.entries import Entry
from detent.kernel.errors import ConfigurationError, DefinitionError, name_of, nearest
from detent.kernel.machine import Machine, MachineProblem, difference
from detent.kernel.plain import digest, to_plain
from detent.kernel.run import Run


@dataclass(frozen=True, slots=True)
class Migration:
    """How a run continues under a changed definition."""

    state: Any = None
    """The state it continues in; None keeps its state, which must still exist."""
    set: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


Migrate = Callable[[Run], Migration]


@dataclass(frozen=True, slots=True)
class Detour:
    """The move of a run after its step failed."""

    state: Any
    """An end state, or one whose step still has work to do."""
    set: Mapping[str, Any] = field(default_factory=dict)


OnFailure = Callable[[Run, str, str], Detour | None]
"""From the run, the reason and the error message to the detour; None ends the run as usual."""


class Past(NamedTuple):
    """A run folded from its journal, with its moves."""

    run: Run
    flow: Flow
    moves: tuple[Entry, ...]
    acts: Mapping[int, tuple[Act, ...]] = MappingProxyType({})
    """Effects performed in the visit that a move has ended, by the number of its entry."""


class Flow:
    """One kind of run. Steps are given as a mapping, or added with the `step` decorator."""

    performed_by: Any = None
    """Supplies the performer of an engine created without one; None calls the handlers."""
    beside: str | None = None
    """Key in its runs' data that lists the values offloaded from the journal (see `offloaded`)."""

    def __init__(
        self,
        machine: Machine[Any],
        steps: Mapping[Any, Step | Handler] | None = None,
        *,
        name: str | None = None,
        description: str = "",
        tools: Iterable[Tool] = (),
        data: Any = None,
        budget: Budget | None = None,
        migrations: Mapping[int | str, Migrate] | None = None,
        counts: Callable[[Any, Any], bool] | None = None,
        exhausted: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        needs: Iterable[Resource] = (),
        exhausted_reasons: Mapping[str, str] | None = None,
        scope: str | None = None,
        on_failure: OnFailure | None = None,
        undoing: Any = None,
        closing: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        at_end: Callable[[Any], Iterable[Any]] | None = None,
        resources: Mapping[str, Callable[[Any], AbstractAsyncContextManager[Any]]] | None = None,
    ) -> None:
        self.machine = machine
        self.name = name or machine.name
        self.scope = scope or self.name
        """Prefix of its steps' names in settings and reports."""
        self.on_failure = on_failure
        self.undoing = None if undoing is None else machine.state(undoing)
        """The rollback state of a cancelled run; None if its runs cannot roll back."""
        self.related: frozenset[str] = frozenset()
        """Names of steps of the flows its runs start, which a run's configuration may also name."""
        self.starts: tuple[str, ...] = ()
        """Names of the flows its runs start, as far as they are known in advance."""
        self.ended: Callable[[Store, Run], Awaitable[None]] | None = None
        """Called after the end of a run without a parent is committed."""
        self.waits: Callable[[Store, Run], Awaitable[None]] | None = None
        """Called when a run without a parent is left waiting."""
        self.copied: Callable[[Run, str], Mapping[str, Any]] | None = None
        """Gives what a fork's data have in place of the original's, such as a folder of its own, from the
        original as it stood and the fork's id."""
        self.kept_in: Callable[[Store], None] | None = None
        """Called with the store of each engine that the flow is given to."""
        self.closing = closing
        """Computes what is added to the data of a run that succeeds."""
        self.resources = dict(resources or {})
        """How each resource of a run is opened, from an `Opening` (see `run_resources`), by name."""
        self.at_end = at_end
        """From an `Ending` to the effects performed before a run ends, however it ends (see `finishing`)."""
        self.description = description
        self.tools = Toolbox(tools)
        self.data = data
        """Model class the input is checked against; None takes any mapping."""
        self.budget = budget
        """Budget of a run that is started without one."""
        self.migrations = dict(migrations or {})
        """From an old version number or fingerprint to the function that migrates a run."""
        self.needs: list[Resource] = list(needs)
        """Resources that must be open while its runs are under way, such as connections to tool servers."""
        self.counts = counts
        """Which moves start a new iteration."""
        self.tells = True
        """Whether the engine logs completed steps; False if the application does so itself."""
        self.by_code = False
        """Whether its runs survive running out of tokens or money: steps whose agents cannot be paid, here or
        in the runs it starts, are performed by their handlers."""
        self.exhausted = {limit: machine.state(state) for limit, state in (exhausted or {}).items()}
        """The state to move to when a limit is reached, by name of the limit."""
        self.exhausted_reasons = dict(exhausted_reasons or {})
        """The reason recorded then, where it is not the default, by name of the limit."""
        self.definition: dict[str, Any] = dict(machine.describe())
        if extra:
            self.definition["extra"] = to_plain(dict(extra))
        self.fingerprint = digest(self.definition, 16) if extra else machine.fingerprint
        self._steps: dict[str, Step] = {}
        self._inner: dict[str, tuple[str, Step]] = {}
        """Steps performed instead of others, by name, with their state."""
        self._checked = False
        for state, value in (steps or {}).items():
            self._add(state, value)

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, version={self.machine.version}, steps={len(self._steps)})"

    def step(
        self, state: Any, *, intent: str = "", name: str | None = None, **options: Any
    ) -> Callable[[Handler], Handler]:
        """Make the decorated function the step of `state`."""

        def wrap(handler: Handler) -> Handler:
            purpose = intent or (getattr(handler, "__doc__", None) or "").strip().split("\n")[0]
            self._add(state, Step(name or name_of(state), handler, purpose, **options))
            return handler

        return wrap

    def _add(self, state: Any, value: Step | Handler) -> None:
        key = name_of(state)
        if key in self._steps:
            raise ConfigurationError(f"Flow '{self.name}': state '{key}' has two steps.")
        step = self._steps[key] = Step.of(key, value)
        self._take_in(key, step)
        self._checked = False

    def _take_in(self, state: str, step: Step) -> None:
        """Register what comes with a step: the tool that calls it, and its possible replacements."""
        if step.opaque:
            self.tools.add(_calling(step))
        for inner in step.instead:
            if inner.name in self._inner:
                raise ConfigurationError(f"Flow '{self.name}': two inner steps are named '{inner.name}'.")
            self._inner[inner.name] = (state, inner)
            self._take_in(state, inner)

    def replace(self, state: Any, step: Step) -> None:
        """Replace the step of a state; only before any run is under way."""
        key = name_of(state)
        if key not in self._steps:
            raise ConfigurationError(f"Flow '{self.name}': state '{key}' has no step to replace.")
        self._steps[key] = step
        self._checked = False

    @property
    def steps(self) -> Mapping[str, Step]:
        """Steps by state."""
        return self._steps

    def step_for(self, state: str) -> Step:
        """The step of a state."""
        return self._steps[state]

    def every_step(self) -> Iterator[Step]:
        """All steps, including those performed instead of others."""
        yield from self._steps.values()
        for _, step in self._inner.values():
            yield step

    def step_named(self, state: str, name: str) -> Step:
        """The step of a state by name: its own, or one performed instead."""
        own = self._steps[state]
        if own.name == name or name not in self._inner:
            return own
        return self._inner[name][1]

    def state_of(self, step: Step) -> str:
        """The state of a step."""
        inner = self._inner.get(step.name)
        if inner is not None and inner[1] is step:
            return inner[0]
        if self._steps.get(step.name) is step:
            return step.name
        return next(state for state, candidate in self._steps.items() if candidate is step)

    def qualified(self, step: Step) -> str:
        """The name of a step in settings and reports."""
        return f"{self.scope}/{step.name}"

    def difference(self, old: Mapping[str, Any]) -> list[str]:
        """Changes since the definition that a run was started under, one per line."""
        return difference(old, self.definition)

    async def undone_by(self, store: Store, run_id: str) -> frozenset[str]:
        """Paths of the steps that a run has rolled back, which a fork must not count as done."""
        return frozenset()

    async def partly_undone_by(self, store: Store, run_id: str) -> frozenset[str]:
        """Paths of the steps of which a run has rolled back only a part."""
        return frozenset()

    def done_by(self, past: Past) -> Iterable[str]:
        """Paths of the steps that a run has done."""
        return ()

    def problems(self) -> list[MachineProblem]:
        """Everything that keeps this flow from being run."""
        machine = self.machine
        names = {machine.named(state): state for state in machine.states}
        problems = [
            MachineProblem("F01", f"'{name}'", "has no step.")
            for name, state in names.items()
            if not machine.is_end(state) and name not in self._steps
        ]
        for name in self._steps:
            if name not in names:
                problems.append(
                    MachineProblem(
                        "F02", f"'{name}'", f"has a step but is not a state.{nearest(name, names)}"
                    )
                )
            elif machine.is_end(names[name]):
                problems.append(
                    MachineProblem("F03", f"'{name}'", "is an end, so its step would never be done.")
                )
        for step in self.every_step():
            for kind, names_used in (("effect", step.effects), ("query", step.queries)):
                for tool_name in names_used or ():
                    try:
                        self.tools.get(tool_name, kind)  # type: ignore[arg-type]
                    except ConfigurationError as error:
                        problems.append(MachineProblem("F04", f"step '{step.name}'", str(error)))
        for tool in self.tools:
            if tool.resource is not None and tool.resource not in self.resources:
                hint = nearest(tool.resource, self.resources)
                message = f"works on '{tool.resource}', which is no resource of the flow.{hint}"
                problems.append(MachineProblem("F07", f"tool '{tool.name}'", message))
        for limit, state in self.exhausted.items():
            if limit not in LIMITS:
                problems.append(
                    MachineProblem(
                        "F05", f"limit '{limit}'", f"is not a limit of a budget.{nearest(limit, LIMITS)}"
                    )
                )
            elif not machine.is_end(state):
                problems.append(
                    MachineProblem(
                        "F06",
                        f"limit '{limit}'",
                        f"leads to '{machine.named(state)}', which is not an end.",
                    )
                )
        return problems

    def check(self) -> None:
        """Raise `DefinitionError` with all problems, once per change."""
        if self._checked:
            return
        problems = self.problems()
        if problems:
            raise DefinitionError(f"Flow '{self.name}'", problems)
        self._checked = True

    def read_input(self, data: Any) -> dict[str, Any]:
        """The data a run starts with, checked against the flow's model if it has one."""
        validate = getattr(self.data, "model_validate", None)
        if validate is not None and not isinstance(data, self.data):
            try:
                data = validate(to_plain(data if data is not None else {}))
            except (TypeError, ValueError) as error:
                raise ConfigurationError(
                    f"The input does not fit flow '{self.name}': {_misfit(error)}"
                ) from error
        try:
            plain = to_plain(data if data is not None else {})
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"The input of flow '{self.name}' cannot be kept: {error}") from error
        if not isinstance(plain, dict):
            raise ConfigurationError(
                f"Flow '{self.name}' starts from a mapping of names to values, not from "
                f"{type(data).__name__}."
            )
        return plain


def _misfit(error: Exception) -> str:
    """The validation errors of a model, in one line."""
    problems = getattr(error, "errors", None)
    if not callable(problems):
        return str(error)
    errors = [(".".join(str(part) for part in problem["loc"]), problem["msg"]) for problem in problems()]
    return "; ".join(f"{place}: {message}" if place else message for place, message in errors) + "."


def _calling(step: Step) -> Tool:
    """The effect tool that calls an opaque step's handler."""

    async def perform(ctx: Any) -> Any:
        try:
            value = await step.call(ctx)
        except ToolError:
            raise
        except Exception as error:
            if still_running():
                raise  # it abandoned a call that is still running: the effect is in doubt
            # The handler reports its own failure. Only a dead process leaves the call in doubt.
            transient = isinstance(error, step.retry_on)
            raise ToolError(type(error).__name__, message_of(error), transient=transient) from error
        if (why := refused(value)) is not None:
            raise ToolError("StepFailed", why)
        return value

    return Tool(
        f"{CALL}{step.name}", perform, wants_context=True, idempotent=step.repeatable, retry=step.retry,
        timeout=step.timeout, description=step.intent, arguments={"type": "object"},
    )  # fmt: skip
