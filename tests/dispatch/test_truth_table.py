"""The truth table of dispatch: every level, every case, every kind of step.

What is expected is written down here from the specification alone, row by row. In every row in which the
agent's answer does not count, the run is the run its handlers would have made without an agent (D-24, D-25,
D-34).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.result import DispatchResult
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.budget import Budget
from detent.kernel.guards import when
from detent.kernel.machine import Machine, Move
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
    LEVELS,
    MAIL,
    QUESTION,
    UNAUDITED,
    Form,
    agent,
    capture,
    moves,
    settings,
    triage,
)
from tests.examples import covering

# -- the four kinds of step, one of them twice --------------------------------------------------------------


@dataclass
class World:
    """What steps can look up and change."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    performed: list[str] = field(default_factory=list)

    def tools(self) -> list[Tool]:
        def find(text: str) -> dict[str, Any]:
            self.asked.append({"text": text})
            return {"kind": "fault"}

        def post(what: str) -> dict[str, Any]:
            self.performed.append(what)
            return {"number": len(self.performed)}

        def burn() -> None:
            self.performed.append("burnt")

        return [
            Tool("device.find", find, "query"),
            Tool("ledger.post", post),
            Tool("ledger.burn", burn),
        ]


async def with_query(ctx: Any) -> Form:
    device = await ctx.query("device.find", text=ctx.data["text"])
    return Form(device["kind"], "!" in ctx.data["text"])


async def with_effect(ctx: Any) -> Outcome:
    form = await triage(ctx)
    return Outcome(
        set={"kind": form.kind, "urgent": form.urgent}, effects=[Effect("ledger.post", {"what": form.kind})]
    )


async def with_choice(ctx: Any) -> Outcome:
    form = await triage(ctx)
    return Outcome(
        "left" if form.kind == "fault" else "right", set={"kind": form.kind, "urgent": form.urgent}
    )


class KindOfStep(NamedTuple):
    """A kind of step, and how an agent answers it."""

    handler: Any
    options: dict[str, Any]
    moves: list[Any]
    answer: Callable[[dict[str, Any]], Any]
    """The answer with this output, everything else being as it should."""
    calls: tuple[dict[str, Any], ...] = ()
    acts: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None
    """The calls with which an agent of this output acts before it answers."""
    wrong_next: Any = None
    """An answer that leads where it may not; None where an answer cannot say so."""


def bare(output: dict[str, Any]) -> Any:
    return output


def posting(output: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"tool": "ledger.post", "args": {"what": output.get("kind")}}]


def choosing(output: dict[str, Any]) -> Any:
    return {"output": output, "next_state": "left" if output.get("kind") == "fault" else "right"}


BURN = {"tool": "ledger.burn", "args": {}}
LOOK = ({"tool": "device.find", "args": MAIL},)
KINDS = {
    "pure": KindOfStep(triage, {}, ["left"], bare),
    "queries": KindOfStep(with_query, {"queries": ("device.find",)}, ["left"], bare, LOOK),
    "effects": KindOfStep(
        with_effect, {"effects": ("ledger.post",), "agent": AgentSide(returns=Form)}, ["left"], bare,
        acts=posting,
    ),
    "choice": KindOfStep(
        with_choice, {"agent": AgentSide(returns=Form)}, ["left", "right"], choosing,
        wrong_next={"output": FAULT, "next_state": "pay"},
    ),
    "guards": KindOfStep(
        triage, {},
        [Move("left", when=when({"kind": "fault"})), Move("right", when=when({"kind": "question"}))], bare,
        wrong_next={"kind": "neither", "urgent": True},
    ),
}  # fmt: skip


def flow_with(kind: KindOfStep, world: World, *, intent: str, validator: Any) -> Flow:
    async def pay(ctx: Any) -> dict[str, Any]:
        return {"paid": True}

    step = Step("work", kind.handler, intent, output_schema=KIND_ONLY, validator=validator, **kind.options)
    ends = {getattr(move, "to", move): Status.SUCCEEDED for move in kind.moves}
    machine: Machine[str] = Machine(
        "table", start="pay", moves={"pay": ["work"], "work": kind.moves}, ends=ends
    )
    return Flow(
        machine,
        {"pay": Step("pay", pay, "Pay for what is to come, or do not."), "work": step},
        tools=world.tools(),
    )


