"""What can be read afterwards about steps that act: the agent that was replaced, queries, a person's word."""

from __future__ import annotations

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.engine.engine import Engine
from detent.insight import timeline, why
from detent.insight.compare import compare
from detent.insight.visits import function_calls
from tests.dispatch.samples import agent, scripted, settings
from tests.dispatch.test_acting import World, calls, running
from tests.engine.conftest import journal

ASK = calls(("read", {}))
WRONG = calls(("run", {"command": "make clean"}))
RIGHT = calls(("run", {"command": "make test"}))
STYLES = pytest.mark.parametrize("style", ["proposes", "performs"])


async def performs(ctx):
    """Look, act, look again, act again."""
    await ctx.query("read")
    done = await ctx.perform("run", command="make test")
    await ctx.query("read")
    await ctx.perform("write", text="tested")
    return done


async def proposes(ctx):
    await ctx.query("read")
    done = ctx.propose("run", command="make test")
    return {"exit_code": done.exit_code, "stdout": done.stdout}


HANDLERS = {"proposes": proposes, "performs": performs}


async def journal_of(handler, replies=(), answer=None, *, confirm=None, level="collaborator"):
    """The journal of a run whose one step an agent tries first, or only code if there are no replies."""
    side = AgentSide(rounds=4, confirm=confirm)
    flow = running(World(), handler, side=side)
    store = MemoryStore()
    dispatch = settings(scripted(*replies), agent(level)) if replies else None
    async with Engine(store, [flow], dispatch=dispatch) as engine:
        run = await engine.run("flow")
        if answer is not None:
            (name,) = run.holds
            await engine.release(run.id, answer, hold=run.token(name), by="Ann")
            await engine.finish(run.id)
        return await journal(engine, run.id)


def of_kind(entries, kind):
    return [decision for decision in why.why(entries) if decision.kind == kind]


@STYLES
async def test_the_agent_that_was_replaced_is_named_with_its_reason_and_difference(style):
    entries = await journal_of(HANDLERS[style], [ASK, WRONG])
    (fallback,) = of_kind(entries, "fallback")
    assert (fallback.state, fallback.reason) == ("work", "validation_failure")
    text = why.render(why.why(entries))
    assert text.count("fell back to the handler: differs from the handler") == 1
    assert 'it asked for run({"command":"make clean"})' in text
    assert "differed at  /effects/0/args/command" in text
    lines = [line.what for line in timeline.timeline(entries)]
    assert "in place of" in lines[-1]
    assert "differs from the handler at /effects/0/args/command" in lines[-1]
    assert any(line.endswith("asked for run") for line in lines)


@STYLES
async def test_queries_of_every_round_are_told_once(style):
    entries = await journal_of(HANDLERS[style])
    (end,) = of_kind(entries, "end")
    assert {look.tool for look in end.looked} == {"read"}
    assert why.render([end]).count("looked at    read") == 1
    assert any("looked at read" in line.what for line in timeline.timeline(entries))


async def test_effects_of_every_round_are_told_with_the_move_and_nowhere_else():
    entries = await journal_of(performs)
    (end,) = of_kind(entries, "end")
    assert [(effect.tool, effect.how) for effect in end.effects] == [
        ("run", "performed"),
        ("write", "performed"),
    ]
    text = why.render(why.why(entries))
    assert text.count("effect       ") == 2
    assert "effect run" not in text


async def asks(ctx):
    """Act with a person's word, which may be no."""
    done = await ctx.perform("run", command="make test", confirm="Run it?")
    return {"exit_code": done["exit_code"], "stdout": done["stdout"]}


def asked_about_run(effect):
    return "Run it?" if effect.tool == "run" else None


CASES = pytest.mark.parametrize(
    ("handler", "replies", "confirm"),
    [(asks, (), None), (asks, (RIGHT, {"output": {}}), None), (proposes, (RIGHT,), asked_about_run)],
    ids=["handler", "agent-performs", "agent-proposes"],
)


@CASES
async def test_a_denied_effect_reads_denied_by_whom_and_why(handler, replies, confirm):
    entries = await journal_of(handler, replies, {"no": "not today"}, confirm=confirm)
    text = why.render(why.why(entries))
    assert 'run({"command":"make test","cwd":"."}) denied by Ann: not today' in text.replace(
        '{"cwd":".","command":"make test"}', '{"command":"make test","cwd":"."}'
    )
    assert "decided by   Ann: no: not today" in text
    assert "skipped" not in text
    told = [(line.who, line.what) for line in timeline.timeline(entries)]
    assert ("Ann", "run denied: not today") in told
    (call,) = [call for call in function_calls(entries) if call.function_name == "run"]
    assert (call.success, call.error_message) == (False, "denied by Ann: not today")


