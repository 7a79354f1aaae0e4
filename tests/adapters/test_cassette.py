"""What was recorded is played back as it was; what is asked otherwise is named with its first difference."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent import __version__
from detent.adapters.cassette import (
    LONGEST_SHOWN,
    CassetteMismatch,
    Player,
    RecordedError,
    Recorder,
    first_difference,
    read_cassette,
)
from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Outcome
from detent.engine.ports import Tape, TapeCall, TapeError
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.errors import ConfigurationError, DetentError
from detent.kernel.machine import Machine
from detent.kernel.plain import canonical
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.kernel.status import Status


def query(args: Any, *, step: str = "check", tool: str = "crm.find", where: str = "") -> TapeCall:
    return TapeCall("query", where, step, tool, args)


def agent(prompt: str, *, step: str = "judge") -> TapeCall:
    request: dict[str, Any] = {
        "instructions": "Judge.",
        "prompt": prompt,
        "schema": None,
        "tools": [],
        "config": {},
    }
    return TapeCall("agent", "", step, "claude/small", request)


def giving(value: Any) -> Any:
    async def work() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return work


async def never() -> Any:
    raise AssertionError("somebody was asked while a cassette was played")


async def record(path: Path, *pairs: tuple[TapeCall, Any]) -> Path:
    recorder = Recorder(path)
    for call, value in pairs:
        with suppress(type(value)) if isinstance(value, Exception) else nullcontext():
            await recorder.through(call, giving(value))
    recorder.close()
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.cassette"


async def mismatch(player: Player, call: TapeCall) -> CassetteMismatch:
    with pytest.raises(CassetteMismatch) as caught:
        await player.through(call, never)
    return caught.value


# -- there and back -----------------------------------------------------------------------------------------


async def test_what_was_recorded_is_played_without_asking_anybody(path):
    pairs: list[tuple[TapeCall, Any]] = [
        (query({"serial": "Ü-1"}), {"name": "Gerät 😀", "half": "\ud83d", "line\u2028end": "\r\n"}),
        (agent("Is it?"), {"output": "yes", "usage": {"input_tokens": 3}}),
        (TapeCall("effect", ".child-1", "send", "mail.send", {"to": "a"}), None),
        (query([1, 1.0, True, None]), [0.1, -0.0, 12345678901234567890]),
    ]
    await record(path, *pairs)
    player = Player(path)
    for call, value in pairs:
        answer = await player.through(call, never)
        assert json.dumps(answer) == json.dumps(value)
    assert player.unplayed() == []
    assert player.mismatches == []
    player.close()


async def test_a_recorder_gives_what_the_work_gave(path):
    recorder: Tape = Recorder(path)
    assert await recorder.through(query({}), giving({"a": (1, 2)})) == {"a": [1, 2]}
    assert (await Player(path).through(query({}), never)) == {"a": [1, 2]}


async def test_the_header_says_which_version_wrote_it(path):
    with Recorder(path):
        pass
    assert path.read_text() == f'{{"cassette":1,"detent":"{__version__}"}}\n'
    assert read_cassette(path).detent == __version__


async def test_every_interaction_is_in_the_file_as_soon_as_it_is_over(path):
    recorder = Recorder(path)
    for number in range(3):
        await recorder.through(query(number), giving(number))
        assert len(path.read_bytes().splitlines()) == number + 2
        assert recorder.recorded == number + 1
    recorder.close()


async def test_big_answers_come_back_whole(path):
    big = {"text": "äöü\n" * 1_000_000, "list": list(range(100_000))}
    await record(path, (query(1), big), (query(2), "small"))
    player = Player(path)
    assert await player.through(query(2), never) == "small"
    assert await player.through(query(1), never) == big


async def test_an_answer_changed_by_whoever_asked_is_not_changed_on_the_tape(path):
    await record(path, (query(1), {"list": [1]}))
    player = Player(path)
    (await player.through(query(1), never))["list"].append(2)
    assert read_cassette(path).interactions[0].answer == {"list": [1]}


# -- order --------------------------------------------------------------------------------------------------


async def test_concurrent_queries_play_in_whatever_order_they_come(path):
    recorder = Recorder(path)
    gates = {name: asyncio.Event() for name in "abc"}

    async def asked(name: str) -> str:
        async def work() -> str:
            await gates[name].wait()
            return name.upper()

        return str(await recorder.through(query(name), work))

    asking = [asyncio.ensure_future(asked(name)) for name in "abc"]
    for name in "cab":
        await asyncio.sleep(0)
        gates[name].set()
        await asking["abc".index(name)]
    recorder.close()
    assert [one.request for one in read_cassette(path).interactions] == ["c", "a", "b"]
    player = Player(path)
    answers = await asyncio.gather(*(player.through(query(name), never) for name in "bca"))
    assert answers == ["B", "C", "A"]


async def test_the_same_question_asked_again_gets_the_answers_in_their_order(path):
    await record(path, (query(1), "first"), (query(2), "other"), (query(1), "second"))
    player = Player(path)
    assert [await player.through(query(n), never) for n in (1, 1, 2)] == ["first", "second", "other"]


async def test_steps_tools_and_children_do_not_answer_for_each_other(path):
    calls = [query(1), query(1, step="b"), query(1, tool="t"), query(1, where=".k")]
    await record(path, *((call, number) for number, call in enumerate(calls)))
    player = Player(path)
    assert [await player.through(call, never) for call in reversed(calls)] == [3, 2, 1, 0]


async def test_keys_in_another_order_are_the_same_request(path):
    await record(path, (query({"a": 1, "b": 2}), "ok"))
    assert await Player(path).through(query({"b": 2, "a": 1}), never) == "ok"


# -- failures -----------------------------------------------------------------------------------------------


class Refused(ToolError):
    """A tool's own way to say no."""


