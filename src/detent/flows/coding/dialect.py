"""How the assistant is asked and answers: as one long conversation, in prose, calling tools as it likes.

A reply may call any tool that exists, with any arguments: unknown tools and bad arguments are answered with
results, never with another attempt. The calls are not carried out here; the step `tools` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.conversation import Conversation
from detent.dispatch.plan import Dialect, Written
from detent.dispatch.prompt import Prompt
from detent.dispatch.proposal import Proposal
from detent.engine.trial_context import CannotCheck
from detent.flows.coding.conversation import Conversations
from detent.flows.coding.instructions import instructions
from detent.flows.coding.request_time import seconds_left
from detent.flows.coding.settings import CONTEXT_TOKENS, CodingSettings
from detent.kernel.plain import digest, to_plain

if TYPE_CHECKING:
    from detent.dispatch.gate import Side
    from detent.dispatch.plan import Plan
    from detent.dispatch.planted import PlainAnswer
    from detent.engine.acts import Act
    from detent.engine.context import StepContext
    from detent.engine.outcome import Effect

Offered = Callable[[Mapping[str, Any]], Sequence[AgentTool]]
"""The tools that a request's assistant is offered, from the step's inputs."""


class CodingDialect(Dialect):
    """A conversation of prose and tool calls."""

    takes_calls = True

    def __init__(
        self,
        settings: CodingSettings,
        conversations: Conversations,
        offered: Offered,
        skills: str = "",
        hide: Callable[[str], str] = str,
    ) -> None:
        self._settings = settings
        self._conversations = conversations
        self._offered = offered
        self._skills = skills
        self._hide = hide
        """Takes secrets out of a text."""

    def system(self, workspace: str) -> str:
        """The instructions of a session."""
        return instructions(workspace, self._settings.instructions, self._skills)

    def fingerprint(self, plan: Plan) -> str:
        """Instructions and tools."""
        tools = [tool._asdict() for tool in self._offered({})]
        return digest([self.system(""), plan.config.prompt_extra, to_plain(tools)], 12)

    def build(self, plan: Plan, inputs: Mapping[str, Any], *, secrets: frozenset[str]) -> Prompt:
        """Instructions and the request; `conversation` has the rest."""
        extra = plan.config.prompt_extra
        system = self.system(str(inputs["workspace"]))
        return Prompt(f"{system}\n\n{extra}" if extra else system, str(inputs["prompt"]))

    async def conversation(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], prompt: Prompt
    ) -> Conversation:
        """The session so far."""
        return await self._conversations.of(ctx, prompt.instructions)

    def offers(self, plan: Plan, inputs: Mapping[str, Any]) -> Sequence[AgentTool]:
        """The tools of the request."""
        return self._offered(inputs)

    def context_tokens(self, plan: Plan, known: int | None) -> int | None:
        """The settings' limit, else the model's."""
        return self._settings.context_tokens or known or CONTEXT_TOKENS

    def seconds_left(self, plan: Plan, ctx: StepContext) -> float:
        """What is left of the request's time."""
        return seconds_left(ctx, self._settings)

    def refused(self, plan: Plan, problems: Sequence[str]) -> str:
        """What is said after a reply that cannot be read."""
        return f"Your reply could not be read: {'; '.join(problems)}. Say it again."

    def schema(self, plan: Plan) -> Mapping[str, Any] | None:
        """None: replies are prose."""
        return None

    def read(
        self,
        plan: Plan,
        answer: Any,
        effects: Iterable[Effect],
        inputs: Mapping[str, Any],
        acts: Sequence[Act] = (),
    ) -> Proposal:
        """The reply as plain values: `text`, `calls`, `finish` and what the provider wants back."""
        if not isinstance(answer, Written):
            answer = Written(answer if isinstance(answer, str) else "")
        reply: dict[str, Any] = {
            "text": self._hide(answer.text),
            "calls": [{"tool": call.name, "args": to_plain(call.arguments)} for call in answer.calls],
            "finish": answer.finish,
        }
        if (model := answer.model_id or plan.config.model_id or plan.config.provider) is not None:
            reply["model"] = model
        if answer.opaque is not None:
            reply["opaque"] = answer.opaque._asdict()
        return Proposal(reply, plain=reply, given=reply)

    async def answer_for(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], side: Side
    ) -> PlainAnswer:
        """No model would have answered as the grammar of requests does."""
        raise CannotCheck("a conversation has no answer that can be compared")

    def written(self, plan: Plan, answer: PlainAnswer) -> Any:
        """Never asked for, since there is no such answer."""
        raise CannotCheck("a conversation has no answer that can be compared")
