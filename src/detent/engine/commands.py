"""Commands of people on a run: release, resolve, reopen, verdict. `cancellation` has cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from detent.engine import claims
from detent.engine.confirmation import NO, check_answer, kept_answer, key_of
from detent.engine.driver import Driver
from detent.engine.effects import AGAIN, HAPPENED, SKIP, args_of
from detent.engine.exclusive import key_change
from detent.engine.journal_reader import load, read
from detent.engine.offloaded import blob_of, kept_beside
from detent.engine.verdicts import verdict_note
from detent.kernel import checks
from detent.kernel.budget import Budget
from detent.kernel.entries import (
    CONFIRM,
    Body,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Held,
    Released,
    Reopened,
)
from detent.kernel.errors import (
    ConfigurationError,
    Fenced,
    HoldNotOpen,
    MarkMoved,
    ReplayedRun,
    RunBusy,
    RunStateError,
)
from detent.kernel.hold_token import HoldToken
from detent.kernel.placeholders import uses_receipt
from detent.kernel.plain import encode, to_plain
from detent.kernel.run import Run
from detent.kernel.run_config import KEY, REPLAYED
from detent.kernel.status import REOPENABLE, Status

if TYPE_CHECKING:
    from detent.engine.active_runs import ActiveRuns
    from detent.engine.tools import Tool

UNSAID: Any = object()
"""No receipt was given."""
PATIENCE = 15.0
"""Seconds to wait for another worker that is parking the run."""


@asynccontextmanager
async def _claimed_patiently(active: ActiveRuns, run_id: str) -> AsyncIterator[Driver]:
    """Claim a run, waiting up to `PATIENCE` for the worker that has it; park it again unless launched."""
    deadline = active.clock.elapsed() + PATIENCE
    async with AsyncExitStack() as stack:
        while True:
            try:
                driver = await stack.enter_async_context(claims.claimed(active, run_id))
                break
            except RunBusy:
                if active.clock.elapsed() > deadline:
                    raise
                await asyncio.sleep(0.05)
        yield driver


def _go_on(active: ActiveRuns, driver: Driver, drive: bool) -> None:
    """Drive the run in this process if `drive`; otherwise leave it for a worker to resume."""
    if drive and driver.run.status is Status.RUNNING:
        active.launch(driver)


@asynccontextmanager
async def _answering(
    active: ActiveRuns, run_id: str, hold: str | None, doubt: bool = False
) -> AsyncIterator[tuple[Driver, Held]]:
    """Claim a run to answer one of its holds; `doubt` for a hold about an effect in doubt.

    Raises:
        HoldNotOpen: `hold` is not the token of an open hold.
    """
    hold = "" if hold is None else str(hold)
    deadline = active.clock.elapsed() + PATIENCE
    async with AsyncExitStack() as stack:
        while True:
            # Checked before the claim too: the worker that has the run may already drive it with an answer.
            await _open_hold(active, await load(active.store, run_id), hold, doubt)
            try:
                driver = await stack.enter_async_context(claims.claimed(active, run_id))
                break
            except (RunBusy, Fenced):
                if active.clock.elapsed() > deadline:
                    raise
                await asyncio.sleep(0.05)
        yield driver, await _open_hold(active, driver.run, hold, doubt)


async def _open_hold(active: ActiveRuns, run: Run, hold: str, doubt: bool) -> Held:
    """The open hold that a token names.

    Raises:
        HoldNotOpen: there is no such hold; the message says what became of it.
    """
    token = HoldToken.read(hold)
    held = run.holds.get(token.name) if token is not None else None
    if held is not None and token is not None and run.held_at[token.name] == token.seq:
        if held.why != "children" and _about_effect(held) == doubt:
            return held
        verb = "resolve" if _about_effect(held) else "release"
        why = f"'{hold}' of run {run.id} is answered with {verb}."
        if held.why == "children":
            why = f"'{hold}' of run {run.id} waits for other runs: {', '.join(held.about['runs'][:5])}."
    elif token is not None and 0 < token.seq <= run.seq:
        why = await _fate(active, run, token)
    elif not hold:
        why = f"An answer to run {run.id} needs the token of the question it is for."
    elif hold in run.holds:
        why = f"'{hold}' of run {run.id} is the name of a hold; an answer needs the token of the question."
    else:
        why = f"Run {run.id} has not asked '{hold}'."
    raise run.not_open(hold, why)


def _about_effect(held: Held) -> bool:
    return held.name.startswith("effect:")


async def _fate(active: ActiveRuns, run: Run, token: HoldToken) -> str:
    """A sentence on what became of a hold that is no longer open."""
    was_asked = False
    async for entry in read(active.store, run.id, token.seq - 1):
        body = entry.body
        if entry.seq == token.seq:
            was_asked = isinstance(body, Held) and body.name == token.name
            if not was_asked:
                break
        elif isinstance(body, Released) and body.name == token.name:
            if body.by == "clock":
                return f"'{token}' of run {run.id} timed out; the clock has answered it."
            answer = f"'{body.answer[:200]}'" if isinstance(body.answer, str) else encode(body.answer)[:200]
            when = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            return f"'{token}' of run {run.id} was answered {answer} by {body.by} at {when}."
        elif isinstance(body, Held) and body.name == token.name:
            return f"'{token}' of run {run.id} has been replaced by '{HoldToken(body.name, entry.seq)}'."
    if not was_asked:
        return f"Entry {token.seq} of run {run.id} is not a question called '{token.name}'."
    return f"'{token}' of run {run.id} is no longer open; the run has moved on without an answer."


async def release(active: ActiveRuns, run_id: str, answer: Any, hold: str, by: str, drive: bool) -> None:
    """Answer a hold.

    Raises:
        HoldNotOpen: `hold` is not the token of an open hold.
        ConfigurationError: the answer is not one of the hold's choices.
    """
    plain = to_plain(answer)
    async with _answering(active, run_id, hold) as (driver, held):
        if held.default is not None and held.wake_at is not None and held.wake_at <= active.clock.now():
            raise HoldNotOpen(
                run_id, hold, f"The time for an answer to '{held.name}' of run {run_id} is over.",
                f"It is answered with its default: detent resume {run_id}",
            )  # fmt: skip
        if held.choices and not _is_choice(held, plain):
            text = plain if isinstance(plain, str) else encode(plain)
            raise ConfigurationError(
                f"'{text}' is not an answer to '{held.name}' of run {run_id}. "
                f"Answers: {', '.join(held.choices)}."
            )
        if held.name.startswith(f"{CONFIRM}:"):  # a step's own hold may have this reason too
            tool = driver.flow.tools.get(held.about["tool"], "effect")
            check_answer(tool, await _shown_args(driver, tool, held), plain)
            plain = kept_answer(driver, tool, plain)
        elif held.about.get("private") and isinstance(plain, dict | list):
            blob = blob_of(encode(plain))
            driver.keep(blob)
            plain = kept_beside(blob.body)
        bodies: list[Body] = [Released(held.name, plain, by)]
        if held.name in ("takeovers", "driver") and plain == "cancel":
            why = "its workers kept dying" if held.name == "takeovers" else "it could not be driven"
            bodies.append(Ended(Status.CANCELLED, why, by=by))
        await driver.commit(*bodies)
        _go_on(active, driver, drive)


def _is_choice(held: Held, answer: Any) -> bool:
    """Whether an answer is one of a hold's choices; a no to a confirmation may say why."""
    if held.why == CONFIRM and isinstance(answer, Mapping) and set(answer) == {NO}:
        return NO in held.choices and isinstance(answer[NO], str)
    return answer in held.choices


