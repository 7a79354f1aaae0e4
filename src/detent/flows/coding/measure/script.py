"""A model that gives the replies of a scenario, in one of the styles in which models write them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from detent.adapters.models.model import ModelRequest, OnText
from detent.dispatch.conversation import Message, ModelAnswer, ToolCall
from detent.dispatch.executor import Availability
from detent.dispatch.executor_errors import ExecutorError
from detent.dispatch.usage import UsageMetadata
from detent.flows.coding.measure.scenario import Scenario, ScriptedReply

Style = Literal["native", "written", "reasoning"]
STYLES: Final[tuple[Style, ...]] = ("native", "written", "reasoning")
"""`native`: calls as the provider's own calls. `written`: calls written into the text as JSON. `reasoning`:
native calls with reasoning, a heading and text beside every call."""

SAME_ID: Final = "call_0"
"""The id of every call: there are providers that do this."""


def written(reply: ScriptedReply, style: Style) -> ModelAnswer:
    """A reply in a style."""
    calls = tuple(ToolCall(SAME_ID, call.tool, dict(call.args)) for call in reply.calls)
    text = reply.text
    if calls and style == "written":
        lines = [json.dumps({"tool": call.name, "arguments": call.arguments}) for call in calls]
        text, calls = "\n".join(filter(None, [text.rstrip("\n"), *lines])), ()
    elif calls and style == "reasoning":
        names = " and then ".join(call.name for call in calls)
        text = (
            f"<think>\nWhat is left to do? I need {names} for it.\nAfter that I look again.\n</think>\n\n"
            f"## Next step: {names}\n\n{text or 'This brings the task further.'}\n"
        )
    return ModelAnswer(text, UsageMetadata(), "script", reply.finish, calls)


class ScriptedModel:
    """The model of one play of a scenario."""

    model_id = "script"

    def __init__(self, scenario: Scenario, style: Style = "native") -> None:
        self.native_tools = style != "written"
        self._style = style
        self._scripts = {**scenario.tasks, scenario.prompt: scenario.replies}
        self._given: Counter[str] = Counter()

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """The next reply to the prompt that the conversation begins with."""
        return self.next_reply(request.messages)

    def next_reply(self, messages: Sequence[Message]) -> ModelAnswer:
        """The next reply to the prompt that some messages begin with.

        Raises:
            ExecutorError: there are none for this prompt.
        """
        prompt = prompt_of(messages, list(self._scripts))
        if prompt is None:
            raise ExecutorError("The scenario has no replies for this prompt.")
        replies = self._scripts[prompt]
        reply = replies[min(self._given[prompt], len(replies) - 1)]
        self._given[prompt] += 1
        return written(reply, self._style)

    def available(self) -> Availability:
        """Always available."""
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        """It costs nothing."""
        return True

    async def close(self) -> None:
        """There is nothing to close."""


def prompt_of(messages: Sequence[Message], prompts: Sequence[str]) -> str | None:
    """Which of some prompts a conversation begins with.

    What a person or the flow says next may be in the same message, for there are servers that want it so.
    """
    first = next((message.content for message in messages if message.role == "user"), "")
    fitting = [prompt for prompt in prompts if first.startswith(prompt.rstrip())]
    return max(fitting, key=len, default=None)