class Reset(ConnectionResetError):
    """A library's own name for a lost connection."""


class Odd(Exception):
    """Somebody else's exception."""


@pytest.mark.parametrize(
    "error", [ToolError("gone", "no such device"), ToolError("busy", transient=True), Refused("no", "closed")]
)
async def test_a_tools_refusal_is_raised_again_with_code_message_and_hope(path, error):
    await record(path, (query(1), error))
    with pytest.raises(ToolError) as caught:
        await Player(path).through(query(1), never)
    played = caught.value
    assert (played.code, played.message, played.transient) == (error.code, error.message, error.transient)
    assert str(played) == str(error)


async def test_a_transient_failure_says_again_when_to_come_back(path):
    await record(path, (query(1), Transient("later", retry_after=2.5)))
    with pytest.raises(Transient, match="later") as caught:
        await Player(path).through(query(1), never)
    assert caught.value.retry_after == 2.5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("slow"), TimeoutError),
        (ConnectionError("lost"), ConnectionError),
        (Reset("lost"), ConnectionError),
    ],
)
async def test_what_the_engine_would_retry_it_retries_again(path, error, kind):
    await record(path, (query(1), error))
    with pytest.raises(kind) as caught:
        await Player(path).through(query(1), never)
    assert type(caught.value).__name__ == type(error).__name__
    assert str(caught.value) == str(error)


async def test_any_other_exception_goes_by_its_recorded_name_and_leaves_an_effect_in_doubt(path):
    call = TapeCall("effect", "", "send", "mail.send", {})
    await record(path, (call, Odd("line broke")))
    with pytest.raises(RecordedError) as caught:
        await Player(path).through(call, never)
    assert not isinstance(caught.value, ToolError | TapeError)
    assert (type(caught.value).__name__, str(caught.value)) == ("Odd", "line broke")


async def test_a_cancelled_attempt_leaves_nothing(path):
    recorder = Recorder(path)
    asking = asyncio.ensure_future(recorder.through(query(1), asyncio.Event().wait))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    recorder.close()
    assert read_cassette(path).interactions == ()


# -- mismatches ---------------------------------------------------------------------------------------------


async def test_a_changed_prompt_is_told_with_the_line_that_changed(path):
    await record(path, (query(1), 1), (agent("INPUTS\nserial: 7\nANSWER"), {"output": 1}))
    player = Player(path)
    error = await mismatch(player, agent("INPUTS\nserial: 8\nANSWER"))
    assert (error.kind, error.step, error.subject, error.line) == ("agent", "judge", "claude/small", 3)
    difference = error.difference
    assert difference is not None
    assert (difference.pointer, difference.line) == ("/prompt", 2)
    assert str(error) == (
        f"{path}, line 3: agent 'claude/small' of step 'judge': "
        f"asked for something other than what was recorded.\n"
        f"First difference at /prompt, line 2:\n"
        f"  recorded: |serial: 7|\n"
        f"  asked:    |serial: 8|"
    )
    assert isinstance(error, TapeError)
    assert isinstance(error, DetentError)
    assert player.mismatches == [error]
    assert [one.line for one in player.unplayed()] == [2, 3]


