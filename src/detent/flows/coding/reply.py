"""What an assistant says in one turn, and what comes of the tools it calls, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.kernel.budget import NOTHING, Spend

ErrorCode = Literal[
    "outside_workspace", "protected", "not_found", "exists", "stale", "not_unique", "too_large", "binary",
    "denied", "timeout", "nonzero_exit", "invalid_arguments", "unknown_tool", "too_many_calls", "depth_limit",
    "cancelled", "interrupted", "failed",
]  # fmt: skip
"""Why a call did not succeed."""

FinishReason = Literal["stop", "length", "tool", "filter", "other"]


@dataclass(frozen=True, slots=True)
class CodingCall:
    """A tool call of a reply."""

    id: str
    """Ours, `t<turn>c<n>`; a provider may give every call the same id, or none."""
    tool: str
    args: Any
    """An object; or, as it was written, what cannot be read as one: that call is answered with
    `invalid_arguments`."""

    def to_plain(self) -> dict[str, Any]:
        """As sessions and journals keep it."""
        return {"id": self.id, "tool": self.tool, "args": self.args}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one call; every call gets exactly one."""

    tool_call_id: str
    tool: str
    ok: bool
    content: str
    error: str | None = None
    """One of `ErrorCode`."""
    truncated: bool = False
    duration_ms: float = 0.0
    count: int | None = None
    """Lines, entries or matches that a query has found."""
    repeated: bool = False
    """The call was not made: it is the result of the same call before."""
    changed: Mapping[str, Any] | None = None
    """Arguments that a person has changed before it was carried out."""

    def to_plain(self) -> dict[str, Any]:
        """As sessions and journals keep it."""
        plain: dict[str, Any] = {
            "tool_call_id": self.tool_call_id, "tool": self.tool, "ok": self.ok, "content": self.content,
        }  # fmt: skip
        if self.error is not None:
            plain["error"] = self.error
        more = {"count": self.count, "repeated": self.repeated or None, "changed": self.changed}
        plain |= {name: value for name, value in more.items() if value is not None}
        return {**plain, "truncated": self.truncated, "duration_ms": self.duration_ms}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ToolResult:
        """A result as it was kept."""
        return cls(
            str(plain["tool_call_id"]), str(plain["tool"]), bool(plain["ok"]), str(plain["content"]),
            plain.get("error"), bool(plain.get("truncated")), float(plain.get("duration_ms") or 0.0),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AssistantReply:
    """One turn of the assistant."""

    text: str = ""
    tool_calls: tuple[CodingCall, ...] = ()
    ran: tuple[ToolResult, ...] = ()
    """Tools that ran on the provider's side."""
    finish_reason: FinishReason = "stop"
    spend: Spend = field(default=NOTHING, compare=False)
    give_up: str | None = None
    """The handler cannot go on: `needs_model`, `needs_person` or `model_failed`."""
