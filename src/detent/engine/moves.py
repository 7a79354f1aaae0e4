"""From a step's outcome to journal entries: the one place that consults the transition table.

Nothing here waits or writes. An outcome that the table forbids raises, and the driver records a failed
attempt.
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
from detent.kernel.effect_key import action_of, effect_key
from detent.kernel.entries import (
    Body,
    EffectDone,
    Ended,
    Moved,
    Proposed,
    Recorded,
    body_from_plain,
)
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
    from detent.engine.ports import Cancellation

LONGEST_REASON = 200
UNDOING = "cancelled_by"
"""Key in the data of a run that was cancelled and is rolling back: who cancelled it."""
END = "$end"
"""Key in the outcome of a proposal that is performed before the run ends: the entry that ends it."""
UNDOES = "undoes"
"""Key in the configuration of runs that roll back another run, and of their descendants."""


class Proposer(Protocol):
    """The parts of a step's context that deciding needs."""

    step: Step
    attempt: int
    proposed: Sequence[Effect]
    looked: Sequence[dict[str, Any]]
    occurrences: Mapping[str, int]
    """How often the step has performed each action in this pass, by the action's digest."""

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The effect of this step that failed for good."""

    def keep(self, body: bytes | str) -> dict[str, Any]:
        """Keep a value outside the journal."""


class EffectRefused(DetentError):
    """A step proposed an effect again that had just failed for good."""

    def __init__(self, tool: str, code: str, message: str = "") -> None:
        self.tool = tool
        self.code = code
        explanation = f": {message.rstrip('.')}" if message and message != code else ""
        super().__init__(f"'{tool}' failed for good ({code}{explanation}), and the step has no other way.")


def decided(
    flow: Flow,
    run: Run,
    step: Step,
    ctx: Proposer,
    outcome: Outcome,
    duration: float,
    dry: bool = False,
    withheld: Sequence[Body] = (),
) -> tuple[list[Body], bool]:
    """The entries for an outcome, checked, and whether it has effects to perform first.

    `dry` only checks: no value is kept outside the journal. `withheld` are entries of the visit that are
    committed together with these.

    Raises:
        InvalidTransitionError: the table does not allow the move.
        ConfigurationError: the step may not propose an effect, or a hold is invalid.
        EffectRefused: an effect that failed for good is proposed again.
    """
    if type(outcome.spend) is not Spend:  # `_replace` does not check fields
        raise checks.refuse("Outcome.spend", outcome.spend, "a Spend")
    if outcome.hold is not None:
        _check_hold(outcome, ctx)
        return [], False
    effects = [*ctx.proposed, *outcome.effects] if (ctx.proposed or outcome.effects) else ()
    if not effects:
        plain_set = to_plain(outcome.set) if outcome.set else {}
        plain_append = additions(outcome.append) if outcome.append else {}
        body = moving(
            flow, run, outcome.next, outcome.event, outcome.end, outcome.reason, plain_set, plain_append,
            duration, outcome.spend, outcome.by, ctx.attempt, ctx.looked, outcome.detail,
        )  # fmt: skip
        if withheld and isinstance(body, Moved):
            seconds, spend = uncommitted(withheld)
            body = body._replace(duration=body.duration + seconds, spend=body.spend + spend)
        return [body], False
    chosen: list[dict[str, Any]] = []
    for effect in effects:
        item = Effect.of(effect)
        own = step.opaque and item.tool == f"{CALL}{step.name}"
        if step.effects is not None and item.tool not in step.effects and not own:
            raise ConfigurationError(
                f"Step '{step.name}' may not propose '{item.tool}'. "
                f"Allowed: {', '.join(step.effects) or 'none'}."
            )
        action = item.identity(step.name)
        if run.failure is not None and action in run.failure["failed"] and ctx.failure is not None:
            raise EffectRefused(item.tool, run.failure["code"], str(run.failure.get("message") or ""))
        if all(action != action_of(other["key"]) for other in chosen):  # equal effects count once
            if item.tool in flow.tools and flow.tools[item.tool].confirm is not None:
                raise ConfigurationError(
                    f"Step '{step.name}' proposes '{item.tool}', which a person confirms. Have it performed "
                    f"with `await ctx.perform(…)`, which gives back what came of it."
                )
            key = effect_key(action, run.visit, ctx.occurrences.get(action, 0))
            chosen.append(_item(flow, ctx, item, key, chosen, dry))
    proposal = Proposed(
        step.name, proposed(outcome), chosen, duration, outcome.spend, outcome.by, ctx.attempt,
        list(ctx.looked), to_plain(outcome.detail), run.round + 1,
    )  # fmt: skip
    # Checked before any effect is performed, so that none is performed for a forbidden move.
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


def uncommitted(bodies: Sequence[Body]) -> tuple[float, Spend]:
    """The time and spend of a visit's entries that the run's totals do not include yet."""
    seconds, spend = 0.0, NOTHING
    for body in bodies:
        if isinstance(body, EffectDone | Proposed):
            seconds += body.duration
        if isinstance(body, Recorded | Proposed):
            spend += body.spend
    return seconds, spend


def acting(
    flow: Flow, run: Run, step: Step, ctx: Proposer, effects: Sequence[tuple[str, Effect]], duration: float,
    *, side: bool = False, by: str = "handler", confirm: str | None = None,
) -> Proposed:  # fmt: skip
    """The proposal of a round after which the step goes on; effects with their keys.

    `confirm` is the question a person answers before its only effect is performed.
    """
    items = [_item(flow, ctx, effect, key, (), False) for key, effect in effects]
    if confirm is not None:
        (item,) = items
        item["confirm"] = confirm
    return Proposed(
        step.name, {}, items, duration, by=by,
        attempt=ctx.attempt, looked=list(ctx.looked), round=run.round + 1, final=False, side=side,
    )  # fmt: skip


def _item(
    flow: Flow, ctx: Proposer, effect: Effect, key: str, before: Sequence[dict[str, Any]], dry: bool
) -> dict[str, Any]:
    """An effect as a proposal holds it, its arguments checked."""
    tool = flow.tools.get(effect.tool, "effect")
    whole = tool.whole(ctx, effect.args)
    tool.check(whole)
    args = written(whole)
    _check_receipts(receipts_in(args), before, f"'{effect.tool}'")
    # Private arguments are kept outside the journal, where they can be purged.
    return {
        "key": key,
        "tool": effect.tool,
        "args": ctx.keep(encode(args)) if tool.private and not dry else args,
    }


def proposed(outcome: Outcome) -> dict[str, Any]:
    """An outcome with effects as the journal keeps it until they are performed."""
    plain = outcome.to_plain()
    if outcome.set:
        plain["set"] = written(outcome.set)
    if outcome.append:
        additions(outcome.append)  # raises unless every value is a list
        plain["append"] = {key: written(list(items), key) for key, items in outcome.append.items()}
    return plain


def destination(flow: Flow, run: Run, outcome: Outcome) -> str | None:
    """Name of the state an outcome leads to; None for a hold, or if it depends on receipts."""
    if outcome.hold is not None:
        return None
    if outcome.then is not None:
        return f"(then: {outcome.then})"
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
    """The entry that completes a proposal whose effects are performed.

    `seconds` and `spend` are the share of the entries committed together with it. A move records the totals
    of the visit; an end records only amounts that no other entry holds.
    """
    if END in proposal.outcome:
        kept = proposal.outcome[END]
        ending = body_from_plain(kept["kind"], kept["body"])
        return ending._replace(duration=ending.duration + seconds) if isinstance(ending, Moved) else ending
    filled = fill(proposal.outcome, receipts)
    end = Status(filled["end"]) if "end" in filled else None
    if end is not None:
        seconds, spend = 0.0, NOTHING
    return moving(
        flow, run, filled.get("next"), filled.get("event"), end, filled.get("reason"), filled.get("set", {}),
        filled.get("append", {}), seconds, spend, proposal.by, proposal.attempt, proposal.looked,
        proposal.detail,
    )  # fmt: skip


def _check_receipts(referred: set[str], chosen: Sequence[dict[str, Any]], subject: str) -> None:
    unknown = referred - {action_of(other["key"]) for other in chosen}
    if unknown:
        raise ConfigurationError(
            f"{subject} refers to the receipt of an effect that is not performed before it: "
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
    """The entry for a decision.

    Raises:
        InvalidTransitionError: the table or a condition does not allow it.
        InvalidValue: a value is appended to something other than a list.
    """
    machine = flow.machine
    for key in additions:
        present = changes.get(key, run.data.get(key))
        if present is not None and type(present) is not list:
            raise InvalidValue(f"'{key}' is not a list, so nothing can be appended to it.")
    own_state = machine.state(run.state)
    if reason is not None:
        reason = writable(reason)
        if len(reason) > LONGEST_REASON:
            reason = reason[: LONGEST_REASON - 1] + "…"
    if end is not None:
        if own_state not in machine.may_end or not end.is_end:
            may = ", ".join(sorted(name_of(state) for state in machine.may_end)) or "no working state"
            raise InvalidTransitionError(
                run.state, f"(end: {end.value})", machine.allowed(own_state), f"A run may end in: {may}."
            )
        return Ended(
            end, reason, None, changes, additions, duration, spend, by, attempt, list(looked),
            to_plain(detail) if detail else {},
        )  # fmt: skip
    to = None
    if next_state is not None:
        if isinstance(next_state, str) and not machine.has(next_state):
            raise InvalidTransitionError(run.state, next_state, machine.allowed(own_state))
        to = machine.state(next_state)
    data: Mapping[str, Any] = run.data
    if (changes or additions) and machine.conditional(own_state):
        data = _After(run.data, changes, additions)
    move = machine.choose(own_state, data, to=to, event=event)
    if flow.closing is not None and machine.ends.get(move.to) is Status.SUCCEEDED:
        try:
            changes = {**changes, **to_plain(flow.closing(_After(run.whole, changes, additions)))}
        except Exception as error:
            # The step is done and its changes count, but the run cannot succeed.
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
        counts is not None and counts(own_state, move.to),
        machine.ends.get(move.to),
        looked,
        to_plain(detail) if detail else {},
    )


class _Aside(NamedTuple):
    """The detour of a run whose `closing` failed."""

    move: Any
    reason: str
    set: dict[str, Any]


def _aside(flow: Flow, run: Run, reason: str, error: Exception) -> _Aside | None:
    """The detour for a failure, if the flow defines one and the table allows it."""
    message = f"{type(error).__name__}: {writable(str(error))}"[:2000]
    detour = flow.on_failure(run, reason, message) if flow.on_failure is not None else None
    own_state = flow.machine.state(run.state)
    if detour is None or not flow.machine.allows(own_state, flow.machine.state(detour.state)):
        return None
    move = flow.machine.choose(own_state, run.data, to=flow.machine.state(detour.state))
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
    """The entry that ends a run with `status`: a move into such an end state if there is one, else an end.

    `seconds` and `spend` are the share of the entries committed together with it.
    """
    machine = flow.machine
    own_state = machine.state(run.state)
    if status is Status.FAILED and flow.on_failure is not None:
        detour = flow.on_failure(run, reason, error)
        if detour is not None and machine.allows(own_state, machine.state(detour.state)):
            aside = machine.state(detour.state)
            return Moved(
                run.state, machine.named(aside), None, reason[:LONGEST_REASON], to_plain(detour.set),
                duration=run.visit_seconds + seconds, spend=run.visit_spend + spend, by="engine",
                attempt=max(1, run.attempts), status=machine.ends.get(aside),
                detail={**(detail or {}), **({"error": error} if error else {})},
            )  # fmt: skip
    to = machine.route_to(own_state, status, run.data)
    if to is None:
        return Ended(status, reason[:LONGEST_REASON], error or None, detail=dict(detail or {}))
    return Moved(
        run.state, machine.named(to), None, reason[:LONGEST_REASON], duration=run.visit_seconds + seconds,
        spend=run.visit_spend + spend, by="engine", attempt=max(1, run.attempts), status=status,
        detail={**(detail or {}), **({"error": error} if error else {})},
    )  # fmt: skip


def cancelled(flow: Flow, run: Run, cancellation: Cancellation) -> Body:
    """The entry that cancels a run: a move into an end state for cancelled runs if there is one, else an end.

    With `undo` it is a move into the flow's rollback state.
    """
    reason, by, undo = cancellation
    machine = flow.machine
    if machine is None or not machine.has(run.state):  # flow unknown in this process, or state removed since
        return Ended(Status.CANCELLED, reason, by=by)
    own_state = machine.state(run.state)
    if undo:
        assert flow.undoing is not None
        return Moved(
            run.state, machine.named(flow.undoing), None, reason[:LONGEST_REASON], {UNDOING: by},
            duration=run.visit_seconds, spend=run.visit_spend, by=by, attempt=max(1, run.attempts),
        )  # fmt: skip
    to = machine.route_to(own_state, Status.CANCELLED, run.data)
    if to is None:
        return Ended(Status.CANCELLED, reason, by=by)
    return Moved(
        run.state, machine.named(to), None, reason[:LONGEST_REASON], duration=run.visit_seconds,
        spend=run.visit_spend, by=by, attempt=max(1, run.attempts), status=Status.CANCELLED,
    )  # fmt: skip


def undoing_now(flow: Flow, run: Run) -> bool:
    """Whether a run is in its flow's rollback state."""
    return flow.undoing is not None and run.state == flow.machine.named(flow.undoing)


