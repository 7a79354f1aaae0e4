"""Says which steps no agent can be asked for: before a command begins, and at its end, with what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, warn
from detent.insight.formatting import count
from detent.insight.why import fallback_of

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.kernel.entries import Entry
    from detent.runtime.settings import Settings

NO_EXECUTOR = "no_executor"
"""Reason of a fallback when no agent could be asked."""
MOST_NAMED = 5
"""Steps that are listed."""


class UnusedAgents:
    """Observes runs for steps in agent mode whose agent could not be asked."""

    def __init__(self) -> None:
        self.steps: Counter[tuple[str, str]] = Counter()
        """How often, by step and reason."""

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Note a step that code performed because there was no agent to ask."""
        if entry.kind not in ("moved", "ended"):
            return
        body: Any = entry.body
        fallback = fallback_of(body.detail)
        if fallback is None or fallback.get("fallback_reason") != NO_EXECUTOR:
            return
        error = fallback.get("agent_error")
        why = error.get("message") if isinstance(error, Mapping) else error
        step = fallback.get("step") or f"{flow}/{getattr(body, 'frm', '')}"
        self.steps[(str(step), str(why or "no model can be asked"))] += 1

    def lines(self, command: Callable[..., str]) -> list[str]:
        """The notice, empty if there is nothing to say; `command` writes a command out for people."""
        if not self.steps:
            return []
        times = [
            f"  {clean(step)}: {clean(why)}{f' ({number:,} times)' if number > 1 else ''}"
            for (step, why), number in self.steps.items()
        ]
        left_out = len(times) - MOST_NAMED
        more = [f"  … and {left_out:,} more"] if left_out > 0 else []
        first = next(step for step, _ in self.steps)
        steps = count(len({step for step, _ in self.steps}), "step")
        return [
            f"No agent could be asked, so code performed {steps} that an agent should perform:",
            *times[:MOST_NAMED],
            *more,
            "Supply what is missing, or set the step to mode: deterministic. Its settings: "
            + command("steps", "show", first),
        ]


@contextmanager
def telling(command: Callable[..., str], engine: Engine) -> Iterator[None]:
    """Print the notice for all runs that the engine drives, once, at the end."""
    unused = UnusedAgents()
    engine.add_observer(unused)
    try:
        yield
    finally:
        for line in unused.lines(command):
            warn(line)


async def check(settings: Settings, engine: Engine, flows: Iterable[Flow], *, forced: bool = False) -> None:
    """Say which models of these flows cannot be asked.

    Raises:
        IntegrationMissing: the settings require them (`require_model: true`).
    """
    from detent.dispatch.dispatcher import dispatcher_of
    from detent.runtime.model_check import check_models, uses_of

    tape = engine.active.tape
    if forced or (tape is not None and tape.plays):
        return
    planner = dispatcher_of(engine)
    for model in await check_models(settings, planner, uses_of(planner, flows)):
        warn(clean(model.notice))
