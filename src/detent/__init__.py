"""Detent runs LLM-agent workflows as explicit, durable state machines.

Everything a user needs is importable from here; nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "action": "detent.flows.workflow.registry",
    "agent": "detent.flows.workflow.registry",
    "AgentStreamChunk": "detent.dispatch.executor",
    "AutonomyLevel": "detent.dispatch.autonomy",
    "Availability": "detent.dispatch.executor",
    "BreakerPolicy": "detent.kernel.policy",
    "Budget": "detent.kernel.budget",
    "Child": "detent.engine.children",
    "ClaudeStepExecutor": "detent.adapters.models.claude",
    "CompareRules": "detent.dispatch.equivalence",
    "context_builder": "detent.flows.workflow.registry",
    "DetentError": "detent.kernel.errors",
    "DispatchError": "detent.dispatch.executor_errors",
    "DispatchResult": "detent.dispatch.result",
    "DispatchSettings": "detent.dispatch.dispatcher",
    "Effect": "detent.engine.outcome",
    "EffectCall": "detent.engine.tools",
    "Engine": "detent.engine.engine",
    "Entry": "detent.kernel.entries",
    "Example": "detent.engine.step",
    "ExecutorError": "detent.dispatch.executor_errors",
    "ExecutorResult": "detent.dispatch.executor",
    "FallbackReason": "detent.dispatch.autonomy",
    "Flow": "detent.engine.flow",
    "generator": "detent.flows.workflow.registry",
    "Guard": "detent.kernel.guards",
    "Hold": "detent.engine.outcome",
    "InvalidTransitionError": "detent.kernel.errors",
    "JsonLines": "detent.engine.observers",
    "Machine": "detent.kernel.machine",
    "MemoryStore": "detent.adapters.stores.memory",
    "MetricsLogger": "detent.engine.observers",
    "Migration": "detent.engine.flow",
    "ModelStepExecutor": "detent.adapters.models.executor",
    "Move": "detent.kernel.machine",
    "NOT_DONE": "detent.engine.tools",
    "Outcome": "detent.engine.outcome",
    "PostgresStore": "detent.adapters.stores.postgres",
    "prerequisite": "detent.flows.workflow.registry",
    "Proposal": "detent.engine.step",
    "query": "detent.engine.tools",
    "RetryPolicy": "detent.kernel.policy",
    "Run": "detent.kernel.run",
    "Spend": "detent.kernel.budget",
    "SQLiteStore": "detent.adapters.stores.sqlite",
    "StateMachine": "detent.kernel.state_machine",
    "StateMachineObserver": "detent.engine.observers",
    "StateMetrics": "detent.kernel.state_machine",
    "StateTransition": "detent.kernel.state_machine",
    "Status": "detent.kernel.status",
    "Step": "detent.engine.step",
    "StepConfig": "detent.dispatch.config",
    "StepContext": "detent.engine.context",
    "StepExecutor": "detent.dispatch.executor",
    "StepMode": "detent.dispatch.autonomy",
    "StepType": "detent.dispatch.autonomy",
    "Tool": "detent.engine.tools",
    "tool": "detent.engine.tools",
    "ToolError": "detent.engine.tools",
    "Transient": "detent.engine.step",
    "UNKNOWN": "detent.engine.tools",
    "UsageMetadata": "detent.dispatch.usage",
    "validation_stage": "detent.flows.workflow.registry",
    "Verdict": "detent.engine.step",
    "when": "detent.kernel.guards",
}

if TYPE_CHECKING:
    from detent.adapters.models.claude import ClaudeStepExecutor as ClaudeStepExecutor
    from detent.adapters.models.executor import ModelStepExecutor as ModelStepExecutor
    from detent.adapters.stores.memory import MemoryStore as MemoryStore
    from detent.adapters.stores.postgres import PostgresStore as PostgresStore
    from detent.adapters.stores.sqlite import SQLiteStore as SQLiteStore
    from detent.dispatch.autonomy import AutonomyLevel as AutonomyLevel
    from detent.dispatch.autonomy import FallbackReason as FallbackReason
    from detent.dispatch.autonomy import StepMode as StepMode
    from detent.dispatch.autonomy import StepType as StepType
    from detent.dispatch.config import StepConfig as StepConfig
    from detent.dispatch.dispatcher import DispatchSettings as DispatchSettings
    from detent.dispatch.equivalence import CompareRules as CompareRules
    from detent.dispatch.executor import AgentStreamChunk as AgentStreamChunk
    from detent.dispatch.executor import Availability as Availability
    from detent.dispatch.executor import ExecutorResult as ExecutorResult
    from detent.dispatch.executor import StepExecutor as StepExecutor
    from detent.dispatch.executor_errors import DispatchError as DispatchError
    from detent.dispatch.executor_errors import ExecutorError as ExecutorError
    from detent.dispatch.result import DispatchResult as DispatchResult
    from detent.dispatch.usage import UsageMetadata as UsageMetadata
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
    from detent.engine.step import Example as Example
    from detent.engine.step import Proposal as Proposal
    from detent.engine.step import Step as Step
    from detent.engine.step import Transient as Transient
    from detent.engine.step import Verdict as Verdict
    from detent.engine.tools import NOT_DONE as NOT_DONE
    from detent.engine.tools import UNKNOWN as UNKNOWN
    from detent.engine.tools import EffectCall as EffectCall
    from detent.engine.tools import Tool as Tool
    from detent.engine.tools import ToolError as ToolError
    from detent.engine.tools import query as query
    from detent.engine.tools import tool as tool
    from detent.flows.workflow.registry import action as action
    from detent.flows.workflow.registry import agent as agent
    from detent.flows.workflow.registry import context_builder as context_builder
    from detent.flows.workflow.registry import generator as generator
    from detent.flows.workflow.registry import prerequisite as prerequisite
    from detent.flows.workflow.registry import validation_stage as validation_stage
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
