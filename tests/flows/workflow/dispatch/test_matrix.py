"""Every way an agent can fail, at every level, in every place a workflow file has for a python step.

What is expected is written from the truth table of dispatch alone. Whatever goes wrong with the agent, the
run is the run that the handlers would have made: the same results in the same shape, the same effects, the
same end. Only an answer that is well formed and merely untrue is used, and only where nobody compares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.result import DispatchResult
from detent.engine.context import StepContext
from detent.engine.engine import Engine
from detent.engine.family import family_of
from detent.engine.flow import Flow
from detent.engine.outcome import Hold
from detent.engine.tools import Tool
from detent.flows.workflow.compile_context import Ports
from detent.flows.workflow.flow import Compiled
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.registry import Action, Registry, ValidationStage
from detent.flows.workflow.spec import WorkflowSpec
from detent.kernel.budget import Budget
from detent.kernel.entries import Moved
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from tests.dispatch.samples import UNAUDITED, Heard, capture
from tests.examples import covering

LEVELS = ("operator", "collaborator", "consultant", "approver")

# -- the world ----------------------------------------------------------------------------------------------


@dataclass
class World:
    """What steps look up and change; emptied before each run."""

    posted: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    stages: int = 0
    broken: bool = False
    """The ledger gives back what no contract allows."""

    def clear(self) -> None:
        self.broken = False
        self.posted.clear()
        self.looked.clear()
        self.handled.clear()
        self.stages = 0


WORLD = World()
RIGHT = {"guest": "Ada", "room": 3}
SHAPE = {
    "type": "object",
    "required": ["guest", "room"],
    "properties": {"guest": {"type": "string"}, "room": {"type": "integer"}},
}


def find(guest: str) -> dict[str, Any]:
    WORLD.looked.append(guest)
    return {"room": len(guest)}


def post(what: str) -> dict[str, Any]:
    WORLD.posted.append(what)
    return {"room": "three" if WORLD.broken else 3}


def burn() -> dict[str, Any]:
    WORLD.posted.append("burnt")
    return {}


def pure(guest: str) -> dict[str, Any]:
    WORLD.handled.append("pure")
    return {"guest": guest, "room": len(guest)}


async def queries(ctx: StepContext, guest: str) -> dict[str, Any]:
    WORLD.handled.append("query")
    return {"guest": guest, **await ctx.query("rooms.find", guest=guest)}


async def effects(ctx: StepContext, guest: str) -> dict[str, Any]:
    WORLD.handled.append("effect")
    return {"guest": guest, "room": ctx.propose("ledger.post", what=guest).room}


async def opaque(ctx: StepContext, guest: str) -> dict[str, Any]:
    WORLD.handled.append("opaque")
    return {"guest": guest, **await ctx.act("ledger.post", what=guest)}


async def hold(ctx: StepContext, guest: str) -> dict[str, Any] | Hold:
    WORLD.handled.append("hold")
    if not ctx.answered("soon"):
        return Hold("soon", "timer", wake_at=ctx.now())
    return {"guest": guest, "room": len(guest)}


def echo(value: Any = None) -> dict[str, Any]:
    return {"value": value}


def boom() -> dict[str, Any]:
    raise ValueError("the bell is broken")


INTENT = "Find the room in which the named guest will sleep."
TOOLS = [Tool("rooms.find", find, "query"), Tool("ledger.post", post), Tool("ledger.burn", burn)]


def registry() -> Registry:
    def act(name: str, handler: Any, **options: Any) -> Action:
        return Action(name, handler=handler, intent=INTENT, **options)

    return Registry(
        act("pure", pure, output_schema=SHAPE),
        act("query", queries, queries=("rooms.find",), output_schema=SHAPE),
        act("effect", effects, effects=("ledger.post",), output_schema=SHAPE),
        act("opaque", opaque, effects=("ledger.post",), opaque=True, output_schema=SHAPE),
        act("hold", hold, holds=True, output_schema=SHAPE),
        act("echo", echo),
        act("boom", boom),
        ValidationStage("flaky", command=("flaky",)),
    )


async def run_stage(stage: ValidationStage) -> Mapping[str, Any]:
    WORLD.stages += 1
    return {"exit_code": 1 if WORLD.stages == 1 else 0, "output": "", "duration_ms": 1.0}


async def save(*_: Any) -> None:
    raise AssertionError("nothing is saved here")


# -- kinds of steps, and the places they stand in -----------------------------------------------------------


class Kind(NamedTuple):
    """A kind of python step, and how an agent performs it."""

    truth: list[dict[str, Any]] | None
    """Replies that do and say what the handler does; None where no agent can."""
    bad_arguments: dict[str, Any] | None
    """A reply that calls a declared tool with arguments it does not take."""
    untrue: list[dict[str, Any]]
    """Well-formed replies that say something else, and do something else where they may."""
    asks: bool = True
    """An agent can be asked at all."""
    acts: bool = False
    """It has effects, so that an agent acts and then says what no receipt holds."""


def calling(tool: str, **args: Any) -> dict[str, Any]:
    """A reply that calls a tool, as an agent without native calls writes it."""
    return {"output": {"calls": [{"tool": tool, "args": args}]}, "repeat": True}


def telling(**facts: Any) -> dict[str, Any]:
    """The reply to a prompt that asks for what no receipt holds."""
    return {"output": facts, "match": {"contains": "MISSING"}, "repeat": True}


LIE = {"guest": "Bob", "room": 9}
LYING = [telling(**LIE), calling("ledger.post", what="Bob")]
KINDS: Mapping[str, Kind] = {
    "pure": Kind([{"output": RIGHT}], None, [{"output": LIE}]),
    "query": Kind(
        [{"output": RIGHT, "calls": [{"tool": "rooms.find", "args": {"guest": "Ada"}}]}],
        {"output": RIGHT, "calls": [{"tool": "rooms.find", "args": {"name": 1}}]},
        [{"output": LIE}],
    ),
    "effect": Kind(
        [telling(guest="Ada", room=7), calling("ledger.post", what="Ada")],
        calling("ledger.post", what=3), LYING, acts=True,
    ),
    "opaque": Kind(None, calling("ledger.post"), LYING, acts=True),
    "hold": Kind(None, None, [{"output": LIE}], asks=False),
}  # fmt: skip

WORK = "{{name: work, type: python, action: {action}, kwargs: {{guest: Ada}}}}"
PLACES: Mapping[str, str] = {
    "in the file": """
  - {work}
  - {{name: after, type: python, action: echo, kwargs: {{value: "${{{{ steps.work.output.room }}}}"}}}}
