"""Models behind servers that speak OpenAI's chat completions, over real HTTP to a loopback port."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib

import pytest

from detent.adapters.models import openai
from detent.adapters.models.model import ModelRequest
from detent.adapters.models.openai import OpenAIModel
from detent.adapters.models.prices import PriceTable
from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.conversation import Message, ToolCall
from detent.dispatch.executor_errors import ExecutorError
from detent.kernel.errors import ConfigurationError
from tests.adapters.models import server as of
from tests.adapters.models.server import Server, answer, chat, delta, event, pieces, raw, said, stream

FORM = {
    "type": "object",
    "properties": {"fault": {"type": "boolean"}, "serial": {"type": "string"}},
    "required": ["fault", "serial"],
}
LOOSE = {"type": "object", "properties": {"note": {"type": "string"}}}
LOOKUP = AgentTool(
    "crm.find",
    "query",
    "Find a device.",
    {"type": "object", "properties": {"serial": {"type": "string"}}, "required": ["serial"]},
)


def asking(text: str = "Is it broken?", **options) -> ModelRequest:
    return ModelRequest((Message("system", "Be brief."), Message("user", text)), "m-1", **options)


def model(server: Server, **options) -> OpenAIModel:
    return OpenAIModel(f"{server.url}/v1", **{"kind": "vllm", **options})


class Ears:
    """Hears a stream."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.first = asyncio.Event()

    async def __call__(self, text, kind):
        self.heard.append((text, kind))
        self.first.set()


async def failing(made: OpenAIModel, request: ModelRequest | None = None, on_text=None) -> ExecutorError:
    with pytest.raises(ExecutorError) as caught:
        await made.complete(request or asking(), on_text)
    await made.close()
    return caught.value


class TestAnswers:
    async def test_a_structured_answer(self):
        async with Server(said('{"fault": true, "serial": "A1"}')) as server:
            made = model(server)
            got = await made.complete(asking(schema=FORM, temperature=0.5, max_tokens=77))
            await made.close()
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
        assert asked.body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is it broken?"},
        ]
        wanted = asked.body["response_format"]
        assert wanted["type"] == "json_schema"
        assert wanted["json_schema"]["strict"] is True
        assert wanted["json_schema"]["schema"] == {**FORM, "additionalProperties": False}
        assert asked.body["temperature"] == 0.5
        assert asked.body["max_tokens"] == 77
        assert "stream" not in asked.body
        assert json.loads(got.text) == {"fault": True, "serial": "A1"}
        assert (got.finish, got.model_id, got.calls) == ("stop", "served-1", ())

    async def test_a_schema_with_optional_keys_is_not_called_strict(self):
        async with Server(said("{}")) as server:
            await model(server).complete(asking(schema=LOOSE))
        assert server.asked[0].body["response_format"]["json_schema"]["strict"] is False

    async def test_an_answer_that_was_cut_says_so(self):
        async with Server(said('{"fau', finish="length")) as server:
            assert (await model(server).complete(asking())).finish == "length"

    async def test_a_refusal_counts_as_filtered(self):
        body = chat(None)
        body["choices"][0]["message"]["refusal"] = "No."
        async with Server(answer(body)) as server:
            assert (await model(server).complete(asking())).finish == "filter"

    async def test_half_a_character_in_the_question_does_no_harm(self):
        async with Server(said("ok")) as server:
            await model(server).complete(asking("broken \ud83d here"))
        assert server.asked[0].body["messages"][1]["content"] == "broken \ud83d here"