async def test_it_is_compared_with_the_next_one_not_yet_played(path):
    await record(path, (query({"n": 1}), 1), (query({"n": 2}), 2))
    player = Player(path)
    await player.through(query({"n": 1}), never)
    error = await mismatch(player, query({"n": 3}))
    assert (error.line, error.difference) == (3, ("/n", "2", "3", None))
    assert await player.through(query({"n": 2}), never) == 2


async def test_being_asked_more_often_than_recorded_is_told(path):
    await record(path, (query(1), 1))
    player = Player(path)
    await player.through(query(1), never)
    error = await mismatch(player, query(1))
    assert "query 'crm.find' of step 'check': asked more often than recorded (once)" in str(error)
    assert (error.line, error.difference) == (None, None)


async def test_what_was_never_recorded_is_told_with_what_was(path):
    await record(path, (query(1), 1))
    player = Player(path)
    assert "not recorded. For this step the cassette has: crm.find." in str(
        await mismatch(player, query(1, tool="crm.fetch"))
    )
    assert "Did you mean 'check'? It is recorded for: check." in str(
        await mismatch(player, query(1, step="chek"))
    )
    error = await mismatch(player, query(1, where=".c"))
    assert "in child '.c': not recorded, nor anything like it." in str(error)
    assert len(player.mismatches) == 3


async def test_what_was_recorded_and_never_asked_is_listed(path):
    await record(path, (query(1), 1), (agent("a"), {"output": 1}), (query(2), 2))
    player = Player(path)
    await player.through(query(1), never)
    assert [str(one) for one in player.unplayed()] == [
        "agent 'claude/small' of step 'judge' (line 3)",
        "query 'crm.find' of step 'check' (line 4)",
    ]


async def test_what_an_agent_asked_on_its_way_need_not_be_asked_again_but_can_be(path):
    recorder = Recorder(path)

    async def answering() -> Any:
        # In a task of its own, as executors may do.
        return {"output": await asyncio.ensure_future(recorder.through(query(1), giving("seen")))}

    await recorder.through(agent("a"), answering)
    await recorder.through(query(2), giving("later"))
    recorder.close()
    assert [(one.kind, one.inside) for one in read_cassette(path).interactions] == [
        ("query", True),
        ("agent", False),
        ("query", False),
    ]
    player = Player(path)
    assert await player.through(agent("a"), never) == {"output": "seen"}
    assert [one.request for one in player.unplayed()] == [2]
    assert await player.through(query(1), never) == "seen"


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 2}, ("/a", "1", "2", None)),
        ({"a": 1, "b": 1}, {"b": 2, "a": 1}, ("/b", "1", "2", None)),
        ({"a": 1}, {}, ("/a", "1", "(nothing)", None)),
        ({}, {"a": None}, ("/a", "(nothing)", "null", None)),
        ({"x/y~z": [1, 2]}, {"x/y~z": [1, 3]}, ("/x~1y~0z/1", "2", "3", None)),
        ([1], [1, {"b": 1}], ("/1", "(nothing)", '{"b":1}', None)),
        ([1, 2], [1], ("/1", "2", "(nothing)", None)),
        (1, 1.0, ("", "1", "1.0", None)),
        (True, 1, ("", "true", "1", None)),
        (0.0, -0.0, ("", "0.0", "-0.0", None)),
        ("a", ["a"], ("", '"a"', '["a"]', None)),
        ("one", "two", ("", '"one"', '"two"', None)),
        ("a\nb", "a\nb ", ("", "|b|", "|b |", 2)),
        ("a\nb", "a", ("", "|b|", "(nothing)", 2)),
        ("a", "a\n", ("", "(nothing)", "||", 2)),
        ("a\nb", "a\r\nb", ("", "|a|", "|a\\r|", 1)),
        ('x\n"\x1b[2J\x9b"', 'x\n""', ("", '|"\\x1b[2J\\x9b"|', '|""|', 2)),
        ("ä\ud83d", "ä", ("", '"ä\\ud83d"', '"ä"', None)),
    ],
)
def test_the_first_difference_is_found(recorded, asked, expected):
    assert first_difference(recorded, asked) == expected


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(PLAIN, PLAIN)
def test_a_difference_is_found_exactly_when_there_is_one(one, other):
    assert first_difference(one, one) is None
    assert (first_difference(one, other) is None) == (canonical(one) == canonical(other))


