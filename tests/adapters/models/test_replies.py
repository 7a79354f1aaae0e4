"""Replies as models write them over HTTP: text and calls, whatever the server makes of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from detent.adapters.models import claude
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.pydantic_ai import Made, PydanticAIModel
from detent.dispatch.conversation import Conversation, Message, ModelAnswer
from detent.dispatch.executor_errors import ExecutorError
from tests.adapters.models import strict
from tests.adapters.models.server import Reply, Server, answer, chat, delta, event, raw, stream
from tests.adapters.models.talk import (
    ASKED,
    TOOLS,
    Heard,
    asked,
    call,
    executor,
    pieces,
    read,
    request,
    tool,
    whole,
)
from tests.adapters.models.test_claude import block, closing, message, opening, text, use, wording
from tests.adapters.models.test_claude import event as claude_event

BOTH = pytest.mark.parametrize("way", [whole, pieces])
"""At once, and in pieces."""
NESTED = '{"a": ' * 300 + "1" + "}" * 300
ARGUMENTS: list[tuple[Any, Any]] = [
    ('{"filepath": "b"}', {"filepath": "b"}),
    ({"filepath": "b"}, {"filepath": "b"}),
    (None, {}),
    ("", {}),
    (" \n", {}),
    ({}, {}),
    ('{"filepath": ', '{"filepath": '),
    ("nonsense", "nonsense"),
    ("{'filepath': 'b'}", "{'filepath': 'b'}"),
    ("[1]", "[1]"),
    ([1], "[1]"),
    ([], "[]"),
    ("7", "7"),
    (7, "7"),
    (0, "0"),
    (False, "false"),
    ("null", "null"),
    ('"b"', '"b"'),
    ('{"n": NaN}', '{"n": NaN}'),
    ('{"n": 1e999}', '{"n": 1e999}'),
    (NESTED, NESTED),
    ('{"filepath": "\\ud83d"}', {"filepath": "\ud83d"}),
]
"""Arguments as a server writes them, and as they arrive."""


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-fake")


def made(got: ModelAnswer) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in got.calls]


A, B, C = (("read_file", {"filepath": path}) for path in "abc")
"""Good calls."""


class TestArguments:
    """Arguments that cannot be read are given as they were written, and spoil no other call."""

    @BOTH
    async def test_over_openais_protocol(self, way):
        for written, arrived in ARGUMENTS:
            calls = [read("a", "x"), call("read_file", written, "y"), read("c", "z")]
            got = await asked(way({"tool_calls": calls}), heard=Heard())
            assert made(got) == [A, ("read_file", arrived), C], written

    @pytest.mark.parametrize("streaming", [False, True])
    async def test_over_anthropics_protocol(self, streaming):
        for written, arrived in ARGUMENTS:
            if streaming and not isinstance(written, str):
                continue
            replies = [("x", json.dumps(A[1])), ("y", written), ("z", json.dumps(C[1]))]
            got = await claude_asked(_uses(replies, streaming), Heard() if streaming else None)
            assert made(got) == [A, ("read_file", arrived), C], written
            assert got.finish == "tool"

    @pytest.mark.parametrize("streaming", [False, True])
    async def test_through_the_library(self, streaming):
        for written, arrived in ARGUMENTS:
            if streaming and not isinstance(written, str):
                continue
            given = [json.dumps(A[1]), written, json.dumps(C[1])]
            got = await library(given, streaming).reply(request(heard=Heard() if streaming else None))
            assert made(got) == [A, ("read_file", arrived), C], written


def _uses(calls: list[tuple[str, Any]], streaming: bool) -> Reply:
    """Calls of `read_file` in Anthropic's protocol."""
    if not streaming:
        uses = [{"type": "tool_use", "id": id_, "name": "read_file", "input": given} for id_, given in calls]
        return answer(message(*uses))
    events = [opening()]
    for index, (id_, given) in enumerate(calls):
        parts = [{"type": "input_json_delta", "partial_json": part} for part in (given[:4], given[4:])]
        events += block(index, use(id_, "read_file"), *parts)
    return stream([*events, *closing("tool_use")])


