"""Evidence is counted once and wholly, however many runs are under way."""

import asyncio

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.evidence import Tally
from detent.engine import logger
from tests.dispatch.samples import MAIL, agent, capture, forms, scripted, settings
from tests.dispatch.test_acting import World, calls, running


async def tallies(engine):
    marks = await engine.store.marks("evidence/")
    return [Tally.from_plain(value) for value in marks.values()]


async def test_no_verdict_is_lost_among_many_runs_at_once(bench):
    executor = scripted({"output": {"kind": "fault", "urgent": True}, "repeat": True})
    engine = await bench.engine(forms(), dispatch=settings(executor, agent("collaborator")))
    await asyncio.gather(*(engine.run("flow", MAIL) for _ in range(150)))
    await dispatcher_of(engine).evidence.settle()
    (tally,) = await tallies(engine)
    assert tally.n == 150


async def test_two_processes_worth_of_engines_count_into_one_tally(durable):
    executor = scripted({"output": {"kind": "fault", "urgent": True}, "repeat": True})
    engines = [
        await durable.engine(forms(), dispatch=settings(executor, agent("collaborator"))) for _ in range(2)
    ]
    await asyncio.gather(*(engine.run("flow", MAIL) for engine in engines for _ in range(40)))
    for engine in engines:
        await dispatcher_of(engine).evidence.settle()
    (tally,) = await tallies(engines[0])
    assert tally.n == 80


async def test_what_is_counted_in_passing_is_written_before_the_engine_is_gone(durable):
    executor = scripted({"output": {"kind": "fault", "urgent": True}, "repeat": True})
    engine = await durable.engine(forms(), dispatch=settings(executor, agent("approver")))
    for _ in range(5):
        await engine.run("flow", MAIL)
    await engine.stop()
    again = await durable.engine(forms())
    (tally,) = await tallies(again)
    assert tally.asked == "uuuuu"


async def test_a_visit_of_many_rounds_is_one_observation_and_its_end_counts(bench):
    """Counting rounds, an agent that is wrong at every end would score 90 %."""

    async def work(ctx):
        for number in range(9):
            await ctx.perform("run", command=str(number))
        return {"exit_code": 0, "stdout": "", "verdict": "good"}

    schema = {
        "type": "object",
        "required": ["exit_code", "stdout", "verdict"],
        "properties": {
            "exit_code": {"type": "integer"}, "stdout": {"type": "string"}, "verdict": {"type": "string"}
        },
    }  # fmt: skip
    side = AgentSide(rounds=20, from_receipts=lambda acts: {"exit_code": 0, "stdout": ""})
    rounds = [calls(("run", {"command": str(number)})) for number in range(9)]
    for verdict, agreed in (("good", 3), ("bad", 0)):
        replies = [*rounds, {"output": {"verdict": verdict}}] * 3
        flow = running(World(), work, schema=schema, side=side)
        engine = await bench.engine(flow, dispatch=settings(scripted(*replies), agent()))
        before = await tallies(engine)
        for _ in range(3):
            run = await engine.run("flow")
            assert run.data["verdict"] == "good"
        await dispatcher_of(engine).evidence.settle()
        (tally,) = await tallies(engine)
        seen = before[0] if before else None
        assert tally.n - (seen.n if seen else 0) == 3
        assert tally.agreed - (seen.agreed if seen else 0) == agreed


async def test_an_event_is_logged_with_the_facts_of_the_run_it_is_about(bench):
    """Verdicts of many runs are written together, by a task that one of them has started."""
    executor = scripted({"error": "permanent", "repeat": True})
    engine = await bench.engine(forms(), dispatch=settings(executor, agent("collaborator")))

    async def handle(number):
        with logger.about(mail_key=f"mail-{number}"):
            await engine.run("flow", MAIL, run_id=f"run-{number}")

    with capture() as heard:
        await asyncio.gather(*(handle(number) for number in range(12)))
    lowered = heard.named("autonomy.demoted")
    assert lowered
    for event in lowered:
        assert event["mail_key"].removeprefix("mail-") == event["run_id"].removeprefix("run-")
