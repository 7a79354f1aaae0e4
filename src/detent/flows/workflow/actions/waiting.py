"""Actions that wait: for the clock, or for a person."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, TypedDict

from detent.dispatch.equivalence import CompareRules
from detent.engine.context import StepContext
from detent.engine.outcome import Hold
from detent.engine.step_failures import StepFailed
from detent.flows.workflow.registry import action

SLEEPING = "sleep"
ASKING = "ask"
ANY_ANSWER: list[str] = []
LONGEST = 10 * 366 * 24 * 3600.0


class Woken(TypedDict):
    woke_at: str


class Answered(TypedDict):
    answer: Any
    by: str
    at: str


@action(
    "sleep",
    intent="Wait for the given time before going on.",
    output_schema=Woken,
    compare=CompareRules(ignore=["/woke_at"]),
    holds=True,
)
async def sleep(
    ctx: StepContext, seconds: float | None = None, until: str | float | None = None
) -> dict[str, Any] | Hold:
    """Wait so many seconds, or until a time (ISO 8601, or seconds since the epoch); the process may stop."""
    if (seconds is None) == (until is None):
        raise StepFailed("Give either `seconds` or `until`.")
    if not ctx.answered(SLEEPING):
        due = _due(ctx, seconds, "seconds") if until is None else _moment(until, "until")
        if due > ctx.now():
            return Hold(SLEEPING, "timer", wake_at=due)
    return {"woke_at": _said(ctx.now())}


@action(
    "ask_person",
    intent="Get a person's answer to one question before going on.",
    output_schema=Answered,
    compare=CompareRules(ignore=["/at"]),
    holds=True,
)
async def ask_person(
    ctx: StepContext,
    question: str,
    choices: list[str] = ANY_ANSWER,
    expires: str | float | None = None,
    default: Any = None,
) -> dict[str, Any] | Hold:
    """Ask, and wait for the answer. After `expires` (seconds, or a time in ISO 8601) `default` is it."""
    if not question.strip():
        raise StepFailed("There is nothing to ask: `question` is empty.")
    if choices and default is not None and default not in choices:
        raise StepFailed("`default` must be one of the `choices`.")
    if not ctx.answered(ASKING):
        due = None
        if expires is not None:
            due = _moment(expires, "expires") if isinstance(expires, str) else _due(ctx, expires, "expires")
        return Hold(ASKING, "person", question=question, choices=list(choices), wake_at=due, default=default)
    by, at = ctx.answer_by(ASKING) or ("person", ctx.now())
    return {"answer": ctx.answer(ASKING), "by": by, "at": _said(at)}


def _due(ctx: StepContext, seconds: float | None, name: str) -> float:
    if seconds is None or not math.isfinite(seconds) or not 0 <= seconds <= LONGEST:
        raise StepFailed(f"`{name}` is a number of seconds, 0 to {LONGEST:.0f}.")
    return ctx.now() + seconds


def _moment(said: str | float, name: str) -> float:
    if isinstance(said, int | float):
        return float(said)
    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        raise StepFailed(f"`{name}` is a time like 2030-01-31T08:00:00Z.") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _said(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
