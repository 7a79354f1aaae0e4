"""From what a step gave back to the entry it amounts to: the table and its conditions, asked in one place.

Nothing here waits or writes. A decision the table forbids raises, and the driver makes a failed attempt of
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from detent.engine.outcome import Effect, Outcome, additions
from detent.engine.placeholders import written
from detent.engine.step import Step
from detent.engine.tools import CALL
from detent.kernel import checks
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Body, Ended, Moved, Proposed
from detent.kernel.errors import (
    ConfigurationError,
    DetentError,
    InvalidTransitionError,
    InvalidValue,
    name_of,
)
from detent.kernel.placeholders import fill, receipts_in
from detent.kernel.plain import encode, to_plain, writable
from detent.kernel.run import Run
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.flow import Flow

LONGEST_REASON = 200
UNDOING = "cancelled_by"
"""Key of the data of a run that was cancelled and undoes what it did: by whom."""
UNDOES = "undoes"
"""Key of the configuration of the runs that undo what another did, and of all below them."""


class Proposer(Protocol):
    """A step's context, as far as deciding needs it."""

    step: Step
    attempt: int
    proposed: Sequence[Effect]
    looked: Sequence[dict[str, Any]]

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The effect of this step that failed for good."""

    def keep(self, body: bytes | str) -> dict[str, Any]:
        """Keep a value outside the journal."""


class EffectRefused(DetentError):
    """A step asked again for an effect that had just failed for good."""

    def __init__(self, tool: str, code: str, message: str = "") -> None:
        self.tool = tool
        self.code = code
        said = f": {message.rstrip('.')}" if message and message != code else ""
        super().__init__(f"'{tool}' failed for good ({code}{said}), and the step has no other way.")


def decided(
    flow: Flow, run: Run, step: Step, ctx: Proposer, outcome: Outcome, duration: float, dry: bool = False
) -> tuple[list[Body], bool]:
    """The entries an outcome amounts to, checked; and whether it has effects to perform first.

    `dry` only checks: nothing is kept beside the journal.
    """
    if type(outcome.spend) is not Spend:  # of an outcome whose fields were replaced
        raise checks.refuse("Outcome.spend", outcome.spend, "a Spend")
    if outcome.hold is not None:
        _check_hold(outcome, ctx)
        return [], False
    wanted = [*ctx.proposed, *outcome.effects] if (ctx.proposed or outcome.effects) else ()
    if not wanted:
        plain_set = to_plain(outcome.set) if outcome.set else {}
        plain_append = additions(outcome.append) if outcome.append else {}
        return [
            moving(
                flow, run, outcome.next, outcome.event, outcome.end, outcome.reason, plain_set, plain_append,
                duration, outcome.spend, outcome.by, ctx.attempt, ctx.looked, outcome.detail,
            )
        ], False  # fmt: skip
    chosen: list[dict[str, Any]] = []
    for effect in wanted:
        item = Effect.of(effect)
        own = step.opaque and item.tool == f"{CALL}{step.name}"
        if step.effects is not None and item.tool not in step.effects and not own:
            raise ConfigurationError(
                f"Step '{step.name}' may not propose '{item.tool}'. "
                f"Allowed: {', '.join(step.effects) or 'none'}."
            )
        tool = flow.tools.get(item.tool, "effect")
        tool.check(tool.whole(ctx, item.args))
        key = item.identity(step.name)
        if run.failure is not None and key in run.failure["failed"] and ctx.failure is not None:
            raise EffectRefused(item.tool, run.failure["code"], str(run.failure.get("message") or ""))
        if all(key != other["key"] for other in chosen):  # equal effects are one effect
            args = written(tool.whole(ctx, item.args))
            _check_receipts(receipts_in(args), chosen, f"'{item.tool}'")
            # Private arguments lie beside the journal, where they can be purged.
            kept = ctx.keep(encode(args)) if tool.private and not dry else args
            chosen.append({"key": key, "tool": item.tool, "args": kept})
    proposal = Proposed(
        step.name, proposed(outcome), chosen, duration, outcome.spend, outcome.by, ctx.attempt,
        list(ctx.looked), to_plain(outcome.detail),
    )  # fmt: skip
    # Checked now, with what is known now, so that nothing is performed for a move that is not allowed.
    referred = receipts_in(proposal.outcome)
    if not referred:
        moving_from(flow, run, proposal, {})
        return [proposal], True
    _check_receipts(referred, chosen, "The outcome")
    if proposal.outcome.get("next") is not None:
        to = flow.machine.state(proposal.outcome["next"])
        if not flow.machine.allows(flow.machine.state(run.state), to):
            raise InvalidTransitionError(run.state, to, flow.machine.allowed(flow.machine.state(run.state)))
    return [proposal], True


def proposed(outcome: Outcome) -> dict[str, Any]:
    """An outcome with effects as the journal keeps it until they are performed."""
    plain = outcome.to_plain()
    if outcome.set:
        plain["set"] = written(outcome.set)
    if outcome.append:
        additions(outcome.append)  # refuses what is no list
        plain["append"] = {key: written(list(items), key) for key, items in outcome.append.items()}
    return plain


def destination(flow: Flow, run: Run, outcome: Outcome) -> str | None:
    """Name of the state an outcome leads to; None for a wait, or where that depends on receipts."""
    if outcome.hold is not None:
        return None
    if receipts_in(written(outcome.set)) or receipts_in(written(dict(outcome.append))):
        return name_of(outcome.next) if outcome.next is not None else None
    changes, added = to_plain(outcome.set), additions(outcome.append)
    body = moving(
        flow, run, outcome.next, outcome.event, outcome.end, None, changes, added, 0.0, NOTHING, "", 1, (), {}
    )
    return body.to if isinstance(body, Moved) else f"(end: {body.status.value})"


def moving_from(
    flow: Flow,
    run: Run,
    proposal: Proposed,
    receipts: dict[str, Any],
    seconds: float = 0.0,
    spend: Spend = NOTHING,
) -> Body:
    """The entry that a performed proposal ends in.

    `seconds` and `spend` are what the entries committed along with it add to the visit. A move says the
    whole of the visit; an end says only what no other entry says.
    """
    said = fill(proposal.outcome, receipts)
    end = Status(said["end"]) if "end" in said else None
    if end is not None:
        seconds, spend = 0.0, NOTHING
    return moving(
        flow, run, said.get("next"), said.get("event"), end, said.get("reason"), said.get("set", {}),
        said.get("append", {}), seconds, spend, proposal.by, proposal.attempt, proposal.looked,
        proposal.detail,
    )  # fmt: skip


def _check_receipts(referred: set[str], chosen: list[dict[str, Any]], what: str) -> None:
    unknown = referred - {other["key"] for other in chosen}
    if unknown:
        raise ConfigurationError(
            f"{what} refers to the receipt of an effect that is not performed before it: "
            f"{', '.join(sorted(unknown))}."
        )


def moving(
    flow: Flow,
    run: Run,
    next_state: Any,
    event: str | None,
    end: Status | None,
    reason: str | None,
    changes: dict[str, Any],
    additions: dict[str, Any],
    duration: float,
    spend: Spend,
    by: str,
    attempt: int,
    looked: Sequence[dict[str, Any]],
    detail: Any,
) -> Moved | Ended:
    """The entry a decision amounts to; raises when the table or a condition forbids it."""
    machine = flow.machine
    for key in additions:
        there = changes.get(key, run.data.get(key))
        if there is not None and type(there) is not list:
            raise InvalidValue(f"'{key}' is no list, so nothing can be appended to it.")
    here = machine.state(run.state)
    if reason is not None:
        reason = writable(reason)
        if len(reason) > LONGEST_REASON:
            reason = reason[: LONGEST_REASON - 1] + "…"
    if end is not None:
        if here not in machine.may_end or not end.is_end:
            may = ", ".join(sorted(name_of(state) for state in machine.may_end)) or "no working state"
            raise InvalidTransitionError(
                run.state, f"(end: {end.value})", machine.allowed(here), f"A run may end in: {may}."
            )
        return Ended(
            end, reason, None, changes, additions, duration, spend, by, attempt, list(looked),
            to_plain(detail) if detail else {},
        )  # fmt: skip
    to = None
    if next_state is not None:
        if isinstance(next_state, str) and not machine.has(next_state):
            raise InvalidTransitionError(run.state, next_state, machine.allowed(here))
        to = machine.state(next_state)
    data: Mapping[str, Any] = run.data
    if (changes or additions) and machine.conditional(here):
        data = _After(run.data, changes, additions)
    move = machine.choose(here, data, to=to, event=event)
    if flow.closing is not None and machine.ends.get(move.to) is Status.SUCCEEDED:
        try:
            changes = {**changes, **to_plain(flow.closing(_After(run.whole, changes, additions)))}
        except Exception as error:
            # The step is done, and what it gave counts; the run is not.
            aside = _aside(flow, run, f"closing failed: {type(error).__name__}", error)
            if aside is None:
                raise
            move, reason, changes = aside.move, aside.reason, {**changes, **aside.set}
    counts = flow.counts
    return Moved(
        run.state,
        machine.named(move.to),
        move.event,
        reason if reason is not None else move.reason,
        changes,
        additions,
        run.visit_seconds + duration,
        run.visit_spend + spend,
        by,
        attempt,
        counts is not None and counts(here, move.to),
        machine.ends.get(move.to),
        looked,
        to_plain(detail) if detail else {},
    )


class _Aside(NamedTuple):
    """The way of a run that cannot be closed."""

    move: Any
    reason: str
    set: dict[str, Any]


def _aside(flow: Flow, run: Run, reason: str, error: Exception) -> _Aside | None:
    """Where a failure leads in place of an end, if the flow says so and the table allows it."""
    said = f"{type(error).__name__}: {writable(str(error))}"[:2000]
    detour = flow.on_failure(run, reason, said) if flow.on_failure is not None else None
    here = flow.machine.state(run.state)
    if detour is None or not flow.machine.allows(here, flow.machine.state(detour.state)):
        return None
    move = flow.machine.choose(here, run.data, to=flow.machine.state(detour.state))
    return _Aside(move, reason, to_plain(detour.set))


def failing(
    flow: Flow,
    run: Run,
    reason: str,
    error: str,
    status: Status = Status.FAILED,
    seconds: float = 0.0,
    spend: Spend = NOTHING,
    detail: Mapping[str, Any] | None = None,
) -> Body:
    """The entry that ends the run badly: a move into an end of that status if the table has one, else an end.

    `seconds` and `spend` are what the entries committed along with it add to the visit.
    """
    machine = flow.machine
    here = machine.state(run.state)
    if status is Status.FAILED and flow.on_failure is not None:
        detour = flow.on_failure(run, reason, error)
        if detour is not None and machine.allows(here, machine.state(detour.state)):
            aside = machine.state(detour.state)
            return Moved(
                run.state, machine.named(aside), None, reason[:LONGEST_REASON], to_plain(detour.set),
                duration=run.visit_seconds + seconds, spend=run.visit_spend + spend, by="engine",
                attempt=max(1, run.attempts), status=machine.ends.get(aside),
                detail={**(detail or {}), **({"error": error} if error else {})},
            )  # fmt: skip
    to = machine.route_to(here, status, run.data)
    if to is None:
        return Ended(status, reason[:LONGEST_REASON], error or None, detail=dict(detail or {}))
    return Moved(
        run.state, machine.named(to), None, reason[:LONGEST_REASON], duration=run.visit_seconds + seconds,
        spend=run.visit_spend + spend, by="engine", attempt=max(1, run.attempts), status=status,
        detail={**(detail or {}), **({"error": error} if error else {})},
    )  # fmt: skip


def cancelled(flow: Flow, run: Run, reason: str, by: str, *, undo: bool = False) -> Body:
    """The entry that cancels a run: a move into an end for that where the table has one, else an end.

    With `undo` it is a move into the state in which the flow undoes what the run did.
    """
    machine = flow.machine
    if machine is None or not machine.has(run.state):  # not known in this process, or changed meanwhile
        return Ended(Status.CANCELLED, reason, by=by)
    here = machine.state(run.state)
    if undo:
        assert flow.undoing is not None
        return Moved(
            run.state, machine.named(flow.undoing), None, reason[:LONGEST_REASON], {UNDOING: by},
            duration=run.visit_seconds, spend=run.visit_spend, by=by, attempt=max(1, run.attempts),
        )  # fmt: skip
    to = machine.route_to(here, Status.CANCELLED, run.data)
    if to is None:
        return Ended(Status.CANCELLED, reason, by=by)
    return Moved(
        run.state, machine.named(to), None, reason[:LONGEST_REASON], duration=run.visit_seconds,
        spend=run.visit_spend, by=by, attempt=max(1, run.attempts), status=Status.CANCELLED,
    )  # fmt: skip


def undoing_now(flow: Flow, run: Run) -> bool:
    """Whether a run is in the state in which it undoes what it did."""
    return flow.undoing is not None and run.state == flow.machine.named(flow.undoing)


def unsettled(flow: Flow, run: Run) -> bool:
    """Whether the step has begun something of which it must be known how it goes before the run may end.

    An effect that failed and waits to be tried again has not happened, unless its tool is idempotent: then
    that was never found out.
    """
    if run.proposal is None:
        return False
    if run.begun is not None or run.done:
        return True
    first = run.proposal.effects[0]["tool"]
    return run.effect_attempts > 0 and first in flow.tools and flow.tools.get(first, "effect").idempotent


def diverted(flow: Flow, run: Run, bodies: Sequence[Body]) -> Sequence[Body]:
    """What a step of a run that was called off amounts to: it counts, and the run goes on to undo it.

    A plain cancellation stays what it is.
    """
    off = run.called_off
    if off is None or flow.machine is None or flow.undoing is None or undoing_now(flow, run) or not bodies:
        return bodies
    last = bodies[-1]
    if not isinstance(last, Moved | Ended) or last.status is Status.CANCELLED:
        return bodies
    to, said = flow.machine.named(flow.undoing), {UNDOING: off["by"]}
    reason = off["reason"][:LONGEST_REASON]
    if isinstance(last, Moved):
        aside = last._replace(
            to=to, event=None, reason=reason, set={**last.set, **said}, iteration=False, status=None
        )
    else:
        aside = Moved(
            run.state, to, None, reason, {**last.set, **said}, last.append, run.visit_seconds + last.duration,
            run.visit_spend + last.spend, last.by, last.attempt, looked=last.looked,
            detail={**last.detail, **({"error": last.error} if last.error else {})},
        )  # fmt: skip
    return [*bodies[:-1], aside]


class _After(Mapping[str, Any]):
    """Data as it will be after the step, for conditions to look at; put together only where asked for."""

    __slots__ = ("_additions", "_changes", "_data")

    def __init__(self, data: Mapping[str, Any], changes: dict[str, Any], additions: dict[str, Any]) -> None:
        self._data = data
        self._changes = changes
        self._additions = additions

    def __getitem__(self, key: str) -> Any:
        value = self._changes[key] if key in self._changes else self._data.get(key, _ABSENT)
        if key in self._additions:
            return [*(value if isinstance(value, list) else []), *self._additions[key]]
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._data, *self._changes, *self._additions]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _check_hold(outcome: Outcome, ctx: Proposer) -> None:
    """A step that waits changes nothing yet, and its wait is not mistaken for one of the engine's."""
    hold = outcome.hold
    assert hold is not None
    if hold.name in _OUR_HOLDS or hold.name.startswith("effect:"):
        raise ConfigurationError(
            f"A hold of step '{ctx.step.name}' may not be named '{hold.name}': the engine uses it."
        )
    if hold.why == "children":
        raise ConfigurationError(
            f"The hold '{hold.name}' of step '{ctx.step.name}' cannot wait for children; ctx.child does."
        )
    if (
        outcome.set or outcome.append or outcome.effects or ctx.proposed
        or outcome.next is not None or outcome.event is not None or outcome.end is not None
    ):  # fmt: skip
        raise ConfigurationError(
            f"Step '{ctx.step.name}' asks for the hold '{hold.name}' and for a change at once. "
            f"Ask for the hold alone; the step is done again when it is answered."
        )


_OUR_HOLDS = frozenset({"children", "takeovers", "driver", "retry", "breaker"})
_ABSENT = object()
