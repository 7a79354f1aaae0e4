"""Further steps of a visit: each performed in its own name and mode, with a gate and evidence of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypedDict

import pytest

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agreement import agreement
from detent.dispatch.config import StepConfig
from detent.dispatch.executor import Availability, ExecutorResult
from detent.engine.engine import Engine
from detent.engine.outcome import Hold, Outcome
from detent.engine.step import Step
from detent.engine.tools import NOT_DONE, EffectCall, Tool
from detent.insight.why import render, why
from detent.kernel.entries import Moved, Noted, Recorded
from detent.kernel.errors import StoreUnavailable
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.dispatch.samples import INTENT, LEVELS, agent, scripted, settings
from tests.engine.conftest import flow_of, journal


class Verdict(TypedDict):
    """What the reflector states."""

    complete: bool


class Plan(TypedDict):
    """What the planner states."""

    task: str


def planning(asked: list[str], *, performs: bool = False):
    """`review` reflects, and asks the planner of `draft` in the same visit when there is more to do."""

    async def plan(ctx):
        asked.append(f"plan {ctx.data['left']}")
        return {"task": f"do {ctx.data['left'][0]}"}

    async def reflect(ctx):
        if performs:
            await ctx.perform("tidy", room="attic")
        asked.append("reflect")
        return {"complete": len(ctx.data["left"]) <= 1}

    def decide(ctx, verdict):
        if verdict["complete"]:
            return Outcome("done")
        return Outcome("draft", set={"left": list(ctx.data["left"][1:])}, then="plan", reason="more to do")

    async def draft(ctx):
        asked.append(f"draft {ctx.data['task']}")
        return Outcome("review")

    def tidy(call: EffectCall, room: str) -> dict[str, str]:
        asked.append(f"tidy {room} {call.key}")
        return {"room": room}

    def tidied(call: EffectCall, room: str) -> Any:
        return {"room": room} if f"tidy {room} {call.key}" in asked else NOT_DONE

    reflector = Step(
        "reflect", reflect, INTENT, output_schema=Verdict, inputs=("left",), conclude=decide,
        effects=("tidy",) if performs else (), agent=AgentSide(may_abstain=True),
    )  # fmt: skip
    planner = Step(
        "plan", plan, INTENT, output_schema=Plan, inputs=("left",), effects=(),
        agent=AgentSide(names_next=False),
    )  # fmt: skip
    return flow_of(
        {"first": ["draft"], "draft": ["review"], "review": ["draft", "done"]},
        {"first": planner, "draft": draft, "review": reflector},
        tools=[Tool("tidy", tidy, probe=tidied, wants_call=True, probe_wants_call=True)],
    )


def tidied_up(asked: list[str]) -> int:
    return sum(line.startswith("tidy attic") for line in asked)


LEFT = {"left": ["a", "b", "c"]}
BY_CODE = [
    "plan ['a', 'b', 'c']", "draft do a", "reflect", "plan ['b', 'c']", "draft do b", "reflect", "plan ['c']",
    "draft do c", "reflect",
]  # fmt: skip


async def moves(engine, run):
    return [entry.body for entry in await journal(engine, run.id) if isinstance(entry.body, Moved)]


async def test_by_code_it_sees_what_the_step_before_has_set_and_completes_its_move(bench):
    asked: list[str] = []
    engine = await bench.engine(planning(asked))
    run = await engine.run("flow", dict(LEFT))
    assert (run.status, run.data) == (Status.SUCCEEDED, {"left": ["c"], "task": "do c"})
    assert asked == BY_CODE
    review = next(move for move in await moves(engine, run) if move.frm == "review")
    assert review.set == {"left": ["b", "c"], "task": "do b"}
    assert (review.to, review.reason) == ("draft", "more to do")
    assert [record["step"] for record in review.detail["then"]] == ["flow/plan"]


@pytest.mark.parametrize("level", LEVELS)
async def test_each_is_performed_in_its_own_name_mode_and_trust(bench, level):
    """The planner's agent is asked where the planner is a further step too; the reflector stays code."""
    asked: list[str] = []
    answers = [{"output": {"task": f"do {item}"}} for item in "abc"]
    executor = scripted(*answers, step="plan")
    dispatch = settings(executor, steps={"plan": agent(level)})
    engine = await bench.engine(planning(asked), dispatch=dispatch)
    run = await engine.run("flow", dict(LEFT))
    assert (run.status, run.data) == (Status.SUCCEEDED, {"left": ["c"], "task": "do c"})
    assert [call.step_name for call in executor.calls] == ["plan"] * 3
    review = next(move for move in await moves(engine, run) if move.frm == "review")
    (record,) = review.detail["then"]
    assert (record["step"], record["mode_used"]) == ("flow/plan", "agent")
    assert "mode_used" not in review.detail
    (figures,) = agreement([(run.id, await journal(engine, run.id))])
    assert (figures.step, figures.executions) == ("flow/plan", 3)


