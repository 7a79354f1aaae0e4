"""Failures of a call to an MCP server, by the one thing that matters: whether it may have happened."""

from __future__ import annotations

from detent.engine.tools import ToolError
from detent.kernel.errors import DetentError

LONGEST_SAID = 500
"""Characters kept of what a server says about a failure."""


class CallFault(DetentError):
    """A call without an answer. The message is ours: names, numbers and sizes, nothing from the server."""

    def __init__(self, code: str, message: str, *, sent: bool, transient: bool = True) -> None:
        self.code = code
        self.message = message
        self.sent = sent
        """Whether the server may have acted on it."""
        self.transient = transient
        super().__init__(message)


class McpInDoubt(DetentError):
    """It is not known whether a call that changes something happened."""


class McpToolError(ToolError):
    """A server's tool reports that it failed, so the effect did not happen.

    `message` is the tool's own text: from outside, for the handler and the journal. `str()` leaves it out,
    as that may reach logs.
    """

    def __init__(self, tool: str, said: str) -> None:
        self.tool = tool
        self.size = len(said)
        super().__init__("mcp_error", said[:LONGEST_SAID])

    def __str__(self) -> str:
        return f"{self.code}: '{self.tool}' says that it failed ({self.size} characters, kept as `message`)"
