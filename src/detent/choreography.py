"""Light shows for songs, for programs of your own. Nothing is loaded before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.front_door import opened

_WHERE = {
    "AgentOrchestrator": "detent.apps.choreography.orchestrator",
    "JobConfig": "detent.apps.choreography.settings",
}

if TYPE_CHECKING:
    from detent.apps.choreography.orchestrator import AgentOrchestrator as AgentOrchestrator
    from detent.apps.choreography.settings import JobConfig as JobConfig

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return opened(__name__, name, _WHERE)
