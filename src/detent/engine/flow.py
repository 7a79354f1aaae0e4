"""A flow: a machine, the step for each of its states, and the tools those steps may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    """How a run goes on under a changed definition."""

    state: Any = None
    """Where it stands now; None keeps its state, which must still exist."""
    set: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


Migrate = Callable[[Run], Migration]


@dataclass(frozen=True, slots=True)
class Detour:
    """Where a run goes whose step failed."""

    state: Any
    """An end, or a state in which something is still to be done."""
    set: Mapping[str, Any] = field(default_factory=dict)


OnFailure = Callable[[Run, str, str], Detour | None]
"""From the run, the reason and the error's words to the detour; None ends it as usual."""


class Past(NamedTuple):
    """One run as its journal tells it."""

    run: Run
    flow: Flow
    moves: tuple[Entry, ...]


class Flow:
    """One kind of run. Steps are given as a mapping, or added with the `step` decorator."""

    performed_by: Any = None
    """Brings the performer of an engine that was given none; None: its handlers are called."""
    beside: str | None = None
    """Key under which data of its runs says which of its values lie beside the journal (see `beside`)."""

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
    ) -> None:
        self.machine = machine
        self.name = name or machine.name
        self.scope = scope or self.name
        """What its steps' names begin with in settings and reports."""
        self.on_failure = on_failure
        self.undoing = None if undoing is None else machine.state(undoing)
        """The state in which a cancelled run undoes what it did, where it can."""
        self.related: frozenset[str] = frozenset()
        """Names of steps of the flows its runs start, for runs to say how these are performed."""
        self.starts: tuple[str, ...] = ()
        """Names of the flows its runs start, as far as that is known beforehand."""
        self.ended: Callable[[Store, Run], Awaitable[None]] | None = None
        """Told when a run of it that no other run started has come to its end, after that is written down."""
        self.closing = closing
        """What is added to the data of a run that succeeds, from the data as it is then."""
        self.description = description
        self.tools = Toolbox(tools)
        self.data = data
        """Model class the input is checked against; None takes any mapping."""
        self.budget = budget
        """Budget of a run that is started without one."""
        self.migrations = dict(migrations or {})
        """From an old version number or fingerprint to the function that carries a run over."""
        self.needs: list[Resource] = list(needs)
        """What must be open while its runs are under way: connections to tool servers, say."""
        self.counts = counts
        """Which moves start a new iteration."""
        self.tells = True
        """The engine logs its steps as they are completed; False where its application does so itself."""
        self.by_code = False
        """Tokens and money that are gone end none of its runs: steps whose agents cannot be paid, here or in
        the runs it starts, go on by code."""
        self.exhausted = {limit: machine.state(state) for limit, state in (exhausted or {}).items()}
        """Where to go when a limit is reached: limit name to state."""
        self.exhausted_reasons = dict(exhausted_reasons or {})
        """What is told then, where it is not the usual."""
        self.definition: dict[str, Any] = dict(machine.describe())
        if extra:
            self.definition["extra"] = to_plain(dict(extra))
        self.fingerprint = digest(self.definition, 16) if extra else machine.fingerprint
        self._steps: dict[str, Step] = {}
        self._inner: dict[str, tuple[str, Step]] = {}
        """Steps performed in the place of others, by name, with the state they are done in."""
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
            said = intent or (getattr(handler, "__doc__", None) or "").strip().split("\n")[0]
            self._add(state, Step(name or name_of(state), handler, said, **options))
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
        """What comes with a step: the tool that calls it, the steps that may stand in its place."""
        if step.opaque:
            self.tools.add(_calling(step))
        for inner in step.instead:
            if inner.name in self._inner:
                raise ConfigurationError(f"Flow '{self.name}': two inner steps are named '{inner.name}'.")
            self._inner[inner.name] = (state, inner)
            self._take_in(state, inner)

    def replace(self, state: Any, step: Step) -> None:
        """Put another step in the place of the one a state has; before any run is under way."""
        key = name_of(state)
        if key not in self._steps:
            raise ConfigurationError(f"Flow '{self.name}': state '{key}' has no step to replace.")
        self._steps[key] = step
        self._checked = False

    @property
    def steps(self) -> Mapping[str, Step]:
        """Steps by the state they are done in."""
        return self._steps

    def step_for(self, state: str) -> Step:
        """The step of a state."""
        return self._steps[state]

    def every_step(self) -> Iterator[Step]:
        """All steps, those that are performed in the place of others included."""
        yield from self._steps.values()
        for _, step in self._inner.values():
            yield step

    def step_named(self, state: str, name: str) -> Step:
        """The step of a state that goes by a name: its own, or one performed in its place."""
        own = self._steps[state]
        if own.name == name or name not in self._inner:
            return own
        return self._inner[name][1]

    def state_of(self, step: Step) -> str:
        """The state a step is done in."""
        inner = self._inner.get(step.name)
        if inner is not None and inner[1] is step:
            return inner[0]
        if self._steps.get(step.name) is step:
            return step.name
        return next(state for state, one in self._steps.items() if one is step)

    def qualified(self, step: Step) -> str:
        """The name settings and reports know a step by."""
        return f"{self.scope}/{step.name}"

    def difference(self, old: Mapping[str, Any]) -> list[str]:
        """What changed since a definition that a run was started under, one thing a line."""
        return difference(old, self.definition)

    async def undone_by(self, store: Store, run_id: str) -> frozenset[str]:
        """Paths of the steps whose work a run has undone; what a fork must not take for done."""
        return frozenset()

    def done_by(self, past: Past) -> Iterable[str]:
        """Paths of the steps that a run has done."""
        return ()

    def problems(self) -> list[MachineProblem]:
        """Everything that keeps this flow from being run."""
        machine = self.machine
        names = {machine.named(state): state for state in machine.states}
        found = [
            MachineProblem("F01", f"'{name}'", "has no step.")
            for name, state in names.items()
            if not machine.is_end(state) and name not in self._steps
        ]
        for name in self._steps:
            if name not in names:
                found.append(
                    MachineProblem("F02", f"'{name}'", f"has a step but is no state.{nearest(name, names)}")
                )
            elif machine.is_end(names[name]):
                found.append(
                    MachineProblem("F03", f"'{name}'", "is an end, so its step would never be done.")
                )
        for step in self.every_step():
            for kind, wanted in (("effect", step.effects), ("query", step.queries)):
                for tool_name in wanted or ():
                    try:
                        self.tools.get(tool_name, kind)  # type: ignore[arg-type]
                    except ConfigurationError as error:
                        found.append(MachineProblem("F04", f"step '{step.name}'", str(error)))
        for limit, state in self.exhausted.items():
            if limit not in LIMITS:
                found.append(
                    MachineProblem(
                        "F05", f"limit '{limit}'", f"is no limit of a budget.{nearest(limit, LIMITS)}"
                    )
                )
            elif not machine.is_end(state):
                found.append(
                    MachineProblem(
                        "F06", f"limit '{limit}'", f"leads into '{machine.named(state)}', which is no end."
                    )
                )
        return found

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
    """What a model says about data that does not fit it, in one line."""
    problems = getattr(error, "errors", None)
    if not callable(problems):
        return str(error)
    said = [(".".join(str(part) for part in one["loc"]), one["msg"]) for one in problems()]
    return "; ".join(f"{where}: {what}" if where else what for where, what in said) + "."


def _calling(step: Step) -> Tool:
    """The effect of calling a handler that acts on the world itself."""

    async def perform(ctx: Any) -> Any:
        try:
            value = await step.call(ctx)
        except ToolError:
            raise
        except Exception as error:
            if still_running():
                raise  # it gave up on something that goes on: nobody knows how that ends
            # It says itself that it failed. Only a process that dies leaves the call in doubt.
            transient = isinstance(error, step.retry_on)
            raise ToolError(type(error).__name__, message_of(error), transient=transient) from error
        if (why := refused(value)) is not None:
            raise ToolError("StepFailed", why)
        return value

    return Tool(
        f"{CALL}{step.name}", perform, wants_context=True, idempotent=step.repeatable, retry=step.retry,
        timeout=step.timeout, description=step.intent, arguments={"type": "object"},
    )  # fmt: skip
