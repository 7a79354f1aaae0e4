"""Claude over real HTTP: a server on a loopback port that speaks Anthropic's Messages API."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from detent.adapters.models import claude
from detent.adapters.models.claude import MODEL_ID, ClaudeStepExecutor
from detent.adapters.models.model import ModelRequest
from detent.adapters.models.prices import PriceTable
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.conversation import Message, ToolCall
from detent.dispatch.executor import StepExecutor
from detent.dispatch.executor_errors import ExecutorError
from detent.engine.engine import Engine
from detent.kernel.errors import ConfigurationError
from tests.adapters.models import server as of
from tests.adapters.models.server import Reply, Server, answer, raw, stream
from tests.adapters.models.test_executor import Run
from tests.dispatch.samples import agent, settings
from tests.dispatch.test_acting import World, running

KEY = "sk-ant-very-secret"


@dataclass
class Report:
    fault: bool
    serial: str


CLOSED = {
    "type": "object",
    "properties": {"fault": {"type": "boolean"}},
    "required": ["fault"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"facts": {"type": "object"}}, "required": ["facts"]}
LOOKUP = AgentTool(
    "crm.find",
    "query",
    "Find a device.",
    {"type": "object", "properties": {"serial": {"type": "string"}}, "required": ["serial"]},
)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def use(id_: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def message(*blocks: dict[str, Any], stop: str | None = None, **usage: int) -> dict[str, Any]:
    """A whole message."""
    called = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL_ID, "content": list(blocks),
        "stop_reason": stop or ("tool_use" if called else "end_turn"), "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 20, **usage},
    }  # fmt: skip


def event(kind: str, **parts: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **parts})}\n\n".encode()


def opening(**usage: int) -> bytes:
    begun = {**message(), "stop_reason": None, "usage": {"input_tokens": 100, "output_tokens": 1, **usage}}
    return event("message_start", message=begun)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    return [
        event("content_block_start", index=index, content_block=start),
        *(event("content_block_delta", index=index, delta=one) for one in deltas),
        event("content_block_stop", index=index),
    ]


def wording(*pieces: str, index: int = 0) -> list[bytes]:
    return block(index, text(""), *({"type": "text_delta", "text": piece} for piece in pieces))


def closing(stop: str = "end_turn") -> list[bytes]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [event("message_delta", delta=delta, usage={"output_tokens": 20}), event("message_stop")]


def refusal(status: int, kind: str, said: str = "no", **headers: str) -> Reply:
    return answer({"type": "error", "error": {"type": kind, "message": said}}, status, headers)


def asking(**options: Any) -> ModelRequest:
    return ModelRequest((Message("system", "Be brief."), Message("user", "Is it broken?")), **options)


def model(server: Server, **options: Any) -> Any:
    return claude.connect({"base_url": server.url, **options})


class Ears:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.first = asyncio.Event()

    async def __call__(self, said: str, kind: str) -> None:
        self.heard.append((said, kind))
        self.first.set()


async def failing(
    server: Server,
    on_text: Any = None,
    max_answer_bytes: int | None = None,
    answer_timeout: float | None = None,
    **options: Any,
) -> ExecutorError:
    made = model(server, max_answer_bytes=max_answer_bytes, answer_timeout=answer_timeout)
    with pytest.raises(ExecutorError) as caught:
        await made.complete(asking(**options), on_text)
    await made.close()
    return caught.value


class TestAnswers:
    async def test_a_structured_answer(self):
        async with Server(answer(message(text('{"fault": true}')))) as server:
            made = model(server)
            got = await made.complete(asking(schema=CLOSED, max_tokens=77))
            await made.close()
        (asked,) = server.asked
        assert asked.path.startswith("/v1/messages")
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert asked.body["model"] == MODEL_ID
        assert asked.body["max_tokens"] == 77
        assert "temperature" not in asked.body  # this model refuses to be told one
        assert asked.body["output_config"]["format"] == {"type": "json_schema", "schema": CLOSED}
        assert "Be brief." in json.dumps(asked.body["system"])
        assert [one["role"] for one in asked.body["messages"]] == ["user"]
        assert json.loads(got.text) == {"fault": True}
        assert (got.finish, got.model_id, got.calls) == ("stop", MODEL_ID, ())

    async def test_a_limit_that_is_too_large_is_lowered_to_what_the_model_accepts(self, caplog):
        """Older models write less than the usual limit; the provider says how much, and it is remembered."""
        words = "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for m-3-2024"
        refusal = answer({"type": "error", "error": {"type": "invalid_request_error", "message": words}}, 400)
        async with Server(refusal, answer(message(text("1"))), answer(message(text("2")))) as server:
            made = model(server)
            with caplog.at_level("WARNING", "detent"):
                await made.complete(asking(max_tokens=8192))
            await made.complete(asking(max_tokens=8192))
            await made.close()
        assert [asked.body["max_tokens"] for asked in server.asked] == [8192, 4096, 4096]
        assert "model.limit_lowered" in caplog.text

    async def test_a_limit_that_is_refused_again_is_an_error(self):
        def refusal(most: int) -> Any:
            words = f"max_tokens: too many, the maximum is {most}"
            return answer(
                {"type": "error", "error": {"type": "invalid_request_error", "message": words}}, 400
            )

        async with Server(refusal(4096), refusal(2048)) as server:
            error = await failing(server, max_tokens=8192)
        assert len(server.asked) == 2
        assert not error.transient

    async def test_models_that_take_a_temperature_get_it(self):
        async with Server(answer(message(text("1")))) as server:
            await model(server).complete(asking(model_id="claude-haiku-4-5", temperature=0.5))
        assert server.asked[0].body["temperature"] == 0.5
        assert server.asked[0].body["model"] == "claude-haiku-4-5"

    async def test_an_object_for_anything_is_answered_through_a_tool(self):
        called = use("t1", "give_answer", facts={"colour": "red"})
        async with Server(answer(message(called))) as server:
            got = await model(server).complete(asking(schema=OPEN))
        (tool,) = server.asked[0].body["tools"]
        assert tool["name"] == "give_answer"
        assert tool["input_schema"]["properties"] == OPEN["properties"]
        assert json.loads(got.text) == {"facts": {"colour": "red"}}
        assert got.calls == ()

    async def test_what_is_no_object_is_asked_for_in_words(self):
        schema = {"type": "array", "items": {"type": "integer"}}
        async with Server(answer(message(text("[1]")))) as server:
            got = await model(server).complete(asking(schema=schema))
        assert '"array"' in json.dumps(server.asked[0].body["system"]).replace("\\", "")
        assert "output_config" not in server.asked[0].body
        assert got.text == "[1]"

    async def test_usage_counts_the_cache(self):
        """D-56: cached tokens are part of the input, and cost what they cost."""
        used = {"cache_read_input_tokens": 700, "cache_creation_input_tokens": 200}
        prices = PriceTable({"claude-*": {"input": 10, "output": 100, "cache_read": 1, "cache_write": 20}})
        async with Server(answer(message(text("1"), **used))) as server:
            made = claude.connect({"base_url": server.url}, prices=prices)
            usage = (await made.complete(asking())).usage
        assert (usage.input_tokens, usage.output_tokens) == (1000, 20)
        assert (usage.cache_read_tokens, usage.cache_write_tokens) == (700, 200)
        assert usage.total_cost_usd == pytest.approx((100 * 10 + 700 * 1 + 200 * 20 + 20 * 100) / 1e6)

    async def test_the_usual_price_is_known(self):
        async with Server(answer(message(text("1")))) as server:
            made = model(server)
            assert made.priced(None)
            assert (await made.complete(asking())).usage.total_cost_usd > 0

    @pytest.mark.parametrize(("stop", "finish"), [("max_tokens", "length"), ("refusal", "filter")])
    async def test_why_it_stopped(self, stop, finish):
        async with Server(answer(message(text("x"), stop=stop))) as server:
            assert (await model(server).complete(asking())).finish == finish


class TestTools:
    async def test_a_round_trip(self):
        talk = ModelRequest(
            (
                Message("user", "?"),
                Message("assistant", "Let me see.", (ToolCall("t1", "crm.find", {"serial": "A1"}),)),
                Message("tool", "found", answers="t1"),
            ),
            tools=(LOOKUP,),
            schema=CLOSED,
        )
        async with Server(answer(message(use("t2", "crm_find", serial="B2")))) as server:
            got = await model(server).complete(talk)
        body = server.asked[0].body
        assert [tool["name"] for tool in body["tools"]] == ["crm_find"]
        assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]
        said, called = body["messages"][1]["content"]
        assert said["text"] == "Let me see."
        assert (called["id"], called["name"], called["input"]) == ("t1", "crm_find", {"serial": "A1"})
        (result,) = body["messages"][2]["content"]
        assert (result["type"], result["tool_use_id"]) == ("tool_result", "t1")
        assert "found" in json.dumps(result["content"])
        assert got.calls == (ToolCall("t2", "crm.find", {"serial": "B2"}),)
        assert got.finish == "tool"

    async def test_a_step_with_tools_from_beginning_to_end(self):
        run = Run()
        replies = [
            answer(message(use("t1", "crm_find", serial="A1"))),
            answer(message(text('{"fault": true, "serial": "A1"}'))),
        ]
        async with Server(*replies) as server:
            made = ClaudeStepExecutor(base_url=server.url)
            result = await run(
                lambda tools: made.execute(
                    step_name="s", agent_name="dispatch", prompt="?", toolbox=tools, output_schema=Report
                )
            )
            await made.close()
        assert result.output == {"fault": True, "serial": "A1"}
        assert run.looked == [{"serial": "A1"}]
        assert result.usage.input_tokens == 200

    async def test_a_visit_of_two_rounds_in_which_every_call_has_the_same_id(self):
        """Every request is one that the provider accepts: each call has its own id and one result."""
        world = World()
        part = {"type": "input_json_delta", "partial_json": '{"command": "make test"}'}
        first, second, third = (block(index, use("t1", "run"), part) for index in range(3))
        replies = [
            stream([opening(), *first, *closing("tool_use")]),
            stream([opening(), *wording("Once more."), *second, *third, *closing("tool_use")]),
            stream([opening(), *wording('{"exit_code": 0, "stdout": ""}'), *closing()]),
        ]
        async with Server(*replies) as server:
            made = ClaudeStepExecutor(base_url=server.url)
            dispatch = settings(made, agent("approver"))
            flow = running(world, side=AgentSide(rounds=5))
            async with Engine(MemoryStore(), [flow], dispatch=dispatch) as engine:
                run = await engine.run("flow")
            await made.close()
        assert world.ran == ["make test"] * 3
        assert run.data == {"exit_code": 3, "stdout": "make test in ."}
        seen: list[str] = []
        open_calls: list[str] = []
        for said in server.asked[2].body["messages"]:
            parts = said["content"] if isinstance(said["content"], list) else []
            answered = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
            assert answered == open_calls
            open_calls = [part["id"] for part in parts if part["type"] == "tool_use"]
            seen += open_calls
        assert open_calls == []
        assert len(set(seen)) == len(seen) == 3


class TestStreams:
    async def test_text_is_told_while_it_comes(self):
        gate, ears = asyncio.Event(), Ears()
        thought = block(0, {"type": "thinking", "thinking": "", "signature": ""},
                        {"type": "thinking_delta", "thinking": "hm"})  # fmt: skip
        events = [
            opening(cache_read_input_tokens=50),
            *thought,
            *wording('{"fault"', ": true}", index=1),
            *closing(),
        ]
        async with Server(stream(events, gates={6: gate})) as server:
            asked = asyncio.ensure_future(model(server).complete(asking(schema=CLOSED), ears))
            await ears.first.wait()
            assert not asked.done()
            gate.set()
            got = await asked
        assert server.asked[0].body["stream"] is True
        assert ears.heard == [("hm", "thinking"), ('{"fault"', "output"), (": true}", "output")]
        assert json.loads(got.text) == {"fault": True}
        assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.cache_read_tokens) == (150, 20, 50)

    async def test_an_answer_given_through_a_tool_is_told_too(self):
        ears = Ears()
        parts = ({"type": "input_json_delta", "partial_json": piece} for piece in ('{"facts"', ": {}}"))
        events = [opening(), *block(0, use("t1", "give_answer"), *parts), *closing("tool_use")]
        async with Server(stream(events)) as server:
            got = await model(server).complete(asking(schema=OPEN), ears)
        assert "".join(said for said, _ in ears.heard) == '{"facts": {}}'
        assert json.loads(got.text) == {"facts": {}}

    async def test_a_tool_call_arrives_in_pieces_and_is_no_text(self):
        ears = Ears()
        parts = ({"type": "input_json_delta", "partial_json": piece} for piece in ('{"serial"', ': "A1"}'))
        events = [opening(), *block(0, use("t1", "crm_find"), *parts), *closing("tool_use")]
        async with Server(stream(events)) as server:
            got = await model(server).complete(asking(tools=(LOOKUP,)), ears)
        assert got.calls == (ToolCall("t1", "crm.find", {"serial": "A1"}),)
        assert ears.heard == []

    async def test_a_call_that_was_cut_is_given_as_far_as_it_was_written(self):
        parts = [{"type": "input_json_delta", "partial_json": '{"serial"'}]
        events = [opening(), *block(0, use("t1", "crm_find"), *parts), *closing("max_tokens")]
        async with Server(stream(events)) as server:
            got = await model(server).complete(asking(tools=(LOOKUP,)), Ears())
        assert got.calls == (ToolCall("t1", "crm.find", '{"serial"'),)
        assert (got.finish, got.usage.input_tokens) == ("length", 100)


class TestFailures:
    async def test_too_many_requests_says_when_to_come_back_and_is_asked_once(self):
        """D-55: the library's own retries are off."""
        async with Server(refusal(429, "rate_limit_error", "slow down", **{"retry-after": "7"})) as server:
            error = await failing(server)
        assert (error.transient, error.retry_after) == (True, 7.0)
        assert len(server.asked) == 1

    @pytest.mark.parametrize(
        ("status", "kind", "transient"),
        [
            (529, "overloaded_error", True),
            (500, "api_error", True),
            (400, "invalid_request_error", False),
            (401, "authentication_error", False),
            (402, "billing_error", False),
            (403, "permission_error", False),
            (404, "not_found_error", False),
        ],
    )
    @pytest.mark.parametrize("streaming", [False, True])
    async def test_statuses(self, status, kind, transient, streaming):
        async with Server(refusal(status, kind)) as server:
            error = await failing(server, Ears() if streaming else None)
        assert error.transient is transient
        assert str(status) in str(error)
        assert len(server.asked) == 1

    async def test_overload_in_the_middle_of_a_stream(self):
        broken = event("error", error={"type": "overloaded_error", "message": "busy"})
        async with Server(stream([opening(), *wording("half"), broken])) as server:
            error = await failing(server, Ears())
        assert error.transient
        assert "529" in str(error)

    async def test_neither_key_nor_question_is_ever_told(self):
        replies = [refusal(401, "authentication_error", f"bad key {KEY}"),
                   refusal(400, "invalid_request_error", "cannot read 'Is it broken?' at all")]  # fmt: skip
        async with Server(*replies) as server:
            for _ in replies:
                error = await failing(server)
                assert "secret" not in str(error)
                assert "broken?" not in str(error)

    @pytest.mark.parametrize("ending", ["dies", "stops"])
    async def test_the_server_is_killed_in_the_middle_of_its_answer(self, ending):
        ears = Ears()
        async with Server(stream([opening(), *wording("half an ")], ending=ending)) as server:
            error = await failing(server, ears)
        assert error.transient
        assert "half" not in str(error)

    async def test_the_server_is_killed_before_its_answer(self):
        async with Server(of.drop, of.drop) as server:
            assert (await failing(server)).transient
            assert (await failing(server, Ears())).transient

    async def test_nobody_listens(self):
        async with Server() as server:
            pass
        assert (await failing(server)).transient

    async def test_a_body_shorter_than_was_said(self):
        async with Server(raw(b'{"id": "m', 200, {"content-type": "application/json"}, missing=99)) as server:
            assert (await failing(server)).transient

    @pytest.mark.parametrize(
        ("body", "kind", "transient"),
        [
            (b"<html>Welcome to the hotel</html>", "text/html", False),
            (b"<html>Welcome to the hotel</html>", "application/json", False),
            (b'{"id": "msg_1", "content": [{"ty', "application/json", True),
            (b'{"hello": "hotel"}', "application/json", False),
        ],
    )
    async def test_garbage(self, body, kind, transient):
        async with Server(raw(body, 200, {"content-type": kind})) as server:
            error = await failing(server)
        assert error.transient is transient
        assert "hotel" not in str(error)

    @pytest.mark.parametrize(
        "events",
        [
            [b"data: garbage\n\n"],
            [event("content_block_stop", index=0)],
            [opening(), b"event: content_block_delta\ndata: {{\n\n"],
        ],
    )
    async def test_garbage_in_a_stream(self, events):
        async with Server(stream(events)) as server:
            await failing(server, Ears())

    @pytest.mark.parametrize("streaming", [False, True])
    async def test_cancelling_closes_the_connection(self, streaming):
        """D-35."""
        ears = Ears()
        reply = stream([opening(), *wording("a")], ending="stalls") if streaming else of.stall
        async with Server(reply) as server:
            asked = asyncio.ensure_future(model(server).complete(asking(), ears if streaming else None))
            await (ears.first.wait() if streaming else server.asking.wait())
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await server.hung_up.wait()