def test_long_values_are_cut_and_long_lines_shown_where_they_part():
    same = "x" * 1000
    found = first_difference({"a": same + "1" + same}, {"a": same + "2" + same})
    assert found is not None
    assert found.recorded.startswith('"…x')
    assert "x1x" in found.recorded
    assert "x2x" in found.asked
    assert len(found.recorded) == len(found.asked) == LONGEST_SHOWN
    found = first_difference("a\n" + same + "1" + same, "a\n" + same)
    assert found is not None
    assert found.recorded.startswith("|…x")
    assert "x1x" in found.recorded
    assert (len(found.recorded), found.asked.endswith("xx|")) == (LONGEST_SHOWN, True)
    found = first_difference(list(range(1000)), 1)
    assert found is not None
    assert len(found.recorded) == LONGEST_SHOWN


# -- a whole run --------------------------------------------------------------------------------------------


def mail_flow(sent: list[str]) -> Flow:
    async def classify(ctx: Any) -> dict[str, str]:
        return {"kind": "question"}

    async def reply(ctx: Any) -> Outcome:
        """Answer whoever wrote, as far as we know them."""
        known = await ctx.query("crm.find", serial=ctx.data.serial)
        ctx.propose("mail.send", to=known["owner"])
        return Outcome("done", set={"to": known["owner"]})

    def send(to: str) -> dict[str, int]:
        sent.append(to)
        return {"id": len(sent)}

    def find(serial: str) -> dict[str, str]:
        return {"owner": f"owner of {serial}"}

    by_agent = StepConfig(
        mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER, retry_policy=RetryPolicy(2, 0, 0)
    )
    intent = "Say what kind of mail this is."
    step = Step("classify", classify, intent, queries=("crm.find",), config=by_agent)
    machine: Machine[str] = Machine(
        "mail", start="classify", moves={"classify": ["reply"], "reply": ["done"]}, ends=["done"]
    )
    return Flow(
        machine,
        {"classify": step, "reply": reply},
        tools=[Tool("mail.send", send), Tool("crm.find", find, "query")],
    )


async def run_mail(tape: Tape, script: list[Any], sent: list[str], serial: str = "S1") -> Run:
    source = ScriptedSource(ScriptedStepExecutor(script))
    dispatch = DispatchSettings(executors=source)
    async with Engine(MemoryStore(), [mail_flow(sent)], dispatch=dispatch, tape=tape) as engine:
        return await engine.run("mail", {"serial": serial})


async def test_a_whole_run_plays_again_with_no_model_and_no_effect(path):
    script = [
        {"error": "transient"},
        {
            "output": {"kind": "fault"},
            "calls": [{"tool": "crm.find", "args": {"serial": "S2"}}],
            "usage": {"input_tokens": 5},
        },
    ]
    sent: list[str] = []
    with Recorder(path) as recorder:
        first = await run_mail(recorder, script, sent)
    assert (first.data["kind"], sent) == ("fault", ["owner of S1"])
    assert recorder.recorded == 5
    nothing_asked = [{"error": {"type": "crash", "message": "somebody was asked"}}]
    player = Player(path)
    second = await run_mail(player, nothing_asked, sent)
    assert (second.error, second.data, second.status) == (None, first.data, first.status)
    assert second.spend == first.spend
    assert (player.mismatches, player.unplayed()) == ([], [])
    assert sent == ["owner of S1"]
    other = Player(path)
    third = await run_mail(other, nothing_asked, sent, serial="S3")
    assert third.status is Status.FAILED
    assert "/messages/1/content, line 3" in str(other.mismatches[0])
    assert sent == ["owner of S1"]


async def test_what_an_agent_asked_is_not_given_to_somebody_else_who_asks_the_same(path):
    """The agent's question failed, the handler's the same question did not: so it goes when played."""

    async def failing() -> Any:
        raise ToolError("timeout", transient=True)

    with Recorder(path) as recorder:

        async def answering() -> Any:
            with contextlib.suppress(ToolError):
                await recorder.through(query(1), failing)
            return "unknown"

        await recorder.through(agent("say"), answering)
        await recorder.through(query(1), giving("found"))
    player = Player(path)
    assert await player.through(agent("say"), never) == "unknown"
    assert await player.through(query(1), never) == "found"
    assert player.unplayed() == []


