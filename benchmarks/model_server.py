"""A scripted model server for the agent workload: OpenAI's protocol, each reply after a fixed delay.

It first calls the query, then the effect, and states the facts when it is asked again. What it answers
follows from the request alone. It listens in a process of its own and ends with the one that started it.
"""

import asyncio
import json
import sys
import time
from typing import Any

QUERY, EFFECT = "desk.part", "desk.order"
FACTS = {"part": "P-7", "quantity": 1}
"""What the model states, and what it orders."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
DEVICE = {"device": "oven"}


async def serve(delay: float) -> None:
    """Print the port, answer until the standard input is closed, then print what the replies took."""
    replies, spent = 0, 0.0

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal replies, spent
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                request = json.loads(await reader.readexactly(length))
                begin = time.perf_counter()
                await asyncio.sleep(delay)
                body = json.dumps(reply(request)).encode()
                writer.write(HEAD % len(body) + body)
                await writer.drain()
                replies, spent = replies + 1, spent + time.perf_counter() - begin
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps({"replies": replies, "seconds": spent}), flush=True)


def reply(request: dict[str, Any]) -> dict[str, Any]:
    """The chat completion that follows from the conversation so far."""
    made = [call for message in request["messages"] for call in message.get("tool_calls") or ()]
    names = [tool["function"]["name"] for tool in request.get("tools", ())]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if len(made) < len(names):
        arguments = DEVICE if not made else FACTS
        name = names[len(made)]
        function = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"call{len(made)}", "type": "function", "function": function}]
    else:
        message["content"] = json.dumps(facts(request))
    finish = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 200, "completion_tokens": 20}
    return {"model": "scripted", "choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def facts(request: dict[str, Any]) -> dict[str, Any]:
    """The facts in the form that was asked for: plain, or beside a list of further effects."""
    form = request.get("response_format", {}).get("json_schema", {}).get("schema", {})
    return {"output": FACTS, "effects": []} if "effects" in form.get("properties", {}) else FACTS


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
