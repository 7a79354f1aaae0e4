"""Who performs a step: by default its handler; an agent where configuration says so; never by step type."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from detent.adapters.models.scripted import ScriptedSource
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole, AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.executor import NO_MODEL
from detent.engine.outcome import Effect, Outcome
from detent.engine.schemas import misfits
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.insight.visits import visits
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    MAIL,
    Form,
    agent,
    deterministic,
    error_of,
    forms,
    moves,
    result_of,
    scripted,
    settings,
)
from tests.engine.conftest import flow_of, journal

AGENT_ONLY = StepConfig(mode=StepMode.AGENT)
"""Nothing but `mode: agent`."""


class TestDeterministic:
    @pytest.mark.parametrize("said", [None, StepConfig(mode=StepMode.DETERMINISTIC)])
    async def test_the_handler_is_called_once_and_no_executor_is_made(self, bench, said, heard):
        """D-01, D-44: a step with no mode, or `mode: deterministic`."""
        calls = []

        async def work(ctx):
            calls.append(ctx.attempt)
            return {"n": 1}

        source = ScriptedSource(scripted())
        engine = await bench.engine(forms(work), dispatch=settings(source, said))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.data) == (Status.SUCCEEDED, {**MAIL, "n": 1})
        assert calls == [1]
        assert source.made == 0
        assert heard.sequence() == "M D"

    async def test_the_events_of_a_plain_step_name_it(self, quick, heard):
        """D-44."""
        engine = await quick.engine(forms())
        run = await engine.run("flow", MAIL)
        selected = heard.one("dispatch.mode_selected")
        assert (selected["step_name"], selected["run_id"]) == ("work", run.id)
        assert (selected["mode"], selected["autonomy"], selected["source"]) == (
            "deterministic",
            "operator",
            "default",
        )
        done = heard.one("dispatch.deterministic_completed")
        assert (done["step_name"], done["fallback"]) == ("work", False)

    async def test_a_handler_that_fails_was_selected_all_the_same(self, quick, heard):
        """D-48: every decision says something, also when the handler then fails."""

        def work(ctx):
            raise ValueError("no")

        engine = await quick.engine(forms(work))
        assert (await engine.run("flow", MAIL)).status is Status.FAILED
        assert heard.sequence() == "M"

    async def test_a_project_without_agents_runs_as_its_handlers_say(self, bench):
        """D-07: outputs and effects are those of the handlers; no executor is made."""
        performed = []
        tool = Tool("post", lambda what: performed.append(what))
        source = ScriptedSource(scripted())

        def first(ctx):
            return Outcome(set={"a": 1}, effects=[Effect("post", {"what": "first"})])

        def second(ctx):
            return {"b": ctx.data.a + 1}

        flow = flow_of({"one": ["two"], "two": ["done"]}, {"one": first, "two": second}, tools=[tool])
        engine = await bench.engine(flow, dispatch=settings(source))
        run = await engine.run("flow")
        assert run.data == {"a": 1, "b": 2}
        assert performed == ["first"]
        assert source.made == 0


class TestAgent:
    async def test_the_executor_gets_the_intent_and_every_input(self, quick):
        """D-02, D-40."""
        executor = scripted({"output": FAULT})
        engine = await quick.engine(forms(), dispatch=settings(executor, agent()))
        await engine.run("flow", {**MAIL, "serial": "SN-17", "parts": [{"name": "hinge"}]})
        (call,) = executor.calls
        assert INTENT in call.instructions
        for value in ("it is broken!", "SN-17", "hinge"):
            assert value in call.prompt
        assert (call.step_name, call.agent_name) == ("work", "dispatch")

    async def test_an_agent_gets_the_inputs_the_step_declares_and_no_more(self, quick):
        """D-02: keys of the data, or what a function makes of it."""
        data = {**MAIL, "other": "not for agents"}
        for inputs, shown in [(("text",), "it is broken!"), (lambda ctx: {"size": len(ctx.data.text)}, "13")]:
            executor = scripted({"output": FAULT})
            engine = await quick.engine(forms(inputs=inputs), dispatch=settings(executor, agent()))
            await engine.run("flow", data)
            assert shown in executor.calls[0].prompt
            assert "not for agents" not in executor.calls[0].prompt

    @pytest.mark.parametrize("mode", ["deterministic", "agent"])
    async def test_both_modes_keep_the_same_contract(self, quick, mode):
        """D-04: one step, run by its handler and by an agent."""
        executor = scripted({"output": {"kind": "question", "urgent": True}})
        said = agent("approver") if mode == "agent" else StepConfig(mode=StepMode.DETERMINISTIC)
        engine = await quick.engine(forms(output_schema=Form), dispatch=settings(executor, said))
        run = await engine.run("flow", MAIL)
        assert misfits({key: run.data[key] for key in ("kind", "urgent")}, Form) == []
        (move,) = await moves(engine, run.id)
        assert move.by == ("agent" if mode == "agent" else "handler")

    async def test_one_field_of_the_settings_switches_a_step(self, quick):
        """D-05, D-06: only `mode: agent`; the flow stays as it is, the level becomes collaborator."""
        flow = forms()
        before = flow.fingerprint
        assert (await deterministic(quick, flow, MAIL)).data == {**MAIL, **FAULT}
        executor = scripted({"output": FAULT})
        engine = await quick.engine(flow, dispatch=settings(executor, AGENT_ONLY))
        run = await engine.run("flow", MAIL)
        result = await result_of(engine, run.id)
        assert (result.mode_used, result.autonomy_level) == (StepMode.AGENT, AutonomyLevel.COLLABORATOR)
        assert flow.fingerprint == before
        assert run.data == {**MAIL, **FAULT}

    @pytest.mark.parametrize("key", ["work", "flow/work"])
    async def test_settings_know_a_step_by_its_bare_and_by_its_qualified_name(self, quick, key, heard):
        """D-05."""
        executor = scripted({"output": FAULT})
        engine = await quick.engine(forms(), dispatch=settings(executor, AGENT_ONLY, step=key))
        await engine.run("flow", MAIL)
        assert heard.one("dispatch.mode_selected")["source"] == f"steps.{key}"
        assert len(executor.calls) == 1

    async def test_the_steps_own_configuration_is_the_strongest(self, quick):
        """D-05: `config` of the step beats the settings."""
        executor = scripted({"output": FAULT})
        flow = forms(config={"mode": "deterministic"})
        engine = await quick.engine(flow, dispatch=settings(executor, AGENT_ONLY))
        await engine.run("flow", MAIL)
        assert executor.calls == []

    def test_nothing_said_is_deterministic_and_operator(self):
        """D-06."""
        from detent.dispatch.dispatcher import Dispatcher

        flow = forms()
        plan = Dispatcher().plan_for(flow, flow.steps["work"])
        assert (plan.config.mode, plan.config.autonomy) == (StepMode.DETERMINISTIC, AutonomyLevel.OPERATOR)
        assert plan.plain

    async def test_one_executor_is_made_per_provider_and_run(self, quick):
        """1.4: shared by the steps of a run."""
        source = ScriptedSource(scripted({"output": {}, "repeat": True}, step="*"))
        flow = flow_of(
            {"a": ["b"], "b": ["done"]},
            {
                "a": Step("a", lambda ctx: {}, "Do the first of two things."),
                "b": Step("b", lambda ctx: {}, "Do the second of two things."),
            },
        )
        engine = await quick.engine(flow, dispatch=settings(source, steps={"a": agent(), "b": agent()}))
        await engine.run("flow")
        assert source.made == 1
        await engine.run("flow")
        assert source.made == 2


class Cover(Enum):
    FULL = "full"
    NONE = "none"


@dataclass
class Part:
    name: str
    file: Path


@dataclass
class Facts:
    cover: Cover
    home: Path
    first: Part
    parts: list[Part] = field(default_factory=list)
    by_cover: dict[str, Cover] = field(default_factory=dict)
    note: str | None = None


class Own:
    """A class of which no schema can be made."""

    def __plain__(self):
        return dict(FAULT)


class Dated(BaseModel):
    at: datetime
    cover: Cover = Cover.NONE


@dataclass
class Bought:
    at: datetime
    cover: Cover


FACTS = Facts(
    Cover.FULL, Path("mail/1.eml"), Part("hinge", Path("a/b")), [Part("lid", Path("c"))], {"x": Cover.NONE}
)
FACTS_ANSWER = {
    "cover": "full",
    "home": "mail/1.eml",
    "first": {"name": "hinge", "file": "a/b"},
    "parts": [{"name": "lid", "file": "c"}],
    "by_cover": {"x": "none"},
}
WHEN = datetime(2024, 1, 31, 10, tzinfo=UTC)


class TestTypes:
    @pytest.mark.parametrize("hard", [True, False])
    @pytest.mark.parametrize("into", [None, "facts"])
    @pytest.mark.parametrize("level", ["collaborator", "approver"])
    async def test_an_agents_output_is_kept_as_the_handlers_would_be(self, bench, hard, into, level):
        """D-03: dataclasses with enums, paths, nested ones; as hard and as soft contract."""

        async def work(ctx) -> Facts:
            return FACTS

        flow = forms(work, into=into, output_schema=Facts if hard else None)
        expected = (await deterministic(bench, flow)).data
        engine = await bench.engine(flow, dispatch=settings(scripted({"output": FACTS_ANSWER}), agent(level)))
        run = await engine.run("flow")
        (move,) = await moves(engine, run.id)
        assert move.by == "agent"
        assert run.data == expected

    async def test_a_models_dates_are_kept_as_the_handlers_would_be(self, bench):
        """D-03: a pydantic model with a date and an enum."""

        async def work(ctx) -> Dated:
            return Dated(at=WHEN, cover=Cover.FULL)

        flow = forms(work, output_schema=Dated)
        expected = (await deterministic(bench, flow)).data
        executor = scripted({"output": {"at": "2024-01-31T10:00:00Z", "cover": "full"}})
        engine = await bench.engine(flow, dispatch=settings(executor, agent()))
        run = await engine.run("flow")
        assert (await moves(engine, run.id))[0].by == "agent"
        assert run.data == expected

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    async def test_what_is_concluded_sees_the_same_types_whoever_gave_the_facts(self, bench, level):
        """D-03: a dataclass with a date, made an outcome by `conclude`."""
        seen = []

        async def work(ctx) -> Bought:
            return Bought(WHEN, Cover.FULL)

        def conclude(ctx, facts: Bought):
            seen.append(facts)
            return Outcome(set={"year": facts.at.year, "covered": facts.cover is Cover.FULL})

        flow = forms(work, conclude=conclude, output_schema=Bought)
        expected = (await deterministic(bench, flow)).data
        executor = scripted({"output": {"at": "2024-01-31T10:00:00+00:00", "cover": "full"}})
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (await moves(engine, run.id))[0].by == "agent"
        assert run.data == expected == {"year": 2024, "covered": True}
        assert all(one == Bought(WHEN, Cover.FULL) for one in seen)

    async def test_a_return_type_no_schema_can_describe_says_nothing(self, quick):
        """D-03: a class of one's own as the return annotation must not make an agent step fail."""

        async def work(ctx) -> Own:
            return Own()

        def conclude(ctx, facts):
            return dict(FAULT)

        for level in ("operator", "collaborator", "approver"):
            flow = forms(work, conclude=conclude)
            engine = await quick.engine(flow, dispatch=settings(scripted({"output": FAULT}), agent(level)))
            run = await engine.run("flow", MAIL)
            assert (run.status, run.data) == (Status.SUCCEEDED, {**MAIL, **FAULT})

    async def test_a_text_is_an_answer_where_a_text_is_wanted(self, quick):
        """1.8: the soft contract is `str`."""

        async def work(ctx) -> str:
            return "Dear customer"

        flow = forms(work, into="letter")
        executor = scripted({"text": "Dear Ms Miller,\nthank you."})
        engine = await quick.engine(flow, dispatch=settings(executor, agent("consultant")))
        assert (await engine.run("flow")).data == {"letter": "Dear Ms Miller,\nthank you."}

    async def test_the_last_fenced_block_is_the_answer(self, quick):
        """1.8."""
        text = 'I think:\n```json\n{"kind": "x"}\n```\nNo:\n```json\n{"kind": "fault", "urgent": true}\n```\n'
        engine = await quick.engine(forms(), dispatch=settings(scripted({"text": text}), agent()))
        run = await engine.run("flow", MAIL)
        assert (await moves(engine, run.id))[0].by == "agent"
        assert run.data == {**MAIL, **FAULT}