# -- the cases ----------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """What the agent does, or what keeps it from doing anything."""

    script: Callable[[KindOfStep], list[dict[str, Any]]]
    no_executor: bool = False
    unavailable: str | None = None
    no_intent: bool = False
    broke: bool = False
    """The run's money is gone when the step begins."""
    config: Mapping[str, Any] = MappingProxyType({})
    only: tuple[str, ...] = tuple(KINDS)


def says(output: dict[str, Any]) -> Callable[[KindOfStep], list[dict[str, Any]]]:
    def script(kind: KindOfStep) -> list[dict[str, Any]]:
        acting = [] if kind.acts is None else [{"output": {"calls": kind.acts(output)}}]
        return [*acting, {"output": kind.answer(output), "calls": kind.calls}]

    return script


def twice(reply: dict[str, Any]) -> Callable[[KindOfStep], list[dict[str, Any]]]:
    return lambda kind: [{"calls": kind.calls, **reply}] * 2


CASES = {
    "equal": Case(says(FAULT)),
    "different": Case(says(QUESTION)),
    "soft mismatch": Case(says({"kind": "fault", "urgent": "very", "more": 1})),
    "schema violation": Case(lambda kind: says({"kind": 3})(kind) * 2),
    "garbage text": Case(twice({"text": "I would say it is a fault."})),
    "wrong effect": Case(twice({"output": {"calls": [BURN]}}), only=("effects",)),
    "wrong effect arguments": Case(
        twice({"output": {"calls": [{"tool": "ledger.post", "args": {"what": 1}}]}}), only=("effects",)
    ),
    "wrong tool": Case(lambda kind: [{"output": kind.answer(FAULT), "calls": [BURN]}] * 2),
    "undeclared next state": Case(
        lambda kind: [{"output": kind.wrong_next}] * 2, only=("choice", "guards")
    ),
    "violation, then a good answer": Case(
        lambda kind: [{"output": kind.answer({"kind": 3})}, *says(FAULT)(kind)]
    ),
    "exception": Case(lambda kind: [{"error": "permanent"}]),
    "crash": Case(lambda kind: [{"error": "crash", "calls": kind.calls}]),
    "lost connections": Case(twice({"error": "transient"})),
    "lost connection, then a good answer": Case(lambda kind: [{"error": "transient"}, *says(FAULT)(kind)]),
    "timeout": Case(twice({"error": "timeout"}), config={"timeout": 0.02}),
    "not successful": Case(lambda kind: [{"output": kind.answer(FAULT), "success": False}]),
    "success: false": Case(
        lambda kind: [{"output": kind.answer({"kind": "fault", "success": False}), "calls": kind.calls}]
    ),
    "no executor": Case(lambda kind: [], no_executor=True),
    "executor unavailable": Case(lambda kind: [], unavailable="SAMPLE_KEY is not set"),
    "no intent": Case(says(FAULT), no_intent=True),
    "no budget": Case(says(FAULT), broke=True),
    "no budget for a second attempt": Case(
        twice({"error": "transient", "usage": {"input_tokens": 12}}), config={"budget": Budget(tokens=10)}
    ),
}  # fmt: skip


# -- the table ----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What the specification says about a level and a case."""

    output: str
    mode_used: str
    fallback: str | None
    accepted: bool | None
    check: str | None
    events: str


PLAIN = Row("handler", "deterministic", None, None, None, "M D")
OPERATOR = Row("handler", "deterministic", "operator", False, None, "M operator_fallback F D")


def took(check: str, events: str = "M S C V A") -> Row:
    return Row("agent", "agent", None, True, check, events)


def refused(check: str) -> Row:
    return Row("handler", "deterministic", "validation_failure", False, check, "M S C V A F D")


def fell_back(reason: str, events: str) -> Row:
    return Row("handler", "deterministic", reason, False, None, events)