class TestUsage:
    async def test_tokens_are_counted_and_a_local_server_costs_nothing(self):
        """D-56."""
        usage = {**of.USAGE, "prompt_tokens_details": {"cached_tokens": 40}}
        async with Server(said("ok", usage=usage)) as server:
            used = (await model(server).complete(asking())).usage
        assert (used.input_tokens, used.output_tokens, used.cache_read_tokens) == (100, 20, 40)
        assert used.total_cost_usd == 0.0

    async def test_a_price_of_ones_own_counts_for_a_local_server_too(self):
        prices = PriceTable({"m-*": {"input": 10, "output": 100}})
        async with Server(said("ok")) as server:
            used = (await model(server, prices=prices).complete(asking())).usage
        assert used.total_cost_usd == pytest.approx((100 * 10 + 20 * 100) / 1e6)

    async def test_a_server_elsewhere_costs_what_the_list_says(self):
        async with Server(said("ok"), said("ok"), said("ok", usage=None)) as server:
            made = model(server, kind="openai")
            priced = await made.complete(ModelRequest((Message("user", "?"),), "gpt-4o-mini"))
            unknown = await made.complete(asking())
            silent = await made.complete(ModelRequest((Message("user", "?"),), "gpt-4o-mini"))
        assert priced.usage.total_cost_usd == pytest.approx((100 * 0.15 + 20 * 0.6) / 1e6)
        assert unknown.usage.total_cost_usd is None
        assert silent.usage.input_tokens == 0
        assert silent.usage.total_cost_usd is None

    def test_whether_a_price_is_known_is_known_beforehand(self):
        made = openai.connect({"model_id": "gpt-4o-mini"}, kind="openai")
        assert made.priced(None)
        assert not made.priced("nobody-knows-me")
        assert openai.connect({}, kind="ollama").priced("nobody-knows-me")


class TestStreams:
    async def test_text_is_told_while_it_comes(self):
        gate, ears = asyncio.Event(), Ears()
        events = [delta(reasoning_content="hm"), *pieces('{"a"', ': "é\u2028"}')]
        async with Server(stream(events, gates={2: gate})) as server:
            asked = asyncio.ensure_future(model(server).complete(asking(), ears))
            await ears.first.wait()
            assert not asked.done()
            gate.set()
            got = await asked
        assert server.asked[0].body["stream"] is True
        assert server.asked[0].body["stream_options"] == {"include_usage": True}
        assert ears.heard == [("hm", "thinking"), ('{"a"', "output"), (': "é\u2028"}', "output")]
        assert json.loads(got.text) == {"a": "é\u2028"}
        assert (got.usage.input_tokens, got.usage.output_tokens) == (100, 20)

    async def test_events_may_be_torn_anywhere(self):
        whole = b"".join(pieces("one ", "zwö ")).replace(b"\n", b"\r\n")
        async with Server(stream([whole[at : at + 7] for at in range(0, len(whole), 7)])) as server:
            assert (await model(server).complete(asking(), Ears())).text == "one zwö "

    async def test_a_server_that_does_not_stream_is_understood(self):
        ears = Ears()
        async with Server(said("all at once")) as server:
            assert (await model(server).complete(asking(), ears)).text == "all at once"
        assert ears.heard == []

    async def test_a_tool_call_arrives_in_pieces(self):
        first = {"index": 0, "id": "x", "function": {"name": "crm_find", "arguments": '{"ser'}}
        events = [
            delta(tool_calls=[first]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": 'ial": "A1"}'}}]),
            delta(finish="tool_calls"),
            event("[DONE]"),
        ]
        async with Server(stream(events)) as server:
            got = await model(server, native_tools=True).complete(asking(tools=(LOOKUP,)), Ears())
        assert got.calls == (ToolCall("x", "crm.find", {"serial": "A1"}),)
        assert got.finish == "tool"


