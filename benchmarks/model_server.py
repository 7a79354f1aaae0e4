"""A scripted model server for the agent workload: OpenAI's protocol, each reply after a fixed delay.

It first calls the query, then the effect, and states the facts when it is asked again. What it answers
follows from the request alone. It listens in a process of its own and ends with the one that started it.
"""

import json
import socket
import sys
import threading
import time
from typing import Any

QUERY, EFFECT = "desk.part", "desk.order"
FACTS = {"part": "P-7", "quantity": 1}
"""What the model states, and what it orders."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
DEVICE = {"device": "oven"}
READ = 64 * 1024


class Server:
    """Answers each connection in a thread of its own, and adds up the time it takes for its replies.

    A reply's time is from the arrival of the request to just before the answer is handed to the network: what
    this program needs to read and write JSON is the model's time too, not the client's.
    """

    def __init__(self, delay: float) -> None:
        """Listen on a free port."""
        self.delay = delay
        self.replies, self.seconds = 0, 0.0
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.adding = threading.Lock()

    def accept(self) -> None:
        """Serve every connection."""
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self.connection, args=(connection,), daemon=True).start()

    def connection(self, connection: socket.socket) -> None:
        """Answer the requests of one connection."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while received := connection.recv(READ):
            begin = time.perf_counter()
            while (length := whole_length(received)) is None or len(received) < length:
                received += connection.recv(READ)
            request = json.loads(received.partition(b"\r\n\r\n")[2])
            time.sleep(self.delay)
            body = json.dumps(reply(request)).encode()
            taken = time.perf_counter() - begin
            connection.sendall(HEAD % len(body) + body)
            with self.adding:
                self.replies, self.seconds = self.replies + 1, self.seconds + taken


def whole_length(received: bytes) -> int | None:
    """How long a request is, head and body; None until its head is whole."""
    head, end, _ = received.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return len(head) + len(end) + int(length) if end else None


def serve(delay: float) -> None:
    """Print the port, answer until the standard input is closed, then print what the replies took."""
    server = Server(delay)
    print(server.listening.getsockname()[1], flush=True)
    threading.Thread(target=server.accept, daemon=True).start()
    sys.stdin.read()
    print(json.dumps({"replies": server.replies, "seconds": server.seconds}), flush=True)


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
    serve(float(sys.argv[1]))
