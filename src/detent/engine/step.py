"""A step: the work done in a state. Ordinary code first; an intent says what it is for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detent.kernel.errors import DetentError
from detent.kernel.policy import ONCE, BreakerPolicy, RetryPolicy

if TYPE_CHECKING:
    from detent.engine.context import StepContext

Handler = Callable[["StepContext"], Any]


class Transient(DetentError):
    """Raised by a handler or query: it failed, but trying again may help."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        """Seconds to wait at least, when whoever failed said so."""
        super().__init__(message)


TRANSIENT: tuple[type[BaseException], ...] = (Transient, TimeoutError, ConnectionError)


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
    blocking: bool = False
    """A sync handler that waits for something: run in a thread so that other runs go on."""
    metadata: dict[str, Any] = field(default_factory=dict)
    is_async: bool = field(init=False, default=False)
    """The handler is a coroutine function, as most are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.handler))

    async def call(self, ctx: StepContext) -> Any:
        """Have the handler decide, whatever kind of function it is."""
        if self.is_async:
            return await self.handler(ctx)
        value = await asyncio.to_thread(self.handler, ctx) if self.blocking else self.handler(ctx)
        return await value if isinstance(value, Awaitable) else value

    @classmethod
    def of(cls, name: str, value: Any) -> Step:
        """A step from a Step or a bare handler, whose docstring's first line becomes the intent."""
        if isinstance(value, cls):
            return value
        if not callable(value):
            raise TypeError(f"Step '{name}' is {value!r}, which is neither a Step nor a function.")
        intent = (getattr(value, "__doc__", None) or "").strip().split("\n")[0]
        return cls(name, value, intent)