class TestTools:
    async def test_tools_and_what_they_gave_go_over_the_wire(self):
        talk = ModelRequest(
            (
                Message("user", "?"),
                Message("assistant", "", (ToolCall("x", "crm.find", {"serial": "A1"}),)),
                Message("tool", "found", answers="x"),
            ),
            "m-1",
            tools=(LOOKUP,),
        )
        async with Server(answer(chat(None, [("y", "crm_find", {"serial": "B2"})]))) as server:
            got = await model(server, native_tools=True).complete(talk)
        body = server.asked[0].body
        assert body["tools"][0]["function"]["name"] == "crm_find"
        assert body["tools"][0]["function"]["parameters"] == LOOKUP.arguments
        (call,) = body["messages"][1]["tool_calls"]
        assert (call["id"], call["function"]["name"]) == ("x", "crm_find")
        assert json.loads(call["function"]["arguments"]) == {"serial": "A1"}
        assert body["messages"][2] == {"role": "tool", "content": "found", "tool_call_id": "x"}
        assert got.calls == (ToolCall("y", "crm.find", {"serial": "B2"}),)

    @pytest.mark.parametrize("ids", [("x", "y"), ("call_0", "call_0"), (None, None)])
    @pytest.mark.parametrize("whole", [True, False])
    async def test_streamed_calls_that_share_an_index_are_told_apart(self, ids, whole):
        """Some servers number every call of a reply 0."""
        calls = [(ids[0], '{"serial": "A1"}'), (ids[1], '{"serial": "A1"}')]
        events = []
        for id_, arguments in calls:
            parts = [arguments] if whole else ["", arguments[:5], arguments[5:]]
            head = {"index": 0, "id": id_, "function": {"name": "crm_find", "arguments": parts[0]}}
            events.append(delta(tool_calls=[head]))
            events += [delta(tool_calls=[{"index": 0, "function": {"arguments": p}}]) for p in parts[1:]]
        async with Server(stream([*events, delta(finish="tool_calls"), event("[DONE]")])) as server:
            made = model(server, native_tools=True)
            got = await made.complete(asking(tools=(LOOKUP,)), Ears())
        assert [call.arguments for call in got.calls] == [{"serial": "A1"}] * 2

    @pytest.mark.parametrize("arguments", ['{"serial": ', "[1]", "nonsense"])
    async def test_arguments_that_cannot_be_read_are_given_as_they_were_written(self, arguments):
        """Whoever carries out the calls refuses this one and answers the others."""
        calls = [("x", "crm_find", {"serial": "A1"}), ("y", "crm_find", arguments)]
        async with Server(answer(chat(None, calls))) as server:
            got = await model(server, native_tools=True).complete(asking(tools=(LOOKUP,)))
        assert [call.arguments for call in got.calls] == [{"serial": "A1"}, arguments]
        assert got.usage.input_tokens == 100

    async def test_arguments_that_were_cut_are_given_as_far_as_they_were_written(self):
        cut = answer(chat(None, [("y", "crm_find", '{"serial": ')], finish="length"))
        async with Server(cut) as server:
            got = await model(server, native_tools=True).complete(asking(tools=(LOOKUP,)))
        assert got.calls == (ToolCall("y", "crm.find", '{"serial": '),)
        assert (got.finish, got.usage.input_tokens) == ("length", 100)


