"""Requests that are put down in the middle: killed at every commit and inside every effect, interrupted,
cancelled, taken over; and what the next request of the session then sends."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.request import is_interrupted
from detent.kernel.errors import StoreUnavailable
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.examples import one_in
from tests.flows.coding.desk import DONE, YES, Desk, ScriptedModel, results, says

BROKEN, FIXED = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
EDIT = ("update_file", {"filepath": "calc.py", "target": "a - b", "patch": "a + b"})
TEST = ("bash", {"command": "echo run >> ran; python3 -c 'import calc; assert calc.add(1, 2) == 3'"})


def fixing() -> list[Any]:
    """A task as a model does it: look, run the test, edit, run it again, write a note, finish."""
    return [
        says("I look first.", ("read_file", {"filepath": "calc.py"}), ("glob", {"pattern": "*.py"})),
        says("", TEST),
        says("It subtracts.", EDIT, ("read_file", {"filepath": "calc.py"})),
        says("", TEST, ("write_file", {"filepath": "notes.md", "content": "fixed\n"})),
        says("TUNACODE DONE: add adds again"),
    ]


class ByTurn(ScriptedModel):
    """Answers by how many replies it is shown, so that it says the same when it is asked again."""

    async def reply(self, request: Any) -> Any:
        said = sum(message.role == "assistant" for message in request.messages)
        self.requests.append(list(request.messages))
        open_calls = {call.id for message in request.messages for call in message.calls}
        answered = [message.answers for message in request.messages if message.role == "tool"]
        assert sorted(answered) == sorted(open_calls), "a provider would refuse this conversation"
        return self.replies[said]


async def killed_at(tmp_path: Path, point: CrashPoint) -> tuple[int, dict[str, Any]]:
    """Kill the request at a point, resume it, and say how it ended; 0 if the point was not reached."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "calc.py").write_text(BROKEN)
    store = tmp_path / "detent.db"
    reached = 0

    def strike(_: CrashPoint) -> None:
        nonlocal reached
        reached += 1
        raise StoreUnavailable("the process is gone")

    crash = CrashPoints([point], strike=strike)
    desk = Desk(workspace, ByTurn(fixing()), store=crash.store(SQLiteStore(store)))
    for tool in list(desk.flow.tools):
        desk.flow.tools._tools[tool.name] = crash.tool(tool)
    with contextlib.suppress(StoreUnavailable):
        async with desk:
            started = await desk.start("fix add", YES)
            await desk.engine.finish(started.run_id)
    async with Desk(workspace, ByTurn(fixing()), store=SQLiteStore(store)) as desk:
        rows = (await desk.store.rows(_all())).rows
        if not rows:  # killed before the request was durable
            return reached, {"outcome": "none", "calc": (workspace / "calc.py").read_text()}
        run_id = rows[0].id
        run = await desk.engine.get(run_id)
        doubts = 0
        while not run.status.is_end:
            run = await desk.engine.finish(run_id)
            if run.status is Status.WAITING:
                (hold,) = run.holds.values()
                assert hold.name.startswith("effect:"), hold
                doubts += 1
                await desk.engine.resolve(run_id, "again", hold=run.token(hold.name))
        result = await desk.result(run_id)
        told = results(await desk.turns(run_id))
    return reached, {
        "outcome": result.outcome, "calc": (workspace / "calc.py").read_text(),
        "notes": (workspace / "notes.md").read_text() if (workspace / "notes.md").exists() else None,
        "ran": (workspace / "ran").read_text().count("run"), "doubts": doubts, "told": told,
    }  # fmt: skip


def _all() -> Any:
    from detent.engine.ports import RunQuery

    return RunQuery(flow="coding")


CHECK = "echo run >> checks; until test -e go; do sleep 0.02; done; test -e good"


class TestInterruptedChecks:
    """A check that passes while its request is put down tells nothing of the files at its end."""

    @pytest.mark.parametrize("good", [False, True])
    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_a_result_from_before_the_interruption_does_not_end_the_request(
        self, tmp_path, elsewhere, good
    ):
        store = tmp_path / "detent.db"
        workspace = tmp_path / "work"
        workspace.mkdir()
        (workspace / "good").touch()
        options = RequestOptions(yes=True, done_when=CHECK, check_when="always")
        async with Desk(workspace, ScriptedModel([DONE], repeats=True), store=SQLiteStore(store)) as desk:
            run_id = (await desk.start("do it", options)).run_id
            while not (workspace / "checks").exists():
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(desk.engine.interrupt(run_id))
            await asyncio.sleep(0)
            (workspace / "go").touch()
            await stopping
            assert not (await desk.engine.get(run_id)).status.is_end
            if not good:
                (workspace / "good").unlink()
            if not elsewhere:
                assert await self.end_of(desk, run_id) is good
        if elsewhere:
            model = ScriptedModel([DONE], repeats=True)
            async with Desk(workspace, model, store=SQLiteStore(store)) as desk:
                assert await self.end_of(desk, run_id) is good
        assert (workspace / "checks").read_text().count("run") >= 2

    async def end_of(self, desk: Desk, run_id: str) -> bool:
        await desk.engine.resume(run_id)
        await desk.engine.finish(run_id)
        return (await desk.result(run_id)).done