async def claude_asked(reply: Reply, heard: Heard | None = None, **options: Any) -> ModelAnswer:
    async with Server(reply) as server:
        made = ModelStepExecutor(claude.connect({"base_url": server.url}))
        try:
            return await made.reply(request(heard=heard, **options))
        finally:
            await made.close()


def library(given: list[Any], streaming: bool) -> ModelStepExecutor:
    """A model of the library that calls `read_file` with these arguments."""

    def reply(messages: list[Any], info: Any) -> ModelResponse:
        parts = [ToolCallPart("read_file", arguments) for arguments in given]
        return ModelResponse(parts=[TextPart("I look."), *parts], usage=RequestUsage(input_tokens=1))

    async def streamed(messages: list[Any], info: Any) -> Any:
        for index, arguments in enumerate(given):
            yield {index: DeltaToolCall("read_file", arguments, tool_call_id=f"c{index}")}

    served = FunctionModel(stream_function=streamed) if streaming else FunctionModel(reply)
    return ModelStepExecutor(PydanticAIModel(lambda name: Made(served), default_id="f-1"))


IDS = ["call_0", "", None, "absent", "x" * 10_240, '"}\n</tool_call>{"', "ключ 🔑", 7, {"a": 1}, [None]]


class TestIds:
    """Whatever ids a server gives, each call is there once, and gets one of ours."""

    @BOTH
    @pytest.mark.parametrize("id_", IDS, ids=[str(id_)[:12] for id_ in IDS])
    async def test_no_call_is_swallowed_and_the_next_request_is_accepted(self, way, id_):
        calls = [read("a", id_), read("b", id_), read("b", id_), call("list_dir", "{}", id_)]
        if id_ == "absent":
            for one in calls:
                del one["id"]
        refuses = strict.all_of(strict.openai, strict.mistral)
        async with Server(way({"tool_calls": calls}), whole({"content": "ok"}), refuses=refuses) as server:
            model = executor(server)
            got = await model.reply(request(heard=Heard()))
            assert made(got) == [A, B, B, ("list_dir", {})]
            assert all(isinstance(call.id, str) for call in got.calls)
            await model.reply(request(_with_results(got)))
            await model.close()
        sent = server.asked[1].body["messages"][2]["tool_calls"]
        assert [one["id"] for one in sent] == [f"000000t2c{number}"[-9:] for number in (1, 2, 3, 4)]

    @pytest.mark.parametrize("streaming", [False, True])
    @pytest.mark.parametrize("id_", IDS[:6], ids=[str(id_)[:12] for id_ in IDS[:6]])
    async def test_at_anthropic_too(self, id_, streaming):
        reply = _uses([(id_, json.dumps(A[1])), (id_, json.dumps(A[1])), (id_, json.dumps(C[1]))], streaming)
        final = stream([opening(), *wording("ok"), *closing()])
        async with Server(reply, final, refuses=strict.anthropic) as server:
            model = ModelStepExecutor(claude.connect({"base_url": server.url}))
            got = await model.reply(request(heard=Heard() if streaming else None))
            assert made(got) == [A, A, C]
            await model.reply(request(_with_results(got), heard=Heard()))
            await model.close()
        assert server.refused == 0


def _with_results(got: ModelAnswer) -> list[Message]:
    """The conversation with a reply's calls and their results."""
    conversation = Conversation(ASKED)
    calls = conversation.with_ids(got.calls)
    conversation.add(Message("assistant", got.text, calls, opaque=got.opaque))
    conversation.add(*(Message("tool", f"result {call.id}", answers=call.id) for call in calls))
    return list(conversation.messages)


