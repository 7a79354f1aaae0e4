"""Agents that act, on a model behind real HTTP: what is done, what the model is sent, and what is kept."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from detent.adapters.models import openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.recorded import RecordedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent import ALREADY, MOST_REPLIES
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.result import DispatchResult
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.entries import EffectDone, Entry, Moved, Recorded
from detent.kernel.run import Run
from detent.kernel.status import Status
from detent.testing.clock import HandClock
from tests.adapters.models import server as of
from tests.adapters.models.server import Reply, Server, answer, chat, delta, event, said, stream
from tests.dispatch.samples import INTENT, agent, settings, single
from tests.dispatch.test_acting import World, running
from tests.engine.conftest import journal

MAKE = ("run", {"command": "make test"})
DONE = {"exit_code": 99, "stdout": "12 passed"}
"""An answer whose every fact a receipt knows better."""
BOTH = pytest.mark.parametrize("native", [True, False], ids=["native", "words"])


def model(server: Server, *, native: bool = True) -> ModelStepExecutor:
    options = {"base_url": f"{server.url}/v1", "model_id": "m-1", "native_tools": native}
    return ModelStepExecutor(openai.connect(options, kind="vllm"))


def calling(*calls: tuple[str, Any], ids: Any = "call_0") -> Reply:
    """A reply that calls tools natively; every call has the same id, or none."""
    body = chat(None, [("", name, args) for name, args in calls])
    for call in body["choices"][0]["message"]["tool_calls"]:
        call.pop("id")
        if ids != "absent":
            call["id"] = ids
    return answer(body)


def streaming(*calls: tuple[str, Any], ids: Any = "call_0") -> Reply:
    """The same, in pieces."""
    events = []
    for index, (name, args) in enumerate(calls):
        head = {"index": index, "type": "function", "function": {"name": name, "arguments": ""}}
        if ids != "absent":
            head["id"] = ids
        text = args if isinstance(args, str) else json.dumps(args)
        events.append(delta(tool_calls=[head]))
        for part in (text[:5], text[5:]):
            events.append(delta(tool_calls=[{"index": index, "function": {"arguments": part}}]))
    usage = event({"model": "served-1", "choices": [], "usage": of.USAGE})
    return stream([*events, delta(finish="tool_calls"), usage, event("[DONE]")])


def decision(native: bool, tool: str, **args: Any) -> Reply:
    """One call, as a model with or without native tools gives it."""
    return calling((tool, args)) if native else said(json.dumps({"tool": tool, "arguments": args}))


def conclusion(native: bool, value: Any) -> Reply:
    return said(json.dumps(value if native else {"answer": value}))


def check_accepted(server: Server) -> None:
    """Fail where a strict provider refuses a request: open, unknown, doubled or repeated calls."""
    for asked in server.asked:
        seen: set[str] = set()
        unanswered: list[str] = []
        for message in asked.body["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] in unanswered[:1], "a result for no call, or out of order"
                assert isinstance(message["content"], str)
                del unanswered[0]
                continue
            assert not unanswered, "a call without a result"
            assert message["role"] in ("system", "user", "assistant")
            calls = message.get("tool_calls") or []
            assert message["content"] or calls
            for call in calls:
                assert call["id"], "a call without an id"
                assert call["id"] not in seen, "an id of two calls"
                seen.add(call["id"])
                unanswered.append(call["id"])
                assert re.fullmatch(r"[\w-]{1,64}", call["function"]["name"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
        assert not unanswered, "a call without a result"
        assert asked.body["messages"][-1]["role"] in ("user", "tool")


def results(server: Server, request: int = -1) -> list[str]:
    """What the model was told of its calls, in a request."""
    told: list[str] = []
    for message in server.asked[request].body["messages"]:
        if message["role"] == "tool":
            told.append(message["content"])
        elif message["content"].startswith("RESULT of "):
            told.append(message["content"].split("\n", 1)[1])
    return told


class Silence:
    """A reply that never comes; `asked` tells that it was waited for."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, line: of.Line) -> None:
        self.asked.set()
        await of.stall(line)


@dataclass
class Visit:
    """A run of one step, after its end."""

    server: Server
    run: Run
    entries: list[Entry]

    @property
    def result(self) -> DispatchResult:
        """What became of the dispatch of its step."""
        (moved,) = [entry.body for entry in self.entries if isinstance(entry.body, Moved)]
        return DispatchResult.from_plain(moved.detail)


