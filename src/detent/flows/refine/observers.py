"""Observers of transitions: a protocol, and two that write a line for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detent.engine.observers import MetricsLogger, StateMachineObserver
from detent.kernel.plain import encode
from detent.kernel.state_history import StateTransition

__all__ = ["MetricsLogger", "StateMachineObserver", "TransitionLines"]


class TransitionLines:
    """Appends each transition to a file, one JSON object a line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_state_transition(self, transition: StateTransition[Any]) -> None:
        """Write one line. The file is opened anew each time, so that nothing is left open."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(encode(transition.to_dict()) + "\n")
