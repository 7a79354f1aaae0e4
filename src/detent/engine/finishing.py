"""What a flow has performed when its runs end, however they end: succeeded, failed, out of budget, cancelled.

The entry that would end the run is kept in a proposal with the effects of the flow's `at_end`. They are
performed through the ledger like those of a step, also by a worker that takes the run over, and then the run
ends as it was going to. Nothing here waits or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine import logger
from detent.engine.moves import END
from detent.engine.offloaded import blob_of, kept_beside
from detent.engine.outcome import Effect
from detent.engine.placeholders import written
from detent.engine.ports import Blob
from detent.engine.user_errors import failure, message_of
from detent.kernel.effect_key import effect_key
from detent.kernel.entries import (
    AT_END,
    AT_END_FAILED,
    Body,
    Ended,
    Moved,
    Noted,
    Proposed,
    Released,
    body_to_plain,
)
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import encode, writable
from detent.kernel.run import Run
from detent.kernel.status import Status
from detent.kernel.view import View

if TYPE_CHECKING:
    from detent.engine.flow import Flow


class Ending(NamedTuple):
    """How a run is about to end."""

    run_id: str
    status: Status
    state: str
    """The end state, or the state the run stays in."""
    reason: str | None
    data: View
    """The run's data as it ends."""
    by: str
    """Who ends it: handler, agent, person, engine."""


AtEnd = Callable[[Ending], Iterable[Any]]
"""From how a run ends to the effects to be performed before it does; called once for each end."""


def is_finishing(run: Run) -> bool:
    """Whether a run performs what its flow wants done at the end."""
    return run.proposal is not None and END in run.proposal.outcome


def finishing(flow: Flow, run: Run, bodies: Sequence[Body], keep: Callable[[Blob], None]) -> Sequence[Body]:
    """Entries that do not end the run yet, if its flow wants effects performed first; others as they are.

    If `at_end` raises, or asks for an effect that cannot be performed, none of its effects is performed, and
    a note is added to the entries.
    A run that is finishing already ends at once: it is cancelled again by someone who will not wait.
    """
    last = bodies[-1] if bodies else None
    if not isinstance(last, Moved | Ended) or last.status is None or flow.at_end is None or is_finishing(run):
        return bodies
    state = last.to if isinstance(last, Moved) else run.state
    data = {**run.whole, **last.set}
    for key, items in last.append.items():
        data[key] = [*(data.get(key) or ()), *items]
    ending = Ending(run.id, last.status, state, last.reason, View(data), last.by)
    try:
        effects = [_item(flow, run, Effect.of(effect), keep) for effect in flow.at_end(ending)]
    except BaseException as raised:
        if (error := failure(raised)) is None:
            raise
        # Nobody can mend the flow's code from here, and the run could be neither finished nor cancelled.
        kind = type(error).__name__
        logger.error("run.at_end_failed", run_id=run.id, flow=flow.name, error=kind)
        message = writable(f"{kind}: {message_of(error)}")[:2000]
        return [*bodies[:-1], Noted(AT_END_FAILED, {"error": message}, aside=True), last]
    if not effects:
        return bodies
    outcome = {END: {"kind": last.kind, "body": body_to_plain(last)}}
    proposal = Proposed(AT_END, outcome, effects, by=last.by, round=run.round + 1)
    answers = [Released(name, None, "engine") for name in run.holds]
    return [*bodies[:-1], *answers, proposal]


def _item(flow: Flow, run: Run, effect: Effect, keep: Callable[[Blob], None]) -> dict[str, Any]:
    """An effect as a proposal holds it. Every end of a run has effects of its own."""
    tool = flow.tools.get(effect.tool, "effect")
    if tool.given is not None or tool.wants_context:
        raise ConfigurationError(f"'{effect.tool}' needs a step and cannot be performed at the end of a run.")
    tool.check(effect.args)
    if tool.question(tool.normal(effect.args)) is not None:
        raise ConfigurationError(
            f"'{effect.tool}' needs a person's confirmation and cannot be performed at the end of a run: no "
            f"step could see the decision. Perform it in the last step, with ctx.perform."
        )
    args: Mapping[str, Any] = written(dict(effect.args))
    if tool.private:
        blob = blob_of(encode(args))
        keep(blob)
        args = kept_beside(blob.body)
    unique = Effect(effect.tool, effect.args, f"{effect.key or ''}@{run.seq}")
    return {"key": effect_key(unique.identity(AT_END), 0, 0), "tool": effect.tool, "args": args}
