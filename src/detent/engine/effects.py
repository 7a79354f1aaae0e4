"""Performs the effects that steps propose: an intent before, a receipt after, never blindly twice.

The commits of a proposal with effects a and b: [proposed, a begun] [a done, b begun] [b done, moved]; no move
follows a round after which the step goes on. An
effect is in doubt exactly while it is begun and not settled; after a crash it is probed if its tool can
probe, repeated if its tool is idempotent, and otherwise a person is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine import confirmation, logger, moves
from detent.engine.calls import TimeLimit, call, watched
from detent.engine.context import StepContext
from detent.engine.finishing import is_finishing
from detent.engine.plain_answer import plain_answer
from detent.engine.ports import LedgerLine, TapeCall, TapeError
from detent.engine.run_resources import resource_of
from detent.engine.tools import NOT_DONE, UNKNOWN, Tool, ToolError
from detent.engine.user_errors import failure, message_of
from detent.kernel.effect_key import action_of
from detent.kernel.entries import Body, EffectBegun, EffectDone, EffectFailed, EffectSkipped, Held, Proposed
from detent.kernel.errors import ConfigurationError, DetentError, Fenced, StoreUnavailable
from detent.kernel.placeholders import fill
from detent.kernel.plain import brief, decode, writable

if TYPE_CHECKING:
    from detent.engine.work import Work

LONGEST_CALL = 60.0
"""Seconds for which an abandoned call may continue if its tool sets no timeout."""
AFTER_FAILURE = "an effect before it failed"
"""Why an effect of a round is left out whose step has not decided again since."""
HAPPENED, AGAIN, SKIP = "happened", "again", "skip"
"""The answers a person may give about an effect in doubt."""


async def perform(driver: Work, opening: Sequence[Body] = (), *, withhold: bool = False) -> None:
    """Perform the effects of a proposal that are not yet done, then make its move.

    `opening` holds the proposal itself when it is not yet committed. Returns early when the run must wait,
    retry or decide again, which the journal then records. With `withhold`, the last receipt of a round is
    left for the next commit.
    """
    driver.performing = True
    try:
        await _perform(driver, opening, withhold)
    finally:
        driver.performing = False


async def _perform(driver: Work, opening: Sequence[Body], withhold: bool) -> None:
    run = driver.run
    proposal = run.proposal if not opening else opening[0]
    assert isinstance(proposal, Proposed)
    pending: list[Body] = list(opening)
    for item in proposal.effects:
        key = item["key"]
        receipts = _receipts(driver, pending)
        if key in receipts or key in run.settled:
            continue
        tool = driver.flow.tools.get(item["tool"], "effect")
        args = await args_of(driver, tool, item, pending)
        line = await driver.engine.store.effect(run.id, key)
        if run.begun == key and not opening:
            if line is not None and not await _over(driver, line):
                return
            settled = await _settle(driver, tool, key, args)
        else:
            if line is not None and line.state in ("done", "skipped"):
                pending.append(await _earlier(driver, line))
                continue
            if line is not None and line.state == "begun" and not await _over(driver, line):
                return
            if "confirm" in item and (line is None or line.state != "begun"):
                try:
                    decided = await _decided(driver, tool, item, args, pending)
                except ToolError as impossible:  # of the preview: nobody is asked about what cannot be done
                    if pending:
                        await driver.commit(*pending)
                    code, why, number = impossible.code, impossible.message, driver.run.effect_attempts
                    await _did_not_happen(driver, tool, key, code, why, False, number)
                    return
                if decided is None:
                    return
                if isinstance(decided, EffectSkipped):
                    pending.append(decided)
                    continue
            await driver.commit(*pending, _beginning(driver, tool, key))
            pending, opening = [], ()
            if line is not None and line.state == "begun":
                # Begun in an earlier visit that never learned how it went; the run was reopened or migrated.
                settled = await _settle(driver, tool, key, args)
            else:
                settled = await _attempt(driver, tool, key, args)
        if settled is None:
            return
        pending.append(settled)
    if not proposal.final:
        if withhold:
            driver.log.withhold(*pending)
        elif pending:
            await driver.commit(*pending)
        return
    seconds, spend = moves.uncommitted([*driver.log.withheld, *pending])
    try:
        ending: Body = moves.moving_from(
            driver.flow, run, proposal, _by_action(_receipts(driver, pending)), seconds, spend
        )
    except BaseException as raised:
        if (error := failure(raised)) is None:
            raise
        kind, message = type(error).__name__, writable(message_of(error))
        ending = moves.failing(
            driver.flow,
            run,
            f"{proposal.step} failed: {kind}",
            f"{kind}: {message}"[:2000],
            seconds=seconds,
            spend=spend,
        )
    await driver.commit(*pending, ending)


async def _decided(
    driver: Work, tool: Tool, item: Mapping[str, Any], args: Mapping[str, Any], pending: Sequence[Body]
) -> Any:
    """What a person has decided on an effect, as `confirmation.decide` gives it."""
    try:
        return await confirmation.decide(driver, tool, item, args, pending)
    except DetentError:
        raise
    except Exception as error:  # of the tool's preview
        if not tool.private:
            raise
        raise ConfigurationError(f"'preview' of '{tool.name}' failed: {type(error).__name__}.") from None


async def args_of(
    driver: Work, tool: Tool, item: Mapping[str, Any], pending: Sequence[Body] = ()
) -> dict[str, Any]:
    """The arguments of a proposed effect, with the receipts of the effects before it."""
    args: dict[str, Any] = fill(
        await _args(driver, tool, item["args"]), _by_action(_receipts(driver, pending))
    )
    return args


async def _args(driver: Work, tool: Tool, args_or_blob: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an effect; those of a private tool are kept outside the journal."""
    if not (tool.private and "$blob" in args_or_blob):
        return args_or_blob
    raw = await driver.log.blob(args_or_blob["$blob"])
    if raw is None:
        raise ConfigurationError(f"The arguments of '{tool.name}' were purged before it was performed.")
    args: dict[str, Any] = decode(raw)
    return args


