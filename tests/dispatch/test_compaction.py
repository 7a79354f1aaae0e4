"""What is sent of a conversation that is too long for its model, and that nothing else depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.compaction import LAST_TURNS, compacted, fitting, room
from detent.dispatch.conversation import Message, ModelAnswer, Opaque, ToolCall
from detent.dispatch.executor import Availability, ExecutorResult, ReplyRequest
from detent.dispatch.executor_errors import RequestTooLongError
from detent.dispatch.message_sizes import SHORTEST, size
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.step import Step
from detent.engine.tools import NOT_DONE, Tool
from detent.kernel.entries import Entry, Moved, Recorded
from detent.kernel.errors import StoreUnavailable
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.dispatch.samples import INTENT, LEVELS, agent, settings, single
from tests.dispatch.test_acting_crashes import gone
from tests.engine.conftest import journal
from tests.examples import examples

BEGINNING = (Message("system", "Be brief."), Message("user", "Read all pages."))


def turn(number: int, *lengths: int, note: str = "") -> list[Message]:
    """A reply that calls a tool once per length, its results, and perhaps a note behind them."""
    calls = tuple(ToolCall(f"t{number}c{index}", "read", {"page": index}) for index in range(len(lengths)))
    results = [
        Message("tool", "x" * length, answers=call.id) for call, length in zip(calls, lengths, strict=True)
    ]
    return [Message("assistant", "", calls), *results, *([Message("user", note)] if note else [])]


def talk(*turns: Sequence[int]) -> list[Message]:
    messages = list(BEGINNING)
    for number, lengths in enumerate(turns):
        messages += turn(number, *lengths)
    return messages


class TestWhatIsSent:
    def test_a_conversation_that_fits_is_sent_as_it_is(self):
        messages = talk([3000], [3000], [3000], [3000], [3000])
        sent = compacted(messages, size(messages))
        assert (sent.messages, sent.left_out) == (messages, {})

    def test_the_oldest_results_become_one_line_each(self):
        messages = talk(*[[3000]] * 8)
        sent = compacted(messages, size(messages) - 1000)
        contents = [message.content for message in sent.messages if message.role == "tool"]
        assert contents[0] == "result left out, 3000 characters"
        assert contents[-LAST_TURNS:] == ["x" * 3000] * LAST_TURNS
        shortened = [content != "x" * 3000 for content in contents]
        assert shortened == sorted(shortened, reverse=True)
        assert sent.left_out == {"results": sum(shortened)}
        assert len(sent.messages) == len(messages)

    def test_then_the_oldest_turns_become_one_note(self):
        messages = talk(*[[600, 600]] * 20)
        sent = compacted(messages, 2000)
        assert size(sent.messages) <= 2000
        assert tuple(sent.messages[:2]) == BEGINNING
        note = sent.messages[2]
        assert note.role == "user"
        assert f"The first {sent.turns} turns" in note.content
        assert f"read ({2 * sent.turns})" in note.content
        assert sent.messages[-9:] == messages[-9:]
        assert sent.turns > 0

    def test_short_results_stay(self):
        """There is nothing to be gained, and remarks on repeated queries are counted."""
        messages = talk(*[[SHORTEST]] * 8)
        sent = compacted(messages, size(messages) - 1)
        assert sent.results == 0
        assert sent.turns > 0

    def test_what_must_be_sent_is_sent_however_long_it_is(self):
        messages = talk([9000], [9000], [9000])
        assert compacted(messages, 10).messages == messages
        longer = talk([9000], [9000], [9000], [9000])
        sent = compacted(longer, 10)
        assert (sent.messages[-6:], tuple(sent.messages[:2])) == (longer[-6:], BEGINNING)

    def test_requests_begin_alike_for_a_while(self):
        """A provider's cache is of use although the oldest results are left out."""
        beginnings = [
            [message.content for message in compacted(talk(*[[900]] * turns), 6000).messages[:20]]
            for turns in range(22, 40)
        ]
        assert sum(before == after for before, after in pairwise(beginnings)) >= len(beginnings) // 2

    def test_opaque_parts_count(self):
        plain = Message("assistant", "", (ToolCall("t1c1", "read", {}),))
        assert size([plain._replace(opaque=Opaque("p", "m", "s" * 3000))]) >= size([plain]) + 1000

    @trying(max_examples=examples(200), deadline=None)
    @given(
        st.lists(st.lists(st.integers(0, 4000), min_size=0, max_size=3), max_size=12), st.integers(1, 20000)
    )
    def test_calls_and_results_are_never_cut_apart(self, lengths, most):
        messages = list(BEGINNING)
        for number, one in enumerate(lengths):
            messages += turn(number, *one, note="Again." if number % 3 == 0 else "")
        before = list(messages)
        sent = compacted(messages, most)
        assert messages == before
        assert compacted(messages, most) == sent
        assert tuple(sent.messages[:2]) == BEGINNING
        called = [call.id for message in sent.messages for call in message.calls]
        assert called == [message.answers for message in sent.messages if message.role == "tool"]
        turns = [index for index, message in enumerate(messages) if message.role == "assistant"]
        last = messages[turns[-LAST_TURNS] :] if len(turns) > LAST_TURNS else messages
        assert sent.messages[-len(last) :] == last
        assert size(sent.messages) <= size(messages) + 200
        if size(messages) <= most:
            assert sent.messages == messages


