"""Parts of a reply that only its provider understands: kept as they came, and sent back to it alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from detent.adapters.models import claude, openai, pydantic_ai
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.pydantic_ai import Made, PydanticAIModel
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.conversation import Message, ModelAnswer
from detent.dispatch.executor import Availability, ReplyRequest
from detent.engine.engine import Engine
from detent.kernel.entries import Entry, Recorded
from detent.kernel.plain import encode
from detent.kernel.status import Status
from tests.adapters.models import strict
from tests.adapters.models.server import Reply, Server, answer, chat, delta, event, said, stream
from tests.adapters.models.test_acting_over_http import (
    DONE,
    Silence,
    finished,
    started_and_stopped,
)
from tests.adapters.models.test_claude import block, closing, message, opening, use
from tests.adapters.models.test_claude import event as claude_event
from tests.adapters.models.test_claude import text as claude_text
from tests.dispatch.samples import agent, capture, settings
from tests.dispatch.test_acting import World, running
from tests.engine.conftest import journal

LINT = ("run", {"command": "make lint"})
"""What the handler would not do."""
THOUGHT = 'The tests come first; ünïcode \u2028 and "quotes" too.'
ANSWER = json.dumps(DONE)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-fake")


# -- protocols ----------------------------------------------------------------------------------------------


class Gemini:
    """Gemini behind OpenAI's protocol."""

    def __init__(self, monkeypatch: Any, streaming: bool = False) -> None:
        self.refuses = strict.Gemini()
        self.streaming = streaming

    def calling(self, *calls: tuple[str, Any]) -> Reply:
        body = self.refuses.sign(chat("", [("function-call-1", name, args) for name, args in calls]))
        return _streamed(body) if self.streaming else answer(body)

    def concluding(self) -> Reply:
        return said(ANSWER)

    def executor(self, server: Server, model_id: str = "gemini-3") -> ModelStepExecutor:
        options = {"base_url": f"{server.url}/v1", "model_id": model_id, "native_tools": True}
        return ModelStepExecutor(openai.connect({**options, "api_key_env": "ANTHROPIC_API_KEY"}))


class DeepSeek(Gemini):
    """DeepSeek, which wants its reasoning back."""

    def __init__(self, monkeypatch: Any, streaming: bool = False) -> None:
        super().__init__(monkeypatch, streaming)
        self.refuses: Any = strict.deepseek

    def calling(self, *calls: tuple[str, Any]) -> Reply:
        body = chat("", [("call_0", name, args) for name, args in calls])
        body["choices"][0]["message"]["reasoning_content"] = THOUGHT
        return _streamed(body) if self.streaming else answer(body)


class Claude:
    """Claude with thinking."""

    def __init__(self, monkeypatch: Any, streaming: bool = True) -> None:
        self.refuses: Any = strict.claude
        self.streaming = streaming
        self.monkeypatch = monkeypatch

    def calling(self, *calls: tuple[str, Any]) -> Reply:
        blocks = [
            strict.claude_thinking(THOUGHT),
            {"type": "redacted_thinking", "data": "opaque+data=="},
            claude_text("I look."),
            strict.claude_thinking("Once more."),
            *(use(f"toolu_{number}", name, **args) for number, (name, args) in enumerate(calls)),
        ]
        return _claude_streamed(blocks) if self.streaming else answer(message(*blocks))

    def concluding(self) -> Reply:
        if self.streaming:
            events = block(0, claude_text(""), {"type": "text_delta", "text": ANSWER})
            return stream([opening(), *events, *closing()])
        return answer(message(claude_text(ANSWER)))

    def executor(self, server: Server) -> ModelStepExecutor:
        return ModelStepExecutor(claude.connect({"base_url": server.url}))


class LibraryClaude(Claude):
    """Claude by the name that pydantic-ai knows it under."""

    def executor(self, server: Server) -> ModelStepExecutor:
        self.monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        return ModelStepExecutor(pydantic_ai.connect({"model": "anthropic:claude-haiku-5-5"}))