async def test_an_agents_wrong_plan_is_replaced_and_counted_against_the_planner(bench):
    asked: list[str] = []
    executor = scripted(
        *({"output": {"task": f"do {item}"}} for item in ("a", "the wrong thing", "c")), step="plan"
    )
    engine = await bench.engine(
        planning(asked), dispatch=settings(executor, steps={"plan": agent("collaborator")})
    )
    run = await engine.run("flow", dict(LEFT))
    assert (run.status, "draft do b" in asked) == (Status.SUCCEEDED, True)
    records = [move.detail["then"][0] for move in await moves(engine, run) if "then" in move.detail]
    assert [record.get("fallback_reason") for record in records] == ["validation_failure", None]
    told = render(why(await journal(engine, run.id)))
    assert "flow/plan, by the handler, not the agent: validation failure" in told
    assert "flow/plan, by the agent (collaborator)" in told


@pytest.mark.parametrize("level", LEVELS)
async def test_both_may_be_agents(bench, level):
    """The reflector acts in rounds first; the planner then sees the world after it, and keeps to itself."""
    asked: list[str] = []
    replies = {
        "plan": [{"output": {"task": f"do {item}"}} for item in "abc"],
        "reflect": [
            reply
            for complete in (False, False, True)
            for reply in (
                {"output": {"calls": [{"tool": "tidy", "args": {"room": "attic"}}]}},
                {"output": {"complete": complete}},
            )
        ],
    }
    executor = ScriptedStepExecutor(replies)
    dispatch = settings(executor, steps={"plan": agent(level), "reflect": agent(level)})
    engine = await bench.engine(planning(asked, performs=True), dispatch=dispatch)
    run = await engine.run("flow", dict(LEFT))
    assert (run.status, run.data) == (Status.SUCCEEDED, {"left": ["c"], "task": "do c"})
    assert tidied_up(asked) == 3
    for move in await moves(engine, run):
        if move.frm == "review":
            assert move.detail["mode_used"] == "agent", move.detail
        for record in move.detail.get("then", ()):
            assert record["mode_used"] == "agent", record


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("declared", [None, ("tidy",)])
async def test_an_agent_cannot_act_there_whatever_it_is_offered(bench, level, declared):
    """In its own state the planner may tidy up; as a further step it may not, and code plans instead."""
    asked: list[str] = []
    flow = planning(asked)
    planner = replace(
        flow.steps["first"], effects=None if declared is None else (), agent=AgentSide(effects=declared)
    )
    flow = flow_of(
        {"draft": ["review"], "review": ["draft", "first", "done"], "first": ["draft"]},
        {"draft": flow.steps["draft"], "review": flow.steps["review"], "first": planner},
        tools=list(flow.tools),
    )
    tidy = {"output": {"calls": [{"tool": "tidy", "args": {"room": "attic"}}]}, "repeat": True}
    dispatch = settings(scripted(tidy, step="plan"), steps={"plan": agent(level)})
    engine = await bench.engine(flow, dispatch=dispatch)
    run = await engine.run("flow", {**LEFT, "task": "begin"})
    assert (run.status, run.data) == (Status.SUCCEEDED, {"left": ["c"], "task": "do c"})
    assert tidied_up(asked) == 0


async def test_a_further_step_may_ask_a_person(bench):
    """The visit begins again with the answer."""

    async def judge(ctx):
        return Outcome("done", set={"judged": True}, then="plan")

    async def plan(ctx):
        if not ctx.answered("ok"):
            return Hold("ok", question="Is that the plan?")
        return {"task": ctx.answer("ok")}

    moves = {"work": ["done", "other"], "other": ["done"]}
    engine = await bench.engine(flow_of(moves, {"work": judge, "other": Step("plan", plan)}))
    run = await engine.run("flow")
    assert (run.status, run.data) == (Status.WAITING, {})
    await engine.release(run.id, "rest", hold=run.token())
    run = await engine.finish(run.id)
    assert (run.status, run.data) == (Status.SUCCEEDED, {"judged": True, "task": "rest"})