def _receipts(driver: Work, pending: Sequence[Body]) -> dict[str, Any]:
    """Receipts known so far, including those not yet committed."""
    fresh = {body.key: body.receipt for body in pending if isinstance(body, EffectDone)}
    return {**driver.run.done, **fresh}


def _by_action(receipts: Mapping[str, Any]) -> dict[str, Any]:
    """The receipts of a proposal by action, as its placeholders name them."""
    return {action_of(key): receipt for key, receipt in receipts.items()}


async def _earlier(driver: Work, line: LedgerLine) -> EffectDone:
    """The receipt of an equal effect that this run has already performed; it is not performed again."""
    (entry,) = await driver.engine.store.entries(driver.run.id, after=line.seq - 1, limit=1)
    receipt = entry.body.receipt if isinstance(entry.body, EffectDone) else None
    return EffectDone(line.key, line.tool, receipt, "reused")


def _beginning(driver: Work, tool: Tool, key: str) -> EffectBegun:
    """The entry committed before an effect: its worker, and the longest time its call may take.

    Async tools need it too: they may wait for a thread or a program that continues after a cancellation.
    """
    return EffectBegun(key, tool.name, driver.engine.leases.me.id, tool.timeout or LONGEST_CALL)


async def _over(driver: Work, line: LedgerLine) -> bool:
    """Wait until an earlier call of an effect can no longer be running; False when the engine stops.

    Until then "not done" means "not yet", so the effect must be neither probed nor repeated.
    """
    engine = driver.engine
    (entry,) = await engine.store.entries(driver.run.id, after=line.seq - 1, limit=1)
    begun = entry.body
    if not isinstance(begun, EffectBegun) or not begun.seconds:
        return True
    deadline = driver.clock.ticks() + begun.seconds
    if begun.worker == engine.leases.me.id:
        deadline = float("inf")  # calls of this process are tracked, so no deadline is needed
    async with engine.slots.released(driver):
        while not await engine.leases.gone(begun.worker) and driver.clock.ticks() < deadline:
            engine.tell_once("effect.may_be_running", f"{driver.run.id}:{line.key}", run_id=driver.run.id,
                             tool=line.tool, worker=begun.worker, seconds=begun.seconds)  # fmt: skip
            await engine.slots.sleep(min(1.0, begun.seconds))
            if engine.stopping:
                return False
    return True