class TestWhatAServerDoesNotTake:
    async def test_a_server_without_schemas_is_told_in_words_and_this_is_remembered(self):
        refusal = answer({"error": {"message": "response_format type json_schema is not supported"}}, 400)
        async with Server(refusal, said('{"fault": false}'), said('{"fault": true}')) as server:
            made = model(server)
            await made.complete(asking(schema=FORM))
            await made.complete(asking(schema=LOOSE))
        forms = [asked.body["response_format"]["type"] for asked in server.asked]
        assert forms == ["json_schema", "json_object", "json_object"]
        assert '"serial"' in server.asked[1].body["messages"][0]["content"]
        assert server.asked[1].body["messages"][0]["content"].startswith("Be brief.")

    async def test_a_server_that_takes_no_form_at_all_is_told_in_words_alone(self):
        refusal = answer({"error": {"message": "unknown field: response_format"}}, 422)
        async with Server(refusal, refusal, said("{}")) as server:
            await model(server).complete(asking(schema=FORM))
        assert "response_format" not in server.asked[2].body

    async def test_a_list_is_never_asked_for_as_an_object(self):
        refusal = answer({"error": {"message": "schema must be of type object"}}, 400)
        async with Server(refusal, said("[1]")) as server:
            await model(server).complete(asking(schema={"type": "array", "items": {"type": "integer"}}))
        assert "response_format" not in server.asked[1].body

    async def test_one_bad_schema_does_not_spoil_the_others(self):
        refusal = answer({"error": {"message": "invalid schema"}}, 400)
        async with Server(said("{}"), refusal, said("{}"), said("{}")) as server:
            made = model(server)
            for schema in (FORM, LOOSE, FORM):
                await made.complete(asking(schema=schema))
        forms = [asked.body["response_format"]["type"] for asked in server.asked]
        assert forms == ["json_schema", "json_schema", "json_object", "json_schema"]

    async def test_other_parameters_are_left_out_or_renamed(self):
        refusals = [
            answer({"error": {"message": "Unsupported", "param": "temperature"}}, 400),
            answer(
                {"error": {"message": "'max_tokens' is not supported; use 'max_completion_tokens'."}}, 400
            ),
            answer({"error": {"message": "max_completion_tokens is too large: at most 16"}}, 400),
            answer({"detail": "stream_options: extra fields not permitted"}, 422),
        ]
        async with Server(*refusals, stream(pieces("ok"))) as server:
            got = await model(server).complete(asking(), Ears())
        assert got.text == "ok"
        assert "max_tokens" in server.asked[0].body
        assert "max_completion_tokens" in server.asked[2].body
        assert server.asked[4].body.keys() == {"model", "messages", "stream"}

    @pytest.mark.parametrize(
        "refusal",
        [
            "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you "
            "provided 8192.",
            "Invalid max_tokens value, the valid range of max_tokens is [1, 4,096]",
            "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less "
            "than the `context_window` for this model",
            "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for m-3-20250101",
        ],
    )
    async def test_a_limit_that_is_too_large_is_lowered_to_what_the_model_accepts(self, refusal, caplog):
        """And it stays a limit: an answer without any may cost what nobody expected."""
        refused = answer({"error": {"message": refusal, "param": "max_tokens"}}, 400)
        async with Server(refused, said("a"), said("b"), said("c")) as server:
            made = model(server)
            with caplog.at_level("WARNING", "detent"):
                await made.complete(asking(max_tokens=8192))
            await made.complete(asking(max_tokens=8192))
            await made.complete(asking(max_tokens=100))
        assert [asked.body["max_tokens"] for asked in server.asked] == [8192, 4096, 4096, 100]
        assert "model.limit_lowered" in caplog.text

    async def test_a_limit_that_does_not_fit_the_context_is_left_to_the_server(self):
        """The numbers of such a refusal are no limit on the answer."""
        refused = {
            "error": {
                "message": "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum "
                "context length is 8000 tokens and your request has 3000 input tokens (8192 > 8000 - 3000)."
            }
        }
        async with Server(answer(refused, 400), said("a")) as server:
            await model(server).complete(asking(max_tokens=8192))
        assert "max_tokens" not in server.asked[1].body

    async def test_a_limit_is_lowered_once_only(self):
        refusals = [
            answer({"error": {"message": f"max_tokens is too large: at most {most}"}}, 400)
            for most in (8191, 8190, 8189, 8188)
        ]
        async with Server(*refusals[:2], said("a")) as server:
            await model(server).complete(asking(max_tokens=8192))
        assert [asked.body.get("max_tokens") for asked in server.asked] == [8192, 8191, None]

    async def test_a_server_that_never_agrees_is_not_asked_for_ever(self):
        refusals = [
            answer({"error": {"message": "no max_tokens, use max_completion_tokens"}}, 400),
            answer({"error": {"message": "no max_completion_tokens, use max_tokens"}}, 400),
            answer({"error": {"message": "no max_tokens here either"}}, 400),
        ]
        async with Server(*refusals) as server:
            error = await failing(model(server))
        assert len(server.asked) == 3
        assert not error.transient