def _streamed(body: dict[str, Any]) -> Reply:
    """A chat completion in pieces, its signatures and thoughts among them."""
    said_message = body["choices"][0]["message"]
    thought = said_message.get("reasoning_content", "")
    events = [delta(reasoning_content=piece) for piece in (thought[:9], thought[9:]) if piece]
    for index, call in enumerate(said_message["tool_calls"]):
        arguments = call["function"]["arguments"]
        head = {**call, "index": index, "function": {**call["function"], "arguments": arguments[:3]}}
        rest = {"index": index, "function": {"arguments": arguments[3:]}}
        events += [delta(tool_calls=[head]), delta(tool_calls=[rest])]
    return stream([*events, delta(finish="tool_calls"), event("[DONE]")])


def _claude_streamed(blocks: list[dict[str, Any]]) -> Reply:
    events = [opening()]
    for index, whole in enumerate(blocks):
        if whole["type"] == "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": whole["thinking"][:4]},
                {"type": "thinking_delta", "thinking": whole["thinking"][4:]},
                {"type": "signature_delta", "signature": whole["signature"]},
            ]
            events += block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)
        elif whole["type"] == "text":
            events += block(index, claude_text(""), {"type": "text_delta", "text": whole["text"]})
        elif whole["type"] == "tool_use":
            arguments = {"type": "input_json_delta", "partial_json": json.dumps(whole["input"])}
            events += block(index, {**whole, "input": {}}, arguments)
        else:
            events += block(index, whole)
    events.append(
        claude_event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 20})
    )
    return stream([*events, claude_event("message_stop")])


PROTOCOLS = pytest.mark.parametrize("protocol", [Gemini, DeepSeek, Claude, LibraryClaude])


class Deaf:
    """An executor that is told of no text, so that nothing is streamed."""

    def __init__(self, inner: ModelStepExecutor) -> None:
        self.inner = inner

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        quiet = ReplyRequest(
            request.step_name, request.agent_name, request.messages, request.tools, request.schema,
            request.config,
        )  # fmt: skip
        return await self.inner.reply(quiet)

    def available(self) -> Availability:
        return self.inner.available()


# -- sent back ----------------------------------------------------------------------------------------------


@PROTOCOLS
@pytest.mark.parametrize("streaming", [True, False])
async def test_what_a_provider_wants_back_is_sent_back(protocol, streaming, monkeypatch):
    """It refuses a call whose signature is missing or changed."""
    of, world = protocol(monkeypatch, streaming), World()
    replies = [of.calling(LINT), of.calling(LINT, ("read", {})), of.concluding()]
    async with Server(*replies, refuses=of.refuses) as server:
        executor = of.executor(server)
        run, _ = await finished(
            running(world, side=AgentSide(rounds=5)), executor if streaming else Deaf(executor)
        )
        await executor.close()
    assert (run.status, run.data["exit_code"], world.ran) == (Status.SUCCEEDED, 2, ["make lint"] * 2)
    assert (server.refused, len(server.asked)) == (0, 3)


@PROTOCOLS
async def test_after_a_resume_it_is_there_again(protocol, monkeypatch):
    of, world = protocol(monkeypatch), World()
    store, silence = MemoryStore(), Silence()
    flow = running(world, side=AgentSide(rounds=5))
    replies = [of.calling(LINT), silence, of.concluding()]
    async with Server(*replies, refuses=of.refuses) as server:
        await started_and_stopped(flow, of.executor(server), store, silence)
        run, _ = await finished(flow, of.executor(server), store=store)
    assert (run.status, world.ran, server.refused) == (Status.SUCCEEDED, ["make lint"], 0)
    assert server.asked[1].body == server.asked[2].body


async def test_parts_keep_their_order(monkeypatch):
    of = Claude(monkeypatch)
    async with Server(of.calling(LINT), of.concluding(), refuses=of.refuses) as server:
        await finished(running(World(), side=AgentSide(rounds=5)), of.executor(server))
    sent = server.asked[1].body["messages"][1]["content"]
    kinds = [part["type"] for part in sent]
    assert kinds == ["thinking", "redacted_thinking", "text", "thinking", "tool_use"]
    assert (sent[0]["thinking"], sent[1]["data"]) == (THOUGHT, "opaque+data==")