class TestInterrupts:
    async def test_an_interrupted_request_goes_on(self, tmp_path):
        (tmp_path / "calc.py").write_text(BROKEN)
        waiting = asyncio.Event()

        class Slow(ByTurn):
            async def reply(self, request: Any) -> Any:
                if len(self.requests) == 2:
                    self.requests.append([])
                    waiting.set()
                    await asyncio.sleep(60)
                return await super().reply(request)

        model = Slow(fixing())
        async with Desk(tmp_path, model) as desk:
            started = await desk.start("fix add", YES)
            await asyncio.wait_for(waiting.wait(), 10)
            await desk.engine.interrupt(started.run_id)
            assert (await desk.result(started.run_id)).outcome == "interrupted"
            assert await is_interrupted(desk.engine, started.run_id)
            await desk.engine.resume(started.run_id)
            await desk.engine.finish(started.run_id)
            assert (await desk.result(started.run_id)).done
        assert (tmp_path / "calc.py").read_text() == FIXED

    async def test_a_command_under_way_is_ended_and_the_next_prompt_is_accepted(self, tmp_path):
        endless = ("bash", {"command": "echo begun > begun; sleep 60"})
        script = [
            says("", ("write_file", {"filepath": "a", "content": "1"}), endless, ("list_dir", {})), DONE,
        ]  # fmt: skip
        model = ByTurn(script)
        async with Desk(tmp_path, model) as desk:
            first = await desk.start("run it", YES)
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.01)
            await desk.engine.interrupt(first.run_id, grace=0.1)
            second = await desk.ask("never mind", YES, session=first.session_id)
            assert second.done
            cancelled = await desk.engine.get(first.run_id)
            assert cancelled.status is Status.CANCELLED
            turns = await desk.turns(second.run_id)
        assert results(turns) == [
            ("write_file", True, None), ("bash", False, "interrupted"), ("list_dir", False, "cancelled"),
        ]  # fmt: skip
        assert (tmp_path / "a").read_text() == "1"

    async def test_a_request_cancelled_at_a_question_leaves_no_open_call(self, tmp_path):
        edit = ("write_file", {"filepath": "a", "content": "1"})
        model = ByTurn([says("", edit), DONE])
        async with Desk(tmp_path, model) as desk:
            first = await desk.ask("write", RequestOptions())
            await desk.engine.cancel(first.run_id)
            second = await desk.ask("never mind", YES, session=first.session_id)
            assert second.done
            assert results(await desk.turns(second.run_id)) == [("write_file", False, "cancelled")]
        assert not (tmp_path / "a").exists()


