"""The step `assistant`: one reply, by a model or by the grammar of plain requests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detent.dispatch.autonomy import FallbackReason
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.flows.coding.conversation import text_of
from detent.flows.coding.explicit_assistant import next_reply
from detent.flows.coding.reply import AssistantReply, CodingCall, FinishReason, ToolResult
from detent.flows.coding.request_data import RequestData, tool_message
from detent.flows.coding.request_time import REQUEST_TIMEOUT, seconds_left
from detent.flows.coding.response_state import AgentState
from detent.flows.coding.settings import CodingSettings
from detent.flows.coding.task_completion import judge_reply
from detent.flows.coding.test_command import find_test_command
from detent.kernel.budget import LIMITS
from detent.kernel.errors import BudgetExceededError
from detent.kernel.plain import LONGEST_KEPT, to_plain

MODEL_FAILED = "model_failed"
CONTEXT_FULL = "context_full"
LONGEST_CAUSE = 500
"""Characters that are told of why a model failed."""
TOO_LONG = "RequestTooLongError"
"""Type of the error when a provider finds even half of the conversation too long."""


class Assistant:
    """What surrounds a reply: who gives it, and what it becomes in the run's data."""

    def __init__(self, settings: CodingSettings, known_tools: frozenset[str]) -> None:
        self._settings = settings
        self._known_tools = known_tools

    async def handle(self, ctx: StepContext) -> Any:
        """An `AssistantReply` by code: a plain request is understood as a whole, or nothing is done."""
        data = RequestData(ctx.values)
        if ctx.fallback == FallbackReason.BUDGET:
            raise _budget_used_up(ctx)
        by_model = any(turn["role"] == "assistant" and turn.get("by") != "handler" for turn in data.turns)
        failed = ctx.fallback not in (None, FallbackReason.OPERATOR)
        if failed and ctx.fallback_error is not None and ctx.fallback_error[0] == TOO_LONG:
            return AssistantReply(give_up=CONTEXT_FULL)
        if failed and seconds_left(ctx, self._settings) <= 0:
            return AssistantReply(give_up=REQUEST_TIMEOUT)
        if failed and (by_model or data.has_acted):
            return AssistantReply(give_up=MODEL_FAILED)
        results = [ToolResult.from_plain(await self._whole(ctx, turn)) for turn in data.results()]
        found = find_test_command(Path(data.workspace), self._settings.test_command)
        reply = next_reply(data.prompt, results, test_command=found, turn=data.counter("iterations") + 1)
        if failed and reply.give_up == "needs_model":
            return AssistantReply(give_up=MODEL_FAILED)
        return reply

    @staticmethod
    async def _whole(ctx: StepContext, turn: Mapping[str, Any]) -> dict[str, Any]:
        return {**turn, "content": await text_of(turn.get("content"), ctx.kept)}

    def conclude(self, ctx: StepContext, said: Any) -> Outcome:
        """The reply in the run's data, and where it leads."""
        data = RequestData(ctx.values)
        by_handler = isinstance(said, AssistantReply)
        turn_number = data.turns_before + data.counter("iterations") + 1
        reply = said if isinstance(said, AssistantReply) else _reply_of(said)
        calls = [
            CodingCall(f"t{turn_number}c{number}", call.tool, call.args)
            for number, call in enumerate(reply.tool_calls, 1)
        ]
        ran = [
            ToolResult(
                f"t{turn_number}r{number}", result.tool, result.ok, result.content, result.error,
                result.truncated, result.duration_ms,
            )
            for number, result in enumerate(reply.ran, 1)
        ]  # fmt: skip
        judged = judge_reply(reply.text, calls=calls, known_tools=self._known_tools)
        premature = bool(calls) and judged.premature
        message: dict[str, Any] = {
            "role": "assistant", "content": _text(ctx, judged.shown if premature else reply.text),
        }  # fmt: skip
        if calls or ran:
            done = [{"id": result.tool_call_id, "tool": result.tool, "args": {}} for result in ran]
            message["tool_calls"] = [*done, *(call.to_plain() for call in calls)]
        if by_handler:
            message["by"] = "handler"
        elif said.get("opaque") is not None:
            message["opaque"] = to_plain(said["opaque"])
        model = None if by_handler else said.get("model")
        counters = data.counters
        counters["iterations"] += 1
        counters["tool_calls"] += len(calls)
        counters["premature"] += premature
        turn: dict[str, Any] = {"finish": reply.finish_reason, "premature": premature}
        if last := data.current.get("last"):
            turn["last"] = last
        if ran:
            turn["ran"] = [tool_message(result) for result in ran]
        if reply.give_up is not None:
            turn["give_up"] = message["gave_up"] = reply.give_up
        if reply.give_up == MODEL_FAILED and ctx.fallback_error is not None:
            error, why = ctx.fallback_error
            turn["cause"] = {"error": error, "message": why[:LONGEST_CAUSE]}
        return Outcome(
            AgentState.TOOL_EXECUTION if calls or ran else AgentState.RESPONSE,
            set={"counters": counters, "turn": turn, **({"model": model} if model is not None else {})},
            append={"turns": [message]},
            reason=_reason(calls, ran, reply.give_up),
            spend=reply.spend,
        )


def _reply_of(said: Mapping[str, Any]) -> AssistantReply:
    """A model's reply, as the dialect has read it."""
    finish: FinishReason = said.get("finish", "stop")
    calls = tuple(CodingCall("", str(call["tool"]), to_plain(call["args"])) for call in said["calls"])
    return AssistantReply(str(said["text"]), calls, finish_reason=finish)


def _text(ctx: StepContext, text: str) -> Any:
    return text if len(text) <= LONGEST_KEPT else ctx.keep(text)


def _reason(calls: list[CodingCall], ran: list[ToolResult], give_up: str | None) -> str:
    if give_up is not None:
        return give_up
    names = [call.tool for call in calls] or [result.tool for result in ran]
    return f"calls {', '.join(names[:5])}" if names else "replies"


def _budget_used_up(ctx: StepContext) -> BudgetExceededError:
    used, budget = ctx.used, ctx.budget
    limit = (None if budget is None else budget.exceeded(used)) or next(iter(LIMITS))
    allowed = getattr(budget, limit, None)
    return BudgetExceededError(limit, float(allowed or 0), float(used.get(limit, 0)))
