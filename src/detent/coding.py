"""A coding assistant that ends a request by an explicit marker, and what older programs call it by.

Nothing is loaded before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.front_door import opened

_HOME = "detent.flows.coding"
_WHERE = {
    name: f"{_HOME}.{module}"
    for module, names in {
        "flow": "CodingFlow",
        "options": "RequestOptions",
        "reply": "AssistantReply CodingCall ToolResult",
        "request": "SessionBusy Started start_request",
        "response_state": "AgentState ResponseState",
        "result": "CodingResult result_of",
        "settings": "CodingSettings",
        "state_transition": "CODING AgentStateMachine",
        "task_completion": "Completion check_completion check_task_completion judge_reply",
    }.items()
    for name in names.split()
}

if TYPE_CHECKING:
    from detent.flows.coding.agent_state import AgentState as AgentState
    from detent.flows.coding.flow import CodingFlow as CodingFlow
    from detent.flows.coding.options import RequestOptions as RequestOptions
    from detent.flows.coding.reply import AssistantReply as AssistantReply
    from detent.flows.coding.reply import CodingCall as CodingCall
    from detent.flows.coding.reply import ToolResult as ToolResult
    from detent.flows.coding.request import SessionBusy as SessionBusy
    from detent.flows.coding.request import Started as Started
    from detent.flows.coding.request import start_request as start_request
    from detent.flows.coding.response_state import ResponseState as ResponseState
    from detent.flows.coding.result import CodingResult as CodingResult
    from detent.flows.coding.result import result_of as result_of
    from detent.flows.coding.settings import CodingSettings as CodingSettings
    from detent.flows.coding.state_transition import CODING as CODING
    from detent.flows.coding.state_transition import AgentStateMachine as AgentStateMachine
    from detent.flows.coding.task_completion import Completion as Completion
    from detent.flows.coding.task_completion import check_completion as check_completion
    from detent.flows.coding.task_completion import check_task_completion as check_task_completion
    from detent.flows.coding.task_completion import judge_reply as judge_reply

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return opened(__name__, name, _WHERE)