async def settled(tmp_path: Path, how: str, **more: Any) -> tuple[Any, list[Any], list[Any]]:
    """Kill a request inside its command, settle the command, and finish: result, messages, model."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    script = [says("", ("bash", {"command": "echo run >> ran"})), DONE]

    def strike(_: CrashPoint) -> None:
        raise StoreUnavailable("the process is gone")

    crash = CrashPoints([CrashPoint(1, "after", "effect")], strike=strike)
    desk = Desk(workspace, ByTurn(list(script)), store=crash.store(SQLiteStore(tmp_path / "detent.db")))
    for tool in list(desk.flow.tools):
        desk.flow.tools._tools[tool.name] = crash.tool(tool)
    with contextlib.suppress(StoreUnavailable):
        async with desk:
            started = await desk.start("run it", YES)
            await desk.engine.finish(started.run_id)
    model = ByTurn(list(script))
    async with Desk(workspace, model, store=SQLiteStore(tmp_path / "detent.db")) as desk:
        run = await desk.engine.finish(started.run_id)
        await desk.engine.resolve(run.id, how, hold=run.token(), **more)
        await desk.engine.finish(run.id)
        result = await desk.result(run.id)
        return result, await desk.turns(run.id), model.requests[-1]


async def change(desk: Desk, run_id: str, **args: Any) -> None:
    """Agree to the call that is asked about, with other arguments."""
    run = await desk.engine.get(run_id)
    await desk.engine.release(run_id, {"edit": args}, hold=run.token())


class TestDoubt:
    async def test_a_skipped_command_is_told_as_interrupted_and_maybe_done(self, tmp_path):
        _, turns, sent = await settled(tmp_path, "skip")
        assert results(turns) == [("bash", False, "interrupted")]
        assert "a person decided to go on without it" in sent[-1].content
        assert "null" not in sent[-1].content

    async def test_a_command_that_a_person_says_happened_has_no_known_output(self, tmp_path):
        _, turns, sent = await settled(tmp_path, "happened")
        assert results(turns) == [("bash", True, None)]
        assert sent[-1].content == (
            "It was interrupted. A person said that it happened; what it gave back is not known."
        )

    async def test_what_a_person_says_it_gave_back_is_told_as_such(self, tmp_path):
        _, turns, sent = await settled(tmp_path, "happened", receipt="12 passed")
        assert results(turns) == [("bash", True, None)]
        assert sent[-1].content.endswith("this is what it gave back:\n12 passed")

    async def test_a_skipped_command_still_counts_as_one_that_may_have_changed_files(self, tmp_path):
        result, _, _ = await settled(tmp_path, "skip")
        assert result.commands_run == 1

    async def test_a_call_that_a_person_changed_says_what_was_carried_out(self, tmp_path):
        model = ScriptedModel([says("", ("bash", {"command": "echo asked > a"})), DONE])
        async with Desk(tmp_path, model) as desk:
            result = await desk.ask("run it", RequestOptions())
            await change(desk, result.run_id, command="echo edited")
            await desk.engine.finish(result.run_id)
            turns = await desk.turns(result.run_id)
        assert not (tmp_path / "a").exists()
        (message,) = (turn for turn in turns if turn["role"] == "tool")
        assert message["changed"] == {"command": "echo edited"}
        assert message["content"].startswith("A person changed this call")
        assert "command: echo edited\nIts result:\nedited\n" in message["content"]
        assert model.requests[-1][-1].content == message["content"]

    async def test_a_changed_call_is_told_to_the_next_request_too(self, tmp_path):
        first_calls = ("bash", {"command": "echo asked"}), ("bash", {"command": "echo two"})
        model = ByTurn([says("", *first_calls), DONE])
        async with Desk(tmp_path, model) as desk:
            first = await desk.ask("run it", RequestOptions())
            await change(desk, first.run_id, command="echo edited")
            await desk.engine.finish(first.run_id)
            await desk.engine.cancel(first.run_id)
            second = await desk.ask("never mind", YES, session=first.session_id)
            turns = await desk.turns(second.run_id)
        assert results(turns) == [("bash", True, None), ("bash", False, "cancelled")]
        assert "command: echo edited" in turns[0]["content"]


class TestKills:
    async def test_undisturbed(self, tmp_path):
        reached, end = await killed_at(tmp_path, CrashPoint(999))
        assert reached == 0
        assert (end["outcome"], end["calc"], end["notes"], end["ran"], end["doubts"]) == (
            "completed", FIXED, "fixed\n", 2, 0,
        )  # fmt: skip

    @pytest.mark.parametrize("number", one_in(4, range(1, 30)))
    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_killed_at_any_commit_it_ends_the_same(self, tmp_path, number, when):
        _, end = await killed_at(tmp_path, CrashPoint(number, when))
        if end["outcome"] == "none":
            assert end["calc"] == BROKEN
            return
        assert (end["outcome"], end["calc"], end["notes"]) == ("completed", FIXED, "fixed\n")
        # A command in doubt is never repeated unasked: once more for each time a person said "again".
        assert end["ran"] <= 2 + end["doubts"]
        assert [tool for tool, _, _ in end["told"]] == [
            "read_file", "glob", "bash", "update_file", "read_file", "bash", "write_file",
        ]  # fmt: skip

    @pytest.mark.parametrize("number", [1, 2, 3, 4])
    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_killed_inside_any_effect_it_ends_the_same(self, tmp_path, number, when):
        reached, end = await killed_at(tmp_path, CrashPoint(number, when, "effect"))
        assert reached == 1
        assert (end["outcome"], end["calc"], end["notes"]) == ("completed", FIXED, "fixed\n")
        command = number in (1, 3)
        assert end["doubts"] == command
        assert end["ran"] == 2 + (command and when == "after")