class TestNames:
    @BOTH
    @pytest.mark.parametrize(
        ("name", "arrived"),
        [("deploy", "deploy"), ("", ""), (None, ""), ("absent", ""), (7, "7"), ("n" * 10_240, "n" * 10_240)],
    )
    async def test_a_call_without_a_name_or_of_an_unknown_tool_is_a_call(self, way, name, arrived):
        strange = call(name, '{"filepath": "b"}', "y")
        if name == "absent":
            del strange["function"]["name"]
        got = await asked(way({"tool_calls": [read("a", "x"), strange, read("c", "z")]}), heard=Heard())
        assert made(got) == [A, (arrived, {"filepath": "b"}), C]

    async def test_a_call_whose_function_stands_a_level_higher_is_read(self):
        flat = {"id": "y", "type": "function", "name": "read_file", "arguments": '{"filepath": "a"}'}
        assert made(await asked(whole({"tool_calls": [flat]}))) == [A]

    @pytest.mark.parametrize("calls", [[None, read("a"), "read_file"], read("a")])
    async def test_what_is_no_list_of_calls_loses_none(self, calls):
        got = await asked(whole({"tool_calls": calls}))
        assert made(got) == [A, ("", "read_file")][: len(calls) - 1 if isinstance(calls, list) else 1]

    async def test_made_up_names_at_anthropic(self):
        uses = [use("a", "deploy"), use("b", ""), {"type": "tool_use", "id": "c", "name": None, "input": {}}]
        assert made(await claude_asked(answer(message(*uses)))) == [("deploy", {}), ("", {}), ("", {})]


class TestTextBesideCalls:
    @BOTH
    async def test_both_arrive(self, way):
        heard = Heard()
        got = await asked(way({"content": "I read both.", "tool_calls": [read("a")]}), heard=heard)
        assert (got.text, made(got), got.finish) == ("I read both.", [A], "tool")
        assert heard.text == "I read both."

    @pytest.mark.parametrize("streaming", [False, True])
    async def test_at_anthropic(self, streaming):
        heard = Heard() if streaming else None
        part = {"type": "input_json_delta", "partial_json": '{"filepath": "a"}'}
        called = [*wording("I ", "read."), *block(1, use("t", "read_file"), part)]
        at_once = answer(message(text("I read."), use("t", "read_file", filepath="a")))
        reply = stream([opening(), *called, *closing("tool_use")]) if streaming else at_once
        got = await claude_asked(reply, heard)
        assert (got.text, made(got), got.finish) == ("I read.", [A], "tool")
        assert heard is None or heard.text == "I read."

    @BOTH
    async def test_a_server_that_says_stop_beside_calls_is_understood(self, way):
        got = await asked(way({"content": "x", "tool_calls": [read("a")]}, finish="stop"), heard=Heard())
        assert (made(got), got.finish) == ([A], "stop")