@CASES
async def test_an_edited_effect_reads_what_it_was_and_what_it_became(handler, replies, confirm):
    entries = await journal_of(handler, replies, {"edit": {"command": "make check"}}, confirm=confirm)
    (end,) = of_kind(entries, "end")
    (effect,) = end.effects
    assert (effect.how, effect.by) == ("performed", "Ann")
    assert (effect.asked["command"], effect.args["command"]) == ("make test", "make check")
    text = why.render(why.why(entries))
    assert "edited by Ann, from {" in text
    assert "skipped" not in text
    told = [line.what for line in timeline.timeline(entries) if line.who == "Ann"]
    assert told[0].startswith('wait answered: edit: {"command":"make check"}')
    assert told[1] == "run edited"
    assert told[2].startswith("changed it to run(")


async def test_an_open_question_shows_the_effect_it_is_about():
    entries = await journal_of(asks)
    text = why.render(why.why(entries))
    assert "waits for a person's word" in text
    assert "about        run({" in text
    last = timeline.timeline(entries)[-1].what
    assert last.startswith("waits for a person's word: Run it? run({")
    assert "confirm:" not in last


def test_an_effect_that_was_skipped_after_doubt_is_not_taken_for_a_denied_one():
    from detent.insight.effect_text import skipped_text
    from detent.kernel.entries import EffectSkipped

    assert skipped_text(EffectSkipped("k", "run")) == "skipped by a person: the run goes on without it"
    failed = EffectSkipped("k", "run", "engine", "an effect before it failed")
    assert skipped_text(failed) == "skipped: an effect before it failed"


async def test_times_of_a_fallback_are_no_difference_between_two_runs():
    one = await journal_of(performs, [ASK, WRONG])
    other = await journal_of(performs, [ASK, WRONG])
    kept = [entry.body for entry in one if entry.kind == "recorded" and entry.body.key == "fallback"]
    assert kept
    result = compare(one, other)
    assert result.divergence is None or "fallback" not in str(result.divergence)


async def test_an_effect_made_from_a_receipt_is_told_with_what_the_receipt_gave():
    async def chained(ctx):
        done = ctx.propose("run", command="make test")
        ctx.propose("write", text=done.stdout)
        return {"exit_code": done.exit_code, "stdout": done.stdout}

    entries = await journal_of(chained)
    text = why.render(why.why(entries))
    assert 'write({"text":"make test in ."}) performed' in text
    assert "$receipt" not in text


CLAIM = {"output": {"exit_code": 1, "stdout": "all passed"}}


async def test_an_agent_that_only_talks_where_the_handler_acts_is_told_as_one_that_did_not_act():
    entries = await journal_of(performs, [CLAIM])
    text = why.render(why.why(entries))
    assert "the whole" not in text
    assert "that it did not act, and the handler does" in text
    lines = [line.what for line in timeline.timeline(entries)]
    assert any("differs from the handler in that it did not act" in line for line in lines)
    assert not any("goes on" in line for line in lines)


async def test_an_agent_that_did_what_code_would_not_is_not_replaced_by_the_handler():
    replies = [WRONG, {"error": {"type": "permanent", "message": "no idea"}}]
    entries = await journal_of(performs, replies, level="approver")
    text = why.render(why.why(entries))
    assert "fell back to the handler" not in text
    assert "the agent was stopped after it had acted: exception" in text
    lines = [line.what for line in timeline.timeline(entries)]
    assert not any("the handler goes on" in line or "in place of" in line for line in lines)
    assert any("the agent is not asked any more: exception" in line for line in lines)


async def test_effects_of_the_agent_are_told_from_those_of_the_handler_that_went_on():
    entries = await journal_of(performs, [ASK, RIGHT, {"error": {"type": "permanent", "message": "no idea"}}])
    text = why.render(why.why(entries))
    (first, second) = [line for line in text.splitlines() if line.startswith("     effect ")]
    assert first.endswith("; asked for by the agent")
    assert "asked for by" not in second


async def test_an_agents_error_is_whole_in_why_and_cut_at_a_word_in_show():
    message = " ".join(f"word{number}" for number in range(80)) + " end."
    entries = await journal_of(proposes, [{"error": {"type": "permanent", "message": message}}])
    assert message in why.render(why.why(entries))
    (line,) = [line.what for line in timeline.timeline(entries) if "in place of" in line.what]
    assert line.split("…")[0].rsplit(" ", 1)[1] in message.split()