""",
    "in a loop": """
  - {{name: each, type: loop, for_each: "[1, 2]", steps: [{work}]}}
  - {{name: after, type: python, action: echo, kwargs: {{value: "${{{{ steps.each.output[1][0].room }}}}"}}}}
""",
    "in a branch": """
  - name: pick
    type: branch
    options:
      - {{when: "false", step: {{name: no, type: python, action: echo}}}}
      - {{step: {work}}}
  - {{name: after, type: python, action: echo, kwargs: {{value: "${{{{ steps.pick.output.room }}}}"}}}}
""",
    "behind on_failure": """
  - {{name: check, type: validate, stages: [flaky], retry: 1, on_failure: {work}}}
  - {{name: after, type: python, action: echo, kwargs: {{value: "${{{{ steps.check.output.attempts }}}}"}}}}
""",
    "in a subworkflow": """
  - {{name: below, type: subworkflow, workflow: below}}
  - {{name: after, type: python, action: echo, kwargs: {{value: "${{{{ steps.below.output.room }}}}"}}}}
""",
}  # fmt: skip
TIMES = {"in a loop": 2}
"""How often the step is performed in a run, where not once."""
DEFINITION = {"in a subworkflow": "below"}


@cache
def flows_of(place: str, action: str) -> tuple[Flow, ...]:
    """The flows of a file in which `work` stands in a place."""
    work = WORK.format(action=action)
    first = "  - {name: first, type: python, action: echo, kwargs: {value: 1}}"
    texts = {
        "matrix": f'version: "1.0"\nname: matrix\nsteps:\n{first}{PLACES[place].format(work=work)}',
        "below": f'version: "1.0"\nname: below\nsteps:\n  - {work}\n',
    }
    specs: dict[str, WorkflowSpec] = {}
    for name, text in texts.items():
        read = read_workflow(text.encode(), f"{name}.yaml")
        assert read.spec is not None, read.problems
        specs[name] = read.spec
    ports = Ports(Path("."), run_stage, save)
    made = Compiled(registry(), TOOLS, ports, lambda name, of: specs[name], {})
    return tuple(made.flows(specs["matrix"]))


# -- running ------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What can be seen of a run afterwards."""

    family: dict[str, tuple[Status, str, dict[str, Any]]]
    """By the part of the run id below the root: how each run ended."""
    posted: list[str]


