"""An MCP server without the SDK that sends more than anybody asked for, in the way its first argument names.

It stops by itself after 256 MB, and makes the file of its second argument as long as what it got rid of.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

MOST = 256 * 1024 * 1024
HOW, NOTE = sys.argv[1], Path(sys.argv[2])


def send(raw: bytes) -> None:
    global sent
    try:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        sys.exit()
    sent += len(raw)
    os.truncate(NOTE, sent)


def say(body: dict) -> None:
    send(json.dumps({"jsonrpc": "2.0", **body}).encode() + b"\n")


def flood(id_: int) -> None:
    if HOW in ("line", "start"):
        first, piece = b'{"jsonrpc": "2.0", "method": "', b"x" * 65536
    elif HOW == "answer":
        first = (
            f'{{"jsonrpc": "2.0", "id": {id_}, "result": {{"content": [{{"type": "text", "text": "'.encode()
        )
        piece = b"y" * 65536
    elif HOW == "lines":
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "z"}}
        first, piece = b"", (json.dumps(note).encode() + b"\n") * 100
    else:
        while sent < MOST:  # each answer to these repeats the long id, and nobody reads it
            say({"id": f"{sent}-" + "p" * 65536, "method": "ping"})
        return
    send(first)
    while sent < MOST:
        send(piece)


sent = 0
NOTE.touch()
TOOL = {"name": "ask", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    message = json.loads(line)
    method, id_ = message["method"], message.get("id")
    if id_ is None:
        continue
    if HOW == "start":
        flood(id_)
    elif method == "initialize":
        info = {"name": "flood", "version": "1"}
        version = message["params"]["protocolVersion"]
        say({"id": id_, "result": {"protocolVersion": version, "capabilities": {}, "serverInfo": info}})
    elif method == "tools/list" and HOW == "pages":
        page = int((message.get("params") or {}).get("cursor", "0"))
        tools = [{**TOOL, "name": f"{page}-{n}-" + "n" * 5000} for n in range(200)]
        say({"id": id_, "result": {"tools": [TOOL, *tools], "nextCursor": str(page + 1)}})
    elif method == "tools/list":
        say({"id": id_, "result": {"tools": [TOOL]}})
    elif method == "tools/call":
        flood(id_)
    else:
        say({"id": id_, "error": {"code": -32601, "message": "Method not found"}})
