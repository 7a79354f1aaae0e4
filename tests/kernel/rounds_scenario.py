"""Scenarios of the model of rounds: a step, what may happen to it, and how it ends undisturbed.

Nothing here knows rounds, keys, workers or the journal. `expected_end` has handler and agent act in a world
of their own, one effect after another; the model's ends, however disturbed, must be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from detent.kernel.status import Status

THOUGHTS = "x" * 600
"""What an agent writes beside its calls: most of the bytes of a round."""


class Tool(NamedTuple):
    """How an effect gets out of doubt."""

    probe: bool = False
    by_key: bool = False
    """The probe is given the key; otherwise it looks for an effect with these arguments."""
    idempotent: bool = False
    confirmed: bool = False
    """A person must agree before it is performed."""
    refuses: bool = False
    """It may fail for good, with nothing done."""


class Look(NamedTuple):
    """A handler asks how often an effect has happened."""

    action: str


class Do(NamedTuple):
    """A handler performs an effect and goes on with its receipt."""

    action: str


class Refused(Exception):
    """Raised in a handler whose effect failed for good."""


class Finish(NamedTuple):
    """A handler's outcome, with effects to perform before the move."""

    facts: str
    effects: tuple[str, ...] = ()


Handler = Callable[[], Generator[Look | Do, Any, Finish]]


class Answer(NamedTuple):
    """One reply of an agent: effects to perform, or the facts that end the visit, or neither if it failed."""

    calls: tuple[str, ...] = ()
    facts: str = ""

    def to_plain(self, earlier: Sequence[Any] = ()) -> dict[str, Any]:
        """As the journal keeps it."""
        said = {"calls": list(self.calls), "facts": self.facts, "text": THOUGHTS}
        return {**said, "earlier": earlier} if earlier else said

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Answer:
        """Read it back."""
        return cls(tuple(plain["calls"]), plain["facts"])


FAILED = Answer()
"""The agent gave no usable answer."""


class Scenario(NamedTuple):
    """A step, and what may happen to it."""

    tools: Mapping[str, Tool]
    handler: Handler
    agent: tuple[tuple[Answer, ...], ...] = ()
    """The answers it may give in each round, whenever it is asked; in later rounds it fails. Without any, the
    handler decides.
    """
    compared: bool = False
    """An answer counts only if the handler would do the same."""
    answer_first: bool = False
    """An answer is committed by itself before it is judged."""
    visits: int = 1


def receipt_of(action: str, number: int) -> dict[str, Any]:
    """What the world gives back: which of the equal effects it was."""
    return {"of": action, "number": number}


def go_on(handler: Generator[Look | Do, Any, Finish], result: Any) -> Look | Do:
    """Go on with a handler, given what came of its last request, until it requests something else."""
    if isinstance(result, dict) and "code" in result:
        return handler.throw(Refused(result["code"]))
    return handler.send(result)


# -- how it ends undisturbed ---------------------------------------------------------------------------------


class End(NamedTuple):
    """How a run ends: what people can see of it."""

    status: Status
    ends: list[Any]
    """Facts and receipts, by visit."""
    happened: Counter[str]
    by: str


class Ideal:
    """A world in which a visit is undisturbed."""

    def __init__(self, not_done: Mapping[tuple[str, int], Any]) -> None:
        self.not_done = not_done
        """What came of the effects that did not happen, by action and which of the equal ones it was."""
        self.requests: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.asked: list[str] = []
        self.results: list[Any] = []

    def visit(self) -> Ideal:
        """The same world, for one more visit."""
        other = Ideal(self.not_done)
        other.requests, other.happened = self.requests.copy(), self.happened.copy()
        return other

    def act(self, action: str) -> Any:
        """Perform an effect."""
        self.asked.append(action)
        self.requests[action] += 1
        effect = action, self.requests[action]
        if effect in self.not_done:
            self.results.append(self.not_done[effect])
        else:
            self.happened[action] += 1
            self.results.append(receipt_of(action, self.happened[action]))
        return self.results[-1]

    def handle(self, handler: Handler) -> dict[str, Any]:
        """Call a handler, and do all it asks for."""
        calls, result = handler(), None
        while True:
            try:
                request = go_on(calls, result)
            except StopIteration as stop:
                for action in stop.value.effects:
                    self.act(action)
                return {"facts": stop.value.facts, "receipts": self.results}
            result = self.happened[request.action] if isinstance(request, Look) else self.act(request.action)


def expected_end(
    scenario: Scenario, visits: Sequence[Sequence[Answer]], not_done: Mapping[tuple[str, int], Any]
) -> tuple[End, bool]:
    """How a run ends undisturbed, given the agent's answers by visit, and whether it falls back on the way.

    `not_done` says what came of effects that did not happen, by action and which of the equal ones it was.
    """
    world = Ideal(not_done)
    ends: list[Any] = []
    by, fell_back = "handler", False
    for number in range(scenario.visits):
        code = world.visit()
        end = code.handle(scenario.handler)
        if scenario.agent:
            agent = world.visit()
            facts = _conclusion(scenario, agent, visits[number] if number < len(visits) else [], code, end)
            by = "agent" if facts is not None else "handler"
            fell_back = fell_back or facts is None
            if facts is not None:
                code, end = agent, {"facts": facts, "receipts": agent.results}
            elif not Counter(agent.asked) <= Counter(code.asked):
                return End(Status.FAILED, ends, agent.happened, "person"), True
        ends.append(end)
        world = code
    return End(Status.SUCCEEDED, ends, world.happened, by), fell_back


def _conclusion(
    scenario: Scenario, agent: Ideal, answers: Sequence[Answer], code: Ideal, end: Mapping[str, Any]
) -> str | None:
    """Have an agent act as it answered. Returns its facts, or None where the handler takes over."""
    for answer in answers:
        asked = [*agent.asked, *answer.calls]
        if answer == FAILED or (scenario.compared and code.asked[: len(asked)] != asked):
            return None
        if answer.facts:
            same = code.asked == asked and end["facts"] == answer.facts
            return answer.facts if same or not scenario.compared else None
        for call in answer.calls:
            agent.act(call)
    return None
