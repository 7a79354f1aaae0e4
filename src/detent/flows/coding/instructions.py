"""The assistant's instructions: the shipped prompt, the workspace, and what a project adds."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def shipped() -> str:
    """The prompt that ships."""
    return files("detent.flows.coding").joinpath("assistant.md").read_text(encoding="utf-8")


def instructions(workspace: str, extra: str | None = None, skills: str = "") -> str:
    """The system prompt of a session; it does not change from request to request."""
    parts = [shipped().replace("{workspace}", workspace).strip()]
    parts += [part.strip() for part in (skills, extra or "") if part.strip()]
    return "\n\n".join(parts)
