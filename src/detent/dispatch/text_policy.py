"""Whose text for people is used at a level: the agent's own, or one composed of approved sentences."""

from __future__ import annotations

from detent.dispatch.autonomy import AutonomyLevel, ProsePolicy
from detent.dispatch.plan import Plan


def is_free(plan: Plan, level: AutonomyLevel) -> bool:
    """Whether an agent's own text is used unread."""
    return level is AutonomyLevel.APPROVER and plan.config.prose is ProsePolicy.FREE


def is_composed(plan: Plan, level: AutonomyLevel) -> bool:
    """Whether only text composed of approved sentences is used."""
    trusted = level in (AutonomyLevel.CONSULTANT, AutonomyLevel.APPROVER)
    return trusted and not is_free(plan, level) and not plan.reviewed
