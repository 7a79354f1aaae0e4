"""The machine inside runs: illegal moves, tools run elsewhere, replies that cannot be read, time, sub-runs,
questions that outlive the process, and evidence about the assistant."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.executor_errors import ExecutorTimeoutError, OutputSchemaValidationError
from detent.engine.journal_reader import read
from detent.engine.outcome import Outcome
from detent.engine.verdicts import VERDICT
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.reply import AssistantReply, ToolResult
from detent.flows.coding.response_state import AgentState, ResponseState
from detent.flows.coding.state_transition import CODING
from detent.kernel.budget import Budget
from detent.kernel.entries import Noted
from detent.kernel.errors import HoldNotOpen
from detent.kernel.status import Status
from tests.flows.coding.desk import DONE, YES, Desk, ScriptedModel, nudged, results, says

READ = ("read_file", {"filepath": "a.py"})
WRITE = ("write_file", {"filepath": "b.py", "content": "b\n"})

ILLEGAL = [
    (state, to)
    for state in AgentState
    for to in AgentState
    if to is not state and to not in CODING.allowed(state)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("x = 1\n")
    return tmp_path


@pytest.mark.parametrize(("state", "to"), ILLEGAL)
async def test_an_illegal_move_ends_the_request_in_words_and_the_next_prompt_works(folder, state, to):
    store = folder / "detent.db"
    model = None if state is AgentState.ASSISTANT else ScriptedModel([says("", READ), DONE])
    async with Desk(folder, model, store=SQLiteStore(store)) as desk:

        async def astray(ctx: Any) -> Outcome:
            return Outcome(to)

        own = desk.flow.step_for(state.value)
        desk.flow.replace(state, replace(own, handler=astray, conclude=None))
        first = await desk.ask("go", YES)
        assert first.outcome == "failed"
        assert f"{state.value} → {to.value}. Valid transitions" in str(first.reason)
        run = await desk.engine.get(first.run_id)
        assert not ResponseState.of_run(run.data).is_complete
    async with Desk(folder, ScriptedModel([DONE]), store=SQLiteStore(store)) as desk:
        second = await desk.ask("and now?", YES, session=first.session_id)
        assert second.done


async def test_tools_that_ran_elsewhere_pass_through_tool_execution(folder):
    ran = ToolResult("", "web_search", False, "no network", "failed")
    replies = [
        AssistantReply("I search.", ran=(ran,)),
        AssistantReply("TUNACODE DONE: found", ran=(replace(ran, ok=True, content="it is 1", error=None),)),
    ]
    async with Desk(folder) as desk:
        own = desk.flow.step_for("assistant")

        async def searching(ctx: Any) -> AssistantReply:
            return replies.pop(0)

        desk.flow.replace(AgentState.ASSISTANT, replace(own, handler=searching))
        result = await desk.ask("search")
        assert await desk.states(result.run_id) == [
            "user_input", *("assistant", "tool_execution", "response") * 2,
        ]  # fmt: skip
        turns = await desk.turns(result.run_id)
    assert result.done
    assert results(turns) == [("web_search", False, "failed"), ("web_search", True, None)]
    assert nudged(turns) == ["no_marker"]


class TestUnusableReplies:
    async def test_one_that_cannot_be_read_is_asked_for_once_more(self, folder):
        broken = OutputSchemaValidationError("assistant", "its form", ["/: cannot be read"])
        async with Desk(folder, ScriptedModel([broken, DONE])) as desk:
            result = await desk.ask("go", YES)
            assert (result.done, result.iterations) == (True, 1)
            assert "could not be read" in desk.model.requests[1][-1].content

    async def test_then_the_handler_takes_over_with_a_reason(self, folder):
        broken = OutputSchemaValidationError("assistant", "its form", ["/: cannot be read"])
        async with Desk(folder, ScriptedModel([broken, broken])) as desk:
            result = await desk.ask("go", YES)
            assert (result.outcome, result.reason) == ("incomplete", "model_failed")
            assert result.text.startswith("Not finished")

    async def test_transient_errors_are_retried(self, folder):
        late = ExecutorTimeoutError("assistant", 1.0, 1)
        async with Desk(folder, ScriptedModel([late, late, DONE])) as desk:
            assert (await desk.ask("go", YES)).done
        async with Desk(folder, ScriptedModel([late, late, late, DONE])) as desk:
            assert (await desk.ask("go", YES)).reason == "model_failed"

    async def test_a_model_that_does_not_answer_is_given_up(self, folder):
        class Silent(ScriptedModel):
            async def reply(self, request: Any) -> Any:
                await asyncio.sleep(60)

        settings = {"model_timeout_s": 0.05, "max_retries": 1}
        async with Desk(folder, Silent([]), settings=settings) as desk:
            assert (await desk.ask("go", YES)).reason == "model_failed"


class TestTasksInRuns:
    TASK = ("task", {"description": "work", "prompt": "write b", "profile": "worker"})

    async def test_what_they_spend_counts_for_the_request(self, folder):
        model = ScriptedModel([says("", self.TASK), says("", WRITE), DONE, DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("go", YES)
            assert (result.usage["input_tokens"], result.files_changed) == (40, ("b.py",))
        model = ScriptedModel([says("", self.TASK), says("", WRITE), DONE, DONE])
        async with Desk(folder, model) as desk:
            started = await desk.start("go", YES, budget=Budget(tokens=20))
            await desk.engine.finish(started.run_id)
            result = await desk.result(started.run_id)
            assert result.outcome == "budget_exhausted"
            assert len(model.replies) == 2

    async def test_cancelling_the_request_cancels_them(self, folder):
        begun = asyncio.Event()

        class Slow(ScriptedModel):
            async def reply(self, request: Any) -> Any:
                if len(self.requests) == 1:
                    self.requests.append([])
                    begun.set()
                    await asyncio.sleep(60)
                return await super().reply(request)

        async with Desk(folder, Slow([says("", self.TASK), DONE])) as desk:
            started = await desk.start("go", YES)
            await begun.wait()
            await desk.engine.cancel(started.run_id)
            child = await desk.engine.get(f"{started.run_id}.task-t1c1")
            assert child.status is Status.CANCELLED

    async def test_its_question_is_the_persons(self, folder):
        model = ScriptedModel([says("", self.TASK), says("", WRITE), DONE, DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("go", RequestOptions())
            assert result.outcome == "waiting"
            child_id = f"{result.run_id}.task-t1c1"
            child = await desk.engine.get(child_id)
            (hold,) = child.holds.values()
            assert hold.about["tool"] == "write_file"
            await desk.engine.release(child_id, "yes", hold=child.token(hold.name))
            await desk.engine.finish(result.run_id)
            assert (await desk.result(result.run_id)).done
        assert (folder / "b.py").read_text() == "b\n"


async def test_a_question_survives_the_process_and_an_old_answer_is_refused(folder, tmp_path):
    store = tmp_path / "detent.db"
    script = [says("", WRITE, ("write_file", {"filepath": "c.py", "content": "c\n"}))]
    async with Desk(folder, ScriptedModel(script), store=SQLiteStore(store)) as desk:
        result = await desk.ask("write", RequestOptions())
        run = await desk.engine.get(result.run_id)
        (first,) = [run.token(name) for name in run.holds]
    async with Desk(folder, ScriptedModel([DONE]), store=SQLiteStore(store)) as desk:
        await desk.engine.release(result.run_id, "yes", hold=first)
        run = await desk.engine.finish(result.run_id)
        assert run.status is Status.WAITING
        with pytest.raises(HoldNotOpen):
            await desk.engine.release(result.run_id, "yes", hold=first)
        (second,) = [run.token(name) for name in run.holds]
        await desk.engine.release(result.run_id, "no", hold=second)
        await desk.engine.finish(result.run_id)
        assert (await desk.result(result.run_id)).done
    assert (folder / "b.py").exists()
    assert not (folder / "c.py").exists()


class TestEvidence:
    """Form is no evidence: checks and people's answers are."""

    @staticmethod
    async def verdicts(desk: Desk, run_id: str) -> list[tuple[bool, str]]:
        notes = [entry.body async for entry in read(desk.store, run_id) if isinstance(entry.body, Noted)]
        return [(note.body["right"], note.body["performed_by"]) for note in notes if note.topic == VERDICT]

    async def test_a_reply_alone_is_none(self, folder):
        async with Desk(folder, ScriptedModel([says("", READ), DONE])) as desk:
            result = await desk.ask("go", YES)
            assert await self.verdicts(desk, result.run_id) == []

    async def test_checks_are(self, folder):
        model = ScriptedModel([DONE, says("", WRITE), DONE])
        async with Desk(folder, model, settings={"done_when": "test -f b.py"}) as desk:
            result = await desk.ask("go")
            assert await self.verdicts(desk, result.run_id) == [(False, "agent"), (True, "agent")]

    @pytest.mark.parametrize(("answer", "right"), [("yes", True), ("no", False)])
    async def test_people_are(self, folder, answer, right):
        async with Desk(folder, ScriptedModel([says("", WRITE), DONE])) as desk:
            result = await desk.ask("go", RequestOptions())
            run = await desk.engine.get(result.run_id)
            (token,) = [run.token(name) for name in run.holds]
            await desk.engine.release(result.run_id, answer, hold=token)
            await desk.engine.finish(result.run_id)
            assert await self.verdicts(desk, result.run_id) == [(right, "agent")]


async def test_secrets_reach_no_journal_no_model_and_no_session(folder, tmp_path):
    secret = "sk-9f8e7d6c5b4a"
    (folder / "a.py").write_text(f"KEY = '{secret}'\n")
    model = ScriptedModel([says("", READ, ("bash", {"command": "cat a.py"})), DONE])
    desk = Desk(
        folder, model, flow_options={"secrets": frozenset({secret})}, store=SQLiteStore(tmp_path / "d.db")
    )
    async with desk:
        result = await desk.ask(f"use {secret}", YES)
        assert result.done
    assert secret not in str(model.requests)
    assert all(secret.encode() not in file.read_bytes() for file in tmp_path.glob("d.db*"))