async def _shown_args(driver: Driver, tool: Tool, held: Held) -> dict[str, Any]:
    """The arguments of the effect that a confirmation is about."""
    key, proposal = key_of(held.name), driver.run.proposal
    items = [] if proposal is None else proposal.effects
    return await args_of(driver, tool, next(item for item in items if item["key"] == key))


async def resolve(
    active: ActiveRuns, run_id: str, how: str, hold: str, receipt: Any, by: str, drive: bool
) -> None:
    """Settle an effect in doubt, or one that failed at the end of the run.

    Raises:
        HoldNotOpen: `hold` is not the token of an open hold.
        ConfigurationError: `how` is unknown or does not fit the effect, or a receipt is needed.
    """
    if how not in (HAPPENED, AGAIN, SKIP):
        raise ConfigurationError(
            f"An effect in doubt is settled as {HAPPENED}, {AGAIN} or {SKIP}, not as '{how}'."
        )
    plain = None if receipt is UNSAID else to_plain(receipt)
    async with _answering(active, run_id, hold, doubt=True) as (driver, held):
        key, tool = held.about["effect"], held.about["tool"]
        body: Body
        if how not in held.choices:
            raise ConfigurationError(f"'{tool}' failed, so it did not happen. Say {AGAIN} or {SKIP}.")
        if how == HAPPENED and receipt is UNSAID and uses_receipt(driver.run.proposal, key):
            raise ConfigurationError(
                f"The step uses what '{tool}' gave back: say what that was with the receipt "
                f"(--receipt JSON on the command line; null for nothing)."
            )
        if how == HAPPENED:
            body = EffectDone(key, tool, plain, "told")
        elif how == SKIP:
            body = EffectSkipped(key, tool, by)
        else:
            now = active.clock.now()
            body = EffectFailed(key, tool, "told", f"{by} said it did not happen", 0, now)
        await driver.commit(Released(held.name, how, by), body)
        _go_on(active, driver, drive)