FAULTS = {
    "schema violation": fell_back("schema_violation", "M S R R F D"),
    "garbage text": fell_back("schema_violation", "M S R R F D"),
    "wrong effect": fell_back("schema_violation", "M S R F D"),
    "wrong effect arguments": fell_back("schema_violation", "M S R F D"),
    "wrong tool": fell_back("schema_violation", "M S R R F D"),
    "undeclared next state": fell_back("schema_violation", "M S R R F D"),
    "exception": fell_back("exception", "M S R F D"),
    "crash": fell_back("exception", "M S R F D"),
    "lost connections": fell_back("exception", "M S R R F D"),
    "timeout": fell_back("timeout", "M S R R F D"),
    "not successful": fell_back("exception", "M S R F D"),
    "success: false": fell_back("exception", "M S R F D"),
    "no executor": fell_back("no_executor", "M no_executor F D"),
    "executor unavailable": fell_back("no_executor", "M no_executor F D"),
    "no intent": fell_back("no_intent", "M no_intent F D"),
    "no budget": fell_back("budget", "M budget_exhausted F D"),
    "no budget for a second attempt": fell_back("budget", "M S R budget_exhausted F D"),
}

TABLE: dict[str, dict[str, Row]] = {
    "none": dict.fromkeys(CASES, PLAIN),
    "forced": dict.fromkeys(CASES, PLAIN),
    "operator": dict.fromkeys(CASES, OPERATOR),
    "collaborator": {
        **FAULTS,
        "equal": took("compare"),
        "different": refused("compare"),
        "soft mismatch": refused("compare"),
        "violation, then a good answer": took("compare", "M S R C V A"),
        "lost connection, then a good answer": took("compare", "M S R C V A"),
    },
    "collaborator with a validator": {
        **FAULTS,
        "equal": took("validator"),
        "different": refused("validator"),
        "soft mismatch": took("validator"),
        "violation, then a good answer": took("validator", "M S R C V A"),
        "lost connection, then a good answer": took("validator", "M S R C V A"),
    },
    "consultant": {
        **FAULTS,
        "equal": took("contract"),
        "different": took("contract"),
        "soft mismatch": took("contract"),
        "violation, then a good answer": took("contract", "M S R C V A"),
        "lost connection, then a good answer": took("contract", "M S R C V A"),
    },
    "approver": {
        **FAULTS,
        "equal": took("none"),
        "different": took("none"),
        "soft mismatch": took("none"),
        "violation, then a good answer": took("none", "M S R C V A"),
        "lost connection, then a good answer": took("none", "M S R C V A"),
    },
}

OUTCOMES = {"compare": "accepted", "validator": "accepted", "contract": "verified", "none": "accepted"}
"""How an accepted answer is told, by check."""


ROWS = [(level, case, kind) for level in TABLE for case in CASES for kind in CASES[case].only]


def is_about_a_fault(inputs: Any, proposal: Any) -> bool:
    if not proposal.final:
        return bool(proposal.effects[0].args["what"] == "fault")
    return bool(proposal.plain["kind"] == "fault")


