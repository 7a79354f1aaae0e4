"""Following runs as they go: entries, observers, JSON lines."""

from __future__ import annotations

from detent.engine.observers import JsonLines as JsonLines
from detent.engine.observers import MetricsLogger as MetricsLogger
from detent.engine.observers import StateMachineObserver as StateMachineObserver
from detent.kernel.entries import Entry as Entry
