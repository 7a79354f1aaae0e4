"""Conversations with a model, one reply at a time, as a flow has them that takes calls as part of a reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from detent.adapters.models import openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.conversation import Message, ModelAnswer
from detent.dispatch.executor import AgentStreamChunk, ReplyRequest
from tests.adapters.models import server as of
from tests.adapters.models.server import Reply, Server, answer, chat, delta, event, stream


def tool(name: str, *parameters: str) -> AgentTool:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return AgentTool(name, "query", f"The tool {name}.", schema)


TOOLS = (
    tool("read_file", "filepath"),
    tool("list_dir", "directory"),
    tool("write_file", "filepath", "content"),
    tool("bash", "command"),
)
ASKED = (Message("system", "You code."), Message("user", "Fix it."))


class Heard:
    """What is streamed, and when the first text came."""

    def __init__(self) -> None:
        self.chunks: list[tuple[str, str]] = []
        self.first = asyncio.Event()

    async def __call__(self, chunk: AgentStreamChunk) -> None:
        assert isinstance(chunk.text, str)
        if chunk.text:
            self.chunks.append((chunk.text, chunk.chunk_type))
            self.first.set()

    @property
    def text(self) -> str:
        return "".join(text for text, kind in self.chunks if kind == "output")


def executor(server: Server, *, native: bool = True, kind: str = "vllm") -> ModelStepExecutor:
    options = {"base_url": f"{server.url}/v1", "model_id": "m-1", "native_tools": native}
    return ModelStepExecutor(openai.connect(options, kind=kind))


def request(
    messages: Sequence[Message] = ASKED,
    heard: Heard | None = None,
    *,
    tools: Sequence[AgentTool] = TOOLS,
    takes_calls: bool = True,
) -> ReplyRequest:
    return ReplyRequest(
        "assistant", "dispatch", messages, tools, event_callback=heard, takes_calls=takes_calls
    )


async def asked(
    reply: Reply, *, native: bool = True, heard: Heard | None = None, **options: Any
) -> ModelAnswer:
    """What a model says that gives this reply."""
    async with Server(reply) as server:
        made = executor(server, native=native)
        try:
            return await made.reply(request(heard=heard, **options))
        finally:
            await made.close()


def whole(message: dict[str, Any], finish: str | None = None, **options: Any) -> Reply:
    """A chat completion with this message, at once."""
    body = chat(None, **options)
    body["choices"][0]["message"] = {"role": "assistant", **message}
    body["choices"][0]["finish_reason"] = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    return answer(body)


def pieces(message: dict[str, Any], finish: str | None = None) -> Reply:
    """The same message, in pieces: texts and arguments are cut in two."""
    events: list[bytes] = []
    for name, value in message.items():
        if name == "tool_calls":
            continue
        parts = [value[:3], value[3:]] if isinstance(value, str) else [value]
        events += [delta(**{name: part}) for part in parts if part != ""]
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function", {})
        arguments = function.get("arguments")
        head = {**call, "index": index, "type": "function", "function": dict(function)}
        if isinstance(arguments, str):
            head["function"]["arguments"] = ""
        events.append(delta(tool_calls=[head]))
        if isinstance(arguments, str):
            for part in (arguments[:5], arguments[5:]):
                events.append(delta(tool_calls=[{"index": index, "function": {"arguments": part}}]))
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    usage = event({"model": "served-1", "choices": [], "usage": of.USAGE})
    return stream([*events, delta(finish=finish), usage, event("[DONE]")])


def call(name: str, arguments: Any, id_: Any = "c") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def read(path: str, id_: Any = "c") -> dict[str, Any]:
    """A good call."""
    return call("read_file", json.dumps({"filepath": path}), id_)
