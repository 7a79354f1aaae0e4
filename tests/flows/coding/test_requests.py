"""One request from prompt to end: the path through the states, results, nudges, limits, checks and holds."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.conversation import ModelAnswer
from detent.dispatch.executor import ReplyRequest
from detent.dispatch.executor_errors import ExecutorError, MisconfiguredError, RequestTooLongError
from detent.engine.tools import Tool
from detent.flows.coding.nudges import TEXTS, marker_refused
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.request import SessionBusy
from detent.flows.coding.response_state import ResponseState
from detent.kernel.budget import Budget
from detent.kernel.status import Status
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, nudged, results, says

READ = ("read_file", {"filepath": "a.py"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("x = 1\n")
    return tmp_path


def edit(target: str, patch: str) -> tuple[str, dict[str, Any]]:
    return "update_file", {"filepath": "a.py", "target": target, "patch": patch}


async def asked(
    folder: Path, *replies: Any, prompt: str = "fix it", **more: Any
) -> tuple[Any, Any, list[Any]]:
    """The result of one request, the desk and the messages."""
    options = more.pop("options", None)
    desk = Desk(folder, ScriptedModel(list(replies)), **more)
    async with desk:
        result = await desk.ask(prompt, options)
        return result, desk, await desk.turns(result.run_id)


class HangingModel(ScriptedModel):
    """Never gives a reply."""

    hung = 0

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        self.hung += 1
        await asyncio.Event().wait()
        raise AssertionError


class Crowd(ScriptedModel):
    """Counts who meets at the same time; everyone waits until so many have met once.

    As a model it lets sub-tasks meet, and answers them.
    """

    def __init__(self, size: int) -> None:
        super().__init__([])
        self.now = self.most = 0
        self._size, self._met = size, asyncio.Event()

    async def meet(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == self._size:
            self._met.set()
        await asyncio.wait_for(self._met.wait(), 20)
        await asyncio.sleep(0)
        self.now -= 1

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        if request.messages[-1].content == "look around":
            await self.meet()
            return DONE
        return await super().reply(request)


class TestPaths:
    async def test_no_tool_path(self, folder):
        result, _desk, _ = await asked(folder, says("It is one.\nTUNACODE DONE: x is 1"))
        assert (result.outcome, result.summary, result.checked) == ("completed", "x is 1", "none")
        assert result.text == "It is one.\nx is 1"

    async def test_tool_success_loop(self, folder):
        desk = Desk(folder, ScriptedModel([says("", READ), says("TUNACODE DONE: read")]))
        async with desk:
            result = await desk.ask("read a.py")
            assert await desk.states(result.run_id) == [
                "user_input", "assistant", "tool_execution", "response", "assistant", "response",
            ]  # fmt: skip
        assert (result.outcome, result.iterations, result.tool_calls) == ("completed", 2, 1)

    async def test_tool_failure_then_retry(self, folder):
        missing = ("read_file", {"filepath": "b.py"})
        result, _, turns = await asked(folder, says("", missing), says("", READ), DONE)
        assert result.done
        assert results(turns) == [("read_file", False, "not_found"), ("read_file", True, None)]

    async def test_a_premature_marker_loops_back(self, folder):
        marked = says("TUNACODE DONE: fixed", edit("x = 1", "x = 2"))
        result, desk, turns = await asked(folder, marked, DONE)
        assert (result.done, result.premature_count, result.iterations) == (True, 1, 2)
        assert desk.read("a.py") == "x = 2\n"
        assert nudged(turns) == ["premature_marker"]
        assert "TUNACODE" not in str(turns[1]["content"])

    async def test_the_model_sees_each_result_behind_its_call(self, folder):
        _, desk, _ = await asked(folder, says("", READ, READ), DONE)
        assistant, *told = desk.model.requests[1][2:]
        assert [call.id for call in assistant.calls] == ["t1c1", "t1c2"]
        assert [message.answers for message in told] == ["t1c1", "t1c2"]
        assert told[0].content == "x = 1\n"

    async def test_each_request_begins_with_the_one_before(self, folder):
        _, desk, _ = await asked(folder, says("", READ), says("I see."), says("", READ), DONE)
        requests = desk.model.requests
        for before, after in itertools.pairwise(requests):
            assert after[: len(before)] == before

    async def test_a_write_is_read_in_the_same_reply(self, folder):
        _, _desk, turns = await asked(folder, says("", READ, edit("x = 1", "x = 2"), READ), DONE)
        assert [turn["content"] for turn in turns if turn["role"] == "tool"][::2] == ["x = 1\n", "x = 2\n"]

    async def test_queries_overlap_up_to_a_limit_and_their_results_stay_in_order(self, folder):
        """C-40; each waits until as many are under way as may be, so that none would end one by one."""
        crowd, calls = Crowd(3), [("look", {"number": number}) for number in range(9)]

        async def look(number: int) -> str:
            await crowd.meet()
            return f"seen {number}"

        model = ScriptedModel([says("", *calls), DONE])
        further = {"further": [Tool("look", look, "query")]}
        async with Desk(folder, model, {"max_parallel": 3}, flow_options=further) as desk:
            result = await desk.ask("look")
            turns = await desk.turns(result.run_id)
        told = [turn["content"] for turn in turns if turn["role"] == "tool"]
        assert told == [f"seen {number}" for number in range(9)]
        assert crowd.most == 3

    async def test_the_same_command_twice_runs_twice(self, folder):
        add = ("bash", {"command": "echo . >> log"})
        _result, desk, _ = await asked(folder, says("", add), says("", add, READ), DONE)
        assert desk.read("log") == ".\n.\n"

    async def test_unknown_tools_and_bad_arguments_are_results(self, folder):
        wrong = [
            ("read_fil", {"filepath": "a.py"}), ("read_file", {"path": "a.py"}), ("read_file", "not json"),
            ("read_file", {"filepath": "../a.py"}), READ,
        ]  # fmt: skip
        result, _, turns = await asked(folder, says("", *wrong), DONE)
        assert [error for _, _, error in results(turns)] == [
            "unknown_tool", "invalid_arguments", "invalid_arguments", "outside_workspace", None,
        ]  # fmt: skip
        assert result.done

    async def test_more_calls_than_allowed_are_answered(self, folder):
        calls = [("read_file", {"filepath": "a.py", "max_lines": number}) for number in range(1, 24)]
        _, _, turns = await asked(folder, says("", *calls), DONE)
        assert [error for _, _, error in results(turns)] == [None] * 20 + ["too_many_calls"] * 3

    async def test_the_last_call_of_a_cut_reply_is_not_run(self, folder):
        cut = says("", READ, edit("x = 1", "x ="), finish="length")
        _, desk, turns = await asked(folder, cut, DONE)
        assert [error for _, _, error in results(turns)] == [None, "invalid_arguments"]
        assert desk.read("a.py") == "x = 1\n"
        assert nudged(turns) == ["truncated"]


class TestNudges:
    @pytest.mark.parametrize(
        ("reply", "kind", "text"),
        [
            ("I will look at it.", "no_marker", "not marked finished (1 of 3)"),
            ("", "empty", 'The task: "fix it". Last tools: none.'),
            ("Here it is:\n```py\nx = 1", "truncated", TEXTS["truncated"]),
            ("And then ...", "truncated", TEXTS["truncated"]),
            ("**TUNACODE DONE: x**", "marker_refused", "does not count"),
            ("```\nTUNACODE DONE: x\n```", "marker_refused", "does not count"),
        ],
    )
    async def test_each_in_its_case_and_alone(self, folder, reply, kind, text):
        _, desk, turns = await asked(folder, says(reply), DONE)
        assert nudged(turns) == [kind]
        (told,) = desk.model.nudges
        assert text in told

    async def test_a_repeated_call_is_not_made_a_third_time(self, folder):
        _result, desk, turns = await asked(folder, says("", READ), says("", READ), says("", READ), DONE)
        assert [turn["content"] for turn in turns if turn["role"] == "tool"] == ["x = 1\n"] * 3
        assert desk.model.nudges == [TEXTS["repeated_call"].format(tool="read_file", n=3)]

    async def test_polling_is_no_repeat(self, folder):
        poll = ("bash", {"command": "echo . >> log; cat log"})
        _result, desk, turns = await asked(folder, *[says("", poll)] * 4, DONE)
        assert nudged(turns) == []
        assert desk.read("log") == ".\n" * 4

    async def test_tests_after_an_edit_are_no_repeat(self, folder):
        run = ("bash", {"command": "true"})
        script = [
            says("", run), says("", edit("x = 1", "x = 2")), says("", run), says("", edit("x = 2", "x = 3")),
            says("", run), DONE,
        ]  # fmt: skip
        result, _, turns = await asked(folder, *script)
        assert (result.done, nudged(turns)) == (True, [])

    async def test_a_repeat_in_one_reply_counts(self, folder):
        result, _, turns = await asked(folder, says("", READ, READ, READ, READ), DONE)
        assert result.tool_calls == 2
        assert [turn.get("repeated") for turn in turns if turn["role"] == "tool"] == [None, None, True, True]
        assert nudged(turns) == ["repeated_call"]
        assert len(results(turns)) == 4

    async def test_a_failed_check_is_told_by_the_end_of_its_output(self, folder):
        check = "printf 'begin'; printf 'x%.0s' $(seq 1500); printf 'the end'; exit 3"
        _, desk, turns = await asked(folder, DONE, *[says("Well.")] * 3, settings={"done_when": check})
        assert nudged(turns)[0] == "check_failed"
        text = desk.model.nudges[0]
        assert text.startswith(f"The task is not done: {check} ended with 3. x")
        told = text.removeprefix(f"The task is not done: {check} ended with 3. ")
        assert len(told) == 1000
        assert "the end" in told

    async def test_an_empty_reply_is_told_the_task_and_the_last_three_tools(self, folder):
        calls = [("list_dir", {}), ("glob", {"pattern": "*"}), READ, ("grep", {"pattern": "x"})]
        model = ScriptedModel([says("", *calls), says(""), DONE])
        async with Desk(folder, model) as desk:
            await desk.ask("f" * 300)
        assert f'The task: "{"f" * 200}". Last tools: glob, read_file, grep. Call' in model.nudges[-1]

    @pytest.mark.parametrize(("most", "at"), [(10, 8), (9, 8), (11, 9), (6, 5)])
    async def test_the_limit_is_named_once(self, folder, most, at):
        """At four fifths of the turns, rounded up."""
        calls = [says("", ("read_file", {"filepath": "a.py", "max_lines": n})) for n in range(1, most)]
        _, desk, turns = await asked(folder, *calls, DONE, settings={"max_iterations": most})
        assert nudged(turns) == ["limit_near"]
        assert [turn["role"] for turn in turns].index("nudge") == 1 + 2 * at  # behind so many replies
        assert desk.model.nudges == [f"{most - at} turns are left. Finish, or say plainly what remains."]


class TestLimits:
    async def test_three_replies_without_call_or_marker(self, folder):
        result, desk, _turns = await asked(folder, says("Done!"), says("Really."), says("Yes."), DONE)
        assert (result.outcome, result.reason, result.iterations) == ("incomplete", "unproductive", 3)
        assert len(desk.model.replies) == 1
        assert "Not finished" in result.text
        assert "Really" not in result.text

    async def test_a_command_that_was_not_run_again_is_none_of_the_commands(self, folder):
        run = ("bash", {"command": "echo x >> count"})
        model = ScriptedModel([says("", run)], repeats=True)
        async with Desk(folder, model) as desk:
            result = await desk.ask("fix it")
            assert desk.read("count") == "x\nx\n"
        assert (result.reason, result.tool_calls) == ("unproductive", 2)
        assert result.summary.count("echo x") == 2
        assert "made no new call and had no marker that counts" in result.summary

    async def test_a_command_that_was_refused_is_none_of_the_commands(self, folder):
        options = RequestOptions(deny=("bash",))
        script = [says("", ("bash", {"command": "make"})), says("a"), says("b"), says("c")]
        result, _, _ = await asked(folder, *script, options=options)
        assert "Commands" not in result.summary

    async def test_a_changed_command_is_told_as_it_was_run(self, folder):
        script = [says("", ("bash", {"command": "echo asked"})), says("a"), says("b"), says("c")]
        async with Desk(folder, ScriptedModel(script)) as desk:
            started = await desk.ask("run it", RequestOptions())
            run = await desk.engine.get(started.run_id)
            await desk.engine.release(run.id, {"edit": {"command": "echo edited"}}, hold=run.token())
            await desk.engine.finish(run.id)
            result = await desk.result(run.id)
        assert "Commands: echo edited." in result.summary

    async def test_a_reply_that_its_check_refused_begins_the_row_anew(self, folder):
        settings = {"done_when": "echo wrong; exit 3"}
        script = [says("a"), says("b"), DONE, says("c"), says("d"), says("e")]
        result, _, turns = await asked(folder, *script, settings=settings)
        assert (result.reason, result.iterations) == ("unproductive", 6)
        assert nudged(turns) == ["no_marker", "no_marker", "check_failed", "no_marker", "no_marker"]
        assert turns[-2]["content"].startswith(
            "No tool was called and the task is not marked finished (2 of 3)"
        )

    async def test_a_failed_command_is_told_by_its_last_words_and_how_it_ended(self, folder):
        run = ("bash", {"command": "echo begun; echo '1 failed'; exit 3"})
        result, _, _ = await asked(folder, says("", run), says("a"), says("b"), says("c"))
        assert "Last failure: bash: 1 failed [exit code 3]" in result.summary.splitlines()

    async def test_a_failed_check_is_the_last_failure(self, folder):
        settings = {"done_when": "echo first; echo '1 failed'; exit 3"}
        result, _, _ = await asked(folder, DONE, DONE, DONE, settings=settings)
        assert result.reason == "check_failed"
        last = "Last failure: the check echo first; echo '1 failed'; exit 3 ended with 3: 1 failed"
        assert last in result.summary.splitlines()
        assert "Commands" not in result.summary
        result, _, _ = await asked(folder, DONE, says("a"), says("b"), says("c"), settings=settings)
        assert last in result.summary.splitlines()

    async def test_a_call_between_begins_anew(self, folder):
        result, _, _ = await asked(folder, says("a"), says("b"), says("", READ), says("c"), says("d"), DONE)
        assert result.done

    async def test_the_same_call_for_ever_ends_at_the_fifth(self, folder):
        model = ScriptedModel([says("", READ)], repeats=True)
        async with Desk(folder, model) as desk:
            result = await desk.ask("fix it")
        assert (result.reason, result.iterations) == ("unproductive", 5)

    async def test_the_last_turn_may_still_complete(self, folder):
        calls = [says("", ("read_file", {"filepath": "a.py", "max_lines": n})) for n in range(1, 4)]
        result, _, _ = await asked(folder, *calls, DONE, settings={"max_iterations": 4})
        assert result.done
        result, desk, _ = await asked(folder, *calls, DONE, settings={"max_iterations": 3})
        assert (result.reason, result.iterations, len(desk.model.replies)) == ("max_iterations", 3, 1)

    async def test_time_is_limited(self, folder):
        wait = ("bash", {"command": "sleep 0.3"})
        result, _, _ = await asked(folder, says("", wait), DONE, settings={"request_timeout_s": 0.2})
        assert result.reason == "request_timeout"

    async def test_a_command_ends_with_the_time_of_its_request(self, folder):
        endless = ("bash", {"command": "echo begun; sleep 60"})
        result, _, turns = await asked(folder, says("", endless), DONE, settings={"request_timeout_s": 0.3})
        assert (result.outcome, result.reason) == ("incomplete", "request_timeout")
        assert results(turns) == [("bash", False, "timeout")]
        assert "begun" in turns[-1]["content"]

    async def test_a_further_command_is_not_run_once_the_time_is_used_up(self, folder):
        endless, further = ("bash", {"command": "sleep 60"}), ("bash", {"command": "touch further"})
        result, _, turns = await asked(
            folder, says("", endless, further), DONE, settings={"request_timeout_s": 0.3}
        )
        assert result.reason == "request_timeout"
        assert results(turns) == [("bash", False, "timeout")] * 2
        assert not (folder / "further").exists()

    async def test_a_check_ends_with_the_time_of_its_request(self, folder):
        result, _, _ = await asked(folder, DONE, settings={"request_timeout_s": 0.3, "done_when": "sleep 60"})
        assert (result.outcome, result.reason) == ("incomplete", "request_timeout")

    async def test_a_model_that_hangs_ends_with_the_time_of_its_request(self, folder):
        model = HangingModel([])
        async with Desk(folder, model, settings={"request_timeout_s": 0.2}) as desk:
            result = await desk.ask("fix it")
        assert (result.outcome, result.reason) == ("incomplete", "request_timeout")
        assert model.hung == 1

    async def test_a_model_is_not_waited_for_beyond_the_time_of_its_request(self, folder):
        overloaded = ExecutorError("overloaded", transient=True, retry_after=50)
        result, desk, _ = await asked(folder, overloaded, DONE, settings={"request_timeout_s": 30})
        assert (result.outcome, result.reason) == ("incomplete", "model_failed")
        assert len(desk.model.replies) == 1

    async def test_a_task_has_what_is_left_of_the_time_of_its_request(self, folder):
        task = ("task", {"description": "look", "prompt": "look around", "profile": "worker"})
        endless = ("bash", {"command": "sleep 60"})
        result, _, turns = await asked(
            folder, says("", task), says("", endless), DONE, settings={"request_timeout_s": 0.4}
        )
        assert result.reason == "request_timeout"
        assert "the time limit was reached" in turns[-1]["content"]

    async def test_money_ends_it_before_the_next_reply_and_it_can_go_on(self, folder):
        model = ScriptedModel([says("", edit("x = 1", "x = 2")), says("", READ), DONE])
        async with Desk(folder, model) as desk:
            started = await desk.start("fix it", budget=Budget(tokens=12))
            await desk.engine.finish(started.run_id)
            result = await desk.result(started.run_id)
            assert (result.outcome, len(model.replies)) == ("budget_exhausted", 2)
            assert desk.read("a.py") == "x = 2\n"
            await desk.engine.reopen(started.run_id, budget=Budget(tokens=1000))
            await desk.engine.finish(started.run_id)
            result = await desk.result(started.run_id)
        assert (result.outcome, result.iterations) == ("completed", 3)


class TestSuspicions:
    LIES = pytest.mark.parametrize(
        ("script", "why"),
        [
            ([says("TUNACODE DONE: I will fix it")], "announces work"),
            ([says("", ("read_file", {"filepath": "b"})), says("TUNACODE DONE: fixed")], "failed"),
            (
                [says("", ("todo", {"action": "add", "content": "tests"})), says("TUNACODE DONE: fixed")],
                "todo item is open",
            ),
        ],
    )

    @LIES
    async def test_they_are_counted(self, folder, script, why):
        result, desk, _ = await asked(folder, *script)
        assert result.done
        assert desk.counters["suspicious"] == 1

    @LIES
    async def test_strict_completion_refuses_them(self, folder, script, why):
        more = [says("", ("todo", {"action": "complete", "todo_id": "1"}), READ), DONE]
        result, desk, turns = await asked(folder, *script, *more, settings={"strict_completion": True})
        assert nudged(turns) == ["marker_refused"]
        assert why in desk.model.nudges[0]
        assert result.done

    async def test_a_plain_request_is_not_suspected(self, folder):
        """Tests that fail are its result, and code announces nothing."""
        settings = {"strict_completion": True, "test_command": "echo 1 failed, 2 passed; exit 1"}
        async with Desk(folder, None, settings) as desk:
            result = await desk.ask("run the tests")
        assert (result.outcome, result.iterations) == ("completed", 2)

    async def test_a_no_is_no_failure(self, folder):
        options = RequestOptions(on_confirm="deny", strict=True)
        script = [says("", edit("x = 1", "x = 2")), says("TUNACODE DONE: not written: denied")]
        result, _, turns = await asked(folder, *script, options=options)
        assert results(turns) == [("update_file", False, "denied")]
        assert result.done


class TestChecks:
    async def test_a_lie_is_refused(self, folder):
        check = {"done_when": "grep -q 'x = 2' a.py"}
        script = [
            says("TUNACODE DONE: fixed"),
            says("", edit("x = 1", "x = 2")),
            says("TUNACODE DONE: fixed"),
        ]
        result, _, turns = await asked(folder, *script, settings=check)
        assert (result.outcome, result.checked, result.refused_count) == ("completed", "passed", 1)
        assert nudged(turns) == ["check_failed"]

    async def test_three_failures_with_nothing_done_between_end_it(self, folder):
        result, _, _ = await asked(folder, *[DONE] * 4, settings={"done_when": "echo no; exit 3"})
        assert (result.outcome, result.reason, result.refused_count) == ("incomplete", "check_failed", 3)

    async def test_an_effect_between_begins_anew(self, folder):
        touch = ("bash", {"command": "date +%N > log"})
        script = [DONE, DONE, says("", touch), DONE, DONE, says("", ("bash", {"command": "touch ok"})), DONE]
        result, _, _ = await asked(folder, *script, settings={"done_when": "test -f ok"})
        assert (result.done, result.refused_count) == (True, 4)

    async def test_only_if_something_changed(self, folder):
        check = {"done_when": {"command": "false", "when": "changed"}}
        result, _, _ = await asked(folder, says("", READ), DONE, settings=check)
        assert (result.outcome, result.checked) == ("completed", "skipped")

    @pytest.mark.parametrize("finish", ["length", "filter"])
    async def test_a_reply_that_was_cut_off_does_not_complete(self, folder, finish):
        """Nobody knows what would have followed the marker."""
        model = ScriptedModel([says("TUNACODE DONE: I have", finish=finish), DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("go")
        assert (result.done, result.iterations, result.summary) == (True, 2, "done")
        assert model.nudges == [marker_refused("the reply was cut off").content]

    async def test_edited_tests_are_named(self, folder):
        (folder / "test_a.py").write_text("assert False\n")
        change = ("update_file", {"filepath": "test_a.py", "target": "False", "patch": "True"})
        result, _, _ = await asked(
            folder, says("", change), DONE, settings={"done_when": "python3 test_a.py"}
        )
        assert (result.checked, result.tests_edited) == ("passed", ("test_a.py",))

    async def test_protected_paths_are_not_edited(self, folder):
        (folder / "tests").mkdir()
        (folder / "tests" / "test_a.py").write_text("assert False\n")
        change = ("update_file", {"filepath": "tests/test_a.py", "target": "False", "patch": "True"})
        _, desk, turns = await asked(folder, says("", change), DONE, settings={"protect": ["tests/**"]})
        assert results(turns) == [("update_file", False, "protected")]
        (told,) = [turn["content"] for turn in turns if turn["role"] == "tool"]
        assert told == "'tests/**' is protected (coding.protect)"  # and no rule that nobody has written
        assert desk.read("tests/test_a.py") == "assert False\n"


class TestTheStore:
    async def test_no_tool_sees_the_store_of_the_engine(self, folder):
        calls = ("list_dir", {}), ("read_file", {"filepath": "requests.db"}), ("glob", {"pattern": "*"})
        script = [says("", *calls), DONE]
        result, _, turns = await asked(folder, *script, store=SQLiteStore(folder / "requests.db"))
        assert result.done
        assert results(turns)[1] == ("read_file", False, "protected")
        assert not any("requests.db" in str(turn["content"]) for turn in turns if turn.get("ok"))


class TestTheOldView:
    async def test_a_question_of_the_assistant_is_seen_over_its_run(self, folder):
        """C-15: by the names that holds really have."""
        script = [says("", ("ask", {"question": "Which?"}))]
        async with Desk(folder, ScriptedModel(script)) as desk:
            result = await desk.ask("paint it")
            run = await desk.engine.get(result.run_id)
        assert ResponseState.of_run(run.data, state=run.state, holds=run.holds).awaiting_user_guidance


class TestImpossibleEdits:
    async def test_an_edit_that_cannot_be_made_is_a_result_and_no_question(self, folder):
        result, _, turns = await asked(
            folder, says("", edit("y = 1", "y = 2")), DONE, options=RequestOptions()
        )
        assert result.done
        assert results(turns) == [("update_file", False, "not_found")]

    async def test_without_a_model_it_is_an_error_at_once(self, folder):
        async with Desk(folder) as desk:
            result = await desk.ask("replace y with z in a.py", RequestOptions())
        assert (result.outcome, result.reason) == ("incomplete", "needs_person")
        assert "the text does not occur in 'a.py'" in result.text

    async def test_an_edit_that_became_impossible_after_a_yes_is_not_asked_again(self, folder):
        async with Desk(folder, ScriptedModel([says("", edit("x = 1", "x = 2")), DONE])) as desk:
            started = await desk.ask("fix it", RequestOptions())
            run = await desk.engine.get(started.run_id)
            desk.write(a_py="x = 3\n")
            await desk.engine.release(run.id, "yes", hold=run.token())
            await desk.engine.finish(run.id)
            assert results(await desk.turns(run.id)) == [("update_file", False, "not_found")]
            assert (await desk.result(run.id)).done


class TestModels:
    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    async def test_a_plausible_reply_passes_at_every_level(self, folder, level):
        result, desk, _ = await asked(folder, says("", edit("x = 1", "x = 2")), DONE, level=level)
        assert result.done
        assert desk.read("a.py") == "x = 2\n"

    async def test_a_model_that_fails_leaves_no_wrong_excuse(self, folder):
        result, _, _ = await asked(folder, ExecutorError("no"), settings={"max_retries": 0})
        assert (result.outcome, result.reason) == ("incomplete", "model_failed")
        assert "without a model" not in result.text
        assert "Cause: no" in result.text

    async def test_nothing_that_code_said_in_place_of_a_model_is_sent_to_it(self, folder):
        model = ScriptedModel([ExecutorError("no"), DONE])
        async with Desk(folder, model, settings={"max_retries": 0}) as desk:
            first = await desk.ask("fix it")
            turns = await desk.turns(first.run_id)
            assert (await desk.ask("continue", session=first.session_id)).done
        assert [turn["content"] for turn in turns if turn["role"] == "assistant"] == [""]
        sent = model.requests[-1][1:]
        assert [(message.role, message.content) for message in sent] == [
            ("user", "fix it"),
            ("user", "continue"),
        ]

    async def test_what_was_asked_before_a_model_was_set_is_sent_without_the_excuse(self, folder):
        store = MemoryStore()
        async with Desk(folder, store=store) as desk:
            first = await desk.ask("fix it")
            assert first.reason == "needs_model"
        model = ScriptedModel([DONE])
        async with Desk(folder, model, store=store) as desk:
            assert (await desk.ask("fix it now", session=first.session_id)).done
        assert [message.content for message in model.requests[-1][1:]] == ["fix it", "fix it now"]

    @pytest.mark.parametrize(
        ("error", "way_on"),
        [
            (ExecutorError("overloaded"), 'say "continue" once the model answers'),
            (MisconfiguredError("the key was not accepted"), "correct the settings of the model"),
        ],
    )
    async def test_a_failed_models_cause_and_what_helps_are_said(self, folder, error, way_on):
        result, _, _ = await asked(folder, error, settings={"max_retries": 0})
        assert f"Cause: {error}" in result.summary
        assert way_on in result.summary

    async def test_code_stands_in_only_where_nothing_was_done(self, folder):
        result, _, _ = await asked(folder, ExecutorError("no"), prompt="show a.py")
        assert result.done
        script = [says("", edit("x = 1", "x = 2")), ExecutorError("no")]
        result, _, _ = await asked(folder, *script, prompt="show a.py")
        assert result.reason == "model_failed"

    async def test_too_long_for_the_model(self, folder):
        model = ScriptedModel([RequestTooLongError("too long"), RequestTooLongError("too long"), DONE])
        async with Desk(folder, model) as desk:
            first = await desk.ask("fix it")
            assert (first.outcome, first.reason) == ("incomplete", "context_full")
            second = await desk.ask("and now?", session=first.session_id)
            assert second.outcome in ("completed", "incomplete")

    async def test_without_a_model_a_plain_request_is_done(self, folder):
        async with Desk(folder) as desk:
            result = await desk.ask('replace "x = 1" with "x = 2" in a.py')
            assert result.done
            assert desk.read("a.py") == "x = 2\n"
            other = await desk.ask("make it better")
            assert (other.outcome, other.reason) == ("incomplete", "needs_model")
            assert other.text.startswith("I cannot do that without a model.")


class TestQuestions:
    async def test_a_change_waits_for_a_yes(self, folder):
        model = ScriptedModel([says("I change x", edit("x = 1", "x = 2")), DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("fix it", RequestOptions())
            assert (result.outcome, result.reason) == ("waiting", "confirm")
            run = await desk.engine.get(result.run_id)
            (hold,) = run.holds.values()
            assert "-x = 1" in hold.about["shown"]
            assert desk.read("a.py") == "x = 1\n"
            with pytest.raises(SessionBusy):
                await desk.start("something else", session=result.session_id)
            await desk.engine.release(result.run_id, "yes", hold=run.token(hold.name))
            run = await desk.engine.finish(result.run_id)
            assert run.status is Status.SUCCEEDED
            assert desk.read("a.py") == "x = 2\n"

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            ({"no": "keep it"}, "A person said no: keep it."),
            ({"no": "why not y?"}, "A person said no: why not y?"),
            ("no", "A person said no."),
            ({"no": " "}, "A person said no."),
        ],
    )
    @pytest.mark.parametrize("call", [edit("x = 1", "x = 2"), ("read_file", {"filepath": ".env"})])
    async def test_a_no_and_its_reason_reach_the_model(self, folder, call, answer, told):
        (folder / ".env").write_text("A=1\n")
        model = ScriptedModel([says("", call), DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("fix it", RequestOptions())
            run = await desk.engine.get(result.run_id)
            (hold,) = run.holds.values()
            await desk.engine.release(result.run_id, answer, hold=run.token(hold.name))
            await desk.engine.finish(result.run_id)
            turns = await desk.turns(result.run_id)
        assert results(turns) == [(call[0], False, "denied")]
        assert [turn["content"] for turn in turns if turn["role"] == "tool"] == [told]
        assert desk.read("a.py") == "x = 1\n"

    async def test_what_changed_since_it_was_shown_is_asked_again(self, folder):
        model = ScriptedModel([says("", edit("x = 1", "x = 2")), DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("fix it", RequestOptions())
            run = await desk.engine.get(result.run_id)
            (hold,) = run.holds.values()
            (folder / "a.py").write_text("y = 0\nx = 1\n")
            await desk.engine.release(result.run_id, "yes", hold=run.token(hold.name))
            run = await desk.engine.finish(result.run_id)
            assert run.status is Status.WAITING
            assert desk.read("a.py") == "y = 0\nx = 1\n"

    async def test_an_answer_in_the_persons_words(self, folder):
        model = ScriptedModel([says("", READ, ("ask", {"question": "Which?", "choices": ["a", "b"]})), DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("fix it")
            run = await desk.engine.get(result.run_id)
            (hold,) = run.holds.values()
            assert (hold.question, hold.about) == ("Which?", {"choices": ["a", "b"]})
            await desk.engine.release(result.run_id, "Neither, take c.", hold=run.token(hold.name))
            await desk.engine.finish(result.run_id)
        assert model.requests[1][-1].content == "Neither, take c."


class TestTasks:
    async def test_a_task_reads_and_reports(self, folder):
        task = ("task", {"description": "look", "prompt": "What is x?"})
        model = ScriptedModel([
            says("", task), says("", READ), says("x is 1\nTUNACODE DONE: x is 1"), DONE,
        ])  # fmt: skip
        async with Desk(folder, model) as desk:
            result = await desk.ask("ask somebody")
            turns = await desk.turns(result.run_id)
        assert result.done
        (told,) = [turn for turn in turns if turn["role"] == "tool"]
        assert (told["ok"], "TUNACODE" in told["content"]) == (True, False)
        assert "x is 1" in told["content"]
        assert "write_file" not in model.tools[1]
        assert "fix" not in str(model.requests[1])

    async def test_a_task_that_ends_too_early_says_so(self, folder):
        task = ("task", {"description": "look", "prompt": "What is x?"})
        model = ScriptedModel([says("", task), says("a"), says("b"), says("c"), DONE])
        async with Desk(folder, model) as desk:
            result = await desk.ask("ask somebody")
            turns = await desk.turns(result.run_id)
        assert results(turns) == [("task", False, "failed")]
        assert result.iterations == 2

    async def test_what_the_command_of_a_task_may_have_changed_is_not_called_nothing(self, folder):
        task = ("task", {"description": "tidy", "prompt": "tidy up", "profile": "worker"})
        model = ScriptedModel([
            says("", task), says("", ("bash", {"command": "touch b.py"})), DONE, *[says("Well.")] * 3,
        ])  # fmt: skip
        async with Desk(folder, model) as desk:
            result = await desk.ask("have it tidied")
        assert (result.outcome, (folder / "b.py").exists()) == ("incomplete", True)
        assert "Tasks have run 1 command" in result.summary
        assert "Nothing was changed" not in result.summary

    @pytest.mark.parametrize(
        ("settings", "args", "replies"),
        [
            ({}, {}, 10), ({"task_max_iterations": 2}, {}, 2),
            ({"task_max_iterations": 2}, {"max_iterations": 3}, 3),
            ({"max_iterations": 4}, {"max_iterations": 50}, 4),
        ],
    )  # fmt: skip
    async def test_a_task_has_turns_of_its_own(self, folder, settings, args, replies):
        task = ("task", {"description": "look", "prompt": "look around", **args})
        looks = [says("", ("list_dir", {"max_entries": number})) for number in range(1, replies + 1)]
        async with Desk(folder, ScriptedModel([says("", task), *looks, DONE]), settings) as desk:
            result = await desk.ask("have it looked at")
            turns = await desk.turns(result.run_id)
        assert result.done
        (told,) = [turn for turn in turns if turn["role"] == "tool"]
        assert told["content"].startswith("Not finished (max_iterations)")

    async def test_tasks_that_only_read_run_side_by_side_and_no_others(self, folder):
        for profile, most in (("analyzer", 3), ("worker", 1)):
            model = Crowd(3 if profile == "analyzer" else 1)
            args = {"description": "look", "prompt": "look around", "profile": profile}
            model.replies = [says("", *[("task", {**args, "description": f"{n}"}) for n in range(5)]), DONE]
            async with Desk(folder, model, {"max_parallel": 3}) as desk:
                result = await desk.ask("have it looked at")
                turns = await desk.turns(result.run_id)
            assert results(turns) == [("task", True, None)] * 5
            assert model.most == most

    async def test_tasks_are_not_nested_for_ever(self, folder):
        task = ("task", {"description": "look", "prompt": "go on", "profile": "worker"})
        model = ScriptedModel([*[says("", task)] * 4, *[DONE] * 4])
        async with Desk(folder, model) as desk:
            result = await desk.ask("nest")
        assert result.done
        assert "depth_limit" in model.requests[4][-1].content


class TestSessions:
    async def test_a_second_request_goes_on(self, folder):
        model = ScriptedModel([says("", READ), DONE, says("TUNACODE DONE: as before")])
        async with Desk(folder, model) as desk:
            first = await desk.ask("read it")
            second = await desk.ask("what was it?", session=first.session_id)
            assert second.done
            states = await desk.states(second.run_id)
        last = model.requests[2]
        assert [message.role for message in last] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]
        assert states[0] == "user_input"
        assert last[:5] == [*model.requests[1], last[4]]

    async def test_the_last_session_of_the_workspace(self, folder):
        model = ScriptedModel([DONE, DONE])
        async with Desk(folder, model) as desk:
            first = await desk.ask("one")
            second = await desk.ask("two", session="last")
        assert second.session_id == first.session_id

    async def test_a_session_of_another_workspace_is_refused(self, folder, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        async with Desk(folder, ScriptedModel([DONE])) as desk:
            first = await desk.ask("one")
            desk.workspace = other
            with pytest.raises(Exception, match="belongs to the workspace"):
                await desk.start("two", session=first.session_id)
