"""Rehearsals: the handler of any step of the flow, run on other data to see what it would decide.

Nothing is performed, journaled or paid for. Queries are made, and remembered by the visit that rehearses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine import moves
from detent.engine.offloaded import blob_of, kept_beside
from detent.engine.outcome import Effect, Outcome, additions
from detent.engine.performer import called, concluded
from detent.engine.trial_context import CannotCheck, TrialContext, TrialPaused
from detent.kernel.budget import Spend
from detent.kernel.errors import name_of
from detent.kernel.plain import to_plain
from detent.kernel.run import SEEN, Run

if TYPE_CHECKING:
    from detent.engine.context import StepContext
    from detent.engine.flow import Flow


class Rehearsal(NamedTuple):
    """What a step's handler would decide."""

    outcome: Outcome | None
    """None: the handler performs an effect and goes on with its receipt, which nobody has."""
    to: str | None
    """The state it leads to by the table; None for a hold, or if that depends on a receipt."""
    data: Mapping[str, Any]
    """The run's data as they would be afterwards, for the rehearsal of a later step."""
    effects: tuple[Effect, ...] = ()
    """The effects it asks for, in order."""


class Rehearsals:
    """Rehearses steps on behalf of a visit: `await rehearse("judge", {"plan": plan})`."""

    def __init__(self, flow: Flow, home: StepContext) -> None:
        self._flow = flow
        self._home = home
        self._kept: dict[str, bytes] = {}
        """Values that rehearsed handlers keep outside the journal, by hash."""

    async def __call__(self, state: Any, data: Mapping[str, Any] | None = None) -> Rehearsal:
        """What the handler of a state would decide, with these values in the run's data.

        Raises:
            CannotCheck: the handler changes the world itself, starts child runs or pays for answers.
            Exception: the handler's own error, or that the table does not allow what it decides.
        """
        name = name_of(state)
        step = self._flow.step_for(name)
        if step.opaque:
            raise CannotCheck(f"The handler of step '{step.name}' acts on the world itself.")
        run = self._run(name, to_plain(dict(data or {})))
        ctx = _RehearsalContext(self._home, run, step, self._kept)
        try:
            outcome = await concluded(step, ctx, await called(step, ctx, step.timeout))
        except TrialPaused:
            outcome = None
        came_to = tuple(effect for _, effect in ctx.came_to)
        if outcome is None or ctx.paused:  # even if the handler has swallowed it
            return Rehearsal(None, None, run.data, came_to)
        effects = tuple(Effect.of(effect) for effect in (*ctx.proposed, *outcome.effects))
        to = None if outcome.then is not None else moves.destination(self._flow, run, outcome)
        after = {**run.data, **to_plain(dict(outcome.set))}
        for key, items in additions(outcome.append).items():
            after[key] = [*(after.get(key) or ()), *items]
        return Rehearsal(outcome, to, after, (*came_to, *effects))

    def _run(self, state: str, changes: Mapping[str, Any]) -> Run:
        """The run as if it were in a state, on a first attempt and with changed data."""
        real = self._home.run
        run = Run(real.id)
        for name in (
            "flow", "machine", "version", "fingerprint", "parent", "config", "budget", "tags", "visits",
            "iterations", "created_at", "updated_at", "seq", "epoch",
        ):  # fmt: skip
            setattr(run, name, getattr(real, name))
        run.state = state
        run.data = {**real.data, **changes}
        run.beside = {key: value for key, value in real.beside.items() if key not in changes}
        run.records = {key: value for key, value in real.records.items() if key.startswith(SEEN)}
        return run


class _RehearsalContext(TrialContext):
    """The context of a handler that is rehearsed; what it keeps stays in the rehearsals."""

    def __init__(self, home: StepContext, run: Run, step: Any, kept: dict[str, bytes]) -> None:
        super().__init__(home)
        self._run, self.step, self.attempt, self._retry = run, step, 1, None
        self._unfolded = None
        self._settled = home._settled  # queries see the world as the visit sees it
        self._kept = kept

    @property
    def failure(self) -> None:
        """Nothing has failed."""
        return None

    async def inputs(self) -> dict[str, Any]:
        """The inputs of the rehearsed step."""
        if self._given is None:
            self._given = await self._work_out()
        return dict(self._given)

    async def look(self, tool: str, args: Mapping[str, Any], *, durable: bool = False) -> Any:
        """A query; its answer is remembered by the visit and not journaled at once."""
        return await super().look(tool, args)

    async def once(
        self, key: str, work: Callable[[], Any], *, spend: Callable[[Any], Spend] | None = None
    ) -> Any:
        """Refused."""
        raise CannotCheck(f"The handler of step '{self.step.name}' pays for an answer ('{key}').")

    async def verdict(self, state: Any, right: bool, why: str = "", *, visit: int | None = None) -> None:
        """Nothing: what is rehearsed judges nobody."""

    async def cancel_descendants(self, runs: Sequence[str], reason: str) -> None:
        """Refused."""
        raise CannotCheck(f"The handler of step '{self.step.name}' cancels other runs.")

    def keep(self, body: bytes | str) -> dict[str, Any]:
        """Keep a value for later rehearsals."""
        blob = blob_of(body)
        self._kept[blob.hash] = blob.body
        return kept_beside(blob.body)

    async def kept(self, reference: Mapping[str, Any]) -> bytes | None:
        """The kept value, of a rehearsal or of the run."""
        raw = self._kept.get(reference["$blob"])
        return raw if raw is not None else await super().kept(reference)
