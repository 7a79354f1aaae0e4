"""A step: the work done in a state. Ordinary code first; an intent says what it is for.

What an agent needs to do the same work stands beside the handler: the contract its answer must keep,
examples, how facts become an outcome. Who performs the step is not said here; see `dispatch`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.engine.calls import Pace, in_thread, pace_of, paced
from detent.engine.step_failures import TRANSIENT
from detent.engine.user_errors import failure
from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import ONCE, BreakerPolicy, RetryPolicy

Handler = Callable[[Any], Any]
"""Takes the `StepContext`; sync or async."""


WAITS = "waits"
"""Key of a step's metadata: what it is for, where it waits for a person or the clock. Such a step has no
intent, since no agent can answer in their place."""
UNKNOWN_TOOLS = "unknown_tools"
"""Key of a step's metadata: its code is not loaded, so that nobody knows which tools it declares."""


@dataclass(frozen=True, slots=True)
class Step:
    """Handler, intent and rules of one state's work."""

    name: str
    handler: Handler
    intent: str = ""
    timeout: float | None = None
    """Seconds for one attempt."""
    retry: RetryPolicy = ONCE
    """Attempts at transient failures."""
    retry_on: tuple[type[BaseException], ...] = TRANSIENT
    breaker: BreakerPolicy | None = None
    effects: tuple[str, ...] | None = None
    """Tools it may propose; None means any the flow has."""
    queries: tuple[str, ...] | None = None
    """Tools it may ask; None means any the flow has."""
    blocking: bool | None = None
    """Where a plain `def` handler is called: True always in a thread, so that other runs go on; False always
    on the event loop, which it must not hold up. None: in a thread until it has shown to be quick."""
    metadata: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[Any], Any] | tuple[str, ...] | None = None
    """What the step works on, as an agent gets it: keys of the run's data, or a function, sync or async, that
    gives a mapping. None: all data."""
    output_schema: Any = None
    """The hard contract of the output: a dataclass, TypedDict or model class, or a JSON Schema."""
    conclude: Callable[[Any, Any], Any] | None = None
    """Makes an outcome of the output, whoever gave it: facts in, decision out."""
    into: str | None = None
    """Key of the run's data that takes the output; None spreads a mapping over the data."""
    next: tuple[str, ...] | None = None
    """States it may lead to; None means all the table lists."""
    validator: Callable[[Mapping[str, Any], Any], Any] | None = None
    """Checks an agent's proposal in place of a comparison with the handler: `(inputs, proposal)` to a
    `Verdict`, a truth value, or `(ok, reasons)`; sync or async."""
    compare: Any = None
    """`CompareRules`: what may differ between two outputs that count as equal."""
    examples: Sequence[tuple[Any, ...]] = ()
    """Worked examples: `(inputs, output)` or `(inputs, output, note)`."""
    max_autonomy: str | None = None
    """Advice: how far an agent should be trusted at most."""
    config: Any = None
    """Its own layer of configuration, the strongest: a `StepConfig`, or a mapping of its keys."""
    agent: Any = None
    """What its kind of flow declares beyond that for agents: an `AgentSide` of `detent.dispatch`."""
    opaque: bool = False
    """The handler acts on the world itself: calling it is an effect, performed once through the ledger."""
    repeatable: bool = False
    """Opaque: calling the handler twice is the same as once, so a call in doubt is made again."""
    before: Callable[[Any], Any] | None = None
    """Asked first, whoever performs the step, sync or async: None goes on; an outcome stands in place of the
    work; one of `instead` is performed in its place."""
    instead: tuple[Step, ...] = ()
    """Steps that may be performed in this one's state."""
    is_async: bool = field(init=False, default=False)
    """The handler is a coroutine function, as most are."""
    pace: Pace | None = field(init=False, default=None)
    """How quick a plain handler that only computes has shown to be."""
    straight: bool = field(init=False, default=False)
    """What the handler gives back is the outcome, with nothing in between."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "is_async", inspect.iscoroutinefunction(self.handler))
        put(self, "pace", pace_of(self.handler))
        put(self, "straight", self.conclude is None and self.into is None and not self.opaque)
        for name in ("effects", "queries", "next", "inputs"):
            if isinstance(value := getattr(self, name), list):
                put(self, name, tuple(value))
        put(self, "examples", tuple(self.examples))
        if self.opaque and self.into is None and self.conclude is None:
            raise ConfigurationError(
                f"Step '{self.name}' is opaque: its output is known only after it was called. "
                f"Say with `into` which key of the data takes it, or with `conclude` what follows from it."
            )

    async def call(self, ctx: Any) -> Any:
        """Have the handler decide, whatever kind of function it is."""
        try:
            if self.is_async:
                return await self.handler(ctx)
            if self.blocking is None:
                value = await paced(self.pace, self.handler, ctx)
            else:
                value = await in_thread(self.handler, ctx) if self.blocking else self.handler(ctx)
            return await value if isinstance(value, Awaitable) else value
        except Exception:
            raise
        except BaseException as error:
            if (failed := failure(error)) is None:
                raise
            raise failed from error

    @classmethod
    def of(cls, name: str, value: Any) -> Step:
        """A step from a Step or a bare handler, whose docstring's first line becomes the intent."""
        if isinstance(value, cls):
            return value
        if not callable(value):
            raise TypeError(f"Step '{name}' is {value!r}, which is neither a Step nor a function.")
        intent = (getattr(value, "__doc__", None) or "").strip().split("\n")[0]
        return cls(name, value, intent)