@pytest.mark.parametrize(("level", "name", "kind_name"), covering(rows=ROWS))
async def test_every_row_of_the_table_holds(quick, level, name, kind_name):
    """D-25, D-34: output, shape, events and effects of every combination; never worse than no agent."""
    case, kind, row = CASES[name], KINDS[kind_name], TABLE[level][name]

    baseline = World()
    engine = await quick.engine(flow_with(kind, baseline, intent=INTENT, validator=None))
    plain = await engine.run("table", MAIL)

    world = World()
    level_name, _, validated = level.partition(" ")
    flow = flow_with(
        kind,
        world,
        intent="" if case.no_intent else INTENT,
        validator=is_about_a_fault if validated else None,
    )
    script = {
        "work": case.script(kind) or [{"error": "crash"}],
        "pay": {"output": {"paid": True}, "usage": {"input_tokens": 10}},
    }
    executor = ScriptedStepExecutor(script)
    steps = {}
    config = {"provider": "tested", **case.config}
    if kind_name == "queries" and "timeout" in config:
        config["timeout"] = 1.0  # long enough for the query before it, on a busy machine too
    if level_name != "none":
        steps["work"] = agent(level_name if level_name != "forced" else "approver", **config)
        if case.broke:
            steps["pay"] = StepConfig(mode=agent().mode, provider="paying")
    executors = {"tested": executor, "paying": executor}
    if case.unavailable:
        executors["tested"] = ScriptedStepExecutor([{"error": "crash"}], unavailable=case.unavailable)
    source = None if case.no_executor else ScriptedSource(executors)
    engine = await quick.engine(
        flow, dispatch=DispatchSettings(steps=steps, executors=source, evidence=UNAUDITED)
    )
    with capture() as heard:
        run = await engine.run(
            "table", MAIL, force_deterministic=level_name == "forced",
            budget=Budget(tokens=10) if case.broke else None,
        )  # fmt: skip

    (move,) = await moves(engine, run.id)
    result = DispatchResult.from_plain(move.detail) if move.detail else DispatchResult.plain()
    assert result.mode_used.value == row.mode_used
    assert result.fallback_used is (row.fallback is not None)
    assert (result.fallback_reason and result.fallback_reason.value) == row.fallback
    assert result.agent_result_accepted is row.accepted
    assert (result.check and result.check.value) == row.check
    assert result.forced is (level_name == "forced")
    events = row.events
    # Its effect passes; it sees what came of it, and answers: two rounds, the second judged by itself.
    rounds = kind.acts is not None and (row.accepted or name == "soft mismatch")
    if rounds:
        events = events.replace("C V A", "C V S C V A")
    assert heard.sequence() == events
    assert result.attempts == row.events.split().count("R") + row.events.split().count("C")
    asked = [call for call in executor.calls if call.step_name == "work"]
    assert len(asked) == result.attempts or kind.acts is not None
    if level_name not in ("none", "forced"):
        assert result.autonomy_level.value == level_name
    for said in heard.named("dispatch.autonomy_validation", "work")[-1:]:
        assert said["outcome"] == (OUTCOMES[row.check] if row.accepted else "rejected")
    for said in heard.named("dispatch.fallback", "work"):
        assert (said["reason"], said["fallback_succeeded"]) == (row.fallback, True)

    if row.output == "handler":
        assert move.by == "handler"
        assert (run.status, run.state, run.data) == (plain.status, plain.state, plain.data)
        assert world.performed == baseline.performed
    else:
        output = {"equal": FAULT, "different": QUESTION}.get(name, FAULT)
        if name == "soft mismatch":
            output = {"kind": "fault", "urgent": "very", "more": 1}
        assert move.by == "agent"
        assert run.status is Status.SUCCEEDED
        assert run.data == {**plain.data, **output}
        assert run.state == ("right" if output is QUESTION and len(kind.moves) > 1 else "left")
        assert world.performed == ([output["kind"]] if kind_name == "effects" else [])
    if kind_name == "queries":
        assert len(world.asked) == 1, "one question is asked once, whoever asks it"


def test_the_table_knows_every_level_and_every_case():
    """D-25: no row is forgotten."""
    for level, said in TABLE.items():
        assert set(said) == set(CASES), level


async def test_one_executor_shows_three_faces_at_three_levels(quick):
    """D-24: the same answer, different from the handler's and odd in shape, at each level."""
    seen = {}
    for level in LEVELS:
        flow = flow_with(KINDS["pure"], World(), intent=INTENT, validator=None)
        executor = ScriptedStepExecutor([{"output": {"kind": "question", "urgent": "no"}}])
        dispatch = settings(executor, agent(level))
        engine = await quick.engine(flow, dispatch=dispatch)
        with capture() as heard:
            run = await engine.run("table", MAIL)
        verdict = heard.one("dispatch.autonomy_validation")
        odd = verdict["discrepancies"] > 0
        seen[level] = (run.data["kind"], heard.sequence(), verdict["outcome"], odd, verdict.level)
    assert seen == {
        "collaborator": ("fault", "M S C V A F D", "rejected", True, 30),
        "consultant": ("question", "M S C V A", "verified", True, 30),
        "approver": ("question", "M S C V A", "accepted", False, 20),
    }
