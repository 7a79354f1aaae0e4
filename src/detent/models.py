"""Executors that ask a model. Nothing is loaded before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.front_door import opened

_WHERE = {
    "ClaudeStepExecutor": "detent.adapters.models.claude",
    "ModelStepExecutor": "detent.adapters.models.executor",
}

if TYPE_CHECKING:
    from detent.adapters.models.claude import ClaudeStepExecutor as ClaudeStepExecutor
    from detent.adapters.models.executor import ModelStepExecutor as ModelStepExecutor

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return opened(__name__, name, _WHERE)