class TestFailures:
    """A failure is transient when asking again may help."""

    async def test_too_many_requests_says_when_to_come_back(self):
        """D-55."""
        refusal = answer({"error": {"message": "slow down"}}, 429, {"retry-after": "3"})
        async with Server(refusal) as server:
            error = await failing(model(server))
        assert error.transient
        assert error.retry_after == 3.0
        assert "429" in str(error)
        assert "slow down" in str(error)

    async def test_a_date_to_come_back_at_is_understood(self):
        refusal = answer({}, 503, {"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"})
        async with Server(refusal) as server:
            error = await failing(model(server, clock=lambda: 90.0))
        assert error.transient
        assert error.retry_after == 30.0

    @pytest.mark.parametrize(
        ("status", "transient"), [(500, True), (529, True), (408, True), (401, False), (404, False)]
    )
    async def test_statuses(self, status, transient):
        async with Server(raw(b"<html>oops</html>", status)) as server:
            error = await failing(model(server))
        assert error.transient is transient
        assert "oops" not in str(error)

    async def test_neither_key_nor_question_is_ever_told(self, monkeypatch):
        monkeypatch.setenv("A_KEY", "sk-very-secret")
        refusals = [
            answer({"error": {"message": "Incorrect API key sk-very-secret"}}, 401),
            answer({"error": {"message": "cannot tokenize 'Erika Mustermann, Musterstrasse 1'"}}, 400),
        ]
        async with Server(*refusals) as server:
            made = model(server, api_key_env="A_KEY")
            for _ in refusals:
                error = await failing(made, asking("From: Erika Mustermann, Musterstrasse 1"))
                assert "very-secret" not in str(error)
                assert "Erika" not in str(error)
        assert server.asked[0].headers["authorization"] == "Bearer sk-very-secret"

    async def test_nobody_listens(self):
        async with Server() as server:
            pass
        assert (await failing(model(server))).transient

    async def test_the_connection_drops_before_the_answer(self):
        async with Server(of.drop) as server:
            assert (await failing(model(server))).transient

    async def test_the_server_dies_in_the_middle_of_a_stream(self):
        ears = Ears()
        async with Server(stream([delta(content="half an ")], ending="dies")) as server:
            error = await failing(model(server), on_text=ears)
        assert error.transient
        assert "half" not in str(error)

    @pytest.mark.parametrize("last", [delta(content="half"), b'data: {"choices": [{"del'])
    async def test_the_stream_ends_politely_without_an_end(self, last):
        async with Server(stream([delta(content="a"), last], ending="stops")) as server:
            error = await failing(model(server), on_text=Ears())
        assert error.transient

    async def test_the_body_is_shorter_than_was_said(self):
        async with Server(raw(b'{"choices": [', 200, missing=99)) as server:
            assert (await failing(model(server))).transient

    async def test_json_that_stops_in_the_middle(self):
        async with Server(raw(b'{"choices": [{"message": {"content": "hal')) as server:
            assert (await failing(model(server))).transient

    @pytest.mark.parametrize(
        "body",
        [
            b"<html>Welcome to the hotel</html>",
            b"\xff\xfe\x00",
            b'{"hello": 1}',
            b"[]",
            b'{"choices": [{"message": "hello"}]}',
        ],
    )
    async def test_garbage(self, body):
        async with Server(raw(body)) as server:
            error = await failing(model(server))
        assert not error.transient
        assert "hotel" not in str(error)

    @pytest.mark.parametrize("data", ["garbage", "[1]", '{"choices": [{"delta": 7}]}'])
    async def test_garbage_in_a_stream(self, data):
        async with Server(stream([delta(content="a"), event(data)])) as server:
            assert not (await failing(model(server), on_text=Ears())).transient

    @pytest.mark.parametrize(
        ("error", "transient"),
        [
            ({"code": 500, "message": "boom", "type": "server_error"}, True),
            ({"message": "slow", "type": "rate_limit_error"}, True),
            ({"message": "busy", "type": "overloaded_error"}, True),
            ({"code": 400, "message": "no", "type": "invalid_request_error"}, False),
            ("no", False),
        ],
    )
    async def test_an_error_inside_an_answer_or_a_stream(self, error, transient):
        inside = {"error": error}
        async with Server(answer(inside), stream([delta(content="a"), event(inside)])) as server:
            made = model(server)
            assert (await failing(made)).transient is transient
            assert (await failing(made, on_text=Ears())).transient is transient

    async def test_a_model_must_be_named_where_there_are_several(self):
        async with Server() as server:
            error = await failing(model(server), ModelRequest((Message("user", "?"),)))
        assert "model_id" in str(error)
        assert server.asked == []

    async def test_what_the_listener_raises_is_not_the_servers_fault(self):
        async def deaf(text, kind):
            raise ValueError("deaf")

        async with Server(stream(pieces("a"))) as server:
            with pytest.raises(ValueError, match="deaf"):
                await model(server).complete(asking(), deaf)


