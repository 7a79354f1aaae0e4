"""Tools: the named things steps may look up (queries) and want done (effects).

A query only reads; it may be called while deciding and is remembered for the attempt. An effect is
performed by the engine through the ledger. How it can be settled after a crash is declared here: a probe,
idempotence, or neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

from detent.kernel import checks
from detent.kernel.errors import ConfigurationError, DetentError, nearest
from detent.kernel.ids import guessed_root
from detent.kernel.policy import USUAL, BreakerPolicy, RetryPolicy

Kind = Literal["query", "effect"]


class EffectCall(NamedTuple):
    """What a tool may know about the call it serves."""

    run_id: str
    key: str
    """Identity of the effect within its run."""
    attempt: int
    origin: str = ""
    """For a fork, and all below it: the root of the runs it came from."""
    by: str = "handler"
    """Who wants it: the step's own code, or an `agent`."""
    top: str = ""
    """The run at the top of this one's tree; empty where the id says it."""

    @property
    def family(self) -> str:
        """The run at the top of this one's tree, under whose name a tool keeps what concerns it alone."""
        return self.top or guessed_root(self.run_id)

    @property
    def root(self) -> str:
        """The run under whose name a tool keeps what may have to be brought back: all that began as one."""
        return self.origin or self.family

    @property
    def idempotency_key(self) -> str:
        """One text for this effect of this run, the same on every attempt: for services that deduplicate."""
        return f"{self.run_id}:{self.key}"


class ToolError(DetentError):
    """A tool says that what it was asked for did **not** happen.

    Any other exception leaves an effect in doubt: it may have happened.
    """

    def __init__(self, code: str, message: str = "", *, transient: bool = False) -> None:
        self.code = str(code)
        self.message = str(message) if message else self.code
        self.transient = bool(transient)
        super().__init__(f"{self.code}: {self.message}" if message else self.code)


NOT_DONE = object()
"""What a probe returns when it is sure that the effect did not happen."""

UNKNOWN = object()
"""What a probe returns when it cannot tell."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A named query or effect."""

    name: str
    perform: Callable[..., Any]
    """`(**args) -> answer`, sync or async. With `wants_call`, an `EffectCall` comes first."""
    kind: Kind = "effect"
    probe: Callable[..., Any] | None = None
    """Effects: same arguments; gives the receipt if it happened, NOT_DONE, or UNKNOWN."""
    idempotent: bool = False
    """Effects: performing twice is the same as once."""
    wants_call: bool = False
    wants_context: bool = False
    """The step's context comes first, and nothing else: calling an opaque step's own handler."""
    retry: RetryPolicy = USUAL
    timeout: float | None = None
    breaker: BreakerPolicy | None = None
    private: bool = False
    """Kept out of the journal: a query leaves hashes there, an effect a blob of its arguments."""
    description: str = ""
    blocking: bool | None = None
    """Where a plain `def` is called: True in a thread; False on the event loop, which it must not hold up.
    None: effects and probes in a thread, queries until they have shown to be quick."""
    arguments: Mapping[str, Any] | None = None
    """JSON Schema of its arguments; None reads it from the function's signature."""
    given: Callable[[Any], Mapping[str, Any]] | None = None
    """Arguments the run itself gives: what nobody who asks, code or agent, has to say or can."""
    refuses: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """Effects: what in these arguments is never an agent's to want, at any level; each as `/place: why`."""
    for_agents: bool = True
    """Queries: False keeps it from agents, which are neither shown it nor answered: it may change things."""
    in_front_of: Callable[..., Any] | None = None
    """The function whose signature tells the arguments, where `perform` only passes them on."""

    @property
    def off_loop(self) -> bool | None:
        """Where a plain function of it is called, as `call` takes it."""
        return True if self.blocking is None and self.kind == "effect" else self.blocking

    def __post_init__(self) -> None:
        if self.timeout is not None and not (checks.is_number(self.timeout) and self.timeout > 0):
            raise checks.refuse(
                f"The timeout of tool '{self.name}'", self.timeout, "a number of seconds above 0"
            )
        if inspect.isgeneratorfunction(self.perform) or inspect.isasyncgenfunction(self.perform):
            raise ConfigurationError(f"Tool '{self.name}' is a generator: calling it would perform nothing.")

    def whole(self, ctx: Any, args: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments with those the run gives."""
        return dict(args) if self.given is None else {**args, **self.given(ctx)}

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments, for agents to read and for their proposals to be checked against."""
        if self.arguments is not None:
            return self.arguments
        from detent.engine.schemas import schema_of_call

        return schema_of_call(self.in_front_of or self.perform, skip=1 if self.wants_call else 0)

    def misfits(self, args: Mapping[str, Any]) -> list[str]:
        """What is wrong with arguments somebody else than our own code wants it called with."""
        from detent.engine.schemas import misfits

        problems = misfits(args, self.schema)
        return problems if problems or self.refuses is None else list(self.refuses(args))

    def check(self, args: Mapping[str, Any]) -> None:
        """Raise `ConfigurationError` unless the tool takes these arguments."""
        if self.wants_context:
            return
        first = (None,) if self.wants_call else ()
        try:
            inspect.signature(self.perform).bind(*first, **args)
        except TypeError as error:
            raise ConfigurationError(f"Tool '{self.name}' cannot be called like this: {error}.") from None
        except ValueError:  # a built-in that tells nothing about itself
            return


def tool(name: str, *, kind: Kind = "effect", **options: Any) -> Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function: `@tool("crm.open_ticket", probe=find_ticket)`."""

    def wrap(function: Callable[..., Any]) -> Tool:
        options.setdefault("description", (function.__doc__ or "").strip().split("\n")[0])
        return Tool(name, function, kind, **options)

    return wrap


def query(name: str, **options: Any) -> Callable[[Callable[..., Any]], Tool]:
    """Make a query of a function: `@query("crm.find_device")`."""
    return tool(name, kind="query", **options)


CALL = "call:"
"""Begins the name of the effect that calls an opaque step's handler."""


def tools_of(module: ModuleType) -> list[Tool]:
    """The tools a module defines."""
    tools = [value for value in vars(module).values() if isinstance(value, Tool)]
    return list({id(tool): tool for tool in tools}.values())


class Toolbox:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            self.add(item)

    def add(self, item: Tool) -> None:
        """Add a tool; a name registered twice is an error."""
        registered = self._tools.get(item.name)
        if registered is not None and registered is not item:
            raise ConfigurationError(f"Two tools are named '{item.name}'.")
        self._tools[item.name] = item

    def get(self, name: str, kind: Kind) -> Tool:
        """The tool of this name and kind, or a `ConfigurationError` that names the nearest."""
        item = self._tools.get(name)
        if item is None:
            names = ", ".join(sorted(self._tools)) or "none"
            raise ConfigurationError(
                f"There is no tool '{name}'.{nearest(name, self._tools)} Tools: {names}."
            )
        if item.kind != kind:
            raise ConfigurationError(f"Tool '{name}' is a {item.kind}, not a {kind}.")
        return item

    def __iter__(self) -> Any:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]


Performer = Callable[..., Awaitable[Any]]