async def _attempt(driver: Work, tool: Tool, key: str, args: dict[str, Any]) -> EffectDone | None:
    """Perform an effect once. None when that did not settle it; the consequences are then committed."""
    number = driver.run.effect_attempts + 1
    breakers, name = driver.engine.breakers, f"tool/{tool.name}"
    if tool.breaker is not None and (until := await breakers.open_until(name, tool.breaker)) is not None:
        # An open breaker postpones the effect and does not count as an attempt.
        await driver.commit(
            EffectFailed(key, tool.name, "breaker_open", "it failed too often", number - 1, until)
        )
        return None
    began = driver.clock.elapsed()
    remarks: list[Body] = []
    """Messages emitted by the handler of an opaque step."""
    try:

        async def act() -> Any:
            resource = await resource_of(driver, tool)
            async with TimeLimit(tool.timeout):
                if tool.wants_context:
                    assert driver.run.proposal is not None
                    step = driver.flow.step_named(driver.run.state, driver.run.proposal.step)
                    ctx = StepContext(driver, step, number)
                    try:
                        return _receipt(await tool.perform(ctx), step.handler)
                    finally:
                        remarks.extend(ctx.emitted)
                first = (driver.effect_call(key, number),) if tool.wants_call else ()
                answer = await call(tool.perform, tool.off_loop, *first, *resource, **args)
                return _receipt(answer, tool.perform)

        leases = driver.engine.leases
        with watched() as calls:
            driver.calls = calls
            try:
                await driver.confirm()  # last, because another worker may have taken the run over
                async with leases.acting(calls):
                    if (tape := driver.engine.tape) is None:
                        receipt = await act()
                    else:
                        taped_call = TapeCall("effect", driver.where, driver.run.state, tool.name, args)
                        receipt = await tape.through(taped_call, act)
            finally:
                leases.linger(calls)
    except ToolError as error:
        await breakers.raised(name, tool.breaker, error)
        if remarks:
            await driver.commit(*remarks)
        await _did_not_happen(driver, tool, key, error.code, error.message, error.transient, number)
        return None
    except (Fenced, StoreUnavailable, TapeError):
        raise
    except UnkeptReceipt as error:
        # It happened. Repeating it would fail in the same way, so a person decides.
        if remarks:
            await driver.commit(*remarks)
        question = f"'{tool.name}' was performed, but its receipt cannot be kept. Did it happen?"
        await _ask_person(driver, tool, key, args, question, tool.told(error))
        return None
    except Exception as error:
        if tool.breaker is not None:
            await breakers.failed(name, tool.breaker)
        logger.warning(
            "effect.in_doubt", run_id=driver.run.id, tool=tool.name, key=key, error=type(error).__name__
        )
        return await _settle(driver, tool, key, args, number, error, driver.unstopped)
    if tool.breaker is not None:
        await breakers.succeeded(name)
    if remarks:
        await driver.commit(*remarks)
    return EffectDone(key, tool.name, receipt, "performed", driver.clock.elapsed() - began)


async def _did_not_happen(
    driver: Work, tool: Tool, key: str, code: str, message: str, transient: bool, number: int
) -> None:
    """Record that an effect certainly did not happen; retry it later, or have the step decide again."""
    again = transient and number < tool.retry.max_attempts
    retry_at = driver.clock.now() + tool.retry.wait_before(number + 1, driver.run.id) if again else None
    logger.warning(
        "effect.failed", run_id=driver.run.id, tool=tool.name, code=code, attempt=number, will_retry=again
    )
    failed = EffectFailed(key, tool.name, code, writable(message)[:2000], number, retry_at)
    proposal = driver.run.proposal
    if not again and is_finishing(driver.run):
        # No step can decide otherwise any more; a person may mend what is in the way.
        assert proposal is not None
        args = next(item["args"] for item in proposal.effects if item["key"] == key)
        question = f"'{tool.name}' failed at the end of the run. Try again?"
        await _ask_person(driver, tool, key, args, question, f"{code}: {message}", happened=False)
        return
    rest: list[Body] = []
    if not again and proposal is not None and not proposal.final:
        settled = {*driver.run.settled, key}
        rest = [
            EffectSkipped(item["key"], item["tool"], "engine", AFTER_FAILURE)
            for item in proposal.effects
            if item["key"] not in settled
        ]
    await driver.commit(failed, *rest)


async def _settle(
    driver: Work,
    tool: Tool,
    key: str,
    args: dict[str, Any],
    number: int | None = None,
    error: Exception | None = None,
    running: bool = False,
) -> EffectDone | None:
    """Settle an effect in doubt. `number` is set when it came into doubt in this process.

    For a call that is still `running`, a probe's "not done" proves nothing.
    """
    attempts = driver.run.effect_attempts + 1 if number is None else number
    if number is None and tool.stop is not None and not await _stopped(driver, tool, key, attempts):
        question = f"A call of '{tool.name}' may still be under way and cannot be ended. Did it happen?"
        await _ask_person(driver, tool, key, args, question, "the worker died")
        return None
    if tool.probe is not None:
        receipt = await _probe(driver, tool, key, args, attempts)
        if receipt is NOT_DONE and not running:
            if number is None:  # the worker died before performing it, which is not a failed attempt
                await driver.confirm()
                return await _attempt(driver, tool, key, args)
            await _did_not_happen(driver, tool, key, type(error).__name__, tool.told(error), True, attempts)
            return None
        if receipt is not UNKNOWN and receipt is not NOT_DONE:
            return EffectDone(key, tool.name, receipt, "probed")
    if tool.idempotent:
        if number is None:
            return await _attempt(driver, tool, key, args)
        if attempts < tool.retry.max_attempts:
            await _did_not_happen(driver, tool, key, type(error).__name__, tool.told(error), True, attempts)
            return None
    may_repeat = number is None or attempts < tool.retry.max_attempts
    if (
        tool.rebuild is not None
        and not running
        and may_repeat
        and await _rebuilt(driver, tool, key, attempts)
    ):
        if number is None:
            return await _attempt(driver, tool, key, args)
        await _did_not_happen(driver, tool, key, type(error).__name__, tool.told(error), True, attempts)
        return None
    question = f"It is not known whether '{tool.name}' happened. Did it?"
    if running:
        question = f"'{tool.name}' did not return in time and cannot be stopped. Did it happen?"
    why = "the worker died"
    if error is not None:
        why = type(error).__name__ if tool.private else f"{type(error).__name__}: {message_of(error)}"
    await _ask_person(driver, tool, key, args, question, why)
    return None


