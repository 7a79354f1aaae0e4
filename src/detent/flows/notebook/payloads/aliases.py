"""Names of states, events and tags: the canonical ones, and the others that are accepted on read."""

from __future__ import annotations

import re
from collections.abc import Mapping

STATES = (
    "IDLE", "STAGE_RUNNING", "STEP_RUNNING", "BEHAVIOR_RUNNING", "BEHAVIOR_COMPLETED", "STEP_COMPLETED",
    "WORKFLOW_COMPLETE", "FAILED", "CANCELLED",
)  # fmt: skip
EVENTS = (
    "START_WORKFLOW", "START_STEP", "START_BEHAVIOR", "COMPLETE_ACTION", "TRANSITION_TO_COMPLETE_STEP",
    "COMPLETE_STAGE", "FAIL", "CANCEL",
)  # fmt: skip

EVENT_ALIASES: Mapping[str, str] = {
    "TRANSITION_TO_COMPELETE_STEP": "TRANSITION_TO_COMPLETE_STEP",
    "TRANSITION_TO_STEP_COMPLETED": "TRANSITION_TO_COMPLETE_STEP",
    "COMPLETE_STEP": "TRANSITION_TO_COMPLETE_STEP",
    "START_BEHAVIOUR": "START_BEHAVIOR",
    "NEXT_BEHAVIOR": "START_BEHAVIOR",
    "NEXT_BEHAVIOUR": "START_BEHAVIOR",
    "NEXT_STEP": "START_STEP",
    "NEXT_STAGE": "COMPLETE_STAGE",
    "COMPELETE_STAGE": "COMPLETE_STAGE",
    "COMPLETE_BEHAVIOR": "COMPLETE_ACTION",
    "COMPLETE_BEHAVIOUR": "COMPLETE_ACTION",
    "START_ACTION": "COMPLETE_ACTION",
}
STATE_ALIASES: Mapping[str, str] = {"WORKFLOW_COMPLETED": "WORKFLOW_COMPLETE"}

_PREFIX = "STATE_"
_SEPARATORS = re.compile(r"[\s-]+")
_HYPHENATED = (
    "update-project-title", "update-section-title", "update-step-title", "add-section", "add-text",
    "add-code2run",
)  # fmt: skip
_UNDERSCORED = {tag.replace("-", "_"): tag for tag in _HYPHENATED}
"""Tags of actions as models like to write them."""


def state_name(text: str) -> str | None:
    """The canonical name of a state; None if there is no such state."""
    name = decision_name(text)
    name = STATE_ALIASES.get(name, name)
    return name if name in STATES else None


def event_name(text: str) -> str | None:
    """The canonical name of an event; None if there is no such event."""
    name = _upper(text)
    name = EVENT_ALIASES.get(name, name)
    return name if name in EVENTS else None


def decision_name(text: str) -> str:
    """A name of a state or decision without prefix, in capitals, with `_COMPLETED` where it says `_COMPLETE`.

    `STAGE_COMPLETED` is a decision on the wire and no state, so nothing is looked up here.
    """
    name = _upper(text).removeprefix(_PREFIX).replace("BEHAVIOUR", "BEHAVIOR")
    if name.endswith("_COMPLETE") and name != "WORKFLOW_COMPLETE":
        name += "D"
    return name


def tag_name(tag: str) -> str:
    """The canonical form of a tag or attribute name."""
    tag = tag.replace("behaviour", "behavior")
    return _UNDERSCORED.get(tag, tag)


def _upper(text: str) -> str:
    return _SEPARATORS.sub("_", text.strip()).upper()