def unsettled(flow: Flow, run: Run) -> bool:
    """Whether the step has begun effects that must be settled before the run may end.

    An effect that failed and waits for a retry has not happened, unless its tool is idempotent: such effects
    are retried without finding out.
    """
    if run.proposal is None:
        return False
    if run.begun is not None or run.done:
        return True
    first = run.proposal.effects[0]["tool"]
    return run.effect_attempts > 0 and first in flow.tools and flow.tools.get(first, "effect").idempotent


def diverted(flow: Flow, run: Run, bodies: Sequence[Body]) -> Sequence[Body]:
    """The entries for a step of a run that was called off: its work counts, then the run rolls back.

    A plain cancellation is left unchanged.
    """
    off = run.called_off
    if off is None or flow.machine is None or flow.undoing is None or undoing_now(flow, run) or not bodies:
        return bodies
    last = bodies[-1]
    if not isinstance(last, Moved | Ended) or last.status is Status.CANCELLED:
        return bodies
    to, mark = flow.machine.named(flow.undoing), {UNDOING: off["by"]}
    reason = off["reason"][:LONGEST_REASON]
    if isinstance(last, Moved):
        aside = last._replace(
            to=to, event=None, reason=reason, set={**last.set, **mark}, iteration=False, status=None
        )
    else:
        aside = Moved(
            run.state, to, None, reason, {**last.set, **mark}, last.append, run.visit_seconds + last.duration,
            run.visit_spend + last.spend, last.by, last.attempt, looked=last.looked,
            detail={**last.detail, **({"error": last.error} if last.error else {})},
        )  # fmt: skip
    return [*bodies[:-1], aside]


class _After(Mapping[str, Any]):
    """The data as it will be after the step, for conditions; computed per key on access."""

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
    """Raise unless a hold comes without changes and its name is not one of the engine's."""
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
