"""Tools: the named queries that steps may make and the effects they may propose.

A query only reads; it may be called while deciding and is remembered for the attempt. An effect is
performed by the engine through the ledger. How it can be settled after a crash is declared here: a probe,
idempotence, or neither.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any, Literal, NamedTuple

from detent.engine.user_errors import message_of
from detent.kernel import checks
from detent.kernel.errors import ConfigurationError, DetentError, nearest
from detent.kernel.ids import guessed_root
from detent.kernel.plain import to_plain
from detent.kernel.policy import USUAL, BreakerPolicy, RetryPolicy

Kind = Literal["query", "effect"]


def _unseen(done: float | None = None, of: float | None = None, text: str = "") -> None:
    """Nobody watches."""


async def _unkept(**facts: Any) -> None:
    """There is no journal."""


class EffectCall(NamedTuple):
    """Facts about the call that a tool serves."""

    run_id: str
    key: str
    """Identity of the effect within its run."""
    attempt: int
    origin: str = ""
    """For a fork and its descendants: the root of the runs it came from."""
    by: str = "handler"
    """Who proposed the effect: the step's `handler`, or an `agent`."""
    top: str = ""
    """The root of this run's tree; empty if the id tells it."""
    progress: Callable[..., None] = _unseen
    """`call.progress(done, of, text)` shows how far it has come to those who watch; it is not journaled."""
    begun: Callable[..., Awaitable[None]] = _unkept
    """`await call.begun(pid=…)` journals facts about the effect before it goes on, for `Tool.stop`."""
    intent: Mapping[str, Any] = MappingProxyType({})
    """Facts that an earlier call of the effect, in a worker that died, has journaled; for `stop`, `probe`."""

    @property
    def family(self) -> str:
        """The root of this run's tree, under whose id a tool keeps data of this tree alone."""
        return self.top or guessed_root(self.run_id)

    @property
    def root(self) -> str:
        """The run under whose id a tool keeps data for rollbacks, shared by a tree and its forks."""
        return self.origin or self.family

    @property
    def idempotency_key(self) -> str:
        """A key for this effect of this run, the same on every attempt, for services that deduplicate."""
        return f"{self.run_id}:{self.key}"