class TestContent:
    PARTS = (
        {"type": "thinking", "thinking": [{"type": "text", "text": "secret one"}]},
        {"type": "reasoning", "text": "secret two"},
        {"type": "text", "text": "Hello "},
        "there",
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "output_text", "text": "."},
    )

    @BOTH
    async def test_parts_are_one_text_without_thoughts(self, way):
        heard = Heard()
        got = await asked(way({"content": list(self.PARTS)}), heard=heard)
        assert got.text == "Hello there."
        if way is pieces:
            thoughts = [text for text, kind in heard.chunks if kind == "thinking"]
            assert (heard.text, thoughts) == ("Hello there.", ["secret one", "secret two"])

    @BOTH
    @pytest.mark.parametrize("content", [None, "", []])
    async def test_no_content_is_an_empty_text(self, way, content):
        assert (await asked(way({"content": content}), heard=Heard())).text == ""

    @BOTH
    @pytest.mark.parametrize(
        "thoughts",
        [
            {"reasoning_content": "secret"},
            {"reasoning": "secret"},
            {"reasoning": "secret", "reasoning_content": "secret"},
            {"reasoning": {"summary": "secret"}, "reasoning_details": [{"text": "secret"}]},
        ],
    )
    async def test_reasoning_is_never_text(self, way, thoughts):
        heard = Heard()
        got = await asked(way({**thoughts, "content": "Done.", "tool_calls": [read("a")]}), heard=heard)
        assert (got.text, heard.text, made(got)) == ("Done.", "Done.", [A])

    async def test_reasoning_at_anthropic_is_never_text(self):
        thinking = {"type": "thinking", "thinking": "", "signature": "s"}
        events = block(0, thinking, {"type": "thinking_delta", "thinking": "secret"})
        heard = Heard()
        reply = stream([opening(), *events, *wording("Done.", index=1), *closing()])
        assert (await claude_asked(reply, heard)).text == heard.text == "Done."
        assert ("secret", "thinking") in heard.chunks

    async def test_only_the_first_of_several_choices_is_read(self):
        other = event({"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]})
        events = [delta(content="A"), other, delta(content="a", finish="stop"), event("[DONE]")]
        assert (await asked(stream(events), heard=Heard())).text == "Aa"


class TestRefusals:
    """The words of a refusal are text, and its finish is `filter`."""

    @BOTH
    @pytest.mark.parametrize(
        ("said", "text"),
        [
            ({"refusal": "I will not."}, "I will not."),
            ({"content": None, "refusal": "I will not."}, "I will not."),
            ({"content": "", "refusal": "I will not."}, "I will not."),
            ({"content": [{"type": "refusal", "refusal": "I will not."}]}, "I will not."),
            ({"content": "I will not.", "refusal": "I will not."}, "I will not."),
            ({"content": "Well.", "refusal": "I will not."}, "Well.\n\nI will not."),
        ],
    )
    async def test_a_refusal_of_openai(self, way, said, text):
        heard = Heard()
        got = await asked(way(said), heard=heard)
        assert (got.text, got.finish) == (text, "filter")
        assert "I will not." in heard.text

    @BOTH
    @pytest.mark.parametrize("content", ["Half an", "", None])
    async def test_a_filter_keeps_what_was_said(self, way, content):
        got = await asked(way({"content": content}, finish="content_filter"), heard=Heard())
        assert (got.text, got.finish) == (content or "", "filter")
        assert got.usage.input_tokens == 100

    @BOTH
    @pytest.mark.parametrize("reason", ["error", "network_error", "Abort", "insufficient_system_resource"])
    async def test_what_the_server_could_not_finish_is_no_reply(self, way, reason):
        """Its text may look whole, and say that all is done."""
        with pytest.raises(ExecutorError, match="broke off") as refused:
            await asked(way({"content": "All is done."}, finish=reason), heard=Heard())
        assert refused.value.transient

    async def test_a_filter_that_leaves_no_message_at_all(self):
        body = chat("x")
        body["choices"][0] = {"index": 0, "finish_reason": "content_filter", "content_filter_results": {}}
        got = await asked(answer(body))
        assert (got.text, got.finish) == ("", "filter")

    @pytest.mark.parametrize("streaming", [False, True])
    @pytest.mark.parametrize(
        ("said", "explanation", "text"),
        [
            ("I cannot.", None, "I cannot."),
            ("", "Against the rules.", "Against the rules."),
            ("Let me", "Against the rules.", "Let me\n\nAgainst the rules."),
            ("", None, ""),
        ],
    )
    async def test_a_refusal_of_anthropic(self, streaming, said, explanation, text):
        details = (
            {"type": "refusal", "category": "cyber", "explanation": explanation} if explanation else None
        )
        if streaming:
            end = {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
            usage = {"output_tokens": 3}
            events = [*(wording(said) if said else []), claude_event("message_delta", delta=end, usage=usage)]
            reply = stream([opening(), *events, claude_event("message_stop")])
        else:
            blocks = [{"type": "text", "text": said}] if said else []
            reply = answer({**message(*blocks, stop="refusal"), "stop_details": details})
        heard = Heard()
        got = await claude_asked(reply, heard if streaming else None)
        assert (got.text, got.finish) == (text, "filter")
        assert not streaming or heard.text.replace("\n", "") == text.replace("\n", "")

    @pytest.mark.parametrize("said", [{"refusal": "I will not."}, {"content": "I will not."}])
    async def test_where_an_answer_under_a_contract_is_wanted_it_is_a_failure(self, said):
        with pytest.raises(ExecutorError, match="withheld") as caught:
            await asked(whole(said, finish="content_filter"), takes_calls=False)
        assert caught.value.usage is not None
        assert caught.value.usage.input_tokens == 100


class TestNoAnswer:
    @pytest.mark.parametrize("choices", [[], None])
    async def test_a_completion_without_a_choice_may_be_asked_for_again(self, choices):
        for reply in (
            answer({"choices": choices, "usage": None}),
            stream([event({"choices": choices}), event("[DONE]")]),
            stream([event("[DONE]")]),
        ):
            with pytest.raises(ExecutorError, match="without an answer") as caught:
                await asked(reply, heard=Heard())
            assert caught.value.transient

    async def test_events_without_a_choice_are_passed_over(self):
        """Azure begins with one, and the usage comes in one."""
        events = [
            event({"choices": [], "prompt_filter_results": []}),
            event({"choices": None, "usage": None}),
            delta(content="ok"),
            delta(finish="stop"),
            event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6}}),
            event("[DONE]"),
        ]
        got = await asked(stream(events), heard=Heard())
        assert (got.text, got.usage.input_tokens, got.usage.output_tokens) == ("ok", 5, 6)

    @pytest.mark.parametrize("ending", ["dies", "stops"])
    @pytest.mark.parametrize(
        "last",
        [
            delta(content="half"),
            delta(tool_calls=[{"index": 0, "id": "x", "function": {"name": "bash", "arguments": '{"comm'}}]),
            delta(tool_calls=[{"index": 0, "id": "x", "function": {"name": "bash", "arguments": "{}"}}]),
            b'data: {"choices": [{"del',
        ],
    )
    async def test_a_stream_that_breaks_off_gives_no_part_of_an_answer(self, last, ending):
        heard = Heard()
        with pytest.raises(ExecutorError) as caught:
            await asked(stream([delta(content="I begin. "), last], ending=ending), heard=heard)
        assert caught.value.transient
        assert heard.text.startswith("I begin. ")

    @pytest.mark.parametrize("ending", ["dies", "stops"])
    @pytest.mark.parametrize("called", [False, True])
    async def test_at_anthropic_too(self, ending, called):
        part = {"type": "input_json_delta", "partial_json": '{"filepath": "a"}'}
        events = [opening(), *wording("I begin."), *(block(1, use("t", "read_file"), part) if called else [])]
        with pytest.raises(ExecutorError) as caught:
            await claude_asked(stream(events, ending=ending), Heard())
        assert caught.value.transient