async def _never(ctx):
    raise AssertionError("an agent step has no handler to call")


class TestAgentRoles:
    @pytest.mark.parametrize(("told", "kind"), [({}, "python"), ({"type": "loop"}, "loop")])
    async def test_a_control_step_warns_and_runs_its_handler(self, bench, told, kind, heard):
        """D-08, D-10."""
        source = ScriptedSource(scripted({"output": {"kind": "other"}}))
        flow = forms(agent=AgentSide(AgentRole.NONE), metadata=told)
        engine = await bench.engine(flow, dispatch=settings(source, agent("approver")))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert source.made == 0
        assert heard.sequence() == "M no_intent D"
        assert heard.one("dispatch.no_intent")["step_type"] == kind
        assert (await result_of(engine, run.id)).shape == "plain"

    async def test_mode_changes_nothing_for_a_generate_step(self, quick, heard):
        """D-08: 1.7 says `mode: agent` is ignored on generate steps, as on agent steps."""
        seen = []
        for said in (None, agent()):
            executor = scripted({"output": FAULT})
            flow = forms(agent=AgentSide(AgentRole.PREFERRED))
            engine = await quick.engine(flow, dispatch=settings(executor, said))
            await engine.run("flow", MAIL)
            seen.append(len(executor.calls))
        assert seen[0] == seen[1]

    @pytest.mark.parametrize("said", [None, AGENT_ONLY])
    async def test_an_agent_step_is_performed_by_an_agent_whatever_its_mode(self, bench, said, heard):
        """D-08, D-09: `mode: agent` is ignored; no handler, no gate."""
        executor = scripted({"output": {"kind": 3}}, {"output": {"kind": "other", "urgent": False}})
        flow = forms(_never, agent=AgentSide(AgentRole.REQUIRED), output_schema=Form)
        engine = await bench.engine(flow, dispatch=settings(executor, said))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.SUCCEEDED
        assert run.data == {**MAIL, "kind": "other", "urgent": False}
        assert len(executor.calls) == 2
        assert heard.sequence() == ("mode_ignored S R C" if said is not None else "S R C")
        result = await result_of(engine, run.id)
        assert (result.mode_used, result.attempts) == (StepMode.AGENT, 2)

    async def test_an_agent_step_may_be_told_what_agents_are_told(self, quick):
        """D-09: agent-only fields need no `mode: agent` on a step that is an agent's anyway."""
        executor = scripted({"output": FAULT})
        flow = forms(_never, agent=AgentSide(AgentRole.REQUIRED))
        engine = await quick.engine(flow, dispatch=settings(executor, StepConfig(prompt_suffix="Be brief.")))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.SUCCEEDED
        assert "Be brief." in executor.calls[0].instructions

    @pytest.mark.parametrize(
        ("reply", "reason", "words"),
        [
            ({"error": {"type": "permanent", "message": "refused it"}}, "exception", "refused it"),
            ({"output": {"kind": 3}}, "schema_violation", "does not fit"),
            ({"output": {"success": False}}, "exception", "failed"),
        ],
    )
    async def test_an_agent_step_that_fails_has_no_fallback(self, bench, reply, reason, words, heard):
        """D-29, D-36: the agent's error is the step's."""
        executor = scripted({**reply, "repeat": True})
        flow = forms(_never, agent=AgentSide(AgentRole.REQUIRED), output_schema=Form)
        engine = await bench.engine(flow, dispatch=settings(executor, StepConfig(max_retries=0)))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.FAILED
        assert words in await error_of(engine, run.id)
        assert heard.sequence() == "S R failed"
        assert heard.one("dispatch.failed")["reason"] == reason
        assert not heard.named("dispatch.fallback")
        (visit,) = visits(await journal(engine, run.id))
        assert [(answer.asked, answer.kept, answer.fallback) for answer in visit.answers] == [
            (True, False, None)
        ], "it was asked, and nothing replaced its answer"

    async def test_an_agent_step_without_an_executor_waits_and_says_what_is_missing(self, quick, heard):
        """D-29, D-31: nothing is done in its place; a person supplies what is missing, or gives up."""
        flow = forms(_never, agent=AgentSide(AgentRole.REQUIRED))
        engine = await quick.engine(flow, dispatch=settings(None))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.WAITING
        (hold,) = run.holds.values()
        assert NO_MODEL in hold.about["reason"]
        assert heard.sequence() == ""
        await engine.release(run.id, "fail", hold=run.token(*run.holds))
        run = await engine.finish(run.id)
        assert run.status is Status.FAILED
        assert NO_MODEL in await error_of(engine, run.id)
        assert heard.sequence() == "failed"


