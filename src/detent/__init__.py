"""Detent runs LLM-agent workflows as explicit, durable state machines.

What most flows need is importable from here; nothing is loaded before it is used. The rest has doors of its
own: `detent.agents`, `detent.models`, `detent.stores`, `detent.workflow`, `detent.tools`, `detent.errors`,
`detent.observers`, `detent.machines`, `detent.kinds`, `detent.project`,
`detent.testing`.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from detent.front_door import opened

__version__ = "0.1.0"

_WHERE = {
    "BreakerPolicy": "detent.kernel.policy",
    "Budget": "detent.kernel.budget",
    "Child": "detent.engine.child",
    "DetentError": "detent.kernel.errors",
    "Effect": "detent.engine.outcome",
    "Engine": "detent.engine.engine",
    "Flow": "detent.engine.flow",
    "Hold": "detent.engine.outcome",
    "Machine": "detent.kernel.machine",
    "Migration": "detent.engine.flow",
    "Move": "detent.kernel.machine",
    "NOT_DONE": "detent.engine.tools",
    "Outcome": "detent.engine.outcome",
    "query": "detent.engine.tools",
    "RetryPolicy": "detent.kernel.policy",
    "Run": "detent.kernel.run",
    "Spend": "detent.kernel.budget",
    "Status": "detent.kernel.status",
    "Step": "detent.engine.step",
    "StepContext": "detent.engine.context",
    "tool": "detent.engine.tools",
    "ToolError": "detent.engine.tools",
    "Transient": "detent.engine.step_failures",
    "when": "detent.kernel.guards",
}
_MOVED = {
    "agents": (
        "AgentStreamChunk AutonomyLevel Availability CompareRules DispatchError DispatchResult "
        "DispatchSettings Example ExecutorError ExecutorResult FallbackReason Proposal "
        "StepConfig StepExecutor StepMode StepType UsageMetadata Verdict"
    ),
    "models": "ClaudeStepExecutor ModelStepExecutor",
    "stores": "MemoryStore PostgresStore SQLiteStore",
    "workflow": "action agent context_builder generator prerequisite validation_stage",
    "observers": "Entry JsonLines MetricsLogger StateMachineObserver",
    "machines": "Guard InvalidTransitionError StateMachine StateMetrics StateTransition",
    "tools": "EffectCall Tool UNKNOWN",
}
"""Names that stood here before, by the module that shows them now."""

if TYPE_CHECKING:
    from detent.engine.child import Child as Child
    from detent.engine.context import StepContext as StepContext
    from detent.engine.engine import Engine as Engine
    from detent.engine.flow import Flow as Flow
    from detent.engine.flow import Migration as Migration
    from detent.engine.outcome import Effect as Effect
    from detent.engine.outcome import Hold as Hold
    from detent.engine.outcome import Outcome as Outcome
    from detent.engine.step import Step as Step
    from detent.engine.step_failures import Transient as Transient
    from detent.engine.tools import NOT_DONE as NOT_DONE
    from detent.engine.tools import ToolError as ToolError
    from detent.engine.tools import query as query
    from detent.engine.tools import tool as tool
    from detent.kernel.budget import Budget as Budget
    from detent.kernel.budget import Spend as Spend
    from detent.kernel.errors import DetentError as DetentError
    from detent.kernel.guards import when as when
    from detent.kernel.machine import Machine as Machine
    from detent.kernel.machine import Move as Move
    from detent.kernel.policy import BreakerPolicy as BreakerPolicy
    from detent.kernel.policy import RetryPolicy as RetryPolicy
    from detent.kernel.run import Run as Run
    from detent.kernel.status import Status as Status

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    for door, names in _MOVED.items():
        if name in names.split():
            warnings.warn(
                f"`from detent import {name}`: it is in detent.{door} now.", DeprecationWarning, stacklevel=2
            )
            return getattr(import_module(f"detent.{door}"), name)
    return opened(__name__, name, _WHERE)


def __dir__() -> list[str]:
    return [*_WHERE, "__version__"]
