"""What can go wrong with a call to an MCP server, by the one thing that matters: may it have happened?"""

from __future__ import annotations

from detent.engine.tools import ToolError
from detent.kernel.errors import DetentError

LONGEST_SAID = 500
"""Characters kept of what a server says about a failure."""


class CallFault(DetentError):
    """A call gave no answer. Its text is ours: names, numbers and sizes, nothing a server said."""

    def __init__(self, code: str, message: str, *, sent: bool, transient: bool = True) -> None:
        self.code = code
        self.message = message
        self.sent = sent
        """The server may have acted on it."""
        self.transient = transient
        super().__init__(message)


class McpInDoubt(DetentError):
    """Nobody knows whether a call that changes something happened."""


class McpToolError(ToolError):
    """A server's tool says that it failed, so what was asked for did not happen.

    `message` is what the tool said: text from outside, for the handler and the journal. The error's own
    text leaves it out, because that may reach logs.
    """

    def __init__(self, tool: str, said: str) -> None:
        self.tool = tool
        self.size = len(said)
        super().__init__("mcp_error", said[:LONGEST_SAID])

    def __str__(self) -> str:
        return f"{self.code}: '{self.tool}' says that it failed ({self.size} characters, kept as `message`)"