async def test_thoughts_that_nobody_wants_back_are_not_sent_as_text():
    asked: list[Any] = []

    def reply(messages: list[Any], info: Any) -> ModelResponse:
        asked.append(messages)
        if len(asked) > 1:
            return ModelResponse(parts=[TextPart(ANSWER)])
        return ModelResponse(parts=[ThinkingPart("hm"), ToolCallPart("run", {"command": "make lint"})])

    model = PydanticAIModel(lambda name: Made(FunctionModel(reply)), default_id="f-1")
    run, _ = await finished(running(World(), side=AgentSide(rounds=5)), Deaf(ModelStepExecutor(model)))
    assert run.status is Status.SUCCEEDED
    assert [type(part).__name__ for part in asked[1][-2].parts] == ["ToolCallPart"]


# -- kept ---------------------------------------------------------------------------------------------------


def recorded(entries: list[Entry]) -> list[Any]:
    """The values of an agent's replies in a journal."""
    return [entry.body.value for entry in entries if isinstance(entry.body, Recorded)]


@PROTOCOLS
@pytest.mark.parametrize("private", [True, False])
async def test_it_is_kept_with_the_reply(protocol, private, monkeypatch):
    of = protocol(monkeypatch)
    store = MemoryStore()
    flow = running(World(), side=AgentSide(rounds=5, private=private))
    async with Server(of.calling(LINT), of.concluding(), refuses=of.refuses) as server:
        dispatch = settings(of.executor(server), agent("approver"))
        async with Engine(store, [flow], dispatch=dispatch) as engine:
            await engine.run("flow", run_id="r1")
            first, last = recorded(await journal(engine, "r1"))
            if private:
                assert "opaque" not in first
                first = json.loads(await engine.store.blob(first["kept"]["$blob"]))
            kept = first["opaque"]
    assert set(kept) == {"provider", "model", "data"}
    assert "opaque" not in last


async def test_long_parts_are_kept_in_a_blob(monkeypatch):
    of = DeepSeek(monkeypatch)
    body = chat("", [("call_0", *LINT)])
    body["choices"][0]["message"]["reasoning_content"] = "long " * 1000
    async with Server(answer(body), of.concluding(), refuses=of.refuses) as server:
        _, entries = await finished(running(World(), side=AgentSide(rounds=5)), of.executor(server))
    assert "long long" not in encode(recorded(entries)[0])
    assert server.asked[1].body["messages"][-2]["reasoning_content"] == "long " * 1000


class Listening:
    """A tape that records nothing and remembers the requests."""

    plays = False

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def through(self, call: Any, work: Callable[[], Any]) -> Any:
        self.requests.append(call.request)
        return await work()


@PROTOCOLS
async def test_it_is_neither_logged_nor_compared(protocol, monkeypatch):
    """Two conversations that say the same are the same, whatever their signatures."""

    async def requests(number: int) -> tuple[list[Any], list[str]]:
        of, tape = protocol(monkeypatch), Listening()
        for _ in range(number):
            of.calling(("other", {}))  # signatures differ from one conversation to the next
        async with Server(of.calling(LINT), of.concluding(), refuses=of.refuses) as server:
            with capture() as heard:
                _, entries = await finished(
                    running(World(), side=AgentSide(rounds=5)), of.executor(server), tape=tape
                )
        keys = [entry.body.key for entry in entries if isinstance(entry.body, Recorded)]
        assert not any("EqQB" in said.line or "tests come first" in said.line for said in heard.events)
        return [request for request in tape.requests if "messages" in request], keys

    assert await requests(1) == await requests(2)


# -- another provider ---------------------------------------------------------------------------------------