async def _journaled_facts(driver: Work, key: str) -> Mapping[str, Any]:
    """What an earlier call of an effect has journaled about itself before it went on."""
    line = await driver.engine.store.effect(driver.run.id, key)
    entries = [] if line is None else await driver.engine.store.entries(driver.run.id, line.seq - 1, 1)
    return next((entry.body.facts for entry in entries if isinstance(entry.body, EffectBegun)), {})


async def _stopped(driver: Work, tool: Tool, key: str, attempt: int) -> bool:
    """Whether nothing is left of an earlier call of an effect, in a worker that died."""
    assert tool.stop is not None
    await driver.confirm()
    facts = await _journaled_facts(driver, key)
    try:
        async with TimeLimit(tool.timeout or LONGEST_CALL):
            await call(tool.stop, tool.off_loop, driver.effect_call(key, attempt, facts))
    except (Fenced, StoreUnavailable):
        raise
    except Exception as error:
        logger.warning("effect.stop_failed", run_id=driver.run.id, tool=tool.name, error=type(error).__name__)
        return False
    return True


async def _rebuilt(driver: Work, tool: Tool, key: str, attempt: int) -> bool:
    """Whether the resource of an effect in doubt is again what it was before the effect."""
    assert tool.rebuild is not None
    await driver.confirm()
    try:
        resource = await resource_of(driver, tool, anew=True)
        async with TimeLimit(tool.timeout):
            await call(tool.rebuild, tool.off_loop, driver.effect_call(key, attempt), *resource)
    except (Fenced, StoreUnavailable):
        raise
    except Exception as error:
        logger.warning(
            "effect.rebuild_failed", run_id=driver.run.id, tool=tool.name, error=type(error).__name__
        )
        return False
    return True


async def _ask_person(
    driver: Work,
    tool: Tool,
    key: str,
    args: dict[str, Any],
    question: str,
    why: str,
    *,
    happened: bool = True,
) -> None:
    """Have the run wait until a person settles an effect, which may have `happened` or certainly did not."""
    about = {
        "effect": key, "tool": tool.name, "args": brief(args, tool.private), "error": writable(why)[:500]
    }  # fmt: skip
    choices = [HAPPENED, AGAIN, SKIP] if happened else [AGAIN, SKIP]
    await driver.commit(Held(f"effect:{key}", "attention", question, choices, about=about))


class UnkeptReceipt(Exception):
    """An effect was performed, but the journal cannot keep its receipt."""


def _receipt(value: Any, function: Callable[..., Any]) -> Any:
    """A tool's return value as a receipt the journal can keep."""
    try:
        return plain_answer(value, function)
    except Exception as error:
        raise UnkeptReceipt(message_of(error)) from error


async def _probe(driver: Work, tool: Tool, key: str, args: dict[str, Any], attempt: int) -> Any:
    """Call a tool's probe, with retries; UNKNOWN when it does not answer, or cannot by arguments alone."""
    assert tool.probe is not None
    if key != action_of(key) and not tool.probe_wants_call:
        return UNKNOWN
    first: tuple[Any, ...] = ()
    if tool.probe_wants_call:
        first = (driver.effect_call(key, attempt, await _journaled_facts(driver, key)),)
    for number in range(1, tool.retry.max_attempts + 1):
        await driver.clock.sleep(tool.retry.wait_before(number, driver.run.id))
        try:
            async with TimeLimit(tool.timeout):
                resource = await resource_of(driver, tool)
                receipt = await call(tool.probe, tool.off_loop, *first, *resource, **args)
                unsure = receipt is NOT_DONE or receipt is UNKNOWN
                return receipt if unsure else plain_answer(receipt, tool.probe)
        except Exception as error:
            logger.warning(
                "effect.probe_failed", run_id=driver.run.id, tool=tool.name, attempt=number,
                error=type(error).__name__,
            )  # fmt: skip
    return UNKNOWN