class TestRoom:
    def test_a_request_fills_four_fifths_of_the_context(self):
        assert room(10_000) == 8000

    def test_a_long_answer_takes_more_of_it_but_never_more_than_half(self):
        assert (room(10_000, answer=4000), room(10_000, answer=50_000)) == (6000, 5000)

    def test_tools_and_schema_count(self):
        assert room(10_000, fixed=[{"text": "x" * 3000}]) < 7000


class TestTooLong:
    """A provider that finds a request too long is sent half, once."""

    @staticmethod
    async def asked(messages: list[Message], accepts: int, most: int | None = None) -> tuple[list[int], Any]:
        sizes: list[int] = []

        async def ask(sent: Sequence[Message]) -> str:
            sizes.append(size(sent))
            if sizes[-1] > accepts:
                raise RequestTooLongError("too long")
            return "answer"

        try:
            return sizes, (await fitting(messages, most, ask))[1].left_out
        except RequestTooLongError:
            return sizes, None

    async def test_half_is_sent(self):
        messages = talk(*[[600]] * 20)
        (whole, half), left_out = await self.asked(messages, size(messages) // 2)
        assert half <= whole // 2
        assert left_out["results"] > 0

    async def test_but_only_once(self):
        sizes, left_out = await self.asked(talk(*[[600]] * 20), 100)
        assert (len(sizes), left_out) == (2, None)

    async def test_and_not_where_nothing_may_be_left_out(self):
        sizes, left_out = await self.asked(talk([600], [600], [600]), 100)
        assert (len(sizes), left_out) == (1, None)

    async def test_half_of_what_was_sent_not_of_the_conversation(self):
        messages = talk(*[[600]] * 40)
        (first, second), _ = await self.asked(messages, 2000, 4000)
        assert first <= 4000
        assert second <= first // 2


# -- in a visit ---------------------------------------------------------------------------------------------

PAGES = 7
OUTPUT = {
    "type": "object",
    "required": ["number", "remark"],
    "properties": {"number": {"type": "integer"}, "remark": {"type": "string"}},
}


class Desk:
    """Long pages to read, and notes that are taken once."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.keys: dict[str, dict[str, Any]] = {}

    def flow(self) -> Flow:
        async def read(page: int) -> str:
            return f"page {page} " + "x" * 2500

        async def note(call: Any, text: str) -> dict[str, Any]:
            self.noted.append(text)
            self.keys[call.key] = {"number": len(self.noted)}
            return self.keys[call.key]

        async def probe(call: Any, text: str) -> Any:
            return self.keys.get(call.key, NOT_DONE)

        async def work(ctx: Any) -> dict[str, Any]:
            for page in range(PAGES):
                await ctx.query("read", page=page)
            await ctx.perform("note", text="half")
            done = await ctx.perform("note", text="all")
            return {"number": done["number"], "remark": "read"}

        step = Step(
            "work", work, INTENT, effects=("note",), queries=("read",), output_schema=OUTPUT, inputs=(),
            agent=AgentSide(rounds=2),
        )  # fmt: skip
        probed: dict[str, Any] = {"wants_call": True, "probe": probe, "probe_wants_call": True}
        return single(step, tools=[Tool("read", read, "query"), Tool("note", note, **probed)])


def reading() -> list[ModelAnswer]:
    """The replies of an agent that reads all pages, notes twice and concludes."""

    def calling(name: str, **arguments: Any) -> ModelAnswer:
        return ModelAnswer("", calls=(ToolCall("call_0", name, arguments),))

    pages = [calling("read", page=page) for page in range(PAGES)]
    notes = [calling("note", text="half"), calling("note", text="all")]
    return [*pages, *notes, ModelAnswer('{"number": 99, "remark": "read"}')]


class Reader:
    """A model with a short context that gives these replies, whatever it is sent of the conversation."""

    def __init__(self, context_tokens: int | None, given: int = 0) -> None:
        self.context_tokens = context_tokens
        self.given = given
        self.sent: dict[int, list[Message]] = {}
        """What it was sent for each reply."""

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        self.sent[self.given] = list(request.messages)
        self.given += 1
        return reading()[self.given - 1]

    def available(self) -> Availability:
        return Availability(True)


def is_reply(entry: Entry) -> bool:
    return isinstance(entry.body, Recorded) and entry.body.key.startswith("agent/")


class Ending:
    """How a run of one visit ended."""

    def __init__(self, run: Any, entries: Sequence[Any]) -> None:
        (moved,) = [entry.body for entry in entries if isinstance(entry.body, Moved)]
        self.left_out = moved.detail.get("left_out", {})
        decided = {
            key: value for key, value in moved.detail.items() if key != "left_out" and "duration" not in key
        }
        replies = [
            {key: value for key, value in entry.body.value.items() if key not in ("left_out", "ms")}
            for entry in entries
            if is_reply(entry)
        ]
        self.all = (run.status, run.data, decided, replies)
        self.keys = [entry.body.key for entry in entries if is_reply(entry)]


async def finished(reader: Reader, level: str, store: Any = None, resumed: bool = False) -> Ending:
    desk = Desk()
    flow = desk.flow()
    async with Engine(store or MemoryStore(), [flow], dispatch=settings(reader, agent(level))) as engine:
        run = await (engine.finish("r1") if resumed else engine.run("flow", {}, run_id="r1"))
        assert resumed or desk.noted == ["half", "all"]
        return Ending(run, await journal(engine, "r1"))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("context_tokens", [9000, 1000])
async def test_a_visit_ends_the_same_whatever_was_sent(level, context_tokens):
    """Conclusion, evidence and keys do not depend on it; what was left out is counted."""
    whole = await finished(Reader(None), level)
    reader = Reader(context_tokens)
    short = await finished(reader, level)
    assert (short.all, short.keys) == (whole.all, whole.keys)
    assert short.all[:2] == (Status.SUCCEEDED, {"number": 2, "remark": "read"})
    assert whole.left_out == {}
    assert short.left_out["results" if context_tokens == 9000 else "turns"] > 1
    assert len(reader.sent[PAGES]) == 2 + 2 * PAGES or context_tokens == 1000


@pytest.mark.parametrize("level", ["collaborator", "approver"])
@pytest.mark.parametrize("context_tokens", [9000, 1000])
async def test_killed_at_every_commit_it_ends_the_same_and_the_same_is_sent(level, context_tokens):
    """Compacted in the middle of a visit, killed before and after."""
    counted, quiet = CrashPoints(), Reader(context_tokens)
    undisturbed = await finished(quiet, level, counted.store(MemoryStore()))
    for number in range(2, counted.commits + 1):
        for when in ("before", "after"):
            desk, store = Desk(), MemoryStore()
            points = CrashPoints([CrashPoint(number, when)], strike=gone)  # type: ignore[arg-type]
            dispatch = settings(Reader(context_tokens), agent(level))
            with pytest.raises(StoreUnavailable):
                async with Engine(points.store(store), [desk.flow()], dispatch=dispatch) as engine:
                    await engine.run("flow", {}, run_id="r1")
            entries = await store.entries("r1", 0, 1000)
            answered = sum(map(is_reply, entries))
            again = Reader(context_tokens, answered)
            async with Engine(store, [desk.flow()], dispatch=settings(again, agent(level))) as engine:
                ending = Ending(await engine.finish("r1"), await journal(engine, "r1"))
            assert ending.all == undisturbed.all, (number, when)
            assert (ending.left_out, desk.noted) == (undisturbed.left_out, ["half", "all"]), (number, when)
            assert again.sent == {key: quiet.sent[key] for key in again.sent}, (number, when)


class Prompted:
    """An agent that knows only a prompt, of limited length."""

    def __init__(self, *, longest: int | None = None, context_tokens: int | None = None) -> None:
        self.longest = longest
        if context_tokens is not None:
            self.context_tokens = context_tokens
        self.prompts: list[str] = []
        self.replies = reading()

    async def execute(self, *, prompt: str, **_: Any) -> ExecutorResult:
        self.prompts.append(prompt)
        if self.longest is not None and len(prompt) > self.longest:
            raise RequestTooLongError("too long")
        reply = self.replies.pop(0)
        calls = [{"tool": call.name, "args": call.arguments} for call in reply.calls]
        return ExecutorResult({"calls": calls} if calls else reply.text)

    def available(self) -> Availability:
        return Availability(True)


@pytest.mark.parametrize("options", [{"longest": 12_000}, {"context_tokens": 9000}])
async def test_an_agent_that_knows_only_a_prompt_is_sent_less_as_well(options):
    executor: Any = Prompted(**options)
    ending = await finished(executor, "approver")
    assert ending.all[:2] == (Status.SUCCEEDED, {"number": 2, "remark": "read"})
    assert ending.left_out["results"] > 0
    assert ending.all[2]["attempts"] == 1
    assert "result left out, " in executor.prompts[-1]


async def test_an_executor_that_has_acted_in_its_own_loop_is_not_run_again():
    class Loop:
        runs = 0

        async def execute(self, *, toolbox: Any, **_: Any) -> ExecutorResult:
            self.runs += 1
            await toolbox.call("note", {"text": "half"})
            raise RequestTooLongError("too long")

        def available(self) -> Availability:
            return Availability(True)

    loop, desk = Loop(), Desk()
    async with Engine(MemoryStore(), [desk.flow()], dispatch=settings(loop, agent("approver"))) as engine:
        run = await engine.run("flow", {})
    assert (loop.runs, run.status, desk.noted) == (1, Status.WAITING, ["half"])