class TestUsage:
    @pytest.mark.parametrize(
        "usage",
        [None, {}, "many", {"prompt_tokens": "7", "completion_tokens": -1}, {"prompt_tokens_details": 3}],
    )
    async def test_without_usage_there_is_an_answer_of_no_tokens(self, usage):
        body = chat("ok", usage=None)
        events = [delta(content="ok"), delta(finish="stop")]
        if usage is not None:
            body["usage"] = usage
            events.append(event({"choices": [], "usage": usage}))
        for reply in (answer(body), stream([*events, event("[DONE]")])):
            got = await asked(reply, heard=Heard())
            assert (got.text, got.usage.input_tokens, got.usage.output_tokens) == ("ok", 0, 0)


class TestCut:
    """A reply that was cut at its limit of tokens."""

    @BOTH
    async def test_the_half_written_call_is_given_as_it_was_written(self, way):
        reply = way({"content": "Now.", "tool_calls": [read("a"), call("bash", '{"command": "ma')]}, "length")
        got = await asked(reply, heard=Heard())
        assert (got.text, got.finish) == ("Now.", "length")
        assert made(got) == [A, ("bash", '{"command": "ma')]

    @pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "model_length"])
    async def test_servers_name_it_in_several_ways(self, reason):
        assert (await asked(whole({"content": "Half"}, reason))).finish == "length"

    async def test_at_anthropic(self):
        parts = [{"type": "input_json_delta", "partial_json": '{"filepath": "a'}]
        events = [*wording("Now."), *block(1, use("t", "read_file"), *parts)]
        got = await claude_asked(stream([opening(), *events, *closing("max_tokens")]), Heard())
        assert (got.text, got.finish) == ("Now.", "length")
        assert made(got) == [("read_file", '{"filepath": "a')]