class TestBounds:
    @pytest.mark.parametrize("streaming", [True, False])
    async def test_an_answer_without_end_is_cut_off_and_says_so(self, streaming):
        piece = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x" * 1000})
        first = opening() + block(0, text(""))[0] if streaming else b""
        endless = of.Endless(piece if streaming else b"x" * 1000, streaming=streaming, first=first)
        async with Server(endless) as server:
            error = await failing(server, Ears() if streaming else None, max_answer_bytes=100_000)
        assert "sent more than 100,000 bytes" in str(error)
        assert not error.transient
        assert endless.sent < 8 * 1024 * 1024

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_an_answer_that_drips_for_ever_is_given_up(self, streaming):
        endless = of.Endless(b": ping\n\n" if streaming else b" ", streaming=streaming, pause=0.01)
        async with Server(endless) as server:
            error = await failing(server, Ears() if streaming else None, answer_timeout=0.3)
        assert "did not finish its answer within 0.3 seconds" in str(error)
        assert error.transient

    @pytest.mark.parametrize("status", of.REDIRECTS)
    async def test_a_redirect_is_not_followed_and_no_key_goes_along(self, status):
        async with (
            Server(answer(message(text("hello"))), host="127.0.0.2") as other,
            Server(of.elsewhere(other, status, "/v1/messages")) as server,
        ):
            await failing(server)
            assert KEY in str(server.asked[0].headers)
            assert other.asked == []

    async def test_a_packed_answer_was_not_asked_for(self):
        async with Server(raw(b"bomb", headers={"content-encoding": "gzip"})) as server:
            assert "broke off" in str(await failing(server))
            assert server.asked[0].headers["accept-encoding"] == "identity"

    async def test_a_length_nobody_has_room_for_is_not_waited_for(self):
        async with Server(raw(b"{", missing=10**15)) as server:
            assert "sent more than" in str(await failing(server))


