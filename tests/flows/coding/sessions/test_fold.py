"""A session's file is what the journals of its runs add up to."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.sessions.file_schema import schema
from detent.flows.coding.sessions.fold import LONGEST_RESULT, PURGED, difference, fold_session
from detent.flows.coding.sessions.folder import SessionFolder
from detent.flows.coding.sessions.record import SessionRecord
from detent.flows.coding.sessions.redaction import Redaction
from detent.kernel.budget import Budget
from detent.kernel.errors import RunNotFound
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, says

ID = "2025-01-02_03-04-05_fix-it_abcdef"
VALIDATOR = jsonschema.Draft202012Validator(schema())
READ = ("read_file", {"filepath": "a.py"})
WRITE = ("write_file", {"filepath": "new.py", "content": "y = 1\n"})
LEGACY = {
    "session_id": "abcdef01", "has_user_response": True, "color": "red",
    "messages": [
        {"role": "user", "content": "earlier", "note": [1]}, {"role": "oracle", "content": "?"},
        {"role": "assistant", "content": "yes"},
    ],
}  # fmt: skip


def desk_of(tmp_path: Path, *replies, **more) -> Desk:
    (tmp_path / "a.py").write_text("x = 1\n")
    return Desk(tmp_path, ScriptedModel(list(replies)), **more)


def checked(record: SessionRecord) -> SessionRecord:
    """A record whose file would be one by the shipped schema, and nothing else."""
    VALIDATOR.validate(record.to_plain())
    return record


class TestOutcomes:
    async def test_a_completed_request(self, tmp_path):
        replies = says("I look.", READ), says("", WRITE), says("TUNACODE DONE: made")
        async with desk_of(tmp_path, *replies) as desk:
            result = await desk.ask("make new.py")
            record = checked(await fold_session(desk.store, [result.run_id]))
        assert (record.state_value, record.is_complete, record.outcome) == ("response", True, "completed")
        assert record.completion._asdict() == {
            "line_no": 1, "marker_line": "TUNACODE DONE: made", "summary": "made", "source": "reply",
        }  # fmt: skip
        assert record.session_id == result.session_id
        assert record.run_ids == [result.run_id]
        assert record.files_changed == ["new.py"]
        assert record.workspace == str(tmp_path)
        assert record.usage == dict(result.usage)
        assert record.counters["iterations"] == 3
        roles = [message["role"] for message in record.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
        user, asked, read = record.messages[:3]
        assert (user["content"], user["run_id"]) == ("make new.py", result.run_id)
        assert user["at"].endswith("Z")
        assert asked["tool_calls"] == [{"id": "t1c1", "tool": "read_file", "args": {"filepath": "a.py"}}]
        assert (read["tool_call_id"], read["ok"], read["content"]) == ("t1c1", True, "x = 1\n")
        assert record.turns == record.messages
        assert record.to_plain()["legacy"]["task_completed"] is True

    async def test_the_model_that_gave_the_last_reply_is_named(self, tmp_path):
        replies = says("", READ, model_id="small-1"), says("TUNACODE DONE: read", model_id="large-2")
        async with desk_of(tmp_path, *replies) as desk:
            first = await desk.ask("read it")
            record = checked(await fold_session(desk.store, [first.run_id]))
            assert record.model == "large-2"
            plain = await desk.ask("list", session=first.session_id)
            later = checked(await fold_session(desk.store, [plain.run_id], earlier=record))
        assert later.model == "large-2"  # the model was not reached, and code stood in for it

    async def test_an_incomplete_request_keeps_its_summary(self, tmp_path):
        async with desk_of(tmp_path, says("Well."), says("Hm."), says("So.")) as desk:
            result = await desk.ask("fix it")
            record = checked(await fold_session(desk.store, [result.run_id]))
        assert (record.outcome, record.outcome_reason) == ("incomplete", "unproductive")
        assert (record.state_value, record.is_complete, record.completion) == ("response", False, None)
        assert record.summary == result.summary != ""
        flags = record.to_plain()["legacy"]
        assert (flags["completed"], flags["awaiting_user_guidance"], flags["has_final_synthesis"]) == (
            False, True, True,
        )  # fmt: skip
        assert [message["kind"] for message in record.messages if message["role"] == "nudge"]

    async def test_a_request_without_budget(self, tmp_path):
        async with desk_of(tmp_path, says("", READ), DONE) as desk:
            result = await desk.ask("fix it", budget=Budget(tokens=5))
            record = checked(await fold_session(desk.store, [result.run_id]))
        assert (record.outcome, record.is_complete) == ("budget_exhausted", False)

    async def test_a_question_that_is_open(self, tmp_path):
        async with desk_of(tmp_path, says("", ("ask", {"question": "Which one?"})), DONE) as desk:
            result = await desk.ask("fix it")
            record = checked(await fold_session(desk.store, [result.run_id]))
            assert (record.outcome, record.state_value) == ("waiting", "tool_execution")
            assert (record.hold["question"], record.hold["run_id"]) == ("Which one?", result.run_id)
            assert record.to_plain()["legacy"]["awaiting_user_guidance"] is True
            token = f"{record.hold['name']}@{record.hold['entry']}"
            await desk.engine.release(result.run_id, "the first", hold=token)
            await desk.engine.finish(result.run_id)
            done = checked(await fold_session(desk.store, [result.run_id], earlier=record))
        assert (done.outcome, done.hold) == ("completed", None)
        assert done.usage["input_tokens"] == 20  # the same run is not counted twice

    async def test_a_confirmation_that_is_open_is_no_question_of_the_assistant(self, tmp_path):
        async with desk_of(tmp_path, says("", WRITE), DONE) as desk:
            result = await desk.ask("fix it", RequestOptions())
            record = checked(await fold_session(desk.store, [result.run_id]))
        assert record.outcome == "waiting"
        assert record.to_plain()["legacy"]["awaiting_user_guidance"] is False

    async def test_a_request_that_was_cancelled_or_has_not_begun(self, tmp_path):
        async with desk_of(tmp_path, says("", WRITE), DONE) as desk:
            result = await desk.ask("fix it", RequestOptions())
            await desk.engine.cancel(result.run_id)
            record = checked(await fold_session(desk.store, [result.run_id]))
            assert (record.outcome, record.state_value) == ("cancelled", "tool_execution")
            started = await desk.start("again", session=record.session_id, drive=False)
            begun = checked(await fold_session(desk.store, [started.run_id], earlier=record))
        # C-52: a new prompt starts at USER_INPUT, and the history is kept.
        assert (begun.state_value, begun.outcome, begun.hold) == ("user_input", None, None)
        assert begun.messages == record.messages
        assert begun.run_ids == [result.run_id, started.run_id]
        assert begun.counters["iterations"] == 0

    async def test_a_request_that_failed_or_was_put_down(self, tmp_path):
        async with desk_of(tmp_path, says("", READ), DONE) as desk:
            started = await desk.start("fix it", drive=False)
            record = checked(await fold_session(desk.store, [started.run_id]))
            assert (record.outcome, record.outcome_reason, record.model) == (None, None, None)
        failing = Flow(Machine("coding", start="assistant", moves={"assistant": ["response"]},
                               ends={"response": Status.SUCCEEDED}))  # fmt: skip

        @failing.step("assistant")
        async def broken(ctx):
            """Break."""
            raise ValueError("broken in the middle")

        store = MemoryStore()
        async with Engine(store, [failing]) as engine:
            run_id = await engine.start("coding", {"session": ID, "workspace": "/w"})
            await engine.finish(run_id)
            record = checked(await fold_session(store, [run_id]))
        assert (record.state_value, record.outcome) == ("assistant", "failed")
        assert "broken in the middle" in record.outcome_reason


class TestMessages:
    async def test_long_texts_are_looked_up_and_long_results_cut(self, tmp_path):
        prompt = "é long prompt " * 1000
        async with desk_of(tmp_path, says("w" * 5000, ("read_file", {"filepath": "b.txt"})), DONE) as desk:
            (tmp_path / "b.txt").write_text("é" * 45 + "\n" + ("z" * 99 + "\n") * 500)
            result = await desk.ask(prompt)
            record = checked(await fold_session(desk.store, [result.run_id]))
        user, reply, read, _ = record.messages
        assert (user["content"], reply["content"]) == (prompt, "w" * 5000)
        assert len(read["content"].encode()) <= LONGEST_RESULT
        assert read["content"].startswith("é" * 45)
        assert "[cut: " in read["content"][-40:]
        assert read["truncated"] is True
        assert "$blob" not in json.dumps(record.to_plain())

    @pytest.mark.parametrize("size", [LONGEST_RESULT - 1, LONGEST_RESULT, LONGEST_RESULT + 1])
    async def test_a_result_is_cut_just_above_the_limit(self, tmp_path, size):
        async with desk_of(tmp_path, says("", ("read_file", {"filepath": "b.txt"})), DONE) as desk:
            line = "z" * 99 + "\n"
            (tmp_path / "b.txt").write_text(line * (size // 100) + "x" * (size % 100))
            result = await desk.ask("read")
            record = await fold_session(desk.store, [result.run_id])
        read = record.messages[2]
        assert read["truncated"] is (size > LONGEST_RESULT)
        assert len(read["content"]) <= LONGEST_RESULT
        assert (len(read["content"]) == size) is (size <= LONGEST_RESULT)

    async def test_purged_texts_are_those_of_the_file(self, tmp_path):
        async with desk_of(tmp_path, says("", ("read_file", {"filepath": "b.txt"})), DONE) as desk:
            (tmp_path / "b.txt").write_text("zeile\n" * 1000)
            result = await desk.ask("read")
            before = await fold_session(desk.store, [result.run_id])
            await desk.store.purge(result.run_id)
            after = checked(await fold_session(desk.store, [result.run_id], earlier=before))
            alone = checked(await fold_session(desk.store, [result.run_id]))
        assert after.messages[2]["content"] == "zeile\n" * 1000
        assert (alone.messages[2]["content"], alone.messages[2]["truncated"]) == (PURGED, True)


class TestSeveralRuns:
    async def test_runs_folded_one_by_one_are_what_all_of_them_are(self, tmp_path):
        replies = [says("", READ), DONE, says("", WRITE), DONE, says("TUNACODE DONE: 3")]
        async with desk_of(tmp_path, *replies) as desk:
            runs, record = [], None
            for prompt in ("one", "two", "three"):
                session = None if record is None else record.session_id
                result = await desk.ask(prompt, session=session)
                runs.append(result.run_id)
                record = await fold_session(desk.store, [result.run_id], earlier=record)
                again = await fold_session(desk.store, [result.run_id], earlier=record)
                assert again == record
                overlapping = await fold_session(desk.store, runs[-2:], earlier=record)
                assert overlapping == record
            whole = checked(await fold_session(desk.store, runs))
        assert whole == record
        assert whole.run_ids == runs
        assert [turn["content"] for turn in whole.turns if turn["role"] == "user"] == ["one", "two", "three"]
        assert whole.usage["input_tokens"] == 50
        assert whole.files_changed == ["new.py"]
        assert whole.counters["iterations"] == 1  # of the last request

    async def test_calls_closed_by_the_next_request_belong_to_it(self, tmp_path):
        async with desk_of(tmp_path, says("", WRITE), says("TUNACODE DONE: no")) as desk:
            first = await desk.ask("one", RequestOptions())
            await desk.engine.cancel(first.run_id)
            record = await fold_session(desk.store, [first.run_id])
            second = await desk.ask("two", session=first.session_id)
            both = checked(await fold_session(desk.store, [second.run_id], earlier=record))
            again = await fold_session(desk.store, [first.run_id, second.run_id], earlier=both)
        assert [turn["role"] for turn in both.turns] == ["user", "assistant", "tool", "user", "assistant"]
        assert both.messages[2]["run_id"] == second.run_id
        assert again == both

    async def test_what_else_stands_in_the_file_stays(self, tmp_path):
        file = tmp_path / "sessions" / "abcdef01.json"
        file.parent.mkdir()
        file.write_text(json.dumps(LEGACY))
        folder = SessionFolder(file.parent)
        todo = says("", ("todo", {"action": "add", "content": "x"}))
        async with desk_of(tmp_path, todo, DONE, DONE) as desk:
            first = await desk.ask("one", session="abcdef01", folder=folder)
            record = await fold_session(desk.store, [first.run_id], earlier=folder.load("abcdef01"))
            folder.save(record)
            plain = json.loads(file.read_text())
            assert plain["migration"]["original"] == {"has_user_response": True}
            plain["messages"][4]["stars"] = 5
            plain["todos"][0]["due"] = "soon"
            plain["counters"]["mine"] = 1
            plain["weather"] = "fine"
            file.write_text(json.dumps(plain))
            second = await desk.ask("two", session="abcdef01", folder=folder)
            runs = [first.run_id, second.run_id]
            whole = checked(await fold_session(desk.store, runs, earlier=folder.load("abcdef01")))
        now = whole.to_plain()
        assert now["messages"][:3] == LEGACY["messages"]
        assert now["messages"][4]["stars"] == 5
        assert now["todos"][0]["due"] == "soon"
        assert (now["counters"]["mine"], now["weather"], now["color"]) == (1, "fine", "red")
        prompts = [turn["content"] for turn in whole.turns if turn["role"] == "user"]
        assert prompts == ["earlier", "one", "two"]
        assert [name for name in now if name in plain] == list(plain)

    async def test_runs_that_are_in_another_store_stay_as_the_file_has_them(self, tmp_path):
        async with desk_of(tmp_path, DONE, DONE) as desk:
            first = await desk.ask("one")
            record = await fold_session(desk.store, [first.run_id])
        async with desk_of(tmp_path, DONE) as elsewhere:
            kept = await fold_session(elsewhere.store, [first.run_id], earlier=record)
            assert kept == record
            with pytest.raises(RunNotFound):
                await fold_session(elsewhere.store, [first.run_id])
            with pytest.raises(RunNotFound):
                await fold_session(elsewhere.store, ["other"], earlier=record)
        with pytest.raises(ValueError, match="at least one run"):
            await fold_session(elsewhere.store, [])


class TestDifference:
    async def test_a_file_that_says_something_else_is_reported_field_by_field(self, tmp_path):
        async with desk_of(tmp_path, says("", READ), DONE) as desk:
            result = await desk.ask("one")
            journal = await fold_session(desk.store, [result.run_id])
        assert difference(journal, journal) == []
        plain = journal.to_plain()
        plain["messages"][2]["content"] = "y = 2\n"
        plain["messages"].append({"role": "nudge", "kind": "empty", "content": "x"})
        plain |= {"state": "assistant", "is_complete": False, "completion": None, "outcome": None}
        plain |= {"updated_at": "later", "legacy": {}, "custom": 1, "model": "m"}
        told = difference(SessionRecord.from_plain(plain), journal)
        assert [line.split(":")[0] for line in told] == [
            "state", "is_complete", "completion", "outcome", "messages", "messages",
        ]  # fmt: skip
        assert told[0] == "state: the file has 'assistant', the journal 'response'."
        assert "number 3" in told[4]

    async def test_messages_that_are_none_and_missing_ones_are_told_too(self, tmp_path):
        record = SessionRecord.new(ID, 0.0, workspace=None).changed(messages=[None, 5, "x"])
        other = record.changed(messages=[None, 6], usage={"input_tokens": 3})
        assert difference(record, record.changed(usage={"mine": 1}, counters={"mine": 1})) == []
        told = difference(record, other)
        assert [line.split(":")[0] for line in told] == ["usage", "messages", "messages"]
        assert "number 2" in told[1]
        assert "the file has 3, the journal 2" in told[2]

    async def test_a_saved_file_is_no_different_even_without_its_secrets(self, tmp_path):
        secret = "hunter2-hunter2"
        call = ("write_file", {"filepath": "b.py", "content": secret, "api_key": "x"})
        async with desk_of(tmp_path, says(f"I write {secret}", call), DONE) as desk:
            result = await desk.ask("one")
            journal = await fold_session(desk.store, [result.run_id])
        folder = SessionFolder(tmp_path / "sessions", secrets=[secret])
        file = folder.save(journal)
        assert secret not in file.read_text()
        record = folder.load(journal.session_id)
        assert difference(record, journal, Redaction([secret])) == []
        assert difference(record, journal) != []