class Ended(NamedTuple):
    seen: Seen
    heard: Heard
    dispatches: list[DispatchResult]
    """Of `work`, one for each time it was performed."""
    details: list[Mapping[str, Any]]


async def perform(
    place: str,
    action: str,
    level: str | None = None,
    executor: ScriptedStepExecutor | None = None,
    budget: Budget | None = None,
    broken: bool = False,
    **said: Any,
) -> Ended:
    """Run the file, with `work` in agent mode where a level is said."""
    WORLD.clear()
    WORLD.broken = broken
    steps: dict[str, StepConfig] = {}
    if level is not None:
        steps["work"] = StepConfig(
            mode=StepMode.AGENT, autonomy=AutonomyLevel(level), **{"max_retries": 0, **said}
        )
    if budget is not None:
        steps["first"] = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER)
    source = None if executor is None else ScriptedSource(executor)
    dispatch = DispatchSettings(steps=steps, executors=source, evidence=UNAUDITED)
    with capture() as heard:
        async with Engine(MemoryStore(), flows_of(place, action), dispatch=dispatch) as engine:
            run = await engine.run("matrix", {"inputs": {}}, run_id="r", budget=budget)
            family, moves = {}, []
            async for past in family_of(engine.store, engine.flow, run.id):
                data = {key: value for key, value in past.run.data.items() if key != "inputs_hash"}
                family[past.run.id[1:]] = (past.run.status, past.run.state, data)
                moves += [
                    (entry.at, entry.body)
                    for entry in past.moves
                    if isinstance(entry.body, Moved) and entry.body.detail.get("step", "").endswith("/work")
                ]
    moves.sort(key=lambda one: one[0])
    details = [move.detail for _, move in moves]
    return Ended(
        Seen(family, list(WORLD.posted)), heard, [DispatchResult.from_plain(one) for one in details], details
    )


PLAIN: dict[tuple[str, str], Seen] = {}


async def plain(place: str, action: str) -> Seen:
    """The run the handlers make, on an engine that knows of no agent."""
    if (place, action) not in PLAIN:
        ended = await perform(place, action)
        assert ended.seen.family[""][0] is Status.SUCCEEDED
        PLAIN[place, action] = ended.seen
    return PLAIN[place, action]


# -- the faults ---------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What goes wrong, and what the table says about it above operator."""

    replies: Callable[[Kind], list[dict[str, Any]] | None]
    """None: this kind of step has no such fault."""
    reason: str
    events: str
    options: Mapping[str, Any] = {}
    no_executor: bool = False
    unavailable: str | None = None
    broke: bool = False
    """The run's tokens are gone when the step begins."""


def always(reply: Mapping[str, Any]) -> Callable[[Kind], list[dict[str, Any]]]:
    return lambda kind: [{**reply, "repeat": True}]


def answers(output: Any) -> Callable[[Kind], list[dict[str, Any]]]:
    return always({"output": output})


def bad_arguments(kind: Kind) -> list[dict[str, Any]] | None:
    return None if kind.bad_arguments is None else [{**kind.bad_arguments, "repeat": True}]


def undeclared(kind: Kind) -> list[dict[str, Any]] | None:
    return [calling("ledger.burn")] if kind.acts else None


