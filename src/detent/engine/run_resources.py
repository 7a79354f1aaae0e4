"""Resources of a run, such as a kernel or a session with a server: opened when a tool first needs one, closed
when the run is put down here, whether it ends, waits or goes on elsewhere.

A resource is derived: everything about it can be had again from the journal. A worker that takes the run over
opens its own, under a higher epoch; the one it took the run from is refused its resource from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

from detent.engine import logger
from detent.engine.acts import Act, effect_of
from detent.engine.journal_reader import read
from detent.engine.ports import Lease
from detent.engine.tools import Tool, ToolError
from detent.engine.user_errors import message_of
from detent.kernel.entries import EffectDone, Proposed
from detent.kernel.errors import Fenced, StoreError
from detent.kernel.run import Run
from detent.kernel.view import View

CLOSED_WITHIN = 30.0
"""Seconds for closing a resource, after which it is given up."""


class Holder(Protocol):
    """What is needed of a run under way."""

    engine: Any
    flow: Any
    lease: Lease
    log: Any
    run: Run

    @property
    def resources(self) -> RunResources:
        """Its resources."""


class Opening(NamedTuple):
    """What a resource is opened for."""

    run_id: str
    epoch: int
    """Rises whenever a worker takes the run over: whatever was opened under a lower one may be ended."""
    data: View
    """The run's data."""
    performed: Callable[[], Awaitable[list[Act]]]
    """The effects that the run has performed on this resource so far, in order, with their receipts."""


OpenResource: TypeAlias = Callable[[Opening], AbstractAsyncContextManager[Any]]
"""Opens a resource of a run, in the condition in which the run's effects have left it."""


class RunResources:
    """The open resources of one run under way."""

    __slots__ = ("_lock", "_open", "_work")

    def __init__(self, work: Holder) -> None:
        self._work = work
        self._open: dict[str, _Hosted] = {}
        self._lock: asyncio.Lock | None = None

    @property
    def any_open(self) -> bool:
        """Whether there is something to close."""
        return bool(self._open)

    async def get(self, name: str, *, anew: bool = False) -> Any:
        """The resource of this name, opened if it is not; `anew` closes it first.

        Raises:
            Fenced: another worker has taken the run over.
            ToolError: it cannot be opened, so nothing was done with it.
        """
        await self._check_ours()
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            hosted = self._open.get(name)
            if hosted is not None and (anew or hosted.over):
                del self._open[name]
                await hosted.close()
                hosted = None
            if hosted is None:
                hosted = _Hosted(name, self._work.flow.resources[name](self._opening(name)))
                try:
                    await hosted.opened
                except StoreError:
                    raise
                except Exception as error:
                    message = f"'{name}' cannot be opened: {type(error).__name__}: {message_of(error)}"
                    raise ToolError("resource", message, transient=True) from error
                self._open[name] = hosted
            return hosted.value

    async def _check_ours(self) -> None:
        """Ask the store whose the run is: a resource, unlike a journal, does not refuse a stale worker."""
        lease = self._work.lease
        row = await self._work.engine.store.row(lease.run_id)
        if row.epoch != lease.epoch:
            raise Fenced(lease.run_id, lease.epoch, row.seq)

    def _opening(self, name: str) -> Opening:
        work = self._work
        return Opening(work.run.id, work.lease.epoch, View(work.run.whole), lambda: self._performed(name))

    async def _performed(self, name: str) -> list[Act]:
        work, acts = self._work, []
        tools = {tool.name for tool in work.flow.tools if tool.resource == name}
        asked: dict[str, Mapping[str, Any]] = {}
        async for entry in read(work.engine.store, work.run.id):
            body = entry.body
            if isinstance(body, Proposed):
                asked = {item["key"]: item for item in body.effects}
            elif isinstance(body, EffectDone) and body.tool in tools and body.how != "reused":
                effect = await effect_of({"tool": body.tool, **asked.get(body.key, {})}, work.log.blob)
                acts.append(Act(body.key, effect, {"receipt": body.receipt}))
        return acts

    async def close(self) -> None:
        """Close what is open, the last first; a failure to close one does not stop the others."""
        hosts, self._open = list(self._open.values()), {}
        for hosted in reversed(hosts):
            await hosted.close()


class _Hosted:
    """A resource in a task of its own, which opens and closes it: many cannot be closed by another task."""

    def __init__(self, name: str, manager: AbstractAsyncContextManager[Any]) -> None:
        self._name = name
        self._manager = manager
        self._closing = asyncio.Event()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.value: Any = None
        self._task = asyncio.create_task(self._host(), name=f"resource {name}")

    @property
    def over(self) -> bool:
        """Whether it was closed, or has ended by itself."""
        return self._task.done()

    async def _host(self) -> None:
        try:
            async with self._manager as self.value:
                self.opened.set_result(None)
                await self._closing.wait()
        except Exception as error:
            if not self.opened.done():
                self.opened.set_exception(error)
                return
            logger.error("resource.close_failed", resource=self._name, error=type(error).__name__)
        finally:
            self.opened.cancel()

    async def close(self) -> None:
        self._closing.set()
        _, late = await asyncio.wait({self._task}, timeout=CLOSED_WITHIN)
        if late:
            logger.error("resource.close_failed", resource=self._name, error="TimeoutError")
            self._task.cancel()


async def resource_of(work: Holder, tool: Tool, *, anew: bool = False) -> tuple[Any, ...]:
    """The resource that a tool works on, as its argument; nothing for a tool without one."""
    return () if tool.resource is None else (await work.resources.get(tool.resource, anew=anew),)