def part(index: Any = None, name: Any = None, arguments: Any = None, id_: Any = None) -> dict[str, Any]:
    """A piece of a call; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    piece = {"index": index, "id": id_, "function": {k: v for k, v in function.items() if v is not None}}
    return {key: value for key, value in piece.items() if value is not None}


X, Y = '{"filepath": "a"}', '{"filepath": "c"}'
STREAMS: dict[str, list[list[dict[str, Any]]]] = {
    "interleaved by index": [
        [part(0, "read_file", "", "x"), part(1, "read_file", "", "y")],
        [part(0, None, X[:4]), part(1, None, Y[:6])],
        [part(1, None, Y[6:])],
        [part(0, None, X[4:])],
    ],
    "interleaved, all numbered 0, told apart by ids": [
        [part(0, "read_file", "", "x")],
        [part(0, "read_file", "", "y")],
        [part(0, None, X[:4], "x")],
        [part(0, None, Y[:6], "y")],
        [part(0, None, X[4:], "x")],
        [part(0, None, Y[6:], "y")],
    ],
    "all numbered 0, other ids, one after another": [
        [part(0, "read_file", "", "x")],
        [part(0, None, X)],
        [part(0, "read_file", "", "y")],
        [part(0, None, Y)],
    ],
    "all numbered 0, whole, in one piece": [[part(0, "read_file", X), part(0, "read_file", Y)]],
    "without numbers or ids, whole": [[part(None, "read_file", X)], [part(None, "read_file", Y)]],
    "without numbers, with ids, in pieces": [
        [part(None, "read_file", X[:4], "x")],
        [part(None, None, X[4:], "x")],
        [part(None, "read_file", Y, "y")],
    ],
    "the name is split": [
        [part(0, "read", None, "x")],
        [part(0, "_fi")],
        [part(0, "le", X)],
        [part(1, "read_", None, "y")],
        [part(1, "file", Y)],
    ],
    "the name grows": [
        [part(0, "read", None, "x")],
        [part(0, "read_file", X, "x")],
        [part(1, "read_file", Y, "y")],
    ],
    "the name is in every piece": [
        [part(0, "read_file", X[:4], "x")],
        [part(0, "read_file", X[4:], "x")],
        [part(1, "read_file", Y[:4], "y")],
        [part(1, "read_file", Y[4:], "y")],
    ],
    "a new id in every piece": [
        [part(0, "read_file", "", "x1")],
        [part(0, None, X[:4], "x2")],
        [part(0, None, X[4:], "x3")],
        [part(1, "read_file", "", "y1")],
        [part(1, None, Y, "y2")],
    ],
    "the id comes late": [
        [part(0, "read_file")],
        [part(0, None, X, "x")],
        [part(1, "read_file")],
        [part(1, None, Y, "y")],
    ],
    "objects for arguments": [
        [part(0, "read_file", json.loads(X), "x")],
        [part(1, "read_file", json.loads(Y), "y")],
    ],
    "odd numbers": [[part("b", "read_file", X)], [part(-1, "read_file", Y)]],
}


class TestStreamedCalls:
    @pytest.mark.parametrize("events", STREAMS.values(), ids=STREAMS)
    async def test_calls_are_put_together_however_they_are_taken_apart(self, events):
        sent = [delta(tool_calls=calls) for calls in events]
        got = await asked(stream([*sent, delta(finish="tool_calls"), event("[DONE]")]), heard=Heard())
        assert made(got) == [A, C]

    async def test_calls_without_arguments_are_told_apart_by_name_or_id(self):
        calls = [part(0, "list_dir", ""), part(0, "bash", ""), part(0, "list_dir", "", "x")]
        calls += [part(0, "list_dir", "", "y"), part(0, "read_file", X, "z")]
        sent = [delta(tool_calls=[call]) for call in calls]
        got = await asked(stream([*sent, delta(finish="tool_calls"), event("[DONE]")]), heard=Heard())
        assert [call.name for call in got.calls] == ["list_dir", "bash", "list_dir", "list_dir", "read_file"]
        assert made(got)[-1] == A

    @pytest.mark.parametrize("index", [None, 0])
    async def test_two_of_one_piece_are_two(self, index):
        calls = [part(index, "list_dir", ""), part(index, "list_dir", "")]
        sent = [delta(tool_calls=calls), delta(finish="tool_calls"), event("[DONE]")]
        assert made(await asked(stream(sent), heard=Heard())) == [("list_dir", {})] * 2

    async def test_a_split_name_may_begin_with_the_name_of_another_tool(self):
        pieces_ = [part(0, "bash", None, "x"), part(0, "_output"), part(0, None, "{}")]
        sent = [
            *(delta(tool_calls=[piece]) for piece in pieces_),
            delta(finish="tool_calls"),
            event("[DONE]"),
        ]
        tools = (*TOOLS, tool("bash_output"))
        assert made(await asked(stream(sent), heard=Heard(), tools=tools)) == [("bash_output", {})]

    async def test_a_nameless_call_behind_a_whole_one_is_a_call_of_its_own(self):
        sent = [delta(tool_calls=[part(0, "read_file", X, "x")]), delta(tool_calls=[part(0, None, Y, "y")])]
        got = await asked(stream([*sent, delta(finish="tool_calls"), event("[DONE]")]), heard=Heard())
        assert made(got) == [A, ("", {"filepath": "c"})]


LEGACY = {"name": "read_file", "arguments": X}


class TestLegacyCalls:
    async def test_a_call_made_in_the_older_way_is_a_call(self):
        got = await asked(whole({"content": None, "function_call": LEGACY}, "function_call"))
        assert (made(got), got.finish) == ([A], "tool")

    async def test_in_pieces_too(self):
        events = [delta(function_call={"name": "read_file", "arguments": ""})]
        events += [delta(function_call={"arguments": piece}) for piece in (X[:5], X[5:])]
        reply = stream([*events, delta(finish="function_call"), event("[DONE]")])
        assert made(await asked(reply, heard=Heard())) == [A]

    async def test_a_call_made_in_both_ways_is_one(self):
        assert made(await asked(whole({"function_call": LEGACY, "tool_calls": [read("a")]}))) == [A]


class TestTextWhileItIsWritten:
    """Text is heard while the server still withholds the next piece."""

    @pytest.mark.parametrize("native", [True, False])
    async def test_over_openais_protocol(self, native):
        gate, heard = asyncio.Event(), Heard()
        events = [delta(content="I look "), delta(content="at it."), delta(finish="stop"), event("[DONE]")]
        async with Server(stream(events, gates={1: gate})) as server:
            model = executor(server, native=native)
            reply = asyncio.ensure_future(model.reply(request(heard=heard)))
            await heard.first.wait()
            assert (heard.text, reply.done()) == ("I look ", False)
            gate.set()
            assert (await reply).text == heard.text == "I look at it."
            await model.close()

    async def test_at_anthropic(self):
        gate, heard = asyncio.Event(), Heard()
        events = [opening(), *wording("I look ", "at it."), *closing()]
        async with Server(stream(events, gates={3: gate})) as server:
            model = ModelStepExecutor(claude.connect({"base_url": server.url}))
            reply = asyncio.ensure_future(model.reply(request(heard=heard)))
            await heard.first.wait()
            assert (heard.text, reply.done()) == ("I look ", False)
            gate.set()
            assert (await reply).text == heard.text == "I look at it."
            await model.close()

    async def test_through_the_library(self):
        gate, heard = asyncio.Event(), Heard()

        async def streamed(messages: list[Any], info: Any) -> Any:
            yield "I look "
            await gate.wait()
            yield "at it."

        served = FunctionModel(stream_function=streamed)
        model = ModelStepExecutor(PydanticAIModel(lambda name: Made(served), default_id="f-1"))
        reply = asyncio.ensure_future(model.reply(request(heard=heard)))
        await heard.first.wait()
        assert (heard.text, reply.done()) == ("I look ", False)
        gate.set()
        assert (await reply).text == heard.text == "I look at it."

    async def test_a_server_that_does_not_stream_is_heard_once(self):
        heard = Heard()
        await asked(whole({"content": "At once."}), heard=heard)
        assert heard.chunks == [("At once.", "output")]


@pytest.mark.parametrize("body", [b'{"choices": [{"message": {"content": 7}}]}', b'{"choices": 7}'])
async def test_what_is_no_completion_is_said_to_be_none(body):
    with pytest.raises(ExecutorError, match="no chat completion"):
        await asked(raw(body))