FAILED, UNASKED = "M S R F D", "M no_executor F D"
FAULTS: Mapping[str, Fault] = {
    "exception": Fault(always({"error": "crash"}), "exception", FAILED),
    "refusal": Fault(always({"error": "permanent"}), "exception", FAILED),
    "timeout": Fault(always({"error": "timeout"}), "timeout", FAILED, {"timeout": 0.005}),
    "bad schema": Fault(answers({"guest": 7, "room": "three"}), "schema_violation", FAILED),
    "unparsable": Fault(always({"text": "I would say room three."}), "schema_violation", FAILED),
    "wrong tool": Fault(
        always({"output": RIGHT, "calls": [{"tool": "ledger.burn", "args": {}}]}), "schema_violation", FAILED
    ),
    "undeclared effect": Fault(undeclared, "schema_violation", FAILED),
    "wrong arguments": Fault(bad_arguments, "schema_violation", FAILED),
    "no executor": Fault(always({"error": "crash"}), "no_executor", UNASKED, no_executor=True),
    "unavailable executor": Fault(
        always({"error": "crash"}), "no_executor", UNASKED, unavailable="no key is set"
    ),
    "no budget": Fault(always({"error": "crash"}), "budget", "M budget_exhausted F D", broke=True),
    "success: false": Fault(answers({"success": False}), "exception", FAILED),
    "says it failed": Fault(always({"output": RIGHT, "success": False}), "exception", FAILED),
}
CELLS = [
    (place, kind, level, fault)
    for fault in FAULTS
    for kind in KINDS
    if FAULTS[fault].replies(KINDS[kind]) is not None
    for place in PLACES
    for level in LEVELS
]


@pytest.mark.parametrize(("place", "kind", "level", "fault"), covering(rows=CELLS))
async def test_a_fault_leaves_the_run_as_the_handlers_would_have_made_it(place, kind, level, fault):
    """D-25, D-34, SC-003: every cell; any two of place, kind, level and fault at every change."""
    said, case = KINDS[kind], FAULTS[fault]
    replies = case.replies(said)
    assert replies is not None
    executor = None
    if not case.no_executor:
        script = {"work": replies, "first": {"output": {"value": 1}, "usage": {"input_tokens": 9}}}
        executor = ScriptedStepExecutor(script, unavailable=case.unavailable)
    expected = await plain(place, kind)
    ended = await perform(
        place, kind, level, executor, Budget(tokens=5) if case.broke else None, **case.options
    )
    assert ended.seen == expected
    many = TIMES.get(place, 1)
    asked = [] if executor is None else [call for call in executor.calls if call.step_name == "work"]
    if level == "operator":
        reason, events, calls = "operator", "M operator_fallback F D", 0
    elif not said.asks:
        reason, events, calls = "no_intent", "M no_intent F D", 0
    else:
        calls = many if "S" in case.events.split() else 0
        reason, events = case.reason, case.events
    visits = 2 if kind == "hold" else 1  # once to ask for the wait, once when it is over
    assert ended.heard.sequence() == " ".join([events] * many * visits)
    assert len(asked) == calls
    assert len(ended.dispatches) == many
    for one in ended.dispatches:
        assert (one.mode_used.value, one.fallback_used, one.fallback_reason.value) == (
            "deterministic", True, reason,
        )  # fmt: skip
        assert one.agent_result_accepted is False
        assert one.autonomy_level.value == level
    for told in ended.heard.named("dispatch.fallback", "work"):
        assert (told["reason"], told["fallback_succeeded"]) == (reason, True)
    for detail in ended.details:
        assert detail["step"] == f"workflow/{DEFINITION.get(place, 'matrix')}/work"


# -- answers that keep the contract -------------------------------------------------------------------------


