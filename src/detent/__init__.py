"""Detent runs LLM-agent workflows as explicit, durable state machines.

Everything a user needs is importable from here; nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Budget": "detent.kernel.budget",
    "BreakerPolicy": "detent.kernel.policy",
    "Child": "detent.engine.children",
    "DetentError": "detent.kernel.errors",
    "Effect": "detent.engine.outcome",
    "EffectCall": "detent.engine.tools",
    "Engine": "detent.engine.engine",
    "Entry": "detent.kernel.entries",
    "Flow": "detent.engine.flow",
    "Guard": "detent.kernel.guards",
    "Hold": "detent.engine.outcome",
    "InvalidTransitionError": "detent.kernel.errors",
    "JsonLines": "detent.engine.observers",
    "Machine": "detent.kernel.machine",
    "MemoryStore": "detent.adapters.stores.memory",
    "MetricsLogger": "detent.engine.observers",
    "Migration": "detent.engine.flow",
    "Move": "detent.kernel.machine",
    "NOT_DONE": "detent.engine.tools",
    "Outcome": "detent.engine.outcome",
    "PostgresStore": "detent.adapters.stores.postgres",
    "RetryPolicy": "detent.kernel.policy",
    "Run": "detent.kernel.run",
    "SQLiteStore": "detent.adapters.stores.sqlite",
    "Spend": "detent.kernel.budget",
    "StateMachine": "detent.kernel.state_machine",
    "StateMetrics": "detent.kernel.state_machine",
    "StateMachineObserver": "detent.engine.observers",
    "StateTransition": "detent.kernel.state_machine",
    "Status": "detent.kernel.status",
    "Step": "detent.engine.step",
    "StepContext": "detent.engine.context",
    "Tool": "detent.engine.tools",
    "ToolError": "detent.engine.tools",
    "Transient": "detent.engine.step",
    "UNKNOWN": "detent.engine.tools",
    "query": "detent.engine.tools",
    "tool": "detent.engine.tools",
    "when": "detent.kernel.guards",
}

if TYPE_CHECKING:
    from detent.adapters.stores.memory import MemoryStore as MemoryStore
    from detent.adapters.stores.postgres import PostgresStore as PostgresStore
    from detent.adapters.stores.sqlite import SQLiteStore as SQLiteStore
    from detent.engine.children import Child as Child
    from detent.engine.context import StepContext as StepContext
    from detent.engine.engine import Engine as Engine
    from detent.engine.flow import Flow as Flow
    from detent.engine.flow import Migration as Migration
    from detent.engine.observers import JsonLines as JsonLines
    from detent.engine.observers import MetricsLogger as MetricsLogger
    from detent.engine.observers import StateMachineObserver as StateMachineObserver
    from detent.engine.outcome import Effect as Effect
    from detent.engine.outcome import Hold as Hold
    from detent.engine.outcome import Outcome as Outcome
    from detent.engine.step import Step as Step
    from detent.engine.step import Transient as Transient
    from detent.engine.tools import NOT_DONE as NOT_DONE
    from detent.engine.tools import UNKNOWN as UNKNOWN
    from detent.engine.tools import EffectCall as EffectCall
    from detent.engine.tools import Tool as Tool
    from detent.engine.tools import ToolError as ToolError
    from detent.engine.tools import query as query
    from detent.engine.tools import tool as tool
    from detent.kernel.budget import Budget as Budget
    from detent.kernel.budget import Spend as Spend
    from detent.kernel.entries import Entry as Entry
    from detent.kernel.errors import DetentError as DetentError
    from detent.kernel.errors import InvalidTransitionError as InvalidTransitionError
    from detent.kernel.guards import Guard as Guard
    from detent.kernel.guards import when as when
    from detent.kernel.machine import Machine as Machine
    from detent.kernel.machine import Move as Move
    from detent.kernel.policy import BreakerPolicy as BreakerPolicy
    from detent.kernel.policy import RetryPolicy as RetryPolicy
    from detent.kernel.run import Run as Run
    from detent.kernel.state_machine import StateMachine as StateMachine
    from detent.kernel.state_machine import StateMetrics as StateMetrics
    from detent.kernel.state_machine import StateTransition as StateTransition
    from detent.kernel.status import Status as Status

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    try:
        module = _WHERE[name]
    except KeyError:
        raise AttributeError(f"detent has no '{name}'. It has: {', '.join(_WHERE)}.") from None
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*_WHERE, "__version__"]