class TestCancelling:
    """D-35."""

    @pytest.mark.parametrize("streaming", [False, True])
    async def test_it_closes_the_connection(self, streaming):
        ears = Ears()
        reply = stream([delta(content="a")], ending="stalls") if streaming else of.stall
        async with Server(reply) as server:
            asked = asyncio.ensure_future(model(server).complete(asking(), ears if streaming else None))
            await (ears.first.wait() if streaming else server.asking.wait())
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await server.hung_up.wait()


class TestSettings:
    @pytest.mark.parametrize(
        ("kind", "url"),
        [
            ("openai", "https://api.openai.com/v1"),
            ("ollama", "http://127.0.0.1:11434/v1"),
            ("vllm", "http://127.0.0.1:8000/v1"),
            ("llamacpp", "http://127.0.0.1:8080/v1"),
        ],
    )
    def test_each_kind_has_its_usual_address(self, kind, url):
        assert openai.connect({}, kind=kind).base_url == url

    def test_a_missing_key_is_named(self, monkeypatch):
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        made = openai.connect({"model_id": "gpt-4o-mini"})
        assert made.available() == (False, "OPENAI_API_KEY is not set")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert made.available().ok

    def test_a_local_server_needs_no_key_unless_one_is_named(self, monkeypatch):
        monkeypatch.delenv("MY_KEY", raising=False)
        assert openai.connect({}, kind="llamacpp").available().ok
        assert (
            openai.connect({"api_key_env": "MY_KEY"}, kind="llamacpp").available().why_not
            == "MY_KEY is not set"
        )

    @pytest.mark.parametrize(
        ("options", "hint"),
        [
            ({"base_ulr": "x"}, "Did you mean 'base_url'?"),
            ({"base_url": "nowhere"}, "http or https"),
            ({"timeout": 0}, "more than 0"),
            ({"timeout": "soon"}, "'timeout'"),
            ({"native_tools": "yes"}, "'native_tools'"),
        ],
    )
    def test_wrong_options_are_refused(self, options, hint):
        with pytest.raises(ConfigurationError) as caught:
            openai.connect(options, kind="vllm")
        assert hint in str(caught.value)

    def test_an_unknown_kind_is_refused_with_the_nearest(self):
        with pytest.raises(ConfigurationError, match="Did you mean 'ollama'"):
            openai.connect({}, kind="olama")


