"""An MCP server of an older revision, written without the SDK: whatever is asked of it is said in full here.

A tool called `reply` is answered with the JSON it is given as `body`, be it an answer or an error, so that a
test can have a server say anything at all. `noise` on standard output is no message.
"""

from __future__ import annotations

import json
import sys

TOOLS = [
    {"name": "reply", "inputSchema": {"type": "object", "properties": {"body": {"type": "object"}}}},
    {"name": "far", "inputSchema": {"type": "object", "$ref": "http://127.0.0.1:9/far.json"}},
]


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        info = {"name": "old", "version": "1"}
        return {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        }
    if method == "tools/list":
        # One tool a page.
        page = int(params.get("cursor", "0"))
        more = {"nextCursor": str(page + 1)} if page + 1 < len(TOOLS) else {}
        return {"result": {"tools": TOOLS[page : page + 1], **more}}
    if method == "tools/call":
        body: dict = params["arguments"]["body"]
        return body
    return {"error": {"code": -32601, "message": "Method not found"}}


print("noise: jane.doe@example.org", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        said = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
