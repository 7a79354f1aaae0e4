"""The gate: accepts or rejects an agent's proposal that kept the hard contract, by autonomy level.

It never asks a person and never asks the agent again. At the lowest level that reaches it, the step's own
code decides.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AutonomyLevel, Check
from detent.dispatch.equivalence import Discrepancy, canonical_value, differences
from detent.dispatch.matching import effect_differences, placed_rules
from detent.dispatch.proposal import Proposal, Verdict
from detent.engine.calls import call, over
from detent.engine.outcome import Effect, Outcome, additions
from detent.engine.step import Step
from detent.engine.user_errors import message_of
from detent.kernel.errors import name_of
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.dispatch.contract import Contract

MOST_KEPT = 50
_NAME = re.compile(r"[A-Za-z0-9_.*-]{0,40}")


@dataclass(frozen=True, slots=True)
class Side:
    """The result of one side, handler or agent."""

    outcome: Outcome
    output: Any
    """The facts before they became an outcome, or the data it sets."""
    to: str | None
    """Name of the state it leads to."""
    effects: tuple[Effect, ...]
    whole: bool = False
    """The side is known only as an outcome, without the facts that led to it."""

    @classmethod
    def of(cls, step: Step, value: Any, outcome: Outcome, to: str | None, effects: tuple[Any, ...]) -> Side:
        """A side from a handler's return value or an agent's output."""
        output = value
        named = outcome.next is value  # a bare state is the next state, not an output
        whole = isinstance(value, Outcome) or value is None or named
        if whole:
            changes = outcome.set
            output = changes.get(step.into) if step.into is not None and step.into in changes else changes
        return cls(outcome, output, to, tuple(Effect.of(effect) for effect in effects), whole)

    def document(self) -> dict[str, Any]:
        """Everything that is compared, as canonical values."""
        outcome = self.outcome
        document: dict[str, Any] = {
            "output": canonical_value(self.output),
            "next_state": self.to,
            "effects": [
                {"tool": effect.tool, "args": canonical_value(to_plain(effect.args)), "key": effect.key}
                for effect in self.effects
            ],
            "append": canonical_value(additions(outcome.append)),
        }
        if outcome.hold is not None:
            document["hold"] = outcome.hold.name
        if outcome.end is not None:
            document["end"] = name_of(outcome.end)
        return document


class Rejected(BaseException):
    """The gate has rejected what an agent was about to do; no executor may swallow it."""

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement
        super().__init__("the gate has rejected it")


class HandlerFailed(BaseException):
    """The handler, run for a comparison, has failed: the step's failure, and none of the agent's."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__("the handler has failed")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The gate's decision on a proposal."""

    accepted: bool
    check: Check
    details: tuple[Discrepancy, ...] = ()
    more: int = 0
    reasons: tuple[str, ...] = ()
    """Reasons given by the validator."""
    handler: Side | None = None
    """The handler's side, if it was run for the check."""


def compare_sides(
    step: Step, contract: Contract, left: Side, right: Side
) -> tuple[tuple[Discrepancy, ...], int]:
    """Where two sides differ: output, next state, effects in order, additions to data."""
    if step.conclude is not None and left.whole != right.whole:  # facts cannot be compared with an outcome
        left, right = (
            Side.of(step, side.outcome, side.outcome, side.to, side.effects) for side in (left, right)
        )
    schema = {"type": "object", "properties": {"output": contract.output}} if contract.output else None
    one, other = left.document(), right.document()
    first = effect_differences(step, left.effects, right.effects)
    if not first:
        one["effects"] = other["effects"] = []
    details, count = differences(one, other, placed_rules(step), schema=schema, limit=MOST_KEPT)
    rest = [detail for detail in details if not detail.pointer.startswith("/effects")]
    return (*first, *rest)[:MOST_KEPT], count - (len(details) - len(rest)) + len(first)