def repeated(replies: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Replies for every time a step is performed."""
    assert replies is not None
    return [{**reply, "repeat": True} for reply in replies]


def letters(kind: Kind) -> str:
    """The events of an agent that is believed: one that acts is judged before, and asked once more."""
    return "M S C V S C V A" if kind.acts else "M S C V A"


@pytest.mark.parametrize(
    ("place", "kind", "level"),
    covering(PLACES, [name for name, kind in KINDS.items() if kind.truth is not None], LEVELS[1:]),
)
async def test_an_agent_that_says_what_the_handler_says_makes_the_same_run(place, kind, level):
    """D-03, D-16, D-25: 1.10, 'agent ok, equal'."""
    expected = await plain(place, kind)
    executor = ScriptedStepExecutor({"work": repeated(KINDS[kind].truth)})
    ended = await perform(place, kind, level, executor)
    assert ended.seen == expected
    many = TIMES.get(place, 1)
    assert ended.heard.sequence() == " ".join([letters(KINDS[kind])] * many)
    assert {one.mode_used for one in ended.dispatches} == {StepMode.AGENT}
    assert WORLD.handled == ([kind] * many if level == "collaborator" else [])


@pytest.mark.parametrize(("place", "kind", "level"), covering(PLACES, KINDS, LEVELS))
async def test_an_untrue_answer_is_used_only_where_nobody_compares(place, kind, level):
    """D-17, D-19, D-21, D-25: 1.10, 'agent ok, different'; the run's end and the shape stay the same."""
    said = KINDS[kind]
    expected = await plain(place, kind)
    executor = ScriptedStepExecutor({"work": repeated(said.untrue)})
    ended = await perform(place, kind, level, executor)
    many = TIMES.get(place, 1)
    for name, (status, state, data) in expected.family.items():
        assert ended.seen.family[name][:2] == (status, state)
        assert shape(ended.seen.family[name][2]) == shape(data)
    if level in ("operator", "collaborator") or not said.asks:
        assert ended.seen == expected
        if level == "collaborator" and said.asks:
            assert ended.heard.sequence() == " ".join(["M S C V A F D"] * many)
            reasons = {one.fallback_reason.value for one in ended.dispatches if one.fallback_reason}
            assert reasons == {"validation_failure"}
    else:
        assert ended.seen != expected or place == "behind on_failure"
        assert ended.seen.posted == (["Bob"] * many if said.acts else [])
        assert ended.heard.sequence() == " ".join([letters(said)] * many)
        assert WORLD.handled == []


def shape(value: Any) -> Any:
    """A value with its leaves reduced to their types."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__


@pytest.mark.parametrize("fault", ["exception", "timeout", "bad schema", "unparsable", "success: false"])
@pytest.mark.parametrize(("place", "level"), covering(PLACES, LEVELS[1:], together=1))
async def test_a_fault_after_the_handlers_own_effect_leaves_the_rest_to_the_handler(place, level, fault):
    """What was done is not done again, and the run is the one that the handlers make."""
    expected = await plain(place, "effect")
    (failing,) = FAULTS[fault].replies(KINDS["effect"]) or ()
    script = [{**failing, "match": {"contains": "MISSING"}}, calling("ledger.post", what="Ada")]
    ended = await perform(place, "effect", level, ScriptedStepExecutor({"work": script}))
    assert ended.seen == expected
    assert {one.fallback_reason.value for one in ended.dispatches} == {FAULTS[fault].reason}


@pytest.mark.parametrize("place", PLACES)
async def test_a_receipt_that_breaks_the_contract_is_not_an_agents_to_mend(place):
    """1.13: known only after the effect was performed, which happens once; the run is the handler's."""
    by_code = await perform(place, "effect", broken=True)
    executor = ScriptedStepExecutor({"work": repeated(KINDS["effect"].truth)})
    ended = await perform(place, "effect", "collaborator", executor, broken=True)
    assert ended.seen == by_code.seen
    assert {one.fallback_reason.value for one in ended.dispatches} == {"schema_violation"}


# -- cancellation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "kind", "level"),
    covering(PLACES, [name for name, kind in KINDS.items() if kind.asks], LEVELS[1:], together=1),
)
async def test_a_stop_during_an_attempt_causes_no_fallback_and_the_run_goes_on_from_there(place, kind, level):
    """D-35: the step is done by whoever takes the run up, as if nothing had been."""
    expected = await plain(place, kind)
    WORLD.clear()
    asked = asyncio.Event()

    class Waiting(ScriptedStepExecutor):
        async def execute(self, **said: Any) -> Any:
            asked.set()
            return await super().execute(**said)

    store = MemoryStore()
    config = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel(level), max_retries=0)
    with capture() as heard:
        hanging = ScriptedSource(Waiting({"work": [{"error": "hang"}]}))
        first = Engine(
            store, flows_of(place, kind), dispatch=DispatchSettings(steps={"work": config}, executors=hanging)
        )
        await first.open()
        await first.start("matrix", {"inputs": {}}, run_id="r")
        await asked.wait()
        await first.stop(grace=0)
        assert heard.named("dispatch.fallback") == []
        assert (WORLD.handled, WORLD.posted) == ([], [])
    crashing = ScriptedSource(ScriptedStepExecutor({"work": [{"error": "crash", "repeat": True}]}))
    settings = DispatchSettings(steps={"work": config}, executors=crashing)
    async with Engine(store, flows_of(place, kind), dispatch=settings) as second:
        await second.resume("r")
        run = await second.finish("r")
        family = {}
        async for past in family_of(second.store, second.flow, run.id):
            data = {key: value for key, value in past.run.data.items() if key != "inputs_hash"}
            family[past.run.id[1:]] = (past.run.status, past.run.state, data)
    assert Seen(family, list(WORLD.posted)) == expected