class ToolError(DetentError):
    """A tool reports that its effect did **not** happen.

    Any other exception leaves an effect in doubt: it may have happened.
    """

    def __init__(
        self, code: str, message: str = "", *, transient: bool = False, of_call: bool = False
    ) -> None:
        """`of_call`: the fault is in what was asked for, such as one recipient; the service itself works."""
        self.code = str(code)
        self.message = str(message) if message else self.code
        self.transient = bool(transient)
        self.of_call = bool(of_call)
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
    """Effects: takes the same arguments; returns the receipt if it happened, NOT_DONE, or UNKNOWN."""
    idempotent: bool = False
    """Effects: performing twice is the same as once."""
    rebuild: Callable[..., Any] | None = None
    """Effects on a resource of the run: takes the `EffectCall` and brings the resource back to what it was
    before the effect, which is then performed again. A `resource` is opened anew first."""
    stop: Callable[..., Any] | None = None
    """Effects: takes the `EffectCall` of an effect in doubt, with its `intent`, and ends what is left of it;
    asked before anything else is done about it. One that raises leaves it to a person."""
    resource: str | None = None
    """The resource of the run, declared by the flow, that it works on: its next argument, before those by
    name. `probe` and `rebuild` get it too."""
    wants_call: bool = False
    """The first argument is an `EffectCall`, which has the effect's key."""
    probe_wants_call: bool = False
    """The probe takes the `EffectCall` first too. A probe by arguments alone cannot tell a second equal
    effect from the first one, so such an effect in doubt is not probed."""
    wants_context: bool = False
    """The step's context is the only argument: for calling an opaque step's own handler."""
    retry: RetryPolicy = USUAL
    timeout: float | None = None
    breaker: BreakerPolicy | None = None
    private: bool = False
    """Kept out of the journal: a query leaves hashes there, an effect a blob of its arguments."""
    description: str = ""
    blocking: bool | None = None
    """Where a plain `def` is called: True in a thread; False on the event loop, which it must not block.
    None: effects and probes in a thread, queries only until they have proved to be quick."""
    arguments: Mapping[str, Any] | None = None
    """JSON Schema of its arguments; None reads it from the function's signature."""
    given: Callable[[Any], Mapping[str, Any]] | None = None
    """Arguments supplied by the run, which neither code nor agent passes or can change."""
    refuses: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """Effects: problems of arguments that agents may never propose, at any level, as `/place: why`."""
    preview: Callable[..., Any] | None = None
    """Effects: takes the same arguments; returns the text, such as a diff, that a person is shown before
    confirming it. A `ToolError` says that it cannot be done: it fails at once, and nobody is asked."""
    confirm: str | Callable[..., str | None] | None = None
    """Effects: the question that a person answers before it is performed, whoever asks for it. A function
    takes the same arguments, and gives None where nobody need be asked. It cannot be proposed: a step
    performs it (`ctx.perform`) and sees what the person has decided."""
    prose: tuple[str, ...] = ()
    """Effects: the arguments that are text for people. Every step that may propose it has them as prose,
    unless the step declares its own."""
    for_agents: bool = True
    """Queries: False hides it from agents and refuses their calls, because it may have side effects."""
    in_front_of: Callable[..., Any] | None = None
    """The function whose signature declares the arguments, if `perform` only passes them on."""

    @property
    def off_loop(self) -> bool | None:
        """Where a plain function is called, as the argument of `call`."""
        return True if self.blocking is None and self.kind == "effect" else self.blocking

    def __post_init__(self) -> None:
        if self.timeout is not None and not (checks.is_number(self.timeout) and self.timeout > 0):
            raise checks.refuse(
                f"The timeout of tool '{self.name}'", self.timeout, "a number of seconds above 0"
            )
        if isinstance(self.prose, str):
            raise checks.refuse(f"`prose` of tool '{self.name}'", self.prose, "a list of arguments")
        if inspect.isgeneratorfunction(self.perform) or inspect.isasyncgenfunction(self.perform):
            raise ConfigurationError(f"Tool '{self.name}' is a generator: calling it would perform nothing.")

    @property
    def _leading(self) -> int:
        """How many arguments come before those by name: the call, the resource."""
        return self.wants_call + (self.resource is not None)

    def whole(self, ctx: Any, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with those supplied by the run."""
        return dict(args) if self.given is None else {**args, **self.given(ctx)}

    def normal(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as plain values, with the tool's defaults for those left out.

        Two calls that would do the same thing have the same normal form.
        """
        return {**_defaults(self), **to_plain(dict(args))}

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments, shown to agents and used to check their proposals."""
        if self.arguments is not None:
            return self.arguments
        from detent.engine.schemas import schema_of_call

        return schema_of_call(self.in_front_of or self.perform, skip=self._leading)

    def misfits(self, args: Mapping[str, Any]) -> list[str]:
        """Problems of arguments that an agent proposes."""
        from detent.engine.schemas import misfits

        problems = misfits(args, self.schema)
        return problems if problems or self.refuses is None else list(self.refuses(args))

    def question(self, args: Mapping[str, Any]) -> str | None:
        """What a person is asked before it is performed with these arguments; None: nobody is."""
        if not callable(self.confirm):
            return self.confirm
        try:
            return self.confirm(**args)
        except Exception as error:
            if not self.private:
                raise
            raise ConfigurationError(f"'confirm' of '{self.name}' failed: {type(error).__name__}.") from None

    def told(self, error: BaseException | None) -> str:
        """The text of an error of the tool; of a private one only the type, since it may quote arguments."""
        return type(error).__name__ if self.private else message_of(error)

    @property
    def receipt_fields(self) -> frozenset[str]:
        """The fields that its receipts are declared to have, by the return annotation of its function."""
        from detent.engine.schemas import fields_returned

        return fields_returned(self.in_front_of or self.perform)

    def check(self, args: Mapping[str, Any]) -> None:
        """Raise `ConfigurationError` unless the tool takes these arguments."""
        if self.wants_context:
            return
        first = (None,) * self._leading
        try:
            _signature(self.perform).bind(*first, **args)
        except TypeError as error:
            raise ConfigurationError(f"Tool '{self.name}' cannot be called like this: {error}.") from None
        except ValueError:  # a built-in without a signature
            return


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """A function's signature, read once; raises what `inspect.signature` raises."""
    try:
        return _read_signature(function)
    except TypeError:  # not hashable
        return inspect.signature(function)


_read_signature = lru_cache(maxsize=1024)(inspect.signature)


def _defaults(tool: Tool) -> dict[str, Any]:
    """The defaults of a tool's arguments that are plain values."""
    if tool.arguments is not None:
        properties = tool.arguments.get("properties")
        parts = properties.items() if isinstance(properties, Mapping) else ()
        return {
            name: part["default"] for name, part in parts if isinstance(part, Mapping) and "default" in part
        }
    defaults: dict[str, Any] = {}
    try:
        parameters = _signature(tool.in_front_of or tool.perform).parameters
    except (TypeError, ValueError):  # a built-in without a signature
        return defaults
    for name, parameter in parameters.items():
        if parameter.default is not parameter.empty:
            with contextlib.suppress(TypeError, ValueError):
                defaults[name] = to_plain(parameter.default)
    return defaults


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
"""Prefix of the effect that calls an opaque step's handler."""


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
            is_not = "a query, not an effect" if kind == "effect" else "an effect, not a query"
            raise ConfigurationError(f"Tool '{name}' is {is_not}.")
        return item

    def __iter__(self) -> Any:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]


Performer = Callable[..., Awaitable[Any]]
