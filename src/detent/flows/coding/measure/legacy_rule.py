"""The rule of completion by boolean flags, kept as the baseline of the measurement, and a plain loop for it.

It lives here and nowhere else.
"""

from __future__ import annotations

import inspect
from asyncio import to_thread
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.config import StepConfig
from detent.dispatch.conversation import Message, ModelAnswer, ToolCall
from detent.dispatch.executor import ConversationExecutor, ReplyRequest
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.flows.coding.permission import Rules, decide
from detent.flows.coding.tools import todo
from detent.flows.coding.tools.catalogue import coding_tools
from detent.flows.coding.tools.spec import SPECS, ToolSettings, problems
from detent.kernel.plain import to_plain

MARKER: Final = "tunacode done:"
OLD_MARKER: Final = "TUNACODE_TASK_COMPLETE"
SYSTEM: Final = "You are a coding assistant. Finish with a line TUNACODE DONE: and a short summary."

Complete = Callable[[ModelAnswer], bool]
"""Whether a reply ends the request, before its calls are made."""


def legacy_complete(reply: ModelAnswer) -> bool:
    """The legacy rule: text without a call, the marker anywhere, or the old marker as the first line."""
    return (
        (bool(reply.text.strip()) and not reply.calls)
        or MARKER in reply.text.lower()
        or reply.text.partition("\n")[0].strip() == OLD_MARKER
    )


@dataclass
class PlainLoop:
    """A loop of an assistant and real tools, without states, journal or engine."""

    executor: ConversationExecutor
    workspace: Path
    complete: Complete = legacy_complete
    deny: tuple[str, ...] = ()
    model_id: str | None = None
    tools: ToolSettings = field(default_factory=ToolSettings)

    def __post_init__(self) -> None:
        self._tools: dict[str, Tool] = {tool.name: tool for tool in coding_tools(self.tools)}
        self._offered = [
            AgentTool(
                spec.name, "query" if spec.kind == "query" else "effect", spec.description, spec.parameters
            )
            for spec in SPECS.values()
        ]
        self._rules = Rules((), self.deny, yes=True, read_only=False)

    async def run(self, prompt: str, limit: int) -> tuple[bool, str]:
        """Whether the request was completed within so many replies, and the text of the last one."""
        messages = [Message("system", SYSTEM), Message("user", prompt)]
        todos: list[dict[str, Any]] = []
        text, config = "", StepConfig(model_id=self.model_id)
        for turn in range(1, limit + 1):
            request = ReplyRequest(
                "assistant", "plain loop", messages, self._offered, config=config, takes_calls=True
            )
            reply = await self.executor.reply(request)
            text = reply.text
            if self.complete(reply):
                return True, text
            calls = tuple(
                ToolCall(f"t{turn}c{number}", call.name, call.arguments)
                for number, call in enumerate(reply.calls, 1)
            )
            messages.append(Message("assistant", text, calls))
            for call in calls:
                try:
                    content, todos = await self._result(call, todos)
                except ToolError as error:
                    content = f"ERROR {error.code}: {error.message}"
                messages.append(Message("tool", content or "(no output)", answers=call.id))
            if not calls:
                messages.append(Message("user", "Go on."))
        return False, text

    async def _result(self, call: ToolCall, todos: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
        """The text that answers a call, and the list of things to do after it."""
        spec = SPECS.get(call.name)
        if spec is None:
            raise ToolError("unknown_tool", f"there is no tool {call.name}")
        if found := problems(spec, call.arguments):
            raise ToolError("invalid_arguments", "; ".join(found))
        args: Mapping[str, Any] = to_plain(call.arguments)
        decision = decide(self._rules, call.name, args, workspace=str(self.workspace), kind=spec.kind)
        if decision.verdict == "deny":
            raise ToolError("denied", decision.why)
        if call.name == "todo":
            todos, content = todo.todo(todos, args)
            return content, todos
        if call.name == "task":
            _, content = await self.run(str(args["prompt"]), int(args.get("max_iterations", 10)))
            return content, todos
        if call.name == "ask":
            raise ToolError("denied", "nobody is there to be asked")
        answer = await self._perform(self._tools[call.name], args, call.id)
        return str(answer.get("content", "")), todos

    async def _perform(self, tool: Tool, args: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """Call a tool as it is."""
        first = (EffectCall("plain-loop", key, 1),) if tool.wants_call else ()
        given = {"workspace": str(self.workspace), **args}
        if inspect.iscoroutinefunction(tool.perform):
            answer = await tool.perform(*first, **given)
        else:
            answer = await to_thread(tool.perform, *first, **given)
        return answer if isinstance(answer, Mapping) else {"content": str(answer)}
