"""Models through pydantic-ai's model layer: over real HTTP, and on models the library itself ships."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelResponse, SystemPromptPart, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage

from detent.adapters.models import pydantic_ai
from detent.adapters.models.model import ModelRequest
from detent.adapters.models.prices import PriceTable
from detent.adapters.models.pydantic_ai import Made, PydanticAIModel
from detent.dispatch.conversation import Message, ToolCall
from detent.dispatch.executor_errors import ExecutorError
from detent.kernel.errors import ConfigurationError
from tests.adapters.models.server import REDIRECTS, Endless, Server, answer, elsewhere, raw, stream
from tests.adapters.models.test_claude import (
    CLOSED,
    LOOKUP,
    OPEN,
    Ears,
    asking,
    block,
    closing,
    event,
    message,
    opening,
    refusal,
    text,
    use,
    wording,
)

NAME = "anthropic:claude-haiku-5-5"


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-fake")


class Listening:
    """A model of the library that answers by a function, and what it was asked."""

    def __init__(self, *parts: Any, **profile: Any) -> None:
        self.messages: list[Any] = []
        self.info: Any = None

        def reply(messages: list[Any], info: Any) -> ModelResponse:
            self.messages, self.info = messages, info
            return ModelResponse(parts=list(parts), usage=RequestUsage(input_tokens=10, output_tokens=2))

        self.made = FunctionModel(reply, model_name="f-1", profile=cast(ModelProfile, profile))
        self.model = PydanticAIModel(lambda name: Made(self.made), default_id="f-1")


@pytest.mark.usefixtures("key")
class TestOverHTTP:
    async def test_a_provider_and_model_by_name(self, monkeypatch):
        async with Server(answer(message(text('{"fault": true}')))) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            made = pydantic_ai.connect({"model": NAME})
            assert made.available().ok
            got = await made.complete(asking(schema=CLOSED))
            await made.close()
        assert server.asked[0].body["model"] == "claude-haiku-5-5"
        assert server.asked[0].body["output_config"]["format"]["type"] == "json_schema"
        assert json.loads(got.text) == {"fault": True}
        assert got.usage.total_cost_usd > 0

    @pytest.mark.parametrize("model_id", ["claude-haiku-4-5", "anthropic:claude-haiku-4-5"])
    async def test_another_model_of_the_same_provider(self, monkeypatch, model_id):
        async with Server(answer(message(use("t1", "crm_find", serial="A1")))) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            made = pydantic_ai.connect({"model": NAME})
            got = await made.complete(asking(model_id=model_id, tools=(LOOKUP,)))
            await made.close()
        assert server.asked[0].body["model"] == "claude-haiku-4-5"
        assert got.calls == (ToolCall("t1", "crm.find", {"serial": "A1"}),)

    async def test_a_stream(self, monkeypatch):
        ears = Ears()
        async with Server(stream([opening(), *wording("a", "b"), *closing()])) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            made = pydantic_ai.connect({"model": NAME})
            assert (await made.complete(asking(), ears)).text == "ab"
            await made.close()
        assert ears.heard == [("a", "output"), ("b", "output")]

    async def test_the_librarys_own_retries_are_off(self, monkeypatch):
        """D-55."""
        async with Server(refusal(529, "overloaded_error", **{"retry-after": "4"})) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            made = pydantic_ai.connect({"model": NAME})
            with pytest.raises(ExecutorError) as caught:
                await made.complete(asking())
            await made.close()
        assert (caught.value.transient, caught.value.retry_after) == (True, 4.0)
        assert len(server.asked) == 1


@pytest.mark.parametrize("arguments", ['{"serial": ', "nonsense", "[1]"])
async def test_arguments_that_cannot_be_read_are_given_as_they_were_written(arguments):
    model = Listening(ToolCallPart("crm_find", {"serial": "A1"}), ToolCallPart("crm_find", arguments)).model
    got = await model.complete(asking(tools=(LOOKUP,)))
    assert [call.arguments for call in got.calls] == [{"serial": "A1"}, arguments]


@pytest.mark.usefixtures("key")
class TestBounds:
    @pytest.mark.parametrize("streaming", [True, False])
    async def test_an_answer_without_end_is_cut_off_and_says_so(self, monkeypatch, streaming):
        piece = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x" * 1000})
        first = opening() + block(0, text(""))[0] if streaming else b""
        endless = Endless(piece if streaming else b"x" * 1000, streaming=streaming, first=first)
        async with Server(endless) as server:
            error = await failing(
                monkeypatch, server, Ears() if streaming else None, max_answer_bytes=100_000
            )
        assert "sent more than 100,000 bytes" in str(error)
        assert not error.transient
        assert endless.sent < 8 * 1024 * 1024

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_an_answer_that_drips_for_ever_is_given_up(self, monkeypatch, streaming):
        endless = Endless(b": ping\n\n" if streaming else b" ", streaming=streaming, pause=0.01)
        async with Server(endless) as server:
            error = await failing(monkeypatch, server, Ears() if streaming else None, answer_timeout=0.3)
        assert "did not finish its answer within 0.3 seconds" in str(error)
        assert error.transient

    @pytest.mark.parametrize("status", REDIRECTS)
    async def test_a_redirect_is_not_followed_and_no_key_goes_along(self, monkeypatch, status):
        async with (
            Server(answer(message(text("hello"))), host="127.0.0.2") as other,
            Server(elsewhere(other, status, "/v1/messages")) as server,
        ):
            await failing(monkeypatch, server)
            assert "sk-ant-fake" in str(server.asked[0].headers)
            assert other.asked == []

    async def test_a_length_nobody_has_room_for_is_not_waited_for(self, monkeypatch):
        async with Server(raw(b"{", missing=10**15)) as server:
            assert "sent more than" in str(await failing(monkeypatch, server))

    async def test_a_provider_without_such_a_client_is_read_piece_by_piece_up_to_a_limit(self):
        async def endless(messages: Any, info: Any) -> Any:
            while True:
                yield "x" * 1_000_000

        served = FunctionModel(stream_function=endless, model_name="f-1")
        model = PydanticAIModel(lambda name: Made(served, counted=False), default_id="f-1")
        with pytest.raises(ExecutorError, match="wrote more than 16,777,216 characters"):
            await model.complete(asking())


async def failing(monkeypatch: Any, server: Server, on_text: Any = None, **options: Any) -> ExecutorError:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    made = pydantic_ai.connect({"model": NAME, **options})
    with pytest.raises(ExecutorError) as caught:
        await made.complete(asking(), on_text)
    await made.close()
    return caught.value


class TestForms:
    """The tightest way there is of holding an answer to its schema."""

    async def test_a_model_that_decodes_under_schemas_does(self):
        heard = Listening(TextPart("{}"), supports_json_schema_output=True)
        await heard.model.complete(asking(schema=CLOSED))
        assert heard.info.model_request_parameters.output_mode == "native"

    @pytest.mark.parametrize(("schema", "native"), [(CLOSED, False), (OPEN, True)])
    async def test_else_it_answers_through_a_tool(self, schema, native):
        heard = Listening(ToolCallPart("give_answer", {"a": 1}), supports_json_schema_output=native)
        got = await heard.model.complete(asking(schema=schema))
        assert [tool.name for tool in heard.info.output_tools] == ["give_answer"]
        assert json.loads(got.text) == {"a": 1}

    async def test_else_it_is_told_in_words(self):
        heard = Listening(TextPart("{}"), supports_json_schema_output=False, supports_tools=False)
        await heard.model.complete(asking(schema=CLOSED))
        assert heard.info.model_request_parameters.output_mode == "prompted"
        assert "fault" in heard.info.model_request_parameters.prompted_output_instructions

    async def test_without_a_schema_there_is_none(self):
        heard = Listening(TextPart("words"))
        assert (await heard.model.complete(asking())).text == "words"
        assert heard.info.model_request_parameters.output_mode == "text"


class TestConversations:
    async def test_messages_become_the_librarys(self):
        heard = Listening(TextPart("ok"))
        await heard.model.complete(
            ModelRequest(
                (
                    Message("system", "S"),
                    Message("user", "U"),
                    Message(
                        "assistant", "T", (ToolCall("a", "crm.find", {"x": 1}), ToolCall("b", "crm.find", {}))
                    ),
                    Message("tool", "ra", answers="a"),
                    Message("tool", "rb", answers="b"),
                ),
                tools=(LOOKUP,),
            )
        )
        first, said, results = heard.messages
        assert [type(part) for part in first.parts] == [SystemPromptPart, UserPromptPart]
        assert [type(part) for part in said.parts] == [TextPart, ToolCallPart, ToolCallPart]
        assert [(part.tool_name, part.content, part.tool_call_id) for part in results.parts] == [
            ("crm_find", "ra", "a"),
            ("crm_find", "rb", "b"),
        ]
        assert [tool.name for tool in heard.info.function_tools] == ["crm_find"]

    async def test_models_that_reason_are_told_no_temperature(self):
        plain, reasoning = Listening(TextPart("1")), Listening(TextPart("1"), openai_supports_reasoning=True)
        for heard in (plain, reasoning):
            await heard.model.complete(asking(temperature=0.25, max_tokens=5))
        assert plain.info.model_settings["temperature"] == 0.25
        assert "temperature" not in reasoning.info.model_settings
        assert plain.info.model_settings["max_tokens"] == 5

    async def test_own_prices_count(self):
        heard = Listening(TextPart("1"))
        prices = PriceTable({"f-1": {"input": 1e6, "output": 1e6}})
        made = PydanticAIModel(lambda name: Made(heard.made), default_id="f-1", prices=prices)
        assert (await made.complete(asking())).usage.total_cost_usd == 12.0
        assert made.priced(None)
        assert (await heard.model.complete(asking())).usage.total_cost_usd is None

    async def test_whatever_the_library_raises_leaves_as_an_executor_error(self):
        def reply(messages, info):
            raise RuntimeError("do not tell this")

        made = PydanticAIModel(lambda name: Made(FunctionModel(reply)), default_id="f-1")
        with pytest.raises(ExecutorError) as caught:
            await made.complete(asking())
        assert "do not tell" not in str(caught.value)
        assert not caught.value.transient


class TestSettings:
    def test_a_missing_key_is_named(self, monkeypatch):
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        ok, why_not = pydantic_ai.connect({"model": NAME}).available()
        assert not ok
        assert "ANTHROPIC_API_KEY" in why_not

    def test_an_unknown_provider_is_told(self):
        ok, why_not = pydantic_ai.connect({"model": "nobody:x"}).available()
        assert not ok
        assert "nobody:x" in why_not

    async def test_a_provider_that_is_not_installed_is_told(self):
        made = pydantic_ai.connect({"model": "groq:llama"})
        assert not made.available().ok
        with pytest.raises(ExecutorError, match="groq"):
            await made.complete(asking())

    @pytest.mark.parametrize(
        ("options", "hint"),
        [
            ({}, "needs the option `model`"),
            ({"model": "claude"}, "anthropic:"),
            ({"modell": "a:b"}, "Did you mean"),
            ({"model": "a:b", "answer_timeout": 0}, "answer_timeout must be more than 0 seconds"),
        ],
    )
    def test_wrong_options_are_refused(self, options, hint):
        with pytest.raises(ConfigurationError) as caught:
            pydantic_ai.connect(options)
        assert hint in str(caught.value)
