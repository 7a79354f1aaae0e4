"""What a step gets to see and may ask for while it decides."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine.outcome import Effect, Receipt
from detent.engine.ports import Blob
from detent.engine.step import Step, Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import NOTHING, Budget, Spend
from detent.kernel.entries import Noted, Recorded, Tagged
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import canonical, copied, encode, to_plain
from detent.kernel.view import View, view

if TYPE_CHECKING:
    from detent.engine.children import Child
    from detent.engine.driver import Driver

LONGEST_KEPT = 2000
"""Characters of a query's answer kept in the journal as they are; longer ones are kept as a hash."""


class StepContext:
    """A step's view of its run, and its way to queries, children, durable answers and remarks."""

    __slots__ = ("_driver", "_memo", "attempt", "looked", "proposed", "step")

    def __init__(self, driver: Driver, step: Step, attempt: int) -> None:
        self._driver = driver
        self._memo: dict[str, Any] | None = None
        self.step = step
        self.attempt = attempt
        """1 for the first try of this visit."""
        self.looked: Sequence[dict[str, Any]] = ()
        """Queries asked so far, as the journal keeps them."""
        self.proposed: Sequence[Effect] = ()

    # -- looking --------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._driver.run.id

    @property
    def flow(self) -> str:
        """Name of the flow."""
        return self._driver.flow.name

    @property
    def state(self) -> str:
        """Name of the state whose step this is."""
        return self._driver.run.state

    @property
    def data(self) -> View:
        """The run's data, read-only; by key or by attribute."""
        return View(self._driver.run.data)

    @property
    def config(self) -> View:
        """Settings the run was started with."""
        return View(self._driver.run.config)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the run."""
        return tuple(self._driver.run.tags)

    @property
    def visit(self) -> int:
        """1 when the run is in this state for the first time."""
        return self._driver.run.visits.get(self.state, 0) + 1

    @property
    def iterations(self) -> int:
        """Iterations begun so far, as the flow counts them."""
        return self._driver.run.iterations

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The effect of this step that failed for good, when the step is asked once more because of it."""
        failure = self._driver.run.failure
        return None if failure is None else View(failure)

    def answered(self, name: str = "hold") -> bool:
        """True when the hold of this name has been answered in this visit."""
        return name in self._driver.run.answers

    def answer(self, name: str = "hold", default: Any = None) -> Any:
        """The answer to a hold asked in this visit, or `default` while there is none."""
        return view(self._driver.run.answers.get(name, default))

    def now(self) -> float:
        """Seconds since the epoch, on the engine's clock."""
        return self._driver.clock.now()

    @property
    def used(self) -> dict[str, float]:
        """What the run and its children have used so far: tokens, cost_usd, steps, seconds."""
        return self._driver.used()

    @property
    def budget(self) -> Budget | None:
        """The run's budget."""
        return self._driver.run.budget

    # -- asking ---------------------------------------------------------------------------------------------

    async def query(self, tool: str, /, **args: Any) -> Any:
        """Ask a read-only tool. The same question in the same attempt is asked once."""
        if self.step.queries is not None and tool not in self.step.queries:
            allowed = ", ".join(self.step.queries) or "none"
            raise ConfigurationError(f"Step '{self.step.name}' may not query '{tool}'. Allowed: {allowed}.")
        found = self._driver.flow.tools.get(tool, "query")
        plain = to_plain(args)
        key = canonical([tool, plain])
        memo = self._memo = self._memo if self._memo is not None else {}
        if key not in memo:
            memo[key] = asyncio.ensure_future(self._ask(found, plain))
        try:
            answer = await memo[key]
        except Exception:
            memo.pop(key, None)
            raise
        return copied(answer)

    async def _ask(self, tool: Tool, args: dict[str, Any]) -> Any:
        breakers, name = self._driver.engine.breakers, f"tool/{tool.name}"
        if tool.breaker is not None and await breakers.open_until(name, tool.breaker) is not None:
            raise ToolError(
                "breaker_open", f"'{tool.name}' failed too often and is left alone", transient=True
            )
        try:
            async with asyncio.timeout(tool.timeout):
                answer = to_plain(await call(tool.perform, tool.blocking, **args))
        except Exception as error:
            if tool.breaker is not None and not (isinstance(error, ToolError) and not error.transient):
                await breakers.failed(name, tool.breaker)
            self.looked = [*self.looked, _line(tool, args, {"$error": type(error).__name__})]
            if isinstance(error, ToolError) and error.transient:
                raise Transient(str(error)) from error
            raise
        if tool.breaker is not None:
            await breakers.succeeded(name)
        self.looked = [*self.looked, _line(tool, args, answer)]
        return answer

    async def once(
        self, key: str, work: Callable[[], Any], *, spend: Callable[[Any], Spend] | None = None
    ) -> Any:
        """An answer that must not be paid for twice: asked once per visit of the state, kept in the journal.

        After a crash the kept answer is given back without calling `work`.
        """
        memo = self._memo = self._memo if self._memo is not None else {}
        while key not in self._driver.run.records:
            asking = memo.get(f"once {key}")  # no mix-up with queries, whose keys are JSON lists
            if asking is None:
                asking = memo[f"once {key}"] = asyncio.ensure_future(self._record(key, work, spend))
            try:
                await asking
            finally:
                memo.pop(f"once {key}", None)
        return copied(self._driver.run.records[key])

    async def _record(self, key: str, work: Callable[[], Any], spend: Callable[[Any], Spend] | None) -> None:
        # A worker that slept through a take-over must not pay for what another has paid for meanwhile.
        await self._driver.confirm()
        value = to_plain(await call(work))
        await self._driver.commit_whole(Recorded(key, value, spend(value) if spend is not None else NOTHING))

    def propose(self, tool: str, /, *, effect_key: str | None = None, **args: Any) -> Receipt:
        """Ask for an effect, performed once the outcome is accepted; gives a stand-in for its receipt."""
        effect = Effect(tool, args, effect_key)
        self.proposed = [*self.proposed, effect]
        return Receipt(effect.identity(self.step.name))

    async def child(self, flow: str, data: Any = None, *, key: str, **options: Any) -> Child:
        """Run a child run with id `<this run>.<key>` to its end and give its result.

        Asked again for the same key (after a crash, or a wait), it gives the same child's result.
        """
        (result,) = await self.children([(key, data)], flow=flow, **options)
        return result

    async def children(
        self,
        items: Iterable[tuple[str, Any]],
        *,
        flow: str,
        limit: int | None = None,
        stop_on_failure: bool = False,
        **options: Any,
    ) -> list[Child]:
        """Run many children, at most `limit` side by side; results in the order of `items`."""
        from detent.engine.children import run_children

        return await run_children(self._driver, flow, list(items), limit, stop_on_failure, **options)

    # -- saying ---------------------------------------------------------------------------------------------

    async def note(self, topic: str, spend: Spend = NOTHING, **body: Any) -> None:
        """Leave a remark in the journal."""
        await self._driver.commit_whole(Noted(topic, to_plain(body), spend))

    async def tag(self, *add: str, remove: Sequence[str] = ()) -> None:
        """Put tags on the run, or take them off."""
        await self._driver.commit_whole(Tagged(list(add), list(remove)))

    def keep(self, body: bytes | str) -> dict[str, Any]:
        """Keep a large or private value beside the journal; gives the reference to put into data."""
        raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
        blob = Blob(hashlib.sha256(raw).hexdigest(), raw)
        self._driver.keep(blob)
        return {"$blob": blob.hash, "size": len(raw)}

    async def kept(self, reference: Mapping[str, Any]) -> bytes | None:
        """The kept value, or None when it was purged."""
        return await self._driver.blob(reference["$blob"])


def _line(tool: Tool, args: dict[str, Any], answer: Any) -> dict[str, Any]:
    """What the journal keeps of a query."""
    return {"tool": tool.name, "args": brief(args, tool.private), "answer": brief(answer, tool.private)}


def brief(value: Any, private: bool = False) -> Any:
    """A plain value as the journal keeps it: itself when short and not private, else its hash and size."""
    text = encode(value)
    if not private and len(text) <= LONGEST_KEPT:
        return value
    return {"$hash": hashlib.sha256(text.encode()).hexdigest()[:16], "size": len(text)}


async def call(function: Callable[..., Any], blocking: bool = False, /, *args: Any, **kwargs: Any) -> Any:
    """Call a sync or async function; a blocking sync one in a thread."""
    if blocking and not inspect.iscoroutinefunction(function):
        result = await asyncio.to_thread(function, *args, **kwargs)
    else:
        result = function(*args, **kwargs)
    if isinstance(result, Awaitable):
        result = await result
    return result
