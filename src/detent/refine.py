"""Plan, validate, implement and judge until the result is good enough.

Nothing is loaded before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.front_door import opened

_HOME = "detent.flows.refine"
_WHERE = {
    name: f"{_HOME}.{module}"
    for module, names in {
        "attempt": "Attempt best_attempt",
        "checkpoints": "CheckpointError CheckpointManager CheckpointType",
        "decisions": "RefineSettings",
        "evaluation": (
            "AutomaticFailure Category CategoryScore Evaluation Issue Rubric ValidationReport Weakness"
        ),
        "failure_analysis": "FailureAnalysis analyse",
        "feedback": "Feedback render",
        "flow": "RefineFlow refine_flow",
        "loop": "refine_loop",
        "observers": "MetricsLogger StateMachineObserver TransitionLines",
        "part": "Part Rejected record_spend show_progress",
        "result": "OrchestratorResult result_of state_machine_of",
        "run": "refine",
        "state_machine": "OrchestrationState OrchestrationStateMachine",
        "token_budget": "BudgetExceededError TokenBudgetManager",
    }.items()
    for name in names.split()
}

if TYPE_CHECKING:
    from detent.flows.refine.attempt import Attempt as Attempt
    from detent.flows.refine.attempt import best_attempt as best_attempt
    from detent.flows.refine.checkpoints import CheckpointError as CheckpointError
    from detent.flows.refine.checkpoints import CheckpointManager as CheckpointManager
    from detent.flows.refine.checkpoints import CheckpointType as CheckpointType
    from detent.flows.refine.decisions import RefineSettings as RefineSettings
    from detent.flows.refine.evaluation import AutomaticFailure as AutomaticFailure
    from detent.flows.refine.evaluation import Category as Category
    from detent.flows.refine.evaluation import CategoryScore as CategoryScore
    from detent.flows.refine.evaluation import Evaluation as Evaluation
    from detent.flows.refine.evaluation import Issue as Issue
    from detent.flows.refine.evaluation import Rubric as Rubric
    from detent.flows.refine.evaluation import ValidationReport as ValidationReport
    from detent.flows.refine.evaluation import Weakness as Weakness
    from detent.flows.refine.failure_analysis import FailureAnalysis as FailureAnalysis
    from detent.flows.refine.failure_analysis import analyse as analyse
    from detent.flows.refine.feedback import Feedback as Feedback
    from detent.flows.refine.feedback import render as render
    from detent.flows.refine.flow import RefineFlow as RefineFlow
    from detent.flows.refine.flow import refine_flow as refine_flow
    from detent.flows.refine.loop import refine_loop as refine_loop
    from detent.flows.refine.observers import MetricsLogger as MetricsLogger
    from detent.flows.refine.observers import StateMachineObserver as StateMachineObserver
    from detent.flows.refine.observers import TransitionLines as TransitionLines
    from detent.flows.refine.part import Part as Part
    from detent.flows.refine.part import Rejected as Rejected
    from detent.flows.refine.part import record_spend as record_spend
    from detent.flows.refine.part import show_progress as show_progress
    from detent.flows.refine.result import OrchestratorResult as OrchestratorResult
    from detent.flows.refine.result import result_of as result_of
    from detent.flows.refine.result import state_machine_of as state_machine_of
    from detent.flows.refine.run import refine as refine
    from detent.flows.refine.state_machine import OrchestrationState as OrchestrationState
    from detent.flows.refine.state_machine import (
        OrchestrationStateMachine as OrchestrationStateMachine,
    )
    from detent.flows.refine.token_budget import BudgetExceededError as BudgetExceededError
    from detent.flows.refine.token_budget import TokenBudgetManager as TokenBudgetManager

__all__ = [*_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return opened(__name__, name, _WHERE)