class TestTheExecutor:
    def test_it_is_a_step_executor(self):
        """D-14."""
        assert isinstance(ClaudeStepExecutor(), StepExecutor)

    def test_a_missing_key_is_named(self, monkeypatch):
        """D-31."""
        assert ClaudeStepExecutor().available().ok
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        assert ClaudeStepExecutor().available() == (False, "ANTHROPIC_API_KEY is not set")
        assert ClaudeStepExecutor(api_key_env="MY_KEY").available() == (False, "MY_KEY is not set")

    async def test_without_a_key_nothing_is_sent(self, monkeypatch):
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        async with Server() as server:
            with pytest.raises(ExecutorError, match="ANTHROPIC_API_KEY is not set"):
                await ClaudeStepExecutor(base_url=server.url).execute(
                    step_name="s", agent_name="dispatch", prompt="?"
                )
        assert server.asked == []

    def test_making_one_imports_no_provider(self):
        """D-13."""
        code = (
            "import sys; from detent.adapters.models.claude import ClaudeStepExecutor;"
            "ClaudeStepExecutor().available();"
            "heavy = ('anthropic', 'pydantic_ai', 'httpx2', 'genai_prices');"
            "print([name for name in heavy if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    @pytest.mark.parametrize(
        ("options", "hint"),
        [
            ({"modelid": "x"}, "Did you mean 'model_id'?"),
            ({"base_url": "x"}, "http"),
            ({"timeout": -1}, "more than 0"),
        ],
    )
    def test_wrong_options_are_refused(self, options, hint):
        with pytest.raises(ConfigurationError) as caught:
            claude.connect(options)
        assert hint in str(caught.value)
