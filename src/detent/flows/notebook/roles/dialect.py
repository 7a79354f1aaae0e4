"""How an agent in a role is asked, and how its payload is read: XML, or the same as JSON.

The prompt is the role's text, the shared rules and the shape of the payload; the request is the state, the
notebook and what went wrong before. The generator acts in rounds: a payload with code is performed before the
agent is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.conversation import ToolCall
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.plan import Dialect
from detent.dispatch.prompt import Prompt, masked
from detent.dispatch.proposal import Proposal
from detent.engine.trial_context import CannotCheck
from detent.flows.notebook.kernel.session import ACTIONS
from detent.flows.notebook.payloads.kinds import PayloadKind
from detent.flows.notebook.payloads.payload_error import PayloadError
from detent.flows.notebook.payloads.plain import to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import shape_of
from detent.flows.notebook.payloads.values import Actions, ReadPayload
from detent.flows.notebook.roles.answer import RoleAnswer
from detent.flows.notebook.roles.request import rendered
from detent.flows.notebook.roles.role import Role
from detent.kernel.plain import digest, encode

if TYPE_CHECKING:
    from detent.dispatch.gate import Side
    from detent.dispatch.plan import Plan
    from detent.dispatch.planted import PlainAnswer
    from detent.engine.acts import Act
    from detent.engine.context import StepContext
    from detent.engine.outcome import Effect

Check = Callable[[Mapping[str, Any], ReadPayload, Sequence[Any]], list[str]]
"""Problems of a payload in this run, beyond its shape: takes the inputs, the payload and the acts so far."""

REQUEST = "request"
"""Key of a role's inputs: what an agent is shown."""
FACTS = "facts"
"""Key of a role's inputs: what its checks know and an agent is not shown."""

IDLE = "actions: there is no code, so nothing can be produced"
"""The problem of a first round without code."""


class RoleDialect(Dialect):
    """A role's payload as its answer."""

    def __init__(self, role: Role, check: Check) -> None:
        self.role = role
        self.kind: PayloadKind = role.kind
        self._check = check

    # -- asking ---------------------------------------------------------------------------------------------

    def instructions(self, extra: str | None = None) -> str:
        """The part of the prompt that is the same for every request."""
        rules = resources.files("detent.flows.notebook.roles") / "prompts" / "rules.txt"
        parts = [self.role.prompt(), rules.read_text(encoding="utf-8"), shape_of(self.kind), extra or ""]
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def fingerprint(self, plan: Plan) -> str:
        """The instructions."""
        return digest(self.instructions(plan.config.prompt_extra), 12)

    def build(self, plan: Plan, inputs: Mapping[str, Any], *, secrets: frozenset[str]) -> Prompt:
        """The instructions, and the request as text."""
        text = str(masked(rendered(inputs[REQUEST]), secrets))
        return Prompt(self.instructions(plan.config.prompt_extra), text)

    def offers(self, plan: Plan, inputs: Mapping[str, Any]) -> Sequence[AgentTool]:
        """No tools: a payload says what is to be done."""
        return ()

    def refused(self, plan: Plan, problems: Sequence[str]) -> str:
        """The problems, one a line."""
        listed = "\n".join(f"- {problem}" for problem in problems)
        return f"Your payload cannot be used:\n{listed}\nAnswer once more with the whole payload, corrected."

    def schema(self, plan: Plan) -> Mapping[str, Any] | None:
        """None: a payload is text."""
        return None

    # -- reading --------------------------------------------------------------------------------------------

    def _payload(
        self, plan: Plan, answer: Any, inputs: Mapping[str, Any], acts: Sequence[Any], *, cut: bool = False
    ) -> ReadPayload:
        text = answer if isinstance(answer, str) else encode(answer)
        try:
            read = read_payload(text, expected=self.kind, cut=cut)
        except PayloadError as error:
            problems = [str(problem) for problem in error.problems[:20]]
            raise OutputSchemaValidationError(plan.step.name, self.kind, problems) from error
        if problems := self._check(inputs, read, acts):
            raise OutputSchemaValidationError(plan.step.name, self.kind, problems[:20])
        return read

    def calls(
        self,
        plan: Plan,
        answer: Any,
        inputs: Mapping[str, Any],
        acts: Sequence[Act] = (),
        *,
        cut: bool = False,
    ) -> Sequence[ToolCall] | None:
        """The round that a payload with code asks for; None for one without code, which ends the visit."""
        if self.kind != "T4":
            return None
        read = self._payload(plan, answer, inputs, acts, cut=cut)
        assert isinstance(read.value, Actions)
        if not read.value.has_code:
            if not acts:
                raise OutputSchemaValidationError(plan.step.name, self.kind, [IDLE])
            return None
        args: dict[str, Any] = {"actions": to_plain(read.value)["actions"]}
        if read.repairs:
            args |= {"repairs": list(read.repairs), "raw": answer if isinstance(answer, str) else ""}
        return [ToolCall("", ACTIONS, args)]

    def answered(self, plan: Plan, acts: Sequence[Act], results: Sequence[str]) -> str:
        """The outputs of the round, and how to go on; of a round that was not performed, the reasons."""
        if not any(act.happened for act in acts):
            return "\n\n".join(["Your actions were not carried out:", *results])
        texts = [
            text for act in acts if act.happened for cell in act.receipt["cells"] for text in cell["texts"]
        ]
        shown = "\n".join(texts) or "(no output)"
        return (
            f"effects.current\n{shown}\n\nGo on with <actions>: text about these results, more code, or "
            "text alone to finish."
        )

    def read(
        self,
        plan: Plan,
        answer: Any,
        effects: Iterable[Effect],
        inputs: Mapping[str, Any],
        acts: Sequence[Act] = (),
    ) -> Proposal:
        """The payload; without an answer, what the rounds have left: nothing more to write."""
        if answer is None and self.kind == "T4":
            plain = RoleAnswer(Actions(())).to_plain()
        else:
            read = self._payload(plan, answer, inputs, acts)
            if isinstance(read.value, Actions) and not acts:
                raise OutputSchemaValidationError(plan.step.name, self.kind, [IDLE])
            raw = answer if isinstance(answer, str) else ""
            plain = RoleAnswer.read(read, raw).to_plain()
        return Proposal(plain, plain=plain, given=plain)

    def settled(self, plan: Plan, acts: Sequence[Act]) -> bool:
        """Whether the rounds say all there is to say."""
        return self.kind == "T4" and bool(acts)

    # -- comparing ------------------------------------------------------------------------------------------

    async def answer_for(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], side: Side
    ) -> PlainAnswer:
        """No other payload would be the same."""
        raise CannotCheck("a payload is checked, not compared")

    def written(self, plan: Plan, answer: PlainAnswer) -> Any:
        """Never asked for, since there is no such answer."""
        raise CannotCheck("a payload is checked, not compared")
