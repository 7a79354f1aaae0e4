"""A project whose steps act, and a model server in a thread that answers what a test puts down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHOP = '''
"""Orders what is missing in a shop, proposed at once or performed in rounds."""

from pathlib import Path
from typing import TypedDict

from detent import Flow, Machine, Status, Step, query, tool
from detent.dispatch.agent_side import AgentSide


@query("stock.count")
def count(item: str) -> int:
    """How many of an item are in stock."""
    return 7


@tool("order.place")
def place(item: str, number: int, note: str = "") -> dict:
    """Order an item."""
    with Path("orders.txt").open("a") as file:
        file.write(f"{item} {number} {note}\\n")
    return {"order": f"{number} {item}"}


class Ordered(TypedDict):
    order: str


async def proposes(ctx):
    have = await ctx.query("stock.count", item=ctx.data.item)
    done = ctx.propose("order.place", item=ctx.data.item, number=10 - have)
    return {"order": done.order}


async def performs(ctx):
    have = await ctx.query("stock.count", item=ctx.data.item)
    confirm = "Order it?" if ctx.data.get("ask") else None
    return await ctx.perform("order.place", item=ctx.data.item, number=10 - have, confirm=confirm)


def flow(name, handler):
    step = Step(
        "restock", handler, "Order what is missing.", effects=("order.place",), queries=("stock.count",),
        inputs=("item",), output_schema=Ordered, agent=AgentSide(rounds=3),
    )
    table = Machine(name, start="restock", moves={"restock": ["done"]}, ends={"done": Status.SUCCEEDED})
    return Flow(table, {"restock": step}, tools=[count, place])


propose, perform = flow("propose", proposes), flow("perform", performs)
'''

SETTINGS = """
plugins: [shop.py]
models:
  house: {kind: vllm, base_url: "%s/v1", model_id: tiny}
steps:
  restock: {mode: agent, max_retries: 0}
"""

COUNT = {"tool": "stock.count", "arguments": {"item": "bolt"}}


def order(number: int) -> dict[str, Any]:
    """A call that orders bolts; the handler orders three."""
    return {"tool": "order.place", "arguments": {"item": "bolt", "number": number}}


class Refused(Exception):
    """Raised by a reply: the server answers with this status and body instead of a model's message."""

    def __init__(self, status: int, body: bytes = b'{"error": {"message": "no"}}') -> None:
        self.status, self.body = status, body


class Model:
    """The server: `replies`, or what they make of a request, are given in order, the last one for ever."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[Any] = []
        self.url = ""

    def answer(self, body: Any) -> dict[str, Any]:
        """The next reply in the protocol's form."""
        self.asked.append(body)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        reply = reply(body) if callable(reply) else reply
        message = {"role": "assistant", "content": json.dumps(reply)}
        return {
            "model": "tiny",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }


@contextmanager
def serving(*replies: Any) -> Iterator[Model]:
    """A model that answers over HTTP on this machine."""
    model = Model(*replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                status, raw = 200, json.dumps(model.answer(body)).encode()
            except Refused as refused:
                status, raw = refused.status, refused.body
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
