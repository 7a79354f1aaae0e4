"""Decorators for what a workflow file can name: actions, agents, generators, and the rest.

Nothing is loaded before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.front_door import opened

_WHERE = {
    "Reference": "detent.flows.workflow.references",
    "action": "detent.flows.workflow.registry",
    "agent": "detent.flows.workflow.registry",
    "context_builder": "detent.flows.workflow.registry",
    "generator": "detent.flows.workflow.registry",
    "prerequisite": "detent.flows.workflow.registry",
    "validation_stage": "detent.flows.workflow.registry",
}

if TYPE_CHECKING:
    from detent.flows.workflow.references import Reference as Reference
    from detent.flows.workflow.registry import action as action
    from detent.flows.workflow.registry import agent as agent
    from detent.flows.workflow.registry import context_builder as context_builder
    from detent.flows.workflow.registry import generator as generator
    from detent.flows.workflow.registry import prerequisite as prerequisite
    from detent.flows.workflow.registry import validation_stage as validation_stage

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return opened(__name__, name, _WHERE)
