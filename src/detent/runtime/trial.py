"""Single-step runs: one step performed on given data, its effects shown and not performed, nothing stored."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from detent.authoring.names import unique_match
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.tools import Tool, Toolbox
from detent.insight.formatting import receipts_named
from detent.kernel.budget import Budget
from detent.kernel.entries import Entry, Moved, Proposed
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.run import Run

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.engine.ports import Store


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a single-step run."""

    step: str
    next: str | None = None
    """The state it leads to; None if it waits, failed, or the next state depends on a receipt."""
    reason: str | None = None
    by: str = "handler"
    changes: Mapping[str, Any] | None = None
    queries: tuple[Mapping[str, Any], ...] = ()
    """The queries it made: `tool`, `args`, `answer`."""
    effects: tuple[Mapping[str, Any], ...] = ()
    """The effects it proposes: `tool`, `args`. None of them was performed."""
    question: str | None = None
    error: str | None = None
    text: str = ""
    """Further text to show."""

    @property
    def title(self) -> str:
        """The step and who performed it."""
        return f"{self.step}   {self.by}"

    def fields(self) -> list[tuple[str, str]]:
        """The result as names and values for people."""
        following = self.next or ("waits" if self.question else "not known before the effects are done")
        return [
            ("next", following if self.error is None else "none"),
            ("reason", self.reason or ""),
            ("error", self.error or ""),
            ("question", self.question or ""),
            *((f"set {key}", shown_value(value)) for key, value in (self.changes or {}).items()),
            *(
                (
                    f"asked {call['tool']}",
                    f"{shown_value(call.get('args'))} → {shown_value(call.get('answer'))}",
                )
                for call in self.queries
            ),
            *(
                (f"proposed {call['tool']}", f"{shown_value(call['args'])}   (not performed)")
                for call in self.effects
            ),
        ]

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "step": self.step, "next": self.next, "reason": self.reason, "by": self.by,
            "changes": dict(self.changes or {}), "queries": list(self.queries),
            "effects": list(self.effects), "question": self.question, "error": self.error,
        }  # fmt: skip


def shown_value(value: Any) -> str:
    """A value for people, in one line; a part of a receipt that is still to come is named."""
    shown = receipts_named(value)
    is_receipt = shown is not value and isinstance(shown, str)
    return str(shown) if is_receipt else json.dumps(shown, ensure_ascii=False)


class Rehearsal:
    """A copy of a flow whose effects are not performed: the first effect stops the run."""

    def __init__(self, flow: Flow) -> None:
        self.proposed = asyncio.Event()
        self.flow = copy.copy(flow)
        self.flow.tools = Toolbox(self._noted(tool) for tool in flow.tools)

    def _noted(self, tool: Tool) -> Tool:
        if tool.kind != "effect":
            return tool

        @wraps(tool.perform)
        async def note(*_: Any, **__: Any) -> None:
            self.proposed.set()
            await asyncio.Event().wait()

        return replace(tool, perform=note, blocking=False, timeout=None, breaker=None)

    async def entries(
        self, store: Store, at: Any, data: Mapping[str, Any], dispatch: DispatchSettings | None = None
    ) -> list[Entry]:
        """The journal of a run that starts in a state and stops at what its step proposes."""
        from detent.engine.engine import Engine

        async with Engine(store, [self.flow], dispatch=dispatch or DispatchSettings()) as engine:
            run_id = await engine.start(self.flow, dict(data), at=at, budget=Budget(steps=1))
            await self._until_decided(engine.finish(run_id))
            entries = await engine.store.entries(run_id, 0, 10_000)
            await engine.stop(0)
        return list(entries)

    async def _until_decided(self, finish: Any) -> None:
        """Wait until the step proposes an effect, or the run ends or waits."""
        work = asyncio.ensure_future(finish)
        proposed = asyncio.ensure_future(self.proposed.wait())
        try:
            await asyncio.wait({work, proposed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, proposed):
                task.cancel()
            done = await asyncio.gather(work, proposed, return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]


async def try_step(
    flow: Flow, step: str, data: Mapping[str, Any], *, dispatch: DispatchSettings | None = None
) -> Trial:
    """Perform one step of a flow, by its name or a unique beginning of it, on the given data.

    Queries are made; effects are recorded, not performed.

    Raises:
        ConfigurationError: the flow has no such step.
    """
    from detent.adapters.stores.memory import MemoryStore

    names = list(flow.steps)
    named = unique_match(step, names)
    if named is None:
        known = ", ".join(names)
        raise ConfigurationError(
            f"Flow '{flow.name}' has no step '{step}'.{nearest(step, names)} Steps: {known}."
        )
    step = named
    entries = await Rehearsal(flow).entries(MemoryStore(), step, data, dispatch)
    run = Run("")
    for entry in entries:
        body = entry.body
        if isinstance(body, Proposed):
            outcome = body.outcome
            effects = tuple({"tool": effect["tool"], "args": effect["args"]} for effect in body.effects)
            return Trial(
                step, outcome.get("next"), outcome.get("reason"), body.by, outcome.get("set"),
                tuple(body.looked), effects,
            )  # fmt: skip
        if isinstance(body, Moved):
            failed = body.by == "engine"  # nobody else decides for a step that failed
            error = str(body.detail.get("error") or body.reason) if failed else None
            looked = tuple(body.looked)
            return Trial(step, body.to, body.reason, body.by, body.set, looked, error=error)
        run.apply(entry)
    question = next((hold.question or name for name, hold in run.holds.items()), None)
    return Trial(step, reason=run.reason, question=question, error=run.error)
