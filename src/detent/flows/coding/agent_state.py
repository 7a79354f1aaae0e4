"""The four states of a coding request."""

from __future__ import annotations

from enum import Enum


class AgentState(Enum):
    """Where a request stands. Its end is no fifth state: it is RESPONSE, complete."""

    USER_INPUT = "user_input"
    """A prompt has arrived; every request starts here."""
    ASSISTANT = "assistant"
    """The assistant decides whether to call a tool."""
    TOOL_EXECUTION = "tool_execution"
    """The tools of a reply run."""
    RESPONSE = "response"
    """Results or an answer are looked at; only here may a request end."""