async def finished(flow: Flow, executor: Any, **options: Any) -> tuple[Run, list[Entry]]:
    """Run r1 of a flow, started or resumed, to its end."""
    store = options.pop("store", None)
    dispatch = settings(executor, agent("approver"))
    async with Engine(store or MemoryStore(), [flow], dispatch=dispatch, **options) as engine:
        run = await (engine.finish("r1") if store else engine.run("flow", run_id="r1"))
        return run, await journal(engine, run.id)


async def visit(flow: Flow, *replies: Reply, native: bool = True, **options: Any) -> Visit:
    """A run whose agent is a model that gives these replies."""
    async with Server(*replies) as server:
        return Visit(server, *await finished(flow, model(server, native=native), **options))


async def started_and_stopped(flow: Flow, executor: Any, store: MemoryStore, silence: Silence) -> None:
    """Start run r1, and stop its engine without grace while the model is silent."""
    engine = Engine(store, [flow], dispatch=settings(executor, agent("approver")))
    await engine.open()
    await engine.start("flow", {}, run_id="r1")
    await silence.asked.wait()
    await engine.stop(grace=0)


def check_alternating(server: Server) -> None:
    """Fail where a chat template does that wants user and assistant by turns."""
    for asked in server.asked:
        roles = [message["role"] for message in asked.body["messages"] if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


class TestCallsWithoutIds:
    """Two rounds, the second with two equal calls."""

    @pytest.mark.parametrize("ids", ["call_0", "", None, "absent"])
    @pytest.mark.parametrize("turn", [calling, streaming])
    async def test_each_call_is_carried_out_once_and_has_its_own_result(self, turn, ids):
        world = World()
        flow = running(world, side=AgentSide(rounds=5))
        replies = [turn(MAKE, ids=ids), turn(MAKE, MAKE, ids=ids), said(json.dumps(DONE))]
        done = await visit(flow, *replies)
        assert (done.run.status, done.result.mode_used.value) == (Status.SUCCEEDED, "agent")
        assert world.ran == ["make test"] * 3
        assert done.run.data == {"exit_code": 3, "stdout": "make test in ."}
        assert len(done.server.asked) == 3
        check_accepted(done.server)
        assert [json.loads(text)["exit_code"] for text in results(done.server)] == [1, 2, 3]

    @pytest.mark.parametrize("ids", ["call_0", "absent"])
    async def test_queries_effects_and_refused_calls_of_one_reply_keep_their_order(self, ids):
        world = World()
        mixed = [("read", {}), ("write", {"text": "new"}), ("deploy", {}), ("read", {})]
        replies = [calling(*mixed, ids=ids), calling(MAKE, ids=ids), said("{}")]
        done = await visit(running(world, side=AgentSide(rounds=3)), *replies)
        assert (done.run.status, world.ran) == (Status.SUCCEEDED, ["write new", "make test"])
        check_accepted(done.server)
        before, receipt, refused, after = results(done.server, 1)
        assert (before, json.loads(receipt), after) == ("old", {"written": 3}, "new")
        assert json.loads(refused)["status"] == "refused"

    async def test_a_resumed_visit_sends_the_same_ids_again(self):
        world, store, silence = World(), MemoryStore(), Silence()
        flow = running(world, side=AgentSide(rounds=5))
        async with Server(calling(MAKE, MAKE), silence, said(json.dumps(DONE))) as server:
            await started_and_stopped(flow, model(server), store, silence)
            run, _ = await finished(flow, model(server), store=store)
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make test"] * 2)
        assert server.asked[1].body == server.asked[2].body
        check_accepted(server)


SHA_AND_SUMMARY = {
    "type": "object",
    "required": ["sha", "summary"],
    "properties": {"sha": {"type": "string"}, "summary": {"type": "string"}},
}


def committing(commits: list[str]) -> Flow:
    """A flow of one step that commits and sums up what it did."""

    def commit(message: str) -> dict[str, Any]:
        """Commit what is staged."""
        commits.append(message)
        return {"sha": "real", "branch": "main"}

    async def work(ctx: Any) -> dict[str, Any]:
        done = ctx.propose("git.commit", message="Fix it")
        return {"sha": done.sha, "summary": "fixed"}

    step = Step("work", work, INTENT, effects=("git.commit",), output_schema=SHA_AND_SUMMARY, inputs=())
    return single(step, tools=[Tool("git.commit", commit)])


@BOTH
class TestReceipts:
    async def test_a_claim_beside_a_receipt_reaches_neither_data_nor_moves(self, native):
        """Asked for what no receipt holds, the agent says another sha."""
        commits: list[str] = []
        replies = [
            decision(native, "git_commit" if native else "git.commit", message="Fix it"),
            conclusion(native, {"sha": "invented", "summary": "It is fixed."}),
        ]
        done = await visit(committing(commits), *replies, native=native)
        assert commits == ["Fix it"]
        assert done.run.data == {"sha": "real", "summary": "It is fixed."}
        (effect,) = [entry.body for entry in done.entries if isinstance(entry.body, EffectDone)]
        assert effect.receipt == {"sha": "real", "branch": "main"}
        (moved,) = [entry.body for entry in done.entries if isinstance(entry.body, Moved)]
        assert moved.set == {"sha": "real", "summary": "It is fixed."}
        claims = [entry.body for entry in done.entries if "invented" in repr(entry.body)]
        assert [type(body) for body in claims] == [Recorded]
        assert claims[0].key.startswith("agent/2/")  # what it said, word for word
        assert '"sha": "real"' in results(done.server)[0]
        asked_for = done.server.asked[1].body["messages"][-1]["content"].split("MISSING")[1]
        assert '"summary"' in asked_for
        assert '"sha"' not in asked_for

    async def test_an_effect_that_settles_the_answer_costs_no_second_reply(self, native):
        world = World()
        done = await visit(running(world), decision(native, "run", command="make test"), native=native)
        assert done.run.data == {"exit_code": 1, "stdout": "make test in ."}
        assert len(done.server.asked) == 1


async def test_a_model_without_native_tools_leaves_the_same_journal_but_for_its_replies():
    async def parts_of(native: bool) -> tuple[list[Any], list[Any]]:
        """A journal without its agent's replies, and what those decide."""
        world = World()
        replies = [
            decision(native, "read"),
            decision(native, "write", text="new"),
            decision(native, "read"),
            decision(native, "deploy", where="here"),
            decision(native, "run", command="make"),
            conclusion(native, DONE),
        ]
        flow = running(world, side=AgentSide(rounds=4))
        done = await visit(flow, *replies, native=native, clock=HandClock(), worker_id="w1")
        assert world.ran == ["write new", "make"]
        assert (done.run.status, len(done.server.asked)) == (Status.SUCCEEDED, 6)
        rest: list[Any] = []
        decisions: list[Any] = []
        for entry in done.entries:
            body = entry.body
            if isinstance(body, Recorded) and body.key.startswith("agent/"):
                number = body.key.rsplit("/", 1)[0]
                decisions.append((number, body.value.get("calls"), body.spend))
                body = Recorded(number, None)
            rest.append(body)
        return rest, decisions

    native_rest, native_decisions = await parts_of(True)
    rest, decisions = await parts_of(False)
    assert rest == native_rest
    assert decisions == native_decisions


@BOTH
class TestRefusedCalls:
    @pytest.mark.parametrize(
        ("tool", "args", "code"),
        [
            ("deploy", {}, "not_allowed"),
            ("run", {"command": 7}, "invalid_arguments"),
            ("run", {"command": "make", "sudo": True}, "invalid_arguments"),
            ("run", {}, "invalid_arguments"),
        ],
    )
    async def test_a_refused_call_is_told_and_the_visit_goes_on(self, native, tool, args, code):
        """1.4: an undeclared tool or bad arguments."""
        world = World()
        replies = [decision(native, tool, **args), decision(native, "run", command="make test")]
        done = await visit(running(world), *replies, native=native)
        assert (done.result.mode_used.value, world.ran) == ("agent", ["make test"])
        (refused,) = map(json.loads, results(done.server))
        assert (refused["status"], refused["code"]) == ("refused", code)
        assert refused["allowed"] == ["read", "run", "write"]
        assert "deploy" not in refused["why"][0]  # it may reach a log

    async def test_a_second_refused_call_in_a_row_falls_back(self, native):
        world = World()
        wrong = [decision(native, "deploy"), decision(native, "run", command=7)]
        done = await visit(running(world), *wrong, native=native)
        assert done.result.fallback_reason is FallbackReason.SCHEMA_VIOLATION
        assert (done.run.status, world.ran) == (Status.SUCCEEDED, ["make test"])
        assert len(done.server.asked) == 2


@pytest.mark.parametrize("name", ["rm -rf /", "böse", "x" * 200, ""])
async def test_a_made_up_name_is_sent_back_in_characters_that_providers_accept(name):
    world = World()
    done = await visit(running(world), calling((name, {})), calling(MAKE))
    assert (done.result.mode_used.value, world.ran) == ("agent", ["make test"])
    check_accepted(done.server)


class TestToolsInWords:
    async def test_user_and_assistant_speak_by_turns(self):
        """What is asked next stands in the same message as the results before it."""
        replies = [
            decision(False, "deploy"),
            conclusion(False, {"sha": 7}),
            decision(False, "git.commit", message="Fix it"),
            conclusion(False, {"summary": "fixed"}),
        ]
        done = await visit(committing([]), *replies, native=False)
        assert done.run.data == {"sha": "real", "summary": "fixed"}
        assert len(done.server.asked) == 4
        check_alternating(done.server)

    @pytest.mark.parametrize("arguments", ["make", [1], None])
    async def test_arguments_that_are_no_object_are_refused_with_the_place(self, arguments):
        world = World()
        broken = said(json.dumps({"tool": "run", "arguments": arguments}))
        fine = decision(False, "run", command="make test")
        done = await visit(running(world), broken, fine, native=False)
        assert (done.result.mode_used.value, world.ran) == ("agent", ["make test"])
        (refused,) = map(json.loads, results(done.server))
        assert refused["why"] == ["tool 'run': /: must be an object"]


class TestUnreadableArguments:
    @pytest.mark.parametrize("turn", [calling, streaming])
    @pytest.mark.parametrize("text", ['{"command": ', "nonsense", "[1]", "7", "null", '"make"'])
    async def test_they_are_refused_with_the_place_and_the_visit_goes_on(self, turn, text):
        world = World()
        done = await visit(running(world), turn(("run", text)), turn(MAKE))
        assert (done.result.mode_used.value, world.ran) == ("agent", ["make test"])
        (refused,) = map(json.loads, results(done.server))
        assert (refused["status"], refused["code"]) == ("refused", "invalid_arguments")
        assert refused["why"] == ["tool 'run': /: must be an object"]
        check_accepted(done.server)

    async def test_the_neighbours_of_such_a_call_are_carried_out(self):
        world = World()
        mixed = [("read", {}), ("run", "{"), ("write", {"text": "new"})]
        flow = running(world, side=AgentSide(rounds=3))
        done = await visit(flow, calling(*mixed), calling(MAKE), said("{}"))
        assert (done.run.status, world.ran) == (Status.SUCCEEDED, ["write new", "make test"])
        check_accepted(done.server)

    async def test_twice_in_a_row_they_fall_back(self):
        world = World()
        done = await visit(running(world), calling(("run", "{")), calling(("run", "{")))
        assert done.result.fallback_reason is FallbackReason.SCHEMA_VIOLATION
        assert (done.run.status, world.ran) == (Status.SUCCEEDED, ["make test"])

    async def test_a_call_that_was_cut_is_reported_as_cut(self):
        """Only a shorter call helps against a limit of tokens."""
        cut = answer(chat(None, [("x", "run", '{"command": "ma')], finish="length"))
        world = World()
        done = await visit(running(world), cut, calling(MAKE))
        assert (done.run.status, world.ran) == (Status.SUCCEEDED, ["make test"])
        assert "cut" in done.server.asked[1].body["messages"][-1]["content"]
        assert done.run.spend.input_tokens == 200


def offered(asked: of.Asked, native: bool) -> set[str]:
    """The tools that a request lets the model call."""
    if native:
        return {tool["function"]["name"] for tool in asked.body["tools"]}
    options = asked.body["response_format"]["json_schema"]["schema"]["anyOf"]
    return {option["properties"]["tool"]["const"] for option in options if "tool" in option["properties"]}


async def test_a_model_with_native_tools_keeps_its_last_one():
    """Providers refuse a conversation with calls where no tool is given."""
    step = Step("work", lambda ctx: {"n": 1}, INTENT, queries=("read",), inputs=())
    flow = single(step, tools=World().tools())
    done = await visit(flow, *[calling(("read", {}))] * 4, said('{"n": 2}'))
    assert done.run.data == {"n": 2}
    assert [offered(asked, True) for asked in done.server.asked] == [{"read"}] * 5


@BOTH
class TestPaidOnce:
    async def test_a_reply_that_called_a_tool_is_paid_once_whatever_happens_next(self, native):
        """D-56: a lost connection costs only the request that was lost."""
        world = World()
        replies = [decision(native, "read"), of.drop, decision(native, "run", command="make test")]
        done = await visit(running(world), *replies, native=native)
        assert (done.run.status, world.ran) == (Status.SUCCEEDED, ["make test"])
        assert len(done.server.asked) == 3
        assert done.server.asked[1].body == done.server.asked[2].body
        assert (done.run.spend.input_tokens, done.run.spend.output_tokens) == (200, 40)

    async def test_after_a_crash_replies_are_neither_asked_for_nor_paid_again(self, native):
        """D-56."""
        world, store, silence = World(), MemoryStore(), Silence()
        flow = running(world, side=AgentSide(rounds=5))
        replies = [
            decision(native, "read"),
            decision(native, "run", command="make test"),
            silence,
            conclusion(native, DONE),
        ]
        async with Server(*replies) as server:
            await started_and_stopped(flow, model(server, native=native), store, silence)
            run, _ = await finished(flow, model(server, native=native), store=store)
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make test"])
        assert run.data == {"exit_code": 1, "stdout": "make test in ."}
        assert len(server.asked) == 4
        assert server.asked[2].body == server.asked[3].body
        assert run.spend.input_tokens == 300

    async def test_a_broken_answer_after_a_tool_costs_only_its_own_reply(self, native):
        fine = {"exit_code": 0, "stdout": "fine"}
        replies = [
            decision(native, "read"),
            conclusion(native, {"exit_code": "none"}),
            conclusion(native, fine),
        ]
        flow = running(World(), side=AgentSide(rounds=1, may_abstain=True))
        done = await visit(flow, *replies, native=native)
        assert (done.run.data, len(done.server.asked)) == (fine, 3)
        assert "/exit_code" in done.server.asked[2].body["messages"][-1]["content"]
        assert done.run.spend.input_tokens == 300

    async def test_a_repeated_query_is_remarked_on_and_then_its_tool_is_withdrawn(self, native):
        replies = [decision(native, "read")] * 3
        world = World()
        done = await visit(
            running(world), *replies, decision(native, "run", command="make test"), native=native
        )
        assert done.result.mode_used.value == "agent"
        assert results(done.server) == ["old", ALREADY, ALREADY]
        assert ["read" in offered(asked, native) for asked in done.server.asked] == [True, True, True, False]

    async def test_a_tool_is_not_withdrawn_for_looking_again_after_each_effect(self, native):
        world = World()
        turns = [decision(native, "read"), decision(native, "read"), decision(native, "write", text="new")]
        flow = running(world, side=AgentSide(rounds=4))
        ending = [decision(native, "read"), conclusion(native, DONE)]
        done = await visit(flow, *turns, *turns, *ending, native=native)
        assert results(done.server)[-1] == "new"
        assert all("read" in offered(asked, native) for asked in done.server.asked)

    async def test_a_model_that_never_answers_is_stopped_and_code_performs_the_step(self, native):
        world = World()
        done = await visit(running(world), *[decision(native, "read")] * 40, native=native)
        assert (done.run.status, world.ran) == (Status.SUCCEEDED, ["make test"])
        assert done.result.fallback_reason is FallbackReason.EXCEPTION
        assert len(done.server.asked) == MOST_REPLIES
        assert done.run.spend.input_tokens == 100 * len(done.server.asked)


async def test_replies_of_a_journal_given_again_end_the_run_where_it_ended():
    """Calls are part of what was recorded, refused and unreadable ones included."""
    world, again = World(), World()
    replies = [calling(("read", {}), ("run", "{")), calling(MAKE, MAKE), said(json.dumps(DONE))]
    first = await visit(running(world, side=AgentSide(rounds=5)), *replies)
    recorded = RecordedStepExecutor.from_entries(first.entries)
    assert recorded.left() == {"work": 3}
    second, _ = await finished(running(again, side=AgentSide(rounds=5)), recorded)
    assert recorded.left() == {}
    assert world.ran == again.ran == ["make test"] * 2
    assert (second.data, second.spend) == (first.run.data, first.run.spend)