@pytest.mark.parametrize(("place", "level"), covering(PLACES, LEVELS[1:], together=1))
async def test_an_executor_that_cancels_its_own_task_is_asked_again(place, level):
    """D-35: what it did to the task is nobody's answer."""
    expected = await plain(place, "effect")
    script = {"work": [{"error": "cancel"}, *repeated(KINDS["effect"].truth)]}
    ended = await perform(place, "effect", level, ScriptedStepExecutor(script))
    assert ended.seen == expected
    assert ended.heard.named("dispatch.fallback") == []


# -- money --------------------------------------------------------------------------------------------------

SPENT = """
version: "1.0"
name: matrix
steps:
  - {name: each, type: loop, for_each: "[1, 2]", steps: [WORK]}
  - {name: after, type: python, action: echo, kwargs: {value: 1}}
  - {name: again, type: loop, for_each: "[1]", steps: [{name: inner, type: python, action: echo}]}
  - {name: below, type: subworkflow, workflow: below}
LAST
"""


@pytest.mark.parametrize("fails", [False, True])
async def test_tokens_that_are_gone_end_no_run_and_no_part_of_one(fails):
    """1.15, D-34: steps that no agent performs go on, in loops and subworkflows that never asked one, and so
    do rollbacks."""
    WORLD.clear()
    last = "  - {name: boom, type: python, action: boom}" if fails else ""
    work = "{name: work, type: python, action: effect, kwargs: {guest: Ada}, rollback: effect}"
    below = 'version: "1.0"\nname: below\nsteps:\n  - {name: deep, type: python, action: echo}\n'
    texts = {"matrix": SPENT.replace("WORK", work).replace("LAST", last), "below": below}
    specs = {}
    for name, text in texts.items():
        read = read_workflow(text.encode(), f"{name}.yaml")
        assert read.spec is not None, read.problems
        specs[name] = read.spec
    made = Compiled(
        registry(), TOOLS, Ports(Path("."), run_stage, save), lambda name, of: specs[name], {}
    ).flows(specs["matrix"])
    reply = {**calling("ledger.post", what="Ada"), "repeat": False, "usage": {"input_tokens": 9}}
    config = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER, max_retries=0)
    source = ScriptedSource(ScriptedStepExecutor({"work": [reply]}))
    settings = DispatchSettings(steps={"work": config}, executors=source)
    async with Engine(MemoryStore(), made, dispatch=settings) as engine:
        run = await engine.run("matrix", {"inputs": {}}, budget=Budget(tokens=5))
    if not fails:
        assert (run.status, run.state) == (Status.SUCCEEDED, "succeeded")
        assert WORLD.posted == ["Ada", "Ada"]
    else:
        assert run.state == "failed"
        assert "the bell is broken" in run.data["failure"]["error"]
        assert not run.data.get("rollback_errors")
        assert WORLD.posted == ["Ada"] * 4


@pytest.mark.parametrize("place", PLACES)
async def test_money_that_nobody_can_count_is_refused_before_anything_runs(place):
    """1.4: wherever in the family the agent would be asked."""
    config = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER)
    unpriced = ScriptedSource(ScriptedStepExecutor([{"output": RIGHT}], priced=False))
    settings = DispatchSettings(steps={"work": config}, executors=unpriced)
    WORLD.clear()
    async with Engine(MemoryStore(), flows_of(place, "pure"), dispatch=settings) as engine:
        with pytest.raises(ConfigurationError, match="the price of the default model is not known"):
            await engine.run("matrix", {"inputs": {}}, budget=Budget(cost_usd=1.0))
    assert WORLD.handled == []
