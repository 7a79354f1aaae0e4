"""Coding as a flow: four states, one run for each request, and what its runs share in this program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agent_tools import AgentTool
from detent.dispatch.autonomy import AgentRole
from detent.dispatch.config import StepConfig
from detent.engine.flow import Flow
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.flows.coding import user_input
from detent.flows.coding.assistant import Assistant
from detent.flows.coding.audit_tool import audit_tool
from detent.flows.coding.conversation import Conversations, FromFile
from detent.flows.coding.dialect import CodingDialect
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.permission import Grant
from detent.flows.coding.registry import ToolRegistry
from detent.flows.coding.respond import CHECK, Respond
from detent.flows.coding.response_state import AgentState
from detent.flows.coding.sessions.redaction import HIDDEN, Redaction
from detent.flows.coding.settings import ASSISTANT, CodingSettings
from detent.flows.coding.state_transition import CODING
from detent.flows.coding.tool_step import ToolStep
from detent.flows.coding.tools.bash import bash_tool
from detent.flows.coding.tools.catalogue import coding_tools
from detent.flows.coding.tools.spec import ToolSettings
from detent.flows.coding.tools.text_form import with_notes

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.flows.coding.sessions.writer import SessionWriter

NAME = "coding"
INTENT = "Do what the person asks in the workspace, by calling tools, and say when it is done."


class CodingFlow(Flow):
    """A coding assistant that ends a request by an explicit marker."""

    def __init__(
        self,
        settings: CodingSettings | None = None,
        *,
        tools: ToolSettings | None = None,
        further: Iterable[Tool] = (),
        served: Iterable[Tool] = (),
        from_file: FromFile = lambda session: (),
        secrets: frozenset[str] = frozenset(),
        writer: SessionWriter | None = None,
        skills: str = "",
        assistant: StepConfig | None = None,
    ) -> None:
        """`assistant` says who performs the assistant; without it, the settings do."""
        if assistant is None and settings is not None and settings.steps.assistant is not None:
            assistant = StepConfig.read(settings.steps.assistant, where=".".join(ASSISTANT))
        self.coding_settings = settings = settings or CodingSettings()
        self._redaction = Redaction(secrets)
        self.granted: dict[str, set[Grant]] = {}
        """What people have allowed each session for as long as this program runs."""
        own = tools or ToolSettings(
            network=settings.network, sandbox=settings.sandbox, pass_env=tuple(settings.pass_env)
        )
        self._protected = [*own.protected]
        own = replace(own, protected=self._protected, secrets=own.secrets | secrets)
        further = list(further)
        self.registry = ToolRegistry([*further, *served], lambda name: self.tools[name])
        self.conversations = Conversations(from_file)
        every = [self._masked(tool) for tool in (*coding_tools(own), audit_tool())]
        every.append(self._masked(bash_tool(own, name=CHECK, repeatable=True)))
        super().__init__(
            CODING,
            self._own_steps(settings, skills, assistant),
            name=NAME,
            description="A coding assistant that cannot say done too early.",
            tools=[user_input.request_tool(), *every, *further],
        )
        self.starts = (NAME,)
        self.kept_in = self._protect
        self.writer = writer
        """Writes session files; None where none are kept."""
        self.ended = None if writer is None else writer.stopped

    def grant(self, session: str, grant: Grant) -> None:
        """Allow a session something from now on, as a person has said."""
        self.granted.setdefault(session, set()).add(grant)

    def _protect(self, store: Store) -> None:
        """Keep tools from the file of a store, if it is one."""
        path = getattr(store, "path", None)
        if path is not None:
            self._protected.append(Path(path).resolve())

    def _grants(self, session: str) -> Collection[Grant]:
        return self.granted.get(session, ())

    def _own_steps(
        self, settings: CodingSettings, skills: str, configured: StepConfig | None
    ) -> Mapping[Any, Step]:
        assistant = Assistant(settings, self.registry.names)
        tools = ToolStep(settings, self.registry, NAME, self._grants, self.hide)
        return {
            AgentState.USER_INPUT: Step(
                "user_input", user_input.handle, effects=(), queries=(user_input.REQUEST,),
                agent=AgentSide(role=AgentRole.NONE)
            ),
            AgentState.ASSISTANT: Step(
                "assistant",
                assistant.handle,
                INTENT,
                inputs=_inputs,
                effects=(),
                queries=(),
                conclude=assistant.conclude,
                config=configured,
                metadata={"settings": ASSISTANT},
                agent=AgentSide(
                    by_contract=True,
                    stands_alone=True,
                    names_next=False,
                    dialect=CodingDialect(settings, self.conversations, self._offered, skills),
                    hints=StepConfig(timeout=settings.model_timeout_s, max_retries=settings.max_retries),
                ),
            ),
            AgentState.TOOL_EXECUTION: Step(
                "tools", tools.handle, effects=self.registry.of_kind("effect"),
                queries=self.registry.of_kind("query"), agent=AgentSide(role=AgentRole.NONE),
            ),
            AgentState.RESPONSE: Step(
                "respond", Respond(settings, self.registry.names).handle, effects=(CHECK,), queries=(),
                agent=AgentSide(role=AgentRole.NONE),
            ),
        }  # fmt: skip

    def _offered(self, inputs: Mapping[str, Any]) -> Sequence[AgentTool]:
        return self.registry.offered(RequestOptions.from_plain(inputs.get("options") or {}))

    # -- secrets --------------------------------------------------------------------------------------------

    def hide(self, text: str) -> str:
        """A text without the secrets that the settings know."""
        return self._redaction.text(text)

    def _masked(self, tool: Tool) -> Tool:
        """A tool whose receipts and answers show no secret."""
        return _hiding(tool, self.hide) if self._redaction.knows_any else tool


def _inputs(ctx: Any) -> Mapping[str, Any]:
    """What the assistant is asked about; the conversation has the rest."""
    values = ctx.values
    return {name: values.get(name) for name in ("prompt", "workspace", "options")}


def _hiding(tool: Tool, hide: Callable[[str], str]) -> Tool:
    """A tool whose answers and previews go through a function first."""
    perform, preview = tool.perform, tool.preview

    def shown(**args: Any) -> str:
        assert preview is not None
        return hide(preview(**args))

    changes: dict[str, Any] = {"in_front_of": tool.in_front_of or perform}
    if preview is not None:
        changes["preview"] = shown
    if iscoroutinefunction(perform):

        async def later(*args: Any, **named: Any) -> Any:
            return _hidden(await perform(*args, **named), hide)

        return replace(tool, perform=later, **changes)

    def at_once(*args: Any, **named: Any) -> Any:
        return _hidden(perform(*args, **named), hide)

    return replace(tool, perform=at_once, **changes)


def _hidden(answer: Any, hide: Callable[[str], str]) -> Any:
    """An answer without secrets, which says so if there were any."""
    if isinstance(answer, str):
        return hide(answer)
    if isinstance(answer, list):
        return [_hidden(item, hide) for item in answer]
    if not isinstance(answer, Mapping):
        return answer
    plain = {name: _hidden(value, hide) for name, value in answer.items()}
    if isinstance(content := answer.get("content"), str) and plain["content"] != content:
        plain["content"] = with_notes(plain["content"], [HIDDEN])
    return plain
