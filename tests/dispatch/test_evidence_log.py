"""Evidence is counted once and wholly, however many runs are under way."""

import asyncio

import hypothesis
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.evidence import ByLevel, EvidenceRules, verdict_of, verdict_of_shadow
from detent.dispatch.standing import Observation, Standing
from detent.engine import logger
from detent.kernel.entries import Moved, Noted
from tests.dispatch.samples import FAULT, MAIL, QUESTION, agent, capture, forms, scripted, settings
from tests.dispatch.test_acting import World, calls, running
from tests.engine.conftest import journal
from tests.examples import examples


async def tallies(engine):
    marks = await engine.store.marks("evidence/")
    return [Standing.from_plain(value).tally() for value in marks.values()]


async def test_no_verdict_is_lost_among_many_runs_at_once(bench):
    executor = scripted({"output": {"kind": "fault", "urgent": True}, "repeat": True})
    engine = await bench.engine(forms(), dispatch=settings(executor, agent("collaborator")))
    await asyncio.gather(*(engine.run("flow", MAIL) for _ in range(150)))
    await dispatcher_of(engine).evidence.settle()
    (tally,) = await tallies(engine)
    assert (tally.judged, tally.n) == (150, 1)  # one and the same input is one point


async def test_two_processes_worth_of_engines_count_into_one_tally(durable):
    executor = scripted({"output": {"kind": "fault", "urgent": True}, "repeat": True})
    engines = [
        await durable.engine(forms(), dispatch=settings(executor, agent("collaborator"))) for _ in range(2)
    ]
    await asyncio.gather(*(engine.run("flow", MAIL) for engine in engines for _ in range(40)))
    for engine in engines:
        await dispatcher_of(engine).evidence.settle()
    (tally,) = await tallies(engines[0])
    assert (tally.judged, tally.n) == (80, 1)


async def test_what_is_counted_in_passing_is_written_before_the_engine_is_gone(durable):
    executor = scripted({"output": {"kind": "fault", "urgent": True}, "repeat": True})
    engine = await durable.engine(forms(), dispatch=settings(executor, agent("approver")))
    for _ in range(5):
        await engine.run("flow", MAIL)
    await engine.stop()
    again = await durable.engine(forms())
    (mark,) = (await again.store.marks("evidence/")).values()
    assert Standing.from_plain(mark).answers == "uuuuu"


async def test_what_nobody_waits_for_shares_one_write(durable):
    executor = scripted({"output": {"kind": "fault", "urgent": True}, "repeat": True})
    engine = await durable.engine(forms(), dispatch=settings(executor, agent("collaborator")))
    evidence = dispatcher_of(engine).evidence
    evidence.linger = 3600.0
    for _ in range(5):
        await engine.run("flow", MAIL)
    assert not await engine.store.marks("evidence/")
    await evidence.settle()
    ((key, mark),) = (await engine.store.marks("evidence/")).items()
    assert Standing.from_plain(mark).tally().judged == 5
    assert (await engine.store.mark(key))[1] == 1


async def test_a_verdict_against_an_agent_is_written_before_the_run_goes_on(durable):
    wrong = {"output": {"kind": "fault", "urgent": False}}
    right = {"output": {"kind": "fault", "urgent": True}}
    engine = await durable.engine(forms(), dispatch=settings(scripted(right, wrong), agent("collaborator")))
    dispatcher_of(engine).evidence.linger = 3600.0
    for _ in range(2):
        await engine.run("flow", MAIL)
    (tally,) = await tallies(engine)
    assert (tally.judged, tally.wrong) == (2, 1)


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
        assert tally.judged - (seen.judged if seen else 0) == 3
        assert tally.wrong - (seen.wrong if seen else 0) == 3 - agreed


async def test_an_event_is_logged_with_the_facts_of_the_run_it_is_about(bench):
    """Verdicts of many runs are written together, by a task that one of them has started."""
    executor = scripted({"output": {"kind": "question", "urgent": False}, "repeat": True})
    rules = EvidenceRules(patience=20)
    engine = await bench.engine(
        forms(), dispatch=settings(executor, agent("approver", shadow=1.0), evidence=rules)
    )

    async def handle(number):
        with logger.about(mail_key=f"mail-{number}"):
            await engine.run("flow", MAIL, run_id=f"run-{number}")

    with capture() as heard:
        await asyncio.gather(*(handle(number) for number in range(12)))
    lowered = heard.named("autonomy.demoted")
    assert lowered
    for event in lowered:
        assert event["mail_key"].removeprefix("mail-") == event["run_id"].removeprefix("run-")


@given(
    letters=st.text("aaaadro", min_size=1, max_size=30), level=st.sampled_from(["collaborator", "consultant"])
)
@hypothesis.settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_the_fold_of_the_journal_is_the_standing_in_the_store(quick, letters, level):
    """The report and the engine cannot come to different figures: there is one fold."""
    replies = {
        "a": {"output": FAULT}, "d": {"output": QUESTION}, "r": {"output": 3}, "o": {"error": "permanent"},
    }  # fmt: skip
    rules = EvidenceRules(audit=ByLevel(1.0, 1.0), patience=60)
    bench = type(quick)(quick.kind, quick.path.parent)
    config = agent(level, max_retries=0)
    executor = scripted(*(replies[letter] for letter in letters))
    engine = await bench.engine(forms(), dispatch=settings(executor, config, evidence=rules))
    standing = Standing()
    for _ in letters:
        run = await engine.run("flow", MAIL)
        await engine.performer.evidence.settle()
        for entry in await journal(engine, run.id):
            body = entry.body
            if isinstance(body, Moved) and (verdict := verdict_of(body.detail)) is not None:
                found, afterwards = body.detail, False
            elif isinstance(body, Noted) and body.topic == "shadow":
                found, afterwards, verdict = body.body, True, verdict_of_shadow(body.body)
            else:
                continue
            at_level = AutonomyLevel(found["autonomy_level"])
            seen = Observation(verdict, at_level, entry.at, inputs="0" * 16, afterwards=afterwards)
            standing, _ = standing.after(seen, rules)
    (mark,) = (await engine.store.marks("evidence/")).values()
    await bench.close()
    kept = Standing.from_plain(mark)
    assert (kept.level, kept.attempt, kept.answers) == (standing.level, standing.attempt, standing.answers)
    for tally, folded in ((kept.tally(), standing.tally()),):
        assert (tally.n, tally.errors, tally.judged) == (folded.n, folded.errors, folded.judged)
        assert tally.detector == folded.detector
