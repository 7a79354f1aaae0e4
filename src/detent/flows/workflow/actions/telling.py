"""Actions that tell people something: in the run's record, or outside of it."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from detent.engine.context import StepContext
from detent.engine.step import StepFailed
from detent.flows.workflow.registry import action
from detent.kernel.errors import nearest

LEVELS = ("info", "success", "warning", "error")


class Logged(TypedDict):
    logged: bool


class Notified(TypedDict):
    channel: Literal["file", "webhook"]
    delivered_at: str


@action(
    "log_message",
    intent="Leave one message in the run's record for the people who read it.",
    output_schema=Logged,
)
async def log_message(ctx: StepContext, message: str, level: str = "info") -> Logged:
    """Leave a message: info, success, warning or error."""
    if level not in LEVELS:
        raise StepFailed(f"There is no level '{level}'.{nearest(level, LEVELS)} Levels: {', '.join(LEVELS)}.")
    ctx.emit(message, level=level)
    return {"logged": True}


@action(
    "notify",
    intent="Tell the people concerned, once, what happened.",
    effects=["notify.send"],
    output_schema=Notified,
    max_autonomy="consultant",
)
async def notify(
    ctx: StepContext, message: str, title: str = "", channel: Literal["file", "webhook"] = "file"
) -> dict[str, Any]:
    """Leave a notice in a file of its own, or send it to the web hook of the settings."""
    done = ctx.propose("notify.send", message=message, title=title, channel=channel)
    return {"channel": channel, "delivered_at": done.delivered_at}
