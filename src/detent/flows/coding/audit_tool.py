"""The query `audit_sessions`, for sub-runs that look through older sessions: how each would be migrated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.engine.tools import Tool
from detent.flows.coding.sessions.audit import AuditRow, audit, counts
from detent.flows.coding.tools.spec import ToolSpec
from detent.flows.coding.workspace import Workspace

NAME = "audit_sessions"
MOST_LISTED = 200

SPEC = ToolSpec(
    NAME,
    "query",
    "Look through the session files of a folder and its sub-folders: how each older one would be mapped, "
    "why, and whether that is ambiguous. Nothing is changed.",
    {
        "type": "object",
        "required": [],
        "additionalProperties": False,
        "properties": {"directory": {"type": "string", "default": ".", "description": "The folder."}},
    },
)


def audit_sessions(workspace: str, directory: str = ".") -> Mapping[str, Any]:
    """The mapping of every file, and how many there are of each kind."""
    folder = Workspace.at(workspace).folder(directory)
    rows = list(audit(folder))
    lines = [_line(row) for row in rows[:MOST_LISTED]]
    if len(rows) > MOST_LISTED:
        lines.append(f"[{len(rows) - MOST_LISTED} more files]")
    figures = ", ".join(f"{number} {kind}" for kind, number in counts(rows)["by_kind"].items()) or "no files"
    return {"content": "\n".join([figures, *lines]), "truncated": len(rows) > MOST_LISTED}


def _line(row: AuditRow) -> str:
    facts = [row.kind, row.state, row.outcome, row.reason, "ambiguous" if row.ambiguous else None, row.detail]
    return f"{row.file}: {', '.join(str(fact) for fact in facts if fact)}"


def audit_tool() -> Tool:
    """The tool."""
    return Tool(NAME, audit_sessions, "query", blocking=True, description=SPEC.description)