async def judge_round(
    level: AutonomyLevel,
    step: Step,
    inputs: Mapping[str, Any],
    proposal: Proposal,
    compare: Callable[[], Awaitable[tuple[Discrepancy, ...]]],
) -> Judgement:
    """Accept or reject effects that an agent asks for before it goes on.

    `compare` gives where they differ from what the step's own code would do; its error is the step's error.
    """
    if _asks_validator(level, step):
        return await _validated(step, inputs, proposal)
    if level is AutonomyLevel.APPROVER:
        return Judgement(True, Check.NONE)
    if level is AutonomyLevel.CONSULTANT or agent_side(step).by_contract:
        return Judgement(True, Check.CONTRACT)
    details = await compare()
    return Judgement(not details, Check.COMPARE, details[:MOST_KEPT], max(0, len(details) - MOST_KEPT))


async def no_judge(effects: Sequence[Effect], number: int) -> int:
    """Nobody judges a shadow's effects: those that were not performed end it."""
    return len(effects)


async def judge(
    level: AutonomyLevel,
    step: Step,
    contract: Contract,
    inputs: Mapping[str, Any],
    proposal: Proposal,
    agent: Side,
    handler: Callable[[], Awaitable[Side]],
) -> Judgement:
    """Accept or reject a proposal. `handler` runs the step's own code; its error is the step's error."""
    if _asks_validator(level, step):
        return await _validated(step, inputs, proposal)
    if level is AutonomyLevel.APPROVER:
        return Judgement(True, Check.NONE)
    if level is AutonomyLevel.CONSULTANT or agent_side(step).by_contract:
        details, more = await over(proposal.given, contract.soft_misfits, proposal.given)
        return Judgement(True, Check.CONTRACT, details, more)
    side = await handler()
    try:
        details, count = compare_sides(step, contract, side, agent)
    except TypeError:  # facts of a type that cannot be compared do not count as equal
        details, count = (Discrepancy("", "type"),), 1
    return Judgement(not count, Check.COMPARE, details, max(0, count - len(details)), handler=side)


def _asks_validator(level: AutonomyLevel, step: Step) -> bool:
    always = agent_side(step).validated
    return step.validator is not None and (always or level is AutonomyLevel.COLLABORATOR)


async def validated(step: Step, inputs: Mapping[str, Any], proposal: Proposal) -> Judgement | None:
    """The judgement of the step's validator; None if it has none."""
    return None if step.validator is None else await _validated(step, inputs, proposal)


async def _validated(step: Step, inputs: Mapping[str, Any], proposal: Proposal) -> Judgement:
    verdict = await _verdict(step, inputs, proposal)
    discrepancies = tuple(Discrepancy(_pointer(reason), "value") for reason in verdict.reasons)
    if not verdict.ok and not discrepancies:
        discrepancies = (Discrepancy("", "value"),)
    return Judgement(
        verdict.ok, Check.VALIDATOR, discrepancies[:MOST_KEPT], max(0, len(discrepancies) - MOST_KEPT),
        tuple(str(reason)[:200] for reason in verdict.reasons),
    )  # fmt: skip


async def _verdict(step: Step, inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
    """The verdict of the step's validator; a validator that raises rejects the proposal."""
    assert step.validator is not None
    try:
        answer = await call(step.validator, None, inputs, proposal)
    except Exception as error:
        when = "" if proposal.final else f" (before the effects of round {proposal.round}: not `final`)"
        told = f"{type(error).__name__}: {message_of(error)}"
        return Verdict(False, (f"the validator failed: {told}{when}",))
    if isinstance(answer, Verdict):
        return answer
    if isinstance(answer, tuple):
        ok, *rest = answer
        reasons = rest[0] if rest else ()
        return Verdict(bool(ok), (reasons,) if isinstance(reasons, str) else tuple(reasons))
    return Verdict(bool(answer))


def loggable(pointers: Iterable[str]) -> list[str]:
    """Pointers for a log line, without parts that an agent may have made up."""
    return [
        "/".join(part if _NAME.fullmatch(part) else "…" for part in pointer.split("/"))
        for pointer in pointers
    ]


def _pointer(reason: str) -> str:
    """The pointer at the beginning of a validator's reason, if there is one."""
    first = str(reason).split(maxsplit=1)[0] if str(reason).strip() else ""
    return first.rstrip(":") if first.startswith("/") else ""