class Switching:
    """An executor whose replies come from one provider after another."""

    def __init__(self, *executors: ModelStepExecutor) -> None:
        self.executors = list(executors)

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        return await self.executors.pop(0).reply(request)

    def available(self) -> Availability:
        return Availability(True)


@PROTOCOLS
async def test_another_provider_is_not_sent_it_and_accepts_the_conversation(protocol, monkeypatch):
    """Opaque parts stay home, and ids are ours."""
    of, world = protocol(monkeypatch), World()
    elsewhere = Gemini(monkeypatch)
    there = Server(answer(chat("", [("call_0", *LINT)])), said(ANSWER), refuses=strict.mistral)
    async with Server(of.calling(LINT), refuses=of.refuses) as here, there:
        switching = Switching(of.executor(here), elsewhere.executor(there), elsewhere.executor(there))
        run, _ = await finished(running(world, side=AgentSide(rounds=5)), switching)
    assert (run.status, world.ran, there.refused) == (Status.SUCCEEDED, ["make lint"] * 2, 0)
    sent = json.dumps([asked.body for asked in there.asked])
    assert not any(word in sent for word in ("signature", "reasoning", "thinking", "tests come first"))


@PROTOCOLS
async def test_a_provider_changed_between_crash_and_resume_accepts_the_conversation(protocol, monkeypatch):
    """The same name in the settings, another server behind it."""
    of, world = protocol(monkeypatch), World()
    store, silence = MemoryStore(), Silence()
    flow = running(world, side=AgentSide(rounds=5))
    there = Server(said(ANSWER), refuses=strict.mistral)
    async with Server(of.calling(LINT), silence, refuses=of.refuses) as here, there:
        await started_and_stopped(flow, of.executor(here), store, silence)
        run, _ = await finished(flow, Gemini(monkeypatch).executor(there), store=store)
    assert (run.status, world.ran, there.refused) == (Status.SUCCEEDED, ["make lint"], 0)


async def test_another_model_of_the_same_server_is_not_sent_it(monkeypatch):
    of = Gemini(monkeypatch)
    replies = [of.calling(LINT), said(ANSWER)]
    async with Server(*replies, refuses=lambda body: None) as server:
        switching = Switching(of.executor(server), of.executor(server, "gemini-2"))
        await finished(running(World(), side=AgentSide(rounds=5)), switching)
    assert "signature" not in json.dumps(server.asked[1].body)


async def test_gemini_accepts_calls_that_another_provider_made(monkeypatch):
    """Its own signatures are sent; for foreign calls it takes a placeholder, once it has asked for one."""
    of, world = Gemini(monkeypatch), World()
    foreign = Server(answer(chat("", [("call_0", *LINT)])))
    async with Server(of.calling(LINT), said(ANSWER), refuses=of.refuses) as here, foreign:
        gemini = of.executor(here)
        switching = Switching(gemini, of.executor(foreign), gemini)
        run, _ = await finished(running(world, side=AgentSide(rounds=5)), switching)
    assert (run.status, world.ran, here.refused) == (Status.SUCCEEDED, ["make lint"] * 2, 1)
    signed = [
        call["extra_content"]["google"]["thought_signature"]
        for sent in here.asked[-1].body["messages"]
        for call in sent.get("tool_calls") or ()
    ]
    assert signed[0] in of.refuses.signed
    assert signed[1] == "skip_thought_signature_validator"


async def test_a_field_that_its_own_server_refuses_is_not_sent_again(monkeypatch):
    of = DeepSeek(monkeypatch)
    replies = [of.calling(LINT), of.calling(LINT), of.concluding()]
    async with Server(*replies, refuses=strict.known_fields) as server:
        run, _ = await finished(running(World(), side=AgentSide(rounds=5)), of.executor(server))
    assert (run.status, run.data["exit_code"], server.refused) == (Status.SUCCEEDED, 2, 1)


def test_a_conversation_is_known_by_what_it_says():
    """Digests of journals that were written before stay valid."""
    assert set(Message("user", "hello").to_plain()) == {"role", "content", "calls", "answers"}
