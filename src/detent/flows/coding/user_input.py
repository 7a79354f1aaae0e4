"""The step `user_input`: a prompt has arrived.

If the request before was put down in the middle, its open calls get their results here, so that every call
that a model is ever sent has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.engine.tools import Tool
from detent.flows.coding.reply import CodingCall, ToolResult
from detent.flows.coding.request_data import RequestData, tool_message
from detent.flows.coding.response_state import AgentState
from detent.flows.coding.settled_calls import BY_CODE, changed_arguments, told_result, with_changes
from detent.kernel.errors import RunNotFound
from detent.kernel.plain import LONGEST_KEPT, canonical, to_plain
from detent.kernel.run import Run

REQUEST = "request"
"""The query by which a recording knows the prompt it was made with."""


def request_tool() -> Tool:
    """A query that changes nothing: a recording is played back for the same prompt only."""
    return Tool(REQUEST, lambda prompt: None, "query", blocking=False, description="The prompt of a request.")


async def handle(ctx: StepContext) -> Outcome:
    """Store the prompt, behind what is missing of the request before."""
    data = RequestData(ctx.values)
    await ctx.look(REQUEST, {"prompt": data.prompt})
    missing = await _missing(ctx, data)
    prompt = data.prompt if len(data.prompt) <= LONGEST_KEPT else ctx.keep(data.prompt)
    message = {"role": "user", "content": prompt, "run_id": ctx.run_id, "at": ctx.now()}
    return Outcome(
        AgentState.ASSISTANT,
        append={"turns": [*(tool_message(result) for result in missing), message]},
        reason="a prompt has arrived" + (f"; {len(missing)} open calls are closed" if missing else ""),
    )


async def _missing(ctx: StepContext, data: RequestData) -> list[ToolResult]:
    """Results for calls of the request before that have none."""
    if data.earlier is None:
        return []
    try:
        earlier = await ctx.other(data.earlier)
    except RunNotFound:
        return []
    before = RequestData(earlier.data)
    answered = {result["tool_call_id"] for result in before.last_results()}
    open_calls = [call for call in before.open_calls if call.id not in answered]
    settled = [dict(item) for item in earlier.settled.values()]
    return [_result(ctx, call, settled, earlier) for call in open_calls]


def _result(ctx: StepContext, call: CodingCall, settled: list[dict[str, Any]], earlier: Run) -> ToolResult:
    """What is known of a call: what was done is told, whatever came after it."""
    wanted = canonical([call.tool, _own(call.args)])
    for item in settled:
        args = item.get("args") or {}
        own = {
            name: value
            for name, value in args.items()
            if name in (call.args if isinstance(call.args, Mapping) else {}) and name not in BY_CODE
        }
        if item.get("tool") != call.tool or canonical([call.tool, to_plain(own)]) != wanted:
            continue
        settled.remove(item)
        receipt = item.get("receipt")
        if (instead := item.get("instead")) in earlier.settled:
            item = {**earlier.settled[instead], "key": instead}
            receipt = item.get("receipt")
        changed = changed_arguments(ctx.tools, call, item)
        if not item.get("why") and (told := told_result(call, item)) is not None:
            return with_changes(told, changed)
        if isinstance(receipt, Mapping) and not item.get("skipped"):
            text = str(receipt.get("content", ""))
            result = ToolResult(call.id, call.tool, bool(receipt.get("ok", True)), text, receipt.get("error"))
            return with_changes(result, changed)
        if "code" in item:
            return ToolResult(call.id, call.tool, False, str(item.get("message", "")), "failed")
        return ToolResult(call.id, call.tool, False, "A person decided that it is not done.", "denied")
    begun = earlier.begun is not None
    if begun:
        text = "Interrupted while it was under way; it may have had an effect."
        return ToolResult(call.id, call.tool, False, text, "interrupted")
    return ToolResult(
        call.id, call.tool, False, "The request was put down before this was done.", "cancelled"
    )


def _own(args: Any) -> Any:
    return to_plain(
        {name: args[name] for name in args if name not in BY_CODE} if isinstance(args, Mapping) else args
    )