# -- files --------------------------------------------------------------------------------------------------


async def test_a_file_that_is_there_is_not_overwritten_unless_asked(path):
    await record(path, (query(1), 1))
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="already exists"):
        Recorder(path)
    assert path.read_bytes() == before
    Recorder(path, overwrite=True).close()
    assert read_cassette(path).interactions == ()


def test_a_bad_path_fails_before_the_run(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written: No such file or directory"):
        Recorder(tmp_path / "nowhere" / "a.cassette")
    with pytest.raises(ConfigurationError, match="cannot be written: Is a directory"):
        Recorder(tmp_path, overwrite=True)
    with pytest.raises(ConfigurationError, match="cannot be written: No space left"):
        Recorder("/dev/full", overwrite=True)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        Player(tmp_path / "none")


async def test_a_disk_that_fills_up_costs_the_recording_and_not_the_run(path, caplog):
    recorder = Recorder(path)
    await recorder.through(query(1), giving("kept"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        with caplog.at_level(logging.ERROR, "detent"):
            assert await recorder.through(query("secret words"), giving("lost")) == "lost"
            assert await recorder.through(query(3), giving("lost too")) == "lost too"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(DetentError, match="incomplete after 1 interactions"):
        recorder.close()
    assert [one.msg.split()[0] for one in caplog.records] == ["cassette.write_failed"]
    assert "secret words" not in caplog.text
    cassette = read_cassette(path)
    assert [one.answer for one in cassette.interactions] == ["kept"]
    assert cassette.cut == 3


@pytest.mark.parametrize("left", [1, 20, -2])
async def test_a_line_that_broke_off_is_left_out_with_a_warning(path, caplog, left):
    """As after `kill -9` in the middle of a write."""
    await record(path, (query(1), "kept"), (query(2), "äöü"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:left])
    with caplog.at_level(logging.WARNING, "detent"):
        player = Player(path)
    assert player.cut == 3
    assert "cassette.cut_off" in caplog.text
    assert await player.through(query(1), never) == "kept"
    assert "asked more often than recorded" in str(await mismatch(player, query(2)))


async def test_a_last_line_that_lacks_only_its_end_counts(path):
    await record(path, (query(1), 1))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    player = Player(path)
    assert player.cut is None
    assert await player.through(query(1), never) == 1


async def test_line_ends_and_marks_of_other_systems_do_no_harm(path):
    await record(path, (query(1), "a\nb"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    player = Player(path)
    assert player.cut is None
    assert await player.through(query(1), never) == "a\nb"


async def test_the_header_names_the_flows_that_were_recorded(path):
    Recorder(path, flows=["mail", "mail.part"]).close()
    assert Player(path).flows == ("mail", "mail.part")
    Recorder(path, overwrite=True).close()
    assert Player(path).flows == ()


def test_a_recording_nobody_wants_leaves_nothing(path, tmp_path):
    Recorder(path).discard()
    assert not path.exists()
    with pytest.raises(ConfigurationError, match="is a folder; name a new file in it"):
        Recorder(tmp_path)


# -- secrets ------------------------------------------------------------------------------------------------


async def test_the_value_of_a_secret_is_not_written_and_still_reaches_the_run(path):
    recorder = Recorder(path, secrets=["sk-1234", "sk-1234-long"])
    call = query({"key": "sk-1234", "sk-1234": ["a sk-1234-long b"]})
    assert await recorder.through(call, giving({"said": "sk-1234"})) == {"said": "sk-1234"}
    with suppress(ToolError):
        await recorder.through(query("fails"), giving(ToolError("auth", "the key sk-1234 is wrong")))
    recorder.close()
    assert "sk-1234" not in path.read_text()
    player = Player(path, secrets=["sk-1234", "sk-1234-long"])
    assert await player.through(call, never) == {"said": "***"}
    with pytest.raises(ToolError, match=r"the key \*\*\* is wrong"):
        await player.through(query("fails"), never)
    # Somebody who has another key is asked for something else, and no key is shown.
    other = await mismatch(Player(path, secrets=["sk-9999"]), query({"key": "sk-9999", "sk-9999": []}))
    assert "sk-9999" not in str(other)


async def test_the_mark_of_a_secret_matches_that_of_another_run(path):
    """Marks have a random number of the run; an answer comes back with the marks of the run that plays."""
    mark, other = "***token:0123456789ab***", "***token:ba9876543210***"
    second, third = "***pin:111111111111***", "***pin:222222222222***"
    asked, answered = [f"use {mark}", {"pin": second}], f"{second} and {mark}"
    await record(path, (query(asked), answered), (query(f"{mark}!"), ToolError("no", f"not {mark}")))
    player = Player(path)
    assert await player.through(query([f"use {other}", {"pin": third}]), never) == f"{third} and {other}"
    with pytest.raises(ToolError) as caught:
        await player.through(query(f"{other}!"), never)
    assert caught.value.message == f"not {other}"
    assert player.played == 2
    # Another secret is another request.
    assert (await mismatch(Player(path), query("***pin:111111111111***!"))).difference is not None


HEADER = '{"cassette": 1, "detent": "0.1.0"}\n'
LINE = {"kind": "query", "where": "", "step": "s", "subject": "t", "request": 1, "answer": 1}


def changed(**change: Any) -> str:
    return HEADER + json.dumps({k: v for k, v in {**LINE, **change}.items() if v != "…"}) + "\n"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "line 1: this is no cassette"),
        ('{"kind": "moved"}\n', "line 1: this is no cassette"),
        ("hello\n", "line 1: this is no cassette"),
        ('{"cassette": true}\n', "line 1: this is no cassette"),
        ('{"cassette": 2, "detent": "9.0"}\n', "line 1: a cassette of version 2, recorded by detent 9.0"),
        (HEADER + "{broken\n" + json.dumps(LINE) + "\n", "line 2: not valid JSON"),
        (HEADER + "\n[1]\n", "line 3: an interaction is a mapping"),
        (changed(kind="guess"), "line 2: 'kind' is agent, query, effect"),
        (changed(step=7), "line 2: 'step' is missing or no text"),
        (changed(answer="…"), "line 2: an interaction has either an answer or an error"),
        (changed(error={"type": "X"}), "line 2: an interaction has either an answer or an error"),
        (changed(request="…"), "line 2: 'request' is missing"),
        (changed(answer="…", error="x"), "line 2: 'error' is a mapping with a type"),
        (changed(answer="…", error={"type": "ToolError"}), "line 2: a ToolError has a code"),
        (HEADER + "[" * 100_000 + "\n", "line 2: it is nested more than 100 levels deep"),
        ("[" * 100_000 + "\n", "line 1: this is no cassette"),
        (changed(answer=nested(200)), "line 2: 'answer"),
        (changed(request=nested(200)), "line 2: 'request"),
        (HEADER + json.dumps(LINE).replace("1", "1" * 5000) + "\n", "line 2: not valid JSON"),
        (changed(anser=1), "line 2: unknown key 'anser'. Did you mean 'answer'"),
    ],
)
def test_a_broken_or_foreign_file_is_told_with_its_line(path, content, said):
    path.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        Player(path)
    assert f"{path}, {said}" in str(caught.value)


async def test_the_deepest_value_that_is_recorded_is_played(path):
    value = nested(100)
    await record(path, (query(value), value))
    assert await Player(path).through(query(value), never) == value


def test_a_file_without_end_is_refused_before_the_memory_is_full():
    with pytest.raises(ConfigurationError, match="/dev/zero has more than 268,435,456 bytes"):
        Player("/dev/zero")


@pytest.mark.parametrize(
    ("recorded", "asked", "shown"),
    [
        ("Do it.", "Do it.\n\nBe quick.", ("(nothing)", "|Be quick.|", 3)),
        ("Do it.\n\nBe quick.", "Do it.", ("|Be quick.|", "(nothing)", 3)),
        ("Do it.\n\nINPUTS\nx", "Do it.\n\nBe quick.\n\nINPUTS\nx", ("(nothing)", "|Be quick.|", 3)),
        ("Do it.\n\nBe slow.\nx", "Do it.\n\nBe quick.\nx", ("|Be slow.|", "|Be quick.|", 3)),
        ("a\nb", "a\n\nb", ("|b|", "||", 2)),
        ("a\n\nb", "a\nb", ("||", "|b|", 2)),
    ],
)
def test_a_text_that_was_added_or_removed_is_shown_and_not_the_blank_line_before_it(recorded, asked, shown):
    found = first_difference(recorded, asked)
    assert found is not None
    assert (found.recorded, found.asked, found.line) == shown