class TestBounds:
    """Whatever a server sends, it is read only so far. Servers count what they were able to send."""

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_an_answer_without_end_is_cut_off_and_says_so(self, streaming):
        endless = of.Endless(event({"choices": [{"delta": {"content": "x" * 1000}}]}), streaming=streaming)
        async with Server(endless) as server:
            error = await failing(model(server), on_text=Ears() if streaming else None)
        assert "sent more than 4,194,304 bytes" in str(error)
        assert not error.transient
        assert endless.sent < 16 * 1024 * 1024

    async def test_how_much_may_be_sent_is_a_setting_and_grows_with_the_tokens_asked_for(self):
        endless = of.Endless(b"x" * 1000, streaming=False)
        async with Server(endless) as server:
            error = await failing(model(server, max_answer_bytes=50_000))
        assert "more than 50,000 bytes" in str(error)
        async with Server(of.Endless(b"x" * 1000, streaming=False)) as server:
            error = await failing(model(server), asking(max_tokens=8192))
        assert f"more than {8192 * 1024:,} bytes" in str(error)

    async def test_a_line_without_end_is_cut_off(self):
        endless = of.Endless(b"data: " + b"x" * 65536, streaming=True)
        async with Server(endless) as server:
            error = await failing(model(server), on_text=Ears())
        assert "more than" in str(error)
        assert endless.sent < 16 * 1024 * 1024

    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_a_small_bomb_stays_small(self, encoding):
        packer = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
        bomb = packer.compress(b"\0" * 200_000_000) + packer.flush()
        tracemalloc.start()
        async with Server(raw(bomb, headers={"content-encoding": encoding})) as server:
            error = await failing(model(server))
            assert server.asked[0].headers["accept-encoding"] == "identity"
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert "more than 4,194,304 bytes" in str(error)
        assert peak < 40_000_000

    async def test_an_answer_that_is_packed_all_the_same_is_read(self):
        packed = gzip.compress(json.dumps(chat("fine")).encode())
        async with Server(raw(packed, headers={"content-encoding": "gzip"})) as server:
            assert (await model(server).complete(asking())).text == "fine"

    async def test_an_answer_packed_in_an_unknown_way_cannot_be_decoded(self):
        async with Server(raw(b"?", headers={"content-encoding": "br"})) as server:
            assert "cannot be decoded" in str(await failing(model(server)))

    async def test_a_length_nobody_has_room_for_is_not_waited_for(self):
        async with Server(raw(b"{", missing=10**15)) as server:
            assert "sent more than" in str(await failing(model(server)))

    async def test_a_refusal_without_end_is_a_refusal(self):
        endless = of.Endless(b"x" * 1000, streaming=False, status=500)
        async with Server(endless) as server:
            error = await failing(model(server))
        assert "500" in str(error)
        assert endless.sent < 8 * 1024 * 1024

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_an_answer_that_drips_ends_with_the_time_for_the_whole(self, streaming):
        """Each byte comes in time, so that no limit on silence would ever end it."""
        drip = of.Endless(b": \n" if streaming else b" ", streaming=streaming, pause=0.01)
        async with Server(drip) as server:
            error = await failing(model(server, answer_timeout=0.3), on_text=Ears() if streaming else None)
        assert "did not finish its answer within 0.3 seconds" in str(error)
        assert error.transient

    async def test_headers_without_end_are_cut_off(self):
        endless = of.Endless(b"x-more: " + b"x" * 1000 + b"\r\n", streaming=False, headers_only=True)
        async with Server(endless) as server:
            error = await failing(model(server))
        assert "could not be reached, or broke off" in str(error)
        assert endless.sent < 8 * 1024 * 1024

    @pytest.mark.parametrize("status", of.REDIRECTS)
    async def test_a_redirect_is_not_followed_and_no_key_goes_along(self, monkeypatch, status):
        monkeypatch.setenv("OUR_KEY", "sk-secret")
        async with (
            Server(said("hello"), host="127.0.0.2") as other,
            Server(of.elsewhere(other, status, "/v1/chat/completions")) as server,
        ):
            error = await failing(model(server, api_key_env="OUR_KEY"))
            assert server.asked[0].headers["authorization"] == "Bearer sk-secret"
            assert other.asked == []
        assert str(status) in str(error)

    @pytest.mark.parametrize("option", ["answer_timeout", "max_answer_bytes"])
    def test_a_limit_of_nothing_is_refused(self, option):
        with pytest.raises(ConfigurationError, match=f"{option} must be more than 0"):
            openai.connect({"model_id": "m", option: 0}, kind="vllm")
