"""The six kinds of payload: which value, which event and which file belong to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from detent.flows.notebook.payloads.values import (
    Actions,
    BehaviorPlan,
    BehaviorReflection,
    Payload,
    StagePlan,
    StageReflection,
    StepPlan,
)

PayloadKind: TypeAlias = Literal["T1", "T2", "T3", "T4", "T5", "T6"]

KINDS: tuple[PayloadKind, ...] = ("T1", "T2", "T3", "T4", "T5", "T6")
CLASSES: Mapping[PayloadKind, type[Payload]] = {
    "T1": StagePlan,
    "T2": StepPlan,
    "T3": BehaviorPlan,
    "T4": Actions,
    "T5": BehaviorReflection,
    "T6": StageReflection,
}
EVENT_OF: Mapping[PayloadKind, str] = {
    "T1": "START_WORKFLOW",
    "T2": "START_STEP",
    "T3": "START_BEHAVIOR",
    "T4": "COMPLETE_ACTION",
    "T5": "TRANSITION_TO_COMPLETE_STEP",
    "T6": "COMPLETE_STAGE",
}
"""The event a payload is made for. Reflections may lead to another: the measurement decides."""
SAMPLE_FILES: Mapping[PayloadKind, str] = {
    "T1": "00_Transition_planning_START_WORKFLOW.xml",
    "T2": "01_Transition_planning_START_STEP.xml",
    "T3": "02_Transition_planning_START_BEHAVIOUR.xml",
    "T4": "03_START_ACTION.txt",
    "T5": "04_Transition_Complete_Step.xml",
    "T6": "05_Transition_Complete_Stage.xml",
}

_KIND_OF_CLASS: Mapping[type, PayloadKind] = {made: kind for kind, made in CLASSES.items()}


def kind_of(value: Payload) -> PayloadKind:
    """The kind of a payload."""
    return _KIND_OF_CLASS[type(value)]