class TestRefused:
    @pytest.mark.parametrize(
        ("then", "why"),
        [("plna", "There is no step 'plna'. Did you mean 'plan'?"), ("act", "such steps have no effects")],
    )
    async def test_an_unknown_step_and_one_that_acts(self, bench, then, why):
        async def start(ctx):
            return Outcome("done", then=then)

        async def act(ctx):
            return Outcome()

        flow = flow_of(
            {"work": ["done", "other"], "other": ["done"]},
            {"work": start, "other": Step(then if then == "act" else "plan", act, effects=("tidy",))},
            tools=[Tool("tidy", lambda: None)],
        )
        engine = await bench.engine(flow)
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        assert why in str(await journal(engine, run.id))

    async def test_steps_that_name_each_other_for_ever(self, bench):
        async def start(ctx):
            return Outcome("done", then="work")

        engine = await bench.engine(flow_of({"work": ["done"]}, {"work": start}))
        run = await engine.run("flow")
        assert run.status is Status.FAILED
        assert "More than 10 further steps" in str(await journal(engine, run.id))


class Thinking:
    """An agent whose replies follow from its prompt alone; `paid` counts those it gave."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def available(self):
        return Availability(True)

    def priced(self, model_id):
        return True

    async def execute(self, *, step_name, prompt, **_):
        self.paid.append(step_name)
        inputs, _ = json.JSONDecoder().raw_decode(prompt.partition("INPUTS\n")[2])
        if step_name == "plan":
            output = {"task": f"do {inputs['left'][0]}"}
        elif "RESULTS" not in prompt:
            output = {"calls": [{"tool": "tidy", "args": {"room": "attic"}}]}
        else:
            output = {"complete": len(inputs["left"]) <= 1}
        return ExecutorResult(output=output, success=True)


def gone(point: CrashPoint) -> None:
    raise StoreUnavailable("the process is gone")


@pytest.mark.parametrize("level", LEVELS)
async def test_killed_at_every_commit_the_end_is_the_same_and_no_journaled_reply_is_paid_again(level):
    agents = {"plan": agent(level), "reflect": agent(level)}

    async def driven(points: CrashPoints):
        asked: list[str] = []
        store, executor = MemoryStore(), Thinking()
        died = False
        try:
            flow = planning(asked, performs=True)
            dispatch = settings(executor, steps=agents)
            async with Engine(points.store(store), [flow], dispatch=dispatch) as engine:
                await engine.run("flow", dict(LEFT), run_id="r1")
        except StoreUnavailable:
            died = True
        kept = sum(
            isinstance(entry.body, Recorded) and "agent/" in entry.body.key
            for entry in await store.entries("r1", 0, 1000)
        )
        again = Thinking()
        flow = planning(asked, performs=True)
        async with Engine(store, [flow], dispatch=settings(again, steps=agents)) as engine:
            run = await engine.finish("r1")
        assert (run.status, run.data) == (Status.SUCCEEDED, {"left": ["c"], "task": "do c"})
        assert tidied_up(asked) == 3
        return died, kept + len(again.paid)

    quiet = CrashPoints()
    died, paid = await driven(quiet)
    assert not died
    for number in range(2, quiet.commits + 1):
        for when in ("before", "after"):
            died, replies = await driven(CrashPoints([CrashPoint(number, when)], strike=gone))
            assert (died, replies) == (True, paid), (number, when)


@pytest.mark.parametrize("right", [True, False])
async def test_a_shadow_beside_a_further_step_sees_what_it_saw(bench, right):
    answers = [{"output": {"task": f"do {item}" if right else "rest"}} for item in "abc"]
    shadowed = StepConfig(shadow=1.0)
    engine = await bench.engine(
        planning([], performs=True),
        dispatch=settings(scripted(*answers, step="plan"), steps={"plan": shadowed}),
    )
    run = await engine.run("flow", dict(LEFT))
    notes = [entry.body for entry in await journal(engine, run.id) if isinstance(entry.body, Noted)]
    assert [note.body["outcome"] for note in notes] == ["agreed" if right else "differed"] * 3


async def test_a_later_verdict_on_a_further_step_is_evidence_about_its_agent(bench):
    """The latest plan was made in the visit of `review`, whose own verdict is another matter."""
    executor = scripted(*({"output": {"task": f"do {item}"}} for item in "abc"), step="plan")
    dispatch = settings(executor, steps={"plan": agent("consultant")})
    engine = await bench.engine(planning([]), dispatch=dispatch)
    run = await engine.run("flow", dict(LEFT))
    await engine.verdict(run.id, "plan", False, why="nobody could follow it")
    await engine.verdict(run.id, "review", True)
    (figures,) = agreement([(run.id, await journal(engine, run.id))])
    assert (figures.step, figures.n, figures.differed) == ("flow/plan", 1, 1)
    notes = [entry.body.body for entry in await journal(engine, run.id) if isinstance(entry.body, Noted)]
    assert [(note["state"], note["performed_by"], "again" in note) for note in notes] == [
        ("plan", "agent", False), ("review", "handler", False),
    ]  # fmt: skip