async def test_the_journal_keeps_the_resolved_configuration_and_its_layers(quick):
    """1.3: with an agent step, config and sources are part of the move."""
    executor = scripted({"output": FAULT})
    engine = await quick.engine(forms(), dispatch=settings(executor, agent("consultant", temperature=0.3)))
    run = await engine.run("flow", MAIL)
    (move,) = await moves(engine, run.id)
    assert move.detail["step"] == "flow/work"
    assert move.detail["config"]["temperature"] == 0.3
    assert move.detail["sources"]["autonomy"] == "steps.work"
    assert set(move.detail["series"]) == {"model_id", "prompt", "handler", "check", "sampling"}


async def test_an_agents_reason_is_the_moves_reason(quick):
    """1.8: the envelope's reason."""
    flow = flow_of({"work": ["done", "failed"]}, {"work": Step("work", lambda ctx: Outcome("done"), INTENT)})
    executor = scripted({"output": {"output": {}, "next_state": "done", "reason": "it is covered"}})
    engine = await quick.engine(flow, dispatch=settings(executor, agent()))
    run = await engine.run("flow")
    assert (run.state, run.reason) == ("done", "it is covered")


async def test_what_agents_stream_reaches_those_who_listen(quick):
    """1.4: pieces of text are told, and not journaled."""

    class Listener:
        def __init__(self) -> None:
            self.pieces: list[Any] = []

        def on_stream(self, run_id, flow, step, chunk):
            self.pieces.append((step, chunk.chunk_type, chunk.text))

    listener = Listener()
    executor = scripted({"output": FAULT, "stream": ["Let me ", "see."]})
    engine = await quick.engine(forms(), dispatch=settings(executor, agent()), observers=[listener])
    run = await engine.run("flow", MAIL)
    assert listener.pieces == [
        ("work", "thinking", ""), ("work", "output", "Let me "), ("work", "output", "see."),
    ]  # fmt: skip
    assert "Let me" not in str(await journal(engine, run.id))