async def reopen(
    active: ActiveRuns, run_id: str, budget: Budget | None, reason: str, by: str, drive: bool
) -> None:
    """Continue an ended run from the working state it was last in.

    Raises:
        RunStateError: the run cannot be reopened.
        KeyTaken: another run with its `exclusive` key is open.
    """
    reason, by = checks.text("reason", reason), checks.name("by", by)
    row = await active.store.row(run_id)
    if row.now.status not in REOPENABLE:
        raise RunStateError(f"Run {run_id} is {row.now.status.value} and cannot be reopened.")
    async with _claimed_patiently(active, run_id) as driver:
        run, machine = driver.run, driver.flow.machine
        if run.config.get(REPLAYED):
            raise ReplayedRun(run_id)
        if run.fingerprint != driver.flow.fingerprint:
            raise RunStateError(f"Run {run_id} ended under another definition; fork it instead.")
        state = run.state
        if machine.is_end(machine.state(state)):
            state = await _last_working(active, run_id, state)
        if driver.flow.undoing is not None and state == machine.named(driver.flow.undoing):
            raise RunStateError(
                f"Run {run_id} has undone what it did and cannot be reopened. Start a new one, or fork it."
            )
        if budget is None and run.budget is not None and run.budget.exceeded(run.used()):
            raise RunStateError(
                f"Run {run_id} has used up its {run.budget.exceeded(run.used())} budget; "
                f"give it a larger one."
            )
        reopened = Reopened(state, by, reason, budget.to_plain() if budget else None)
        if (key := run.config.get(KEY)) is None:
            await driver.commit(reopened)
        else:
            await _commit_with_key(driver, key, reopened)
        _go_on(active, driver, drive)


async def _commit_with_key(driver: Driver, key: str, reopened: Reopened) -> None:
    """Reopen a run in the transaction that gives it its `exclusive` key again."""
    while True:
        driver.log.mark_with_next(await key_change(driver.log.store, key, driver.run.id))
        try:
            await driver.commit(reopened)
            return
        except MarkMoved:
            continue  # another run has taken the key, and may have ended already


async def verdict(
    active: ActiveRuns, run_id: str, state: Any, right: bool, why: str, visit: int | None, by: str
) -> None:
    """Record a person's verdict on a visit that a run has made, ended or not.

    Raises:
        ConfigurationError: the run has not made that visit.
        RunBusy: another process drives the run.
    """
    by = checks.name("by", by)
    if (under_way := active.under_way(run_id)) is not None:
        driver, _ = under_way
        note = await verdict_note(
            active.store, driver.run, state, right, visit=visit, why=why, by=by, aside=True
        )
        await driver.commit_whole(note)  # its performer is told by its driver
        return
    async with _claimed_patiently(active, run_id) as driver:
        note = await verdict_note(
            active.store, driver.run, state, right, visit=visit, why=why, by=by, aside=True
        )
        await driver.commit(note)
        await active.performer.judged(driver, driver.verdicts)


async def _last_working(active: ActiveRuns, run_id: str, end: str) -> str:
    """The state from which the run moved into its end state."""
    last = ""
    async for entry in read(active.store, run_id):
        if entry.kind == "moved" and entry.body.to == end:  # type: ignore[union-attr]
            last = entry.body.frm  # type: ignore[union-attr]
    return last
